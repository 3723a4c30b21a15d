package engine

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"kaas/engine/segment"
	"kaas/engine/vfs"
	"kaas/engine/vfs/crashfs"
)

// What TestModel found, one case each.

// onDisk is a fixture on a crashfs disk.
func onDisk(t *testing.T, d *crashfs.Disk, durability Durability) *fixture {
	return newFixture(t, func(c *Config) { c.FS, c.Dir, c.Durability = d, modelDir, durability })
}

func cutAll(d *crashfs.Disk) *crashfs.Disk {
	return d.CrashAs(rand.New(rand.NewPCG(1, 1)), crashfs.Cut{Sector: 512})
}

// TestDataDirectoryIsDurable: the name of the data directory itself, and those above it.
func TestDataDirectoryIsDurable(t *testing.T) {
	d := crashfs.New()
	f := onDisk(t, d, GroupCommit)
	l := f.log(true, nil)
	f.durable(l, f.append(l, spec{n: 2}))
	f = onDisk(t, cutAll(d), GroupCommit)
	l = f.log(false, nil)
	if err := l.Load(); err != nil || l.Offsets().LogEnd != 2 {
		t.Errorf("log end %d, %v", l.Offsets().LogEnd, err)
	}
}

// TestNamesAfterAKill: what a start after a kill shows, names of files and directories included, survives a power cut.
func TestNamesAfterAKill(t *testing.T) {
	d := crashfs.New()
	f := onDisk(t, d, PageCache)
	f.e.work.max = 0 // nothing in the background
	l := f.log(true, nil)
	f.append(l, spec{n: 2})
	killed := d.Clone()
	f.e.work.max = 1
	f = onDisk(t, killed, PageCache)
	l = f.log(false, nil)
	if err := l.Load(); err != nil || l.Offsets().LogEnd != 2 {
		t.Fatalf("after the kill: log end %d, %v", l.Offsets().LogEnd, err)
	}
	f = onDisk(t, cutAll(killed), PageCache)
	l = f.log(false, nil)
	if err := l.Load(); err != nil || l.Offsets().LogEnd != 2 {
		t.Errorf("after the cut: log end %d, %v", l.Offsets().LogEnd, err)
	}
}

// TestJournalSyncsAreNotPassed: lines count as durable when their sync has ended, not while it runs.
func TestJournalSyncsAreNotPassed(t *testing.T) {
	d := crashfs.New()
	f := onDisk(t, d, PageCache)
	j := f.e.journal
	if err := j.update("t-0", func(e *journalEntry) { e.start = 7 }); err != nil {
		t.Fatal(err)
	}
	syncs := 0
	d.OnOp(func(o crashfs.Op) {
		if o.Kind == crashfs.OpSync {
			if syncs++; j.synced.Load() >= j.written.Load() {
				t.Error("durable while the sync runs")
			}
		}
	})
	if err := j.sync(); err != nil || syncs != 1 || j.synced.Load() < j.written.Load() {
		t.Errorf("%d syncs, %d of %d lines, %v", syncs, j.synced.Load(), j.written.Load(), err)
	}
}

// TestJournalOfADeletedTopic: regressions 17. A log begins at 0 though the journal still knows a log of that name.
func TestJournalOfADeletedTopic(t *testing.T) {
	f := newFixture(t)
	l := f.log(true, nil)
	f.append(l, spec{n: 5})
	if _, err := l.DeleteRecords(4); err != nil {
		t.Fatal(err)
	}
	if got := f.e.journal.get("t-0"); got.start != 4 || got.topic != [16]byte{1} {
		t.Errorf("journal %+v", got)
	}
	f.kill()
	f.open()
	other := f.e.OpenLog(LogSpec{Topic: "t", TopicID: [16]byte{2}})
	if err := other.Load(); err != nil {
		t.Fatal(err)
	}
	wantOffsets(t, other, Offsets{})
	if f.e.journal.dirty("t-0") {
		t.Error("the entry stays")
	}
}

// TestLostEndOfARolledSegment: the power goes before a rolled segment is synced, and the next one is there.
func TestLostEndOfARolledSegment(t *testing.T) {
	d := crashfs.New()
	f := onDisk(t, d, PageCache)
	l := f.log(true, small(1000))
	for range 4 {
		f.append(l, spec{n: 2, size: 300})
	}
	f.e.work.wait()
	if err := f.e.journal.update("t-0", func(e *journalEntry) { e.dirty, e.recovery = true, 0 }); err != nil {
		t.Fatal(err)
	}
	disk := d.Clone()
	name := modelDir + "/t-0/" + segment.FileName(0, segment.LogSuffix)
	if err := disk.Edit(name, func(b []byte) []byte { clear(b[361:]); return b }); err != nil {
		t.Fatal(err)
	}
	f = onDisk(t, disk, PageCache)
	l = f.log(false, small(1000))
	if err := l.Load(); err != nil {
		t.Fatal(err)
	}
	wantOffsets(t, l, Offsets{HighWatermark: 2, LastStable: 2, LogEnd: 2})
}

// TestRollWaitsForTheJournal: a second segment is not made before the line that says dirty is durable.
func TestRollWaitsForTheJournal(t *testing.T) {
	d := crashfs.New()
	f := onDisk(t, d, GroupCommit)
	d.OnOp(func(o crashfs.Op) {
		if o.Kind == crashfs.OpCreate && segmentBase(o.Name) > 0 && f.e.journal.synced.Load() == 0 {
			t.Errorf("%v, and the journal is not synced", o)
		}
	})
	l := f.log(true, small(1000))
	var entries []Entry
	for range 4 {
		entries = append(entries, batch(spec{n: 2, size: 300}))
	}
	l.Append(entries)
	if len(l.Segments()) < 2 {
		t.Error("no roll")
	}
}

// segmentBase is the base offset of a log file's name, 0 for others.
func segmentBase(name string) int64 {
	base, _, _ := segment.ParseName(name[len(modelDir)+min(len(name)-len(modelDir), len("/t-0/")):])
	return base
}

// TestProducersOutliveTheirSegments: a segment that goes before it was sealed leaves its snapshot.
func TestProducersOutliveTheirSegments(t *testing.T) {
	d := crashfs.New()
	f := onDisk(t, d, PageCache)
	l := f.log(true, small(1000))
	f.e.work.max = 0 // nothing is sealed
	for i := range int32(3) {
		f.append(l, spec{pid: 5, seq: i, size: 500})
	}
	if _, err := l.DeleteRecords(-1); err != nil {
		t.Fatal(err)
	}
	f.e.reaper.wait()
	disk := d.Clone()
	f.e.work.max = 1
	f = onDisk(t, disk, PageCache)
	l = f.log(false, small(1000))
	if e := f.append(l, spec{pid: 5, seq: 2, size: 500}); !e.Duplicate || e.BaseOffset != 2 {
		t.Errorf("a repeat: %+v", e)
	}
}

// TestProducersOutliveACutRemoval: a kill while segments are removed that were not sealed leaves some of them, and of the snapshots only the one
// that was made for the segment that stays.
func TestProducersOutliveACutRemoval(t *testing.T) {
	d := crashfs.New()
	f := onDisk(t, d, PageCache)
	l := f.log(true, small(1000))
	f.e.work.max = 0 // nothing is sealed
	for i := range int32(4) {
		f.append(l, spec{pid: int64(5 + i), txn: true, size: 500})
	}
	var killed []*crashfs.Disk
	d.OnOp(func(crashfs.Op) { killed = append(killed, d.Clone()) })
	if _, err := l.DeleteRecords(3); err != nil {
		t.Fatal(err)
	}
	f.e.reaper.wait()
	d.OnOp(nil)
	f.e.work.max = 1
	if len(killed) < 8 {
		t.Fatalf("%d operations", len(killed))
	}
	for i, disk := range killed {
		f := onDisk(t, disk, PageCache)
		l := f.reload(small(1000))
		if lso := l.Offsets().LastStable; i > 1 && lso != 3 {
			t.Errorf("operation %d: last stable offset %d", i, lso)
		}
		for pid := range int64(4) {
			if e := f.append(l, spec{pid: 5 + pid, txn: true, size: 500}); !e.Duplicate || e.BaseOffset != pid {
				t.Errorf("operation %d: a repeat of producer %d: offset %d, duplicate %v", i, 5+pid, e.BaseOffset, e.Duplicate)
			}
		}
	}
}

// TestRecoveryLeavesSnapshots: as a roll does, so that producers outlive segments that were recovered, too.
func TestRecoveryLeavesSnapshots(t *testing.T) {
	d := crashfs.New()
	f := onDisk(t, d, PageCache)
	l := f.log(true, small(1000))
	f.e.work.max = 0 // nothing is sealed
	for i := range int32(3) {
		f.append(l, spec{pid: int64(5 + i), size: 500})
	}
	killed := d.Clone()
	f.e.work.max = 1
	f = onDisk(t, killed, PageCache)
	l = f.log(false, small(1000))
	if err := f.e.Recover(t.Context(), []*Log{l}, nil); err != nil {
		t.Fatal(err)
	}
	f.append(l, spec{pid: 9, size: 10}) // dirty again, in the last segment
	if _, err := l.DeleteRecords(2); err != nil {
		t.Fatal(err)
	}
	f.e.reaper.wait()
	f = onDisk(t, killed.Clone(), PageCache)
	l = f.log(false, small(1000))
	if e := f.append(l, spec{pid: 5, size: 500}); !e.Duplicate || e.BaseOffset != 0 {
		t.Errorf("a repeat: %+v", e)
	}
}

// TestLostDirtyLine: a log that a start has to scan although its line was lost is whole for the start after that, too.
func TestLostDirtyLine(t *testing.T) {
	d := crashfs.New()
	f := onDisk(t, d, PageCache)
	l := f.log(true, nil)
	f.append(l, spec{})
	f.close()
	f = onDisk(t, d, PageCache)
	l = f.log(false, nil)
	f.append(l, spec{pid: 5, txn: true})
	f.append(l, spec{pid: 5, txn: true, control: true})
	cut := d.Clone()
	if err := cut.Edit(modelDir+"/"+journalName, func([]byte) []byte { return nil }); err != nil {
		t.Fatal(err)
	}
	want := AbortedTxn{ProducerID: 5, FirstOffset: 1, LastOffset: 2, LastStable: 3}
	for start := range 2 {
		f = onDisk(t, cut, PageCache)
		l = f.log(false, nil)
		if err := l.Load(); err != nil {
			t.Fatal(err)
		}
		if got := l.AbortedIn(nil, 0, 3); len(got) != 1 || got[0] != want {
			t.Errorf("start %d: %+v", start, got)
		}
		cut = cutAll(cut)
	}
}

// TestStaleTxnIndex: an index of transactions that were lost with the end of the log goes.
func TestStaleTxnIndex(t *testing.T) {
	d := crashfs.New()
	f := onDisk(t, d, PageCache)
	l := f.log(true, nil)
	f.append(l, spec{pid: 5, txn: true})
	size := l.SizeBytes()
	f.append(l, spec{pid: 5, txn: true, control: true})
	if err := l.checkpoint(); err != nil {
		t.Fatal(err)
	}
	f.append(l, spec{})
	cut := d.Clone()
	name := modelDir + "/t-0/" + segment.FileName(0, segment.LogSuffix)
	if err := cut.Edit(name, func(b []byte) []byte { return b[:size] }); err != nil {
		t.Fatal(err)
	}
	f = onDisk(t, cut, PageCache)
	l = f.log(false, nil)
	if err := f.e.Recover(t.Context(), []*Log{l}, nil); err != nil {
		t.Fatal(err)
	}
	f.close()
	if got := cut.Files("*" + segment.TxnIndexSuffix); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
}

// TestStartAfterAKill: a log start that a start has shown does not go back, though the line was not synced before the kill.
func TestStartAfterAKill(t *testing.T) {
	d := crashfs.New()
	f := onDisk(t, d, PageCache)
	l := f.log(true, nil)
	f.append(l, spec{n: 5})
	if err := l.checkpoint(); err != nil {
		t.Fatal(err)
	}
	if err := f.e.journal.update("t-0", func(e *journalEntry) { e.start = 3 }); err != nil {
		t.Fatal(err)
	}
	killed := d.Clone()
	for _, disk := range []func() *crashfs.Disk{func() *crashfs.Disk { return killed }, func() *crashfs.Disk { return cutAll(killed) }} {
		f = onDisk(t, disk(), PageCache)
		l = f.log(false, nil)
		if err := l.Load(); err != nil || l.Offsets().LogStart != 3 {
			t.Errorf("log start %d, %v", l.Offsets().LogStart, err)
		}
	}
}

// TestStartStaysUntilAllNamesAreGone: of two removals the first must not have the journal forget the log start, for which the files of the
// second do not speak yet.
func TestStartStaysUntilAllNamesAreGone(t *testing.T) {
	d := crashfs.New()
	f := onDisk(t, d, PageCache)
	l := f.log(true, small(1000))
	for range 5 {
		f.append(l, spec{size: 500})
	}
	f.e.work.wait()
	f.e.reaper.max = 0 // removals are made below
	for _, offset := range []int64{2, 4} {
		if _, err := l.DeleteRecords(offset); err != nil {
			t.Fatal(err)
		}
	}
	for i, remove := range f.e.reaper.queue {
		for _, disk := range []*crashfs.Disk{d.Clone(), cutAll(d)} {
			left := onDisk(t, disk, PageCache)
			if start := left.reload(small(1000)).Offsets().LogStart; start != 4 {
				t.Errorf("%d removals made: log start %d", i, start)
			}
		}
		remove()
	}
	if got := f.e.journal.get("t-0").start; got != 0 || len(d.Files("*.log")) != 1 {
		t.Errorf("at the end: start %d, files %v", got, d.Files("*.log"))
	}
	f.e.reaper.queue = nil
	f.e.reaper.max = 1
}

// TestFailedSyncOnDisk: after a failed sync nothing more is acknowledged, what is durable is read, and a start after a power cut has
// what the disk has and goes on.
func TestFailedSyncOnDisk(t *testing.T) {
	d, faults := crashfs.New(), crashfs.Rules("")
	f := newFixture(t, func(c *Config) { c.FS, c.Dir, c.Durability = faults.FS(d), modelDir, GroupCommit })
	l := f.log(true, nil)
	f.durable(l, f.append(l, spec{n: 2}))
	if err := faults.Set("1st fdatasync of *.log: EIO"); err != nil {
		t.Fatal(err)
	}
	f.append(l, spec{n: 3})
	w := make(waiter, 1)
	done, err := l.AwaitDurable(5, w)
	if !done && err == nil {
		err = <-w
	}
	if done || !errors.Is(err, errIO) || !errors.Is(l.Err(), errIO) {
		t.Errorf("acknowledged %v, %v, offline %v", done, err, l.Err())
	}
	if en := tryAppend(l, spec{}); !errors.Is(en[0].Err, ErrStorage) {
		t.Errorf("append: %v", en[0].Err)
	}
	if done, err := l.AwaitDurable(5, w); done || !errors.Is(err, errIO) {
		t.Errorf("acknowledged later: %v, %v", done, err)
	}
	wantOffsets(t, l, Offsets{HighWatermark: 2, LastStable: 2, LogEnd: 5})
	if got := f.readAll(l, 0); len(got) != 1 {
		t.Errorf("read %v", got)
	}
	f = onDisk(t, cutAll(d), GroupCommit)
	l = f.log(false, nil)
	if err := l.Load(); err != nil {
		t.Fatal(err)
	}
	wantOffsets(t, l, Offsets{HighWatermark: 2, LastStable: 2, LogEnd: 2})
	f.durable(l, f.append(l, spec{}))
}

// TestCloseAfterRetention: the snapshot of the last checkpoint may have gone with a segment.
func TestCloseAfterRetention(t *testing.T) {
	d := crashfs.New()
	f := onDisk(t, d, PageCache)
	l := f.log(true, nil)
	f.append(l, spec{pid: 5})
	if err := l.checkpoint(); err != nil {
		t.Fatal(err)
	}
	f.append(l, spec{pid: 5, seq: 1})
	if err := d.Remove(modelDir + "/t-0/" + segment.FileName(1, segment.SnapshotSuffix)); err != nil {
		t.Fatal(err)
	}
	f.close()
}

// TestCloseSyncsTheTimeIndex: nothing would show that its last entry is missing.
func TestCloseSyncsTheTimeIndex(t *testing.T) {
	d := crashfs.New()
	f := onDisk(t, d, PageCache)
	l := f.log(true, nil)
	f.append(l, spec{ts: 1000})
	f.close()
	b, err := vfs.ReadFile(cutAll(d), modelDir+"/t-0/"+segment.FileName(0, segment.TimeIndexSuffix), 100)
	if err != nil || len(b) != 12 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// TestDirectoryThatWasNeverDurable: a log removed before its partition.metadata was durable does not come back under a topic of its name
// that was made since, though its segments were on the disk when the power went, and their removal was not.
func TestDirectoryThatWasNeverDurable(t *testing.T) {
	for _, metadata := range []string{"", "\x00\x00\x00\x00"} {
		d := crashfs.New()
		f := onDisk(t, d, PageCache)
		f.e.work.max = 0 // nothing in the background
		f.append(f.log(true, nil), spec{n: 2})
		disk := d.Clone()
		f.e.work.max = 1
		if err := disk.Edit(modelDir+"/t-0/"+metadataName, func([]byte) []byte { return []byte(metadata) }); err != nil {
			t.Fatal(err)
		}
		f = onDisk(t, disk, PageCache)
		l := f.e.OpenLog(LogSpec{Topic: "t", TopicID: [16]byte{2}, LeaderEpoch: 2})
		if err := l.Load(); err != nil || l.Offsets().LogEnd != 0 {
			t.Fatalf("%q: the recreated topic has records up to %d, %v", metadata, l.Offsets().LogEnd, err)
		}
		if e := f.append(l, spec{}); e.BaseOffset != 0 {
			t.Errorf("%q: first offset %d", metadata, e.BaseOffset)
		}
		f.e.reaper.wait()
		f.close()
		own := modelDir + "/t-0/"
		if got := disk.Files("*.log"); len(got) != 2 || !strings.HasPrefix(got[0], own) || !strings.Contains(got[1], straySuffix+"/") {
			t.Errorf("%q: files %v", metadata, got) // what is nobody's is kept for an operator
		}
	}
}

// TestMetadataIsMadeAgain: a directory without partition.metadata, or with a damaged one, keeps its records, and what is made in its place is
// durable at once.
func TestMetadataIsMadeAgain(t *testing.T) {
	for _, damage := range []func(d *crashfs.Disk, name string) error{
		func(d *crashfs.Disk, name string) error { return d.Lose(name) },
		func(d *crashfs.Disk, name string) error {
			return d.Edit(name, func(b []byte) []byte { return b[:20] })
		},
	} {
		d := crashfs.New()
		f := onDisk(t, d, GroupCommit)
		l := f.log(true, nil)
		f.durable(l, f.append(l, spec{n: 2}))
		f.close()
		name := modelDir + "/t-0/" + metadataName
		if err := damage(d, name); err != nil {
			t.Fatal(err)
		}
		f = onDisk(t, d, GroupCommit)
		if l = f.log(false, nil); l.Load() != nil || l.Offsets().LogEnd != 2 {
			t.Errorf("log end %d, %v", l.Offsets().LogEnd, l.Err())
		}
		if b, err := vfs.ReadFile(cutAll(d), name, 1000); string(b) != string(l.metadata()) {
			t.Errorf("after a power cut: %q, %v", b, err)
		}
	}
}
