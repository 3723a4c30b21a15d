package causal

import (
	"slices"

	"github.com/google/uuid"

	"kaas/codec/parsley"
)

// Stamp makes the stamp of a record that is sent to dest next: into claims everything the node has received, all records it
// sent before, and what these claimed. This is the only place where sequences are assigned: what is stamped for a channel
// must be sent to it, in this order, in the transaction in which the node's writes are committed. It never waits.
func (n *Node) Stamp(dest parsley.Channel, into *parsley.Stamp) error {
	if err := n.ready(started, "stamp"); err != nil {
		return err
	}
	s := n.sinkByID[dest]
	if s == nil || !s.has {
		if !n.isSink(dest.Topic) {
			return n.fail("stamp", dest, -1, ErrNotSink)
		}
		s = n.sinkOf(dest)
	}
	if size := n.merged.Size(); size > n.cfg.StampBytes && !n.cfg.Parity {
		return n.fail("stamp", dest, int64(size), ErrStampSize)
	}
	into.Clock.CopyFrom(&n.merged)
	if s.has {
		s.sent++
	} else {
		s.has, s.sent = true, n.base
	}
	into.HasClock, into.Tagged, into.Sender, into.Sequence = true, true, n.cfg.Sender, s.sent
	n.merged.RaiseSequence(parsley.SequenceKey{Channel: dest, Sender: n.cfg.Sender}, s.sent)
	n.touchSink(s)
	n.counts.Stamps++
	return nil
}

func (n *Node) isSink(topic uuid.UUID) bool {
	_, ok := slices.BinarySearchFunc(n.cfg.Sinks, topic, parsley.CompareUUIDs)
	return ok
}

// Acked says that the record that was stamped with sequence for dest lies at offset: from now on stamps claim offsets in
// place of sequences for what was sent before it too. To be called at the acknowledgement, also before the commit: if the
// transaction is aborted the node is made anew. Parity ignores it.
func (n *Node) Acked(dest parsley.Channel, sequence, offset int64) error {
	if err := n.ready(started, "acknowledge"); err != nil || n.cfg.Parity {
		return err
	}
	s := n.sinkByID[dest]
	if s == nil || !s.has || sequence < 0 || sequence > s.sent || offset < 0 {
		return n.fail("acknowledge", dest, offset, ErrInput)
	}
	s.baseline = max(s.baseline, sequence)
	if s.own < offset {
		s.own = offset
		n.merged.RaiseOffset(dest, offset)
	}
	key := parsley.SequenceKey{Channel: dest, Sender: n.cfg.Sender}
	if claimed, ok := n.merged.Sequence(key); ok && claimed <= s.baseline {
		n.merged.RemoveSequence(key)
	}
	return nil
}

// sinkOf finds or makes the state of a sink channel.
func (n *Node) sinkOf(id parsley.Channel) *sink {
	if s := n.sinkByID[id]; s != nil {
		return s
	}
	s := &sink{id: id, baseline: -1, own: -1}
	i, _ := slices.BinarySearchFunc(n.sinks, id, func(s *sink, id parsley.Channel) int { return s.id.Compare(id) })
	n.sinks = slices.Insert(n.sinks, i, s)
	n.sinkByID[id] = s
	return s
}

// mergeStamp takes the claims of a clock into the clock of the next stamp, normalised.
func (n *Node) mergeStamp(clock *parsley.Clock) {
	if len(clock.Sequences()) > 0 {
		n.scratch.CopyFrom(clock)
		n.normalise(&n.scratch)
		clock = &n.scratch
	}
	n.merged.Merge(clock)
}

// normalise replaces sequence claims that the node can say in offsets. What the replaced claim on the own sends says is
// covered by own outputs, which the merged clock has.
func (n *Node) normalise(clock *parsley.Clock) {
	var c *channel
	clock.FilterSequences(func(e parsley.SequenceClaim) bool {
		if e.Key.Sender == n.cfg.Sender {
			return n.keepEcho(e)
		}
		if c == nil || c.id != e.Key.Channel {
			if c = n.byID[e.Key.Channel]; c == nil {
				return true
			}
		}
		i, ok := c.findMark(e.Key.Sender)
		if !ok || c.marks[i].sequence < e.N {
			return true
		}
		clock.RaiseOffset(e.Key.Channel, c.marks[i].mark.offset)
		return false
	})
}

// keepEcho says whether a claim on what this node itself sent must be passed on. Sends of this life have a fresher claim,
// those before are covered by own outputs or carried ancestry. Not covered, so kept, is what this identity sent to a
// channel of which the store knows nothing that high: the store was lost since.
func (n *Node) keepEcho(e parsley.SequenceClaim) bool {
	if n.cfg.Parity {
		return false
	}
	s := n.sinkByID[e.Key.Channel]
	if s == nil {
		return true
	}
	sentSince := s.has && s.sent >= e.N
	seeded := s.own >= 0 && n.isSink(e.Key.Channel.Topic) // by an end offset beyond all that was sent before this life
	return !sentSince && !seeded
}

// rebuild makes the clock of the next stamp anew.
func (n *Node) rebuild() {
	m := &n.merged
	m.Reset()
	for _, c := range n.channels {
		m.RaiseOffset(c.id, c.frontier)
		m.Merge(&c.advertised)
	}
	m.Merge(&n.carried)
	for _, s := range n.sinks {
		m.RaiseOffset(s.id, s.own)
	}
	n.normalise(m)
	for _, s := range n.sinks {
		if s.has && s.sent > s.baseline {
			m.RaiseSequence(parsley.SequenceKey{Channel: s.id, Sender: n.cfg.Sender}, s.sent)
		}
	}
}

// Width is the number of claims that a stamp would have if none were normalised, without self-claims: how much past the
// node carries. It costs as much as building the clock.
func (n *Node) Width() (offsets, sequences int) {
	var m parsley.Clock
	for _, c := range n.channels {
		m.RaiseOffset(c.id, c.frontier)
		m.Merge(&c.advertised)
	}
	m.Merge(&n.carried)
	for _, s := range n.sinks {
		m.RaiseOffset(s.id, s.own)
	}
	return len(m.Offsets()), len(m.Sequences())
}
