package simulate

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"kaas/codec/parsley"
	"kaas/server/causal"
)

// emission is a record that logic or a client wants to send.
type emission struct {
	topic      string
	key, value []byte
}

// logic is what a task does with a delivery.
type logic func(h *host, d *causal.Delivery) []emission

// host is a task: it keeps the duties of a host of a node.
type host struct {
	w       *world
	name    string
	sender  uuid.UUID
	sources []string // topics, or topic:partition
	sinks   []string // topics
	ticks   string   // the topic of its ticks, also a source; "": none
	ticking int      // ticks left
	logic   logic
	latest  []string // sources that it begins at the last stable offset, others at the log start
	frozen  string   // a source that it does not read for now
	behind  string   // a source that it always reads slowly
	joins   int      // steps before its first life
	store   storage
	config  causal.Config // limits

	// What is committed, and survives.
	positions map[*partition]int64
	held      map[*partition]int64 // offset of the head of a queue that is not empty
	seen      map[*partition]bool  // the node was told something of the channel: from then on no loss goes unnoticed
	lives     int

	// What a life has.
	up      bool
	node    *causal.Node
	feeds   []feed
	tx      transaction // may outlive its life, until the next one fences it
	changed bool        // since the last commit
	acks    []ack
	out     []causal.Delivery
	fuse    int // records handled before a crash, −1: none
	actor   *actor
	victim  bool // retention went past what it needs

	in    parsley.Held
	stamp parsley.Stamp
}

// feed is where a host stands on one channel.
type feed struct {
	log      *partition
	position int64 // of the next fetch
	told     int64 // highest position that the node knows of
	slow     bool  // read seldom, so that others are ahead
}

type ack struct {
	to       parsley.Channel
	sequence int64
	offset   int64
}

// stage makes a host, which is not started yet.
func (w *world) stage(name string, sources, sinks []string, l logic) *host {
	h := &host{w: w, name: name, sender: parsley.SenderID("world", name, 0), sources: sources, sinks: sinks, logic: l, fuse: -1,
		positions: map[*partition]int64{}, held: map[*partition]int64{}, seen: map[*partition]bool{}}
	h.actor = w.oracle.actor(name)
	if w.disks {
		h.store = &diskStorage{}
	} else {
		h.store = &memoryStorage{}
	}
	h.config.HeldBytes = []int64{0, -1, 300}[w.n(3)]
	h.config.ReleaseBytes = []int64{0, 1, 400}[w.n(3)]
	h.config.Parity = w.broken == parityNode || w.broken == parityMode
	w.hosts = append(w.hosts, h)
	return h
}

// logOf finds the log of a source as it is now; nil: there is none.
func (w *world) logOf(source string) *partition {
	name, part, _ := strings.Cut(source, ":")
	n, _ := strconv.Atoi(part)
	t := w.topics[name]
	if t == nil || t.deleted {
		return nil
	}
	return w.logs[parsley.Channel{Topic: t.id, Partition: int32(n)}]
}

// startable says whether all the topics of h exist.
func (h *host) startable() bool {
	for _, s := range h.sources {
		if h.w.logOf(s) == nil {
			return false
		}
	}
	for _, s := range h.sinks {
		if h.w.topics[s].deleted {
			return false
		}
	}
	return true
}

// scope is what the next life consumes. Records of a destroyed topic that are still held are a loss: others drop their claims on
// them, so they must not be delivered any more.
func (h *host) scope() (list []*partition) {
	for _, s := range h.sources {
		list = append(list, h.w.logOf(s))
	}
	return list
}

// ends are the facts about what h may have sent before.
func (h *host) ends(n *causal.Node) causal.Facts {
	f := causal.Facts{SequenceBase: int64(h.lives) << 20}
	if h.w.broken == sequencesAgain {
		f.SequenceBase = 0
	}
	add := func(id uuid.UUID) {
		for _, p := range h.w.of(id) {
			end := p.end()
			if h.w.broken == seedFromNothing {
				end = 0
			}
			if h.w.broken == seedFromStable {
				end = p.stableEnd()
			}
			f.Ends = append(f.Ends, causal.End{Channel: p.id, Offset: end})
		}
	}
	for _, s := range h.sinks {
		add(h.w.topics[s].id)
	}
	for _, id := range n.FormerSinks() {
		if h.w.of(id)[0].destroyed || h.w.broken == formerSinksForgotten {
			f.Destroyed = append(f.Destroyed, id)
		} else {
			add(id)
		}
	}
	return f
}

// start begins a life.
func (h *host) start() {
	h.lives++
	if !h.tx.empty() {
		h.tx.finish(false) // the producer of the life before is fenced
	}
	h.actor.abort()
	store, err := h.store.open()
	if err != nil {
		h.failed(err)
		return
	}
	scope := h.scope()
	h.config.Sender, h.config.Consumed, h.config.Sinks = h.sender, nil, nil
	for _, p := range scope {
		h.config.Consumed = append(h.config.Consumed, p.id)
	}
	for _, s := range h.sinks {
		h.config.Sinks = append(h.config.Sinks, h.w.topics[s].id)
	}
	if h.node, err = causal.Open(h.config, store); err != nil {
		h.failed(err)
		return
	}
	if err = h.node.Start(h.ends(h.node)); err != nil {
		h.failed(err)
		return
	}
	h.seek(scope)
	if err = h.checkLogs(); err != nil {
		h.failed(err)
		return
	}
	h.up = true
	held := len(h.held) > 0
	h.changed = true
	if h.commit(); !h.up {
		return
	}
	if held {
		h.w.reached("restore")
	}
	if h.node.More() {
		h.w.reached("deliverable at the start")
		if h.w.broken != neverResumes {
			h.out, err = h.node.Resume(h.out[:0])
			h.handle(err)
		}
	}
}

// seek sets the positions from which a life reads.
func (h *host) seek(scope []*partition) {
	begins := map[*partition]int64{}
	resume := map[parsley.Channel]int64{}
	for _, r := range h.node.ResumePositions() {
		resume[r.Channel] = r.Offset
		h.w.reached("resume")
	}
	h.feeds = h.feeds[:0]
	for _, p := range scope {
		at, known := h.positions[p]
		from, grows := resume[p.id]
		switch {
		case grows:
			at = max(from, p.start)
			delete(h.positions, p)
		case known && !h.seen[p] && at < p.start: // nothing was read yet, so this is where it begins
			at = p.start
			h.actor.begins[p] = at
		case known:
			if h.w.budget.rewinds > 0 && h.w.broken != parityMode && h.w.chance(50) && at > p.start {
				h.w.budget.rewinds--
				h.w.reached("rewind")
				at -= int64(1 + h.w.n(int(min(at-p.start, 20))))
			}
			if covered := h.node.Covered(p.id); covered > at && h.positions[p] == at {
				fail(falseClaim, "%s has all of %s below %d, but its position is %d", h.name, p.name, covered, at)
			} else if covered > p.start && h.w.chance(20) {
				at = covered
			}
		case slices.ContainsFunc(h.latest, func(s string) bool { return h.w.logOf(s) == p }):
			at = p.stableEnd()
		default:
			at = p.start
		}
		begins[p] = at
		h.feeds = append(h.feeds, feed{p, at, 0, h.w.chance(50) || h.behind != "" && h.w.logOf(h.behind) == p})
	}
	h.actor.scope(begins)
	h.forgetRemoved(scope)
	for p := range h.positions {
		if !slices.Contains(scope, p) {
			delete(h.positions, p)
			delete(h.seen, p)
		}
	}
}

// checkLogs has the node look whether retention left what it needs.
func (h *host) checkLogs() error {
	if h.w.broken == logsUnchecked {
		return nil
	}
	var facts []causal.LogFact
	for i := range h.feeds {
		f := &h.feeds[i]
		if covered := h.node.Covered(f.log.id); f.position < f.log.start && covered >= f.log.start {
			f.position = covered // it was reading again what it has
		}
		if !f.log.destroyed {
			facts = append(facts, causal.LogFact{Channel: f.log.id, LogStart: f.log.start, Position: f.position})
		}
	}
	return h.node.CheckLogs(facts)
}

// failed is an error of the node or its store. Only lost power, and losses that a scenario made, are no violation.
func (h *host) failed(err error) {
	switch {
	case powerless(err):
		h.w.reached("power cut in an operation")
		h.crash()
	case h.victim && (errors.Is(err, causal.ErrLost) || errors.Is(err, causal.ErrHeldLost) || errors.Is(err, causal.ErrHeldOnRemoved)):
		h.w.reached("refused after a loss")
		h.crash()
		h.reset()
	default:
		fail(refused, "%s in life %d: %v", h.name, h.lives, err)
	}
}

// reset gives up the past of h: it begins as another actor, under its old identity.
func (h *host) reset() {
	if !h.tx.empty() {
		h.tx.finish(false)
	}
	h.actor.begins = map[*partition]int64{} // what it missed it will not get
	h.actor.wanted = nil
	h.actor = h.w.oracle.actor(h.name + "'")
	h.store.wipe()
	clear(h.positions)
	clear(h.held)
	clear(h.seen)
	h.victim = false
	h.w.reached("reset")
}

// crash ends a life. Its transaction stays open until it is fenced or times out.
func (h *host) crash() {
	h.actor.abort()
	if h.w.broken == storeCommittedOnCrash && h.node != nil && h.node.Err() == nil {
		_ = h.store.commit(h.node, func() {})
	}
	if h.w.chance(50) && !h.tx.empty() {
		h.tx.finish(false)
	}
	h.store.crash(h.w.dice)
	h.up, h.node, h.fuse, h.acks, h.changed = false, nil, -1, h.acks[:0], false
}

// commit ends the transaction: state, sends and positions.
func (h *host) commit() {
	h.acknowledge(true)
	err := h.store.commit(h.node, func() {
		if h.tx.empty() {
			h.tx = transaction{}
		} else {
			h.tx.finish(true)
		}
		h.actor.commit()
		clear(h.held)
		for _, f := range h.feeds {
			h.positions[f.log] = max(h.positions[f.log], f.position)
			h.seen[f.log] = h.seen[f.log] || f.told > 0
		}
		for _, c := range h.node.Channels() {
			if c.Held > 0 {
				h.held[h.w.logs[c.Channel]] = c.Head
			}
		}
	})
	h.changed = false
	if err != nil {
		h.failed(err)
	}
}

// acknowledge tells the node where its sends went: all that are left, or some.
func (h *host) acknowledge(all bool) {
	if h.w.acks == acksNever {
		h.acks = h.acks[:0]
		return
	}
	n := len(h.acks)
	if !all && h.w.acks == acksLate {
		n = h.w.n(n + 1)
	}
	for _, a := range h.acks[:n] {
		if err := h.node.Acked(a.to, a.sequence, a.offset); err != nil {
			h.failed(err)
			return
		}
		h.w.reached("acknowledged")
	}
	h.acks = slices.Delete(h.acks, 0, n)
}

// fetch feeds the node the next record of a channel.
func (h *host) fetch(i int) {
	f := &h.feeds[i]
	offset, _ := f.log.next(f.position)
	r := f.log.slots[offset].record
	f.position = offset + 1
	f.told = max(f.told, offset+1)
	h.changed = true
	var headers parsley.Headers
	for _, x := range r.headers {
		headers.Add(x.Key, x.Value)
	}
	if err := h.stamp.Decode(&headers, parsley.Strict); err != nil {
		h.failed(err)
		return
	}
	h.in = parsley.Held{Offset: r.offset, Timestamp: r.timestamp, Tagged: h.stamp.Tagged, Sender: h.stamp.Sender, Sequence: h.stamp.Sequence,
		Key: r.key, Value: r.value, Headers: r.headers}
	h.in.Clock.CopyFrom(&h.stamp.Clock)
	if h.w.broken == gateless {
		h.in.Clock.Reset()
	}
	if h.w.broken == untagged {
		h.in.Tagged, h.in.Sender, h.in.Sequence = false, uuid.UUID{}, -1
	}
	var err error
	before, replays := h.node.Counts().HeldRecords, h.node.Replays()
	h.out, err = h.node.Receive(f.log.id, &h.in, h.out[:0])
	if h.node.Counts().HeldRecords > before {
		h.w.reached("hold")
	}
	if h.node.Replays() > replays {
		h.w.reached("replay")
	}
	h.handle(err)
}

// advanceTo is a position that h may tell its node: that of the next fetch, past markers and what was aborted.
func (h *host) advanceTo(f *feed) int64 {
	if h.w.broken == positionsTooFar {
		return f.log.stableEnd()
	}
	position, _ := f.log.next(f.position)
	return position
}

// advance tells the node that what lies below the position will never come.
func (h *host) advance(i int) {
	f := &h.feeds[i]
	position := h.advanceTo(f)
	f.told = position
	if h.w.broken != positionsTooFar {
		f.position = position
	}
	h.changed = true
	var err error
	h.out, err = h.node.PositionAdvance(f.log.id, position, h.out[:0])
	h.w.reached("position advance")
	if len(h.out) > 0 {
		h.w.reached("released by a position")
	}
	h.handle(err)
}

// handle runs the logic on what the node delivered, and goes on while there is more.
func (h *host) handle(err error) {
	for {
		if err != nil {
			h.failed(err)
			return
		}
		for i := range h.out {
			if h.fuse == 0 {
				return
			}
			h.fuse--
			h.delivered(&h.out[i])
		}
		if h.fuse == 0 {
			return
		}
		if h.acknowledge(false); !h.up || !h.node.More() || h.w.broken == neverResumes {
			return
		}
		h.w.reached("resumed")
		h.out, err = h.node.Resume(h.out[:0])
	}
}

// delivered judges one delivery and sends what comes of it.
func (h *host) delivered(d *causal.Delivery) {
	r := h.w.logs[d.Channel].slots[d.Offset].record
	if r == nil {
		fail(unreadable, "%s got a marker at %s@%d", h.name, h.w.logs[d.Channel].name, d.Offset)
	}
	want := slices.DeleteFunc(slices.Clone(r.headers), func(x parsley.Header) bool { return parsley.IsProtocolHeader(x.Key) })
	same := slices.EqualFunc(want, d.Headers, func(x, y parsley.Header) bool { return x.Key == y.Key && bytes.Equal(x.Value, y.Value) })
	same = same || h.config.Parity // it loses headers
	if !same || d.Timestamp != r.timestamp || !bytes.Equal(d.Key, r.key) || (d.Key == nil) != (r.key == nil) || !bytes.Equal(d.Value, r.value) {
		fail(changed, "%s got %s with key %x, value %x, %v", h.name, r, d.Key, d.Value, d.Headers)
	}
	h.actor.delivers(r)
	h.w.reached("delivery")
	if h.ticks != "" && r.log.name[:strings.IndexByte(r.log.name, '.')] == h.ticks {
		h.w.reached("tick delivered")
	}
	for _, e := range h.logic(h, d) {
		h.send(e)
	}
}

// send stamps a record and appends it in the transaction of h.
func (h *host) send(e emission) {
	p := h.w.route(e.topic, e.key)
	var s parsley.Stamp
	if err := h.node.Stamp(p.id, &s); err != nil {
		h.failed(err)
		return
	}
	h.w.checkStamp(h, p, &s)
	h.w.damage(h, p, &s)
	headers, _ := s.AppendHeaders(nil, nil)
	if h.w.chance(10) {
		headers = append(headers, parsley.Header{Key: "note", Value: []byte(h.name)})
	}
	r := &record{timestamp: int64(h.w.steps), key: e.key, value: e.value, headers: headers, sender: s.Sender, sequence: s.Sequence}
	h.w.append(&h.tx, p, r)
	h.w.oracle.sent(h.actor, r)
	h.acks = append(h.acks, ack{p.id, s.Sequence, r.offset})
	h.changed = true
	h.w.reached("send")
}

// tick sends a record to the stage itself.
func (h *host) tick() {
	h.ticking--
	h.send(emission{h.ticks, []byte("tick"), []byte{3}})
}
