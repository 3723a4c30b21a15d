package catalog

import (
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"kaas/engine/state"
	"kaas/engine/vfs"
)

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

func benchStore(b *testing.B, dir string) *state.Store {
	s, err := state.Open(vfs.OS, dir, state.Options{})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func benchCatalog(b *testing.B, s Store) *Catalog {
	c, err := Open(s, Options{})
	if err != nil {
		b.Fatal(err)
	}
	return c
}

func newTopics(n int) []NewTopic {
	list := make([]NewTopic, n)
	for i := range list {
		list[i] = NewTopic{Name: fmt.Sprintf("topic.number-%06d", i), Partitions: 1}
	}
	return list
}

// BenchmarkOpen opens store and catalog of 10,000 topics, one sync included, and measures the heap for a topic.
func BenchmarkOpen(b *testing.B) {
	for _, how := range []string{"clean", "killed"} {
		b.Run(how, func(b *testing.B) {
			const n = 10_000
			dir := b.TempDir()
			s := benchStore(b, dir)
			benchCatalog(b, s).CreateTopics(newTopics(n))
			var before, after runtime.MemStats
			b.ResetTimer()
			defer cpu(b)()
			for range b.N {
				b.StopTimer()
				if how == "clean" {
					s.Close()
				}
				s = nil
				runtime.GC()
				runtime.ReadMemStats(&before)
				b.StartTimer()
				s = benchStore(b, dir)
				c := benchCatalog(b, s)
				b.StopTimer()
				runtime.GC()
				runtime.ReadMemStats(&after)
				if c.Snapshot().Len() != n {
					b.Fatal("topics lost")
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "B/topic")
		})
	}
}

// BenchmarkCreate makes 1,000 topics of one partition in one call, and one topic in a catalog of 10,000 without its sync.
func BenchmarkCreate(b *testing.B) {
	b.Run("thousand", func(b *testing.B) {
		c := benchCatalog(b, benchStore(b, b.TempDir()))
		defer cpu(b)()
		for range b.N {
			list := newTopics(1000)
			c.CreateTopics(list)
			b.StopTimer()
			c.DeleteTopics(c.Snapshot().Topics())
			b.StartTimer()
		}
	})
	b.Run("one-of-10000", func(b *testing.B) {
		s, err := state.Open(vfs.Memory(), "/s", state.Options{})
		if err != nil {
			b.Fatal(err)
		}
		c := benchCatalog(b, s)
		c.CreateTopics(newTopics(10_000))
		b.ReportAllocs()
		b.ResetTimer()
		defer cpu(b)()
		for i := range b.N {
			c.CreateTopics([]NewTopic{{Name: fmt.Sprintf("more-%d", i), Partitions: 1}})
		}
	})
}

func BenchmarkTopic(b *testing.B) {
	s, err := state.Open(vfs.Memory(), "/s", state.Options{})
	if err != nil {
		b.Fatal(err)
	}
	c := benchCatalog(b, s)
	list := newTopics(10_000)
	c.CreateTopics(list)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if c.Snapshot().Topic(list[i*7919%len(list)].Name) == nil {
			b.Fatal("missing")
		}
	}
}

// BenchmarkFirstOpen is the start of an empty broker: a new store, the identity, one sync with its names.
func BenchmarkFirstOpen(b *testing.B) {
	dir := b.TempDir()
	for i := range b.N {
		benchCatalog(b, benchStore(b, fmt.Sprintf("%s/%d", dir, i)))
	}
}
