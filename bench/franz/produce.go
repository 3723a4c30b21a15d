package franz

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kaas/bench/load"
)

// ProduceConfig describes a produce run.
type ProduceConfig struct {
	Config
	RecordBytes int
	BatchBytes  int           // most of a batch; 0: the library's own
	Linger      time.Duration // how long a batch waits for more records
	Acks        int
	Idempotent  bool    // needs acks -1
	Keys        int     // different keys, which choose the partitions; 0: no keys
	Rate        float64 // records per second over all clients; 0: as fast as the library takes them
	Buffered    int     // records that one client may hold; 0: the library's own
	InFlight    int     // requests in flight to the broker for each client; 0, or an idempotent producer: the library's own
	Compression string
}

// stamped is how many bytes at the beginning of a value hold the time at which it was due.
const stamped = 8

func (c *ProduceConfig) client() (*kgo.Client, error) {
	comp, err := codec(c.Compression)
	if err != nil {
		return nil, err
	}
	acks := map[int]kgo.Acks{-1: kgo.AllISRAcks(), 0: kgo.NoAck(), 1: kgo.LeaderAck()}
	level, ok := acks[c.Acks]
	if !ok {
		return nil, fmt.Errorf("acks: %d is not -1, 0 or 1", c.Acks)
	}
	o := append(c.options(), kgo.DefaultProduceTopic(c.Topic), kgo.RequiredAcks(level), kgo.ProducerLinger(c.Linger), kgo.ProducerBatchCompression(comp))
	if !c.Idempotent {
		o = append(o, kgo.DisableIdempotentWrite())
	} else if c.Acks != -1 {
		return nil, errors.New("idempotence needs acks -1")
	}
	if c.BatchBytes > 0 {
		o = append(o, kgo.ProducerBatchMaxBytes(int32(c.BatchBytes)))
	}
	if c.Buffered > 0 {
		o = append(o, kgo.MaxBufferedRecords(c.Buffered))
	}
	if c.InFlight > 0 && !c.Idempotent { // an idempotent producer of this library chooses it
		o = append(o, kgo.MaxProduceRequestsInflightPerBroker(c.InFlight))
	}
	return kgo.NewClient(o...)
}

// producer is what the clients of a run share.
type producer struct {
	cfg    *ProduceConfig
	tally  *tally
	values [][]byte
	keys   [][]byte
	base   time.Time    // of the times in the values; zero: they carry none
	sent   atomic.Int64 // records handed out, to end a run of a given number
	acked  atomic.Int64
	pool   sync.Pool
}

// Produce runs the load.
func Produce(ctx context.Context, cfg ProduceConfig) (load.Result, error) {
	t := newTally(&cfg.Config)
	if _, err := produce(ctx, &cfg, t, time.Time{}); err != nil {
		return load.Result{}, err
	}
	return t.result("produce", cfg.Clients, cfg.Rate > 0)
}

// produce returns how many records were acknowledged, those of the warm-up included. With a base the values carry the time since then at
// which they were due.
func produce(ctx context.Context, cfg *ProduceConfig, t *tally, base time.Time) (acked int64, err error) {
	if err := cfg.check(); err != nil {
		return 0, err
	}
	if cfg.RecordBytes < 0 || !base.IsZero() && cfg.RecordBytes < stamped {
		return 0, fmt.Errorf("record size %d: too small", cfg.RecordBytes)
	}
	p := &producer{cfg: cfg, tally: t, values: makeValues(cfg.RecordBytes, cfg.Compression != "" && cfg.Compression != "none"), base: base}
	for i := range cfg.Keys {
		p.keys = append(p.keys, fmt.Appendf(nil, "key-%d", i))
	}
	clients := make([]*kgo.Client, cfg.Clients)
	for i := range clients {
		cl, err := cfg.client()
		if err != nil {
			return 0, err
		}
		defer cl.Close()
		if err := cl.Ping(ctx); err != nil {
			return 0, err
		}
		clients[i] = cl
	}
	t.begun = time.Now()
	var group sync.WaitGroup
	for i, cl := range clients {
		group.Add(1)
		go func() {
			defer group.Done()
			p.feed(ctx, cl, int64(i))
			if err := cl.Flush(ctx); err != nil {
				t.fail(err)
			}
		}()
	}
	group.Wait()
	return p.acked.Load(), nil
}

// feed hands records to one client until the run ends.
func (p *producer) feed(ctx context.Context, cl *kgo.Client, index int64) {
	every := float64(0)
	if p.cfg.Rate > 0 {
		every = 1e9 / p.cfg.Rate
	}
	for k := index; !p.tally.over(); k += int64(p.cfg.Clients) {
		if max := p.cfg.Records; max > 0 && p.sent.Add(1) > max && p.cfg.WarmUp == 0 {
			return
		}
		var due time.Time
		if every > 0 {
			due = p.tally.begun.Add(time.Duration(float64(k) * every))
			time.Sleep(time.Until(due))
			p.tally.wasLate(time.Since(due))
		} else {
			due = time.Now()
		}
		r, _ := p.pool.Get().(*work)
		if r == nil {
			r = p.newWork()
		}
		r.due = due
		r.record = kgo.Record{Value: p.values[k%valueCount]}
		if len(p.keys) > 0 {
			r.record.Key = p.keys[k%int64(len(p.keys))]
		}
		if !p.base.IsZero() {
			r.value = append(r.value[:0], r.record.Value...)
			binary.BigEndian.PutUint64(r.value, uint64(due.Sub(p.base)))
			r.record.Value = r.value
		}
		cl.Produce(ctx, &r.record, r.promise)
	}
}

// work is a record under way.
type work struct {
	record  kgo.Record
	value   []byte
	due     time.Time
	promise func(*kgo.Record, error)
}

func (p *producer) newWork() *work {
	w := &work{}
	w.promise = func(r *kgo.Record, err error) {
		if err != nil {
			p.tally.fail(err)
		} else {
			p.acked.Add(1)
			p.tally.add(1, int64(len(r.Key)+len(r.Value)), time.Since(w.due))
		}
		p.pool.Put(w)
	}
	return w
}
