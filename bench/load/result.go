package load

import (
	"fmt"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

// Limits say when a run ends: at the first that is reached. At least one must be set.
type Limits struct {
	Requests int64
	Bytes    int64 // of record batches
	Duration time.Duration
}

// Progress is told about every second how far the run is.
type Progress func(elapsed time.Duration, requests, bytes int64)

// Percentiles are in microseconds.
type Percentiles struct {
	Mean, P50, P90, P99, P999, P9999, Max float64
}

// Result of a run. Bytes count record batches only, not the frames around them.
type Result struct {
	Kind        string      `json:"kind"`
	Connections int         `json:"connections"`
	Seconds     float64     `json:"seconds"`
	Requests    int64       `json:"requests"`
	Records     int64       `json:"records"`
	Bytes       int64       `json:"bytes"`
	ClientCPU   float64     `json:"client_cpu_seconds"`
	ThrottledMs int64       `json:"throttled_ms,omitempty"`
	OpenLoop    bool        `json:"open_loop"`
	Latency     Percentiles `json:"latency_us"`
	Late        Percentiles `json:"generator_late_us,omitzero"`
}

// BytesPerSecond is the rate of record batch bytes.
func (r Result) BytesPerSecond() float64 { return float64(r.Bytes) / r.Seconds }

// RequestsPerSecond is the rate of answered requests.
func (r Result) RequestsPerSecond() float64 { return float64(r.Requests) / r.Seconds }

func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d requests, %d records, %.1f MB in %.3f s over %d connections\n", r.Kind, r.Requests, r.Records,
		float64(r.Bytes)/1e6, r.Seconds, r.Connections)
	fmt.Fprintf(&b, "rate: %.1f MB/s, %.0f requests/s, %.0f records/s; generator CPU %.2f s\n", r.BytesPerSecond()/1e6,
		r.RequestsPerSecond(), float64(r.Records)/r.Seconds, r.ClientCPU)
	from := "closed loop, from sending"
	if r.OpenLoop {
		from = "open loop, from the scheduled time"
	}
	fmt.Fprintf(&b, "latency (%s): %s\n", from, r.Latency)
	if r.OpenLoop {
		fmt.Fprintf(&b, "of that the generator's own delay: %s\n", r.Late)
	}
	if r.ThrottledMs > 0 {
		fmt.Fprintf(&b, "throttled by the broker: %d ms\n", r.ThrottledMs)
	}
	return b.String()
}

func (p Percentiles) String() string {
	return fmt.Sprintf("p50 %.0f, p90 %.0f, p99 %.0f, p99.9 %.0f, p99.99 %.0f, max %.0f µs", p.P50, p.P90, p.P99, p.P999, p.P9999, p.Max)
}

// histogram records nanoseconds up to a minute with three significant digits.
type histogram struct{ h *hdrhistogram.Histogram }

const longestNs = int64(time.Minute)

func newHistogram() histogram { return histogram{hdrhistogram.New(1, longestNs, 3)} }

func (h histogram) record(ns int64) {
	// The value is within the bounds given to New, the only cause of an error.
	_ = h.h.RecordValue(min(max(ns, 1), longestNs))
}

func (h histogram) percentiles() Percentiles {
	if h.h.TotalCount() == 0 {
		return Percentiles{}
	}
	at := func(q float64) float64 { return float64(h.h.ValueAtQuantile(q)) / 1e3 }
	return Percentiles{
		Mean: h.h.Mean() / 1e3, P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), P9999: at(99.99), Max: float64(h.h.Max()) / 1e3,
	}
}

// cpuSeconds is the processor time of this process so far.
func cpuSeconds() float64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) != nil {
		return 0
	}
	return float64(t.Nano()) / 1e9
}
