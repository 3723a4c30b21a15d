package coordinator

import (
	"errors"
	"fmt"
	"time"

	"kaas/codec/batch"
	"kaas/engine"
)

// writer collects what operations that wait at the same time want written: one batch.
type writer struct {
	entries []Entry
	size    int // an upper bound of what they take in a batch, its header included
	dones   []done
	keys    map[string]bool // of those that wrote: whether all of them were blind
	all     bool            // one that wrote is about no key in particular
}

// scratch is memory that is used again for each batch.
type scratch struct {
	buf      []byte
	deflater batch.Deflater
	entry    [1]engine.Entry
}

// entryOverhead bounds what a record takes besides its key and value: six varints of at most five bytes and one of ten, and attributes.
const entryOverhead = 41

// scratchKeep is the size up to which the buffer of a batch is kept.
const scratchKeep = 64 << 10

// shows tells whether an operation about key must see what is collected.
func (w *writer) shows(key string, blind bool) bool {
	if len(w.entries) == 0 {
		return false
	}
	if w.all || key == "" {
		return true
	}
	allBlind, wrote := w.keys[key]
	return wrote && !(blind && allBlind)
}

// sizeOf bounds what entries take in a batch.
func sizeOf(es []Entry) int {
	n := 0
	for i := range es {
		n += len(es[i].Key) + len(es[i].Value) + entryOverhead
	}
	return n
}

// batchMax is how large a batch the topic takes, in bytes.
func (sh *shard[S]) batchMax() int { return int(sh.partition.Topic.Settings().Config.MaxMessageBytes) }

// take notes what an operation wants.
func (sh *shard[S]) take(key string, blind bool, out *Outcome, now time.Time) {
	w := &out.Write
	if len(w.Entries) == 0 {
		sh.answerAfter(out.Done)
		return
	}
	switch {
	case w.Txn != nil:
		sh.flush(now)
		_, _ = sh.write(w, []done{{out.Done, true}}, now)
		return
	case w.Split:
		sh.flush(now)
		sh.writeSplit(w.Entries, out.Done, now)
		return
	}
	c := &sh.writer
	size := sizeOf(w.Entries)
	if len(c.entries) > 0 && c.size+size > sh.batchMax() {
		sh.flush(now)
	}
	if len(c.entries) == 0 {
		c.size = batch.HeaderSize
	}
	c.entries = append(c.entries, w.Entries...)
	c.size += size
	c.dones = append(c.dones, done{out.Done, true})
	if key == "" {
		c.all = true
		return
	}
	if c.keys == nil {
		c.keys = make(map[string]bool)
	}
	c.keys[key] = blind
}

// answerAfter answers an operation that writes nothing once all that was appended before it is durable.
func (sh *shard[S]) answerAfter(f func(error)) {
	switch {
	case f == nil:
	case len(sh.writer.entries) > 0:
		sh.writer.dones = append(sh.writer.dones, done{f, false})
	case len(sh.pending) > 0:
		last := sh.pending[len(sh.pending)-1]
		last.dones = append(last.dones, done{f, false})
	default:
		f(nil)
	}
}

// flush writes what is collected.
func (sh *shard[S]) flush(now time.Time) {
	w := &sh.writer
	if len(w.entries) == 0 {
		return
	}
	entries, dones := w.entries, w.dones
	w.entries, w.dones = nil, nil // those who wrote nothing are answered as if it had never been collected if the append fails
	clear(w.keys)
	w.all = false
	told, _ := sh.write(&Write{Entries: entries}, dones, now)
	clear(entries)
	w.entries = entries[:0]
	if told && cap(dones) <= itemsKept {
		clear(dones)
		w.dones = dones[:0]
	}
}

// write appends one batch, has it replayed, and answers dones when it is durable; told if that is already done. An error has been answered.
func (sh *shard[S]) write(w *Write, dones []done, now time.Time) (told bool, err error) {
	sh.writing = dones
	base, err := sh.append(w, now.UnixMilli())
	if err != nil {
		sh.writing = nil
		sh.refuseWrite(dones, err)
		return true, err
	}
	entries := w.Entries
	at := Position{Timestamp: now.UnixMilli(), Txn: w.Txn}
	for i := range entries {
		at.Offset = base + int64(i)
		if err := sh.state.Replay(entries[i], at); err != nil {
			sh.rt.cfg.Logger.Error("a record that was just written does not make sense", "log", sh.partition.Log.String(), "offset", at.Offset, "error", err)
		}
	}
	sh.writing = nil
	return sh.await(base+int64(len(entries)), dones), nil
}

// writeSplit appends entries in as many batches as they need. The last one answers; commits end in order.
func (sh *shard[S]) writeSplit(entries []Entry, f func(error), now time.Time) {
	room := sh.batchMax() - batch.HeaderSize
	for len(entries) > 0 {
		n, size := 1, sizeOf(entries[:1])
		for n < len(entries) && size+sizeOf(entries[n:n+1]) <= room {
			size += sizeOf(entries[n : n+1])
			n++
		}
		part := entries[:n]
		entries = entries[n:]
		if len(entries) == 0 {
			_, _ = sh.write(&Write{Entries: part}, []done{{f, true}}, now)
		} else if _, err := sh.write(&Write{Entries: part}, nil, now); err != nil {
			tell([]done{{f, true}}, err)
			return
		}
	}
}

// append makes a batch of entries and appends it: as Produce does, with CreateTime timestamps unless the topic wants its own.
func (sh *shard[S]) append(w *Write, nowMs int64) (base int64, err error) {
	entries, txn := w.Entries, w.Txn
	rules := &sh.partition.Topic.Settings().Rules
	spec := batch.NewSpec()
	spec.Codec = rules.Compression.Codec(sh.rt.cfg.Codec)
	if rules.LogAppendTime {
		spec.LogAppendTimeMs = nowMs
	}
	if txn != nil {
		spec.ProducerID, spec.ProducerEpoch, spec.Transactional = txn.ID, txn.Epoch, true
		spec.BaseSequence = 0 // as Apache; nobody checks it
	}
	var b batch.Builder
	b.Begin(sh.scratch.buf[:0], spec)
	for i := range entries {
		b.Append(nowMs, entries[i].Key, entries[i].Value)
	}
	return sh.appendBatch(b.End(&sh.scratch.deflater), w.Guard)
}

// appendBatch appends a batch; guard may be nil. Its memory is used again.
func (sh *shard[S]) appendBatch(data []byte, guard *engine.Guard) (base int64, err error) {
	if cap(data) <= scratchKeep {
		sh.scratch.buf = data[:0]
	}
	c := &sh.rt.counts
	if len(data) > sh.batchMax() {
		return 0, fmt.Errorf("%w: %d bytes", ErrTooLarge, len(data))
	}
	e := &sh.scratch.entry[0]
	*e = engine.Entry{Data: data, Info: infoOf(data)}
	if guard != nil {
		e.Verify, e.Guard = true, *guard
	}
	sh.partition.Log.Append(sh.scratch.entry[:])
	e.Data = nil
	switch {
	case errors.Is(e.Err, engine.ErrTooLarge):
		return 0, fmt.Errorf("%w: %w", ErrTooLarge, e.Err)
	case e.Err != nil && sh.partition.Log.Err() == nil:
		return 0, fmt.Errorf("%w: %w", ErrNotAvailable, e.Err)
	case e.Err != nil:
		return 0, fmt.Errorf("%w: %w", ErrNotOwned, e.Err)
	}
	c.batches.Add(1)
	c.records.Add(int64(e.Info.Count))
	c.bytes.Add(int64(len(data)))
	return e.BaseOffset, nil
}

// infoOf is what the engine wants to know of a batch that was made here.
func infoOf(b []byte) engine.BatchInfo {
	i := batch.InfoOf(batch.View(b))
	return engine.BatchInfo{Size: int(i.Size), LastOffsetDelta: i.LastOffsetDelta, BaseTimestamp: i.BaseTimestamp, MaxTimestamp: i.MaxTimestamp,
		ProducerID: i.ProducerID, ProducerEpoch: i.ProducerEpoch, BaseSequence: i.BaseSequence, Count: i.Count,
		Transactional: i.Transactional, Control: batch.View(b).IsControl(), Internal: true, Compressed: i.Codec != batch.CodecNone}
}

// await has dones answered when everything below end is durable; told if that is already done.
func (sh *shard[S]) await(end int64, dones []done) (told bool) {
	w := sh.spare
	if sh.spare = nil; w == nil {
		w = &commitWait{shard: sh}
	}
	durable, err := sh.partition.Log.AwaitDurable(end, w)
	switch {
	case err != nil:
		w.err = err
		w.over.Store(true)
	case durable:
		if len(sh.pending) == 0 {
			sh.spare = w
			tell(dones, nil)
			return true
		}
		w.over.Store(true)
	}
	w.dones = dones
	sh.pending = append(sh.pending, w)
	return false
}

// marker is the end of a producer's transaction, to be written.
type marker struct {
	producer         Producer
	commit           bool
	coordinatorEpoch int32
	done             func(error)
}

// endTxn writes a marker and has it applied.
func (sh *shard[S]) endTxn(m *marker, now time.Time) {
	sh.flush(now)
	kind := batch.ControlAbort
	if m.commit {
		kind = batch.ControlCommit
	}
	base, err := sh.appendBatch(batch.AppendMarker(sh.scratch.buf[:0], batch.Marker{Type: kind, ProducerID: m.producer.ID,
		ProducerEpoch: m.producer.Epoch, CoordinatorEpoch: m.coordinatorEpoch, TimestampMs: now.UnixMilli(), LeaderEpoch: batch.NoLeaderEpoch}), nil)
	dones := []done{{m.done, true}}
	if err != nil {
		sh.refuseWrite(dones, err)
		return
	}
	sh.state.ReplayMarker(m.producer, m.commit, Position{Offset: base, Timestamp: now.UnixMilli()})
	sh.await(base+1, dones)
}

// refuseWrite answers after a failed append: those who wrote are told, the others wait on.
func (sh *shard[S]) refuseWrite(dones []done, err error) {
	sh.rt.counts.failed.Add(1)
	for _, d := range dones {
		switch {
		case !d.wrote:
			sh.answerAfter(d.f)
		case d.f != nil:
			d.f(err)
		}
	}
}
