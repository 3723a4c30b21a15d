package engine

import (
	"path/filepath"
	"testing"
	"time"
)

// files counts the files of a suffix in the directories of log t-0, those set aside included.
func (f *fixture) files(suffix string) int {
	f.t.Helper()
	names, err := filepath.Glob(filepath.Join(f.cfg.Dir, "t-0*", "*"+suffix))
	if err != nil {
		f.t.Fatal(err)
	}
	return len(names)
}

// TestFileDeleteDelay: what is deleted stays on disk for file.delete.delay.ms, out of reach; a closed engine leaves it to the next start.
func TestFileDeleteDelay(t *testing.T) {
	f := newFixture(t)
	cfg := small(10_000)
	cfg.FileDeleteDelayMs = time.Hour.Milliseconds()
	l := f.log(true, cfg)
	f.fill(l, 3)
	before, end := f.files(".log"), l.Offsets().LogEnd
	if start, err := l.DeleteRecords(end); err != nil || start != end {
		t.Fatal(start, err)
	}
	f.e.reaper.wait()
	if n := f.files(".log"); n != before || n < 3 {
		t.Errorf("%d segment files of %d: the delay was not kept", n, before)
	}
	if n := len(l.Segments()); n != 1 {
		t.Errorf("%d segments in the log", n)
	}
	f.close()
	l = f.reopen(cfg)
	if n := f.files(".log"); n != 1 {
		t.Errorf("after a restart %d segment files", n)
	}
	now := *cfg
	now.FileDeleteDelayMs = 0
	l.SetConfig(&now)
	f.e.Remove(l)
	f.e.reaper.wait()
	if n := f.files(""); n != 0 {
		t.Errorf("%d files without a delay", n)
	}
}

// TestSegmentJitter: a segment ends before segment.ms, by what was drawn for it and no more than segment.jitter.ms.
func TestSegmentJitter(t *testing.T) {
	f := newFixture(t)
	cfg := small(1 << 20)
	cfg.SegmentMs, cfg.SegmentJitterMs = 1000, 400
	l := f.log(true, cfg)
	for _, c := range []struct {
		jitter float64
		want   int64
	}{{0, 1000}, {0.5, 800}, {0.999, 601}} {
		l.st.jitter = c.jitter
		if got := l.segmentMs(cfg); got != c.want {
			t.Errorf("drawn %v: %d ms, want %d", c.jitter, got, c.want)
		}
	}
	cfg.SegmentJitterMs = 1 << 40 // never more than segment.ms itself
	if got := l.segmentMs(cfg); got != 1 {
		t.Errorf("%d ms", got)
	}
}

// TestRolledAreForgotten: a log that no commit visits keeps no hold of segments that were sealed.
func TestRolledAreForgotten(t *testing.T) {
	f := newFixture(t)
	l := f.log(true, small(10_000))
	f.fill(l, 4)
	f.e.work.wait()
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if len(l.rolled) != 0 || len(l.seals) != 0 {
		t.Errorf("%d rolled and %d to be sealed are kept", len(l.rolled), len(l.seals))
	}
}
