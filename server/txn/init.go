package txn

import (
	"math"
	"time"

	"kaas/codec/api"
	"kaas/server/coordinator"
)

// exhausted says that an epoch cannot be raised any more by InitProducerId; one more is left for an abort.
func exhausted(epoch int16) bool { return epoch >= math.MaxInt16-1 }

// InitProducerID serves InitProducerId, key 22, with a transactional id. A producer that names its id and epoch recovers (KIP-360). fresh gives
// a producer id that nobody has had, or the code to answer; it is called if one is needed, and must not block.
//
// An open transaction is aborted first: 51 when that is decided; the abort takes an epoch of its own.
func (s *Shard) InitProducerID(q *api.InitProducerIdRequest, version int16, fresh func() (int64, api.ErrorCode), now time.Time,
	reply func(*api.InitProducerIdResponse)) coordinator.Outcome {
	refuse := func(code api.ErrorCode) {
		reply(&api.InitProducerIdResponse{ErrorCode: ForVersion(api.KeyInitProducerId, version, code), ProducerId: noProducer, ProducerEpoch: noEpoch})
	}
	id := q.TransactionalId.String
	if id == "" || (q.ProducerId == noProducer) != (q.ProducerEpoch == noEpoch) {
		return answer(api.ErrInvalidRequest, refuse)
	}
	if q.TransactionTimeoutMs <= 0 || int64(q.TransactionTimeoutMs) > s.cfg.MaxTimeout.Milliseconds() {
		return answer(api.ErrInvalidTransactionTimeout, refuse)
	}
	t := s.txns[id]
	if t != nil && t.status == Ongoing && s.mayInit(t, q) {
		return s.decide([]*txn{t}, PrepareAbort, true, now, func(err error) {
			if err != nil {
				refuse(Refusal(err))
				return
			}
			refuse(api.ErrConcurrentTransactions)
		})
	}
	next, code := s.initialized(t, q, fresh)
	if code != api.ErrNone {
		return answer(code, refuse)
	}
	s.lastEpochs[next.id] = next.lastEpoch // for Replay
	return write(func(err error) {
		if err != nil {
			delete(s.lastEpochs, next.id)
			refuse(Refusal(err))
			return
		}
		reply(&api.InitProducerIdResponse{ProducerId: next.producerID, ProducerEpoch: next.epoch})
	}, s.record(&next, now, nil))
}

// mayInit says whether the producer id that a recovering producer names is that of the transactional id, or was before its epochs were used up.
func (s *Shard) mayInit(t *txn, q *api.InitProducerIdRequest) bool {
	if q.ProducerId == noProducer || q.ProducerId == t.producerID {
		return true
	}
	before, changed := s.rotated[t.id]
	return changed && q.ProducerId == before && exhausted(q.ProducerEpoch)
}

// initialized is what InitProducerId makes of a transactional id without an open transaction. t is nil for a new one.
func (s *Shard) initialized(t *txn, q *api.InitProducerIdRequest, fresh func() (int64, api.ErrorCode)) (next txn, code api.ErrorCode) {
	expected := q.ProducerEpoch
	switch {
	case t == nil:
		next = txn{id: cloned(q.TransactionalId.String), lastEpoch: noEpoch}
		next.producerID, code = fresh()
	case t.status.prepared():
		return next, api.ErrConcurrentTransactions
	case !s.mayInit(t, q):
		return next, api.ErrProducerFenced
	case exhausted(t.epoch) && (expected == noEpoch || expected == t.epoch):
		next = *t
		next.epoch, next.lastEpoch = 0, expected
		next.producerID, code = fresh()
	case exhausted(t.epoch):
		return next, api.ErrUnknownServerError // Apache fails with an IllegalStateException
	case expected == noEpoch || expected == t.epoch:
		next = *t
		next.epoch, next.lastEpoch = t.epoch+1, expected
	case expected == t.lastEpoch: // its answer was lost
		next = *t
	default:
		return next, api.ErrProducerFenced
	}
	next.status, next.started, next.timeoutMs = Empty, -1, q.TransactionTimeoutMs
	return next, code
}
