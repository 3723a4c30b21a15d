package engine

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"kaas/engine/segment"
	"kaas/engine/vfs"
	"kaas/engine/vfs/crashfs"
)

// TestKnownLogsAreSmall: the heap of a log that is only known, new or not.
func TestKnownLogsAreSmall(t *testing.T) {
	for _, isNew := range []bool{true, false} {
		f := newFixture(t)
		const n = 10_000
		logs := make([]*Log, n)
		heap := func() uint64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		before := heap()
		for i := range logs {
			logs[i] = f.e.OpenLog(LogSpec{Topic: "many", Partition: int32(i), New: isNew})
		}
		if each := (heap() - before) / n; each > 1536 {
			t.Errorf("new=%v: %d bytes of heap for each known log", isNew, each)
		}
		runtime.KeepAlive(logs)
	}
}

// TestSizes: what there is of each of 100,000 logs. Above 512 bytes the allocator adds a header and its steps become wide.
func TestSizes(t *testing.T) {
	for _, x := range []struct {
		what      string
		size, max uintptr
	}{
		{"Log", unsafe.Sizeof(Log{}), 480},
		{"state", unsafe.Sizeof(state{}), 176},
		{"segment.Segment", unsafe.Sizeof(segment.Segment{}), 512},
	} {
		if x.size > x.max {
			t.Errorf("%s has %d bytes, at most %d were wanted", x.what, x.size, x.max)
		}
	}
}

// TestWrittenLogsAreSmall: the heap of a log that was written to and is written to seldom.
func TestWrittenLogsAreSmall(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.FS, c.CommitJournalBytes = hasty{vfs.OS}, -1 })
	const n = 1000
	logs := make([]*Log, n)
	before := heapNow()
	for i := range logs {
		logs[i] = f.e.OpenLog(LogSpec{Topic: "many", Partition: int32(i), New: true})
		f.append(logs[i], spec{size: 100})
	}
	f.e.work.wait()
	if each := (heapNow() - before) / n; each > 1850 { // 200 less when the list of open files is full
		t.Errorf("%.0f bytes of heap for each log", each)
	}
	runtime.KeepAlive(logs)
}

// TestManyLogsOfFewDescriptors: appends to many logs, and reads of all of them, stay within the limits of open files and maps, whatever the
// durability: also when nothing is ever committed.
func TestManyLogsOfFewDescriptors(t *testing.T) {
	for _, d := range []Durability{PageCache, GroupCommit} {
		f := newFixture(t, func(c *Config) { c.MaxOpenFiles, c.Durability, c.FS = 16, d, hasty{vfs.OS} })
		const n = 120
		cfg := small(2000)
		cfg.IndexIntervalBytes = 1
		logs := make([]*Log, n)
		lowerDescriptors(t, 16+16/2+48) // workers and commits hold some for a moment
		for i := range logs {
			logs[i] = f.e.OpenLog(LogSpec{Topic: "m", Partition: int32(i), Config: cfg, New: true})
			for range 2 {
				if err := logs[i].MakeReady(); err != nil {
					t.Fatal(err)
				}
				f.append(logs[i], spec{size: 900})
			}
		}
		for range 2 { // at the end of a log that is written to, and of one that is loaded for it
			for _, l := range logs {
				if err := l.MakeReady(); err != nil {
					t.Fatal(err)
				}
				if e := f.append(l, spec{size: 900}); d == GroupCommit {
					f.durable(l, e)
				}
				if got := f.readAll(l, 0); len(got) < 3 {
					t.Fatalf("%v: read %v", l, got)
				}
			}
			until(t, "files with unsynced writes are synced and closed, and maps go", func() bool {
				s := f.e.Stats()
				return s.OpenFiles <= 32 && s.Maps <= 2*32
			})
			f.close()
			f.open()
			for i := range logs {
				logs[i] = f.e.OpenLog(LogSpec{Topic: "m", Partition: int32(i), Config: cfg})
			}
		}
	}
}

// TestNoDescriptorWithoutSyncs: when all descriptors have unsynced writes, whoever must not wait for a sync is told so before it needs one
// more; an append syncs nothing, and MakeReady does.
func TestNoDescriptorWithoutSyncs(t *testing.T) {
	d := crashfs.NewBare()
	f := newFixture(t, func(c *Config) { c.FS, c.Dir, c.MaxOpenFiles = d, modelDir, 8 })
	f.e.files.Crowded = nil // nobody helps
	f.e.work.max = 0
	syncs := 0
	d.OnOp(func(op crashfs.Op) {
		if op.Kind == crashfs.OpSync && strings.HasSuffix(op.Name, ".log") {
			syncs++
		}
	})
	logs := make([]*Log, 12)
	for i := range logs {
		logs[i] = f.e.OpenLog(LogSpec{Topic: "m", Partition: int32(i), New: true})
		if ready := logs[i].Ready(); ready != (i < 10) {
			t.Errorf("%d descriptors of 8 have unsynced writes: ready %v", i, ready)
		}
		f.append(logs[i], spec{})
	}
	if n := f.e.Stats().OpenFiles; syncs != 0 || n != 12 {
		t.Errorf("%d syncs, %d files open", syncs, n)
	}
	if !logs[0].Ready() {
		t.Error("an open file needs no further descriptor")
	}
	more := f.e.OpenLog(LogSpec{Topic: "m", Partition: 12, New: true})
	if err := more.MakeReady(); err != nil || !more.Ready() {
		t.Errorf("ready %v, %v", more.Ready(), err)
	}
	if n := f.e.Stats().OpenFiles; syncs != 3 || n != 9 {
		t.Errorf("made ready: %d syncs, %d files open", syncs, n)
	}
	f.e.work.max = 1
}

// hasty is a file system that syncs nothing: thousands of syncs of a real disk are not what a test is about.
type hasty struct{ vfs.FS }

type hastyFile struct{ vfs.File }

func (h hasty) Open(name string, mode vfs.Mode) (vfs.File, error) {
	f, err := h.FS.Open(name, mode)
	return hastyFile{f}, err
}
func (hasty) SyncDir(string) error              { return nil }
func (hasty) Volume(string) (vfs.Volume, error) { return hasty{}, nil }
func (hasty) Sync() error                       { return nil }
func (hasty) Close() error                      { return nil }
func (hastyFile) Sync() error                   { return nil }

// lowerDescriptors leaves the process room for n more descriptors until the test ends.
func lowerDescriptors(t *testing.T, n int) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	highest := 0
	for _, d := range open {
		if i, err := strconv.Atoi(d.Name()); err == nil {
			highest = max(highest, i)
		}
	}
	now := old
	now.Cur = uint64(highest + 1 + n)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &now); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &old) })
}

// BenchmarkStart opens a data directory of 10,000 logs that was closed cleanly, as far as a broker needs it to be ready.
func BenchmarkStart(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprintf("logs=%d", n), func(b *testing.B) {
			f := newFixture(b)
			for i := range n {
				f.append(f.e.OpenLog(LogSpec{Topic: "s", Partition: int32(i), New: true}), spec{})
			}
			start := time.Now()
			f.close()
			b.Logf("closing %d dirty logs took %v", n, time.Since(start))
			for b.Loop() {
				f.open()
				logs := make([]*Log, n)
				for i := range logs {
					logs[i] = f.e.OpenLog(LogSpec{Topic: "s", Partition: int32(i)})
				}
				if err := f.e.Recover(b.Context(), logs, nil); err != nil {
					b.Fatal(err)
				}
				f.e.RemoveStray(func(string) bool { return true })
				b.StopTimer()
				f.close()
				b.StartTimer()
			}
		})
	}
}
