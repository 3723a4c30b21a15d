package engine

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"kaas/engine/segment"
	"kaas/engine/vfs/crashfs"
)

// TestNoRoomForEpochs: regressions 33. A disk without room for the file of leader epochs does not take the log offline; until the file is
// saved, the recovery point stays before the batches that tell the epochs.
func TestNoRoomForEpochs(t *testing.T) {
	for _, d := range []Durability{GroupCommit, PageCache} {
		f, ffs := withFaults(t, func(c *Config) { c.Durability = d })
		ffs.set(func(f *faultFS) { f.noRoom = epochsName })
		l := f.log(true, small(2000))
		for range 6 {
			f.durable(l, f.append(l, spec{size: 900}))
		}
		f.e.work.wait()
		if l.Err() != nil {
			t.Fatalf("offline: %v", l.Err())
		}
		if got := f.e.journal.get("t-0").recovery; got != 0 {
			t.Errorf("recovery from %d while the epochs are not saved", got)
		}
		ffs.set(func(f *faultFS) { f.noRoom = "" })
		for range 3 {
			f.durable(l, f.append(l, spec{size: 900}))
		}
		f.e.work.wait()
		if got := f.e.journal.get("t-0").recovery; got == 0 {
			t.Error("recovery still from 0")
		}
		if b, err := os.ReadFile(filepath.Join(f.cfg.Dir, "t-0", epochsName)); string(b) != "0\n1\n0 0\n" {
			t.Errorf("epochs %q, %v", b, err)
		}
		f.kill()
		if got := f.readAll(f.reopen(small(2000)), 0); len(got) != 9 {
			t.Errorf("read %v", got)
		}
		f.close()
	}
}

// TestNoRoomAtRecovery: a log that is whole again, but finds no room for what a clean one has, stays dirty and takes appends.
func TestNoRoomAtRecovery(t *testing.T) {
	f, ffs := withFaults(t)
	f.append(f.log(true, nil), spec{pid: 3})
	f.kill()
	ffs.set(func(f *faultFS) { f.noRoom = ".snapshot" })
	l := f.reopen(nil)
	if l.Err() != nil {
		t.Fatalf("offline: %v", l.Err())
	}
	if !f.e.journal.dirty("t-0") {
		t.Error("clean without its files")
	}
	ffs.set(func(f *faultFS) { f.noRoom = "" })
	if e := f.append(l, spec{pid: 3}); e.BaseOffset != 0 || !e.Duplicate {
		t.Errorf("repeat: %+v", e)
	}
	if e := f.append(l, spec{pid: 3, seq: 1}); e.BaseOffset != 1 {
		t.Errorf("next: %+v", e)
	}
	f.kill()
	if got := f.readAll(f.reopen(nil), 0); !slices.Equal(got, []int64{0, 1}) {
		t.Errorf("read %v", got)
	}
}

// TestNoRoomForSnapshotsAtRecovery: regressions 33. A start of several segments that were not sealed finds no room for the snapshots between
// them. The log is read and appended to nevertheless; the recovery point stays before them until they are sealed, and their snapshots come with
// that, or with a close.
func TestNoRoomForSnapshotsAtRecovery(t *testing.T) {
	for _, end := range []string{"roll", "maintenance", "close", "kill"} {
		t.Run(end, func(t *testing.T) {
			d, faults := crashfs.New(), crashfs.Rules("1st+ write of *.index: ENOSPC; 1st+ write of *.timeindex: ENOSPC; 1st+ write of *.snapshot*: ENOSPC")
			cfg := small(1000)
			cfg.RetentionMs = -1
			f := newFixture(t, func(c *Config) { c.FS, c.Dir, c.Durability = faults.FS(d), modelDir, PageCache })
			l := f.log(true, cfg)
			for i := range int32(4) {
				f.append(l, spec{pid: 5, seq: i, size: 500})
			}
			f.kill()
			l = f.reopen(cfg)
			if l.Err() != nil {
				t.Fatalf("offline: %v", l.Err())
			}
			if got := f.readAll(l, 0); !slices.Equal(got, []int64{0, 1, 2, 3}) {
				t.Errorf("read %v", got)
			}
			if e := f.append(l, spec{pid: 5, seq: 3, size: 500}); !e.Duplicate || e.BaseOffset != 3 {
				t.Errorf("repeat: %+v", e)
			}
			if got := f.e.journal.get("t-0"); got.recovery != 0 || !got.dirty || faults.Fired() == 0 {
				t.Errorf("without room: %+v, %d failures", got, faults.Fired())
			}
			if err := faults.Set(""); err != nil {
				t.Fatal(err)
			}
			want, recovery := []int64{0, 1, 2, 3}, int64(3)
			switch end {
			case "roll":
				f.append(l, spec{pid: 5, seq: 4, size: 500})
				want, recovery = append(want, 4), 4
			case "maintenance":
				f.e.Maintain()
			default:
				recovery = 0
			}
			f.e.work.wait()
			if got := f.e.journal.get("t-0").recovery; got != recovery || recovery > 0 && len(l.seals) != 0 {
				t.Errorf("with room: recovery from %d, want %d; %d to be sealed", got, recovery, len(l.seals))
			}
			if end == "close" {
				f.close()
			} else {
				f.kill()
			}
			l = f.reopen(cfg)
			if got := f.readAll(l, 0); !slices.Equal(got, want) || len(l.seals) != 0 {
				t.Errorf("afterwards: %v, %d to be sealed", got, len(l.seals))
			}
			for _, at := range want[1:] {
				if _, err := f.cfg.FS.Size(l.dir() + "/" + segment.FileName(at, segment.SnapshotSuffix)); err != nil {
					t.Errorf("snapshot at %d: %v", at, err)
				}
			}
		})
	}
}

// TestNoRoomToRemoveSegments: whatever finds no room while segments are removed, they go when there is some: their room is what is missed.
func TestNoRoomToRemoveSegments(t *testing.T) {
	for _, rule := range []string{"1st rename of *.deleted: ENOSPC", "2nd rename of *.deleted: EDQUOT", "1st syncdir of t-0: ENOSPC", "1st remove of *.index: ENOSPC",
		"1st remove of *.deleted: ENOSPC"} {
		t.Run(rule, func(t *testing.T) {
			d, faults := crashfs.New(), crashfs.Rules("")
			f := newFixture(t, func(c *Config) { c.FS, c.Dir, c.Durability = faults.FS(d), modelDir, PageCache })
			cfg := small(1000)
			cfg.FileDeleteDelayMs = 0
			l := f.log(true, cfg)
			for range 4 {
				f.append(l, spec{size: 900})
			}
			f.e.work.wait()
			if err := faults.Set(rule); err != nil {
				t.Fatal(err)
			}
			if start, err := l.DeleteRecords(3); start != 3 || err != nil {
				t.Fatal(start, err)
			}
			files := func() []string { return append(d.Files("*.log"), d.Files("*"+deletedSuffix)...) }
			for end := time.Now().Add(30 * time.Second); len(files()) > 1; time.Sleep(time.Millisecond) { // it is tried again by the clock
				if time.Now().After(end) {
					t.Fatalf("left: %v", files())
				}
			}
			if faults.Fired() == 0 {
				t.Fatal("nothing failed")
			}
			if got := f.e.journal.get("t-0").start; got != 0 || l.Err() != nil {
				t.Errorf("the journal says start %d, offline: %v", got, l.Err())
			}
			if got := f.readAll(l, 3); !slices.Equal(got, []int64{3}) {
				t.Errorf("read %v", got)
			}
		})
	}
}
