package state

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"kaas/engine/vfs"
)

// verified makes a store of two log files and a checkpoint, closed cleanly.
func verified(t *testing.T) vfs.FS {
	t.Helper()
	fs := vfs.Memory()
	s, err := Open(fs, "/s", Options{FileBytes: 2000, CheckpointBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		var b Batch
		b.Put(fmt.Appendf(nil, "key-%04d", i), []byte(strings.Repeat("v", 60)))
		if i > 5 && i%5 == 0 {
			b.Delete(fmt.Appendf(nil, "key-%04d", i-1))
		}
		if err := s.Apply(&b, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return fs
}

// patch changes a file.
func patch(t *testing.T, fs vfs.FS, name string, f func(b []byte) []byte) {
	t.Helper()
	b, err := vfs.ReadFile(fs, "/s/"+name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteFile(fs, "/s", name, f(append([]byte(nil), b...))); err != nil {
		t.Fatal(err)
	}
}

// TestVerify: a sound store has no findings; each damage has one, where it is.
func TestVerify(t *testing.T) {
	flip := func(at int) func(b []byte) []byte { return func(b []byte) []byte { b[at] ^= 1; return b } }
	for _, c := range []struct {
		name string
		do   func(t *testing.T, fs vfs.FS)
		want string // the first finding, "" for none
	}{
		{"sound", func(*testing.T, vfs.FS) {}, ""},
		{"a torn tail", func(t *testing.T, fs vfs.FS) {
			patch(t, fs, "0000000002.log", func(b []byte) []byte { return append(b, 1, 2, 3) })
		}, "0000000002.log@"},
		{"a frame of a file that is not replayed", func(t *testing.T, fs vfs.FS) { patch(t, fs, "0000000001.log", flip(200)) }, "0000000001.log@"},
		{"a header", func(t *testing.T, fs vfs.FS) { patch(t, fs, "0000000002.log", flip(5)) }, "0000000002.log@0: file header damaged or missing"},
		{"the sequence of a header", func(t *testing.T, fs vfs.FS) {
			patch(t, fs, "0000000002.log", func(b []byte) []byte { return append(appendLogHeader(2, 3), b[logHeader:]...) })
		}, "0000000002.log@0: begins with frame 3, the file before ends with "},
		{"a checkpoint", func(t *testing.T, fs vfs.FS) { patch(t, fs, "0000000001.ckp", flip(50)) }, "0000000001.ckp@"},
		{"a file that is missing", func(t *testing.T, fs vfs.FS) { fs.Remove("/s/0000000002.log") }, "0000000002.log@0: file is missing"},
		{"a file of values missing", func(t *testing.T, fs vfs.FS) { fs.Remove("/s/0000000001.log") }, "0000000001.log@0: file is missing"},
		{"a value that the checkpoint has elsewhere", func(t *testing.T, fs vfs.FS) {
			patch(t, fs, "0000000001.log", func(b []byte) []byte { return b[:len(b)-30] })
		}, "0000000001.log@"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := verified(t)
			c.do(t, fs)
			found, leftovers, err := Verify(fs, "/s")
			if err != nil || len(leftovers) > 0 {
				t.Fatal(leftovers, err)
			}
			if c.want == "" {
				if len(found) > 0 {
					t.Errorf("%+v", found)
				}
				return
			}
			if len(found) == 0 {
				t.Fatal("nothing found")
			}
			if got := fmt.Sprintf("%s@%d: %s", strings.TrimPrefix(found[0].File, "/s/"), found[0].Offset, found[0].What); !strings.HasPrefix(got, c.want) {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
	fs := verified(t)
	patch(t, fs, "0000000001.ckp", func(b []byte) []byte { vfs.WriteFile(fs, "/s", "0000000002.ckp", b); return b[:9] })
	if err := fs.Rename("/s/0000000001.ckp", "/s/0000000003.ckp.tmp"); err != nil {
		t.Fatal(err)
	}
	if found, leftovers, err := Verify(fs, "/s"); len(found) > 0 || len(leftovers) != 1 || leftovers[0] != "0000000003.ckp.tmp" || err != nil {
		t.Errorf("%+v %v %v", found, leftovers, err)
	}
}

// TestIndexMemory holds the store to its budget of 160 bytes of heap for a key of 60, filled and opened from a checkpoint, with values on
// disk. Fewer keys than the million of the benchmark: the share of a key does not depend on it.
func TestIndexMemory(t *testing.T) {
	const n, limit = 100_000, 160
	dir := t.TempDir()
	before := heap()
	s, err := Open(vfs.OS, dir, Options{CacheBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	var b Batch
	for i := range n {
		b.Put(benchKey(nil, i), make([]byte, 20))
		if b.Len() == 1000 {
			if err := s.Apply(&b, false); err != nil {
				t.Fatal(err)
			}
			b.Reset()
		}
	}
	b = Batch{}
	filled := float64(heap()-before) / n
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(vfs.OS, dir, Options{CacheBytes: -1}); err != nil {
		t.Fatal(err)
	}
	opened := float64(heap()-before) / n
	if keys := s.Stats().Keys; keys != n || filled > limit || opened > limit || filled < 60 || opened < 60 {
		t.Errorf("%d keys: %.0f bytes each when filled, %.0f when opened; at most %d", keys, filled, opened, limit)
	}
	runtime.KeepAlive(b)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestNoAllocations: a put of a known key and a cached get allocate nothing of their own.
func TestNoAllocations(t *testing.T) {
	s, err := Open(vfs.Memory(), "/s", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	keys := make([][]byte, 64)
	for i := range keys {
		keys[i] = benchKey(nil, i)
	}
	value := make([]byte, 100)
	var b Batch
	fill := func() {
		b.Reset()
		for _, k := range keys {
			b.Put(k, value)
		}
		if err := s.Apply(&b, false); err != nil {
			t.Fatal(err)
		}
	}
	fill()
	if n := testing.AllocsPerRun(50, fill); n > 0 {
		t.Errorf("%v allocations for a batch of 64 puts", n)
	}
	hit := func() bool {
		_, ok, err := s.Get(keys[0])
		_, cached := s.cache.get(placeOf(s, keys[0]))
		return ok && err == nil && cached
	}
	for range 1_000_000 { // the cache takes a value in the background
		if hit() {
			break
		}
		runtime.Gosched()
	}
	if !hit() {
		t.Fatal("the value is not cached")
	}
	if n := testing.AllocsPerRun(1000, func() { s.Get(keys[0]) }); n >= 1 {
		t.Errorf("%v allocations for a cached get", n)
	}
}

func placeOf(s *Store, key []byte) place {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p, _ := s.index.get(key)
	return p
}
