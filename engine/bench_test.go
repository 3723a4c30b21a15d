package engine

import (
	"fmt"
	"slices"
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

// BenchmarkCommit has writers in a closed loop and, in the same run, a bare probe that writes as many batches with one call to one file and
// syncs it. acks/round should be near writers, acks-share near 1; round-share is rounds/s against the probe's, p99-share the p99 of an acknowledgement, from
// the append on, against that of the probe. With via=loop one goroutine appends for all who are ready, as an event loop does.
func BenchmarkCommit(b *testing.B) {
	for _, c := range []struct {
		via                 string
		partitions, writers int
	}{
		{"goroutines", 1, 1}, {"goroutines", 1, 8}, {"goroutines", 1, 64}, {"goroutines", 64, 64},
		{"loop", 1, 1}, {"loop", 1, 8}, {"loop", 1, 64}, {"loop", 1, 512}, {"loop", 8, 64}, {"loop", 64, 64}, {"loop", 64, 512},
	} {
		b.Run(fmt.Sprintf("via=%s/partitions=%d/writers=%d", c.via, c.partitions, c.writers), func(b *testing.B) {
			benchmarkCommit(b, c.via, c.partitions, c.writers)
		})
	}
}

// timings are the times that something took, of all goroutines.
type timings struct {
	mu  sync.Mutex
	all []time.Duration
}

func (t *timings) add(d ...time.Duration) {
	t.mu.Lock()
	t.all = append(t.all, d...)
	t.mu.Unlock()
}

func (t *timings) p99() float64 {
	slices.Sort(t.all)
	if len(t.all) == 0 {
		return 0
	}
	return float64(t.all[len(t.all)*99/100].Microseconds())
}

func benchmarkCommit(b *testing.B, via string, partitions, writers int) {
	var rounds, acks atomic.Int64
	f := newFixture(b, func(c *Config) {
		c.Clock = nil
		c.Durability = GroupCommit
		c.OnCommit = func(_, released int, _ time.Duration) { rounds.Add(1); acks.Add(int64(released)) }
	})
	var logs []*Log
	for i := range partitions {
		logs = append(logs, f.e.OpenLog(LogSpec{Topic: "t", Partition: int32(i), TopicID: [16]byte{1}, Config: small(1 << 30), New: true}))
	}
	var waits, bareWaits timings
	closed := func(d time.Duration, t *timings) (rate, per float64) {
		rounds.Store(0)
		acks.Store(0)
		start := time.Now()
		if via == "loop" {
			closedLoop(b, logs, writers, d, t)
		} else {
			closedGoroutines(b, logs, writers, d, t)
		}
		return float64(rounds.Load()) / time.Since(start).Seconds(), float64(acks.Load()) / float64(rounds.Load())
	}
	probe := probe(b, writers*1024)
	closed(500*time.Millisecond, &timings{})
	var rate, per, bare float64
	const turns = 8
	for range turns {
		bare += probe(200*time.Millisecond, &bareWaits) / turns
		r, p := closed(200*time.Millisecond, &waits)
		rate += r / turns
		per += p / turns
	}
	for b.Loop() { // the turns above are the measurement
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(per, "acks/round")
	b.ReportMetric(per/float64(writers), "acks-share")
	b.ReportMetric(rate, "rounds/s")
	b.ReportMetric(bare, "probe-syncs/s")
	b.ReportMetric(rate/bare, "round-share")
	b.ReportMetric(rate*per, "acks/s")
	b.ReportMetric(waits.p99(), "p99-us")
	b.ReportMetric(bareWaits.p99(), "probe-p99-us")
	b.ReportMetric(waits.p99()/bareWaits.p99(), "p99-share")
}

func closedGoroutines(b *testing.B, logs []*Log, writers int, d time.Duration, t *timings) {
	start := time.Now()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			l := logs[w%len(logs)]
			en := []Entry{batch(spec{size: 1024 - 61, tag: byte(w)})}
			ack := make(waiter, 1)
			var waits []time.Duration
			for time.Since(start) < d {
				began := time.Now()
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
				waits = append(waits, time.Since(began))
			}
			t.add(waits...)
		})
	}
	wg.Wait()
}

// loopWriter posts itself to the loop when its batch is durable.
type loopWriter struct {
	ready chan *loopWriter
	log   int
	entry Entry
	began time.Time
}

func (w *loopWriter) Durable(error) { w.ready <- w }

func closedLoop(b *testing.B, logs []*Log, writers int, d time.Duration, t *timings) {
	ready := make(chan *loopWriter, writers)
	for w := range writers {
		ready <- &loopWriter{ready: ready, log: w % len(logs), entry: batch(spec{size: 1024 - 61, tag: byte(w)})}
	}
	var turn []*loopWriter
	entries := make([][]Entry, len(logs))
	idle := 0
	for start := time.Now(); idle < writers; {
		turn = append(turn[:0], <-ready)
		for len(ready) > 0 {
			turn = append(turn, <-ready)
		}
		now := time.Now()
		for _, w := range turn {
			if !w.began.IsZero() {
				t.all = append(t.all, now.Sub(w.began))
			}
		}
		if time.Since(start) > d {
			idle += len(turn)
			continue
		}
		appendAll(b, logs, turn, entries, now)
	}
}

// appendAll appends for all that are ready, with one call for each log.
func appendAll(b *testing.B, logs []*Log, turn []*loopWriter, entries [][]Entry, now time.Time) {
	for i := range entries {
		entries[i] = entries[i][:0]
	}
	for _, w := range turn {
		w.began = now
		entries[w.log] = append(entries[w.log], w.entry)
	}
	for i, l := range logs {
		if len(entries[i]) > 0 {
			l.Append(entries[i])
		}
	}
	for _, w := range turn {
		en := entries[w.log][0]
		entries[w.log] = entries[w.log][1:]
		if en.Err != nil {
			b.Fatal(en.Err)
		}
		if done, err := logs[w.log].AwaitDurable(en.LastOffset+1, w); err != nil {
			b.Fatal(err)
		} else if done {
			w.ready <- w
		}
	}
}

// probe writes n bytes and syncs, over a file that was written and synced before.
func probe(b *testing.B, n int) func(d time.Duration, t *timings) float64 {
	file, err := vfs.OS.Open(b.TempDir()+"/probe", vfs.Create)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { file.Close() })
	const size = 64 << 20
	if err := file.ZeroFill(0, size); err != nil {
		b.Fatal(err)
	}
	if err := file.Sync(); err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, n)
	at := int64(0)
	return func(d time.Duration, t *timings) float64 {
		start, count := time.Now(), 0
		for time.Since(start) < d {
			began := time.Now()
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
			t.all = append(t.all, time.Since(began))
		}
		return float64(count) / time.Since(start).Seconds()
	}
}
