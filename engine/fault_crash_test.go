package engine

import (
	"errors"
	"slices"
	"testing"

	"kaas/engine/vfs/crashfs"
)

// TestRecoveryPointStaysBeforeAnUnsealedSegment: a seal that fails holds back those of the segments after it, also when these would succeed.
// Otherwise a start takes the first for whole that is neither trimmed nor, if its sync failed, on the disk.
func TestRecoveryPointStaysBeforeAnUnsealedSegment(t *testing.T) {
	for _, rule := range []string{"1st+ truncate of *0.log: EIO", "1st fdatasync of *0.log: EIO", "2nd fdatasync of *0.log: EIO", "1st sync of *.timeindex: EIO"} {
		t.Run(rule, func(t *testing.T) {
			d, faults := crashfs.New(), crashfs.Rules("")
			f := newFixture(t, func(c *Config) { c.FS, c.Dir, c.Durability = faults.FS(d), modelDir, PageCache })
			l := f.log(true, small(1000))
			f.e.work.max = 0 // seals are made below
			for i := range int32(4) {
				f.append(l, spec{pid: 5, seq: i, size: 500})
			}
			if err := l.syncNames(); err != nil {
				t.Fatal(err)
			}
			if err := faults.Set(rule); err != nil {
				t.Fatal(err)
			}
			l.sealRolled()
			if faults.Fired() == 0 {
				t.Fatal("nothing failed")
			}
			if err := l.Err(); err != nil && !errors.Is(err, errIO) {
				t.Fatal(err)
			}
			if got := f.e.journal.get("t-0"); got.recovery != 0 || !got.dirty {
				t.Errorf("the recovery point has passed a segment that is not sealed: %+v", got)
			}
			killed := d.Clone()
			f.e.work.max = 1
			f = onDisk(t, killed, PageCache)
			l = f.reload(small(1000))
			if got := f.readAll(l, 0); !slices.Equal(got, []int64{0, 1, 2, 3}) {
				t.Errorf("after the kill: %v", got)
			}
			f.close()
			f = onDisk(t, cutAll(killed), PageCache)
			l = f.reload(small(1000))
			if got := f.readAll(l, 0); !slices.Equal(got, []int64{0, 1, 2, 3}) {
				t.Errorf("after a clean close and a power cut: %v", got)
			}
		})
	}
}

// TestSealsAreTriedAgain: a seal that failed for a while is made by maintenance, and the recovery point moves on.
func TestSealsAreTriedAgain(t *testing.T) {
	d, faults := crashfs.New(), crashfs.Rules("")
	f := newFixture(t, func(c *Config) { c.FS, c.Dir, c.Durability = faults.FS(d), modelDir, PageCache })
	cfg := small(1000)
	cfg.RetentionMs = -1
	l := f.log(true, cfg)
	if err := faults.Set("1st+ create of *.index: ENOSPC"); err != nil {
		t.Fatal(err)
	}
	for i := range int32(4) {
		f.append(l, spec{pid: 5, seq: i, size: 500})
	}
	f.e.work.wait()
	if got := f.e.journal.get("t-0"); got.recovery != 0 || l.Err() != nil {
		t.Errorf("without room for indexes: %+v, %v", got, l.Err())
	}
	if err := faults.Set(""); err != nil {
		t.Fatal(err)
	}
	f.e.Maintain()
	f.e.work.wait()
	if got := f.e.journal.get("t-0"); got.recovery != 3 || len(l.seals) != 0 {
		t.Errorf("later: %+v, %d to be sealed", got, len(l.seals))
	}
}

// reload opens the log of a disk as a start does.
func (f *fixture) reload(c *LogConfig) *Log {
	f.t.Helper()
	l := f.log(false, c)
	if err := f.e.Recover(f.t.Context(), []*Log{l}, nil); err != nil {
		f.t.Fatal(err)
	}
	if err := l.Load(); err != nil {
		f.t.Fatal(err)
	}
	return l
}
