package api

import (
	"time"

	"kaas/codec/api"
	"kaas/server/coordinator"
	"kaas/server/txn"
)

// InitProducerId, key 22, v0-v4. v2 flexible; v3 producer id and epoch to recover; v4 error 90 in place of 47.
//
// Without a transactional id: a producer id that was never given out before, over restarts either (regression 75). With one, its producer id
// with the next epoch; an open transaction is aborted first, and the answer is 51 meanwhile.
//
// Deviation: a producer id that cannot be made durable is answered with 56; Apache waits for its controller.

// initProducerID runs on a worker, as a block of producer ids may have to be reserved, and from there on the shard of the transactional id.
func initProducerID(c *call) {
	c = c.detach()
	q := new(api.InitProducerIdRequest)
	if !c.decode(q) {
		return
	}
	c.hold()
	c.s.engine.Go(func() {
		defer c.recoverPanic()
		id, err := c.s.nextProducerID()
		if err != nil {
			c.s.log.Error("cannot reserve producer ids; producers get error 56 until the catalog can be written", "error", err)
			c.answer(noProducerID(api.ErrKafkaStorageError))
			return
		}
		if !q.TransactionalId.Valid {
			c.answer(&api.InitProducerIdResponse{ProducerId: id})
			return
		}
		c.initTransactional(q, id)
	})
}

// noProducerID refuses.
func noProducerID(code api.ErrorCode) *api.InitProducerIdResponse {
	return &api.InitProducerIdResponse{ErrorCode: code, ProducerId: -1, ProducerEpoch: -1}
}

// initTransactional asks the shard of the transactional id. id is one for it to use if it needs one.
func (c *call) initTransactional(q *api.InitProducerIdRequest, id int64) {
	if q.TransactionalId.String == "" {
		c.s.producerIDs.giveBack(id)
		c.answer(noProducerID(api.ErrInvalidRequest))
		return
	}
	c.s.txns.Submit(q.TransactionalId.String, c.guardedTxn(func(s *txn.Shard, now time.Time) coordinator.Outcome {
		used := false
		out := s.InitProducerID(q, c.version(), func() (int64, api.ErrorCode) {
			used = true
			return id, api.ErrNone
		}, now, func(p *api.InitProducerIdResponse) { c.answer(p) })
		if !used {
			c.s.producerIDs.giveBack(id)
		}
		return out
	}), func(err error) {
		c.s.producerIDs.giveBack(id)
		c.answer(noProducerID(txn.Refusal(err)))
	})
}
