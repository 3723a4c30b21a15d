package load

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Limits say when a run ends: at the first that is reached. At least one must be set.
type Limits struct {
	Requests int64
	Bytes    int64 // of record batches
	Records  int64
	Duration time.Duration
	// Stop ends the run in good order once it is true; nil: nothing does.
	Stop *atomic.Bool
}

// Progress is told about every second how far the run is.
type Progress func(elapsed time.Duration, requests, bytes int64)

// Percentiles are in microseconds.
type Percentiles struct {
	Mean, P50, P90, P99, P999, P9999, Max float64
}

// Result of a run. Bytes count record batches only, not the frames around them.
type Result struct {
	Kind        string  `json:"kind"`
	Client      string  `json:"client,omitempty"` // library that made the load; empty: this package
	Connections int     `json:"connections"`
	Seconds     float64 `json:"seconds"`
	Requests    int64   `json:"requests"`
	Records     int64   `json:"records"`
	Bytes       int64   `json:"bytes"`
	ClientCPU   float64 `json:"client_cpu_seconds"`
	ThrottledMs int64   `json:"throttled_ms,omitempty"`
	// Held are connections that were kept open for a while, Lost those of them that the broker had closed in the end.
	Held     int         `json:"held,omitempty"`
	Lost     int         `json:"lost,omitempty"`
	OpenLoop bool        `json:"open_loop"`
	Latency  Percentiles `json:"latency_us"`
	Late     Percentiles `json:"generator_late_us,omitzero"`
	Broker   *BrokerUse  `json:"broker,omitempty"`
	Samples  []Sample    `json:"samples,omitempty"`
	// HDR is the whole histogram of Latency in nanoseconds, as HdrHistogram encodes it (V2, compressed, base64).
	HDR string `json:"hdr,omitempty"`
	// Intervals are the histograms of the samples in the same form.
	Intervals []string `json:"-"`
}

// BrokerUse is what a broker on the same machine used during a run.
type BrokerUse struct {
	CPUSeconds  float64 `json:"cpu_seconds"`
	RssAnonPeak float64 `json:"rss_anon_peak_bytes"`
}

// Sample is what happened within about a second.
type Sample struct {
	At       float64 `json:"at"`      // end, in seconds since the start
	Seconds  float64 `json:"seconds"` // length
	Requests int64   `json:"requests"`
	Bytes    int64   `json:"bytes"`
	P50      float64 `json:"p50_us"`
	P99      float64 `json:"p99_us"`
}

// BytesPerSecond is the rate of record batch bytes.
func (r Result) BytesPerSecond() float64 { return float64(r.Bytes) / r.Seconds }

// RequestsPerSecond is the rate of answered requests.
func (r Result) RequestsPerSecond() float64 { return float64(r.Requests) / r.Seconds }

func (r Result) String() string {
	var b strings.Builder
	if r.Held > 0 {
		fmt.Fprintf(&b, "%s: %d opened in %.3f s, %.0f per second; generator CPU %.2f s\n", r.Kind, r.Held, r.Seconds, r.RequestsPerSecond(), r.ClientCPU)
		fmt.Fprintf(&b, "latency (from connecting until ApiVersions is answered): %s\n", r.Latency)
		fmt.Fprintf(&b, "closed by the broker before the end: %d\n", r.Lost)
		r.footer(&b)
		return b.String()
	}
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
	r.footer(&b)
	return b.String()
}

// footer writes what the broker had to do with it.
func (r *Result) footer(b *strings.Builder) {
	if u := r.Broker; u != nil {
		fmt.Fprintf(b, "broker: %.2f s CPU", u.CPUSeconds)
		if r.Bytes > 0 {
			fmt.Fprintf(b, " (%.3f CPU-s/GB, %.1f µs per request)", u.CPUSeconds/(float64(r.Bytes)/1e9), u.CPUSeconds*1e6/float64(r.Requests))
		}
		fmt.Fprintf(b, ", RssAnon up to %.1f MiB\n", u.RssAnonPeak/(1<<20))
	}
	if r.ThrottledMs > 0 {
		fmt.Fprintf(b, "throttled by the broker: %d ms\n", r.ThrottledMs)
	}
}

func (p Percentiles) String() string {
	return fmt.Sprintf("p50 %.0f, p90 %.0f, p99 %.0f, p99.9 %.0f, p99.99 %.0f, max %.0f µs", p.P50, p.P90, p.P99, p.P999, p.P9999, p.Max)
}

// CPUSeconds is the processor time of this process so far.
func CPUSeconds() float64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) != nil {
		return 0
	}
	return float64(t.Nano()) / 1e9
}
