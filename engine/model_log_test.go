package engine

import (
	"fmt"
	"slices"

	"kaas/engine/producer"
)

// mlog is what the model knows of one log, from its creation on. The bounds say what a crash now may leave.
type mlog struct {
	slot    int32
	id      [16]byte
	cfg     *LogConfig
	dirty   bool     // in the journal, before the close that a check looks at
	lost    bool     // under PageCache the log start was above all data that was left: the model does not know what is gone
	exists  bool     // in the catalog, which is somebody else's and always right
	batches []mbatch // all that was ever appended or is being appended, in offset order, save for what was found lost

	durable         int64 // below it everything survives a power cut
	written         int64 // below it everything survives a kill
	start, startMax int64 // the log start is at least, at most
	frozen          int64 // high watermark when a storage error took the log offline in this life, -1
}

// mbatch is a batch as it is stored.
type mbatch struct {
	data []byte
	info BatchInfo
}

func (m *mlog) clone() *mlog {
	c := *m
	c.batches = slices.Clone(m.batches)
	return &c
}

func (m *mlog) name() string { return fmt.Sprint("t-", m.slot) }

// end is the log end if nothing is lost.
func (m *mlog) end() int64 {
	if n := len(m.batches); n > 0 {
		return m.batches[n-1].info.LastOffset() + 1
	}
	return 0
}

// upTo returns the batches below end, and whether end is a border between batches.
func (m *mlog) upTo(end int64) ([]mbatch, bool) {
	i := 0
	for i < len(m.batches) && m.batches[i].info.LastOffset() < end {
		i++
	}
	return m.batches[:i], i == len(m.batches) || m.batches[i].info.BaseOffset >= end
}

// want is what a log with these batches and bounds holds, worked out in the plainest way from all batches since its creation.
// Compaction, once there is any, changes here what records of below the dirty point must be: nothing else asks.
type want struct {
	start, end int64
	batches    []mbatch // those that are not below start, whole
	lso        int64
	producers  map[int64]mproducer
	aborted    []AbortedTxn // those that reach to start or above it
	epochs     []epochStart // of batches that are not below start, where each begins
}

// mproducer is the state of a producer as far as a restart keeps it.
type mproducer struct {
	epoch     int16
	txnFirst  int64
	timestamp int64
	last      producer.Batch // zero when there is none of this epoch
}

func (p mproducer) String() string {
	return fmt.Sprintf("epoch %d, transaction %d, timestamp %d, last %+v", p.epoch, p.txnFirst, p.timestamp, p.last)
}

func wanted(batches []mbatch, start, end int64) want {
	w := want{start: start, end: end, producers: map[int64]mproducer{}}
	for _, b := range batches {
		if b.info.LastOffset() >= start {
			w.batches = append(w.batches, b)
			if n := len(w.epochs); n == 0 || w.epochs[n-1].epoch != b.info.LeaderEpoch {
				w.epochs = append(w.epochs, epochStart{b.info.LeaderEpoch, max(start, b.info.BaseOffset)})
			}
		}
		w.produce(b, start)
	}
	w.lso = max(start, w.firstOpen(end))
	return w
}

// firstOpen is the first offset of the open transactions, or none.
func (w *want) firstOpen(none int64) int64 {
	for _, p := range w.producers {
		if p.txnFirst >= 0 {
			none = min(none, p.txnFirst)
		}
	}
	return none
}

func (w *want) produce(b mbatch, start int64) {
	i := &b.info
	if i.ProducerID < 0 {
		return
	}
	p, ok := w.producers[i.ProducerID]
	if !ok {
		p = mproducer{epoch: i.ProducerEpoch, txnFirst: -1}
	}
	if p.epoch != i.ProducerEpoch {
		p.epoch, p.last = i.ProducerEpoch, producer.Batch{}
	}
	p.timestamp = i.MaxTimestamp
	if !i.Control {
		p.last = producer.Batch{LastSequence: i.BaseSequence + i.LastOffsetDelta, Delta: i.LastOffsetDelta, LastOffset: i.LastOffset(), Timestamp: i.MaxTimestamp}
		if i.Transactional && p.txnFirst < 0 {
			p.txnFirst = i.BaseOffset
		}
		w.producers[i.ProducerID] = p
		return
	}
	first := p.txnFirst
	p.txnFirst = -1
	w.producers[i.ProducerID] = p
	if commit, _, _ := (testFormat{}).ControlType(b.data); first < 0 || commit {
		return
	}
	if a := (AbortedTxn{ProducerID: i.ProducerID, FirstOffset: first, LastOffset: i.BaseOffset, LastStable: w.firstOpen(i.BaseOffset + 1)}); a.LastOffset >= start {
		w.aborted = append(w.aborted, a)
	}
}

// at is the batch that contains offset, or the first after it.
func (w *want) at(offset int64) *mbatch {
	for i := range w.batches {
		if w.batches[i].info.LastOffset() >= offset {
			return &w.batches[i]
		}
	}
	return nil
}

// forTime is the first record with timestamp ts or later; testFormat says what timestamps records have.
func (w *want) forTime(ts int64) (offset, timestamp int64, found bool) {
	for _, b := range w.batches {
		if offset, timestamp, found, _ = (testFormat{}).FirstAtOrAfter(b.data, ts, w.start); found {
			return offset, timestamp, true
		}
	}
	return 0, 0, false
}

// model is all logs. Its copies share nothing that changes.
type model struct{ logs []*mlog }

func (m *model) clone() *model {
	c := &model{}
	for _, l := range m.logs {
		c.logs = append(c.logs, l.clone())
	}
	return c
}

// found says that a log was found like this by a start, which made it durable.
func (m *mlog) found(o Offsets) {
	m.batches, _ = m.upTo(o.LogEnd)
	m.batches = slices.Clone(m.batches)
	m.durable, m.written, m.start, m.startMax, m.frozen = o.LogEnd, o.LogEnd, o.LogStart, o.LogStart, -1
}
