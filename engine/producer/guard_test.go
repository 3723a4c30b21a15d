package producer

import (
	"errors"
	"testing"
)

// TestGuard: what was verified before the transaction ended is refused after it, whichever way it ended.
func TestGuard(t *testing.T) {
	var s State
	if err := s.CheckGuard(1, 0, 0, 0); !errors.Is(err, ErrInvalidTxnState) {
		t.Errorf("unverified: %v", err)
	}
	g := s.Begin(1, 0, 0, 10)
	if again := s.Begin(1, 0, 1, 10); again != g || g == 0 {
		t.Errorf("two verifications at once: %d and %d", g, again)
	}
	if err := s.CheckGuard(1, 0, 1, g); !errors.Is(err, ErrOutOfOrderSequence) {
		t.Errorf("the second batch before the first: %v", err)
	}
	if err := s.CheckGuard(1, 0, 0, g); err != nil {
		t.Errorf("verified: %v", err)
	}
	s.Append(1, 0, 0, 0, 5, 1, 10, true)
	if err := s.CheckGuard(1, 0, 1, 0); err != nil {
		t.Errorf("in an open transaction: %v", err)
	}
	if got := s.Begin(1, 0, 1, 10); got != 0 {
		t.Errorf("a guard in an open transaction: %d", got)
	}
	s.Marker(1, 0, 0, 1, 10)
	if err := s.CheckGuard(1, 0, 1, g); !errors.Is(err, ErrInvalidTxnState) {
		t.Errorf("after the transaction: %v", err)
	}
	late := s.Begin(1, 0, 1, 10)
	s.Marker(1, 1, 0, 1, 10) // aborted while the coordinator said yes
	if err := s.CheckGuard(1, 0, 1, late); !errors.Is(err, ErrInvalidTxnState) {
		t.Errorf("the transaction was aborted meanwhile: %v", err)
	}
	if next := s.Begin(1, 1, 0, 10); next == late || next == g {
		t.Errorf("guard %d again", next)
	}
	s.Expire(30, 20)
	if len(s.guards) != 0 || s.Len() != 0 {
		t.Errorf("%d guards and %d producers after their time", len(s.guards), s.Len())
	}
}

// TestGuardNewEpoch: the first batch of a newer epoch is judged by that epoch's sequences.
func TestGuardNewEpoch(t *testing.T) {
	var s State
	s.Begin(1, 0, 3, 10)
	g := s.Begin(1, 1, 7, 10)
	if err := s.CheckGuard(1, 1, 7, g); err != nil {
		t.Error(err)
	}
	if err := s.CheckGuard(1, 1, 8, g); !errors.Is(err, ErrOutOfOrderSequence) {
		t.Error(err)
	}
}
