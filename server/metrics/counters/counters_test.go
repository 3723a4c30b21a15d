package counters

import (
	"reflect"
	"sync"
	"testing"
	"time"

	"kaas/netio"
)

func TestBuckets(t *testing.T) {
	var h Histogram
	want := []int64{1, 2, 3, 4, 6, 8, 12, 16, 24, 32}
	for i, b := range want {
		if h.Bound(i) != b {
			t.Errorf("bound %d is %d, want %d", i, h.Bound(i), b)
		}
	}
	for _, shift := range []uint8{0, DurationShift} {
		h := Histogram{Shift: shift}
		if h.bucket(0) != 0 || h.bucket(-5) != 0 {
			t.Error("what is not above 0 does not belong to the first bucket")
		}
		for i := range Buckets - 1 {
			b := h.Bound(i)
			if got := h.bucket(b); got != i {
				t.Errorf("shift %d: %d is in bucket %d, want %d", shift, b, got, i)
			}
			if got := h.bucket(b + 1); got != i+1 {
				t.Errorf("shift %d: %d is in bucket %d, want %d", shift, b+1, got, i+1)
			}
		}
		if got := h.bucket(1<<63 - 1); got != Buckets-1 {
			t.Errorf("the largest number is in bucket %d", got)
		}
	}
	if h := (&Histogram{Shift: DurationShift}); h.Bound(Buckets-2) != 1<<35 {
		t.Errorf("the last bound of durations is %v", time.Duration(h.Bound(Buckets-2)))
	}
}

func TestHistogram(t *testing.T) {
	var h Histogram
	for _, v := range []int64{1, 2, 2, 5, 6, 7} {
		h.Observe(v)
	}
	var counts [Buckets]int64
	if sum := h.AddTo(&counts); sum != 23 || h.Count() != 6 {
		t.Errorf("sum %d, count %d, want 23, 6", sum, h.Count())
	}
	if want := [Buckets]int64{0: 1, 1: 2, 4: 2, 5: 1}; counts != want {
		t.Errorf("buckets %v, want %v", counts, want)
	}
}

// What stands together is counted together, and comes to the same as one by one.
func TestAnswered(t *testing.T) {
	done := []netio.Done{
		{Tag: 1, Frame: 10, Bytes: 100, Nanos: 1000}, {Tag: 1, Frame: 1, Bytes: 2, Nanos: 9000}, {Tag: 1, Frame: 1, Bytes: 2, Nanos: 1000},
		{Tag: 2, Frame: 5, Bytes: 0, Nanos: 1 << 40}, {Tag: 1, Frame: 7, Bytes: 8, Nanos: 9000},
	}
	whole, single := NewSet([]string{"A", "B", "C"}), NewSet([]string{"A", "B", "C"})
	whole.NewShard().Answered(done)
	a, b := single.NewShard(), single.NewShard()
	for i := range done {
		[]*Shard{a, b}[i%2].Answered(done[i : i+1])
	}
	got := whole.APIs()
	want := []APITotals{
		{Name: "A", Requests: 4, BytesIn: 19, BytesOut: 112, Nanos: 20_000, Took: [Buckets]int64{0: 2, 1: 2}},
		{Name: "B", Requests: 1, BytesIn: 5, Nanos: 1 << 40, Took: [Buckets]int64{Buckets - 1: 1}},
		{Name: "C"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("together: %+v, want %+v", got, want)
	}
	if got := single.APIs(); !reflect.DeepEqual(got, want) {
		t.Errorf("one by one: %+v, want %+v", got, want)
	}
}

func TestErrorsAndClosings(t *testing.T) {
	s := NewSet([]string{"A", "B"})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for _, code := range []int16{3, 3, -1, 30_000, -30_000} {
				s.Error(2, code)
			}
			s.Close(Malformed)
		})
	}
	all.Wait()
	s.Close(ByPeer)
	got := s.APIs()
	want := []ErrorCount{{-1, 8}, {3, 8}, {codeMax, 4}}
	if got[0].NonZeroErrorCounts != nil || !reflect.DeepEqual(got[1].NonZeroErrorCounts, want) {
		t.Errorf("errors %v and %v, want none and %v", got[0].NonZeroErrorCounts, got[1].NonZeroErrorCounts, want)
	}
	s.EachClosing(func(why Closing, fault bool, n int64) {
		want := map[Closing]int64{Malformed: 4, ByPeer: 1}[why]
		if n != want || fault != (why >= ShortFrame) || why.String() == "" {
			t.Errorf("%v: %d, fault %v, want %d", why, n, fault, want)
		}
	})
}

func TestStorage(t *testing.T) {
	s := NewStorage()
	s.Round(3, 50, 20*time.Microsecond)
	s.Round(1, 0, time.Millisecond)
	s.Wrote(4096, 10*time.Microsecond)
	if s.Rounds.Load() != 2 || s.Syncs.Load() != 4 || s.Released.Load() != 50 || s.WriteBytes.Load() != 4096 {
		t.Errorf("rounds %d, syncs %d, released %d, written %d", s.Rounds.Load(), s.Syncs.Load(), s.Released.Load(), s.WriteBytes.Load())
	}
	var logs, took [Buckets]int64
	if sum := s.RoundLogs.AddTo(&logs); sum != 4 || logs[0] != 1 || logs[2] != 1 {
		t.Errorf("logs of rounds: sum %d, %v", sum, logs)
	}
	if sum := s.WriteTook.AddTo(&took); sum != 10_000 || took[1] != 1 {
		t.Errorf("time of writes: sum %d, %v", sum, took)
	}
}

func TestCountingAllocatesNothing(t *testing.T) {
	set, st := NewSet([]string{"A"}), NewStorage()
	sh := set.NewShard()
	set.Error(1, 3)
	done := []netio.Done{{Tag: 1, Frame: 10, Bytes: 100, Nanos: 1000}}
	n := testing.AllocsPerRun(100, func() {
		sh.Answered(done)
		set.Error(1, 3)
		set.Close(Idle)
		st.Round(1, 1, time.Millisecond)
		st.Wrote(1, time.Millisecond)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
