package engine

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
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
