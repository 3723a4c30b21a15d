package quota

import (
	"math"
	"sync"
	"sync/atomic"
)

// Windows says over what time rates are measured.
type Windows struct {
	Samples int   // quota.window.num, controller.quota.window.num: those kept, the current one included
	SizeMs  int64 // quota.window.size.seconds, controller.quota.window.size.seconds
}

// sample is what was counted in one window.
type sample struct {
	value float64
	begin int64 // ms
}

// rate is a sliding rate as Apache Kafka measures it: samples in a circle, the oldest overwritten.
type rate struct {
	samples []sample
	current int
}

// record counts a value, which may be negative to take one back.
func (r *rate) record(w Windows, value float64, now int64) {
	switch {
	case len(r.samples) == 0:
		r.samples = append(make([]sample, 0, w.Samples), sample{begin: now})
		r.current = 0
	case now-r.samples[r.current].begin >= w.SizeMs:
		r.current = (r.current + 1) % w.Samples
		if r.current >= len(r.samples) {
			r.samples = append(r.samples, sample{})
		}
		r.samples[r.current] = sample{begin: now}
	}
	r.samples[r.current].value += value
}

// measure is the rate per second, and the window in ms that it is an average over: the whole time of the samples, even when there was
// nothing to count in most of it, so that a client that begins may burst.
func (r *rate) measure(w Windows, now int64) (perSecond float64, windowMs int64) {
	total, oldest := 0.0, now
	for i := range r.samples {
		s := &r.samples[i]
		if now-s.begin >= int64(w.Samples)*w.SizeMs {
			*s = sample{begin: now}
		}
		total += s.value
		oldest = min(oldest, s.begin)
	}
	windowMs = now - oldest
	if full, least := windowMs/w.SizeMs, int64(w.Samples-1); full < least {
		windowMs += (least - full) * w.SizeMs
	}
	windowMs = max(windowMs, 1)
	return total * 1000 / float64(windowMs), windowMs
}

// meter counts what one entity used of one kind. Its lock is held for moments.
type meter struct {
	gone atomic.Bool // no longer in the table

	mu     sync.Mutex // guards the rest
	rate   rate
	tokens float64 // of a Mutation
	filled int64   // ms, when tokens was true
	used   int64   // ms, last charge
}

// overRate is for how many ms somebody is to wait whose rate is above a limit: until it is down to it, if he does nothing meanwhile.
func overRate(perSecond, limit float64, windowMs int64) int64 {
	if perSecond <= limit {
		return 0
	}
	return int64(min(math.Round((perSecond-limit)/limit*float64(windowMs)), math.MaxInt32))
}

// refill adds the tokens of the time that has passed, up to the burst.
func (m *meter) refill(w Windows, limit float64, now int64) {
	burst := limit * float64(w.Samples) * float64(w.SizeMs) / 1000
	m.tokens = min(burst, m.tokens+limit*float64(now-m.filled)/1000)
	m.filled = now
}
