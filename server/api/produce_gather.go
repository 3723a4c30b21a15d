package api

import (
	"errors"
	"sync"

	"kaas/codec/api"
	"kaas/codec/batch"
	"kaas/codec/wire"
	"kaas/engine"
	"kaas/server/metrics/counters"
	"kaas/server/topics"
)

// acks values (Produce): none, the leader's append, all in-sync replicas: here, the group commit.
const (
	acksNone   = 0
	acksLeader = 1
	acksAll    = -1
)

// gatherer collects the batches of the requests of one round, per partition, and writes each partition's in one run. A loop has one; a
// worker borrows one for a request that may block.
type gatherer struct {
	s     *Service
	parts []partitionRun // in order of first use in this round; entries keep their memory
	byLog map[*engine.Log]int
	ops   []*produceOp
	env   batch.Env
	shard *counters.Shard
	due   engine.Due // what the appends of a flush have to commit

	deflater *batch.Deflater // a worker's, for topics whose compression.type is not producer
}

// partitionRun is what one partition gets in this round.
type partitionRun struct {
	p       *topics.Partition
	entries []engine.Entry
	refs    []entryRef
}

// entryRef says whose answer an entry belongs to.
type entryRef struct {
	op          *produceOp
	topic, part int
}

// inflateMax bounds what one compressed batch may become when it has to be opened, in bytes.
const inflateMax = 1 << 30

var workerGatherers = sync.Pool{New: func() any {
	return &gatherer{byLog: make(map[*engine.Log]int), env: batch.Env{Inflater: batch.NewInflater(inflateMax)}, deflater: new(batch.Deflater)}
}}

// init readies the gatherer of a loop.
func (g *gatherer) init(s *Service, shard *counters.Shard) {
	g.s, g.shard = s, shard
	g.byLog = make(map[*engine.Log]int)
}

// add validates the batches of a request and gathers them. Nothing is written before flush.
func (g *gatherer) add(op *produceOp) {
	g.ops = append(g.ops, op)
	td := op.req.TopicData
	refused := op.refusedWhole()
	op.resp.Responses = resize(op.resp.Responses, len(td))
	for i := range td {
		t := &op.resp.Responses[i]
		t.Name = td[i].Name
		t.PartitionResponses = resize(t.PartitionResponses, len(td[i].PartitionData))
		topic := g.s.topics.ByName(td[i].Name)
		for j := range td[i].PartitionData {
			p := &t.PartitionResponses[j]
			p.Default()
			p.Index = td[i].PartitionData[j].Index
			p.BaseOffset = -1
			code := refused
			if code == api.ErrNone {
				code = g.admit(op, topic, &td[i].PartitionData[j], p, i, j)
			}
			if code != api.ErrNone {
				p.ErrorCode = code
				op.failed = true
			}
		}
	}
}

// refusedWhole is the code that every partition of a request gets, whatever its batch: acks out of range, or a transactional batch in a
// request that names no transactional id.
func (op *produceOp) refusedWhole() api.ErrorCode {
	if op.req.Acks < acksAll || op.req.Acks > acksLeader {
		return api.ErrInvalidRequiredAcks
	}
	if op.req.TransactionalId.Valid {
		if op.twoProducers() {
			return api.ErrInvalidProducerIdMapping
		}
		return api.ErrNone
	}
	for i := range op.req.TopicData {
		for j := range op.req.TopicData[i].PartitionData {
			set := op.req.TopicData[i].PartitionData[j].Records.Bytes
			if v, err := batch.PeekHeader(set); err == nil && v.IsTransactional() {
				return api.ErrTransactionalIdAuthorizationFailed
			}
		}
	}
	return api.ErrNone
}

// admit decides on one partition's batch: gathered, or refused with a code.
func (g *gatherer) admit(op *produceOp, topic *topics.Topic, data *api.ProduceRequestPartitionProduceData, p *api.ProduceResponsePartitionProduceResponse, i, j int) api.ErrorCode {
	if topics.IsInternal(op.req.TopicData[i].Name) {
		return api.ErrInvalidTopicException
	}
	if topic == nil {
		return api.ErrUnknownTopicOrPartition
	}
	part := topic.Partition(data.Index)
	if part == nil {
		return api.ErrUnknownTopicOrPartition
	}
	set := topic.Settings()
	if op.req.Acks == acksAll && set.MinInSyncReplicas > 1 {
		return api.ErrNotEnoughReplicas
	}
	if data.Records.Null() {
		return api.ErrUnknownServerError
	}
	if op.head.Version < 3 && oldFormat(data.Records.Bytes) {
		return api.ErrUnsupportedForMessageFormat
	}
	g.env.NowMs, g.env.ProduceVersion = g.s.now(), op.head.Version
	records := data.Records.Bytes
	info, rejected := batch.Validate(records, &set.Rules, &g.env)
	if rejected != nil {
		return refuse(rejected, part, p)
	}
	records = records[:info.Size]
	var guard engine.Guard
	verify := info.Transactional && op.verifies()
	if verify {
		var code api.ErrorCode
		if guard, code = op.admitTxn(i, j, p); code != api.ErrNone {
			return code
		}
	}
	if info.Recompress {
		if records, rejected = batch.Recompress(nil, batch.View(records), &set.Rules, &g.env, g.deflater); rejected != nil {
			return refuse(rejected, part, p)
		}
		info = batch.InfoOf(records)
	}
	if set.Rules.LogAppendTime {
		p.LogAppendTimeMs = g.env.NowMs
	}
	e := g.append(part, records, &info, entryRef{op: op, topic: i, part: j})
	e.Verify, e.Guard = verify, guard
	return api.ErrNone
}

// oldFormat tells whether a record set begins with a message of format 0 or 1.
func oldFormat(set []byte) bool {
	const magicAt = 16
	return len(set) > magicAt && (set[magicAt] == 0 || set[magicAt] == 1)
}

// refuse writes why a batch was refused into the answer.
func refuse(r *batch.Rejection, part *topics.Partition, p *api.ProduceResponsePartitionProduceResponse) api.ErrorCode {
	if r.LogStart {
		p.LogStartOffset = part.Log.Offsets().LogStart
	}
	if r.Message != "" {
		p.ErrorMessage = wire.Some(r.Message)
	}
	for _, e := range r.RecordErrors {
		out := api.Next(&p.RecordErrors)
		out.BatchIndex, out.BatchIndexErrorMessage = e.Index, wire.Some(e.Message)
	}
	return api.ErrorCode(r.Code)
}

// append gathers one batch under its partition.
func (g *gatherer) append(part *topics.Partition, records []byte, info *batch.Info, ref entryRef) *engine.Entry {
	at, ok := g.byLog[part.Log]
	if !ok {
		at = len(g.parts)
		if at < cap(g.parts) {
			g.parts = g.parts[:at+1]
		} else {
			g.parts = append(g.parts, partitionRun{})
		}
		g.parts[at].p = part
		g.byLog[part.Log] = at
	}
	run := &g.parts[at]
	run.entries = append(run.entries, engine.Entry{Data: records, Info: engineInfo(info)})
	run.refs = append(run.refs, ref)
	return &run.entries[len(run.entries)-1]
}

// flush appends what was gathered, one run per partition, and answers the requests or leaves them to the group commit.
func (g *gatherer) flush() {
	if len(g.ops) == 0 {
		return
	}
	began := g.s.stalls.clock()
	for i := range g.parts {
		run := &g.parts[i]
		if g.deflater != nil { // a worker's: it waits for descriptors that this request itself may have taken
			_ = run.p.Log.MakeReady()
		}
		run.p.Log.AppendDue(run.entries, &g.due)
		g.count(run.entries)
		for k := range run.entries {
			run.refs[k].settle(&run.entries[k], run.p)
		}
		clear(run.entries)
		clear(run.refs)
		run.p, run.entries, run.refs = nil, run.entries[:0], run.refs[:0]
	}
	g.s.engine.Commit(&g.due)
	g.s.stalls.note(began, g.s.now)
	g.parts = g.parts[:0]
	clear(g.byLog)
	for i, op := range g.ops {
		op.finish()
		g.ops[i] = nil
	}
	g.ops = g.ops[:0]
}

// count counts what was written.
func (g *gatherer) count(entries []engine.Entry) {
	var batches, bytes, records int64
	for i := range entries {
		if e := &entries[i]; e.Err == nil && !e.Duplicate {
			batches++
			bytes += int64(len(e.Data))
			records += int64(e.Info.LastOffsetDelta) + 1
		}
	}
	g.shard.ProduceBatches.Add(batches)
	g.shard.ProduceBytes.Add(bytes)
	g.shard.ProduceRecords.Add(records)
}

// settle writes the outcome of one append into the answer and notes what it has to wait for: with acks=-1, and with acks=1 too where
// flush.messages is 1.
func (r *entryRef) settle(e *engine.Entry, part *topics.Partition) {
	p := &r.op.resp.Responses[r.topic].PartitionResponses[r.part]
	if e.Err != nil {
		p.ErrorCode = appendError(e.Err)
		p.LogAppendTimeMs = -1
		if p.ErrorCode == api.ErrOutOfOrderSequenceNumber || p.ErrorCode == api.ErrInvalidProducerEpoch || p.ErrorCode == api.ErrInvalidTxnState {
			p.LogStartOffset = part.Log.Offsets().LogStart // the log looked at the batch
		}
		r.op.failed = true
		return
	}
	p.BaseOffset, p.LogStartOffset = e.BaseOffset, e.LogStart
	if r.op.req.Acks == acksAll || r.op.req.Acks == acksLeader && part.Log.FlushesEach() {
		n := len(r.op.waits)
		if n < cap(r.op.waits) {
			r.op.waits = r.op.waits[:n+1]
		} else {
			r.op.waits = append(r.op.waits, durableWait{})
		}
		w := &r.op.waits[n]
		w.op, w.log, w.end, w.topic, w.part = r.op, part.Log, e.LastOffset+1, r.topic, r.part
		w.err.Store(false)
	}
}

// finish answers a request whose appends are done.
func (op *produceOp) finish() {
	reply := op.reply
	op.throttle()
	if op.req.Acks == acksNone {
		op.finishSilently()
		return
	}
	op.resp.ThrottleTimeMs = op.throttleMs
	op.encode(&op.resp)
	if op.failed {
		op.s.counted.errors(api.KeyProduce, &op.resp)
	}
	if len(op.waits) == 0 {
		post := op.worker
		op.release()
		if post {
			reply.Post()
			return
		}
		reply.Send()
		return
	}
	op.left.Store(int32(len(op.waits)) + 1)
	for i := range op.waits {
		w := &op.waits[i]
		done, err := w.log.AwaitDurable(w.end, w)
		if err != nil {
			w.err.Store(true)
			op.lost.Store(true)
		}
		if done || err != nil {
			op.left.Add(-1)
		}
	}
	op.waitOver(op.worker)
}

// finishSilently ends an acks=0 request: no answer, or a closed connection when something went wrong (regression 24).
func (op *produceOp) finishSilently() {
	conn, reply, failed, worker := op.conn, op.reply, op.failed, op.worker
	op.release()
	switch {
	case !worker && failed:
		reply.Drop()
		conn.Close(errAcksZero)
	case !worker:
		reply.Drop()
	case failed:
		reply.DropPost()
		conn.Loop().Post(&closeConn{conn: conn, err: errAcksZero})
	default:
		reply.DropPost()
	}
}

var errAcksZero = errors.New("a Produce with acks=0 failed; closing is how the client learns of it")

// appendError maps what the engine says of an append to Kafka's codes.
func appendError(err error) api.ErrorCode {
	switch {
	case errors.Is(err, engine.ErrOutOfOrderSequence):
		return api.ErrOutOfOrderSequenceNumber
	case errors.Is(err, engine.ErrInvalidProducerEpoch):
		return api.ErrInvalidProducerEpoch
	case errors.Is(err, engine.ErrInvalidTxnState):
		return api.ErrInvalidTxnState
	case errors.Is(err, engine.ErrDeleted):
		return api.ErrUnknownTopicOrPartition
	case errors.Is(err, engine.ErrTooLarge):
		return api.ErrRecordListTooLarge
	default:
		return api.ErrKafkaStorageError
	}
}

// resize gives s n elements, keeping those behind its length for their memory.
func resize[T any](s []T, n int) []T {
	if n <= cap(s) {
		return s[:n]
	}
	return append(s[:cap(s)], make([]T, n-cap(s))...)
}

// engineInfo is what the engine wants to know of a validated batch.
func engineInfo(i *batch.Info) engine.BatchInfo {
	return engine.BatchInfo{Size: int(i.Size), LastOffsetDelta: i.LastOffsetDelta, BaseTimestamp: i.BaseTimestamp, MaxTimestamp: i.MaxTimestamp,
		ProducerID: i.ProducerID, ProducerEpoch: i.ProducerEpoch, BaseSequence: i.BaseSequence, Count: i.Count,
		Transactional: i.Transactional, Compressed: i.Codec != batch.CodecNone}
}
