// Package record keeps what was measured: figures by round, with the commit, the machine, and a calibration that tells a slow day
// from a slow program; as lines of JSON that are only ever added to.
//
// It judges nothing: bars belong to the packages that measure (compare, rivals).
package record

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
)

// Figures are measured values by name, one per round.
type Figures map[string][]float64

// Record is what is kept of one scenario of one run: a line of a results file.
type Record struct {
	Time        string             `json:"time"` // RFC 3339, when the run began
	Commit      string             `json:"commit"`
	Machine     Machine            `json:"machine"`
	Calibration Calibration        `json:"calibration"`
	Scenario    string             `json:"scenario"`
	Subjects    map[string]Figures `json:"subjects"`
}

// Spread is the median of rounds with the lowest and the highest.
type Spread struct{ Median, Min, Max float64 }

// Of is the spread of the values of rounds; ok is false when there are none.
func Of(rounds []float64) (s Spread, ok bool) {
	if len(rounds) == 0 {
		return s, false
	}
	sorted := slices.Sorted(slices.Values(rounds))
	n := len(sorted)
	return Spread{(sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[0], sorted[n-1]}, true
}

// Figure is the spread of one figure of one subject.
func (r *Record) Figure(subject, name string) (Spread, bool) {
	return Of(r.Subjects[subject][name])
}

// Append adds lines to a results file, which is created if missing.
func Append(name string, records []Record) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	var errs error
	e := json.NewEncoder(f)
	for i := range records {
		errs = errors.Join(errs, e.Encode(&records[i]))
	}
	return errors.Join(errs, f.Close())
}

// Read reads a results file.
func Read(name string) ([]Record, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []Record
	for d := json.NewDecoder(bufio.NewReader(f)); ; {
		var r Record
		if err := d.Decode(&r); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", name, len(all)+1, err)
		}
		all = append(all, r)
	}
}

// Cell is the spread of a figure as text, each value times unit.
func (r *Record) Cell(subject, figure string, unit float64) string {
	s, ok := r.Figure(subject, figure)
	if !ok {
		return "–"
	}
	return fmt.Sprintf("%s (%s–%s)", Short(s.Median*unit), Short(s.Min*unit), Short(s.Max*unit))
}

// Short writes three significant digits, without an exponent.
func Short(v float64) string {
	digits := 0
	if v != 0 {
		digits = max(2-int(math.Floor(math.Log10(math.Abs(v)))), 0)
	}
	return fmt.Sprintf("%.*f", min(digits, 3), v)
}

// Origin says where and when the record was made, as a line of a Markdown list.
func (r *Record) Origin() string {
	return fmt.Sprintf("- %s, commit %s: %d × %s, %.0f GiB, Linux %s, %s; load at the start %.1f; CRC-32C of 1 GiB %.0f ms; fdatasync %.0f µs",
		r.Time, r.Commit, r.Machine.Cores, r.Machine.CPU, r.Machine.MemoryGiB, r.Machine.Kernel, r.Machine.Go,
		r.Calibration.Load1, r.Calibration.CPULoopMs, r.Calibration.FdatasyncP50)
}
