package producer

import "math"

// Guard names a verification under way: the broker asks the transaction coordinator whether a producer's transaction includes this log,
// before its first batch there is appended (KIP-890). 0: none is needed.
type Guard int64

// guard is one producer's verification. It ends with the first batch of the transaction, or with its marker; whoever still holds it then
// comes too late.
type guard struct {
	number Guard
	epoch  int16
	lowest int32 // of the sequences that were to be verified in this epoch: no other begins
	seen   int64 // wall clock, milliseconds
}

// Begin begins the verification of a batch, or joins the one that is under way. It returns 0 if the transaction is open here: nothing is to be
// verified.
func (s *State) Begin(id int64, epoch int16, first int32, now int64) Guard {
	if e := s.m[id]; e != nil && e.TxnFirst >= 0 {
		return 0
	}
	g := s.guards[id]
	if g == nil {
		if s.guards == nil {
			s.guards = make(map[int64]*guard)
		}
		s.guard++
		g = &guard{number: Guard(s.guard), epoch: epoch, lowest: math.MaxInt32}
		s.guards[id] = g
	}
	g.seen = now
	switch {
	case epoch > g.epoch:
		g.epoch, g.lowest = epoch, first
	case epoch == g.epoch:
		g.lowest = min(g.lowest, first)
	}
	return g.number
}

// CheckGuard judges a transactional batch that is no repeat: it must be of the transaction that is open here, or begin one that was verified.
// A batch that does not begin it must not overtake the one that does: that one failed and is sent again.
func (s *State) CheckGuard(id int64, epoch int16, first int32, by Guard) error {
	e := s.m[id]
	if e != nil && e.TxnFirst >= 0 {
		return nil
	}
	g := s.guards[id]
	if g == nil || g.number != by {
		return ErrInvalidTxnState
	}
	if e == nil && epoch == g.epoch && first > g.lowest {
		return ErrOutOfOrderSequence
	}
	return nil
}
