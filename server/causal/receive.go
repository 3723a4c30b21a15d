package causal

import "kaas/codec/parsley"

// Receive takes the next record of a channel, and appends to out what can be delivered now, in the order in which the host
// must handle it. Offsets of a channel ascend; what was received before may come again and is skipped. r and what it refers to must
// stay as they are until the deliveries are handled; r.Headers may hold protocol headers, which are left out of what is held.
//
// A record's deliveries are all found before the first is handled, so a stamp made while handling one claims them all.
func (n *Node) Receive(ch parsley.Channel, r *parsley.Held, out []Delivery) ([]Delivery, error) {
	if err := n.ready(started, "receive"); err != nil {
		return out, err
	}
	c := n.consumed(ch)
	if c == nil {
		return out, n.fail("receive", ch, r.Offset, ErrNotConsumed)
	}
	if r.Offset < 0 || r.Tagged && r.Sequence < 0 && !n.cfg.Parity {
		return out, n.fail("receive", ch, r.Offset, ErrInput)
	}
	c.seen = true
	if r.Offset <= c.frontier || r.Offset <= c.queue.last && !n.cfg.Parity {
		return n.replay(c, r, out)
	}
	c.known = max(c.known, r.Offset)
	if c.queue.len() == 0 {
		n.advance(c, r.Offset-1) // first sighting, or a run of offsets that never arrive
	}
	if !r.Clock.Empty() {
		n.advertise(c, &r.Clock)
	}
	c.known = max(c.known, r.Offset+1)
	if c.queue.len() == 0 && n.agenda.empty() {
		n.needs = n.unmet(n.needs[:0], c, &r.Clock)
		if len(n.needs) == 0 {
			return n.pass(c, r, out)
		}
	}
	if n.cfg.Parity && len(r.Headers) > 0 {
		bare := *r
		bare.Headers = nil
		r = &bare
	}
	if err := n.enqueue(c, r); err != nil {
		return out, err
	}
	return n.cascade(out)
}

// replay is a record that was delivered or queued before. Of what was delivered it is still good to know who sent it: the
// mark may be missing, after a channel came back or when its first life began above.
func (n *Node) replay(c *channel, r *parsley.Held, out []Delivery) ([]Delivery, error) {
	n.replays++
	if n.cfg.Parity || !r.Tagged || r.Offset > c.frontier {
		return out, nil
	}
	if !n.raise(c, r.Sender, r.Sequence, r.Offset) {
		return out, nil
	}
	return n.cascade(out)
}

// advertise folds a clock into that of its channel.
func (n *Node) advertise(c *channel, clock *parsley.Clock) {
	if !c.advertised.Merge(clock) && c.advertises {
		return
	}
	c.advertises, c.advertisedDirty = true, true
	n.touch(c)
	n.mergeStamp(clock)
}

// pass delivers a record on arrival, past its empty queue, which it would only have been put into and taken out of: it uses
// up an index all the same.
func (n *Node) pass(c *channel, r *parsley.Held, out []Delivery) ([]Delivery, error) {
	q := &c.queue
	q.head++
	q.tail++
	q.dirty = true
	if !n.cfg.Parity {
		q.last = r.Offset
	}
	n.touch(c)
	n.agenda.at = c.index // this is its turn: those behind come in this pass
	d := Delivery{Channel: c.id, Offset: r.Offset, Timestamp: r.Timestamp, Key: r.Key, Value: r.Value}
	if !n.cfg.Parity && len(r.Headers) > 0 {
		d.Headers = bareHeaders(r.Headers)
	}
	n.delivered(c, r.Offset)
	if r.Tagged {
		n.raise(c, r.Sender, r.Sequence, r.Offset)
	}
	n.fold(c)
	return n.cascade(append(out, d))
}

// bareHeaders are hs without those of the protocol.
func bareHeaders(hs []parsley.Header) []parsley.Header {
	for i := range hs {
		if !parsley.IsProtocolHeader(hs[i].Key) {
			continue
		}
		bare := append([]parsley.Header(nil), hs[:i]...)
		for _, h := range hs[i+1:] {
			if !parsley.IsProtocolHeader(h.Key) {
				bare = append(bare, h)
			}
		}
		return bare
	}
	return hs
}

// PositionAdvance says that everything on ch below position was given to Receive or will never arrive: the position of a
// consumer, when all that it returned was received. It appends to out what can be delivered now. With held records on ch
// it is remembered until they are gone.
func (n *Node) PositionAdvance(ch parsley.Channel, position int64, out []Delivery) ([]Delivery, error) {
	if err := n.ready(started, "advance"); err != nil {
		return out, err
	}
	c := n.consumed(ch)
	if c == nil {
		return out, n.fail("advance", ch, position, ErrNotConsumed)
	}
	if position < 0 {
		return out, n.fail("advance", ch, position, ErrInput)
	}
	c.known = max(c.known, position)
	c.seen = c.seen || position > 0
	if c.queue.len() > 0 || position-1 <= c.frontier {
		return out, nil
	}
	n.advance(c, position-1)
	return n.cascade(out)
}
