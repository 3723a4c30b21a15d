package engine

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kaas/engine/segment"
	"kaas/engine/vfs/crashfs"
)

// keys is a RecordFormat for tests that compact nothing.
type keys struct{}

func (keys) Keys([]byte, func(int64, []byte, bool) bool) error { return nil }
func (keys) Rebuild(dst, _ []byte, _ func(int32) bool, _ int64) ([]byte, error) {
	return dst, nil
}

// TestCleanerCheckpoint: Kafka's file is read, damaged lines count as missing, and what is saved is read again; a new log of an
// old name begins anew.
func TestCleanerCheckpoint(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.Records = keys{} })
	f.close()
	path := filepath.Join(f.cfg.Dir, cleanedName)
	text := "0\n6\nt 0 42\nwith-dash 12 7\nt -1 3\nt 1\nt 2 x\nt 3 -4\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	f.open()
	if got := len(f.e.cleaner.clean); got != 2 || f.e.cleaner.clean["t-0"] != 42 || f.e.cleaner.clean["with-dash-12"] != 7 {
		t.Errorf("read %v", f.e.cleaner.clean)
	}
	if err := f.e.cleaner.save(); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(path); string(b) != text {
		t.Errorf("written without a change: %q", b)
	}
	l := f.log(true, nil)
	if off, ok := f.e.cleaner.firstDirty(l); ok {
		t.Errorf("a new log is clean up to %d", off)
	}
	if err := f.e.cleaner.save(); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(path); string(b) != "0\n1\nwith-dash 12 7\n" {
		t.Errorf("written %q", b)
	}
	f.close()
	if err := os.WriteFile(path, []byte("1\n1\nt 0 42\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	f.open()
	if got := len(f.e.cleaner.clean); got != 0 {
		t.Errorf("another version was read: %v", f.e.cleaner.clean)
	}
}

// TestCleanerThreads: there are as many as asked for, and none after a close.
func TestCleanerThreads(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.Records = keys{} })
	running := func() int {
		f.e.cleaner.mu.Lock()
		defer f.e.cleaner.mu.Unlock()
		return f.e.cleaner.threads
	}
	for _, n := range []int{2, 5, 1, 0, 3} {
		f.e.SetCleaner(CleanerConfig{Threads: n, Backoff: time.Hour})
		for end := time.Now().Add(30 * time.Second); running() != n; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d threads, want %d", running(), n)
			}
		}
	}
	e := f.e
	f.close()
	e.SetCleaner(CleanerConfig{Threads: 4})
	if e.cleaner.threads != 3 {
		t.Errorf("%d threads after the close", e.cleaner.threads)
	}
}

// TestCleanerThrottle: bytes are paid for before the next go through; a new rate begins without debt.
func TestCleanerThrottle(t *testing.T) {
	var r throttle
	r.set(1000)
	now := time.Unix(100, 0)
	for i, c := range []struct {
		bytes int
		after time.Duration
		wait  time.Duration
	}{{500, 0, 0}, {2000, 0, 500 * time.Millisecond}, {1, time.Second, 1500 * time.Millisecond}, {1, 10 * time.Second, 0}} {
		now = now.Add(c.after)
		if got := r.debt(c.bytes, now); got != c.wait {
			t.Errorf("%d: wait %v, want %v", i, got, c.wait)
		}
	}
	r.debt(1<<30, now)
	r.set(math.MaxFloat64)
	if got := r.debt(1<<30, now) + r.debt(1<<30, now); got != 0 {
		t.Errorf("without a bound: %v", got)
	}
}

// TestReadEndBehind: a reader that knows the high watermark as a position in a segment which was compacted since does not
// use that position.
func TestReadEndBehind(t *testing.T) {
	f := newFixture(t)
	l := f.log(true, small(10_000))
	f.fill(l, 2)
	segs := *l.segs.Load()
	stale := l.pub.read()
	stale.hw = place{offset: 6, seg: 0, pos: 1 << 20} // of the third batch of the first segment, in a layout that is gone
	end, offset, err := l.readEnd(segs, 0, stale, 6, false)
	if end != 3*961 || offset != 6 || err != nil {
		t.Errorf("end %d at offset %d, %v", end, offset, err)
	}
}

// TestCleanSyncsTheJournal: what is cleaned is what the journal says is sealed, and a power cut must not take that back: segments with holes
// would be scanned, and the holes taken for damage.
func TestCleanSyncsTheJournal(t *testing.T) {
	d := crashfs.NewBare()
	f := newFixture(t, func(c *Config) { c.FS, c.Dir, c.Records = d, modelDir, keys{} })
	cfg := small(10_000)
	cfg.Compact, cfg.MinCleanableRatio = true, 0
	l := f.log(true, cfg)
	f.fill(l, 3)
	f.e.work.wait()
	if err := f.e.journal.sync(); err != nil {
		t.Fatal(err)
	}
	segs := l.Segments()
	if err := f.e.journal.update(l.name(), func(e *journalEntry) { e.recovery = segs[1].BaseOffset }); err != nil {
		t.Fatal(err)
	}
	if end := l.sealedEnd(segs[2].BaseOffset); end != segs[1].BaseOffset {
		t.Errorf("sealed up to %d, want %d", end, segs[1].BaseOffset)
	}
	w := f.e.cleaner.pick()
	if w == nil || len(w.segs) != 1 || w.end != segs[1].BaseOffset {
		t.Fatalf("to be cleaned: %+v", w)
	}
	var first crashfs.Op
	d.OnOp(func(op crashfs.Op) {
		if first.Kind == "" {
			first = op
		}
	})
	if err := f.e.cleaner.cleanLog(w); err != nil {
		t.Fatal(err)
	}
	d.OnOp(nil)
	if first.Kind != crashfs.OpSync || !strings.HasSuffix(first.Name, journalName) {
		t.Errorf("a clean begins with %v", first)
	}
}

// TestCleanSyncsMarkers: under PageCache a clean that takes out the records of an aborted transaction makes its marker durable before.
func TestCleanSyncsMarkers(t *testing.T) {
	d := crashfs.NewBare()
	f := newFixture(t, func(c *Config) { c.FS, c.Dir, c.Records, c.Durability = d, modelDir, keyedFormat{}, PageCache })
	cfg := small(400)
	cfg.Compact, cfg.MinCleanableRatio = true, 0
	l := f.log(true, cfg)
	aborted := func(key byte) []keyed { return []keyed{{key: key, value: []byte("aborted")}} }
	f.append(l, spec{pid: 5, txn: true, keys: aborted(1)})
	f.append(l, spec{pid: 5, txn: true, seq: 1, keys: aborted(2)})
	f.append(l, spec{size: 300})
	f.e.work.wait()
	f.append(l, spec{pid: 5, txn: true, control: true})
	w := f.e.cleaner.pick()
	if w == nil || w.end == 0 {
		t.Fatalf("to be cleaned: %+v", w)
	}
	if err := f.e.cleaner.cleanLog(w); err != nil {
		t.Fatal(err)
	}
	if got := l.SizeBytes(); got >= 700 {
		t.Errorf("%d bytes after the clean: nothing was taken out", got)
	}
	cut := cutAll(d.Clone())
	f = onDisk(t, cut, PageCache)
	l = f.log(false, cfg)
	if err := errors.Join(f.e.Recover(t.Context(), []*Log{l}, nil), l.Load()); err != nil {
		t.Fatal(err)
	}
	want := AbortedTxn{ProducerID: 5, FirstOffset: 0, LastOffset: 3, LastStable: 4}
	if got := l.AbortedIn(nil, 0, 4); len(got) != 1 || got[0] != want {
		t.Errorf("after a power cut aborted are %+v, want %+v", got, want)
	}
}

// TestClaimedSegments: retention that comes while segments are being replaced leaves them to the swap, and takes them after it; what is
// replaced is retired, and its files go.
func TestClaimedSegments(t *testing.T) {
	d := crashfs.NewBare()
	f := newFixture(t, func(c *Config) { c.FS, c.Dir = d, modelDir })
	cfg := small(10_000)
	cfg.FileDeleteDelayMs = 0
	l := f.log(true, cfg)
	f.fill(l, 4)
	f.e.work.wait()
	segs := slices.Clone(*l.segs.Load())
	if l.claim([]*segment.Segment{segment.NewFiles(d, 1, 1, false).New(testFormat{}, l.dir(), 0, f.now)}) {
		t.Error("a segment that is not in the log was claimed")
	}
	if !l.claim(segs[1:2]) {
		t.Fatal("not claimed")
	}
	if _, err := l.DeleteRecords(segs[3].Base()); err != nil {
		t.Fatal(err)
	}
	f.e.reaper.wait()
	if got := l.Segments(); len(got) != 3 || got[0].BaseOffset != segs[1].Base() {
		t.Errorf("while it is claimed the log has %+v", got)
	}
	if n := len(d.Files("*.log")); n != 3 {
		t.Errorf("%d log files while one is claimed", n)
	}
	l.release()
	f.e.reaper.wait()
	if got, files := l.Segments(), d.Files("*.log"); len(got) != 1 || got[0].BaseOffset != segs[3].Base() || len(files) != 1 {
		t.Errorf("after the release the log has %+v, files %v", got, files)
	}
	for _, s := range segs[:3] {
		if _, err := s.Acquire(); err == nil {
			t.Errorf("segment %d can be opened by a name that may be another's", s.Base())
		}
	}
}
