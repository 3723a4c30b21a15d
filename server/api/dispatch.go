package api

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/engine"
	"kaas/netio"
	"kaas/server/coordinator"
	"kaas/server/group"
	"kaas/server/metrics/counters"
	"kaas/server/txn"
)

// Errors that end a connection. They are told in one debug line per connection (netio) and counted.
var (
	errShortFrame     = errors.New("frame too short for a request header")
	errUnknownAPI     = errors.New("unknown API key")
	errUnknownVersion = errors.New("API version not served")
	errMalformed      = errors.New("malformed request")
	errPanic          = errors.New("panic in handler")
)

// minHeaderBytes is the part of the header that every version has: key, version, correlation id.
const minHeaderBytes = 8

// loopState is the scratch memory of one event loop. Only that loop touches it.
type loopState struct {
	loop    *netio.Loop
	gather  gatherer
	fetches *fetchOp    // free list
	w       wire.Writer // encodes Fetch responses
	aborted []engine.AbortedTxn
	call    call // the ordinary request being handled
	round   *coordinator.Round[*group.Shard]

	txnRound *coordinator.Round[*txn.Shard]
	flush    func() // loop.Flush: EndTxn is answered before the completion of its transaction is written
	metered  *usage // of the connection whose request is being served, while quotas are set

	versionsRequest  api.ApiVersionsRequest
	versionsResponse api.ApiVersionsResponse
	shard            *counters.Shard
}

// connState is what the broker keeps for one connection.
type connState struct {
	ls     *loopState
	parked *fetchOp // the Fetch that waits for data; it holds the connection
	usage  *usage   // nil: no request came while quotas were set
}

// Opened implements netio.Handler.
func (s *Service) Opened(c *netio.Conn) {
	ls, _ := c.Loop().Data.(*loopState)
	if ls == nil {
		ls = &loopState{loop: c.Loop(), shard: s.counted.set.NewShard(), round: s.groups.NewRound(), txnRound: s.txns.NewRound(),
			flush: c.Loop().Flush}
		ls.gather.init(s, ls.shard)
		c.Loop().Data = ls
	}
	c.Data = &connState{ls: ls}
}

// Closed implements netio.Handler: whatever still waits for the connection is given up.
func (s *Service) Closed(c *netio.Conn, err error) {
	s.counted.set.Close(closingOf(err))
	cs := c.Data.(*connState)
	if u := cs.usage; u != nil {
		c.Loop().StopTimer(&u.timer)
		u.payNetwork()
	}
	if op := cs.parked; op != nil {
		cs.parked = nil
		op.cancel()
	}
}

// RoundEnd implements netio.Handler: the appends gathered from the frames of this round are written, one write per partition, and the
// operations on groups and transactions are run, those of one shard together.
func (s *Service) RoundEnd(l *netio.Loop) {
	ls := l.Data.(*loopState)
	ls.gather.flush()
	ls.round.End(nil)
	ls.txnRound.End(ls.flush)
}

// Frame implements netio.Handler. It closes the connection for what cannot be answered (regressions 2, 7).
func (s *Service) Frame(c *netio.Conn, frame []byte) {
	cs := c.Data.(*connState)
	if len(frame) < minHeaderBytes {
		c.Close(errShortFrame)
		return
	}
	key := int16(binary.BigEndian.Uint16(frame))
	version := int16(binary.BigEndian.Uint16(frame[2:]))
	h := s.handlerOf(key)
	if h == nil {
		c.Close(fmt.Errorf("%w %d", errUnknownAPI, key))
		return
	}
	if version < h.min || version > h.max {
		if key == api.KeyApiVersions {
			s.answerUnknownApiVersions(c, int32(binary.BigEndian.Uint32(frame[4:])))
			return
		}
		c.Close(fmt.Errorf("%w: %s v%d", errUnknownVersion, h.fact.Name, version))
		return
	}
	r := wire.NewReader(frame)
	var head wire.RequestHeader
	head.Decode(&r, h.fact.RequestHeader(version))
	if r.Err() != nil {
		c.Close(fmt.Errorf("%w: header of %s v%d: %w", errMalformed, h.fact.Name, version, r.Err()))
		return
	}
	body := frame[len(frame)-r.Rest():]
	if rules := s.quotas.Rules(); rules != nil {
		s.metered(c, cs, h, &head, body, rules)
		return
	}
	if cs.usage != nil {
		c.Timed(false)
	}
	s.serve(c, cs, h, &head, body)
}

// serve hands a request to what serves its key.
func (s *Service) serve(c *netio.Conn, cs *connState, h *handler, head *wire.RequestHeader, body []byte) {
	switch h.key {
	case api.KeyProduce:
		s.produce(c, cs, head, body)
		return
	case api.KeyFetch:
		cs.ls.gather.flush()
		s.fetch(c, cs, head, body)
		return
	}
	// Whatever this request reads must show the appends that came before it on this connection.
	cs.ls.gather.flush()
	ls := cs.ls
	ls.call = call{s: s, h: h, conn: c, head: *head, body: body, reply: s.newReply(c, h.key)}
	if ls.metered != nil {
		ls.call.bill = &ls.metered.bill
	}
	h.serve(&ls.call)
}

// call is one request to an ordinary handler, on its way.
type call struct {
	s     *Service
	h     *handler
	conn  *netio.Conn
	head  wire.RequestHeader
	body  []byte
	reply *netio.Reply
	off   bool   // runs on a worker or a shard, not on the loop
	held  bool   // off: the answer lets the connection go on
	ended uint32 // off: 1 once it is answered or failed, whichever came first

	mutationMs int64 // it is throttled for what it does to topics; of a worker
	bill       *bill // who pays for the time, and for partitions; nil: nobody. The connection's own on the loop
}

// version is the version of the request.
func (c *call) version() int16 { return c.head.Version }

// fail closes the connection; the place of the reply is given up.
func (c *call) fail(err error) {
	if !c.off {
		c.conn.Close(err)
		c.reply.Drop()
		return
	}
	c.conn.Loop().Post(&closeConn{conn: c.conn, err: err})
	if c.end() {
		c.reply.DropPost()
	}
}

// end tells whether the call is yet to be ended, and ends it.
func (c *call) end() bool { return atomic.CompareAndSwapUint32(&c.ended, 0, 1) }

// closeConn closes a connection from another goroutine than its loop.
type closeConn struct {
	conn *netio.Conn
	err  error
}

// Run implements netio.Task.
func (t *closeConn) Run() { t.conn.Close(t.err) }

// resumeConn lets a held connection go on.
type resumeConn struct {
	conn *netio.Conn
}

// Run implements netio.Task.
func (t *resumeConn) Run() { t.conn.Resume() }

// decode reads the request's body into m. Bytes left over are ignored, as Apache does; anything malformed closes the connection.
func (c *call) decode(m api.Message) bool {
	r := wire.NewReader(c.body)
	m.Decode(&r, c.head.Version)
	if r.Err() == nil {
		return true
	}
	c.fail(fmt.Errorf("%w: %s v%d: %w", errMalformed, c.h.fact.Name, c.head.Version, r.Err()))
	return false
}

// answerAndResume sends the answer to a request that held its connection.
type answerAndResume struct{ call *call }

// Run implements netio.Task.
func (t answerAndResume) Run() {
	t.call.reply.Send()
	t.call.conn.Resume()
}

// answer encodes m as the response and sends it.
func (c *call) answer(m api.Message) {
	if c.off && !c.end() {
		return
	}
	if c.bill != nil {
		c.throttled(m)
	}
	w := wire.Writer{B: c.reply.Buf[:0]}
	encodeResponse(&w, c.h.fact, c.head.Version, c.head.CorrelationID, m)
	c.s.counted.errors(c.h.key, m)
	c.reply.Buf = w.B
	switch {
	case c.held:
		c.conn.Loop().Post(answerAndResume{c})
	case c.off:
		c.reply.Post()
	default:
		c.reply.Send()
	}
}

// encodeResponse appends a whole frame: size, response header, m.
func encodeResponse(w *wire.Writer, fact *api.Fact, version int16, correlation int32, m api.Message) {
	frame := w.BeginFrame()
	h := wire.ResponseHeader{CorrelationID: correlation}
	h.Encode(w, fact.ResponseHeader(version))
	m.Encode(w, version)
	w.EndFrame(frame)
	if w.Err != nil {
		panic(fmt.Sprintf("BUG: response of %s v%d does not encode: %v", fact.Name, version, w.Err))
	}
}

// message is what a pointer to a generated message offers.
type message[T any] interface {
	*T
	api.Message
}

// onLoop makes a handler that runs on the event loop: f must neither block nor keep anything of the request.
func onLoop[Q, P any, PQ message[Q], PP message[P]](f func(c *call, q PQ, p PP)) func(*call) {
	return func(c *call) {
		var q Q
		var p P
		if !c.decode(PQ(&q)) {
			return
		}
		PP(&p).Default()
		f(c, &q, &p)
		c.answer(PP(&p))
	}
}

// offLoop makes a handler that runs on a worker, with the connection held and the frame copied: f may block and keep what it wants.
func offLoop[Q, P any, PQ message[Q], PP message[P]](f func(c *call, q PQ, p PP)) func(*call) {
	serve := onLoop(f)
	return func(c *call) { c.toWorker(serve) }
}

// toWorker runs the rest of the request on a worker while the connection is held.
func (c *call) toWorker(serve func(*call)) {
	own := *c // the loop uses its own again for the next request
	c = &own
	c.body = append([]byte(nil), c.body...)
	c.head.ClientID.String = cloneString(c.head.ClientID.String)
	c.off = true
	c.bill = c.bill.copy()
	c.conn.Hold()
	c.s.engine.Go(func() {
		defer c.conn.Loop().Post(&resumeConn{conn: c.conn})
		defer c.recoverPanic()
		c.bill.begin()
		defer c.bill.end()
		serve(c)
	})
}

// recoverPanic ends the connection of a request whose handler panicked on a worker (regression 11); the loop has its own guard.
func (c *call) recoverPanic() {
	if v := recover(); v != nil {
		c.fail(c.s.panicked(c.h.fact, c.head.Version, v))
	}
}

// panicked counts a panic on a worker and tells of it; the error is what closes the connection. To be called by the deferred function.
func (s *Service) panicked(fact *api.Fact, version int16, v any) error {
	s.panics.Add(1)
	s.log.Error("panic in a request handler; its connection is closed", "api", fact.Name, "version", version, "panic", v, "stack", stack())
	return fmt.Errorf("%w: %v", errPanic, v)
}
