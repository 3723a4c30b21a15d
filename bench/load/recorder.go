package load

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Histogram records nanoseconds up to a minute with three significant digits.
type Histogram struct{ h *hdrhistogram.Histogram }

const longestNs = int64(time.Minute)

func newHistogram() Histogram { return Histogram{hdrhistogram.New(1, longestNs, 3)} }

// Record adds one value; those above a minute count as a minute.
func (h Histogram) Record(ns int64) {
	// The value is within the bounds given to New, the only cause of an error.
	_ = h.h.RecordValue(min(max(ns, 1), longestNs))
}

// Percentiles are all zero for an empty histogram.
func (h Histogram) Percentiles() Percentiles {
	if h.h.TotalCount() == 0 {
		return Percentiles{}
	}
	at := func(q float64) float64 { return float64(h.h.ValueAtQuantile(q)) / 1e3 }
	return Percentiles{
		Mean: h.h.Mean() / 1e3, P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), P9999: at(99.99), Max: float64(h.h.Max()) / 1e3,
	}
}

// encode is the histogram as text. The library refuses only unknown formats.
func (h Histogram) encode() string {
	b, err := h.h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		panic(fmt.Sprintf("BUG: histogram of %d values: %v", h.h.TotalCount(), err))
	}
	return string(b)
}

// Recorder is the latency of a run, second by second. It has one user at a time.
type Recorder struct {
	whole, part    Histogram
	samples        []Sample
	intervals      []string
	at             int64
	requests, size int64
}

// NewRecorder is empty.
func NewRecorder() *Recorder { return &Recorder{whole: newHistogram(), part: newHistogram()} }

// Record adds one latency in nanoseconds.
func (r *Recorder) Record(ns int64) { r.part.Record(ns) }

// Sample ends an interval at the given time since the start, in nanoseconds, when the run has come to so many requests and bytes.
func (r *Recorder) Sample(at, requests, bytes int64) {
	if at <= r.at {
		return
	}
	p := r.part.Percentiles()
	r.samples = append(r.samples, Sample{
		At: float64(at) / 1e9, Seconds: float64(at-r.at) / 1e9, Requests: requests - r.requests, Bytes: bytes - r.size, P50: p.P50, P99: p.P99,
	})
	r.intervals = append(r.intervals, r.part.encode())
	r.at, r.requests, r.size = at, requests, bytes
	r.merge()
}

func (r *Recorder) merge() {
	r.whole.h.Merge(r.part.h) // drops nothing: both have the same bounds
	r.part.h.Reset()
}

// Reset forgets everything, at the end of a warm-up.
func (r *Recorder) Reset() { *r = *NewRecorder() }

// shortestSample is the smallest rest of a run that makes a sample of its own.
const shortestSample = 0.2

// Finish writes latency, histogram and samples into the result of the run, whose seconds, requests and bytes are set. A short rest after
// the last sample counts for the whole, but is no sample.
func (r *Recorder) Finish(to *Result) {
	if to.Seconds-float64(r.at)/1e9 >= shortestSample {
		r.Sample(int64(to.Seconds*1e9), to.Requests, to.Bytes)
	}
	r.merge()
	to.Latency, to.HDR, to.Samples, to.Intervals = r.whole.Percentiles(), r.whole.encode(), r.samples, r.intervals
}
