// Package report keeps the runs of `kaas bench` in a file, draws them as a page, exports their histograms, and makes them comparable.
//
// A report is JSON, written whole. Each run is one result of one load; loads that were repeated have several runs of the same name, whose spread is
// what a comparison takes for noise. With a single run the seconds of it stand in.
package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"kaas/bench/load"
	"kaas/bench/record"
	"kaas/bench/work"
)

// Version of the file's layout.
const Version = 1

// Report is a file.
type Report struct {
	Version int            `json:"kaas_bench_report"`
	Time    string         `json:"time"` // RFC 3339
	Commit  string         `json:"commit"`
	Machine record.Machine `json:"machine"`
	Runs    []Run          `json:"runs"`
}

// Run is one result and the load that made it.
type Run struct {
	Name   string      `json:"name"`
	Begun  string      `json:"begun"` // RFC 3339
	Spec   work.Spec   `json:"load"`
	Result load.Result `json:"result"`
	Rates  Rates       `json:"rates"`
}

// Rates are made of the result, for those who read the file.
type Rates struct {
	Bytes    float64 `json:"bytes_per_second"`
	Requests float64 `json:"requests_per_second"`
	Records  float64 `json:"records_per_second"`
}

// New is an empty report of this machine and this moment.
func New() *Report {
	return &Report{Version: Version, Time: time.Now().UTC().Format(time.RFC3339), Commit: record.Commit(), Machine: record.ThisMachine()}
}

// Add adds the results of a load. The first has the load's name, others get their kind added to it.
func (r *Report) Add(begun time.Time, s work.Spec, results []load.Result) {
	for i := range results {
		name := s.Name
		if name == "" {
			name = s.Kind
		}
		if i > 0 {
			name += "/" + results[i].Kind
		}
		res := results[i]
		rates := Rates{}
		if res.Seconds > 0 {
			rates = Rates{res.BytesPerSecond(), res.RequestsPerSecond(), float64(res.Records) / res.Seconds}
		}
		r.Runs = append(r.Runs, Run{name, begun.UTC().Format(time.RFC3339), s, res, rates})
	}
}

// Write writes it as JSON.
func (r *Report) Write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(r)
}

// ErrNoReport is returned for a file that is something else.
var ErrNoReport = errors.New("no report of kaas bench")

// Read reads a report, or the newest record of each scenario of a results file, as records to compare.
func Read(name string) (map[string]*record.Record, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var r Report
	if json.NewDecoder(bytes.NewReader(b)).Decode(&r) == nil && r.Version != 0 {
		if r.Version != Version {
			return nil, fmt.Errorf("%s: layout %d, this program knows %d: %w", name, r.Version, Version, ErrNoReport)
		}
		return r.Records(), nil
	}
	records, err := record.Read(name)
	if err == nil && (len(records) == 0 || records[0].Scenario == "") {
		err = ErrNoReport
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return record.Newest(records), nil
}

// Records are the runs as records: a scenario for each name, a round for each run of it.
func (r *Report) Records() map[string]*record.Record {
	all := map[string]*record.Record{}
	count := map[string]int{}
	for i := range r.Runs {
		count[r.Runs[i].Name]++
	}
	for i := range r.Runs {
		run := &r.Runs[i]
		rec := all[run.Name]
		if rec == nil {
			rec = &record.Record{
				Time: r.Time, Commit: r.Commit, Machine: r.Machine, Scenario: run.Name, Subjects: map[string]record.Figures{run.Spec.Client: {}},
			}
			all[run.Name] = rec
		}
		figures := rec.Subjects[run.Spec.Client]
		if figures == nil {
			figures = record.Figures{}
			rec.Subjects[run.Spec.Client] = figures
		}
		for name, values := range run.figures(count[run.Name] == 1) {
			figures[name] = append(figures[name], values...)
		}
	}
	return all
}

// samplesMin is how many seconds a run must have to say something about its own noise.
const samplesMin = 5

// figures of a run. With alone the seconds of the run are its rounds where there are enough of them.
func (r *Run) figures(alone bool) record.Figures {
	res := &r.Result
	f := record.Figures{
		"requests_per_second": {r.Rates.Requests}, "p50_us": {res.Latency.P50}, "p99_us": {res.Latency.P99}, "p99.9_us": {res.Latency.P999},
	}
	if res.Bytes > 0 {
		f["bytes_per_second"] = []float64{r.Rates.Bytes}
	}
	if u := res.Broker; u != nil {
		f["rss_anon_peak_bytes"] = []float64{u.RssAnonPeak}
		if res.Requests > 0 {
			f["cpu_us_per_request"] = []float64{u.CPUSeconds * 1e6 / float64(res.Requests)}
		}
		if res.Bytes > 0 {
			f["cpu_s_per_gb"] = []float64{u.CPUSeconds / (float64(res.Bytes) / 1e9)}
		}
	}
	if !alone || len(res.Samples) < samplesMin {
		return f
	}
	for _, name := range []string{"requests_per_second", "bytes_per_second", "p50_us", "p99_us"} {
		delete(f, name)
	}
	for _, s := range res.Samples {
		f["requests_per_second"] = append(f["requests_per_second"], float64(s.Requests)/s.Seconds)
		if res.Bytes > 0 {
			f["bytes_per_second"] = append(f["bytes_per_second"], float64(s.Bytes)/s.Seconds)
		}
		f["p50_us"], f["p99_us"] = append(f["p50_us"], s.P50), append(f["p99_us"], s.P99)
	}
	return f
}

// nsPerUnit: the text forms of histograms are in microseconds.
const nsPerUnit = 1000

// WriteHGRM writes the percentile distribution of a result, in microseconds, in the form that HdrHistogram's plotter reads.
func WriteHGRM(w io.Writer, r *load.Result) error {
	h, err := hdrhistogram.Decode([]byte(r.HDR))
	if err != nil {
		return err
	}
	_, err = h.PercentilesPrint(w, 5, nsPerUnit)
	return err
}

// WriteHLog writes the histograms of all seconds of a result as a histogram log.
func WriteHLog(w io.Writer, begun time.Time, r *load.Result) error {
	l := hdrhistogram.NewHistogramLogWriter(w)
	errs := errors.Join(l.OutputComment("[Logged by kaas bench, values in nanoseconds]"), l.OutputLogFormatVersion(), l.OutputStartTime(begun.UnixMilli()),
		l.OutputLegend())
	for i, text := range r.Intervals {
		h, err := hdrhistogram.Decode([]byte(text))
		if err != nil {
			return err
		}
		s := r.Samples[i]
		h.SetStartTimeMs(begun.UnixMilli() + int64((s.At-s.Seconds)*1e3))
		h.SetEndTimeMs(begun.UnixMilli() + int64(s.At*1e3))
		errs = errors.Join(errs, l.OutputIntervalHistogram(h))
	}
	return errs
}
