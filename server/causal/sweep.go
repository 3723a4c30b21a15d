package causal

import (
	"math"
	"slices"

	"github.com/google/uuid"

	"kaas/codec/parsley"
)

// LogFact is what a host knows of the log of a consumed channel.
type LogFact struct {
	Channel  parsley.Channel
	LogStart int64 // offset of the first record that is still there
	Position int64 // of the next record that will be fetched, −1: there is none to go on from
}

// CheckLogs refuses to go on when retention took what the node still needs: records that it has not read, or log copies of
// records that it holds. To be called between Start and the first record, and in every sweep. A position is compared, not
// the frontier, as offsets that never arrive may lie between.
func (n *Node) CheckLogs(facts []LogFact) error {
	if err := n.ready(started, "check logs"); err != nil {
		return err
	}
	for _, f := range facts {
		c := n.byID[f.Channel]
		switch {
		case c == nil:
			return n.fail("check logs", f.Channel, -1, ErrNotConsumed)
		case c.queue.len() > 0 && f.LogStart > c.head.offset:
			return n.fail("check logs", f.Channel, c.head.offset, ErrHeldLost)
		case c.seen && f.Position < 0:
			return n.fail("check logs", f.Channel, -1, ErrPositionLost)
		case c.seen && f.LogStart > f.Position:
			return n.fail("check logs", f.Channel, f.Position, ErrLost)
		}
	}
	return nil
}

// StampChannels are the channels of the offset claims that the node carries for others, ascending: what a sweep asks log
// starts of.
func (n *Node) StampChannels() []parsley.Channel {
	var list []parsley.Channel
	n.custody(func(clock *parsley.Clock, _ *bool) {
		for _, e := range clock.Offsets() {
			list = append(list, e.Key)
		}
	})
	return sortedUnique(list, parsley.Channel.Compare)
}

// SequenceChannels are those of the sequence claims: what a sweep asks high watermarks of.
func (n *Node) SequenceChannels() []parsley.Channel {
	var list []parsley.Channel
	n.custody(func(clock *parsley.Clock, _ *bool) {
		for _, e := range clock.Sequences() {
			list = append(list, e.Key.Channel)
		}
	})
	return sortedUnique(list, parsley.Channel.Compare)
}

// custody calls fn for the carried ancestry and every advertised clock; fn says through dirty that it must be written.
func (n *Node) custody(fn func(clock *parsley.Clock, dirty *bool)) {
	fn(&n.carried, &n.carriedDirty)
	for _, c := range n.channels {
		if c.advertises {
			if fn(&c.advertised, &c.advertisedDirty); c.advertisedDirty {
				n.touch(c)
			}
		}
	}
}

// TruncateToLogStarts drops the claims that retention made void: those below the log start of their channel, and all on
// topics whose ids are known to be gone for good. A log start that could not be found out must not be in the list; a topic
// counts as destroyed only when that is definite (asked twice, some time apart). Nothing to drop by is no truncation. A log
// start beyond a held record, or a destroyed topic of which a record is held, is refused with ErrHeldLost: others drop their
// claims on it likewise. In parity mode it is not.
func (n *Node) TruncateToLogStarts(starts []Position, destroyed []uuid.UUID) error {
	if err := n.ready(started, "truncate"); err != nil {
		return err
	}
	if err := n.checkDestroyed("truncate", destroyed); err != nil {
		return err
	}
	var bound parsley.Clock
	for _, s := range starts {
		if c := n.byID[s.Channel]; c != nil && c.queue.len() > 0 && s.Offset > c.head.offset && !n.cfg.Parity {
			return n.fail("truncate", s.Channel, c.head.offset, ErrHeldLost)
		}
		if s.Offset > 0 {
			bound.RaiseOffset(s.Channel, s.Offset-1)
		}
	}
	if len(destroyed) > 0 {
		for _, ch := range n.StampChannels() {
			if slices.Contains(destroyed, ch.Topic) {
				bound.RaiseOffset(ch, math.MaxInt64)
			}
		}
	}
	if bound.Empty() {
		return nil
	}
	return n.Truncate(&bound)
}

// checkDestroyed refuses when records of a destroyed topic are held.
func (n *Node) checkDestroyed(what string, destroyed []uuid.UUID) error {
	for _, c := range n.channels {
		if c.queue.len() > 0 && slices.Contains(destroyed, c.id.Topic) && !n.cfg.Parity {
			return n.fail(what, c.id, c.head.offset, ErrHeldLost)
		}
	}
	return nil
}

// Truncate drops every offset claim in custody that bound claims as well, and writes what is left. Sequence claims, frontiers and
// own outputs stay.
func (n *Node) Truncate(bound *parsley.Clock) error {
	if err := n.ready(started, "truncate"); err != nil {
		return err
	}
	n.custody(func(clock *parsley.Clock, dirty *bool) {
		*dirty = true
		clock.FilterOffsets(func(e parsley.OffsetClaim) bool {
			b, ok := bound.Offset(e.Key)
			return !ok || e.N > b
		})
	})
	n.rebuild()
	return nil
}

// UpgradeCustody replaces sequence claims in custody by offset claims below the ends, which are high watermarks asked for
// after the last Receive: what a received record claims was acknowledged before that record was committed. Claims on
// destroyed topics are dropped. Claims of held records stay as they are.
func (n *Node) UpgradeCustody(ends []End, destroyed []uuid.UUID) error {
	if err := n.ready(started, "upgrade custody"); err != nil {
		return err
	}
	if n.cfg.Parity {
		return &Refusal{What: "upgrade custody", Offset: -1, Reason: ErrParity}
	}
	if err := n.checkDestroyed("upgrade custody", destroyed); err != nil {
		return err
	}
	var bound parsley.Clock
	for _, e := range ends {
		if e.Offset < 0 {
			return n.fail("upgrade custody", e.Channel, e.Offset, ErrInput)
		}
		bound.RaiseOffset(e.Channel, e.Offset-1)
	}
	changed := false
	n.custody(func(clock *parsley.Clock, dirty *bool) {
		if clock.FilterSequences(func(e parsley.SequenceClaim) bool {
			if slices.Contains(destroyed, e.Key.Topic) {
				return false
			}
			end, ok := bound.Offset(e.Key.Channel)
			if ok {
				clock.RaiseOffset(e.Key.Channel, end)
			}
			return !ok
		}) {
			*dirty, changed = true, true
		}
	})
	if changed {
		n.rebuild()
	}
	return nil
}

// LookBack is what a scan of a channel for a claimed record found. The watermark is taken after the claiming record
// was received, the scan goes over the committed records from the log start to the watermark, and the log start is asked
// for after the scan.
type LookBack struct {
	Claim parsley.SequenceClaim
	// Found: a record of Claim.Key.Sender with a sequence of at least Claim.N is there; the first such, and where. If its
	// sequence is not Claim.N itself, the claimed record is not there.
	Found    bool
	Sequence int64
	Offset   int64

	Watermark  int64 // high watermark at which the scan ended
	LastStable int64 // last stable offset when the scan began
	LogStart   int64 // after the scan
	Compacted  bool  // records may be missing above the log start too
}

// LookedBack settles a sequence claim that Explain shows as unmet, and whose record the node will perhaps never receive,
// and appends to out what can be delivered now. Found at or below the frontier: the record lies below the baseline, or
// came without a mark; the claim is met. Found above: it is on its way. Not found, or only one that was sent later, in a log
// without compaction whose open transactions below the watermark have ended: retention took it, below every baseline, and the
// claim is met. To wait for the later one could be to wait for ever, as that may wait for this claim's holder. Otherwise
// nothing changes, and the host looks again later.
func (n *Node) LookedBack(l LookBack, out []Delivery) ([]Delivery, error) {
	const what = "look back"
	if err := n.ready(started, what); err != nil {
		return out, err
	}
	ch := l.Claim.Key.Channel
	c := n.byID[ch]
	switch {
	case n.cfg.Parity:
		return out, &Refusal{What: what, Channel: ch, Offset: -1, Reason: ErrParity}
	case c == nil:
		return out, n.fail(what, ch, -1, ErrNotConsumed)
	case l.Claim.N < 0, l.Found && (l.Sequence < l.Claim.N || l.Offset < 0):
		return out, n.fail(what, ch, l.Offset, ErrInput)
	case c.queue.len() > 0 && l.LogStart > c.head.offset:
		return out, n.fail(what, ch, c.head.offset, ErrHeldLost) // the record looked for may be held here
	}
	raised := false
	switch {
	case l.Found && l.Offset <= c.frontier:
		raised = n.raise(c, l.Claim.Key.Sender, l.Sequence, l.Offset)
	case l.Found && l.Sequence == l.Claim.N: // on its way
	case !l.Compacted && l.LastStable >= l.Watermark && l.LogStart > 0:
		raised = n.raise(c, l.Claim.Key.Sender, l.Claim.N, l.LogStart-1)
	}
	if !raised {
		return out, nil
	}
	return n.cascade(out)
}
