package server

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kaas/server/brokertest"
)

// BenchmarkTransactions is small transactions by one franz-go client against a broker of its own process: begin, one record, commit; over one
// partition and over a hundred. txns/s is what counts; processor time of both tells it on a machine that is busy with something else.
func BenchmarkTransactions(b *testing.B) {
	bin, err := brokertest.Build(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	for _, durability := range []string{"page-cache", "group-commit"} {
		for _, partitions := range []int32{1, 100} {
			b.Run("durability="+durability+"/partitions="+map[int32]string{1: "1", 100: "100"}[partitions], func(b *testing.B) {
				benchTransactions(b, bin, durability, partitions)
			})
		}
	}
}

func benchTransactions(b *testing.B, bin, durability string, partitions int32) {
	broker, err := brokertest.Start(bin, "--data-dir", b.TempDir(), "--set", "kaas.durability="+durability)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := broker.Stop(); err != nil {
			b.Error(err)
		}
	})
	makeTopic(b, broker, "t", partitions)
	c, err := kgo.NewClient(kgo.SeedBrokers(broker.Addr), kgo.TransactionalID("x"), kgo.ProducerLinger(0),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	ctx := context.Background()
	one := func() {
		if err := c.BeginTransaction(); err != nil {
			b.Fatal(err)
		}
		rs := make([]*kgo.Record, partitions)
		for p := range rs {
			rs[p] = &kgo.Record{Topic: "t", Partition: int32(p), Value: []byte("value")}
		}
		if err := c.ProduceSync(ctx, rs...).FirstErr(); err != nil {
			b.Fatal(err)
		}
		if err := c.EndTransaction(ctx, kgo.TryCommit); err != nil {
			b.Fatal(err)
		}
	}
	for range 10 {
		one()
	}
	b.ResetTimer()
	used, own := processor(b, broker.PID()), ownProcessor(b)
	for b.Loop() {
		one()
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "txns/s")
	b.ReportMetric(float64((processor(b, broker.PID())-used).Microseconds())/float64(b.N), "broker-cpu-us/op")
	b.ReportMetric(float64((ownProcessor(b)-own).Microseconds())/float64(b.N), "client-cpu-us/op")
}

// ownProcessor is the processor time that this process, the client, has used.
func ownProcessor(b *testing.B) time.Duration {
	b.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
