package api

import (
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestStalls(t *testing.T) {
	for vmstat, want := range map[string]bool{
		"": false,
		"nr_dirty 100\nnr_writeback 51\nnr_dirty_threshold 200\nnr_dirty_background_threshold 100\n": true,
		"nr_dirty 100\nnr_writeback 50\nnr_dirty_threshold 200\nnr_dirty_background_threshold 100\n": false,
		"nr_dirty 100\nnr_dirtied 900\nnr_dirty_threshold 200\nnr_dirty_background_threshold 100":    false,
	} {
		if got := pressedBy(vmstat); got != want {
			t.Errorf("%q: %v", vmstat, got)
		}
	}
	var st stalls
	now := int64(1_000_000)
	clock := func() int64 { return now }
	st.init(10, 1)
	if st.note(st.clock(), clock); st.seen.Load() != 0 || st.now(clock) {
		t.Error("an append that took no time has stalled")
	}
	for i, want := range []bool{false, false, true} { // 80 ms each, of 200 within a second
		if got := st.enough(80*time.Millisecond, now); got != want {
			t.Errorf("after stall %d: %v", i, got)
		}
		now += 300
	}
	now += stallWindowMs
	if st.enough(199*time.Millisecond, now) {
		t.Error("stalls of long ago count")
	}
	if st.note(ago(&st, 200*time.Millisecond), clock); st.seen.Load() != 1 || !st.now(clock) {
		t.Error("a long stall does not count")
	}
	if now += stallCalmMs; st.now(clock) {
		t.Error("a stall counts for ever")
	}
	st = stalls{}
	st.init(0, 1)
	if st.note(ago(&st, time.Hour), clock); st.seen.Load() != 0 {
		t.Error("a stall was seen, though nothing is one")
	}
}

// ago is the mark of an append that began so long ago.
func ago(st *stalls, d time.Duration) mark {
	m := st.clock()
	m.at -= d
	return m
}

// TestStallOfPreempted: a thread that waited for a processor only has not stalled, one that slept has.
func TestStallOfPreempted(t *testing.T) {
	var st stalls
	clock := func() int64 { return 1_000_000 }
	thread, sleeps := 7, int64(3)
	for _, c := range []struct {
		what   string
		during func()
		stalls bool
	}{
		{"never slept", func() {}, false},
		{"slept", func() { sleeps++ }, true},
		{"ended on another thread", func() { thread++ }, true},
	} {
		st = stalls{}
		st.init(10, 1)
		st.sleeps = func() (int, int64) { return thread, sleeps }
		if m := st.clock(); m.thread != 0 {
			t.Fatal("sleeps are counted before anything was slow")
		}
		st.note(ago(&st, 10*time.Millisecond), clock) // one that is slow, but not for sure
		m := ago(&st, time.Hour)
		c.during()
		if st.note(m, clock); st.seen.Load() != 2 || st.now(clock) != c.stalls {
			t.Errorf("a thread that %s: %d seen, stalled %v", c.what, st.seen.Load(), st.now(clock))
		}
	}
}

func TestThreadSleeps(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread, before := threadSleeps()
	nap := unix.NsecToTimespec(int64(time.Millisecond))
	if _, _, e := unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&nap)), 0, 0); e != 0 && e != unix.EINTR {
		t.Fatal(e)
	}
	if same, after := threadSleeps(); thread != unix.Gettid() || same != thread || after <= before {
		t.Errorf("thread %d slept %d times, then %d slept %d times", thread, before, same, after)
	}
}
