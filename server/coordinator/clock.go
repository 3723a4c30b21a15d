package coordinator

import (
	"sync"
	"time"
)

// Clock is where a runtime has its time from.
type Clock interface {
	// Now has a monotonic reading, or is a test's.
	Now() time.Time
	// AfterFunc runs f once after d, on a goroutine of its own; stop reports whether it kept f from running.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

type realClock struct{}

func (realClock) Now() time.Time { return time.Now() }
func (realClock) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(d, f).Stop
}

// tick is the precision of timers.
const tick = time.Millisecond

// alarms are the timers of all shards of a runtime: one wheel, and one timer of the clock for its next tick with something to do.
type alarms[S State] struct {
	clock Clock
	start time.Time

	mu     sync.Mutex // guards what follows; nothing else is taken while it is held
	wheel  wheel[alarm[S]]
	at     int64       // the tick that the clock is set for; 0: it is not
	unset  func() bool // keeps the clock from ringing
	closed bool
}

// alarm is one timer.
type alarm[S State] struct {
	of *timers[S]
	fn func(now time.Time) Outcome
}

// timers are those of one life of a shard; they die with it.
type timers[S State] struct {
	alarms *alarms[S]
	shard  *shard[S]
}

func newAlarms[S State](c Clock) *alarms[S] { return &alarms[S]{clock: c, start: c.Now()} }

// After implements Timers. It never fires early: the rest of a begun tick is waited for too.
func (t *timers[S]) After(d time.Duration, fn func(now time.Time) Outcome) Timer {
	a := t.alarms
	due := a.clock.Now().Add(d).Sub(a.start)
	a.mu.Lock()
	defer a.mu.Unlock()
	h := a.wheel.add(int64((due+tick-1)/tick), alarm[S]{t, fn})
	a.set()
	return h
}

// Stop implements Timers.
func (t *timers[S]) Stop(h Timer) {
	if h == 0 {
		return
	}
	t.alarms.mu.Lock()
	defer t.alarms.mu.Unlock()
	t.alarms.wheel.stop(h)
}

// set has the clock ring for the next tick with something to do, if it would not anyway. mu is held.
func (a *alarms[S]) set() {
	next, ok := a.wheel.next()
	if !ok || a.closed || a.at != 0 && a.at <= next {
		return
	}
	if a.at != 0 {
		a.unset()
	}
	a.at = next
	a.unset = a.clock.AfterFunc(a.start.Add(time.Duration(next)*tick).Sub(a.clock.Now()), a.ring)
}

// due is a timer that fired, on its way to its shard.
type due[S State] struct {
	of *timers[S]
	h  Timer
}

// ring fires what is due.
func (a *alarms[S]) ring() {
	var list []due[S]
	now := int64(a.clock.Now().Sub(a.start) / tick)
	a.mu.Lock()
	a.at = 0
	a.wheel.advance(now, func(h Timer, what alarm[S]) { list = append(list, due[S]{what.of, h}) })
	a.set()
	a.mu.Unlock()
	for _, d := range list {
		d.of.shard.submit(item[S]{timer: d.h, timers: d.of, patient: true})
	}
}

// take gives the function of a timer that fired and was not stopped since; nil otherwise.
func (t *timers[S]) take(h Timer) func(now time.Time) Outcome {
	t.alarms.mu.Lock()
	defer t.alarms.mu.Unlock()
	what, ok := t.alarms.wheel.claim(h)
	if !ok {
		return nil
	}
	return what.fn
}

// close lets nothing fire any more.
func (a *alarms[S]) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	if a.at != 0 {
		a.unset()
	}
}
