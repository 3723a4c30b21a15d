package compact

import (
	"cmp"
	"slices"

	"kaas/engine/segment"
)

// txns follows transactions while batches are read in offset order, to tell which batches may go. The answers are those of Kafka's
// CleanedTransactionMetadata.
type txns struct {
	format    segment.Format
	committed map[int64]bool          // producers with data of a transaction that will be committed, or is not aborted
	aborted   map[int64]*abortedState // by producer
	pending   []segment.AbortedTxn    // not yet reached, by first offset
	// ended, if set, is told about an aborted transaction of which something was there still.
	ended func(segment.AbortedTxn)
}

type abortedState struct {
	txn      segment.AbortedTxn
	observed bool // a batch of it was read
}

func newTxns(f segment.Format) *txns {
	return &txns{format: f, committed: map[int64]bool{}, aborted: map[int64]*abortedState{}}
}

// add announces aborted transactions; one may be announced again while it has not ended.
func (t *txns) add(list []segment.AbortedTxn) {
	t.pending = append(t.pending, list...)
	slices.SortStableFunc(t.pending, func(a, b segment.AbortedTxn) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
}

// consume begins the aborted transactions with a first offset up to offset. One that is over before from, the batch now read,
// was announced again for a later segment.
func (t *txns) consume(from, offset int64) {
	n := 0
	for n < len(t.pending) && t.pending[n].FirstOffset <= offset {
		a := t.pending[n]
		n++
		if a.LastOffset >= from && t.aborted[a.ProducerID] == nil {
			t.aborted[a.ProducerID] = &abortedState{txn: a}
		}
	}
	t.pending = t.pending[n:]
}

// read takes the next batch into account and reports whether all of its records may go: data of an aborted transaction, or a
// marker of which no data is left.
func (t *txns) read(info *segment.BatchInfo, data []byte) bool {
	t.consume(info.BaseOffset, info.LastOffset())
	switch {
	case info.Control:
		return t.marker(info, data)
	case !info.Transactional:
		return false
	}
	if a := t.aborted[info.ProducerID]; a != nil {
		if info.BaseOffset < a.txn.LastOffset {
			a.observed = true
			return true
		}
		delete(t.aborted, info.ProducerID) // its marker is missing; what comes after it must not suffer
	}
	t.committed[info.ProducerID] = true
	return false
}

func (t *txns) marker(info *segment.BatchInfo, data []byte) bool {
	if info.Count == 0 {
		return true // cleaned before
	}
	commit, _, ok := t.format.ControlType(data)
	switch {
	case !ok:
		return false
	case commit:
		had := t.committed[info.ProducerID]
		delete(t.committed, info.ProducerID)
		return !had
	}
	a := t.aborted[info.ProducerID]
	delete(t.aborted, info.ProducerID)
	if a == nil || !a.observed {
		return true
	}
	if t.ended != nil {
		t.ended(a.txn)
	}
	return false
}
