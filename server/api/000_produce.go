package api

import (
	"fmt"
	"sync"
	"sync/atomic"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/engine"
	"kaas/netio"
	"kaas/server/topics"
)

// Produce, key 0, v0-v10. v1 throttle time; v2 log append time in the answer; v3 transactional id; v5 log start offset in the answer; v7
// zstd; v8 record errors and message; v9 flexible; v10 the current leader in the answer.
//
// Deviation: message formats 0 and 1 are not served yet: v0 to v2 take format 2 alone and answer 43 to the older ones. They are offered
// because librdkafka up to 2.3 compresses with gzip, snappy and lz4 only for a broker that offers Produce v0.
//
// The way of a request: decode into scratch memory, validate each batch in the read buffer, gather it under its partition; at the end
// of the round one write per partition (gatherer.flush), then the answer is encoded. acks=-1 is sent when the group commit that covers
// it has ended. A request with a batch that needs blocking work (recompression, a look inside a compressed batch, a log not yet
// loaded, or for which there is no descriptor) goes to a worker as a whole, with the connection held.
// While appends stall, all requests do (produce_stall.go).
// The first batch of a transaction in a partition waits until the transaction coordinator has verified it (produce_verify.go).
//
// Deviation: acks=-1 waits for the disk under group-commit, with no time-out (timeout_ms is not looked at). Apache answers from the page
// cache, since its other replicas are what makes a record last.
// Deviation: compressed batches stay closed, so what is wrong inside one is not found, unless the topic needs a look (compaction, bounds
// of timestamps, another compression) or kaas.compressed.batch.validation=full asks for it: opening them all costs processor time.
// Deviation: a record in a compressed batch that was opened must fill its frame. Apache passes over the rest, and consumers then fail.
// Deviation: a batch of 26 bytes is corrupt (2); Apache says -1.

// produceOp is one Produce request in the works.
type produceOp struct {
	s          *Service
	conn       *netio.Conn
	head       wire.RequestHeader
	req        api.ProduceRequest
	resp       api.ProduceResponse
	reply      *netio.Reply
	w          wire.Writer
	worker     bool // runs on a worker: replies are posted
	slow       bool // because appends stall
	failed     bool // acks=0 and something went wrong: Apache closes the connection
	throttleMs int32
	bill       *bill // who pays for the time; nil: nobody

	verified []verifying // partitions that the transaction coordinator was asked about
	asking   atomic.Uint32
	kept     []byte // the request while it waits for the coordinator

	waits []durableWait
	left  atomic.Int32 // waits not yet over, and one for the registration itself
	lost  atomic.Bool  // a commit that was waited for failed
}

// durableWait waits for the commit that covers one partition's batch.
type durableWait struct {
	op    *produceOp
	log   *engine.Log
	end   int64 // offset after the batch
	topic int   // index in the response
	part  int
	err   atomic.Bool
}

var produceOps = sync.Pool{New: func() any { return new(produceOp) }}

// produce takes a Produce request on the loop.
func (s *Service) produce(c *netio.Conn, cs *connState, head *wire.RequestHeader, body []byte) {
	op := produceOps.Get().(*produceOp)
	op.s, op.conn, op.head = s, c, *head
	if !op.decode(body) {
		return
	}
	op.reply = s.newReply(c, api.KeyProduce)
	op.meterBytes(cs.ls.metered, len(body))
	if op.slow = s.stalls.now(s.now); op.slow || op.blocking() {
		cs.ls.gather.flush() // what came before on this connection is appended before
		op.toWorker(body)
		return
	}
	if op.toVerify() {
		cs.ls.gather.flush() // what came before on this connection may have opened the transaction
		if op.toVerify() && !op.verifyOnLoop(cs, body) {
			return
		}
	}
	cs.ls.gather.add(op)
}

// decode reads the request; a malformed one closes the connection.
func (op *produceOp) decode(body []byte) bool {
	r := wire.NewReader(body)
	op.req.Decode(&r, op.head.Version)
	if r.Err() == nil {
		op.req.TopicData = mergeTopics(op.req.TopicData)
		return true
	}
	op.conn.Close(fmt.Errorf("%w: Produce v%d: %w", errMalformed, op.head.Version, r.Err()))
	op.release()
	return false
}

// release gives the op back; nothing of the request is kept.
func (op *produceOp) release() {
	op.conn, op.reply, op.bill = nil, nil, nil
	op.worker, op.slow, op.failed = false, false, false
	op.waits, op.verified = op.waits[:0], op.verified[:0]
	if cap(op.kept) > keptMax {
		op.kept = nil
	}
	op.lost.Store(false)
	produceOps.Put(op)
}

// toWorker runs the request on a worker, with its own copy of the frame.
func (op *produceOp) toWorker(body []byte) {
	conn := op.conn
	body = append([]byte(nil), body...)
	op.worker, op.bill = true, op.bill.copy()
	op.decode(body) // the same bytes: cannot fail
	conn.Hold()
	op.s.engine.Go(func() {
		op.load()
		if op.toVerify() {
			op.verify(func() { op.s.engine.Go(op.onWorker) })
			return
		}
		op.onWorker()
	})
}

// onWorker appends the batches and lets the connection go on.
func (op *produceOp) onWorker() {
	bill := op.bill
	defer op.conn.Loop().Post(&resumeConn{conn: op.conn})
	if op.slow {
		op.s.stalls.slots <- struct{}{}
		defer func(s *Service) { <-s.stalls.slots }(op.s)
	}
	bill.begin()
	defer bill.end()
	g := workerGatherers.Get().(*gatherer)
	g.s, g.shard = op.s, op.s.counted.workers
	if op.addTo(g) {
		g.flush()
		workerGatherers.Put(g)
	}
}

// addTo has the batches looked into, on a worker. A panic there, say of a decompressor over the bytes of a stranger, ends
// the connection and leaves op and g to nobody (regression 11).
func (op *produceOp) addTo(g *gatherer) (ok bool) {
	conn, reply := op.conn, op.reply
	defer func() {
		if v := recover(); v != nil {
			conn.Loop().Post(&closeConn{conn: conn, err: op.s.panicked(op.s.handlers[api.KeyProduce].fact, op.head.Version, v)})
			reply.DropPost()
		}
	}()
	g.add(op)
	return true
}

// load opens the logs that were not used since the start. A log that cannot be loaded fails its own appends.
func (op *produceOp) load() {
	op.eachPartition(func(p *topics.Partition, _ []byte) bool {
		if !p.Log.Loaded() {
			_ = p.Log.Load()
		}
		return false
	})
}

// blocking tells whether any batch needs work that does not belong on the loop.
func (op *produceOp) blocking() bool {
	return op.eachPartition(func(p *topics.Partition, records []byte) bool {
		return !p.Log.Ready() || p.Topic.Settings().Rules.Heavy(records)
	})
}

// eachPartition calls f for the known partitions of the request until it says true.
func (op *produceOp) eachPartition(f func(p *topics.Partition, records []byte) bool) bool {
	for i := range op.req.TopicData {
		t := &op.req.TopicData[i]
		topic := op.s.topics.ByName(t.Name)
		if topic == nil {
			continue
		}
		for j := range t.PartitionData {
			if p := topic.Partition(t.PartitionData[j].Index); p != nil && f(p, t.PartitionData[j].Records.Bytes) {
				return true
			}
		}
	}
	return false
}

// mergeTopics makes of a request what Apache's map of partitions makes of it: a topic named twice is one, and of a partition named
// twice the last wins. Ordinary requests come out as they are.
func mergeTopics(ts []api.ProduceRequestTopicProduceData) []api.ProduceRequestTopicProduceData {
	out := ts[:0]
	for i := range ts {
		at := -1
		for j := range out {
			if out[j].Name == ts[i].Name {
				at = j
				break
			}
		}
		if len(ts[i].PartitionData) == 0 {
			continue // a topic without partitions is not answered
		}
		if at < 0 {
			// Swapped, not copied over: the slices behind an element left out stay with the request for the next one.
			out = out[:len(out)+1]
			out[len(out)-1], ts[i] = ts[i], out[len(out)-1]
			at = len(out) - 1
		} else {
			out[at].PartitionData = append(out[at].PartitionData, ts[i].PartitionData...)
		}
		out[at].PartitionData = lastOfEach(out[at].PartitionData, producedIndex)
	}
	return out
}

// producedIndex is the index of a partition in Produce.
func producedIndex(p *api.ProduceRequestPartitionProduceData) int32 { return p.Index }

// lastOfEach drops the partitions that are named again further on.
func lastOfEach[P any](ps []P, index func(*P) int32) []P {
	if ascending(ps, index) {
		return ps
	}
	last := make(map[int32]int, len(ps))
	for i := range ps {
		last[index(&ps[i])] = i
	}
	out := ps[:0]
	for i := range ps {
		if last[index(&ps[i])] == i {
			out = append(out, ps[i])
		}
	}
	return out
}

// ascending tells whether the partitions are in ascending order, so that none is named twice; few clients send them otherwise.
func ascending[P any](ps []P, index func(*P) int32) bool {
	for i := 1; i < len(ps); i++ {
		if index(&ps[i-1]) >= index(&ps[i]) {
			return false
		}
	}
	return true
}

// Durable implements engine.DurableWaiter, on the goroutine of the committer.
func (w *durableWait) Durable(err error) {
	if err != nil {
		w.err.Store(true)
		w.op.lost.Store(true)
	}
	w.op.waitOver(true)
}

// waitOver counts one wait down; with the last the answer goes out.
func (op *produceOp) waitOver(post bool) {
	if op.left.Add(-1) > 0 {
		return
	}
	if op.lost.Load() {
		op.patchLost()
	}
	reply := op.reply
	op.release()
	if post {
		reply.Post()
		return
	}
	reply.Send()
}

// patchLost rewrites an answer that was encoded before a commit failed: a failed sync is never acknowledged.
func (op *produceOp) patchLost() {
	var head wire.ResponseHeader
	var resp api.ProduceResponse
	fact := op.s.handlers[api.KeyProduce].fact
	r := wire.NewReader(append([]byte(nil), op.reply.Buf[4:]...))
	head.Decode(&r, fact.ResponseHeader(op.head.Version))
	resp.Decode(&r, op.head.Version)
	for i := range op.waits {
		w := &op.waits[i]
		if !w.err.Load() {
			continue
		}
		p := &resp.Responses[w.topic].PartitionResponses[w.part]
		index := p.Index
		p.Default()
		p.Index, p.ErrorCode = index, api.ErrKafkaStorageError
		p.BaseOffset, p.LogStartOffset = -1, -1
		op.s.counted.error(api.KeyProduce, p.ErrorCode)
	}
	op.encode(&resp)
}

// encode writes the answer into the reply's buffer.
func (op *produceOp) encode(resp *api.ProduceResponse) {
	op.w.B = op.reply.Buf[:0]
	encodeResponse(&op.w, op.s.handlers[api.KeyProduce].fact, op.head.Version, op.head.CorrelationID, resp)
	op.reply.Buf, op.w.B = op.w.B, nil
}
