package causal

import (
	"bytes"
	"slices"

	"github.com/google/uuid"

	"kaas/codec/parsley"
)

// former is what the store says of the life before, from Open until Start.
type former struct {
	scope    *parsley.Scope               // nil: the store is fresh
	channels map[parsley.Channel]*channel // those of the scope that are not consumed any more
}

// Open reads the state of a node. Nothing is written; Start comes next.
func Open(cfg Config, store Store) (*Node, error) {
	n := newNode(cfg, store)
	n.agenda.at = outside
	n.former.channels = map[parsley.Channel]*channel{}
	if b, ok, err := store.Get(parsley.Key{Kind: parsley.KeyScope}.Append(nil)); err != nil {
		return nil, n.fail("open", parsley.Channel{}, -1, err)
	} else if ok {
		n.former.scope = &parsley.Scope{}
		if err := n.former.scope.Decode(b, n.rules); err != nil {
			return nil, n.fail("open", parsley.Channel{}, -1, err)
		}
	}
	if b, ok, err := store.Get(parsley.Key{Kind: parsley.KeyCarried}.Append(nil)); err != nil {
		return nil, n.fail("open", parsley.Channel{}, -1, err)
	} else if ok {
		if err := n.carried.Decode(b, n.rules); err != nil {
			return nil, n.fail("open", parsley.Channel{}, -1, err)
		}
	}
	r := restorer{n: n}
	for _, prefix := range []string{parsley.PrefixSent, parsley.PrefixFrontier, parsley.PrefixAdvertised, parsley.PrefixMark, parsley.PrefixQueue} {
		if err := store.Scan([]byte(prefix), r.entry); err != nil {
			return nil, n.fail("open", r.key.Channel, -1, err)
		}
		if r.queue != nil {
			return nil, n.fail("open", r.queue.id, -1, ErrState) // entries, and nothing that says which of them count
		}
	}
	return n, nil
}

// restorer puts what the store has into the node.
type restorer struct {
	n     *Node
	key   parsley.Key
	queue *channel // whose held records come now, until q/…/m
	next  int64    // the index that must come next
	held  parsley.Held
}

func (r *restorer) entry(key, value []byte) (err error) {
	if r.key, err = parsley.ParseKey(key); err != nil {
		return err
	}
	n, id := r.n, r.key.Channel
	if r.key.Kind == parsley.KeySent {
		s := n.sinkOf(id)
		s.sent, err = parsley.DecodeSent(value, n.rules)
		s.has, s.baseline = true, s.sent
		return err
	}
	c := r.channel(id)
	if c == nil {
		return ErrState
	}
	switch r.key.Kind {
	case parsley.KeyFrontier:
		c.frontier, err = parsley.DecodeFrontier(value, n.rules)
		c.seen = true
	case parsley.KeyAdvertised:
		c.advertises = true
		err = c.advertised.Decode(value, n.rules)
	case parsley.KeyMark:
		var v parsley.Mark
		v, err = parsley.DecodeMark(value, n.rules)
		e := c.markOf(r.key.Sender)
		e.sequence, e.mark.sequence, e.mark.offset = v.Sequence, v.Sequence, v.Offset
	case parsley.KeyHeld:
		err = r.record(c, value)
	case parsley.KeyQueue:
		err = r.meta(c)
	}
	return err
}

// channel finds the state for a channel of the life before; nil: it had no such channel.
func (r *restorer) channel(id parsley.Channel) *channel {
	f := &r.n.former
	if !r.n.cfg.Parity {
		if f.scope == nil {
			return nil
		}
		if _, ok := slices.BinarySearchFunc(f.scope.Channels, id, parsley.Channel.Compare); !ok {
			return nil
		}
	}
	if c := r.n.byID[id]; c != nil {
		return c
	}
	c := f.channels[id]
	if c == nil {
		c = newChannel(id, -1, &row{})
		f.channels[id] = c
	}
	return c
}

// begin reads head and tail of the queue of c, which sort after its records.
func (r *restorer) begin(c *channel) error {
	b, ok, err := r.n.store.Get(parsley.Key{Kind: parsley.KeyQueue, Channel: c.id}.Append(nil))
	if err != nil {
		return err
	}
	if !ok {
		return ErrState
	}
	v, err := parsley.DecodeQueue(b, r.n.rules)
	if err != nil {
		return err
	}
	q := &c.queue
	q.head, q.tail, q.diskHead, q.diskEnd = v.Head, v.Tail, v.Head, v.Tail
	r.queue, r.next = c, v.Head
	return nil
}

// record checks one held record and keeps it in memory while there is room.
func (r *restorer) record(c *channel, value []byte) error {
	if r.queue != c {
		if r.queue != nil {
			return ErrState
		}
		if err := r.begin(c); err != nil {
			return err
		}
	}
	n, q := r.n, &c.queue
	if n.cfg.Parity && (r.key.Index < q.head || r.key.Index >= q.tail) {
		return nil
	}
	if r.key.Index != r.next || r.next >= q.tail {
		return ErrState
	}
	if err := r.held.Decode(value, n.rules); err != nil {
		return err
	}
	if r.held.Offset <= q.last && !n.cfg.Parity {
		return ErrState
	}
	if q.last, c.seen = r.held.Offset, true; int64(q.pages.len()) == r.next-q.head && n.memory+int64(len(value)) <= n.cfg.HeldBytes {
		q.pages.push(bytes.Clone(value))
		n.memory += int64(len(value))
	}
	r.next++
	return nil
}

// meta ends the queue of c: all its records must have come.
func (r *restorer) meta(c *channel) error {
	if r.queue != c {
		if err := r.begin(c); err != nil {
			return err
		}
	}
	r.queue = nil
	if r.next != c.queue.tail {
		return ErrState
	}
	return nil
}

// End is the end of a channel: the offset that the next record will get.
type End struct {
	Channel parsley.Channel
	Offset  int64
}

// Facts are what a host finds out before Start.
type Facts struct {
	// Ends has the high watermark (not the last stable offset) of every partition of every declared sink, and of every one of
	// FormerSinks that exists, by topic id. Asked for after all earlier lives of this node are over (fenced).
	Ends []End
	// Destroyed has those of FormerSinks whose id is known to be gone for good.
	Destroyed []uuid.UUID
	// SequenceBase is where sequences begin on channels for which the store has none. It must be larger than all that was ever used
	// by this identity, as the store may be a fresh one in place of one that was lost: nanoseconds since 1970. Parity ignores it.
	SequenceBase int64
}

// FormerSinks are the topics that the node was allowed to send to in its life before and is no more.
func (n *Node) FormerSinks() []uuid.UUID {
	var list []uuid.UUID
	if n.former.scope != nil {
		for _, id := range n.former.scope.Sinks {
			if !n.isSink(id) {
				list = append(list, id)
			}
		}
	}
	return list
}

// Start begins the life of the node: it takes the ends of what was sent before as claims, carries over what was known about
// channels and sinks that went, and begins new channels above what is already in its past. Flush what it wrote before
// anything is sent, then feed each channel from ResumePositions. More may be true after it.
func (n *Node) Start(f Facts) error {
	if err := n.ready(opened, "start"); err != nil {
		return err
	}
	if f.SequenceBase < 0 {
		return n.fail("start", parsley.Channel{}, f.SequenceBase, ErrInput)
	}
	if !n.cfg.Parity {
		n.base = f.SequenceBase
	}
	if err := n.takeEnds(&f); err != nil {
		return err
	}
	if n.former.scope != nil {
		if err := n.shrink(); err != nil {
			return err
		}
		n.grow()
	}
	n.rebuild()
	n.scopeDirty, n.former.channels = true, nil
	n.phase = started
	for _, c := range n.channels {
		if err := n.loadHead(c); err != nil {
			return err
		}
		if c.queue.len() > 0 && (c.head.met() || c.head.offset-1 > c.frontier) {
			n.agenda.add(c)
		}
	}
	return nil
}

// takeEnds seeds own outputs and carried ancestry with the ends of declared and former sinks.
func (n *Node) takeEnds(f *Facts) error {
	resolved := map[uuid.UUID]bool{}
	formerSinks := n.FormerSinks()
	for _, e := range f.Ends {
		declared := n.isSink(e.Channel.Topic)
		if e.Offset < 0 || !declared && !slices.Contains(formerSinks, e.Channel.Topic) {
			return n.fail("start", e.Channel, e.Offset, ErrInput)
		}
		resolved[e.Channel.Topic] = true
		switch {
		case e.Offset == 0:
		case declared:
			s := n.sinkOf(e.Channel)
			s.own = max(s.own, e.Offset-1)
		default:
			n.carriedDirty = n.carried.RaiseOffset(e.Channel, e.Offset-1) || n.carriedDirty
		}
	}
	for _, id := range n.cfg.Sinks {
		if !resolved[id] {
			return n.fail("start", parsley.Channel{Topic: id}, -1, ErrUnresolved)
		}
	}
	for _, id := range formerSinks {
		if !resolved[id] && !slices.Contains(f.Destroyed, id) {
			return n.fail("start", parsley.Channel{Topic: id}, -1, ErrUnresolved)
		}
	}
	return nil
}

// shrink moves what is known of channels that are no longer consumed into the carried ancestry.
func (n *Node) shrink() error {
	for _, id := range n.former.scope.Channels {
		if n.byID[id] != nil {
			continue
		}
		n.carriedDirty = true
		keys := []parsley.Key{{Kind: parsley.KeyFrontier}, {Kind: parsley.KeyAdvertised}, {Kind: parsley.KeyQueue}}
		if c := n.former.channels[id]; c != nil {
			if c.queue.len() > 0 {
				return n.fail("start", id, c.queue.head, ErrHeldOnRemoved)
			}
			n.carried.RaiseOffset(id, c.frontier)
			n.carried.Merge(&c.advertised)
			for _, e := range c.marks {
				keys = append(keys, parsley.Key{Kind: parsley.KeyMark, Sender: e.sender})
			}
		}
		for _, k := range keys {
			k.Channel = id
			n.removed = append(n.removed, k.Append(nil))
		}
	}
	return nil
}

// grow begins the channels that were not consumed before above what the node has in its past of them.
func (n *Node) grow() {
	for _, c := range n.channels {
		if _, ok := slices.BinarySearchFunc(n.former.scope.Channels, c.id, parsley.Channel.Compare); ok {
			continue
		}
		v := c.frontier
		raise := func(clock *parsley.Clock) {
			if claimed, ok := clock.Offset(c.id); ok {
				v = max(v, claimed)
			}
		}
		raise(&n.carried)
		for _, d := range n.channels {
			raise(&d.advertised)
		}
		if s := n.sinkByID[c.id]; s != nil {
			v = max(v, s.own)
		}
		if v >= 0 {
			c.frontier, c.resume, c.frontierDirty = v, v+1, true
			n.touch(c)
		}
	}
}

// Position is where a channel is to be read on, or was read up to.
type Position struct {
	Channel parsley.Channel
	Offset  int64 // of the next record
}

// ResumePositions are the channels that begin in this life above what the node has in its past: feeding them from below
// would be skipped. For others the committed position governs.
func (n *Node) ResumePositions() (list []Position) {
	for _, c := range n.channels {
		if c.resume >= 0 {
			list = append(list, Position{c.id, c.resume})
		}
	}
	return list
}

// Covered is the lowest offset from which a channel can be fed without losing a record; everything below was
// delivered, is held, or lies below the baseline. 0: the channel was never fed.
func (n *Node) Covered(ch parsley.Channel) int64 {
	c := n.byID[ch]
	if c == nil {
		return 0
	}
	return max(c.frontier, c.queue.last) + 1
}
