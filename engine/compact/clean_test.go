package compact_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"kaas/codec/batch"
	"kaas/engine"
)

// shown lists records as offset:key=value, without those that roll made.
func (r *rig) shown() string {
	var out []string
	for _, x := range r.records() {
		if !strings.HasPrefix(x.key, "roll") {
			out = append(out, fmt.Sprintf("%d:%s=%s", x.offset, x.key, x.value))
		}
	}
	return strings.Join(out, " ")
}

func (r *rig) want(what, want string) {
	r.t.Helper()
	if got := r.shown(); got != want {
		r.t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

func (r *rig) clean(want int) {
	r.t.Helper()
	if got := r.e.Clean(); got != want {
		r.t.Errorf("%d cleans, want %d", got, want)
	}
}

// batchAt is the batch that holds an offset, nil if none does.
func (r *rig) batchAt(offset int64) batch.View {
	for _, v := range r.batches() {
		if v.BaseOffset() <= offset && offset <= v.LastOffset() {
			return v
		}
	}
	return nil
}

// TestLastValues: the last record of each key stays, with offset, codec and timestamp; regression 77.
func TestLastValues(t *testing.T) {
	for codec := batch.CodecNone; codec <= batch.CodecZstd; codec++ {
		t.Run(codec.String(), func(t *testing.T) {
			r := newRig(t, nil)
			r.mustOpen()
			s := spec{codec: codec}
			r.add(s, kv{"a", "1"}, kv{"b", "1"}, kv{"", "empty key"})
			r.add(s, kv{"a", "2"}, kv{"a", "3"}, kv{"c", ""})
			r.add(s, kv{"b", "2"})
			r.now = r.now.Add(time.Second)
			r.add(s, kv{"a", "4"}, kv{"d", "1"})
			r.roll()
			r.add(s, kv{"d", "in the active segment"})
			before := r.l.Offsets()
			r.clean(1)
			r.want("cleaned", "2:=empty key 5:c= 6:b=2 7:a=4 8:d=1 "+fmt.Sprint(before.LogEnd-1)+":d=in the active segment")
			if r.l.Offsets() != before {
				t.Errorf("offsets %+v, were %+v", r.l.Offsets(), before)
			}
			v := r.batchAt(5)
			if v.BaseOffset() != 3 || v.LastOffset() != 5 || v.Codec() != codec || v.Count() != 1 || v.BaseTimestamp() != 1_700_000_000_000 {
				t.Errorf("batch of offset 5: base %d last %d codec %v count %d timestamp %d", v.BaseOffset(), v.LastOffset(), v.Codec(), v.Count(), v.BaseTimestamp())
			}
			r.clean(0)
			r.close()
			r.mustOpen()
			r.want("after a restart", "2:=empty key 5:c= 6:b=2 7:a=4 8:d=1 "+fmt.Sprint(before.LogEnd-1)+":d=in the active segment")
			r.clean(0) // the checkpoint says so
		})
	}
}

// TestTombstones: kept for delete.retention.ms from the clean that first sees them, by the horizon in the batch (KIP-534).
func TestTombstones(t *testing.T) {
	r := newRig(t, func(c *engine.LogConfig) { c.DeleteRetentionMs = 60_000 })
	r.mustOpen()
	r.add(spec{}, kv{"a", "1"}, kv{"b", "1"})
	r.now = r.now.Add(time.Hour) // only the clean counts, not how old the tombstone is
	r.add(spec{}, kv{"a", "-"}, kv{"c", "1"})
	r.roll()
	r.clean(1)
	r.want("first", "1:b=1 2:a=- 3:c=1")
	v := r.batchAt(2)
	if !v.HasDeleteHorizon() || v.BaseTimestamp() != r.now.UnixMilli()+60_000 || v.MaxTimestamp() != r.now.UnixMilli() {
		t.Errorf("horizon %v %d, max timestamp %d", v.HasDeleteHorizon(), v.BaseTimestamp(), v.MaxTimestamp())
	}
	r.now = r.now.Add(59_999 * time.Millisecond)
	r.roll()
	r.clean(1)
	r.want("before the horizon", "1:b=1 2:a=- 3:c=1")
	r.now = r.now.Add(time.Millisecond)
	r.roll()
	r.clean(1)
	r.want("at the horizon", "1:b=1 3:c=1")
	if !r.batchAt(3).HasDeleteHorizon() {
		t.Error("a batch that loses its tombstone keeps its horizon, as Apache's does")
	}
}

// TestTransactions: aborted data goes, markers go in two steps once nothing is left of their transaction, committed data is data.
func TestTransactions(t *testing.T) {
	r := newRig(t, func(c *engine.LogConfig) { c.DeleteRetentionMs = 1000 })
	r.mustOpen()
	r.add(spec{pid: 1, txn: true}, kv{"a", "1"}, kv{"b", "1"}) // 0, 1
	r.add(spec{pid: 2, txn: true}, kv{"a", "2"}, kv{"c", "1"}) // 2, 3
	r.add(spec{pid: 2, marker: "abort"})                       // 4
	r.add(spec{pid: 1, marker: "commit"})                      // 5
	r.add(spec{pid: 2, txn: true}, kv{"c", "2"})               // 6
	r.add(spec{pid: 2, marker: "commit"})                      // 7
	r.add(spec{pid: 1}, kv{"z", "1"})                          // 8: the last of 1
	r.add(spec{pid: 2}, kv{"z", "2"})                          // 9: the last of 2
	r.roll()
	r.clean(1)
	r.want("first", "0:a=1 1:b=1 6:c=2 9:z=2")
	if v := r.batchAt(8); v == nil || v.Count() != 0 || v.BaseSequence() != 2 {
		t.Errorf("the last batch of producer 1: %v", v)
	}
	if v := r.batchAt(4); v == nil || v.HasDeleteHorizon() {
		t.Error("the abort marker has to wait: its data was there")
	}
	if got := r.l.AbortedIn(nil, 0, 10); len(got) != 1 || got[0].FirstOffset != 2 || got[0].LastOffset != 4 {
		t.Errorf("aborted %+v", got)
	}
	r.roll()
	r.clean(1)
	if v := r.batchAt(4); v == nil || !v.HasDeleteHorizon() || v.BaseTimestamp() != r.now.UnixMilli()+1000 {
		t.Error("the abort marker has no horizon")
	}
	if got := r.l.AbortedIn(nil, 0, 10); len(got) != 0 {
		t.Errorf("aborted %+v", got)
	}
	r.add(spec{pid: 3}, kv{"a", "9"}, kv{"b", "9"})
	r.now = r.now.Add(time.Second)
	r.roll()
	r.clean(1)
	if r.batchAt(4) != nil {
		t.Error("the abort marker is still there")
	}
	if v := r.batchAt(5); v == nil || v.HasDeleteHorizon() {
		t.Error("a commit marker has to wait until after the clean that takes its data")
	}
	r.roll()
	r.clean(1)
	r.now = r.now.Add(time.Second)
	r.roll()
	r.clean(1)
	if r.batchAt(5) != nil || r.batchAt(7) == nil {
		t.Error("the markers of lost data go, those of data that is there stay")
	}
}

// TestMarkerIsLast: the marker of a producer of which nothing else is known keeps its epoch.
func TestOpenTransaction(t *testing.T) {
	r := newRig(t, nil)
	r.mustOpen()
	r.add(spec{}, kv{"a", "1"})
	r.add(spec{}, kv{"a", "2"})
	r.roll()
	r.add(spec{pid: 1, txn: true}, kv{"b", "1"})
	lso := r.l.Offsets().LastStable
	r.add(spec{}, kv{"a", "3"})
	r.roll()
	r.add(spec{}, kv{"a", "4"})
	r.roll()
	r.clean(1)
	got := r.shown()
	if !strings.HasPrefix(got, "1:a=2 ") || !strings.Contains(got, ":a=3 ") || r.l.Offsets().LastStable != lso {
		t.Errorf("above the last stable offset nothing is cleaned: %s, %+v", got, r.l.Offsets())
	}
	r.add(spec{pid: 1, marker: "commit"})
	r.roll()
	r.clean(1)
	if got := r.shown(); strings.Contains(got, "a=3") || strings.Contains(got, "a=2") || !strings.Contains(got, "b=1") || !strings.Contains(got, "a=4") {
		t.Errorf("after the commit: %s", got)
	}
}

// TestSequences: after a clean and a restart that has only the log to go by, producers go on, and repeats are known.
func TestSequences(t *testing.T) {
	r := newRig(t, nil)
	r.mustOpen()
	r.add(spec{pid: 7}, kv{"a", "1"}, kv{"b", "1"})
	r.add(spec{}, kv{"a", "2"}, kv{"b", "2"})
	r.roll()
	r.clean(1)
	r.close()
	for _, name := range r.disk.Files("*.snapshot") {
		if err := r.disk.Lose(name); err != nil {
			t.Fatal(err)
		}
	}
	r.mustOpen()
	r.seq[7] = 0
	if again := r.add(spec{pid: 7}, kv{"a", "1"}, kv{"b", "1"}); again != 0 {
		t.Errorf("the repeat got offset %d, want that of the first", again)
	}
	r.add(spec{pid: 7}, kv{"c", "1"})
}

// TestKeyless: records without a key, from before the topic was compacted, go.
func TestKeyless(t *testing.T) {
	r := newRig(t, nil)
	r.mustOpen()
	r.add(spec{}, kv{"-", "1"}, kv{"a", "1"})
	r.roll()
	r.add(spec{}, kv{"-", "2"})
	r.clean(1)
	if got := r.shown(); !strings.HasPrefix(got, "1:a=1 ") || !strings.HasSuffix(got, ":-=2") {
		t.Error(got)
	}
}

// TestLagAndRatio: min.compaction.lag.ms, min.cleanable.dirty.ratio and max.compaction.lag.ms.
func TestLagAndRatio(t *testing.T) {
	r := newRig(t, func(c *engine.LogConfig) { c.MinCompactionLagMs = 5000 })
	r.mustOpen()
	r.add(spec{}, kv{"a", "1"}, kv{"a", "2"})
	r.roll()
	r.clean(0)
	r.now = r.now.Add(5000 * time.Millisecond)
	r.clean(1)
	r.want("after the lag", "1:a=2")

	r.cfg.MinCompactionLagMs, r.cfg.MinCleanableRatio = 0, 0.9
	cfg := r.cfg
	r.l.SetConfig(&cfg)
	r.add(spec{}, kv{"a", "3"}, kv{"a", "4"})
	r.roll()
	r.clean(0) // not enough is dirty
	cfg.MaxCompactionLagMs = 6000
	r.l.SetConfig(&cfg)
	r.clean(0)
	r.now = r.now.Add(1001 * time.Millisecond)
	r.clean(1)
	if got := r.shown(); !strings.HasSuffix(got, "a=4") || strings.Contains(got, "a=2") {
		t.Error(got)
	}
}

// TestFullMap: a map with room for few keys takes several cleans, and loses nothing on the way.
func TestFullMap(t *testing.T) {
	r := newRig(t, nil)
	r.conf = func(c *engine.Config) { c.Cleaner = engine.CleanerConfig{DedupeBytes: 10 * 24, LoadFactor: 0.5} }
	r.mustOpen()
	var want []string
	for round := range 3 {
		for k := range 20 {
			off := r.add(spec{}, kv{fmt.Sprint("k", k), fmt.Sprint(round)})
			if round == 2 {
				want = append(want, fmt.Sprintf("%d:k%d=2", off, k))
			}
		}
	}
	r.roll()
	before := r.shown()
	if n := r.e.Clean(); n < 60/5 {
		t.Errorf("%d cleans with five keys each", n)
	}
	if before == r.shown() {
		t.Error("nothing was cleaned")
	}
	// A map that never holds all keys leaves an older value of a key it had no room for; the last ones are there.
	got := r.shown()
	for _, w := range want {
		if !strings.Contains(got+" ", w+" ") {
			t.Errorf("%s is gone", w)
		}
	}
}

// TestEmptiedSegments: segments of which nothing is left do not stop readers, retention or later cleans; small ones are merged.
func TestEmptiedSegments(t *testing.T) {
	r := newRig(t, nil)
	r.mustOpen()
	var last int64
	for i := range 40 {
		last = r.add(spec{}, kv{"a", fmt.Sprintf("%0300d", i)})
	}
	r.sealed()
	n := len(r.l.Segments())
	active := r.l.Segments()[n-1].BaseOffset
	r.clean(1)
	if got := len(r.l.Segments()); got != n {
		t.Errorf("%d segments of %d: by their sizes before no two fit together", got, n)
	}
	recs := r.records()
	if recs[0].offset != active-1 || recs[len(recs)-1].offset != last {
		t.Errorf("records from %d to %d", recs[0].offset, recs[len(recs)-1].offset)
	}
	if s, err := r.l.Read(3, 100, true, engine.ReadUncommitted); err != nil || s.FirstOffset != active-1 {
		t.Errorf("reading in the gap: %+v %v", s, err)
	} else {
		s.Ref.Release()
	}
	r.add(spec{}, kv{"b", "1"}, kv{"a", "x"})
	r.roll()
	r.clean(1)
	if got := len(r.l.Segments()); got > 4 {
		t.Errorf("%d segments: emptied ones are merged", got)
	}
	r.close()
	r.mustOpen()
	if got := r.shown(); !strings.HasSuffix(got, "b=1 "+fmt.Sprint(last+2)+":a=x") {
		t.Error(got)
	}
	if start, err := r.l.DeleteRecords(last + 1); start != last+1 || err != nil {
		t.Error(start, err)
	}
	if got := r.records()[0].offset; got != last+1 {
		t.Errorf("first record %d", got)
	}
}

// TestCompactAndDelete: both policies together, with an emptied segment in front.
func TestCompactAndDelete(t *testing.T) {
	r := newRig(t, func(c *engine.LogConfig) { c.Delete, c.RetentionMs = true, 10_000 })
	r.mustOpen()
	r.add(spec{}, kv{"a", "1"})
	r.roll()
	r.add(spec{}, kv{"a", "2"})
	r.roll()
	r.clean(1)
	end := r.l.Offsets().LogEnd
	r.now = r.now.Add(11 * time.Second)
	r.e.Maintain()
	if o := r.l.Offsets(); o.LogStart != end || o.LogEnd != end {
		t.Errorf("offsets %+v, want all gone at %d", o, end)
	}
}

// TestDeletedWhileCleaning: a clean of a log whose topic is deleted ends, and leaves nothing in a new log of that name.
func TestDeletedWhileCleaning(t *testing.T) {
	r := newRig(t, nil)
	// The throttle holds the clean until the log is gone.
	r.conf = func(c *engine.Config) { c.Cleaner = engine.CleanerConfig{BytesPerSecond: 1} }
	r.mustOpen()
	for i := range 20 {
		r.add(spec{}, kv{"a", fmt.Sprintf("%0300d", i)})
	}
	r.sealed()
	done := make(chan int)
	go func() { done <- r.e.Clean() }()
	r.e.Remove(r.l)
	if n := <-done; n != 0 {
		t.Errorf("%d cleans", n)
	}
	r.l = r.e.OpenLog(engine.LogSpec{Topic: "t", TopicID: [16]byte{2}, Config: &r.cfg, New: true})
	r.add(spec{}, kv{"n", "1"})
	r.want("the new log", "0:n=1")
	if left := slices.Concat(r.disk.Files("*.cleaned"), r.disk.Files("*.swap")); len(left) != 0 && strings.HasPrefix(left[0], "/d/t-0/") {
		t.Errorf("left %v", left)
	}
}
