package engine

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"kaas/engine/vfs"
	"kaas/engine/vfs/crashfs"
)

func withFaults(t *testing.T, change ...func(*Config)) (*fixture, *faultFS) {
	ffs := &faultFS{FS: vfs.OS}
	f := newFixture(t, append([]func(*Config){func(c *Config) { c.FS = ffs }}, change...)...)
	return f, ffs
}

func tryAppend(l *Log, s ...spec) []Entry {
	var en []Entry
	for _, s := range s {
		en = append(en, batch(s))
	}
	l.Append(en)
	return en
}

// TestDiskFull: regressions 33. The failed append leaves nothing behind, reads go on, later appends work.
func TestDiskFull(t *testing.T) {
	for _, kind := range []string{"allocate", "write"} {
		t.Run(kind, func(t *testing.T) {
			f, ffs := withFaults(t)
			l := f.log(true, nil)
			f.append(l, spec{n: 2, pid: 7, seq: 0})
			l.active().Trim() // nothing allocated ahead
			ffs.set(func(f *faultFS) {
				if kind == "write" {
					f.write = errNoSpace
				} else {
					f.allocate = errNoSpace
				}
			})
			en := tryAppend(l, spec{n: 3, pid: 7, seq: 2}, spec{n: 3, pid: 7, seq: 2})
			for i := range en {
				if !errors.Is(en[i].Err, ErrStorage) || !errors.Is(en[i].Err, errNoSpace) || en[i].Duplicate {
					t.Errorf("entry %d: %v, duplicate %v", i, en[i].Err, en[i].Duplicate)
				}
			}
			wantOffsets(t, l, Offsets{HighWatermark: 2, LastStable: 2, LogEnd: 2})
			if got := f.readAll(l, 0); len(got) != 1 {
				t.Errorf("read %v", got)
			}
			ffs.set(func(f *faultFS) { f.write, f.allocate = nil, nil })
			if e := f.append(l, spec{n: 3, pid: 7, seq: 2}); e.BaseOffset != 2 || e.Duplicate {
				t.Errorf("after space returned: %+v", e)
			}
			if st, err := os.Stat(f.path(0, ".log")); err != nil || st.Size() <= l.SizeBytes() {
				t.Errorf("file of %d bytes with %d of data is not allocated ahead (%v)", st.Size(), l.SizeBytes(), err)
			}
			f.kill()
			l = f.reopen(nil)
			if got := f.readAll(l, 0); !slices.Equal(got, []int64{0, 2}) {
				t.Errorf("after a restart %v", got)
			}
		})
	}
}

// TestUndoFails: batches that were written whole before the write failed, and cannot be cut away, are refused and nothing is appended before
// they are gone: a recovery would find them behind a shorter append of their size, or before a new segment. Nothing goes offline.
func TestUndoFails(t *testing.T) {
	const some = 100
	for _, c := range []struct {
		what string
		next int // size of what is appended when the file can be cut
		want []int64
	}{{"over them", some, []int64{0, 1}}, {"in a new segment", 8 * some, []int64{0, 1}}, {"nothing", 0, []int64{0, 1, 2}}} {
		t.Run(c.what, func(t *testing.T) {
			d, faults := crashfs.New(), crashfs.Rules("")
			f := newFixture(t, func(c *Config) { c.FS, c.Dir, c.Durability = faults.FS(d), modelDir, PageCache })
			f.e.work.max = 0 // a seal would cut too
			l := f.log(true, small(1300))
			f.append(l, spec{size: 5 * some})
			set := func(rule string) {
				if err := faults.Set(rule); err != nil {
					t.Fatal(err)
				}
			}
			refused := func(en []Entry, want error) {
				t.Helper()
				for i := range en {
					if !errors.Is(en[i].Err, ErrStorage) || !errors.Is(en[i].Err, want) {
						t.Errorf("entry %d: %v", i, en[i].Err)
					}
				}
				wantOffsets(t, l, Offsets{HighWatermark: 1, LastStable: 1, LogEnd: 1})
				if got := f.readAll(l, 0); l.Err() != nil || len(got) != 1 {
					t.Errorf("read %v, offline: %v", got, l.Err())
				}
			}
			set("1st write of *.log: short ENOSPC; truncate of *.log: EIO") // the first two are written
			refused(tryAppend(l, spec{size: some}, spec{size: some}, spec{size: some}, spec{size: some}), errNoSpace)
			refused(tryAppend(l, spec{size: some}), errIO)
			refused(tryAppend(l, spec{size: 8 * some}), errIO)
			set("")
			if c.next > 0 {
				if e := f.append(l, spec{size: c.next, tag: 7}); e.BaseOffset != 1 {
					t.Errorf("appended at %d", e.BaseOffset)
				}
			}
			killed := d.Clone()
			f.e.work.max = 1
			f = onDisk(t, killed, PageCache)
			l = f.reload(small(1300))
			if got := f.readAll(l, 0); !slices.Equal(got, c.want) {
				t.Errorf("after a kill: %v, want %v", got, c.want)
			}
			want := batch(spec{size: c.next, tag: 7}).Data
			b := make([]byte, len(want))
			if n, _, err := l.ReadBytes(b, 1, ReadUncommitted); c.next > 0 && (err != nil || n != len(b) || !bytes.Equal(b[61:], want[61:])) {
				t.Errorf("the second batch is not what was stored: %d bytes, %v", n, err)
			}
			if e := f.append(l, spec{}); e.BaseOffset != c.want[len(c.want)-1]+1 {
				t.Errorf("then appended at %d", e.BaseOffset)
			}
		})
	}
}

// TestFailedSync: nothing more is acknowledged, also when later syncs would succeed; reads below the high watermark go on.
func TestFailedSync(t *testing.T) {
	var mu sync.Mutex
	var failures []string
	f, ffs := withFaults(t, func(c *Config) {
		c.Durability = GroupCommit
		c.OnFailure = func(l *Log, err error) {
			mu.Lock()
			defer mu.Unlock()
			failures = append(failures, l.String()+": "+err.Error())
		}
	})
	l := f.log(true, nil)
	f.durable(l, f.append(l, spec{}))
	ffs.set(func(f *faultFS) { f.sync = errIO })
	e := f.append(l, spec{})
	w := make(waiter, 1)
	done, err := l.AwaitDurable(e.LastOffset+1, w)
	if !done && err == nil {
		err = <-w
	}
	if done || !errors.Is(err, errIO) {
		t.Errorf("waiter: %v %v", done, err)
	}
	ffs.set(func(f *faultFS) { f.sync = nil })
	if en := tryAppend(l, spec{}); !errors.Is(en[0].Err, ErrStorage) || !errors.Is(en[0].Err, errIO) {
		t.Errorf("append: %v", en[0].Err)
	}
	if done, err := l.AwaitDurable(2, w); done || !errors.Is(err, errIO) {
		t.Errorf("wait again: %v %v", done, err)
	}
	wantOffsets(t, l, Offsets{HighWatermark: 1, LastStable: 1, LogEnd: 2})
	if got := f.readAll(l, 0); len(got) != 1 {
		t.Errorf("read %v", got)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(failures) != 1 {
		t.Errorf("told of %q", failures)
	}
}

// durable waits until an entry is.
func (f *fixture) durable(l *Log, e Entry) {
	f.t.Helper()
	w := make(waiter, 1)
	done, err := l.AwaitDurable(e.LastOffset+1, w)
	if !done && err == nil {
		err = <-w
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// TestFailedSyncIsForGood: a sync that would succeed after a failed one does not make the file good again.
func TestFailedSyncIsForGood(t *testing.T) {
	f, ffs := withFaults(t)
	l := f.log(true, nil)
	f.append(l, spec{})
	ffs.set(func(f *faultFS) { f.sync = errIO })
	if err := l.active().Sync(); !errors.Is(err, errIO) {
		t.Errorf("first sync: %v", err)
	}
	ffs.set(func(f *faultFS) { f.sync = nil })
	if err := l.active().Sync(); !errors.Is(err, errIO) || !l.active().Dirty() {
		t.Errorf("second sync: %v", err)
	}
}

// TestLogStartIsDurable: the new log start is synced before DeleteRecords returns.
func TestLogStartIsDurable(t *testing.T) {
	f, ffs := withFaults(t)
	l := f.log(true, nil)
	f.append(l, spec{n: 5})
	f.e.work.wait()
	ffs.set(func(f *faultFS) { f.syncs = nil })
	if _, err := l.DeleteRecords(3); err != nil {
		t.Fatal(err)
	}
	ffs.set(func(f *faultFS) {
		if !slices.Contains(f.syncs, journalName) {
			t.Errorf("synced only %q", f.syncs)
		}
	})
}

// TestSyncsNamesFirst: before the first acknowledgement the journal, the directories and the small files are durable too.
func TestSyncsNamesFirst(t *testing.T) {
	f, ffs := withFaults(t, func(c *Config) { c.Durability = GroupCommit })
	l := f.log(true, nil)
	ffs.set(func(f *faultFS) { f.syncs = nil })
	f.durable(l, f.append(l, spec{}))
	var got []string
	ffs.set(func(f *faultFS) { got = f.syncs })
	for _, name := range []string{journalName, "t-0/", metadataName, epochsName + ".tmp", filepath.Base(f.cfg.Dir) + "/", "00000000000000000000.log"} {
		if !slices.Contains(got, name) {
			t.Errorf("%s was not synced: %q", name, got)
		}
	}
	if got[len(got)-1] != "00000000000000000000.log" {
		t.Errorf("data before names: %q", got)
	}
}

// TestRecoverySyncs: what is kept after a kill may be in the page cache only; it is synced before it can be read.
func TestRecoverySyncs(t *testing.T) {
	f, ffs := withFaults(t)
	l := f.log(true, nil)
	f.append(l, spec{})
	f.kill()
	ffs.set(func(f *faultFS) { f.syncs = nil })
	f.open()
	l = f.log(false, nil)
	if err := l.Load(); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(ffs.syncs, "00000000000000000000.log") {
		t.Errorf("synced only %q", ffs.syncs)
	}
}

// TestOpenFilesBound: descriptors stay within the bound, and those with unsynced writes are kept open.
func TestOpenFilesBound(t *testing.T) {
	f, ffs := withFaults(t, func(c *Config) { c.MaxOpenFiles = 4; c.Durability = GroupCommit })
	var logs []*Log
	for i := range int32(20) {
		l := f.e.OpenLog(LogSpec{Topic: "many", Partition: i, New: true})
		logs = append(logs, l)
		f.durable(l, f.append(l, spec{}))
	}
	for _, l := range logs {
		if got := f.readAll(l, 0); len(got) != 1 {
			t.Errorf("%s: %v", l, got)
		}
	}
	if n := ffs.opens.Load(); n > 5 {
		t.Errorf("%d log files open, bound 4", n)
	}
}

func TestOpenFilesKeepsDirty(t *testing.T) {
	f, ffs := withFaults(t, func(c *Config) { c.MaxOpenFiles = 2 })
	f.e.files.Crowded = nil // nobody syncs them meanwhile
	for i := range int32(6) {
		f.append(f.e.OpenLog(LogSpec{Topic: "dirty", Partition: i, New: true}), spec{ts: f.now.UnixMilli()})
	}
	if n := ffs.opens.Load(); n != 6 {
		t.Errorf("%d of 6 descriptors with unsynced writes are open", n)
	}
	f.e.Maintain() // syncs them
	f.append(f.e.OpenLog(LogSpec{Topic: "dirty", Partition: 6, New: true}), spec{ts: f.now.UnixMilli()})
	f.append(f.e.OpenLog(LogSpec{Topic: "dirty", Partition: 7, New: true}), spec{ts: f.now.UnixMilli()})
	if n := ffs.opens.Load(); n > 4 {
		t.Errorf("%d open after a sync", n)
	}
}

func TestLocked(t *testing.T) {
	f := newFixture(t)
	if _, err := Open(f.cfg); !errors.Is(err, ErrLocked) {
		t.Errorf("second engine: %v", err)
	}
}

// TestKnownCostsNothing: a log that is only known makes no directory, and neither does reading it.
func TestKnownCostsNothing(t *testing.T) {
	f := newFixture(t)
	l := f.log(true, nil)
	if s, err := l.Read(0, 100, true, ReadUncommitted); s.Len != 0 || err != nil {
		t.Errorf("%+v %v", s, err)
	}
	m := f.e.OpenLog(LogSpec{Topic: "u", New: false})
	if err := m.Load(); err != nil || m.Offsets() != (Offsets{}) {
		t.Errorf("%v %+v", err, m.Offsets())
	}
	entries, err := os.ReadDir(f.cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			t.Errorf("directory %s", e.Name())
		}
	}
}
