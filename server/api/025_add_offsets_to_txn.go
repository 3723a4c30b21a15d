package api

import (
	"time"

	"kaas/codec/api"
	"kaas/server/coordinator"
	"kaas/server/topics"
	"kaas/server/txn"
)

// AddOffsetsToTxn, key 25, v0-v3. v2 error 90 in place of 47; v3 flexible.
//
// The partition of __consumer_offsets that holds the group becomes part of the transaction. An empty group id is a group like any other here, as
// with Apache.
func addOffsetsToTxn(c *call) {
	if c.s.groups.ShardOf("") < 0 { // the topic has to be made first, which may block
		c.toWorker(func(c *call) {
			if err := c.s.topics.EnsureInternal(topics.OffsetsTopic); err != nil {
				c.answer(&api.AddOffsetsToTxnResponse{ErrorCode: api.ErrCoordinatorNotAvailable})
				return
			}
			addOffsets(c, c.s.txns.Submit)
		})
		return
	}
	submit := c.conn.Data.(*connState).ls.txnRound.Submit
	c = c.detach()
	c.hold()
	addOffsets(c, submit)
}

// addOffsets asks the shard of the transactional id.
func addOffsets(c *call, submit func(id string, op txnOp, refused func(error))) {
	q := new(api.AddOffsetsToTxnRequest)
	if !c.decode(q) {
		return
	}
	offsets := txn.Partition{Topic: topics.OffsetsTopic, Index: c.s.groups.ShardOf(q.GroupId)}
	submit(q.TransactionalId, c.guardedTxn(func(s *txn.Shard, now time.Time) coordinator.Outcome {
		return s.AddOffsets(q, c.version(), offsets, now, func(p *api.AddOffsetsToTxnResponse) { c.answer(p) })
	}), func(err error) { c.answer(&api.AddOffsetsToTxnResponse{ErrorCode: txn.Refusal(err)}) })
}
