package api

import (
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"kaas/codec/api"
	"kaas/server/coordinator"
	"kaas/server/group"
)

// Requests about groups go to the shard that holds the group (package coordinator): what one event loop has of them in one round is run at
// the end of the round, on the loop, unless somebody else is at work on that shard. It costs the loop what a Produce costs it: a write to the
// page cache for what has to be written.
//
// The order of a connection is kept by the queue of the shard: requests about one group are run in the order in which they came. JoinGroup
// and SyncGroup hold the connection until they are answered, like a parked Fetch (design, Seams 4). One whose connection is gone is
// run and answered all the same, to nobody, as in Apache.

// groupOp is an operation on a shard of the group coordinator.
type groupOp = coordinator.Op[*group.Shard]

// shardCall makes a handler for an API that is about one group. serve runs on the shard and hands reply to it; refused makes the answer when
// it was not run. How says what else there is to it.
func shardCall[Q, P any, PQ message[Q], PP message[P]](key func(q PQ) string, how shardWay,
	serve func(c *call, s *group.Shard, q PQ, now time.Time, reply func(PP)) coordinator.Outcome,
	refused func(c *call, q PQ, code api.ErrorCode) PP) func(*call) {
	type request struct { // one piece of memory
		call
		q Q
	}
	return func(on *call) {
		r := new(request)
		c, q := &r.call, PQ(&r.q)
		if on.detachTo(c); !c.decode(q) {
			return
		}
		if how == barrier {
			c.conn.Hold()
			c.held = true
		}
		op := func(s *group.Shard, now time.Time) (out coordinator.Outcome) {
			defer c.guard(&out)
			c.bill.begin()
			defer c.bill.end()
			return serve(c, s, q, now, func(p PP) { c.answer(p) })
		}
		no := func(err error) { c.answer(refused(c, q, group.Refusal(c.h.key, err))) }
		round := c.conn.Data.(*connState).ls.round
		if how == blind {
			round.SubmitBlind(key(q), op, no)
		} else {
			round.Submit(key(q), op, no)
		}
	}
}

// shardWay is what is special about an API that is about one group.
type shardWay uint8

const (
	plain   shardWay = iota
	barrier          // the connection is held until the answer
	// blind ones look at no committed offset and at nothing else that is only there when it is written: several of one group share a batch.
	blind
)

// detach makes a call that outlives its round: with its own copy of the frame. What it answers is posted.
func (c *call) detach() *call {
	own := new(call)
	c.detachTo(own)
	return own
}

// detachTo is detach into memory of the caller's.
func (c *call) detachTo(own *call) {
	*own = *c // the loop uses its own again for the next request
	own.body = append(make([]byte, 0, len(c.body)), c.body...)
	own.head.ClientID.String = strings.Clone(c.head.ClientID.String)
	own.off, own.bill = true, c.bill.copy()
}

// onShard gives an operation to the shard of a group. It is called on the loop.
func (c *call) onShard(groupID string, op groupOp, refused func(error)) {
	c.conn.Data.(*connState).ls.round.Submit(groupID, c.guarded(op), refused)
}

// guarded is op with its panic at the cost of the connection (regression 11).
func (c *call) guarded(op groupOp) groupOp {
	return func(s *group.Shard, now time.Time) (out coordinator.Outcome) {
		defer c.guard(&out)
		defer c.bill.charge(c.bill.clock())
		return op(s, now)
	}
}

// guard is deferred around an operation.
func (c *call) guard(out *coordinator.Outcome) {
	if v := recover(); v != nil {
		c.fail(c.s.panicked(c.h.fact, c.head.Version, v))
		*out = coordinator.Outcome{}
	}
}

// client is who asks, as DescribeGroups shows it.
func (c *call) client() group.Client {
	return group.Client{ID: c.head.ClientID.String, Host: javaHost(c.conn.Remote().Addr())}
}

// javaHost is how Java prints an address without a name.
func javaHost(a netip.Addr) string {
	a = a.Unmap()
	if a.Is4() {
		return "/" + a.String()
	}
	b := a.As16()
	out := make([]byte, 0, len("/ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"))
	for i := 0; i < len(b); i += 2 {
		out = strconv.AppendUint(append(out, ':'), uint64(b[i])<<8|uint64(b[i+1]), 16)
	}
	out[0] = '/'
	return string(out)
}

// parts waits for the answers to the parts of a request, which come from several shards; the last one answers.
type parts struct {
	left   atomic.Int32
	answer func()
}

// parts begins to wait for n parts. Without any the answer is given at once.
func (c *call) parts(n int, answer func()) *parts {
	p := &parts{answer: answer}
	if p.left.Store(int32(n)); n == 0 {
		answer()
	}
	return p
}

// done is one part less to wait for.
func (p *parts) done() {
	if p.left.Add(-1) == 0 {
		p.answer()
	}
}
