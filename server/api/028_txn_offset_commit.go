package api

import (
	"slices"
	"time"

	"kaas/codec/api"
	"kaas/engine"
	"kaas/server/coordinator"
	"kaas/server/group"
	"kaas/server/topics"
	"kaas/server/txn"
)

// TxnOffsetCommit, key 28, v0-v3. v2 leader epoch; v3 flexible, and the member and its generation, which are checked (KIP-447).
//
// The offsets count from the marker of the transaction on. That it includes the group is verified with its coordinator (48), as for Produce.

type (
	txnCommitTopic     = api.TxnOffsetCommitRequestTxnOffsetCommitRequestTopic
	txnCommitPartition = api.TxnOffsetCommitRequestTxnOffsetCommitRequestPartition
)

// txnOffsetCommit asks the coordinator of the transaction, and then the shard of the group.
func txnOffsetCommit(c *call) {
	ls := c.conn.Data.(*connState).ls
	c = c.detach()
	q := new(api.TxnOffsetCommitRequest)
	if !c.decode(q) {
		return
	}
	c.hold()
	q.Topics = mergeTxnCommits(q.Topics)
	part := c.offsetsPartition(q.GroupId)
	switch {
	case !c.s.verifyTxns.Load() || q.GroupId == "" || !c.anyKnown(q.Topics):
		c.commitInTxn(q, nil)
	case part == nil:
		c.answer(refusedTxnCommit(c, q, api.ErrNotCoordinator))
	case part.Log.Loaded():
		c.verifyOffsets(q, part, ls.txnRound.Submit)
	default:
		c.s.engine.Go(func() {
			defer c.recoverPanic()
			c.verifyOffsets(q, part, c.s.txns.Submit)
		})
	}
}

// offsetsPartition is the partition that holds a group; nil while the topic is not there.
func (c *call) offsetsPartition(group string) *topics.Partition {
	if t := c.s.topics.ByName(topics.OffsetsTopic); t != nil {
		return t.Partition(c.s.groups.ShardOf(group))
	}
	return nil
}

// anyKnown tells whether any of the partitions exists.
func (c *call) anyKnown(ts []txnCommitTopic) bool {
	for i := range ts {
		for j := range ts[i].Partitions {
			if t := c.s.topics.ByName(ts[i].Name); t != nil && t.Partition(ts[i].Partitions[j].PartitionIndex) != nil {
				return true
			}
		}
	}
	return false
}

// verifyOffsets asks whether the transaction includes the partition that holds the group, unless offsets of it are there already.
func (c *call) verifyOffsets(q *api.TxnOffsetCommitRequest, part *topics.Partition, submit func(id string, op txnOp, refused func(error))) {
	guard, err := part.Log.BeginVerify(q.ProducerId, q.ProducerEpoch, 0)
	if err != nil || guard == 0 { // of a log that failed the shard says what is wrong
		c.commitInTxn(q, &guard)
		return
	}
	told := func(code api.ErrorCode, each []api.ErrorCode) {
		switch {
		case code == api.ErrNone:
			code = each[0]
		case code == api.ErrProducerFenced:
			code = api.ErrInvalidProducerEpoch
		}
		if code != api.ErrNone {
			c.answer(refusedTxnCommit(c, q, code))
			return
		}
		c.commitInTxn(q, &guard)
	}
	a := question{producer: coordinator.Producer{ID: q.ProducerId, Epoch: q.ProducerEpoch}, parts: []txn.Partition{{Topic: topics.OffsetsTopic, Index: part.Index}}}
	submit(q.TransactionalId, c.guardedTxn(verifyOp(q.TransactionalId, a, told)), func(err error) { told(txn.Refusal(err), nil) })
}

// commitInTxn has the shard of the group write the offsets. guard, if verified, is for its log.
func (c *call) commitInTxn(q *api.TxnOffsetCommitRequest, guard *engine.Guard) {
	c.s.groups.Submit(q.GroupId, c.guarded(func(s *group.Shard, now time.Time) coordinator.Outcome {
		out := s.TxnCommit(q, now, func(p *api.TxnOffsetCommitResponse) {
			c.oldLoading(p)
			c.answer(p)
		})
		out.Write.Guard = guard
		return out
	}), func(err error) { c.answer(refusedTxnCommit(c, q, group.Refusal(api.KeyTxnOffsetCommit, err))) })
}

// oldLoading says 15 in place of 14 before v2: producers of that age crash otherwise (KAFKA-7296).
func (c *call) oldLoading(p *api.TxnOffsetCommitResponse) {
	for i := range p.Topics {
		for j := range p.Topics[i].Partitions {
			if code := &p.Topics[i].Partitions[j].ErrorCode; c.version() < 2 && *code == api.ErrCoordinatorLoadInProgress {
				*code = api.ErrCoordinatorNotAvailable
			}
		}
	}
}

// mergeTxnCommits makes of a request what Apache's map of partitions makes of it.
func mergeTxnCommits(ts []txnCommitTopic) []txnCommitTopic {
	out := mergeNamed(ts, func(t *txnCommitTopic) string { return t.Name }, func(into, t *txnCommitTopic) { into.Partitions = append(into.Partitions, t.Partitions...) })
	for i := range out {
		out[i].Partitions = lastOfEach(out[i].Partitions, func(p *txnCommitPartition) int32 { return p.PartitionIndex })
	}
	return slices.DeleteFunc(out, func(t txnCommitTopic) bool { return len(t.Partitions) == 0 })
}

// refusedTxnCommit answers every partition with the same code, but those that do not exist: they are looked for first.
func refusedTxnCommit(c *call, q *api.TxnOffsetCommitRequest, code api.ErrorCode) *api.TxnOffsetCommitResponse {
	p := new(api.TxnOffsetCommitResponse)
	for i := range q.Topics {
		t := api.Next(&p.Topics)
		t.Name = q.Topics[i].Name
		topic := c.s.topics.ByName(t.Name)
		for j := range q.Topics[i].Partitions {
			out := api.Next(&t.Partitions)
			if out.PartitionIndex, out.ErrorCode = q.Topics[i].Partitions[j].PartitionIndex, code; topic == nil || topic.Partition(out.PartitionIndex) == nil {
				out.ErrorCode = api.ErrUnknownTopicOrPartition
			}
		}
	}
	c.oldLoading(p)
	return p
}
