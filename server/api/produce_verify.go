package api

import (
	"time"

	"kaas/codec/api"
	"kaas/codec/batch"
	"kaas/codec/wire"
	"kaas/engine"
	"kaas/server/coordinator"
	"kaas/server/topics"
	"kaas/server/txn"
)

// Transactional data goes only into a transaction that the coordinator knows to include the partition (KIP-890, as of Kafka 3.7). While a producer's
// transaction is open in a log, its batches go the usual way. The first one of a transaction in a partition is held, its connection with it, until the
// coordinator has said yes; and the log refuses it if the transaction was ended meanwhile (engine.Guard). So a batch that comes
// late, after the marker of its transaction, never opens one that nobody ends.

// verifying is a partition of a request that the coordinator is asked about.
type verifying struct {
	topic, part int // indexes in the request
	guard       engine.Guard
	code        api.ErrorCode // what the coordinator says
}

// question is what the coordinator is asked.
type question struct {
	producer coordinator.Producer
	parts    []txn.Partition
}

// transactional calls f for the transactional batches of the request, in partitions that exist, until it says true.
func (op *produceOp) transactional(f func(p *topics.Partition, v batch.View, topic, part int) bool) bool {
	for i := range op.req.TopicData {
		t := &op.req.TopicData[i]
		topic := op.s.topics.ByName(t.Name)
		if topic == nil {
			continue
		}
		for j := range t.PartitionData {
			v, err := batch.PeekHeader(t.PartitionData[j].Records.Bytes)
			if err != nil || !v.IsTransactional() || !v.HasProducerID() {
				continue
			}
			if p := topic.Partition(t.PartitionData[j].Index); p != nil && f(p, v, i, j) {
				return true
			}
		}
	}
	return false
}

// verifies tells whether batches of this request are subject to verification.
func (op *produceOp) verifies() bool { return op.req.TransactionalId.Valid && op.s.verifyTxns.Load() }

// toVerify tells whether the coordinator has to be asked. Logs must be loaded.
func (op *produceOp) toVerify() bool {
	return op.verifies() && op.transactional(func(p *topics.Partition, v batch.View, _, _ int) bool {
		return !topics.IsInternal(p.Topic.Name) && !p.Log.TxnOpen(v.ProducerID())
	})
}

// verifyOnLoop asks the coordinator and goes on, on the loop, when it has answered.
func (op *produceOp) verifyOnLoop(cs *connState, body []byte) {
	op.decode(append([]byte(nil), body...)) // the same bytes: cannot fail
	op.conn.Hold()
	op.verify(cs.ls.txnRound.Submit, func() { op.conn.Loop().Post(&verifiedProduce{op}) })
}

// verifiedProduce goes on with a request that was verified.
type verifiedProduce struct{ op *produceOp }

// Run implements netio.Task.
func (t *verifiedProduce) Run() {
	op := t.op
	conn := op.conn
	defer func() {
		if v := recover(); v != nil { // regression 11
			conn.Close(op.s.panicked(op.s.handlers[api.KeyProduce].fact, op.head.Version, v))
		}
	}()
	defer conn.Resume()
	g := &conn.Data.(*connState).ls.gather
	g.add(op)
	g.flush()
}

// verify begins the verification of what needs one; then is called when it is over, on any goroutine.
func (op *produceOp) verify(submit func(id string, do txnOp, refused func(error)), then func()) {
	a := op.beginVerify()
	if len(a.parts) == 0 {
		then()
		return
	}
	told := func(code api.ErrorCode, each []api.ErrorCode) {
		for i := range op.verified {
			v := &op.verified[i]
			if v.code = code; code == api.ErrNone {
				v.code = each[i]
			}
		}
		then()
	}
	submit(op.req.TransactionalId.String, verifyOp(op.req.TransactionalId.String, a, told), func(err error) { told(txn.Refusal(err), nil) })
}

// verifyOp is the operation that asks.
func verifyOp(id string, a question, told func(code api.ErrorCode, each []api.ErrorCode)) txnOp {
	return func(s *txn.Shard, _ time.Time) coordinator.Outcome { return s.Verify(id, a.producer, a.parts, told) }
}

// beginVerify tells the logs, and lists whom to ask about. A log that fails says so when it is appended to.
func (op *produceOp) beginVerify() (a question) {
	op.transactional(func(p *topics.Partition, v batch.View, topic, part int) bool {
		guard, err := p.Log.BeginVerify(v.ProducerID(), v.ProducerEpoch(), v.BaseSequence())
		if err != nil || guard == 0 || topics.IsInternal(p.Topic.Name) {
			return false
		}
		if len(a.parts) == 0 {
			a.producer = coordinator.Producer{ID: v.ProducerID(), Epoch: v.ProducerEpoch()}
		}
		a.parts = append(a.parts, txn.Partition{Topic: p.Topic.Name, Index: p.Index})
		op.verified = append(op.verified, verifying{topic: topic, part: part, guard: guard})
		return false
	})
	return a
}

// admitTxn decides on a transactional batch by what the coordinator said; guard is for its append.
func (op *produceOp) admitTxn(i, j int, p *api.ProduceResponsePartitionProduceResponse) (guard engine.Guard, code api.ErrorCode) {
	for k := range op.verified {
		v := &op.verified[k]
		if v.topic != i || v.part != j {
			continue
		}
		code := unverified(v.code)
		switch code {
		case api.ErrInvalidTxnState:
			p.ErrorMessage = wire.Some("Partition was not added to the transaction")
		case api.ErrNotEnoughReplicas:
			p.ErrorMessage = wire.Some("Unable to verify the partition has been added to the transaction. Underlying error: " + v.code.String())
		}
		return v.guard, code
	}
	return 0, api.ErrNone
}

// unverified is what the producer is told of the coordinator's answer: what may pass is made an error that every client retries.
func unverified(code api.ErrorCode) api.ErrorCode {
	switch code {
	case api.ErrProducerFenced:
		return api.ErrInvalidProducerEpoch
	case api.ErrConcurrentTransactions, api.ErrCoordinatorLoadInProgress, api.ErrCoordinatorNotAvailable, api.ErrNotCoordinator:
		return api.ErrNotEnoughReplicas
	}
	return code
}

// twoProducers tells whether transactional batches of a request are of different producers.
func (op *produceOp) twoProducers() bool {
	first := int64(batch.NoProducerID)
	return op.verifies() && op.transactional(func(_ *topics.Partition, v batch.View, _, _ int) bool {
		if first == batch.NoProducerID {
			first = v.ProducerID()
		}
		return first != v.ProducerID()
	})
}
