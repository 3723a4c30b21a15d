package api

import (
	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/engine"
	"kaas/netio"
	"kaas/server/fetchsession"
)

// noRecords is what a partition without data answers: empty, not null.
var noRecords = []byte{}

// answer builds the response of what was read and sends it.
func (op *fetchOp) answer() {
	if op.metered && op.charge() {
		op.answerThrottled()
		return
	}
	op.resp.Default()
	op.resp.Responses = op.resp.Responses[:0]
	if op.session != nil {
		op.resp.SessionId = op.session.ID
		op.session.Lock()
	}
	for i := range op.parts {
		p := &op.parts[i]
		if p.told != nil {
			hw, start := op.offsetsTold(p)
			respond := p.told.Told(hw, start, p.code != api.ErrNone, p.slice.Len > 0) || p.diverging
			if p.slice.Len > 0 && !op.full {
				op.session.ToEnd(p.Key)
			}
			if !respond && !op.full {
				continue
			}
		}
		op.addPartition(p)
	}
	if op.session != nil {
		op.session.Unlock()
	}
	op.send()
}

// offsetsTold are the high watermark and log start that the answer carries: -1 beside an error.
func (op *fetchOp) offsetsTold(p *fetchPart) (highWatermark, logStart int64) {
	if p.code != api.ErrNone {
		return -1, -1
	}
	return p.offsets.HighWatermark, p.offsets.LogStart
}

// addPartition puts one partition into the response, under its topic if the one before was of the same.
func (op *fetchOp) addPartition(p *fetchPart) {
	rs := op.resp.Responses
	n := len(rs)
	if n == 0 || rs[n-1].Topic != p.name || rs[n-1].TopicId != wire.UUID(p.TopicID) {
		rs = resize(rs, n+1)
		rs[n].Topic, rs[n].TopicId = p.name, wire.UUID(p.TopicID)
		rs[n].Partitions = rs[n].Partitions[:0]
		op.resp.Responses = rs
		n++
	}
	t := &op.resp.Responses[n-1]
	t.Partitions = resize(t.Partitions, len(t.Partitions)+1)
	out := &t.Partitions[len(t.Partitions)-1]
	aborted := out.AbortedTransactions[:0]
	out.Default()
	out.PartitionIndex = p.Partition
	out.ErrorCode = p.code
	out.HighWatermark, out.LogStartOffset = op.offsetsTold(p)
	out.Records = wire.Records{Bytes: noRecords}
	out.AbortedTransactions = nil
	if p.code != api.ErrNone {
		op.s.counted.error(api.KeyFetch, p.code)
		out.LastStableOffset = -1
		if p.code == api.ErrUnknownTopicOrPartition || p.code == api.ErrUnknownTopicId { // null beside any other error
			out.AbortedTransactions = []api.FetchResponseAbortedTransaction{}
		}
		return
	}
	out.LastStableOffset = p.offsets.LastStable
	if p.diverging {
		out.DivergingEpoch.Epoch, out.DivergingEpoch.EndOffset = p.divEpoch, p.divEnd
	}
	if op.req.IsolationLevel == 1 {
		out.AbortedTransactions = op.appendAborted(aborted, p)
	}
	if p.slice.Len > 0 {
		out.Records = wire.Records{External: p.slice.Len}
	}
}

// appendAborted lists the aborted transactions that overlap what was read, empty and not null if there are none (read_committed).
func (op *fetchOp) appendAborted(dst []api.FetchResponseAbortedTransaction, p *fetchPart) []api.FetchResponseAbortedTransaction {
	if dst == nil {
		dst = []api.FetchResponseAbortedTransaction{}
	}
	if p.slice.Len == 0 {
		return dst
	}
	op.ls.aborted = p.p.Log.AbortedIn(op.ls.aborted[:0], p.offset, p.slice.Upper)
	for _, a := range op.ls.aborted {
		dst = append(dst, api.FetchResponseAbortedTransaction{ProducerId: a.ProducerID, FirstOffset: a.FirstOffset})
	}
	return dst
}

// send encodes the response and sends it, with the slices of segment files where the records belong.
func (op *fetchOp) send() {
	reply := op.reply
	w := &op.ls.w
	w.B, w.Cuts = reply.Buf[:0], w.Cuts[:0]
	encodeResponse(w, op.s.handlers[api.KeyFetch].fact, op.head.Version, op.head.CorrelationID, &op.resp)
	reply.Buf = w.B
	from, cut, bytes := 0, 0, 0
	for i := range op.parts {
		s := &op.parts[i].slice
		if s.Len == 0 {
			continue
		}
		at := w.Cuts[cut].At
		bytes += s.Len
		reply.Parts = append(reply.Parts, netio.Part{From: from, To: at}, netio.Part{FD: s.FD, Pos: s.Pos, Len: s.Len, Ref: s.Ref, Old: op.old(s)})
		*s = engine.Slice{}
		from, cut = at, cut+1
	}
	if cut > 0 && from < len(w.B) {
		reply.Parts = append(reply.Parts, netio.Part{From: from, To: len(w.B)})
	}
	w.B = nil
	if bytes > 0 {
		op.ls.shard.FetchBytes.Add(int64(bytes))
	}
	op.free()
	reply.Send()
}

// answerError answers the request as a whole with one code and no partitions.
func (op *fetchOp) answerError(code api.ErrorCode) {
	if op.metered {
		op.throttled(0)
	}
	op.parts = op.parts[:0]
	op.resp.Default()
	op.resp.Responses = op.resp.Responses[:0]
	op.resp.ErrorCode, op.resp.ThrottleTimeMs = code, op.throttleMs
	op.s.counted.error(api.KeyFetch, code)
	op.send()
}

// sessionProblem maps what is wrong with a session to Kafka's codes.
func sessionProblem(p fetchsession.Problem) api.ErrorCode {
	switch p {
	case fetchsession.NotFound:
		return api.ErrFetchSessionIdNotFound
	case fetchsession.WrongEpoch:
		return api.ErrInvalidFetchSessionEpoch
	case fetchsession.TopicIDMixed:
		return api.ErrFetchSessionTopicIdError
	}
	return api.ErrNone
}
