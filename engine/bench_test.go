package engine

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kaas/engine/vfs"
)

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{1, 16, 256} {
		for _, sync := range []string{"none", "group"} {
			b.Run(fmt.Sprintf("size=%dk/sync=%s", size, sync), func(b *testing.B) {
				f := newFixture(b, func(c *Config) {
					c.Clock = nil
					if sync == "group" {
						c.Durability = GroupCommit
					}
				})
				l := f.log(true, small(256<<20))
				en := []Entry{batch(spec{size: size<<10 - 61})}
				b.SetBytes(int64(size << 10))
				b.ReportAllocs()
				for b.Loop() {
					if l.Append(en); en[0].Err != nil {
						b.Fatal(en[0].Err)
					}
					if l.SizeBytes() > 1<<30 {
						b.StopTimer()
						if _, err := l.DeleteRecords(-1); err != nil && f.cfg.Durability == PageCache {
							b.Fatal(err)
						}
						b.StartTimer()
					}
				}
			})
		}
	}
}

func BenchmarkRead(b *testing.B) {
	for _, where := range []string{"tail", "active", "sealed"} {
		b.Run("at="+where, func(b *testing.B) {
			f := newFixture(b)
			l := f.log(true, small(32<<20))
			en := make([]Entry, 1)
			for range 64 << 10 {
				en[0] = batch(spec{size: 1024 - 61})
				l.Append(en)
			}
			at := map[string]int64{"tail": 65536 - 8, "active": 65536 - 10000, "sealed": 10000}[where]
			b.ReportAllocs()
			for b.Loop() {
				s, err := l.Read(at, 1<<20, true, ReadUncommitted)
				if err != nil || s.Len == 0 {
					b.Fatal(s, err)
				}
				s.Ref.Release()
			}
		})
	}
}

// BenchmarkCommit has writers in a closed loop on one partition and, in the same run, a bare probe that writes as many
// batches with one call and syncs. acks/sync should be near writers; sync-share is syncs/s against the probe's. With
// via=loop one goroutine appends for all who are ready, as an event loop does.
func BenchmarkCommit(b *testing.B) {
	for _, via := range []string{"goroutines", "loop"} {
		for _, writers := range []int{1, 2, 8, 64, 512} {
			b.Run(fmt.Sprintf("via=%s/writers=%d", via, writers), func(b *testing.B) { benchmarkCommit(b, via, writers) })
		}
	}
}

func benchmarkCommit(b *testing.B, via string, writers int) {
	var syncs, acks atomic.Int64
	f := newFixture(b, func(c *Config) {
		c.Clock = nil
		c.Durability = GroupCommit
		c.OnCommit = func(_, released int, _ time.Duration) { syncs.Add(1); acks.Add(int64(released)) }
	})
	l := f.log(true, small(1<<30))
	closed := func(d time.Duration) (rate, per float64) {
		syncs.Store(0)
		acks.Store(0)
		start := time.Now()
		if via == "loop" {
			closedLoop(b, l, writers, d)
		} else {
			closedGoroutines(b, l, writers, d)
		}
		return float64(syncs.Load()) / time.Since(start).Seconds(), float64(acks.Load()) / float64(syncs.Load())
	}
	probe := probe(b, writers*1024)
	closed(300 * time.Millisecond)
	var rate, per, bare float64
	const rounds = 5
	for range rounds {
		bare += probe(200*time.Millisecond) / rounds
		r, p := closed(200 * time.Millisecond)
		rate += r / rounds
		per += p / rounds
	}
	for b.Loop() { // the rounds above are the measurement
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(per, "acks/sync")
	b.ReportMetric(rate, "syncs/s")
	b.ReportMetric(bare, "probe-syncs/s")
	b.ReportMetric(rate/bare, "sync-share")
	b.ReportMetric(rate*per, "acks/s")
}

func closedGoroutines(b *testing.B, l *Log, writers int, d time.Duration) {
	start := time.Now()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			en := []Entry{batch(spec{size: 1024 - 61, tag: byte(w)})}
			ack := make(waiter, 1)
			for time.Since(start) < d {
				if l.Append(en); en[0].Err != nil {
					b.Error(en[0].Err)
					return
				}
				if done, err := l.AwaitDurable(en[0].LastOffset+1, ack); err != nil {
					b.Error(err)
					return
				} else if !done {
					<-ack
				}
			}
		})
	}
	wg.Wait()
}

// loopWriter posts itself to the loop when its batch is durable.
type loopWriter struct {
	ready chan *loopWriter
	entry Entry
}

func (w *loopWriter) Durable(error) { w.ready <- w }

func closedLoop(b *testing.B, l *Log, writers int, d time.Duration) {
	ready := make(chan *loopWriter, writers)
	for w := range writers {
		ready <- &loopWriter{ready: ready, entry: batch(spec{size: 1024 - 61, tag: byte(w)})}
	}
	var turn []*loopWriter
	var entries []Entry
	idle := 0
	for start := time.Now(); idle < writers; {
		turn, entries = append(turn[:0], <-ready), entries[:0]
		for len(ready) > 0 {
			turn = append(turn, <-ready)
		}
		if time.Since(start) > d {
			idle += len(turn)
			continue
		}
		for _, w := range turn {
			entries = append(entries, w.entry)
		}
		l.Append(entries)
		for i, w := range turn {
			if entries[i].Err != nil {
				b.Fatal(entries[i].Err)
			}
			if done, err := l.AwaitDurable(entries[i].LastOffset+1, w); err != nil {
				b.Fatal(err)
			} else if done {
				ready <- w
			}
		}
	}
}

// probe writes n bytes and syncs, over a file that was written and synced before.
func probe(b *testing.B, n int) func(d time.Duration) float64 {
	file, err := vfs.OS.Open(b.TempDir()+"/probe", vfs.Create)
	if err != nil {
		b.Fatal(err)
	}
	const size = 64 << 20
	if err := file.ZeroFill(0, size); err != nil {
		b.Fatal(err)
	}
	if err := file.Sync(); err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, n)
	at := int64(0)
	return func(d time.Duration) float64 {
		start, count := time.Now(), 0
		for time.Since(start) < d {
			if at+int64(n) > size {
				at = 0
			}
			if _, err := file.WriteAt(buf, at); err != nil {
				b.Fatal(err)
			}
			at += int64(n)
			if err := file.Sync(); err != nil {
				b.Fatal(err)
			}
			count++
		}
		return float64(count) / time.Since(start).Seconds()
	}
}
