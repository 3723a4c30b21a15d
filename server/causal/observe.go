package causal

import (
	"slices"

	"github.com/google/uuid"

	"kaas/codec/parsley"
)

// Diagnosis says in one word why a claim is not met.
type Diagnosis string

// The diagnoses; their names are those of the existing implementation.
const (
	SenderUnseen Diagnosis = "vc-hold-sender-unseen" // nothing of that sender was delivered on that channel
	SenderBehind Diagnosis = "vc-hold-sender-behind" // something, but not enough
	NotFetched   Diagnosis = "vc-hold-not-fetched"   // the position has not passed the claimed offset
	HeldUpstream Diagnosis = "vc-hold-held-upstream" // fetched, and waiting itself
)

// Unmet is a claim that a held head waits for.
type Unmet struct {
	Channel   parsley.Channel
	Sequenced bool      // a claim on a sequence of Sender, else on an offset
	Sender    uuid.UUID // if Sequenced
	Claimed   int64     // offset or sequence
	Frontier  int64     // of the node on that channel, −1: nothing
	Position  int64     // everything below was fetched or will never come
	Delivered int64     // if Sequenced: highest delivered sequence, −1: none
}

// Diagnosis is that of the claim.
func (u Unmet) Diagnosis() Diagnosis {
	switch {
	case u.Sequenced && u.Delivered < 0:
		return SenderUnseen
	case u.Sequenced:
		return SenderBehind
	case u.Position <= u.Claimed:
		return NotFetched
	}
	return HeldUpstream
}

// Blocked is a queue whose head has to wait.
type Blocked struct {
	Channel parsley.Channel
	Offset  int64 // of the head
	Depth   int64 // records in the queue
	Unmet   []Unmet
}

// Explain says for each channel, ascending, why its head is not delivered. Queues whose head has nothing to wait for (see
// More) are left out.
func (n *Node) Explain() (list []Blocked) {
	for _, c := range n.channels {
		if c.queue.len() == 0 || c.head.met() {
			continue
		}
		b := Blocked{Channel: c.id, Offset: c.head.offset, Depth: c.queue.len()}
		for _, w := range c.head.needs[c.head.next:] {
			if w.met() {
				continue
			}
			u := Unmet{Channel: w.on.id, Claimed: w.n, Frontier: w.on.frontier, Position: w.on.known, Delivered: -1}
			if w.mark != nil {
				u.Sequenced, u.Sender = true, w.mark.sender
				if w.mark.sequence != unseen {
					u.Delivered = w.mark.sequence
				}
			}
			b.Unmet = append(b.Unmet, u)
		}
		list = append(list, b)
	}
	return list
}

// ChannelState is where a node stands on a consumed channel. A host may stop fetching a channel of which much is held: what its
// head waits for never comes on that channel itself.
type ChannelState struct {
	Channel  parsley.Channel
	Frontier int64 // everything at or below is delivered or never was to be; −1: nothing
	Position int64 // everything below was received or will never arrive, as far as the node was told
	Held     int64 // records received and not delivered
	Head     int64 // offset of the first of them, −1: none
}

// Channels are the states of the consumed channels, ascending.
func (n *Node) Channels() []ChannelState {
	list := make([]ChannelState, 0, len(n.channels))
	for _, c := range n.channels {
		list = append(list, n.state(c))
	}
	return list
}

// Channel is the state of one consumed channel; false: it is not consumed.
func (n *Node) Channel(ch parsley.Channel) (ChannelState, bool) {
	c := n.byID[ch]
	if c == nil {
		return ChannelState{}, false
	}
	return n.state(c), true
}

func (n *Node) state(c *channel) ChannelState {
	s := ChannelState{Channel: c.id, Frontier: c.frontier, Position: c.known, Held: c.queue.len(), Head: -1}
	if s.Held > 0 {
		s.Head = c.head.offset
	}
	return s
}

// Mark is the highest delivered sequence of a sender on a consumed channel, and at which offset; false: none.
func (n *Node) Mark(k parsley.SequenceKey) (parsley.Mark, bool) {
	c := n.byID[k.Channel]
	if c == nil {
		return parsley.Mark{}, false
	}
	i, ok := c.findMark(k.Sender)
	if !ok || c.marks[i].sequence == unseen {
		return parsley.Mark{}, false
	}
	return parsley.Mark{Sequence: c.marks[i].sequence, Offset: c.marks[i].mark.offset}, true
}

// Replays is how many records were skipped because they had been received before.
func (n *Node) Replays() int64 { return n.replays }

// Consumed are the channels of the node, ascending.
func (n *Node) Consumed() []parsley.Channel { return slices.Clone(n.ids) }

// Err is why the node refuses everything; nil: it does not.
func (n *Node) Err() error { return n.err }
