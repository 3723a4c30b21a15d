package franz

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kaas/bench/load"
)

// lastReadMax is how long the readers may need for what was acknowledged.
const lastReadMax = 30 * time.Second

// EndToEnd produces at the rate of cfg, which must be set, and reads with as many other clients from the offsets in from, by partition, the
// ends of a topic that nobody else writes. The latency of the second result counts from the time at which a record was due until a
// consumer has it; each value carries that time.
func EndToEnd(ctx context.Context, cfg ProduceConfig, from []int64) (written, read load.Result, err error) {
	if cfg.Rate <= 0 {
		return written, read, errors.New("end to end: needs a rate")
	}
	if cfg.Acks == 0 {
		return written, read, errors.New("end to end: needs acknowledgements, else a lost record would not be noticed")
	}
	base := time.Now()
	in := ConsumeConfig{Config: cfg.Config}
	in.Limits, in.Progress = load.Limits{}, nil
	if err := in.check(); err != nil {
		return written, read, err
	}
	r := &reading{base: base, tally: newTally(&in.Config), whole: make(chan struct{})}
	ended := make(chan error, 1)
	go func() { ended <- consume(ctx, &in, r.tally, from, r.take) }()

	t := newTally(&cfg.Config)
	acked, err := produce(ctx, &cfg, t, base)
	if err == nil && t.err == nil {
		err = r.wait(acked)
	}
	r.tally.mu.Lock()
	r.tally.close()
	r.tally.mu.Unlock()
	if err := errors.Join(err, <-ended); err != nil {
		return written, read, err
	}
	if written, err = t.result("produce", cfg.Clients, true); err != nil {
		return written, read, err
	}
	read, err = r.tally.result("e2e", in.Clients, true)
	read.Late = written.Late
	return written, read, err
}

// reading is the consuming side of an end-to-end run.
type reading struct {
	base   time.Time
	tally  *tally
	got    atomic.Int64
	target atomic.Int64 // records to be read in all, once that is known
	whole  chan struct{}
	told   atomic.Bool
}

func (r *reading) take(ft *kgo.FetchTopic) {
	now := time.Since(r.base)
	n := int64(0)
	r.tally.mu.Lock()
	ft.EachRecord(func(rec *kgo.Record) {
		n++
		if len(rec.Value) >= stamped && r.tally.elapsed() >= 0 {
			r.tally.latency.Record(int64(now) - int64(binary.BigEndian.Uint64(rec.Value)))
		}
	})
	r.tally.mu.Unlock()
	r.got.Add(n)
	r.look()
}

func (r *reading) look() {
	if t := r.target.Load(); t > 0 && r.got.Load() >= t && r.told.CompareAndSwap(false, true) {
		close(r.whole)
	}
}

// wait returns when all that was acknowledged has been read.
func (r *reading) wait(acked int64) error {
	if acked == 0 {
		return errors.New("end to end: nothing was acknowledged")
	}
	r.target.Store(acked)
	r.look()
	select {
	case <-r.whole:
		return nil
	case <-r.tally.done:
		return r.tally.err
	case <-time.After(lastReadMax):
		return fmt.Errorf("end to end: %d of %d acknowledged records read within %v", r.got.Load(), acked, lastReadMax)
	}
}
