package api

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A write into the page cache can stall: above the kernel's limits of dirty pages it holds a writer back for 10 to 200 ms at a time, and
// allocating space waits for the file system's journal. On an event loop that stops all its connections. So appends stay on the loop, where they
// cost the least, until some have stalled; from then on whole Produce requests go to workers, with their connections held, and
// come back when no append has stalled for stallCalmMs. An episode costs the loop one stall or a few.
//
// A long append may also mean that the loop was preempted, which workers do not help against: they cost a copy and two switches of goroutines
// for each request, twice the processor time with librdkafka's requests of 1 MB, on a machine that has too little of it already. So after
// a long append the kernel is asked, before and after each, how often the thread went to sleep; one in which it never did was preempted, and does not count.
// Of the others one that took kaas.append.stall.ms counts at once only if the kernel has more dirty pages than it lets pass freely; else
// (limits of a control group, a slow journal) when within a second such appends have taken stallSure times as long together.
//
// Left aside: appends on a goroutine of their own always, two switches of goroutines and a copy of each request; and write-back paced by
// sync_file_range, which puts stalls off and cannot prevent them when producers are faster than the disk for long.

const (
	stallCalmMs   = 5000 // without a stall, and appends run on loops again
	stallSure     = 20
	stallWindowMs = 1000
)

// stalls knows whether appends stall.
type stalls struct {
	least time.Duration // what is a stall; 0: nothing is
	slots chan struct{} // one for each worker that appends while they do
	until atomic.Int64  // ms on the service's clock: appends go to workers before that
	watch atomic.Int64  // ns since start: the sleeps of threads are counted before that
	seen  atomic.Int64
	start time.Time // Since reads the monotonic clock alone: half the cost of Now

	sleeps func() (thread int, sleeps int64) // threadSleeps

	mu    sync.Mutex // guards the rest
	since int64      // ms, when the window began
	sum   time.Duration
}

func (st *stalls) init(ms, threads int) {
	st.start, st.sleeps = time.Now(), threadSleeps
	st.least = time.Duration(ms) * time.Millisecond
	st.slots = make(chan struct{}, max(1, threads))
}

// mark is where an append began.
type mark struct {
	at     time.Duration // since the start
	thread int           // 0: its sleeps were not counted
	sleeps int64         // of the thread until then
}

// clock marks when an append begins.
func (st *stalls) clock() mark {
	m := mark{at: time.Since(st.start)}
	if int64(m.at) < st.watch.Load() {
		m.thread, m.sleeps = st.sleeps()
	}
	return m
}

// threadSleeps counts how often this thread gave up its processor to wait for something.
func threadSleeps() (thread int, sleeps int64) {
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &usage) != nil {
		return 0, 0
	}
	return unix.Gettid(), usage.Nvcsw
}

// preempted tells whether the thread of m has waited for nothing but a processor since. Of a goroutine that has changed its thread it is not known.
func (st *stalls) preempted(m mark) bool {
	if m.thread == 0 {
		return false
	}
	thread, sleeps := st.sleeps()
	return thread == m.thread && sleeps == m.sleeps
}

// note takes an append into account.
func (st *stalls) note(m mark, now func() int64) {
	ended := time.Since(st.start)
	took := ended - m.at
	if st.least == 0 || took < st.least {
		return
	}
	st.seen.Add(1)
	st.watch.Store(int64(ended + stallCalmMs*time.Millisecond))
	if st.preempted(m) {
		return
	}
	if at := now(); dirtyPressed() || st.enough(took, at) {
		st.until.Store(at + stallCalmMs)
	}
}

// enough tells whether appends that took long have taken so much together that it cannot be chance.
func (st *stalls) enough(took time.Duration, now int64) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if now-st.since > stallWindowMs {
		st.since, st.sum = now, 0
	}
	st.sum += took
	return st.sum >= stallSure*st.least
}

// now tells whether appends stall at present.
func (st *stalls) now(clock func() int64) bool {
	until := st.until.Load()
	return until != 0 && clock() < until
}

// dirtyPressed tells whether the kernel holds back writers: there are more dirty pages, those being written included, than half way between the
// limit at which it begins to write them and the one that it keeps.
func dirtyPressed() bool {
	text, err := os.ReadFile("/proc/vmstat")
	return err == nil && pressedBy(string(text))
}

func pressedBy(vmstat string) bool {
	var dirty, limits int64
	for line := range strings.Lines(vmstat) {
		name, number, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		n, _ := strconv.ParseInt(number, 10, 64)
		switch name {
		case "nr_dirty", "nr_writeback":
			dirty += n
		case "nr_dirty_threshold", "nr_dirty_background_threshold":
			limits += n
		}
	}
	return limits > 0 && dirty > limits/2
}
