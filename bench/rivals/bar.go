package rivals

import (
	"fmt"
	"math"

	"kaas/bench/record"
)

// best stands for the best of the other brokers (the floor, which is none, left out).
const best = "the best"

// bar is a limit for the median of a figure of kaas, or with over set for its ratio to that of another broker.
type bar struct {
	figure string
	over   string
	limit  float64
	most   bool // at most limit, else at least

	// What a rival took on the machine for which the limit was set. It tells how much slower this machine is.
	rival string
	there float64
}

func atLeast(limit float64, figure, over string) bar {
	return bar{figure: figure, over: over, limit: limit}
}

func atMost(limit float64, figure string) bar { return bar{figure: figure, limit: limit, most: true} }

func atMostOf(limit float64, figure, over string) bar {
	return bar{figure: figure, over: over, limit: limit, most: true}
}

// where adds that a rival took there on the machine of the limit.
func (b bar) where(rival string, there float64) bar {
	b.rival, b.there = rival, there
	return b
}

// atThisSpeed is the bar with its limit times what the rival took in this run over what it took there. Not ok: that is not known.
func (b bar) atThisSpeed(r *record.Record) (scaled bar, ok bool) {
	if b.rival == "" {
		return b, false
	}
	here, ok := r.Figure(b.rival, b.figure)
	if !ok || !(here.Median > 0) {
		return b, false
	}
	b.limit *= here.Median / b.there
	return b, true
}

// scaled is atThisSpeed and its judgement in words.
func (b bar) scaled(r *record.Record) string {
	at, ok := b.atThisSpeed(r)
	v, measured := b.value(r)
	if !ok || !measured || math.IsNaN(v) {
		return "–"
	}
	return at.String() + " " + at.sign(v)
}

// value is what the bar judges; ok is false when it was not measured.
func (b bar) value(r *record.Record) (v float64, ok bool) {
	own, ok := r.Figure(Kaas, b.figure)
	if !ok || b.over == "" {
		return own.Median, ok
	}
	of, found := 0.0, false
	for _, name := range Brokers {
		if name == b.over || b.over == best && name != Kaas && name != Floor {
			if s, ok := r.Figure(name, b.figure); ok && s.Median > 0 {
				of, found = max(of, s.Median), true
			}
		}
	}
	if !found {
		return 0, false
	}
	return own.Median / of, true
}

func (b bar) met(v float64) bool {
	if b.most {
		return v <= b.limit
	}
	return v >= b.limit
}

// units of figures: how they are shown, and the factor for that.
var units = map[string]struct {
	name   string
	factor float64
}{
	bytesPerSecond: {"MB/s", 1e-6}, requestsPerSecond: {"per s", 1}, cpuPerGB: {"CPU-s/GB", 1}, cpuPerRequest: {"CPU-µs per request", 1},
	p50: {"ms p50", 1e-3}, p99: {"ms p99", 1e-3}, p999: {"ms p99.9", 1e-3}, rssPeak: {"MiB RssAnon at most", 1}, startMs: {"ms to start", 1},
	idleRss: {"MiB RssAnon idle", 1}, idleCPU: {"% CPU idle", 1}, createMs: {"ms to create 1,000", 1}, usableMs: {"ms until usable", 1},
	restartMs: {"ms to restart with 2,000", 1}, ackP99Quiet: {"ms ack p99 quiet", 1e-3}, ackP99Cold: {"ms ack p99 beside cold readers", 1e-3},
	ackP99Times: {"times its quiet ack p99", 1}, coldPerSecond: {"MB/s cold", 1e-6}, instructions: {"instructions per request", 1},
}

func (b bar) String() string {
	sign := "≥"
	if b.most {
		sign = "≤"
	}
	u := units[b.figure]
	if b.over != "" {
		return fmt.Sprintf("%s %g× %s's %s", sign, b.limit, b.over, u.name)
	}
	return fmt.Sprintf("%s %.3g %s", sign, b.limit*u.factor, u.name)
}

// verdict is value and judgement in words.
func (b bar) verdict(r *record.Record) string {
	v, ok := b.value(r)
	if !ok || math.IsNaN(v) {
		return "not measured"
	}
	text := record.Short(v*units[b.figure].factor) + " "
	if b.over != "" {
		text = record.Short(v) + "× "
	}
	return text + b.sign(v)
}

// sign judges v.
func (b bar) sign(v float64) string {
	if b.met(v) {
		return "✓"
	}
	return "✗"
}
