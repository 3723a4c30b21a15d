package engine

import (
	"cmp"
	"slices"

	"kaas/engine/producer"
)

// ProducerState is what a log knows of one producer.
type ProducerState struct {
	ID               int64
	Epoch            int16
	LastSequence     int32 // of the last batch in this epoch, -1
	LastTimestamp    int64 // of the last batch or marker, as stored in it; ms
	CoordinatorEpoch int32 // of the last marker, -1
	TxnFirst         int64 // first offset of the open transaction, -1
}

// Producers lists the producers that the log knows, by id; none while the log is not loaded. It waits for appends to the page cache.
func (l *Log) Producers() []ProducerState {
	l.mu.Lock()
	var all []ProducerState
	if l.st != nil {
		all = make([]ProducerState, 0, l.st.producers.Len())
		l.st.producers.Each(func(id int64, e *producer.Entry, last *producer.Batch) {
			s := ProducerState{ID: id, Epoch: e.Epoch, LastSequence: -1, LastTimestamp: e.LastTimestamp, CoordinatorEpoch: e.CoordinatorEpoch, TxnFirst: e.TxnFirst}
			if last != nil {
				s.LastSequence = last.LastSequence
			}
			all = append(all, s)
		})
	}
	l.mu.Unlock()
	slices.SortFunc(all, func(a, b ProducerState) int { return cmp.Compare(a.ID, b.ID) })
	return all
}
