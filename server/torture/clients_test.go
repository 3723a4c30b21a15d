//go:build torture

package torture

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kaas/codec/batch"
)

// pace is how long a producer rests between one value for each partition and the next: what a run writes fits a small disk.
const pace = 2 * time.Millisecond

var padding = func() []byte {
	b := make([]byte, 4096)
	for i := range b {
		b[i] = byte('a' + rand.IntN(26))
	}
	return b
}()

func newClient(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append(quick(addr), opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func newProducer(t *testing.T, addr string, h *history) *kgo.Client {
	return newClient(t, addr,
		kgo.WithLogger(complaints{h}),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MaxBufferedRecords(300),
		kgo.ProducerLinger(0),
		kgo.ProduceRequestTimeout(time.Second))
}

// complaints is a logger of franz-go that takes its errors for faults: answers that do not fit the request.
type complaints struct{ h *history }

func (complaints) Level() kgo.LogLevel { return kgo.LogLevelError }

func (c complaints) Log(_ kgo.LogLevel, text string, details ...any) {
	c.h.fail(misanswered, "%s %v", text, details)
}

// produce sends values to every partition in turn until stop is closed, then waits for their acknowledgement.
func produce(ctx context.Context, c *kgo.Client, h *history, topic, producer string, stop <-chan struct{}) error {
	for tick := time.NewTicker(pace); ; <-tick.C {
		select {
		case <-stop:
			return c.Flush(ctx)
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		for p := range int32(partitions) {
			n := h.send(p, producer)
			from := rand.IntN(len(padding) - 300)
			value := append([]byte(valueOf(producer, n)), padding[from:from+rand.IntN(300)]...)
			c.Produce(ctx, &kgo.Record{Topic: topic, Partition: p, Value: value}, func(r *kgo.Record, err error) {
				h.ack(p, producer, n, r.Offset, err)
			})
		}
	}
}

// newReader reads from the start. An offset that is not there is an error: what was read once does not go away.
func newReader(t *testing.T, addr, topic string) *kgo.Client {
	from := map[int32]kgo.Offset{}
	for p := range int32(partitions) {
		from[p] = kgo.NewOffset().AtStart()
	}
	return newClient(t, addr,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxWait(100*time.Millisecond))
}

// tail reads on until ctx ends.
func tail(ctx context.Context, c *kgo.Client, h *history, reader string) {
	for ctx.Err() == nil {
		note(c.PollFetches(ctx), h, reader)
	}
}

// note writes down what was fetched.
func note(fs kgo.Fetches, h *history, reader string) {
	fs.EachError(func(_ string, p int32, err error) {
		if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			h.fail(unreadable, "partition %d: %s: %v", p, reader, err)
		}
	})
	fs.EachRecord(func(r *kgo.Record) {
		h.see(reader, r.Partition, r.Offset, brief(r.Value))
	})
}

// brief keeps of a long value its beginning, and a sum of all.
func brief(v []byte) string {
	const kept = 40
	if len(v) <= kept {
		return string(v)
	}
	return fmt.Sprintf("%s…%08x", v[:kept], crc32.ChecksumIEEE(v))
}

// readToEnd reads everything there is.
func readToEnd(ctx context.Context, t *testing.T, addr, topic string, h *history, reader string) error {
	ends, err := kadm.NewClient(newClient(t, addr)).ListEndOffsets(ctx, topic)
	if err = errors.Join(err, ends.Error()); err != nil {
		return err
	}
	left := map[int32]bool{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = true
		}
	})
	c := newReader(t, addr, topic)
	defer c.Close()
	for len(left) > 0 {
		fs := c.PollFetches(ctx)
		if ctx.Err() != nil {
			return fmt.Errorf("partitions %v were not read to their ends: %w", left, ctx.Err())
		}
		note(fs, h, reader)
		fs.EachRecord(func(r *kgo.Record) {
			if end, _ := ends.Lookup(topic, r.Partition); r.Offset == end.Offset-1 {
				delete(left, r.Partition)
			}
		})
	}
	h.finished(reader)
	return nil
}

// offline asks which partitions have no leader; id is the topic's.
func offline(ctx context.Context, c *kgo.Client, topic string) (ps []int32, id [16]byte, err error) {
	q := kmsg.NewPtrMetadataRequest()
	qt := kmsg.NewMetadataRequestTopic()
	qt.Topic = &topic
	q.Topics = append(q.Topics, qt)
	r, err := q.RequestWith(ctx, c)
	if err != nil {
		return nil, id, err
	}
	for _, p := range r.Topics[0].Partitions {
		if p.ErrorCode == kerr.LeaderNotAvailable.Code {
			ps = append(ps, p.Partition)
		}
	}
	return ps, r.Topics[0].TopicID, nil
}

// toOffline sends one batch to a partition and returns the error code of the answer.
func toOffline(e *era, p int32) (int16, error) {
	var build batch.Builder
	build.Begin(nil, batch.NewSpec())
	build.Append(1_700_000_000_000, nil, []byte("to an offline log"))
	a, err := produceTo(e.ctx, e, p, build.End(nil))
	if err != nil {
		return 0, err
	}
	return a.ErrorCode, nil
}

// fetchStart fetches from the start of a partition, leader or not.
func fetchStart(ctx context.Context, b *kgo.Broker, topic string, id [16]byte, p int32) (*kmsg.FetchResponseTopicPartition, error) {
	q := kmsg.NewPtrFetchRequest()
	q.MaxBytes, q.SessionEpoch = 1<<20, -1
	qt := kmsg.NewFetchRequestTopic()
	qt.Topic, qt.TopicID = topic, id
	qp := kmsg.NewFetchRequestTopicPartition()
	qp.Partition, qp.PartitionMaxBytes = p, 1<<20
	qt.Partitions = append(qt.Partitions, qp)
	q.Topics = append(q.Topics, qt)
	r, err := b.RetriableRequest(ctx, q)
	if err != nil {
		return nil, err
	}
	return &r.(*kmsg.FetchResponse).Topics[0].Partitions[0], nil
}
