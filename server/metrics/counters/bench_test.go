package counters

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"kaas/netio"
)

// cpu is the processor time of this process: wall time says little on a shared machine.
func cpu() int64 {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return r.Utime.Nano() + r.Stime.Nano()
}

// BenchmarkAnswered is what metrics cost a request: its share of the counting, and of the clock read, which a loop that goes to sleep
// after it would have made anyway (clock=no).
func BenchmarkAnswered(b *testing.B) {
	for i := range 6 {
		batch, clock := []int{1, 8, 64}[i/2], []string{"no", "yes"}[i%2]
		b.Run(fmt.Sprintf("batch=%d/clock=%s", batch, clock), func(b *testing.B) {
			set := NewSet([]string{"A", "B"})
			sh := set.NewShard()
			done := make([]netio.Done, 0, batch)
			start := time.Now()
			b.ReportAllocs()
			before := cpu()
			for i := 0; i < b.N; i += batch {
				done = done[:0]
				for range batch {
					done = append(done, netio.Done{Tag: 1, Frame: 1000, Bytes: 60, Nanos: 5})
				}
				now := int64(i)
				if clock == "yes" {
					now = int64(time.Since(start))
				}
				for j := range done {
					done[j].Nanos = now - done[j].Nanos
				}
				sh.Answered(done)
			}
			b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// BenchmarkWrote is what metrics cost a write: two reads of the clock and the counting.
func BenchmarkWrote(b *testing.B) {
	s := NewStorage()
	start := time.Now()
	before := cpu()
	for range b.N {
		began := time.Since(start)
		s.Wrote(1000, time.Since(start)-began)
	}
	b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
}
