package api

import "kaas/codec/api"

// InitProducerId, key 22, v0-v4. v2 flexible; v3 producer id and epoch to recover; v4 error 90 in place of 47.
//
// Without a transactional id: a producer id that was never given out before, over restarts either (regression 75).
//
// Deviation: transactions are not served yet, so a request with a transactional id is answered with 15, which clients take as "come
// again".
func initProducerID(c *call, q *api.InitProducerIdRequest, p *api.InitProducerIdResponse) {
	p.ProducerEpoch = -1
	if q.TransactionalId.Valid {
		p.ErrorCode = api.ErrCoordinatorNotAvailable
		if q.TransactionalId.String == "" {
			p.ErrorCode = api.ErrInvalidRequest
		}
		return
	}
	id, err := c.s.nextProducerID()
	if err != nil {
		c.s.log.Error("cannot reserve producer ids; producers get error 56 until the catalog can be written", "error", err)
		p.ErrorCode = api.ErrKafkaStorageError
		return
	}
	p.ProducerId, p.ProducerEpoch = id, 0
}
