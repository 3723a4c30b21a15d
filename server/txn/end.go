package txn

import (
	"math"
	"time"

	"kaas/codec/api"
	"kaas/server/coordinator"
)

// completeAgainAfter is when the record of a completion that could not be written is tried again.
const completeAgainAfter = 100 * time.Millisecond

// EndTxn serves EndTxn, key 26. The decision is durable before its markers are handed out, and before any answer. The answer waits a little
// longer, until the markers are there (or Config.AnswerWithin is over), so that the producer's next transaction can begin at once: Apache
// answers first, and then 51 to whoever is too fast.
func (s *Shard) EndTxn(q *api.EndTxnRequest, version int16, now time.Time, reply func(*api.EndTxnResponse)) coordinator.Outcome {
	tell := func(code api.ErrorCode) {
		reply(&api.EndTxnResponse{ErrorCode: ForVersion(api.KeyEndTxn, version, code)})
	}
	t, code := s.find(q.TransactionalId, coordinator.Producer{ID: q.ProducerId, Epoch: q.ProducerEpoch})
	if code != api.ErrNone {
		return answer(code, tell)
	}
	switch {
	case t.status == Ongoing:
	case t.status.prepared():
		return answer(api.ErrConcurrentTransactions, tell)
	case t.status == CompleteCommit && q.Committed, t.status == CompleteAbort && !q.Committed:
		return answer(api.ErrNone, tell)
	default:
		return answer(api.ErrInvalidTxnState, tell)
	}
	return s.decide([]*txn{t}, decision(q.Committed), false, now, func(err error) {
		switch {
		case err != nil:
			tell(Refusal(err))
		case t.open.marked:
			tell(api.ErrNone)
		default:
			s.await(t, tell)
		}
	})
}

// decide writes what becomes of open transactions; done is told when that is durable and their markers are handed out. fence takes the
// epoch from the producer.
func (s *Shard) decide(ts []*txn, to Status, fence bool, now time.Time, done func(error)) coordinator.Outcome {
	entries := make([]coordinator.Entry, len(ts))
	for i, t := range ts {
		next := *t
		if next.status = to; fence && next.epoch < math.MaxInt16 {
			next.epoch++
		}
		entries[i] = s.record(&next, now, t.open.partitions)
	}
	return write(func(err error) {
		if err == nil {
			for _, t := range ts {
				s.handOut(t)
			}
		}
		done(err)
	}, entries...)
}

// await parks the answer to EndTxn.
func (s *Shard) await(t *txn, reply func(api.ErrorCode)) {
	o := t.open
	o.reply = reply
	o.timer = s.timers.After(s.cfg.AnswerWithin, func(time.Time) coordinator.Outcome {
		o.timer = 0
		s.settle(o)
		return coordinator.Outcome{}
	})
}

// settle answers EndTxn, if it waits.
func (s *Shard) settle(o *open) {
	if o.timer != 0 {
		s.timers.Stop(o.timer)
		o.timer = 0
	}
	if reply := o.reply; reply != nil {
		o.reply = nil
		reply(api.ErrNone)
	}
}

// handOut has the markers of a decided transaction written.
func (s *Shard) handOut(t *txn) {
	o := t.open
	if len(o.left) == 0 {
		s.timers.After(0, func(now time.Time) coordinator.Outcome { return s.complete(t, o, now) })
		return
	}
	o.marked = s.cfg.Markers(MarkerWork{ID: t.id, Decision: o.decided, Producer: coordinator.Producer{ID: t.producerID, Epoch: t.epoch},
		CoordinatorEpoch: s.epoch, Commit: t.status == PrepareCommit, Partitions: o.left})
}

// MarkersWritten is told which partitions have the marker of a decided transaction durably, or are no more. After the last of them the
// transaction is complete. What is told of another decision, or a second time, changes nothing. partitions is not kept.
func (s *Shard) MarkersWritten(id string, decision int64, partitions []Partition, now time.Time) coordinator.Outcome {
	t := s.txns[id]
	if t == nil || !t.status.prepared() || t.open.decided != decision {
		return coordinator.Outcome{}
	}
	o := t.open
	if o.left = without(o.left, partitions); len(o.left) > 0 {
		return coordinator.Outcome{}
	}
	return s.complete(t, o, now)
}

// complete writes that a transaction has all its markers. EndTxn is answered here: what comes after sees the record.
func (s *Shard) complete(t *txn, o *open, now time.Time) coordinator.Outcome {
	if t.open != o || o.completing {
		return coordinator.Outcome{}
	}
	o.completing = true
	next := *t
	if next.status = CompleteAbort; t.status == PrepareCommit {
		next.status = CompleteCommit
	}
	s.settle(o)
	return write(func(err error) {
		if err == nil || s.closed {
			return
		}
		o.completing = false
		s.timers.After(completeAgainAfter, func(now time.Time) coordinator.Outcome { return s.complete(t, o, now) })
	}, s.record(&next, now, nil))
}
