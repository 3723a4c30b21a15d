package api

import (
	"time"

	"kaas/codec/api"
	"kaas/server/coordinator"
	"kaas/server/txn"
)

// EndTxn, key 26, v0-v3. v2 error 90 in place of 47; v3 flexible.
//
// Deviation: Apache answers when the decision is durable, and 51 to a producer that begins its next transaction before the markers are
// written; here the answer waits for the markers for a while.
var endTxn = txnCall(func(q *api.EndTxnRequest) string { return q.TransactionalId },
	func(c *call, s *txn.Shard, q *api.EndTxnRequest, now time.Time, reply func(*api.EndTxnResponse)) coordinator.Outcome {
		return s.EndTxn(q, c.version(), now, reply)
	}, func(_ *call, _ *api.EndTxnRequest, code api.ErrorCode) *api.EndTxnResponse {
		return &api.EndTxnResponse{ErrorCode: code}
	})
