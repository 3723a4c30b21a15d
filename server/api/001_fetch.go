package api

import (
	"fmt"
	"sync/atomic"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/engine"
	"kaas/netio"
	"kaas/server/fetchsession"
	"kaas/server/quota"
	"kaas/server/topics"
)

// Fetch, key 1, v4-v16. v4 isolation level; v5 log start offset; v7 sessions (KIP-227); v9 leader epoch; v11 rack; v12 flexible,
// last fetched epoch and divergence; v13 topics by id; v15 replica state; v16 node endpoints.
//
// The way of a request: resolve the session and the partitions, read them all (index look-ups only: what is found are slices of files),
// and answer if there is enough; else park with the connection held until the log moves, or max_wait_ms is over. Records are never
// copied: the answer is encoded without them, and netio sends the slices of the segment files in their places. A look-up that would wait for the
// disk goes to a worker, and so does, in netio, the reading of records that may not be in the page cache.
//
// Deviation: v0 to v3 answer in message formats 0 and 1, which are not served yet.
// Deviation: no follower fetches from here, and there is no replica to prefer: the rack is read and makes no difference.

// fetchOp is one Fetch request in the works; pooled per loop, and all of it belongs to that loop, but for wake.
type fetchOp struct {
	s    *Service
	ls   *loopState
	conn *netio.Conn
	next *fetchOp // free list

	head       wire.RequestHeader
	req        api.FetchRequest
	resp       api.FetchResponse
	reply      *netio.Reply
	parts      []fetchPart
	session    *fetchsession.Session
	full       bool // the answer names every partition; the incremental one only what changed
	maxBytes   int  // of records in the answer
	metered    bool // quotas are to be looked at
	throttleMs int32

	timer   netio.Timer
	watches []engine.Watch
	state   fetchState
	cold    bool        // a look-up in memory alone failed
	waits   bool        // look-ups may wait for the disk: a worker has done them before, or they are near the end of the log
	posted  atomic.Bool // a wake-up is on its way
}

type fetchState uint8

const (
	fetchIdle    fetchState = iota // free
	fetchRunning                   // on the loop, inside a handler
	fetchLoading                   // a worker loads logs, or looks up what is not in memory
	fetchParked                    // waits for data or its deadline
	fetchDone                      // answered or given up, but a wake-up is still on its way
)

// fetchPart is one partition of a request, with what was read of it.
type fetchPart struct {
	fetchsession.Key
	name        string // the topic's name, for versions that answer with names
	offset      int64
	maxBytes    int32
	leaderEpoch int32
	lastEpoch   int32
	p           *topics.Partition
	told        *fetchsession.Partition // in a session
	preset      api.ErrorCode           // known before reading

	code      api.ErrorCode
	slice     engine.Slice
	offsets   engine.Offsets
	diverging bool
	divEpoch  int32
	divEnd    int64
}

// fetch takes a Fetch request on the loop.
func (s *Service) fetch(c *netio.Conn, cs *connState, head *wire.RequestHeader, body []byte) {
	op := cs.ls.newFetch(s)
	op.conn, op.head = c, *head
	r := wire.NewReader(body)
	op.req.Decode(&r, head.Version)
	if r.Err() != nil {
		op.free()
		c.Close(fmt.Errorf("%w: Fetch v%d: %w", errMalformed, head.Version, r.Err()))
		return
	}
	op.reply = s.newReply(c, api.KeyFetch)
	op.cold, op.waits = false, false
	op.session, op.full = nil, true
	op.maxBytes, op.metered, op.throttleMs = min(int(op.req.MaxBytes), s.fetchMaxBytes), cs.ls.metered != nil, 0
	if op.metered {
		op.maxBytes = min(op.maxBytes, cs.usage.bill.client.Burst(quota.Consume))
		op.req.MinBytes = min(op.req.MinBytes, int32(op.maxBytes)) // or it would wait for what it cannot get
	}
	if code := op.resolve(); code != api.ErrNone {
		op.answerError(code)
		return
	}
	if op.toLoad() {
		op.load(cs)
		return
	}
	op.attempt(cs)
}

// newFetch takes an op from the loop's free list.
func (ls *loopState) newFetch(s *Service) *fetchOp {
	op := ls.fetches
	if op == nil {
		op = &fetchOp{s: s, ls: ls}
		op.timer.Fn = op.expire
	} else {
		ls.fetches = op.next
	}
	op.state = fetchRunning
	return op
}

// free gives the op back; if a wake-up is still on its way, Run does so when it arrives.
func (op *fetchOp) free() {
	op.conn, op.reply, op.session = nil, nil, nil
	clear(op.parts)
	op.parts = op.parts[:0]
	if op.posted.Load() {
		op.state = fetchDone
		return
	}
	op.state = fetchIdle
	op.next, op.ls.fetches = op.ls.fetches, op
}

// toLoad tells whether a partition's log was not used since the start.
func (op *fetchOp) toLoad() bool {
	for i := range op.parts {
		if p := op.parts[i].p; p != nil && !p.Log.Loaded() {
			return true
		}
	}
	return false
}

// load opens logs on a worker.
func (op *fetchOp) load(cs *connState) {
	logs := make([]*engine.Log, 0, len(op.parts))
	for i := range op.parts {
		if p := op.parts[i].p; p != nil {
			logs = append(logs, p.Log)
		}
	}
	op.onWorker(cs, func() {
		for _, l := range logs {
			_ = l.Load() // a log that cannot be loaded says so when it is read
		}
	})
}

// onWorker attempts the request once a worker has done something; the connection is held meanwhile.
func (op *fetchOp) onWorker(cs *connState, work func()) {
	op.keepNames()
	op.state = fetchLoading
	cs.parked = op
	op.conn.Hold()
	op.posted.Store(true)
	loop := op.ls.loop
	var b *bill
	if op.metered {
		b = &cs.usage.bill // nobody changes it while the connection is held
	}
	op.s.engine.Go(func() {
		began := b.clock()
		work()
		b.charge(began)
		loop.Post(op)
	})
}

// lookUp has a worker look up what is not in memory. What it finds is looked up again on the loop, in memory by then.
func (op *fetchOp) lookUp(cs *connState) {
	type place struct {
		log    *engine.Log
		offset int64
	}
	places := make([]place, 0, len(op.parts))
	for i := range op.parts {
		if p := &op.parts[i]; p.p != nil {
			places = append(places, place{p.p.Log, p.offset})
		}
	}
	op.onWorker(cs, func() {
		for _, p := range places {
			if s, err := p.log.Read(p.offset, 1, true, engine.ReadUncommitted); err == nil && s.Len > 0 {
				s.Ref.Release()
			}
		}
	})
}

// attempt reads all partitions and answers, or parks.
func (op *fetchOp) attempt(cs *connState) {
	bytes, now := op.read()
	if op.cold {
		op.dropSlices()
		op.waits = true
		op.lookUp(cs)
		return
	}
	op.waits = true
	if now || bytes >= int(op.req.MinBytes) || op.req.MaxWaitMs <= 0 {
		op.answer()
		return
	}
	op.dropSlices()
	op.park(cs)
}

// park waits for data with the connection held: a parked Fetch is a barrier (design, Seams 4).
func (op *fetchOp) park(cs *connState) {
	op.keepNames()
	op.state = fetchParked
	cs.parked = op
	op.conn.Hold()
	op.ls.loop.SetTimer(&op.timer, op.ls.loop.Now()+int64(op.req.MaxWaitMs))
	op.watch()
	op.s.parkedFetches.Add(1)
	// What was appended between the read and the watch would wake nobody: look once more.
	if bytes, now := op.read(); now || bytes >= int(op.req.MinBytes) {
		op.unpark()
		op.answer()
		return
	}
	op.dropSlices()
}

// watch asks every readable partition's log to wake the op when it moves.
func (op *fetchOp) watch() {
	if n := len(op.parts); cap(op.watches) < n {
		op.watches = make([]engine.Watch, n)
		for i := range op.watches {
			op.watches[i].Fn = op.wake
		}
	}
	op.watches = op.watches[:len(op.parts)]
	for i := range op.parts {
		if p := &op.parts[i]; p.p != nil && p.code == api.ErrNone {
			p.p.Log.Watch(&op.watches[i])
		}
	}
}

// unpark undoes park.
func (op *fetchOp) unpark() {
	op.ls.loop.StopTimer(&op.timer)
	for i := range op.parts {
		if p := &op.parts[i]; p.p != nil {
			p.p.Log.Unwatch(&op.watches[i])
		}
	}
	op.conn.Data.(*connState).parked = nil
	op.state = fetchRunning
	op.conn.Resume()
	op.s.parkedFetches.Add(-1)
}

// wake is called by logs, on any goroutine: one post per wake-up, however many logs moved.
func (op *fetchOp) wake(*engine.Log) {
	if !op.posted.Swap(true) {
		op.ls.loop.Post(op)
	}
}

// Run implements netio.Task: on the loop, after a wake-up or when logs were loaded.
func (op *fetchOp) Run() {
	op.posted.Store(false)
	switch op.state {
	case fetchDone:
		op.free()
	case fetchLoading:
		cs := op.conn.Data.(*connState)
		cs.parked = nil
		op.state = fetchRunning
		op.conn.Resume()
		op.attempt(cs)
	case fetchParked:
		if bytes, now := op.read(); now || bytes >= int(op.req.MinBytes) {
			op.unpark()
			op.answer()
			return
		}
		op.dropSlices()
	}
}

// expire is the timer's: max_wait_ms is over, whatever there is is the answer.
func (op *fetchOp) expire() {
	op.unpark()
	op.read()
	op.answer()
}

// cancel gives the request up because its connection was closed.
func (op *fetchOp) cancel() {
	op.reply.Drop()
	if op.state == fetchParked {
		op.ls.loop.StopTimer(&op.timer)
		for i := range op.parts {
			if p := &op.parts[i]; p.p != nil {
				p.p.Log.Unwatch(&op.watches[i])
			}
		}
		op.s.parkedFetches.Add(-1)
	}
	op.free()
}

// keepNames clones what aliases the read buffer, before the request outlives its round.
func (op *fetchOp) keepNames() {
	for i := range op.parts {
		p := &op.parts[i]
		if p.p != nil {
			p.name = p.p.Topic.Name
		} else {
			p.name = cloneString(p.name)
		}
		if p.Topic != "" {
			p.Topic = p.name
		}
	}
	op.req.Topics, op.req.ForgottenTopicsData = op.req.Topics[:0], op.req.ForgottenTopicsData[:0]
}
