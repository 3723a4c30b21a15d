package server

import (
	"errors"
	"sync"

	"kaas/codec/batch"
	"kaas/engine"
)

// batchFormat tells the engine what it needs to know of a batch (design, Seams 1).
type batchFormat struct{}

// inflateMax bounds what a compressed batch in the log may become when a look-up has to open it, in bytes.
const inflateMax = 1 << 30

var inflaters = sync.Pool{New: func() any { return batch.NewInflater(inflateMax) }}

// Next implements engine.Format.
func (batchFormat) Next(b []byte) (int, engine.BatchInfo, error) {
	v, err := batch.Next(b)
	if errors.Is(err, batch.ErrTorn) {
		return 0, engine.BatchInfo{}, engine.ErrShort
	}
	if err != nil {
		return 0, engine.BatchInfo{}, err
	}
	return v.Size(), infoOf(v), nil
}

// Peek implements engine.Format.
func (batchFormat) Peek(header []byte) (int, engine.BatchInfo, error) {
	v, err := batch.PeekHeader(header)
	if err != nil {
		return 0, engine.BatchInfo{}, err
	}
	return v.Size(), infoOf(v), nil
}

// infoOf reads the facts of a batch from its header.
func infoOf(v batch.View) engine.BatchInfo {
	return engine.BatchInfo{
		BaseOffset: v.BaseOffset(), Size: v.Size(), LastOffsetDelta: v.LastOffsetDelta(), LeaderEpoch: v.PartitionLeaderEpoch(),
		BaseTimestamp: v.BaseTimestamp(), MaxTimestamp: v.MaxTimestamp(),
		ProducerID: v.ProducerID(), ProducerEpoch: v.ProducerEpoch(), BaseSequence: v.BaseSequence(), Count: v.Count(),
		Transactional: v.IsTransactional(), Control: v.IsControl(), Compressed: v.Codec() != batch.CodecNone, LogAppendTime: v.IsLogAppendTime(),
		DeleteHorizon: v.HasDeleteHorizon(),
	}
}

// Stamp implements engine.Format.
func (batchFormat) Stamp(b []byte, baseOffset int64, leaderEpoch int32) {
	v := batch.View(b)
	v.SetBaseOffset(baseOffset)
	v.SetPartitionLeaderEpoch(leaderEpoch)
}

// FirstAtOrAfter implements engine.Format.
func (batchFormat) FirstAtOrAfter(b []byte, ts, from int64) (offset, timestamp int64, found bool, err error) {
	inf := inflaters.Get().(*batch.Inflater)
	defer inflaters.Put(inf)
	return batch.FirstAtOrAfter(batch.View(b), inf, ts, from)
}

// ControlType implements engine.Format.
func (batchFormat) ControlType(b []byte) (commit bool, coordinatorEpoch int32, ok bool) {
	m, ok := batch.ReadMarker(batch.View(b))
	return ok && m.Type == batch.ControlCommit, m.CoordinatorEpoch, ok
}

// compactions are what rebuilding batches needs besides: they keep their buffers.
var compactions = sync.Pool{New: func() any { return new(batch.Deflater) }}

// Keys implements engine.RecordFormat.
func (batchFormat) Keys(b []byte, f func(offset int64, key []byte, tombstone bool) bool) error {
	inf := inflaters.Get().(*batch.Inflater)
	defer inflaters.Put(inf)
	var c batch.Cursor
	if err := c.Open(batch.View(b), inf); err != nil {
		return err
	}
	for c.Next() {
		if !f(c.Offset(), c.Key(), c.Value() == nil) {
			return nil
		}
	}
	return c.Err()
}

// Rebuild implements engine.RecordFormat.
func (batchFormat) Rebuild(dst, b []byte, keep func(index int32) bool, horizonMs int64) ([]byte, error) {
	inf, def := inflaters.Get().(*batch.Inflater), compactions.Get().(*batch.Deflater)
	defer inflaters.Put(inf)
	defer compactions.Put(def)
	dst, _, err := batch.Rebuild(dst, batch.View(b), batch.Retention{Keep: keep, DeleteHorizonMs: horizonMs}, inf, def)
	return dst, err
}

// BatchFormat is what the engine needs to know of batches, for tools that open its directories without a broker.
func BatchFormat() engine.Format { return batchFormat{} }
