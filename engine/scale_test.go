package engine

import (
	"fmt"
	"runtime"
	"testing"
	"time"
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
