package engine

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kaas/engine/vfs"
)

// BenchmarkSyncWays makes one batch of 1 KiB in each of so many files durable, by every way that the committer could choose, taken in
// turn in one run; the figures are medians. Files are written and synced ahead, as segments are, and so is the shared one, save where
// a way says fresh. With behind the shared file is not all: the batches go into the page cache of their own files too, which a
// syncfs in the background makes durable each time that so much has gone through the shared file (checkpoint).
func BenchmarkSyncWays(b *testing.B) {
	for _, files := range []int{1, 2, 4, 8, 64} {
		b.Run(fmt.Sprintf("files=%d", files), func(b *testing.B) { benchmarkSyncWays(b, files) })
	}
}

const (
	waysRounds     = 60
	waysBatch      = 1024
	waysAhead      = 1 << 20
	waysShared     = 64 << 20
	waysCheckpoint = 8 << 20
)

// ways is what the ways of one run share.
type ways struct {
	b      *testing.B
	files  []vfs.File
	fresh  []vfs.File
	shared vfs.File
	root   *os.File
	at     int64 // in each file
	log    int64 // in the shared one
	buf    []byte
	behind atomic.Int32
	since  int64 // in the shared file since the last checkpoint
	wg     sync.WaitGroup
}

func benchmarkSyncWays(b *testing.B, n int) {
	dir := b.TempDir()
	w := &ways{b: b, buf: make([]byte, n*(waysBatch+64)+4096)}
	for i := range w.buf {
		w.buf[i] = byte(i)
	}
	for i := range n {
		w.files = append(w.files, waysFile(b, fmt.Sprintf("%s/%d", dir, i), waysAhead))
		w.fresh = append(w.fresh, waysFile(b, fmt.Sprintf("%s/fresh%d", dir, i), 0))
	}
	w.shared = waysFile(b, dir+"/shared", waysShared)
	var err error
	if w.root, err = os.Open(dir); err != nil {
		b.Fatal(err)
	}
	defer w.root.Close()
	list := []struct {
		name string
		run  func()
	}{
		{"serial", func() { w.writeEach(w.files); w.syncEach(w.files, 1) }},
		{"threads4", func() { w.writeEach(w.files); w.syncEach(w.files, 4) }},
		{"threads16", func() { w.writeEach(w.files); w.syncEach(w.files, 16) }},
		{"threads64", func() { w.writeEach(w.files); w.syncEach(w.files, 64) }},
		{"fresh-threads16", func() { w.writeEach(w.fresh); w.syncEach(w.fresh, 16) }},
		{"syncfs", func() { w.writeEach(w.files); w.syncfs() }},
		{"shared", func() { w.append() }},
		{"shared-behind", func() { w.append(); w.writeEach(w.files); w.checkpoint() }},
	}
	took := make([][]time.Duration, len(list))
	for range waysRounds {
		for i, way := range list {
			start := time.Now()
			way.run()
			took[i] = append(took[i], time.Since(start))
			w.at += waysBatch
			if w.at+waysBatch > waysAhead {
				w.at = 0
			}
		}
	}
	w.wg.Wait()
	for b.Loop() { // the rounds above are the measurement
	}
	b.ReportMetric(0, "ns/op")
	for i, way := range list {
		slices.Sort(took[i])
		b.ReportMetric(float64(took[i][waysRounds/2].Microseconds()), way.name+"-us")
		b.ReportMetric(float64(took[i][waysRounds*9/10].Microseconds()), way.name+"-p90-us")
	}
}

func waysFile(b *testing.B, name string, size int64) vfs.File {
	f, err := vfs.OS.Open(name, vfs.CreateNew)
	if err == nil && size > 0 {
		err = f.ZeroFill(0, size)
	} else if err == nil {
		err = f.Allocate(0, waysAhead)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	return f
}

func (w *ways) check(err error) {
	if err != nil {
		w.b.Error(err)
	}
}

func (w *ways) writeEach(files []vfs.File) {
	for _, f := range files {
		_, err := f.WriteAt(w.buf[:waysBatch], w.at)
		w.check(err)
	}
}

func (w *ways) syncEach(files []vfs.File, threads int) {
	var next atomic.Int64
	var wg sync.WaitGroup
	work := func() {
		for i := next.Add(1) - 1; i < int64(len(files)); i = next.Add(1) - 1 {
			w.check(files[i].Sync())
		}
	}
	for range min(threads, len(files)) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
}

func (w *ways) syncfs() { w.check(unix.Syncfs(int(w.root.Fd()))) }

// append puts all batches, each with a head that says whose it is, at the end of the shared file.
func (w *ways) append() {
	n := int64(len(w.files) * (waysBatch + 64))
	if w.log+n > waysShared {
		w.log = 0
	}
	_, err := w.shared.WriteAt(w.buf[:n], w.log)
	w.check(err)
	w.log += n
	w.since += n
	w.check(w.shared.Sync())
}

func (w *ways) checkpoint() {
	if w.since < waysCheckpoint || !w.behind.CompareAndSwap(0, 1) {
		return
	}
	w.since = 0
	w.wg.Go(func() {
		w.syncfs()
		w.behind.Store(0)
	})
}
