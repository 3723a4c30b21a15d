package interop

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var codecs = []struct {
	name  string
	franz kgo.CompressionCodec
	id    uint8 // in the attributes of a batch
}{
	{"none", kgo.NoCompression(), 0},
	{"gzip", kgo.GzipCompression(), 1},
	{"snappy", kgo.SnappyCompression(), 2},
	{"lz4", kgo.Lz4Compression(), 3},
	{"zstd", kgo.ZstdCompression(), 4},
}

// makeRecords makes n records with what a record can have: null and empty keys and values, headers, own timestamps.
func makeRecords(n int, partitions int32) []*kgo.Record {
	rng := rand.New(rand.NewSource(int64(n)))
	base := time.UnixMilli(1_700_000_000_000)
	records := make([]*kgo.Record, n)
	for i := range records {
		r := &kgo.Record{
			Partition: int32(i) % partitions,
			Key:       fmt.Appendf(nil, "key-%d", i),
			Value:     bytes.Repeat(fmt.Appendf(nil, "value %d ", i), rng.Intn(20)),
			Timestamp: base.Add(time.Duration(rng.Intn(1_000_000)) * time.Millisecond),
		}
		switch i % 10 {
		case 0:
			r.Key, r.Value = nil, fmt.Appendf(nil, "%d", i)
		case 1:
			r.Value = nil
		case 2:
			r.Key, r.Value = []byte{}, []byte{}
		case 3:
			r.Headers = []kgo.RecordHeader{{Key: "h", Value: []byte{0, 255}}, {Key: "h", Value: nil}, {Key: "", Value: []byte{}}}
		}
		records[i] = r
	}
	return records
}

// same returns what differs in the content of two records, "" if nothing.
func same(want, got *kgo.Record) string {
	null := func(b []byte) string { return fmt.Sprintf("%q (null: %v)", b, b == nil) }
	switch {
	case null(want.Key) != null(got.Key):
		return fmt.Sprintf("key: want %s, got %s", null(want.Key), null(got.Key))
	case null(want.Value) != null(got.Value):
		return fmt.Sprintf("value: want %s, got %s", null(want.Value), null(got.Value))
	case !want.Timestamp.Equal(got.Timestamp):
		return fmt.Sprintf("timestamp: want %v, got %v", want.Timestamp, got.Timestamp)
	case !slices.EqualFunc(want.Headers, got.Headers, func(a, b kgo.RecordHeader) bool {
		return a.Key == b.Key && null(a.Value) == null(b.Value)
	}):
		return fmt.Sprintf("headers: want %v, got %v", want.Headers, got.Headers)
	}
	return ""
}

// compareAll compares a topic with what was written, partition by partition and in order.
func compareAll(t *testing.T, written []*kgo.Record, got map[int32][]*kgo.Record, codec uint8) {
	t.Helper()
	want := map[int32][]*kgo.Record{}
	for _, r := range written {
		want[r.Partition] = append(want[r.Partition], r)
	}
	for p, rs := range want {
		if len(rs) != len(got[p]) {
			t.Fatalf("partition %d: want %d records, got %d", p, len(rs), len(got[p]))
		}
		for i, r := range rs {
			g := got[p][i]
			if g.Offset != int64(i) {
				t.Fatalf("partition %d: want offset %d, got %d", p, i, g.Offset)
			}
			if d := same(r, g); d != "" {
				t.Fatalf("partition %d offset %d: %s", p, i, d)
			}
			if c := g.Attrs.CompressionType(); c != codec {
				t.Fatalf("partition %d offset %d: want codec %d, got %d", p, i, codec, c)
			}
		}
	}
}

func TestFranzProduceAndFetch(t *testing.T) {
	addr, _ := startBroker(t)
	ways := []struct {
		name string
		opts []kgo.Opt
	}{
		{"", nil}, // idempotent, acks=all
		{"acks=all", []kgo.Opt{kgo.DisableIdempotentWrite()}},
		{"acks=1", []kgo.Opt{kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck())}},
		{"acks=0", []kgo.Opt{kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.NoAck()), kgo.MaxProduceRequestsInflightPerBroker(1)}},
	}
	for _, way := range ways {
		for _, codec := range codecs {
			feature := codec.name
			if way.name != "" {
				if codec.name != "none" && codec.name != "zstd" {
					continue
				}
				feature = way.name
			}
			cell(t, "franz-go", feature, func(t *testing.T) {
				const partitions = 3
				topic := newTopic(t, addr, partitions)
				c := newClient(t, addr, append([]kgo.Opt{
					kgo.DefaultProduceTopic(topic),
					kgo.RecordPartitioner(kgo.ManualPartitioner()),
					kgo.ProducerBatchCompression(codec.franz),
					kgo.ProducerBatchMaxBytes(8 << 10), // many batches
				}, way.opts...)...)
				records := makeRecords(3000, partitions)
				if err := c.ProduceSync(newContext(t), records...).FirstErr(); err != nil {
					t.Fatal(err)
				}
				if way.name == "acks=0" || way.name == "acks=1" { // nobody waited for the sync that shows them to readers
					waitForEnd(t, addr, topic, int64(len(records)))
				}
				// A batch that compression does not make smaller is sent as it is, but 8 KiB of these records are.
				compareAll(t, records, readAll(t, addr, topic), codec.id)
			})
		}
	}
}

// waitForEnd waits until the high watermarks of a topic add up to n.
func waitForEnd(t *testing.T, addr, topic string, n int64) {
	t.Helper()
	ctx := newContext(t)
	adm := kadm.NewClient(newClient(t, addr))
	for {
		ends, err := adm.ListEndOffsets(ctx, topic)
		if err != nil {
			t.Fatalf("waiting for %d records: %v", n, err)
		}
		sum := int64(0)
		ends.Each(func(o kadm.ListedOffset) { sum += o.Offset })
		if sum >= n {
			return
		}
	}
}

// TestFranzManyProducers: several idempotent clients on the same partitions lose nothing and keep their own order.
func TestFranzManyProducers(t *testing.T) {
	addr, _ := startBroker(t)
	cell(t, "franz-go", "many-producers", func(t *testing.T) {
		const producers, each, partitions = 8, 1000, 2
		topic := newTopic(t, addr, partitions)
		ctx := newContext(t)
		var wg sync.WaitGroup
		for w := range producers {
			c := newClient(t, addr, kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(50))
			wg.Go(func() {
				for i := range each {
					r := &kgo.Record{Partition: int32(i % partitions), Value: fmt.Appendf(nil, "%d:%d", w, i/partitions)}
					c.Produce(ctx, r, func(_ *kgo.Record, err error) {
						if err != nil {
							t.Error(err)
						}
					})
				}
				if err := c.Flush(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for p, rs := range readAll(t, addr, topic) {
			next, err := sequences(rs)
			if err != nil {
				t.Errorf("partition %d: %v", p, err)
			}
			for w := range producers {
				if next[w] != each/partitions {
					t.Errorf("partition %d: want %d records of producer %d, got %d", p, each/partitions, w, next[w])
				}
			}
		}
	})
}

// sequences checks that offsets have no gap and that the values "writer:number" of each writer count from 0 up without
// gap or repetition; it returns how many each has.
func sequences(rs []*kgo.Record) (map[int]int, error) {
	next := map[int]int{}
	for i, r := range rs {
		if r.Offset != int64(i) {
			return nil, fmt.Errorf("want offset %d, got %d", i, r.Offset)
		}
		var w, n int
		if _, err := fmt.Sscanf(string(r.Value), "%d:%d", &w, &n); err != nil {
			return nil, fmt.Errorf("offset %d: value %.20q: %w", r.Offset, r.Value, err)
		}
		if n != next[w] {
			return nil, fmt.Errorf("offset %d: want number %d of writer %d, got %d", r.Offset, next[w], w, n)
		}
		next[w]++
	}
	return next, nil
}

func TestFranzAdmin(t *testing.T) {
	addr, process := startBroker(t)
	cell(t, "franz-go", "admin", func(t *testing.T) {
		ctx := newContext(t)
		topic := newTopic(t, addr, 2)
		c := newClient(t, addr, kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		adm := kadm.NewClient(c)
		records := makeRecords(40, 2)
		if err := c.ProduceSync(ctx, records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		checkConfigs(t, adm, topic)
		checkOffsets(t, adm, topic, records)

		if _, err := adm.CreateTopic(ctx, 1, 1, nil, topic); !errors.Is(err, kerr.TopicAlreadyExists) {
			t.Errorf("creating a topic again: want TOPIC_ALREADY_EXISTS, got %v", err)
		}
		if _, err := adm.UpdatePartitions(ctx, 5, topic); err != nil {
			t.Fatal(err)
		}
		var meta kadm.Metadata
		settled(t, func() (err error) {
			if meta, err = adm.Metadata(ctx, topic); err == nil && len(meta.Topics[topic].Partitions) != 5 {
				err = fmt.Errorf("want 5 partitions, got %v", meta.Topics[topic].Partitions)
			}
			return err
		})
		if meta.Topics[topic].ID == (kadm.TopicID{}) {
			t.Error("the topic has no id")
		}
		for _, p := range meta.Topics[topic].Partitions {
			if p.Leader != meta.Controller || len(p.ISR) != 1 || p.ISR[0] != p.Leader || p.LeaderEpoch < 0 {
				t.Errorf("partition %d: leader %d, isr %v, epoch %d; controller %d", p.Partition, p.Leader, p.ISR, p.LeaderEpoch, meta.Controller)
			}
		}
		if process != nil && (meta.Cluster != process.Ready.ClusterID || int(meta.Controller) != process.Ready.NodeID) {
			t.Errorf("cluster and node: want %s %d, got %s %d", process.Ready.ClusterID, process.Ready.NodeID, meta.Cluster, meta.Controller)
		}
		if _, err := adm.DeleteTopic(ctx, topic); err != nil {
			t.Fatal(err)
		}
		settled(t, func() error {
			list, err := adm.ListTopics(ctx)
			if err == nil && list.Has(topic) {
				err = errors.New("the deleted topic is still listed")
			}
			return err
		})
	})
}

// settled wants check to succeed at once; a broker that is not ours, where changes are seen a little later, has more time.
func settled(t *testing.T, check func() error) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if *bootstrap == "" || time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func checkConfigs(t *testing.T, adm *kadm.Client, topic string) {
	t.Helper()
	ctx := newContext(t)
	value := func(key string) string {
		rcs, err := adm.DescribeTopicConfigs(ctx, topic)
		if err != nil || len(rcs) != 1 {
			t.Fatal(rcs, err)
		}
		for _, c := range rcs[0].Configs {
			if c.Key == key {
				return c.MaybeValue()
			}
		}
		return "<absent>"
	}
	if got := value("retention.ms"); got != "604800000" {
		t.Errorf("retention.ms: want 604800000, got %s", got)
	}
	hour := "3600000"
	rs, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: &hour}}, topic)
	if err != nil || len(rs) != 1 || rs[0].Err != nil {
		t.Fatal(rs, err)
	}
	settled(t, func() error {
		if got := value("retention.ms"); got != hour {
			return fmt.Errorf("retention.ms: want %s, got %s", hour, got)
		}
		return nil
	})
}

// checkOffsets asks for times and then moves the log start.
func checkOffsets(t *testing.T, adm *kadm.Client, topic string, written []*kgo.Record) {
	t.Helper()
	ctx := newContext(t)
	byPartition := map[int32][]*kgo.Record{}
	for _, r := range written {
		byPartition[r.Partition] = append(byPartition[r.Partition], r)
	}
	at := written[len(written)/2].Timestamp.UnixMilli()
	after, err := adm.ListOffsetsAfterMilli(ctx, at, topic)
	if err != nil {
		t.Fatal(err)
	}
	for p, rs := range byPartition {
		want := int64(slices.IndexFunc(rs, func(r *kgo.Record) bool { return r.Timestamp.UnixMilli() >= at }))
		if want < 0 {
			want = int64(len(rs)) // kadm says the end where there is no such record
		}
		if got, _ := after.Lookup(topic, p); got.Offset != want || got.Err != nil {
			t.Errorf("partition %d, first offset at %d: want %d, got %d %v", p, at, want, got.Offset, got.Err)
		}
	}
	var to kadm.Offsets
	to.Add(kadm.Offset{Topic: topic, Partition: 0, At: 7})
	if _, err := adm.DeleteRecords(ctx, to); err != nil {
		t.Fatal(err)
	}
	starts, err := adm.ListStartOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	for p, want := range map[int32]int64{0: 7, 1: 0} {
		if got, _ := starts.Lookup(topic, p); got.Offset != want {
			t.Errorf("partition %d, log start: want %d, got %d", p, want, got.Offset)
		}
	}
}
