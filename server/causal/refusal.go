package causal

import (
	"errors"
	"fmt"

	"kaas/codec/parsley"
)

// Why a node refuses: each means that going on could break the order, so the task must stop and be looked at. Corrupt
// bytes are a parsley.CorruptError; errors of the store come as they are.
var (
	// ErrNotConsumed: a record or a position of a channel that the node does not consume.
	ErrNotConsumed = errors.New("channel is not consumed")
	// ErrNotSink: a record is to be stamped for a topic that was not declared as a sink.
	ErrNotSink = errors.New("topic is not a declared sink")
	// ErrUnresolved: Start got no end offsets of a declared or former sink, and was not told that it is destroyed.
	ErrUnresolved = errors.New("end offsets of a sink are not known")
	// ErrHeldOnRemoved: a channel that is no longer consumed has held records. Consume it again, or reset the node fully.
	ErrHeldOnRemoved = errors.New("a channel that is no longer consumed has held records")
	// ErrState: the store does not hold what a node of this kind wrote.
	ErrState = errors.New("state of the node is damaged")
	// ErrLost: records were deleted from the log before the node read them.
	ErrLost = errors.New("records were deleted before they were read")
	// ErrPositionLost: nothing says where to read a channel on that the node has read before.
	ErrPositionLost = errors.New("position of a channel that was read before is not known")
	// ErrHeldLost: the log copy of a held record is deleted. Others may have dropped their claims on it, so effects of it
	// may come before it.
	ErrHeldLost = errors.New("a held record was deleted from the log")
	// ErrStampSize: the stamp is larger than Config.StampBytes.
	ErrStampSize = errors.New("stamp is too large")
	// ErrInput: an argument makes no sense (negative offset, a record without a sequence but with a sender, …).
	ErrInput = errors.New("input makes no sense")
	// ErrParity: Config.Parity is set, and the existing implementation cannot do this.
	ErrParity = errors.New("not possible in parity mode")
	// ErrPhase: the call belongs before Start or after it.
	ErrPhase = errors.New("called at the wrong time")
)

// Refusal says what was refused, where, and why. Reason is one of the errors above, or a cause from below.
type Refusal struct {
	What    string          // what was being done: "receive", "stamp", …
	Channel parsley.Channel // zero if no channel is to blame
	Offset  int64           // offset, position or index that is to blame, −1 if none
	Reason  error
}

func (r *Refusal) Error() string {
	s := "causal: " + r.What
	if r.Channel != (parsley.Channel{}) {
		s += " " + r.Channel.String()
	}
	if r.Offset >= 0 {
		s += fmt.Sprintf(" at %d", r.Offset)
	}
	return s + ": " + r.Reason.Error()
}

// Unwrap gives the reason.
func (r *Refusal) Unwrap() error { return r.Reason }

// fail makes the node refuse everything from now on: its memory may be ahead of or behind what a host believes.
func (n *Node) fail(what string, ch parsley.Channel, offset int64, reason error) error {
	n.err = &Refusal{What: what, Channel: ch, Offset: offset, Reason: reason}
	return n.err
}
