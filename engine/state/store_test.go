package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"kaas/engine/vfs"
	"kaas/engine/vfs/crashfs"
)

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func open(t *testing.T, fs vfs.FS, o Options) *Store {
	t.Helper()
	if o.OnError == nil {
		o.OnError = func(err error) { t.Errorf("in the background: %v", err) }
	}
	s, err := Open(fs, "/s", o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t *testing.T, s *Store, key, value string, durable bool) {
	t.Helper()
	var b Batch
	b.Put([]byte(key), []byte(value))
	if err := s.Apply(&b, durable); err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, s *Store, key, value string) {
	t.Helper()
	v, ok, err := s.Get([]byte(key))
	if string(v) != value || ok != (value != "") || err != nil {
		t.Errorf("get %q: %q %v %v, want %q", key, v, ok, err, value)
	}
}

// TestDirectory runs on a real disk: batches, deletion, order of a scan, and the content after a clean close.
func TestDirectory(t *testing.T) {
	dir := t.TempDir() + "/a/state"
	s, err := Open(vfs.OS, dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var b Batch
	b.Put([]byte("b/2"), []byte("two"))
	b.Put([]byte("b/1"), []byte("one"))
	b.Put([]byte("b/"), nil)
	b.Put([]byte("a"), []byte("first"))
	b.Put([]byte("c"), []byte("gone"))
	b.Delete([]byte("c"))
	b.Delete([]byte("never"))
	if b.Len() != 7 {
		t.Errorf("%d operations", b.Len())
	}
	if err := s.Apply(&b, true); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		var got []string
		err := s.Scan([]byte("b/"), func(k, v []byte) error {
			got = append(got, fmt.Sprintf("%s=%s", k, v))
			return nil
		})
		if fmt.Sprint(got) != "[b/= b/1=one b/2=two]" || err != nil {
			t.Errorf("scan: %v %v", got, err)
		}
		want(t, s, "a", "first")
		want(t, s, "c", "")
		if v, ok, err := s.Get([]byte("b/")); !ok || v == nil || len(v) != 0 || err != nil {
			t.Errorf("empty value: %v %v %v", v, ok, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if s, err = Open(vfs.OS, dir, Options{}); err != nil {
			t.Fatal(err)
		}
	}
	stop := errors.New("stop")
	n := 0
	if err := s.Scan(nil, func(_, _ []byte) error { n++; return stop }); err != stop || n != 1 {
		t.Errorf("scan that stops: %v after %d", err, n)
	}
}

func TestClosed(t *testing.T) {
	s := open(t, vfs.Memory(), Options{})
	put(t, s, "k", "v", false)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var b Batch
	b.Put([]byte("k"), nil)
	_, _, gerr := s.Get([]byte("k"))
	for what, err := range map[string]error{
		"apply": s.Apply(&b, true), "get": gerr, "close": s.Close(), "checkpoint": s.Checkpoint(),
		"scan": s.Scan(nil, func(_, _ []byte) error { return nil }),
	} {
		if err != ErrClosed {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestTooLarge(t *testing.T) {
	s := open(t, vfs.Memory(), Options{})
	var b Batch
	b.Put([]byte("small"), []byte("x"))
	b.Put(make([]byte, MaxKeyBytes+1), nil)
	if err := s.Apply(&b, false); !errors.Is(err, ErrTooLarge) {
		t.Errorf("large key: %v", err)
	}
	b.Reset()
	b.Put([]byte("k"), make([]byte, MaxBatchBytes))
	if err := s.Apply(&b, false); !errors.Is(err, ErrTooLarge) {
		t.Errorf("large value: %v", err)
	}
	b.Reset()
	key := bytes.Repeat([]byte("k"), MaxKeyBytes)
	b.Put(key, []byte("v"))
	if err := s.Apply(&b, false); err != nil {
		t.Errorf("largest key: %v", err)
	}
	want(t, s, string(key), "v")
	want(t, s, "small", "")
}

// TestGroupCommit has many writers at once: all are covered, by fewer syncs than there are batches.
func TestGroupCommit(t *testing.T) {
	d := crashfs.New()
	s := open(t, d, Options{})
	const writers, each = 32, 20
	gate := &gateFS{FS: d, open: make(chan struct{})}
	s.active.Load().f = gate.wrap(s.active.Load().f)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				put(t, s, fmt.Sprintf("%d/%d", w, i), "v", true)
				if got := s.sync.durable.Load(); got == 0 {
					t.Error("acknowledged with nothing durable")
				}
			}
		})
	}
	// The first sync waits until everybody has written: the second covers them all.
	for s.sync.written.Load() < writers {
		runtime.Gosched()
	}
	close(gate.open)
	wg.Wait()
	if n := gate.syncs.Load(); n >= writers*each || s.sync.durable.Load() != writers*each {
		t.Errorf("%d syncs for %d batches, durable up to %d", n, writers*each, s.sync.durable.Load())
	}
}

// TestSyncCovers: a sync makes durable what was written before it began, not what was written while it ran.
func TestSyncCovers(t *testing.T) {
	d := crashfs.New()
	s := open(t, d, Options{})
	gate := &gateFS{FS: d, open: make(chan struct{}), begun: make(chan struct{}, 1)}
	s.active.Load().f = gate.wrap(s.active.Load().f)
	done := make(chan struct{})
	go func() {
		defer close(done)
		put(t, s, "before", "v", true)
	}()
	<-gate.begun
	put(t, s, "meanwhile", "v", false)
	close(gate.open)
	<-done
	if got := s.sync.durable.Load(); got != 1 {
		t.Errorf("durable up to %d", got)
	}
}

type gateFS struct {
	vfs.FS
	begun chan struct{} // if set: told of each sync
	open  chan struct{}
	syncs atomic.Int64
}

type gateFile struct {
	vfs.File
	g *gateFS
}

func (g *gateFS) wrap(f vfs.File) vfs.File { return &gateFile{f, g} }

func (f *gateFile) Sync() error {
	if f.g.begun != nil {
		f.g.begun <- struct{}{}
	}
	<-f.g.open
	f.g.syncs.Add(1)
	return f.File.Sync()
}

func TestFailedSyncPoisons(t *testing.T) {
	for _, op := range []string{"sync", "syncdir"} {
		d, faults := crashfs.New(), crashfs.Rules("")
		s := open(t, faults.FS(d), Options{})
		put(t, s, "a", "1", false)
		setRules(t, faults, "1st "+op+": EIO")
		var b Batch
		b.Put([]byte("b"), []byte("2"))
		for range 3 {
			if err := s.Apply(&b, true); !errors.Is(err, ErrPoisoned) || !errors.Is(err, syscall.EIO) {
				t.Errorf("%s: %v", op, err)
			}
		}
		if err := s.Apply(&b, false); !errors.Is(err, ErrPoisoned) {
			t.Errorf("%s, not durable: %v", op, err)
		}
		if err := s.Checkpoint(); !errors.Is(err, ErrPoisoned) {
			t.Errorf("%s, checkpoint: %v", op, err)
		}
		want(t, s, "a", "1")
		if err := s.Close(); !errors.Is(err, ErrPoisoned) {
			t.Errorf("%s, close: %v", op, err)
		}
		put(t, open(t, d, Options{}), "c", "3", true)
	}
}

// TestFullDisk refuses a batch that does not fit, keeps the rest, and goes on when there is room again.
func TestFullDisk(t *testing.T) {
	d, faults := crashfs.New(), crashfs.Rules("")
	s := open(t, faults.FS(d), Options{})
	put(t, s, "a", "1", true)
	setRules(t, faults, "short write")
	var b Batch
	b.Put([]byte("a"), []byte("2"))
	if err := s.Apply(&b, true); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("no room: %v", err)
	}
	want(t, s, "a", "1")
	put(t, s, "b", "3", true)
	s = open(t, faults.FS(d), Options{})
	want(t, s, "a", "1")
	want(t, s, "b", "3")
	// What was half written cannot be taken back: then nothing may follow it.
	setRules(t, faults, "short write; 1st truncate: EIO")
	if err := s.Apply(&b, false); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("no room: %v", err)
	}
	if err := s.Apply(&b, false); !errors.Is(err, ErrPoisoned) {
		t.Errorf("after a write that was not undone: %v", err)
	}
	s = open(t, d, Options{})
	want(t, s, "a", "1")
	want(t, s, "b", "3")
}

// TestCompaction overwrites a few keys many times while others read: the files stay few, and nobody sees a wrong value.
func TestCompaction(t *testing.T) {
	fs := vfs.Memory()
	o := Options{FileBytes: 8 << 10, CheckpointBytes: 32 << 10, CacheBytes: 64 << 10}
	s := open(t, fs, o)
	const keys = 200
	key := func(i int) []byte { return fmt.Appendf(nil, "key%03d", i) }
	value := func(i, v int) []byte {
		return binary.LittleEndian.AppendUint64(fmt.Appendf(nil, "value of %03d ", i), uint64(v))
	}
	for i := range keys {
		put(t, s, string(key(i)), string(value(i, 0)), false)
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				v, ok, err := s.Get(key(i % keys))
				if !ok || err != nil || !bytes.HasPrefix(v, value(i%keys, 0)[:13]) {
					t.Errorf("get %d: %q %v %v", i%keys, v, ok, err)
					return
				}
			}
		})
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				n := 0
				if err := s.Scan([]byte("key"), func(k, v []byte) error { n++; return nil }); err != nil || n != keys {
					t.Errorf("scan: %d %v", n, err)
					return
				}
			}
		})
	}
	for v := range 5000 {
		i := v % 20 // the others must be moved
		put(t, s, string(key(i)), string(value(i, v)), v%500 == 0)
	}
	close(done)
	wg.Wait()
	s.work.Wait()
	if st := s.Stats(); st.Keys != keys || st.TotalBytes > 200<<10 || st.Checkpoint == 0 {
		t.Errorf("after 5000 overwrites: %+v", st)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, fs, o)
	for i := range keys {
		last := 0
		if i < 20 {
			last = 5000 - 20 + i
		}
		want(t, s, string(key(i)), string(value(i, last)))
	}
}

// TestMaintenanceFails keeps the store usable when a checkpoint cannot be written, and tries again.
func TestMaintenanceFails(t *testing.T) {
	d, faults := crashfs.New(), crashfs.Rules("")
	var failures atomic.Int64
	s := open(t, faults.FS(d), Options{CheckpointBytes: 1000, OnError: func(err error) {
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("in the background: %v", err)
		}
		failures.Add(1)
	}})
	for i := range 40 {
		setRules(t, faults, "1st rename: EIO")
		put(t, s, fmt.Sprint(i), "some value", false)
		s.work.Wait()
	}
	if n := failures.Load(); n < 2 || n > 8 {
		t.Errorf("%d failures, of %d bytes written", n, s.Stats().TotalBytes)
	}
	if n := len(d.Files("*.tmp")); n != 0 {
		t.Errorf("%d files left over", n)
	}
	setRules(t, faults, "")
	if err := s.Checkpoint(); err != nil {
		t.Error(err)
	}
	want(t, open(t, d, Options{}), "39", "some value")
}

// TestNoCache keeps a store that only scans free of the cache.
func TestNoCache(t *testing.T) {
	s := open(t, vfs.Memory(), Options{})
	put(t, s, "k", "v", true)
	if err := s.Scan(nil, func(_, _ []byte) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if s.cache.c.Load() != nil {
		t.Error("a scan made the cache")
	}
	want(t, s, "k", "v")
	if s.cache.c.Load() == nil {
		t.Error("a Get did not make it")
	}
}

// TestScanPages scans more than one page, with values close together and far apart, small and large, while fn changes the
// store under it.
func TestScanPages(t *testing.T) {
	s := open(t, vfs.Memory(), Options{FileBytes: 1 << 20})
	const n = 3000
	value := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, i%7+i%500/499*100_000) }
	for _, i := range rand.New(rand.NewPCG(1, 1)).Perm(n) {
		put(t, s, fmt.Sprintf("k%05d", i), string(value(i)), false)
	}
	put(t, s, "j", "before", false)
	put(t, s, "l", "behind", false)
	next := 0
	if err := s.Scan([]byte("k"), func(k, v []byte) error {
		if string(k) != fmt.Sprintf("k%05d", next) || !bytes.Equal(v, value(next)) {
			return fmt.Errorf("at %d: %q, %d bytes", next, k, len(v))
		}
		if next++; next == 100 {
			for i := range n { // all move, and their files with them
				put(t, s, fmt.Sprintf("k%05d", i), string(value(i)), false)
			}
			return s.Checkpoint()
		}
		return nil
	}); err != nil || next != n {
		t.Errorf("%d keys: %v", next, err)
	}
}
