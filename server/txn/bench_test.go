package txn

import (
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/coordinator"
)

// bench is a runtime without a log: it replays and tells at once.
type bench struct {
	s      *Shard
	now    time.Time
	offset int64
	bytes  int
	work   *MarkerWork
}

func newBench() *bench {
	b := &bench{now: time.UnixMilli(1_700_000_000_000)}
	cfg := &Config{MaxTimeout: 15 * time.Minute, Expiration: 7 * 24 * time.Hour, AnswerWithin: time.Second,
		Markers: func(w MarkerWork) bool { b.work = &w; return false }}
	b.s = New(cfg, 0, b, slog.New(slog.DiscardHandler))
	b.s.Loaded(b.now)
	return b
}

func (b *bench) After(time.Duration, func(time.Time) coordinator.Outcome) coordinator.Timer { return 1 }
func (b *bench) Stop(coordinator.Timer)                                                     {}

func (b *bench) run(o coordinator.Outcome) {
	for _, e := range o.Write.Entries {
		b.offset++
		b.bytes += len(e.Key) + len(e.Value)
		if err := b.s.Replay(e, coordinator.Position{Offset: b.offset}); err != nil {
			panic(err)
		}
	}
	if o.Done != nil {
		o.Done(nil)
	}
	if w := b.work; w != nil {
		b.work = nil
		b.run(b.s.MarkersWritten(w.ID, w.Decision, w.Partitions, b.now))
	}
}

func (b *bench) init(id string, producer int64) {
	q := &api.InitProducerIdRequest{TransactionalId: wire.Some(id), TransactionTimeoutMs: 60_000, ProducerId: -1, ProducerEpoch: -1}
	b.run(b.s.InitProducerID(q, 4, func() (int64, api.ErrorCode) { return producer, api.ErrNone }, b.now, func(*api.InitProducerIdResponse) {}))
}

// What the coordinator itself costs in a transaction: add, verify, commit, markers, completion.
func BenchmarkTransaction(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprintf("partitions=%d", n), func(b *testing.B) {
			w := newBench()
			w.init("x", 7)
			p := coordinator.Producer{ID: 7, Epoch: 0}
			topics := []api.AddPartitionsToTxnRequestAddPartitionsToTxnTopic{{Name: "t"}}
			for i := range n {
				topics[0].Partitions = append(topics[0].Partitions, int32(i))
			}
			end := &api.EndTxnRequest{TransactionalId: "x", ProducerId: 7, Committed: true}
			answers := 0
			w.bytes = 0
			b.ReportAllocs()
			for b.Loop() {
				w.run(w.s.AddPartitions("x", p, topics, w.now, func(api.ErrorCode) {}))
				w.run(w.s.Verify("x", p, []Partition{{"t", 0}}, func(api.ErrorCode, []api.ErrorCode) {}))
				w.run(w.s.EndTxn(end, 3, w.now, func(p *api.EndTxnResponse) {
					if p.ErrorCode == api.ErrNone {
						answers++
					}
				}))
			}
			if answers != b.N {
				b.Fatalf("%d of %d answered", answers, b.N)
			}
			b.ReportMetric(float64(w.bytes)/float64(b.N), "log-B/op")
		})
	}
}

// What a transactional id takes that has run a transaction.
func BenchmarkMemoryPerID(b *testing.B) {
	const n = 200_000
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for b.Loop() {
		before := heap()
		shards := make([]*bench, 50)
		for i := range shards {
			shards[i] = newBench()
		}
		topics := []api.AddPartitionsToTxnRequestAddPartitionsToTxnTopic{{Name: "t", Partitions: []int32{0}}}
		for i := range n {
			w := shards[i%len(shards)]
			id := fmt.Sprintf("transactional-%08d", i)
			w.init(id, int64(i))
			w.run(w.s.AddPartitions(id, coordinator.Producer{ID: int64(i)}, topics, w.now, func(api.ErrorCode) {}))
			w.run(w.s.EndTxn(&api.EndTxnRequest{TransactionalId: id, ProducerId: int64(i), Committed: true}, 3, w.now, func(*api.EndTxnResponse) {}))
		}
		b.ReportMetric(float64(heap()-before)/n, "B/id")
		began := time.Now()
		due := shards[0].now.Add(8 * 24 * time.Hour)
		for _, w := range shards {
			w.run(w.s.Expire(due))
		}
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms/first-batch-of-all")
		runtime.KeepAlive(shards)
	}
}
