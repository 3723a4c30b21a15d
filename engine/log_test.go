package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestIdempotence: regressions 25 and 26, and apache-like answers for repeats, gaps and epochs.
func TestIdempotence(t *testing.T) {
	f := newFixture(t)
	l := f.log(true, nil)
	for i := range int32(7) {
		f.append(l, spec{n: 2, pid: 5, seq: 2 * i})
	}
	check := func(name string, s spec, base int64, dup bool, want error) {
		t.Helper()
		en := tryAppend(l, s)[0]
		if !errors.Is(en.Err, want) || en.Duplicate != dup || want == nil && en.BaseOffset != base {
			t.Errorf("%s: offset %d, duplicate %v, %v", name, en.BaseOffset, en.Duplicate, en.Err)
		}
	}
	check("last again", spec{n: 2, pid: 5, seq: 12}, 12, true, nil)
	check("fifth last again", spec{n: 2, pid: 5, seq: 4, tag: 9}, 4, true, nil)
	check("sixth last", spec{n: 2, pid: 5, seq: 2}, 0, false, ErrOutOfOrderSequence)
	check("part of a batch", spec{n: 1, pid: 5, seq: 12}, 0, false, ErrOutOfOrderSequence)
	check("overlap", spec{n: 3, pid: 5, seq: 13}, 0, false, ErrOutOfOrderSequence)
	check("gap", spec{n: 1, pid: 5, seq: 15}, 0, false, ErrOutOfOrderSequence)
	check("next", spec{n: 1, pid: 5, seq: 14}, 14, false, nil)
	check("new epoch, not from 0", spec{n: 1, pid: 5, epoch: 1, seq: 15}, 0, false, ErrOutOfOrderSequence)
	check("new epoch", spec{n: 1, pid: 5, epoch: 1, seq: 0}, 15, false, nil)
	check("old epoch", spec{n: 1, pid: 5, epoch: 0, seq: 15}, 0, false, ErrInvalidProducerEpoch)
	check("unknown producer, any sequence", spec{n: 1, pid: 6, seq: 77}, 16, false, nil)
	check("sequence wraps", spec{n: 4, pid: 7, seq: 1<<31 - 2}, 17, false, nil)
	check("after the wrap", spec{n: 1, pid: 7, seq: 2}, 21, false, nil)
	check("wrapped again", spec{n: 4, pid: 7, seq: 1<<31 - 2}, 17, true, nil)
	wantOffsets(t, l, Offsets{HighWatermark: 22, LastStable: 22, LogEnd: 22})

	if start, err := l.DeleteRecords(-1); start != 22 || err != nil {
		t.Fatal(start, err)
	}
	check("repeat after DeleteRecords", spec{n: 1, pid: 6, seq: 77}, 16, true, nil)
	check("gap after DeleteRecords", spec{n: 1, pid: 6, seq: 79}, 0, false, ErrOutOfOrderSequence)
	f.close()
	l = f.reopen(nil)
	check("repeat after a clean restart", spec{n: 1, pid: 5, epoch: 1, seq: 0}, 15, true, nil)
	check("repeat after a clean restart", spec{n: 1, pid: 7, seq: 2}, 21, true, nil)
	check("next", spec{n: 1, pid: 7, seq: 3}, 22, false, nil)
	f.kill()
	l = f.reopen(nil)
	check("repeat after a kill", spec{n: 1, pid: 7, seq: 3}, 22, true, nil)
	check("repeat of a snapshot's", spec{n: 1, pid: 6, seq: 77}, 16, true, nil)

	f.now = f.now.Add(25 * time.Hour)
	l.expire()
	check("expired: any sequence", spec{n: 1, pid: 7, seq: 500}, 23, false, nil)
}

// TestDuplicateInOneCall: a repeat in the same call as its original.
func TestDuplicateInOneCall(t *testing.T) {
	f := newFixture(t)
	l := f.log(true, nil)
	en := tryAppend(l, spec{pid: 1, seq: 0}, spec{pid: 1, seq: 0}, spec{pid: 1, seq: 1}, spec{pid: 1, seq: 3}, spec{})
	want := []string{"0 false <nil>", "0 true <nil>", "1 false <nil>", "0 false " + ErrOutOfOrderSequence.Error(), "2 false <nil>"}
	for i, e := range en {
		if got := fmt.Sprint(e.BaseOffset, e.Duplicate, e.Err); got != want[i] {
			t.Errorf("entry %d: %s, want %s", i, got, want[i])
		}
	}
}

func TestTransactions(t *testing.T) {
	f := newFixture(t)
	l := f.log(true, nil)
	f.append(l, spec{})                        // 0
	f.append(l, spec{n: 2, pid: 1, txn: true}) // 1, 2
	f.append(l, spec{n: 2, pid: 2, txn: true}) // 3, 4
	wantOffsets(t, l, Offsets{HighWatermark: 5, LastStable: 1, LogEnd: 5})
	if en := tryAppend(l, spec{pid: 1, seq: 2}); !errors.Is(en[0].Err, ErrInvalidTxnState) {
		t.Errorf("plain batch inside a transaction: %v", en[0].Err)
	}
	f.append(l, spec{pid: 1, txn: true, control: true}) // 5: abort
	wantOffsets(t, l, Offsets{HighWatermark: 6, LastStable: 3, LogEnd: 6})
	s, err := l.Read(0, 1<<20, true, ReadCommitted)
	if err != nil || s.Len != int(101*2) || len(s.Aborted) != 0 && s.Aborted[0].FirstOffset != 1 {
		t.Errorf("committed read %+v %v", s, err)
	}
	s.Ref.Release()
	if s, err := l.Read(3, 1<<20, true, ReadCommitted); s.Len != 0 || err != nil {
		t.Errorf("read between LSO and high watermark: %+v %v", s, err)
	}
	check := func(l *Log) {
		t.Helper()
		wantOffsets(t, l, Offsets{HighWatermark: 7, LastStable: 7, LogEnd: 7})
		want := AbortedTxn{ProducerID: 1, FirstOffset: 1, LastOffset: 5, LastStable: 3}
		if got := l.AbortedIn(nil, 2, 7); len(got) != 1 || got[0] != want {
			t.Errorf("aborted %+v", got)
		}
		if got := l.AbortedIn(nil, 6, 7); len(got) != 0 {
			t.Errorf("aborted after the marker %+v", got)
		}
	}
	f.append(l, spec{pid: 2, txn: true, control: true, commit: true}) // 6
	check(l)
	f.kill()
	l = f.reopen(nil)
	check(l)
	f.close()
	l = f.reopen(nil)
	check(l)
	f.append(l, spec{n: 1, pid: 2, txn: true, seq: 2}) // 7
	f.close()
	l = f.reopen(nil)
	wantOffsets(t, l, Offsets{HighWatermark: 8, LastStable: 7, LogEnd: 8})
	if _, err := l.DeleteRecords(-1); err != nil {
		t.Fatal(err)
	}
	wantOffsets(t, l, Offsets{LogStart: 8, HighWatermark: 8, LastStable: 8, LogEnd: 8})
}

func TestDeleteRecords(t *testing.T) {
	f := newFixture(t)
	l := f.log(true, small(10_000))
	f.fill(l, 4)
	segs, end := l.Segments(), l.Offsets().LogEnd
	for _, c := range []struct {
		offset, start int64
		err           error
	}{{-2, -1, ErrOffsetOutOfRange}, {end + 1, -1, ErrOffsetOutOfRange}, {0, 0, nil}, {5, 5, nil}, {3, 5, nil}} {
		if start, err := l.DeleteRecords(c.offset); start != c.start || err != c.err {
			t.Errorf("DeleteRecords(%d) = %d, %v", c.offset, start, err)
		}
	}
	if _, err := l.Read(4, 100, true, ReadUncommitted); err != ErrOffsetOutOfRange {
		t.Errorf("read below the start: %v", err)
	}
	// A reader that has the file keeps it.
	s, err := l.Read(6, 961, true, ReadUncommitted)
	if err != nil {
		t.Fatal(err)
	}
	if start, err := l.DeleteRecords(segs[2].BaseOffset + 2); start != segs[2].BaseOffset+2 || err != nil {
		t.Fatal(start, err)
	}
	f.e.reaper.wait()
	if _, err := os.Stat(f.path(0, ".log")); !os.IsNotExist(err) {
		t.Errorf("first segment: %v", err)
	}
	b := make([]byte, s.Len)
	if _, err := s.Ref.File().ReadAt(b, s.Pos); err != nil {
		t.Errorf("slice of a deleted segment: %v", err)
	}
	s.Ref.Release()
	f.kill() // regressions 65: kept over a kill
	l = f.reopen(small(10_000))
	wantOffsets(t, l, Offsets{LogStart: segs[2].BaseOffset + 2, HighWatermark: end, LastStable: end, LogEnd: end})
	if got := f.readAll(l, segs[2].BaseOffset+2); got[0] != segs[2].BaseOffset+2 {
		t.Errorf("first batch %d", got[0])
	}
	if start, err := l.DeleteRecords(-1); start != end || err != nil {
		t.Errorf("-1: %d, %v", start, err)
	}
	f.close()
	l = f.reopen(small(10_000))
	wantOffsets(t, l, Offsets{LogStart: end, HighWatermark: end, LastStable: end, LogEnd: end})
	if e := f.append(l, spec{}); e.BaseOffset != end {
		t.Errorf("next offset %d", e.BaseOffset)
	}
}

func TestRetention(t *testing.T) {
	f := newFixture(t)
	cfg := *small(10_000)
	cfg.RetentionMs = -1
	l := f.log(true, &cfg)
	f.fill(l, 3)
	segs, end := l.Segments(), l.Offsets().LogEnd
	f.now = f.now.Add(1000 * 24 * time.Hour)
	f.e.Maintain()
	if got := l.Offsets().LogStart; got != 0 {
		t.Errorf("retention.ms=-1: start %d", got)
	}
	size := cfg
	size.RetentionBytes = l.SizeBytes() - segs[0].Size
	l.SetConfig(&size)
	f.e.Maintain()
	if got := l.Offsets().LogStart; got != segs[1].BaseOffset {
		t.Errorf("retention.bytes: start %d, want %d", got, segs[1].BaseOffset)
	}
	minute := cfg
	minute.RetentionMs = 60_000
	l.SetConfig(&minute)
	f.e.Maintain()
	wantOffsets(t, l, Offsets{LogStart: end, HighWatermark: end, LastStable: end, LogEnd: end})
	f.append(l, spec{ts: f.now.UnixMilli()})
	f.e.Maintain()
	if got := l.Offsets(); got.LogStart != end || got.LogEnd != end+1 {
		t.Errorf("a fresh record: %+v", got)
	}
	f.e.reaper.wait()
	f.kill()
	l = f.reopen(&minute)
	if got := l.Offsets(); got.LogStart != end || got.LogEnd != end+1 {
		t.Errorf("after a kill: %+v", got)
	}
	keep := cfg
	keep.Delete, keep.RetentionMs = false, 1
	l.SetConfig(&keep)
	f.now = f.now.Add(time.Hour)
	f.e.Maintain()
	if got := l.Offsets().LogStart; got != end {
		t.Errorf("without cleanup.policy=delete: start %d", got)
	}
}

// TestRetentionOfUnused: a log that nobody has used since the start shrinks too.
func TestRetentionOfUnused(t *testing.T) {
	f := newFixture(t)
	f.fill(f.log(true, small(10_000)), 3)
	f.close()
	f.open()
	l := f.log(false, small(10_000))
	f.now = f.now.Add(8 * 24 * time.Hour)
	f.e.Maintain()
	if o := l.Offsets(); o.LogStart != o.LogEnd || o.LogEnd == 0 {
		t.Errorf("%+v", o)
	}
}

// TestRoll: by size, by time, by index, by offset range.
func TestRoll(t *testing.T) {
	f := newFixture(t)
	cfg := *small(1000)
	l := f.log(true, &cfg)
	en := tryAppend(l, spec{size: 400}, spec{size: 400}, spec{size: 400}, spec{size: 939}, spec{size: 940}, spec{})
	if !errors.Is(en[4].Err, ErrTooLarge) {
		t.Errorf("batch of 1001 bytes: %v", en[4].Err)
	}
	bases := func() (out []int64) {
		for _, s := range l.Segments() {
			out = append(out, s.BaseOffset)
		}
		return out
	}
	if got := bases(); !slices.Equal(got, []int64{0, 2, 3, 4}) {
		t.Errorf("segments %v", got)
	}
	big := DefaultLogConfig
	big.SegmentMs = 1000
	l.SetConfig(&big)
	f.append(l, spec{ts: 1000})
	if got := bases(); !slices.Equal(got, []int64{0, 2, 3, 4}) {
		t.Errorf("1000 ms later: %v", got)
	}
	f.append(l, spec{ts: 1001})
	if got := bases(); !slices.Equal(got, []int64{0, 2, 3, 4, 6}) {
		t.Errorf("1001 ms later: %v", got)
	}
	f.close()
	l = f.reopen(&big)
	f.append(l, spec{ts: 2002}) // segment.ms counts from the first batch also after a restart
	if got := bases(); !slices.Equal(got, []int64{0, 2, 3, 4, 6, 7}) {
		t.Errorf("after a restart: %v", got)
	}
	index := DefaultLogConfig
	index.IndexIntervalBytes, index.SegmentIndexBytes = 0, 36 // four entries, and two of the time index
	l.SetConfig(&index)
	for range 12 {
		f.append(l, spec{ts: 2002})
	}
	if got := bases(); !slices.Equal(got, []int64{0, 2, 3, 4, 6, 7, 12, 17}) {
		t.Errorf("with an index of 4 entries: %v", got)
	}
	if got := f.readAll(l, 0); len(got) != 20 {
		t.Errorf("read %v", got)
	}
}

// TestRemove: regressions 17 and 78. The directory is renamed at once, everybody is told, and a new log starts empty.
func TestRemove(t *testing.T) {
	for _, d := range []Durability{PageCache, GroupCommit} {
		f := newFixture(t, func(c *Config) { c.Durability = d })
		l := f.log(true, small(10_000))
		f.fill(l, 3)
		if _, err := l.DeleteRecords(2); err != nil && d == PageCache {
			t.Fatal(err)
		}
		var told atomic.Int32
		w := Watch{Fn: func(*Log) { told.Add(1) }}
		l.Watch(&w)
		f.e.Remove(l)
		if told.Load() == 0 {
			t.Error("watch was not told")
		}
		if _, err := l.Read(0, 100, true, ReadUncommitted); err != ErrDeleted {
			t.Errorf("read: %v", err)
		}
		if en := tryAppend(l, spec{}); en[0].Err != ErrDeleted {
			t.Errorf("append: %v", en[0].Err)
		}
		if _, err := l.AwaitDurable(1<<40, make(waiter, 1)); d == GroupCommit && err != ErrDeleted {
			t.Errorf("wait: %v", err)
		}
		n := f.log(true, nil)
		wantOffsets(t, n, Offsets{})
		if e := f.append(n, spec{pid: 9, seq: 4}); e.BaseOffset != 0 || e.LogStart != 0 {
			t.Errorf("first append of the new log: %+v", e)
		}
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) { // a sync that runs may have a file open
			left, _ := filepath.Glob(f.cfg.Dir + "/*" + deleteSuffix)
			if len(left) == 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%v was left", left)
			}
		}
		f.kill()
		if l = f.reopen(nil); l.Offsets().LogEnd != 1 {
			t.Errorf("after a kill %+v", l.Offsets())
		}
		f.close()
	}
}

// TestStray: at start, directories without an owner go, others stay; one with another topic id is not inherited.
func TestStray(t *testing.T) {
	f := newFixture(t)
	f.append(f.log(true, nil), spec{})
	for _, d := range []string{"gone-3", "x.0123-delete", "lost+found", "__kaas", "u-0"} {
		if err := os.MkdirAll(f.cfg.Dir+"/"+d, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f.cfg.Dir+"/"+d+"/f", nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f.close()
	f.open()
	f.e.RemoveStray(func(dir string) bool { return dir == "t-0" || dir == "u-0" })
	f.e.reaper.wait()
	var left []string
	entries, _ := os.ReadDir(f.cfg.Dir)
	for _, e := range entries {
		if e.IsDir() {
			left = append(left, e.Name())
		}
	}
	if !slices.Equal(left, []string{"__kaas", "lost+found", "t-0", "u-0"}) {
		t.Errorf("left %q", left)
	}
	other := f.e.OpenLog(LogSpec{Topic: "t", TopicID: [16]byte{2}})
	if err := other.Load(); err != nil || other.Offsets().LogEnd != 0 {
		t.Errorf("log of another topic id: %v %+v", err, other.Offsets())
	}
}

func TestEpochs(t *testing.T) {
	f := newFixture(t)
	open := func(epoch int32, isNew bool) *Log {
		return f.e.OpenLog(LogSpec{Topic: "t", LeaderEpoch: epoch, New: isNew})
	}
	l := open(2, true)
	f.append(l, spec{n: 3})
	f.close()
	f.open()
	l = open(3, false) // nothing is appended in epoch 3
	if err := l.Load(); err != nil {
		t.Fatal(err)
	}
	check := func(l *Log, want map[int32][2]int64) {
		t.Helper()
		for epoch, w := range want {
			if e, end := l.EndOffsetForEpoch(epoch); int64(e) != w[0] || end != w[1] {
				t.Errorf("epoch %d: (%d, %d), want %v", epoch, e, end, w)
			}
		}
	}
	check(l, map[int32][2]int64{-1: {-1, -1}, 0: {0, 0}, 1: {1, 0}, 2: {2, 3}, 3: {3, 3}, 4: {-1, -1}})
	f.close()
	f.open()
	l = open(5, false)
	f.append(l, spec{n: 2})
	f.kill()
	os.Remove(f.cfg.Dir + "/t-0/leader-epoch-checkpoint") // rebuilt from the batches that recovery scans
	f.open()
	l = open(6, false)
	if err := f.e.Recover(t.Context(), []*Log{l}, nil); err != nil {
		t.Fatal(err)
	}
	check(l, map[int32][2]int64{1: {1, 0}, 2: {2, 3}, 3: {2, 3}, 4: {2, 3}, 5: {5, 5}, 6: {6, 5}, 7: {-1, -1}})
	if got := []int32{l.EpochAt(0), l.EpochAt(2), l.EpochAt(3), l.EpochAt(4)}; !slices.Equal(got, []int32{2, 2, 5, 5}) {
		t.Errorf("epochs of offsets %v", got)
	}
	if l.Offsets().LeaderEpoch != 6 {
		t.Errorf("%+v", l.Offsets())
	}
}

// TestEpochsWithoutBatches: an epoch in which nothing was appended leaves no trace once another begins at its start.
func TestEpochsWithoutBatches(t *testing.T) {
	var x epochs
	for _, e := range []epochStart{{1, 0}, {2, 5}, {3, 5}, {3, 9}, {2, 9}, {7, 9}} {
		x.assign(e.epoch, e.start)
	}
	if want := []epochStart{{1, 0}, {3, 5}, {7, 9}}; !slices.Equal(x.list, want) {
		t.Errorf("%v, want %v", x.list, want)
	}
	x.cutStart(6)
	x.cutEnd(9)
	if want := []epochStart{{3, 6}}; !slices.Equal(x.list, want) {
		t.Errorf("%v, want %v", x.list, want)
	}
}

func TestReadLimits(t *testing.T) {
	f := newFixture(t)
	l := f.log(true, small(1000))
	for range 6 {
		f.append(l, spec{n: 2, size: 239}) // 300 bytes: 3 in a segment
	}
	for _, c := range []struct {
		offset int64
		max    int
		whole  bool
		first  int64
		pos    int64
		len    int
	}{
		{0, 10_000, true, 0, 0, 900},    // one segment at most
		{3, 10_000, false, 2, 300, 600}, // in the middle of a batch
		{2, 450, true, 2, 300, 450},     // the second batch is cut
		{2, 100, true, 2, 300, 300},     // the first is not
		{2, 100, false, 2, 300, 100},    // unless asked so
		{2, 0, false, 0, 0, 0},
		{6, 10_000, true, 6, 0, 900},
		{11, 10_000, true, 10, 600, 300},
		{12, 10_000, true, 0, 0, 0},
	} {
		s, err := l.Read(c.offset, c.max, c.whole, ReadUncommitted)
		if err != nil || s.FirstOffset != c.first || s.Pos != c.pos || s.Len != c.len || (s.Ref == nil) != (c.len == 0) {
			t.Errorf("Read(%d, %d, %v) = %+v, %v", c.offset, c.max, c.whole, s, err)
		}
		if s.Ref != nil {
			s.Ref.Release()
		}
	}
	b := make([]byte, 450)
	if n, first, err := l.ReadBytes(b, 3, ReadUncommitted); n != 450 || first != 2 || err != nil {
		t.Errorf("ReadBytes %d %d %v", n, first, err)
	}
	if _, info, err := (testFormat{}).Next(b); err != nil || info.BaseOffset != 2 {
		t.Errorf("bytes read: %+v %v", info, err)
	}
}

func TestTimes(t *testing.T) {
	f := newFixture(t)
	cfg := small(3000)
	cfg.IndexIntervalBytes = 500
	l := f.log(true, cfg)
	if _, _, _, found, err := l.OffsetForTime(0); found || err != nil {
		t.Error("found in an empty log")
	}
	times := []int64{100, 300, 200, 400, 400, 150, 500}
	for _, ts := range times {
		f.append(l, spec{n: 3, size: 600, ts: ts}) // times ts, ts+1, ts+2
	}
	check := func(l *Log) {
		t.Helper()
		for ts, want := range map[int64]int64{0: 0, 100: 0, 101: 1, 103: 3, 200: 3, 302: 5, 303: 9, 402: 11, 403: 18, 502: 20, 503: -1} {
			o, _, _, found, err := l.OffsetForTime(ts)
			if err != nil || found != (want >= 0) || found && o != want {
				t.Errorf("time %d: offset %d, %v, %v; want %d", ts, o, found, err, want)
			}
		}
		if o, ts, epoch, found, err := l.MaxTimestamp(); o != 20 || ts != 502 || epoch != 0 || !found || err != nil {
			t.Errorf("max timestamp %d at %d, epoch %d, %v, %v", ts, o, epoch, found, err)
		}
	}
	check(l)
	f.close()
	l = f.reopen(cfg)
	check(l)
	f.kill()
	l = f.reopen(cfg)
	check(l)
}

func TestWatch(t *testing.T) {
	f := newFixture(t)
	l := f.log(true, nil)
	var a, b int
	wa, wb := Watch{Fn: func(*Log) { a++ }}, Watch{Fn: func(*Log) { b++ }}
	l.Watch(&wa)
	l.Watch(&wb)
	f.append(l, spec{})
	l.Unwatch(&wa)
	l.Unwatch(&wa)
	f.append(l, spec{})
	l.Watch(&wa)
	f.append(l, spec{})
	l.Unwatch(&wb)
	l.Unwatch(&wa)
	f.append(l, spec{})
	if a != 2 || b != 3 {
		t.Errorf("told %d and %d times", a, b)
	}
}

func TestMemory(t *testing.T) {
	for _, full := range []MemoryFull{DropOldest, Refuse} {
		f := newFixture(t, func(c *Config) {
			c.Storage, c.MemoryMaxBytes, c.MemoryFull = Memory, 8<<20, full
		})
		a, b := f.e.OpenLog(LogSpec{Topic: "a", New: true}), f.e.OpenLog(LogSpec{Topic: "b", New: true})
		for range 100 {
			en := tryAppend(a, spec{size: 100_000})
			if en[0].Err != nil {
				if full == Refuse && errors.Is(en[0].Err, ErrStorage) {
					break
				}
				t.Fatal(en[0].Err)
			}
		}
		o := a.Offsets()
		if size := a.SizeBytes(); size > 8<<20 || size < 6<<20 || (full == Refuse) != (o.LogStart == 0) {
			t.Errorf("%d bytes from %d to %d", size, o.LogStart, o.LogEnd)
		}
		if got := f.readAll(a, o.LogStart); int64(len(got)) != o.LogEnd-o.LogStart {
			t.Errorf("read %d batches", len(got))
		}
		if full == Refuse {
			continue
		}
		for range 50 { // another log gets room from the first
			f.append(b, spec{size: 100_000})
			f.e.work.wait()
		}
		if a.Offsets().LogStart <= o.LogStart || f.e.memory.Load() != a.SizeBytes()+b.SizeBytes() {
			t.Errorf("%+v, counted %d of %d bytes", a.Offsets(), f.e.memory.Load(), a.SizeBytes()+b.SizeBytes())
		}
		f.e.Remove(a)
		if f.e.memory.Load() != b.SizeBytes() {
			t.Errorf("after removal counted %d of %d bytes", f.e.memory.Load(), b.SizeBytes())
		}
	}
}

func TestAllocations(t *testing.T) {
	for _, d := range []Durability{PageCache, GroupCommit} {
		f := newFixture(t, func(c *Config) { c.Durability = d })
		cfg := DefaultLogConfig
		cfg.FlushMessages, cfg.FlushMs = 100, 5
		l := f.log(true, &cfg)
		en := []Entry{batch(spec{}), batch(spec{pid: 4, txn: true}), batch(spec{})}
		seq := int32(0)
		n := testing.AllocsPerRun(500, func() {
			en[1].Info.BaseSequence = seq
			seq++
			l.Append(en)
			if en[1].Err != nil {
				t.Fatal(en[1].Err)
			}
		})
		if n > 0 && !raceEnabled { // under the race detector a sync.Pool forgets at random
			t.Errorf("Append: %v allocations", n)
		}
		if d == GroupCommit {
			f.durable(l, en[2])
		}
		for _, offset := range []int64{l.Offsets().LogEnd - 15, 700} {
			if n := testing.AllocsPerRun(100, func() {
				s, err := l.Read(offset, 1000, true, ReadUncommitted)
				if err != nil || s.Len != 1000 {
					t.Fatal(s, err)
				}
				s.Ref.Release()
			}); n > 0 {
				t.Errorf("Read at %d: %v allocations", offset, n)
			}
		}
	}
}

// TestConcurrent has appenders, readers, retention, deletion of records and committers at work together.
func TestConcurrent(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.Durability = GroupCommit; c.MaxOpenFiles = 3 })
	cfg := small(20_000)
	l := f.log(true, cfg)
	var stop atomic.Bool
	var readers, writers sync.WaitGroup
	for range 3 {
		readers.Go(func() { readAlong(t, l, &stop) })
	}
	const each = 40
	for range 4 {
		writers.Go(func() {
			for range each {
				en := tryAppend(l, spec{n: 2, size: 500, ts: f.now.UnixMilli()}, spec{ts: f.now.UnixMilli()})
				if en[0].Err != nil || en[1].Err != nil || en[1].BaseOffset != en[0].LastOffset+1 {
					t.Error(en[0].Err, en[1].Err, en[0].LastOffset, en[1].BaseOffset)
					return
				}
				f.durable(l, en[1])
				if hw := l.Offsets().HighWatermark; hw <= en[1].LastOffset {
					t.Errorf("durable to %d, high watermark %d", en[1].LastOffset, hw)
				}
			}
		})
	}
	writers.Go(func() {
		for !stop.Load() && l.Offsets().LogEnd < 4*each*3 {
			if _, err := l.DeleteRecords(l.Offsets().HighWatermark / 2); err != nil {
				t.Error(err)
			}
			f.e.Maintain()
		}
	})
	writers.Wait()
	stop.Store(true)
	readers.Wait()
	if got := l.Offsets().LogEnd; got != 4*each*3 {
		t.Errorf("log end %d", got)
	}
	f.close()
	l = f.reopen(cfg)
	if got := l.Offsets(); got.LogEnd != 4*each*3 {
		t.Errorf("after a restart %+v", got)
	}
}

// readAlong reads from the log start on until told to stop, and checks what it sees.
func readAlong(t *testing.T, l *Log, stop *atomic.Bool) {
	for offset := int64(0); !stop.Load(); {
		o := l.Offsets()
		if o.LogStart > o.LastStable || o.LastStable > o.HighWatermark || o.HighWatermark > o.LogEnd {
			t.Errorf("offsets %+v", o)
		}
		s, err := l.Read(offset, 5000, true, ReadUncommitted)
		if errors.Is(err, ErrOffsetOutOfRange) {
			offset = l.Offsets().LogStart
			continue
		}
		if err != nil {
			t.Error(err)
			return
		}
		if s.Len == 0 {
			continue
		}
		b := make([]byte, s.Len)
		_, err = s.Ref.File().ReadAt(b, s.Pos)
		s.Ref.Release()
		_, info, ferr := testFormat{}.Next(b)
		if err != nil || ferr != nil || info.LastOffset() < offset {
			t.Errorf("read at %d: %+v %v %v", offset, info, err, ferr)
			return
		}
		offset = info.LastOffset() + 1
	}
}
