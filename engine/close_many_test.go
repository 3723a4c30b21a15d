package engine

import (
	"slices"
	"testing"

	"kaas/engine/vfs/crashfs"
)

// TestCloseOfVeryManyLogs: of more dirty logs than may be open at a time, only some are made clean with one syncfs, and their descriptors let
// go before the next: 100,000 logs do not take 100,000 descriptors at the end.
func TestCloseOfVeryManyLogs(t *testing.T) {
	const logs, bound = 200, 16
	m := newMany(t, logs, func(c *Config) { c.CommitJournalBytes, c.MaxOpenFiles, c.volumeMin = -1, bound, 20 })
	for _, l := range m.logs {
		m.durable(l, m.append(l, spec{n: 2}))
	}
	m.e.work.wait()
	var open []int // at each syncfs: all that the logs before it have
	m.disk.OnOp(func(o crashfs.Op) {
		if o.Kind == crashfs.OpSyncFS {
			open = append(open, m.e.files.OpenCount())
		}
	})
	m.close()
	m.disk.OnOp(nil)
	if most := slices.Max(open); most > bound+bound/2 {
		t.Errorf("%d log files are open at a syncfs of the close, at most %d were wanted", most, bound+bound/2)
	}
	if want := logs / (bound / 2); len(open) != want {
		t.Errorf("%d syncfs, want %d", len(open), want)
	}
	m.disk = cutAll(m.disk)
	m.onDisk(t, logs, false)
	for _, l := range m.logs {
		if m.e.journal.dirty(l.name()) {
			t.Fatalf("%v is dirty", l)
		}
		if err := l.Load(); err != nil || l.Offsets().LogEnd != 2 {
			t.Errorf("%v: %+v, %v", l, l.Offsets(), err)
		}
	}
}
