package engine

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"kaas/engine/vfs/crashfs"
)

// TestCloseOfManyLogs: logs that are dirty at a close are synced by one syncfs, and only after it they are clean.
func TestCloseOfManyLogs(t *testing.T) {
	m := newMany(t, 40, func(c *Config) { c.CommitJournalBytes = -1 })
	for _, l := range m.logs {
		m.durable(l, m.append(l, spec{n: 2, pid: 7}))
	}
	var syncs, dirs, volumes, clean atomic.Int64
	m.disk.OnOp(func(o crashfs.Op) {
		switch {
		case o.Kind == crashfs.OpSync && o.Name != modelDir+"/"+journalName:
			syncs.Add(1)
		case o.Kind == crashfs.OpSyncDir && o.Name != modelDir:
			dirs.Add(1)
		case o.Kind == crashfs.OpSyncFS:
			volumes.Add(1)
			for _, l := range m.logs {
				if !m.e.journal.dirty(l.name()) {
					clean.Add(1)
				}
			}
		}
	})
	m.close()
	m.disk.OnOp(nil)
	// The journal is replaced by an empty one: that is one sync of its temporary file.
	if syncs.Load() != 1 || dirs.Load() != 0 || volumes.Load() != 1 || clean.Load() != 0 {
		t.Errorf("%d files and %d directories synced, %d syncfs, %d logs clean before it", syncs.Load(), dirs.Load(), volumes.Load(), clean.Load())
	}
	m.disk = cutAll(m.disk)
	m.onDisk(t, 40, false)
	for _, l := range m.logs {
		if m.e.journal.dirty(l.name()) {
			t.Errorf("%v is dirty", l)
		}
		if e := m.append(l, spec{n: 2, pid: 7}); !e.Duplicate {
			t.Errorf("%v has lost its producer: %+v", l, e)
		}
	}
}

// TestCloseOfManyLogsFails: when the syncfs fails nothing is clean.
func TestCloseOfManyLogsFails(t *testing.T) {
	m := newMany(t, 40, func(c *Config) { c.CommitJournalBytes = -1 })
	for _, l := range m.logs {
		m.durable(l, m.append(l, spec{n: 2}))
	}
	if err := m.faults.Set("syncfs: EIO"); err != nil {
		t.Fatal(err)
	}
	e := m.e
	m.e = nil
	if err := e.Close(); !errors.Is(err, errIO) {
		t.Errorf("close: %v", err)
	}
	m.disk = m.disk.Clone()
	for range 2 { // without a reboot, and after a power cut
		m.onDisk(t, 40, false)
		for _, l := range m.logs {
			if err := l.Load(); err != nil || l.Offsets().LogEnd != 2 {
				t.Errorf("%v: %+v, %v", l, l.Offsets(), err)
			}
		}
		m.disk = cutAll(m.disk)
	}
}

// BenchmarkClose closes an engine with so many dirty logs: together as it does, or each with its own syncs.
func BenchmarkClose(b *testing.B) {
	const logs = 2000
	for _, way := range []string{"together", "each"} {
		b.Run("logs=2000/way="+way, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				f := newFixture(b, func(c *Config) {
					c.Clock = nil
					if way == "each" {
						c.volumeMin = logs + 1
					}
				})
				for i := range int32(logs) {
					l := f.e.OpenLog(LogSpec{Topic: "t", Partition: i, TopicID: [16]byte{1}, New: true})
					f.append(l, spec{n: 2, size: 500})
				}
				f.e.work.wait()
				start := time.Now()
				b.StartTimer()
				f.close()
				b.ReportMetric(float64(time.Since(start).Milliseconds()), "ms")
			}
		})
	}
}

// TestSnapshotOfNoProducers: a clean log that never had a producer says so at its end, and its first use after a start reads nothing of what
// comes before; one whose few batches are soon looked through needs no file for that.
func TestSnapshotOfNoProducers(t *testing.T) {
	for _, c := range []struct {
		segment int64
		batches int
		want    int   // snapshots: at the base of each segment but the first, and at the end
		at      int64 // where the first use begins
	}{
		{1 << 30, 3, 0, -1},
		{1 << 30, 3000, 1, 3000},
		{100_000, 300, 3, 282},
	} {
		f := newFixture(t)
		cfg := small(c.segment)
		l := f.log(true, cfg)
		for range c.batches {
			f.append(l, spec{size: 1000})
		}
		f.e.work.wait()
		f.close()
		if n := f.files(".snapshot"); n != c.want {
			t.Errorf("%d batches in %d segments: %d snapshots, want %d", c.batches, f.files(".log"), n, c.want)
		}
		l = f.reopen(cfg)
		if at := l.st.snapshot; at != c.at {
			t.Errorf("%d batches: the first use begins with the snapshot at %d, want %d", c.batches, at, c.at)
		}
		f.close()
	}
}
