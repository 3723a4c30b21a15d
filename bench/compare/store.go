package compare

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

func spread(rounds []float64) (s Spread, ok bool) {
	if len(rounds) == 0 {
		return s, false
	}
	sorted := slices.Sorted(slices.Values(rounds))
	n := len(sorted)
	return Spread{(sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[0], sorted[n-1]}, true
}

// figure is the spread of one figure of one subject.
func (r *Record) figure(subject, name string) (Spread, bool) {
	return spread(r.Subjects[subject][name])
}

// appendRecords adds lines to a results file, which is created if missing.
func appendRecords(name string, records []Record) error {
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

// readRecords reads a results file.
func readRecords(name string) ([]Record, error) {
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
