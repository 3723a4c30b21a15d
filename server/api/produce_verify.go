package api

import (
	"strings"
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
// transaction is open in a log, its batches go the usual way. The first one of a transaction in a partition waits until the coordinator has said yes:
// as a rule that is at once, on the loop; else its connection is held. And the log refuses it if the transaction was ended meanwhile
// (engine.Guard). So a batch that comes late, after the marker of its transaction, never opens one that nobody ends.

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

// How far the question of a request on the loop has come.
const (
	asked    uint32 = iota
	answered        // told before the loop had anything else to do, as a rule
	parked          // the loop has left the request: who is told has it go on
)

// keptMax is the size up to which memory for a request that waits is kept with its op, in bytes.
const keptMax = 64 << 10

// verifyOnLoop asks the coordinator. True: it has answered, and the request goes on. Else it goes on, on the loop, when it has; its
// connection is held until then.
func (op *produceOp) verifyOnLoop(cs *connState, body []byte) bool {
	a := op.beginVerify()
	if len(a.parts) == 0 {
		return true
	}
	op.asking.Store(asked)
	id := strings.Clone(op.req.TransactionalId.String) // the shard may keep it for longer than the read buffer
	cs.ls.txnRound.Now(id, verifyOp(id, a, op.toldOnLoop), func(err error) { op.toldOnLoop(txn.Refusal(err), nil) })
	if op.asking.Load() == answered {
		return true
	}
	op.kept = append(op.kept[:0], body...)
	op.decode(op.kept) // the same bytes: cannot fail
	if !op.asking.CompareAndSwap(asked, parked) {
		return true
	}
	op.conn.Hold()
	return false
}

// toldOnLoop is told by the coordinator, on any goroutine.
func (op *produceOp) toldOnLoop(code api.ErrorCode, each []api.ErrorCode) {
	op.told(code, each)
	if !op.asking.CompareAndSwap(asked, answered) {
		op.conn.Loop().Post((*verifiedProduce)(op))
	}
}

// verifiedProduce is a request that was parked and goes on, on the loop.
type verifiedProduce produceOp

// Run implements netio.Task.
func (t *verifiedProduce) Run() {
	op := (*produceOp)(t)
	conn := op.conn
	defer func() {
		if v := recover(); v != nil { // regression 11
			conn.Close(op.s.panicked(op.s.handlers[api.KeyProduce].fact, op.head.Version, v))
		}
	}()
	defer conn.Resume()
	op.bill.begin()
	defer op.bill.end()
	g := &conn.Data.(*connState).ls.gather
	g.add(op)
	g.flush()
}

// verify asks the coordinator, on a worker; then is called when it has answered, on any goroutine.
func (op *produceOp) verify(then func()) {
	a := op.beginVerify()
	if len(a.parts) == 0 {
		then()
		return
	}
	told := func(code api.ErrorCode, each []api.ErrorCode) {
		op.told(code, each)
		then()
	}
	id := op.req.TransactionalId.String
	op.s.txns.Submit(id, verifyOp(id, a, told), func(err error) { told(txn.Refusal(err), nil) })
}

// told notes what the coordinator says.
func (op *produceOp) told(code api.ErrorCode, each []api.ErrorCode) {
	for i := range op.verified {
		v := &op.verified[i]
		if v.code = code; code == api.ErrNone {
			v.code = each[i]
		}
	}
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
