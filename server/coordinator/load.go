package coordinator

import (
	"errors"
	"fmt"

	"kaas/codec/batch"
	"kaas/engine"
)

// inflateMax bounds what one compressed batch may become when it is read, in bytes.
const inflateMax = 1 << 30

// load begins the load of a shard that does nothing yet. An empty log that is known to be one is loaded at once.
func (sh *shard[S]) load() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if l := sh.partition.Log; l.Loaded() && l.Err() == nil && l.Offsets().LogEnd == 0 {
		sh.phase = open
		sh.begin()
		sh.state.Loaded(sh.rt.cfg.Clock.Now())
		return
	}
	sh.loadLocked()
}

// begin makes an empty state.
func (sh *shard[S]) begin() {
	sh.timers = &timers[S]{alarms: sh.rt.alarms, shard: sh}
	sh.state = sh.rt.cfg.New(sh.partition.Index, sh.timers)
}

// loadLocked has a goroutine load the shard and then run it. mu is held, and nobody runs the shard.
func (sh *shard[S]) loadLocked() {
	sh.phase, sh.running = loading, true
	go func() {
		sh.rt.slots <- struct{}{}
		err := sh.read()
		<-sh.rt.slots
		if err != nil {
			sh.rt.cfg.Logger.Error("a coordinator's shard could not be loaded", "log", sh.partition.Log.String(), "error", err)
			sh.fail(err)
		} else {
			sh.mu.Lock()
			sh.phase = open
			sh.mu.Unlock()
		}
		sh.run()
	}()
}

// read makes the state from the log. Whatever goes wrong, a panic in the state too, is an error.
func (sh *shard[S]) read() (err error) {
	clock := sh.rt.cfg.Clock
	began := clock.Now()
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
		sh.rt.counts.loadNanos.Add(int64(clock.Now().Sub(began)))
	}()
	log := sh.partition.Log
	if err := log.Load(); err != nil {
		return err
	}
	end := log.Offsets().LogEnd
	if err := waitDurable(log, end); err != nil {
		return err
	}
	sh.begin()
	ld := loader[S]{shard: sh, inflater: batch.NewInflater(inflateMax)}
	if err := ld.load(end); err != nil {
		return err
	}
	sh.state.Loaded(clock.Now())
	return nil
}

// durability is a waiter that somebody blocks on.
type durability chan error

// Durable implements engine.DurableWaiter.
func (d durability) Durable(err error) { d <- err }

// waitDurable blocks until a log is durable up to end: what is loaded may be shown.
func waitDurable(log *engine.Log, end int64) error {
	d := make(durability, 1)
	if done, err := log.AwaitDurable(end, d); done || err != nil {
		return err
	}
	return <-d
}

// loader is one load.
type loader[S State] struct {
	shard    *shard[S]
	inflater *batch.Inflater
	buf      []byte
	bad      int64 // records that made no sense
}

// load replays the log from its start to end.
func (ld *loader[S]) load(end int64) error {
	log := ld.shard.partition.Log
	offset := log.Offsets().LogStart
	ld.buf = make([]byte, max(min(int64(ld.shard.rt.cfg.LoadBytes), log.SizeBytes()), batch.HeaderSize))
	for offset < end {
		n, _, err := log.ReadBytes(ld.buf, offset, engine.ReadUncommitted)
		if err != nil {
			return err
		}
		if n == 0 {
			break // the rest was compacted away
		}
		next, err := ld.batches(ld.buf[:n], offset)
		if err != nil {
			return err
		}
		offset = next
	}
	if ld.bad > 0 {
		ld.shard.rt.cfg.Logger.Error("records of an internal topic make no sense and were passed over", "log", log.String(), "records", ld.bad)
	}
	return nil
}

// batches replays the whole batches in b, of what lies at offset or after it. It returns the offset to go on with; if there is not one whole
// batch the buffer grows and that is the same as before.
func (ld *loader[S]) batches(b []byte, offset int64) (int64, error) {
	for first := true; len(b) > 0; first = false {
		v, err := batch.Next(b)
		switch {
		case errors.Is(err, batch.ErrTorn) && !first:
			return offset, nil
		case errors.Is(err, batch.ErrTorn):
			return offset, ld.grow(b, offset)
		case errors.Is(err, batch.ErrCorrupt):
			v, _ = batch.Peek(b)
			ld.passOver(v.BaseOffset(), err)
		case err != nil:
			return 0, fmt.Errorf("batch after offset %d: %w", offset, err)
		default:
			ld.batch(v, offset)
		}
		offset = max(offset, v.LastOffset()) + 1
		b = b[v.Size():]
	}
	return offset, nil
}

// grow makes room for the batch that begins in b, if it is one.
func (ld *loader[S]) grow(b []byte, offset int64) error {
	if len(b) < batch.HeaderSize {
		return fmt.Errorf("after offset %d: %w", offset, batch.ErrTorn)
	}
	size := batch.View(b).Size()
	if size <= len(ld.buf) || int64(size) > ld.shard.partition.Log.SizeBytes() {
		return fmt.Errorf("batch after offset %d, %d bytes: %w", offset, size, batch.ErrTorn)
	}
	ld.buf = make([]byte, size)
	return nil
}

// batch replays one batch from an offset on.
func (ld *loader[S]) batch(v batch.View, from int64) {
	state := ld.shard.state
	at := Position{Offset: v.BaseOffset(), Timestamp: v.MaxTimestamp()}
	p := Producer{ID: v.ProducerID(), Epoch: v.ProducerEpoch()}
	if v.IsControl() {
		if m, ok := batch.ReadMarker(v); ok {
			state.ReplayMarker(p, m.Type == batch.ControlCommit, at)
		}
		return
	}
	if v.IsTransactional() {
		at.Txn = &p
	}
	var c batch.Cursor
	if err := c.Open(v, ld.inflater); err != nil {
		ld.passOver(at.Offset, err)
		return
	}
	for c.Next() {
		if at.Offset = c.Offset(); at.Offset < from {
			continue
		}
		at.Timestamp = c.Timestamp()
		if err := state.Replay(Entry{Key: c.Key(), Value: c.Value()}, at); err != nil {
			ld.passOver(at.Offset, err)
		}
	}
	if c.Err() != nil {
		ld.passOver(at.Offset, c.Err())
	}
}

// passOver tells of the first record that makes no sense; the others are counted.
func (ld *loader[S]) passOver(offset int64, err error) {
	if ld.bad++; ld.bad == 1 {
		ld.shard.rt.cfg.Logger.Warn("a record of an internal topic makes no sense", "log", ld.shard.partition.Log.String(), "offset", offset, "error", err)
	}
}

// EndTxn writes the marker that ends a producer's transaction in a shard, and has it applied; at once, if nobody is at work on the shard. done is
// told once when that is durable, or why it did not happen. It blocks for the page cache only.
func (r *Runtime[S]) EndTxn(shard int32, p Producer, commit bool, coordinatorEpoch int32, done func(error)) {
	h, err := r.find()
	if err != nil {
		done(err)
		return
	}
	if shard < 0 || int(shard) >= len(h.shards) {
		done(ErrNotOwned)
		return
	}
	m := &marker{producer: p, commit: commit, coordinatorEpoch: coordinatorEpoch, done: done}
	if sh := h.shards[shard]; sh.reserve(item[S]{marker: m, refused: done}) {
		sh.runOnce(nil)
	}
}
