package txn

import (
	"time"

	"kaas/codec/api"
	"kaas/server/coordinator"
)

// AddPartitions adds partitions to the transaction of a producer, and begins it: all of them or none, once durable. It is one transaction of
// AddPartitionsToTxn, key 24, and AddOffsets uses it. Codes: 42 for an empty id, 49, 90, and 51 while the transaction before is
// being completed. Whether partitions exist and may be written is the caller's business. A producer that adds what is there already
// is answered without a record.
func (s *Shard) AddPartitions(id string, p coordinator.Producer, topics []api.AddPartitionsToTxnRequestAddPartitionsToTxnTopic,
	now time.Time, reply func(api.ErrorCode)) coordinator.Outcome {
	t, code := s.find(id, p)
	if code != api.ErrNone {
		return answer(code, reply)
	}
	return s.add(t, inOrder(topics), now, reply)
}

func (s *Shard) add(t *txn, added []Partition, now time.Time, reply func(api.ErrorCode)) coordinator.Outcome {
	next := *t
	var before []Partition
	switch {
	case t.status.prepared():
		return answer(api.ErrConcurrentTransactions, reply)
	case t.status == Ongoing:
		if before = t.open.partitions; t.open.holds(added) {
			return answer(api.ErrNone, reply)
		}
	default:
		next.started = now.UnixMilli()
	}
	next.status = Ongoing
	return write(func(err error) {
		if err == nil {
			t.open.durable++
		}
		reply(Refusal(err))
	}, s.record(&next, now, union(before, added)))
}

// AddOffsets serves AddOffsetsToTxn, key 25: the partition of __consumer_offsets that holds the group becomes part of the transaction.
func (s *Shard) AddOffsets(q *api.AddOffsetsToTxnRequest, version int16, offsets Partition, now time.Time,
	reply func(*api.AddOffsetsToTxnResponse)) coordinator.Outcome {
	tell := func(code api.ErrorCode) {
		reply(&api.AddOffsetsToTxnResponse{ErrorCode: ForVersion(api.KeyAddOffsetsToTxn, version, code)})
	}
	t, code := s.find(q.TransactionalId, coordinator.Producer{ID: q.ProducerId, Epoch: q.ProducerEpoch})
	if code != api.ErrNone {
		return answer(code, tell)
	}
	return s.add(t, []Partition{offsets}, now, tell)
}

// Verify tells whether partitions are in the open transaction of a producer, for who is about to append to them: Produce, TxnOffsetCommit, and
// AddPartitionsToTxn v4 with VerifyOnly. reply gets one code for all (42, 49, 90, 51), or none and one per partition, in their order: 0, or 48
// for those that were not added. It is answered at once unless the record that added them is still on its way to the disk.
func (s *Shard) Verify(id string, p coordinator.Producer, partitions []Partition, reply func(code api.ErrorCode, each []api.ErrorCode)) coordinator.Outcome {
	t, code := s.find(id, p)
	if code == api.ErrNone && t.status.prepared() {
		code = api.ErrConcurrentTransactions
	}
	var each []api.ErrorCode
	if code == api.ErrNone {
		each = make([]api.ErrorCode, len(partitions))
		for i, q := range partitions {
			if t.status != Ongoing || !has(t.open.partitions, q) {
				each[i] = api.ErrInvalidTxnState
			}
		}
		if t.status == Ongoing && t.open.written == t.open.durable {
			reply(code, each)
			return coordinator.Outcome{}
		}
	}
	return answer(code, func(now api.ErrorCode) {
		if now != api.ErrNone {
			each = nil
		}
		reply(now, each)
	})
}
