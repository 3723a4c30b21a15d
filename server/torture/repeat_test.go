//go:build torture

package torture

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kaas/codec/batch"
)

// repeater is an idempotent producer that sends its last batch of each partition again after every round, as one does whose answer was lost.
// The broker has to know it as a repeat, whatever was done to it: by itself a client repeats something only when it is hit at the right moment,
// which no clean stop does.
type repeater struct {
	e     *era
	id    int64
	epoch int16
	name  string
	next  [partitions]int   // its next number
	at    [partitions]int64 // offset of the last
}

func newRepeater(e *era, name string) *repeater {
	e.t.Helper()
	q := kmsg.NewPtrInitProducerIDRequest()
	q.TransactionTimeoutMillis = int32(patience.Milliseconds())
	a, err := q.RequestWith(e.ctx, e.admin)
	e.must(err)
	e.must(kerr.ErrorForCode(a.ErrorCode))
	return &repeater{e: e, id: a.ProducerID, epoch: a.ProducerEpoch, name: name}
}

// round repeats what was sent last, and sends another batch to each partition.
func (r *repeater) round() {
	r.e.t.Helper()
	for p := range int32(partitions) {
		if n := r.next[p] - 1; n >= 0 {
			if at := r.send(p, n); at != r.at[p] {
				r.e.h.fail(duplicated, "partition %d: %s is at offset %d; its repeat was acknowledged at %d", p, valueOf(r.name, n), r.at[p], at)
			}
		}
		n := r.e.h.send(p, r.name)
		r.at[p], r.next[p] = r.send(p, n), n+1
		r.e.h.ack(p, r.name, n, r.at[p], nil)
	}
}

// send sends number n until it is acknowledged.
func (r *repeater) send(p int32, n int) (offset int64) {
	r.e.t.Helper()
	spec := batch.NewSpec()
	spec.ProducerID, spec.ProducerEpoch, spec.BaseSequence = r.id, r.epoch, int32(n)
	var build batch.Builder
	build.Begin(nil, spec)
	build.Append(1_700_000_000_000, nil, []byte(valueOf(r.name, n)))
	records := build.End(nil)
	var last error
	r.e.await(fmt.Sprintf("%s in partition %d", valueOf(r.name, n), p), func() bool {
		a, err := produceTo(r.e.ctx, r.e, p, records)
		if err == nil {
			err = kerr.ErrorForCode(a.ErrorCode)
		}
		if err != nil && !kerr.IsRetriable(err) && a != nil {
			r.e.t.Fatalf("partition %d refuses %s: %v", p, valueOf(r.name, n), err)
		}
		if last = err; err == nil {
			offset = a.BaseOffset
		}
		return last == nil
	})
	return offset
}

// produceTo sends one batch to a partition, leader or not.
func produceTo(ctx context.Context, e *era, p int32, records []byte) (*kmsg.ProduceResponseTopicPartition, error) {
	ctx, cancel := context.WithTimeout(ctx, patience/4)
	defer cancel()
	q := kmsg.NewPtrProduceRequest()
	q.Acks, q.TimeoutMillis = -1, int32((10 * time.Second).Milliseconds())
	qt := kmsg.NewProduceRequestTopic()
	qt.Topic = e.topic
	qp := kmsg.NewProduceRequestTopicPartition()
	qp.Partition, qp.Records = p, records
	qt.Partitions = append(qt.Partitions, qp)
	q.Topics = append(q.Topics, qt)
	a, err := e.admin.Broker(e.process.Ready.NodeID).RetriableRequest(ctx, q)
	if err != nil {
		return nil, err
	}
	return &a.(*kmsg.ProduceResponse).Topics[0].Partitions[0], nil
}
