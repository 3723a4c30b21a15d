package txn

import (
	"fmt"
	"log/slog"
	"slices"
	"time"
	"unique"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/coordinator"
)

// Replay implements coordinator.State. Keys of unknown versions are of a later broker and are passed over.
func (s *Shard) Replay(e coordinator.Entry, at coordinator.Position) error {
	r := wire.NewReader(e.Key)
	switch version := r.Int16(); {
	case r.Failed():
		return fmt.Errorf("%w: a key of %d bytes", ErrRecord, len(e.Key))
	case version != keyVersion:
		return nil
	}
	k := &s.reads.key
	if err := read(e.Key, k); err != nil {
		return err
	}
	if e.Value == nil {
		s.drop(k.TransactionalId)
		return nil
	}
	v := &s.reads.value
	if err := read(e.Value, v); err != nil {
		return err
	}
	if st := Status(v.TransactionStatus); st < Empty || st >= Dead {
		return fmt.Errorf("%w: state %d", ErrRecord, st)
	}
	s.apply(k.TransactionalId, v, at)
	return nil
}

// apply makes a transactional id what its record says.
func (s *Shard) apply(id string, v *api.TransactionLogValue, at coordinator.Position) {
	t := s.txns[id]
	known := t != nil
	if !known {
		t = &txn{id: cloned(id)}
		s.txns[t.id] = t
	}
	st := Status(v.TransactionStatus)
	delete(s.rotated, t.id)
	last, asked := s.lastEpochs[t.id]
	switch {
	case st == Empty && asked:
		delete(s.lastEpochs, t.id)
		t.lastEpoch = last
		if known && t.producerID != v.ProducerId {
			s.rotated[t.id] = t.producerID
		}
	case !s.loaded || st == Empty || t.epoch != v.ProducerEpoch:
		t.lastEpoch = noEpoch
	}
	t.producerID, t.epoch, t.timeoutMs, t.status = v.ProducerId, v.ProducerEpoch, v.TransactionTimeoutMs, st
	t.updated, t.started = v.TransactionLastUpdateTimestampMs, v.TransactionStartTimestampMs
	if !st.isOpen() {
		s.close(t)
		return
	}
	o := t.open
	if o == nil {
		o = &open{}
		t.open = o
		s.began[t] = struct{}{}
	}
	if st == Ongoing || !s.loaded { // a decision that was made here has the partitions that are known
		o.partitions = partitionsOf(v)
	}
	if st == Ongoing && s.loaded {
		o.written++
	}
	if st.prepared() {
		o.decided, o.left = at.Offset, o.partitions
	}
}

// close forgets a transaction.
func (s *Shard) close(t *txn) {
	if t.open != nil {
		s.settle(t.open)
		t.open = nil
		delete(s.began, t)
	}
}

// drop forgets a transactional id.
func (s *Shard) drop(id string) {
	if t := s.txns[id]; t != nil {
		s.close(t)
		delete(s.txns, id)
		delete(s.rotated, id)
	}
}

// partitionsOf are the partitions of a record, in order.
func partitionsOf(v *api.TransactionLogValue) []Partition {
	n := 0
	for i := range v.TransactionPartitions {
		n += len(v.TransactionPartitions[i].PartitionIds)
	}
	all := make([]Partition, 0, n)
	for i := range v.TransactionPartitions {
		topic := unique.Make(v.TransactionPartitions[i].Topic).Value()
		for _, index := range v.TransactionPartitions[i].PartitionIds {
			all = append(all, Partition{topic, index})
		}
	}
	slices.SortFunc(all, byTopic)
	return slices.Compact(all)
}

// ReplayMarker implements coordinator.State. No transaction writes to the topic of transactions.
func (s *Shard) ReplayMarker(coordinator.Producer, bool, coordinator.Position) {}

// Loaded implements coordinator.State: decided transactions go on.
func (s *Shard) Loaded(now time.Time) {
	s.loaded = true
	again := s.sorted(func(t *txn) bool { return t.status.prepared() })
	if len(again) > 0 {
		// Not from here: who writes the markers could be done before the shard takes operations. And only these: what is decided until
		// then may not be durable when the alarm rings.
		opens := make([]*open, len(again))
		for i, t := range again {
			opens[i] = t.open
		}
		s.timers.After(0, func(time.Time) coordinator.Outcome {
			for i, t := range again {
				if t.open == opens[i] { // not completed by who was still at work for an earlier life of the shard
					s.handOut(t)
				}
			}
			return coordinator.Outcome{}
		})
	}
	if len(s.txns) > 0 {
		s.log.Info("transactional ids loaded", slog.Int("ids", len(s.txns)), slog.Int("open", len(s.began)), slog.Int("decided", len(again)))
	}
}

// sorted are the ids with an open transaction that are wanted, by name.
func (s *Shard) sorted(wanted func(*txn) bool) []*txn {
	var all []*txn
	for t := range s.began {
		if wanted(t) {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b *txn) int { return compareIDs(a.id, b.id) })
	return all
}

// Closed implements coordinator.State. Whoever waits for markers is told what is true: the decision is durable.
func (s *Shard) Closed(error) {
	s.closed = true
	for t := range s.began {
		s.settle(t.open)
	}
	clear(s.txns)
	clear(s.began)
	clear(s.rotated)
	clear(s.lastEpochs)
}
