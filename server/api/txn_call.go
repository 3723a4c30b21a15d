package api

import (
	"time"

	"kaas/codec/api"
	"kaas/server/coordinator"
	"kaas/server/txn"
)

// Requests about transactions go to the shard that holds the transactional id, as those about groups do to theirs (shard_call.go): what one
// event loop has of them in one round is run at the end of the round.

// txnOp is an operation on a shard of the transaction coordinator.
type txnOp = coordinator.Op[*txn.Shard]

// txnCall makes a handler for an API that is about one transactional id. serve runs on the shard and hands reply to it; refused makes the
// answer when it was not run. The connection is held until the answer: whatever a producer sends next is to find the transaction as
// this request leaves it.
func txnCall[Q, P any, PQ message[Q], PP message[P]](id func(q PQ) string,
	serve func(c *call, s *txn.Shard, q PQ, now time.Time, reply func(PP)) coordinator.Outcome,
	refused func(c *call, q PQ, code api.ErrorCode) PP) func(*call) {
	type request struct { // one piece of memory
		call
		q Q
	}
	return func(on *call) {
		r := new(request)
		c, q := &r.call, PQ(&r.q)
		if on.detachTo(c); !c.decode(q) {
			return
		}
		c.hold()
		c.onTxnShard(id(q), func(s *txn.Shard, now time.Time) (out coordinator.Outcome) {
			defer c.guard(&out)
			c.bill.begin()
			defer c.bill.end()
			return serve(c, s, q, now, func(p PP) { c.answer(p) })
		}, func(err error) { c.answer(refused(c, q, txn.Refusal(err))) })
	}
}

// hold keeps the connection from going on before the answer. It is called on the loop.
func (c *call) hold() {
	c.conn.Hold()
	c.held = true
}

// guardedTxn is op with its panic at the cost of the connection (regression 11).
func (c *call) guardedTxn(op txnOp) txnOp {
	return func(s *txn.Shard, now time.Time) (out coordinator.Outcome) {
		defer c.guard(&out)
		defer c.bill.charge(c.bill.clock())
		return op(s, now)
	}
}

// onTxnShard gives an operation to the shard of a transactional id. It is called on the loop. op has to be guarded.
func (c *call) onTxnShard(id string, op txnOp, refused func(error)) {
	c.conn.Data.(*connState).ls.txnRound.Submit(id, op, refused)
}
