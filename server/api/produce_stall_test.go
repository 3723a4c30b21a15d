package api

import (
	"testing"
	"time"
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
	if st.note(st.clock()-200*time.Millisecond, clock); st.seen.Load() != 1 || !st.now(clock) {
		t.Error("a long stall does not count")
	}
	if now += stallCalmMs; st.now(clock) {
		t.Error("a stall counts for ever")
	}
	st = stalls{}
	st.init(0, 1)
	if st.note(st.clock()-time.Hour, clock); st.seen.Load() != 0 {
		t.Error("a stall was seen, though nothing is one")
	}
}
