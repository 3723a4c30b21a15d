package api

import (
	"time"

	"kaas/codec/api"
	"kaas/server/coordinator"
	"kaas/server/txn"
)

// DescribeTransactions, key 65, v0.
//
// An id that is named twice is answered once.

// serveDescribeTransactions asks the shard of each id.
func serveDescribeTransactions(c *call) {
	c = c.detach()
	q, p := new(api.DescribeTransactionsRequest), new(api.DescribeTransactionsResponse)
	if !c.decode(q) {
		return
	}
	c.hold()
	ids := distinct(q.TransactionalIds)
	p.TransactionStates = make([]api.DescribeTransactionsResponseTransactionState, len(ids))
	all := c.parts(len(ids), func() { c.answer(p) })
	for i, id := range ids {
		out := &p.TransactionStates[i]
		refused := func(err error) {
			out.Default()
			out.TransactionalId, out.ErrorCode = id, txn.Refusal(err)
			all.done()
		}
		c.onTxnShard(id, c.guardedTxn(func(s *txn.Shard, _ time.Time) coordinator.Outcome {
			*out = s.Describe(id)
			return coordinator.Outcome{Done: func(err error) {
				if err != nil {
					refused(err)
					return
				}
				all.done()
			}}
		}), refused)
	}
}
