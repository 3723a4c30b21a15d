package state

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kaas/engine/vfs"
)

// benchKey is a key of 60 bytes in which the order of i is not the order of the keys.
func benchKey(b []byte, i int) []byte {
	b = append(b[:0], "parsley/store/0123456789/partition-000/"...)
	x := place{uint32(i), 1, 0}.hash()
	b = fmt.Appendf(b, "%020d", x)
	return append(b, 'k')
}

func fillStore(b *testing.B, s *Store, keys, valueBytes int) {
	var batch Batch
	var key []byte
	value := make([]byte, valueBytes)
	for i := range keys {
		key = benchKey(key, i)
		binary.LittleEndian.PutUint64(value, uint64(i))
		batch.Put(key, value)
		if batch.Len() == 64 || i == keys-1 {
			if err := s.Apply(&batch, false); err != nil {
				b.Fatal(err)
			}
			batch.Reset()
		}
	}
}

func benchOpen(b *testing.B, dir string, o Options) *Store {
	o.OnError = func(err error) { b.Error(err) }
	s, err := Open(vfs.OS, dir, o)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// cpu reports the CPU time of the process for each operation: wall time says little on a machine that others use.
func cpu(b *testing.B) func() {
	var from, to unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &from)
	return func() {
		unix.Getrusage(unix.RUSAGE_SELF, &to)
		d := to.Utime.Nano() + to.Stime.Nano() - from.Utime.Nano() - from.Stime.Nano()
		b.ReportMetric(float64(d)/float64(b.N), "cpu-ns/op")
	}
}

// BenchmarkPut counts single puts, made in batches of 64 that are not synced.
func BenchmarkPut(b *testing.B) {
	s := benchOpen(b, b.TempDir(), Options{})
	defer s.Close()
	keys := make([][]byte, 200_000)
	for i := range keys {
		keys[i] = benchKey(nil, i)
	}
	value := make([]byte, 100)
	var batch Batch
	b.ReportAllocs()
	b.ResetTimer()
	defer cpu(b)()
	for i := 0; i < b.N; i += 64 {
		batch.Reset()
		for j := range 64 {
			batch.Put(keys[(i+j)%len(keys)], value)
		}
		if err := s.Apply(&batch, false); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDurable counts batches of one put, each synced, from many writers: group commit.
func BenchmarkDurable(b *testing.B) {
	for _, writers := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			s := benchOpen(b, b.TempDir(), Options{})
			defer s.Close()
			b.SetParallelism((writers + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0))
			b.RunParallel(func(pb *testing.PB) {
				var batch Batch
				for i := rand.IntN(1 << 20); pb.Next(); i++ {
					batch.Reset()
					batch.Put(benchKey(nil, i), []byte("value"))
					if err := s.Apply(&batch, true); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

func BenchmarkGet(b *testing.B) {
	s := benchOpen(b, b.TempDir(), Options{})
	defer s.Close()
	const n = 20_000
	fillStore(b, s, n, 100)
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = benchKey(nil, i)
	}
	for range 5 {
		for _, k := range keys {
			if _, ok, err := s.Get(k); !ok || err != nil {
				b.Fatal(ok, err)
			}
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	defer cpu(b)()
	for i := range b.N {
		if _, ok, _ := s.Get(keys[i%n]); !ok {
			b.Fatal("missing")
		}
	}
}

// BenchmarkOpen opens a store of a million keys that was closed cleanly, and measures the heap of its index for a key.
func BenchmarkOpen(b *testing.B) {
	const n = 1_000_000
	dir := b.TempDir()
	s := benchOpen(b, dir, Options{CacheBytes: -1})
	fillStore(b, s, n, 20)
	runtime.GC()
	var m0, m1, m2 runtime.MemStats
	runtime.ReadMemStats(&m0)
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	s = nil
	runtime.GC()
	runtime.ReadMemStats(&m1)
	b.ResetTimer()
	for range b.N {
		t := time.Now()
		s = benchOpen(b, dir, Options{CacheBytes: -1})
		b.ReportMetric(float64(time.Since(t).Milliseconds()), "ms/open")
		b.StopTimer()
		runtime.GC()
		runtime.ReadMemStats(&m2)
		if s.Stats().Keys != n {
			b.Fatal("keys lost")
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(m0.HeapAlloc-m1.HeapAlloc)/n, "B/key-filled")
	b.ReportMetric(float64(m2.HeapAlloc-m1.HeapAlloc)/n, "B/key-opened")
}

func BenchmarkScan(b *testing.B) {
	s := benchOpen(b, b.TempDir(), Options{})
	defer s.Close()
	fillStore(b, s, 10_000, 100)
	b.ResetTimer()
	defer cpu(b)()
	for range b.N {
		n := 0
		if err := s.Scan(nil, func(_, _ []byte) error { n++; return nil }); err != nil || n != 10_000 {
			b.Fatal(n, err)
		}
	}
}
