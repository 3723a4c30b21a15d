package api

import (
	"sync/atomic"
	"time"
)

// A write into the page cache can stall: above the kernel's limits of dirty pages it holds a writer back for 10 to 200 ms at a time, and
// allocating space waits for the file system's journal. On an event loop that stops all its connections. So appends stay on the loop, where they
// cost the least, until one has taken stallMs; from then on whole Produce requests go to workers, with their connections held, and
// come back when no append has stalled for stallCalmMs. An episode costs the loop one stall.
//
// Tried in thought and left: appends on a goroutine of their own always, at two switches of goroutines for each round; write-back paced by
// sync_file_range, which puts a stall off but cannot prevent it, since the disk is slower than the producers when it comes to that.

// stallCalmMs is how long no append may have stalled before they run on loops again.
const stallCalmMs = 5000

// stalls knows whether appends stall.
type stalls struct {
	least time.Duration // what is a stall; 0: nothing is
	slots chan struct{} // one for each worker that appends while they do
	until atomic.Int64  // ms on the service's clock: appends go to workers before that
	seen  atomic.Int64
	start time.Time // Since reads the monotonic clock alone: half the cost of Now
}

func (st *stalls) init(ms, threads int) {
	st.start = time.Now()
	st.least = time.Duration(ms) * time.Millisecond
	st.slots = make(chan struct{}, max(1, threads))
}

// clock is when an append begins.
func (st *stalls) clock() time.Duration { return time.Since(st.start) }

// note takes an append into account that began at a time of clock.
func (st *stalls) note(began time.Duration, now func() int64) {
	if st.least > 0 && st.clock()-began >= st.least {
		st.seen.Add(1)
		st.until.Store(now() + stallCalmMs)
	}
}

// now tells whether appends stall at present.
func (st *stalls) now(clock func() int64) bool {
	until := st.until.Load()
	return until != 0 && clock() < until
}
