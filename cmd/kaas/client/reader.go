package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// How a fetch is asked for.
const (
	fetchWaitMs    = 500 // and so how soon a partition of another broker is asked again
	fetchBytes     = 16 << 20
	partitionBytes = 1 << 20
	pause          = 100 * time.Millisecond // before a new attempt after an error that may pass, of any request
)

// reader fetches partitions and prints their records. It makes its own fetch requests, because the library's consumer does
// not tell where in a partition it is: with records that nobody gets to see at the end (aborted, compacted away, control
// records) one could not know that the end is reached.
type reader struct {
	o     *consumeOptions
	cl    *kgo.Client
	adm   *kadm.Client
	print func(b []byte, r *kgo.Record) []byte
	out   io.Writer

	id      kadm.TopicID
	parts   []*part
	printed int64
	failing time.Time // since when nothing has succeeded; zero: it has
}

// part is one partition.
type part struct {
	id     int32
	leader int32
	next   int64 // offset to be fetched
	end    int64 // offset to stop before; -1: none
}

func (p *part) done() bool { return p.end >= 0 && p.next >= p.end }

// locate asks for the topic's partitions and their leaders. The first time it makes the list of what is read.
func (r *reader) locate(ctx context.Context) error {
	m, err := r.adm.Metadata(ctx, r.o.topic)
	if err != nil {
		return err
	}
	t := m.Topics[r.o.topic]
	if t.Err != nil {
		return fmt.Errorf("topic %s: %w", r.o.topic, t.Err)
	}
	r.id = t.ID
	if r.parts == nil {
		ids := slices.Clone(r.o.partitions)
		if len(ids) == 0 {
			ids = t.Partitions.Numbers()
		}
		slices.Sort(ids)
		for _, id := range slices.Compact(ids) {
			r.parts = append(r.parts, &part{id: id})
		}
	}
	for _, p := range r.parts {
		d, ok := t.Partitions[p.id]
		if !ok {
			return fmt.Errorf("topic %s has no partition %d, but %d partitions", r.o.topic, p.id, len(t.Partitions))
		}
		p.leader = d.Leader
	}
	return nil
}

// run fetches until all is printed, or ctx ends.
func (r *reader) run(ctx context.Context) error {
	for ctx.Err() == nil {
		leaders := map[int32][]*part{}
		for _, p := range r.parts {
			if !p.done() {
				leaders[p.leader] = append(leaders[p.leader], p)
			}
		}
		if len(leaders) == 0 || r.full() {
			return nil
		}
		if err := r.round(ctx, leaders); err != nil {
			if err := r.wait(ctx, err); err != nil {
				return err
			}
			continue
		}
		r.failing = time.Time{}
	}
	return nil
}

// full reports whether as many records were printed as were asked for.
func (r *reader) full() bool { return r.o.count > 0 && r.printed >= r.o.count }

type answer struct {
	parts []*part
	resp  *kmsg.FetchResponse
	err   error
}

// round fetches once from every leader and prints what comes.
func (r *reader) round(ctx context.Context, leaders map[int32][]*part) error {
	answers := make(chan answer, len(leaders))
	for leader, parts := range leaders {
		go func() {
			resp, err := r.cl.Broker(int(leader)).RetriableRequest(ctx, r.request(parts))
			a := answer{parts: parts, err: err}
			if err == nil {
				a.resp = resp.(*kmsg.FetchResponse)
			}
			answers <- a
		}()
	}
	var failed error
	for range leaders {
		a := <-answers
		if a.err == nil {
			a.err = r.take(a.parts, a.resp)
		}
		failed = errors.Join(failed, a.err)
	}
	return failed
}

func (r *reader) isolation() kgo.IsolationLevel {
	if r.o.committed {
		return kgo.ReadCommitted()
	}
	return kgo.ReadUncommitted()
}

func (r *reader) request(parts []*part) *kmsg.FetchRequest {
	q := kmsg.NewPtrFetchRequest()
	q.MaxWaitMillis, q.MinBytes, q.MaxBytes, q.SessionEpoch = fetchWaitMs, 1, fetchBytes, -1 // no fetch session
	if r.o.committed {
		q.IsolationLevel = 1
	}
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = r.o.topic, r.id
	for _, p := range parts {
		x := kmsg.NewFetchRequestTopicPartition()
		x.Partition, x.FetchOffset, x.PartitionMaxBytes = p.id, p.next, partitionBytes
		t.Partitions = append(t.Partitions, x)
	}
	q.Topics = append(q.Topics, t)
	return q
}

// take prints the records of an answer. An error that may pass leaves the partition where it is.
func (r *reader) take(parts []*part, resp *kmsg.FetchResponse) error {
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	var failed error
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			x := &resp.Topics[i].Partitions[j]
			k := slices.IndexFunc(parts, func(p *part) bool { return p.id == x.Partition })
			if k < 0 {
				continue
			}
			if err := r.takePartition(parts[k], x); err != nil {
				failed = errors.Join(failed, err)
			}
		}
	}
	return failed
}

func (r *reader) takePartition(p *part, x *kmsg.FetchResponseTopicPartition) error {
	fp, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Offset: p.next, IsolationLevel: r.isolation(), Topic: r.o.topic, Partition: p.id},
		x, kgo.DefaultDecompressor(), nil)
	var b []byte
	for _, rec := range fp.Records {
		if p.end >= 0 && rec.Offset >= p.end || r.full() {
			break
		}
		b = r.print(b, rec)
		r.printed++
	}
	if _, err := r.out.Write(b); err != nil {
		return fatal{err}
	}
	p.next = next
	switch {
	case errors.Is(fp.Err, kerr.OffsetOutOfRange):
		return fatal{fmt.Errorf("partition %d: offset %d is out of range: it was deleted meanwhile, or the log has become shorter", p.id, p.next)}
	case fp.Err != nil:
		return fmt.Errorf("partition %d at offset %d: %w", p.id, p.next, fp.Err)
	}
	return nil
}

// fatal is an error that no new attempt can mend.
type fatal struct{ error }

func (e fatal) Unwrap() error { return e.error }

// wait decides whether to go on after an error: for the time of --timeout, with fresh leaders, if it may pass.
func (r *reader) wait(ctx context.Context, err error) error {
	var f fatal
	var k *kerr.Error
	if errors.As(err, &f) || errors.As(err, &k) && !k.Retriable {
		return err
	}
	now := time.Now()
	if r.failing.IsZero() {
		r.failing = now
	}
	if now.Sub(r.failing) > r.o.timeout {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
	if lerr := r.locate(ctx); lerr != nil && ctx.Err() == nil {
		return errors.Join(err, lerr)
	}
	return nil
}
