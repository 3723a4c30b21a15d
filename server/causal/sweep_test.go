package causal

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"kaas/codec/parsley"
)

// TestCheckLogs: retention that took what was not read, or the log copy of what is held, stops the node.
func TestCheckLogs(t *testing.T) {
	for name, tc := range map[string]struct {
		fact   LogFact
		reason error
	}{
		"nothing deleted":                       {LogFact{a, 0, 6}, nil},
		"deleted up to the position":            {LogFact{a, 6, 6}, nil},
		"markers between frontier and position": {LogFact{a, 9, 9}, nil},
		"unread":                                {LogFact{a, 7, 6}, ErrLost},
		"no position":                           {LogFact{a, 0, -1}, ErrPositionLost},
		"up to the held head":                   {LogFact{b, 4, 8}, nil},
		"the held head":                         {LogFact{b, 5, 8}, ErrHeldLost},
		"never read":                            {LogFact{c, 100, 0}, nil},
		"never read, no position":               {LogFact{c, 100, -1}, nil},
	} {
		for _, restart := range []bool{false, true} {
			r := newRig(t, nil, a, b, c)
			r.feed(a, rec(5), "1:0@5")
			r.feed(b, rec(4, off(c, 0)))
			if restart {
				r.start()
			}
			if err := r.CheckLogs([]LogFact{{a, 0, 6}, tc.fact}); !errors.Is(err, tc.reason) {
				t.Errorf("%s, restart %v: %v, want %v", name, restart, err, tc.reason)
			}
		}
	}
}

// TestCheckLogsAfterPosition: a channel of which only a position was reported was read, too.
func TestCheckLogsAfterPosition(t *testing.T) {
	r := newRig(t, nil, a, b)
	r.pass(a, 6)
	if err := r.CheckLogs([]LogFact{{a, 6, 6}, {b, 5, 0}}); err != nil {
		t.Error(err)
	}
	if err := r.CheckLogs([]LogFact{{a, 7, 6}}); !errors.Is(err, ErrLost) {
		t.Errorf("unread records deleted: %v", err)
	}
}

// TestTruncateHeld: others must not drop claims on what is held here, and neither does the node.
func TestTruncateHeld(t *testing.T) {
	r := newRig(t, nil, a, b)
	r.feed(a, rec(4, off(b, 0), off(far, 1)))
	if err := r.TruncateToLogStarts([]Position{{far, 2}, {a, 4}}, nil); err != nil {
		t.Fatal(err)
	}
	r.send(sink0, 0, off(a, 3), off(b, 0))
	if err := r.TruncateToLogStarts([]Position{{a, 5}}, nil); !errors.Is(err, ErrHeldLost) {
		t.Errorf("truncated beyond a held record: %v", err)
	}
	r.start()
	if err := r.TruncateToLogStarts(nil, []uuid.UUID{b.Topic}); err != nil {
		t.Fatal(err)
	}
	if err := r.TruncateToLogStarts(nil, []uuid.UUID{far.Topic, a.Topic}); !errors.Is(err, ErrHeldLost) {
		t.Errorf("the topic of a held record is destroyed: %v", err)
	}
	r.start()
	if err := r.UpgradeCustody(nil, []uuid.UUID{a.Topic}); !errors.Is(err, ErrHeldLost) {
		t.Errorf("the topic of a held record is destroyed: %v", err)
	}
}

// TestLookBack: a claimed record that the node will never receive is found, or is known to be gone.
func TestLookBack(t *testing.T) {
	claim := seq(a, other, 5)
	for name, tc := range map[string]struct {
		look   LookBack
		met    bool
		mark   parsley.Mark
		reason error
	}{
		"below the frontier": {look: LookBack{Found: true, Sequence: 6, Offset: 7}, met: true, mark: parsley.Mark{Sequence: 6, Offset: 7}},
		"at the frontier":    {look: LookBack{Found: true, Sequence: 5, Offset: 10}, met: true, mark: parsley.Mark{Sequence: 5, Offset: 10}},
		"above":              {look: LookBack{Found: true, Sequence: 5, Offset: 11}},
		"found too early":    {look: LookBack{Found: true, Sequence: 4, Offset: 7}, reason: ErrInput},
		"found nowhere":      {look: LookBack{Found: true, Sequence: 5, Offset: -1}, reason: ErrInput},
		"deleted":            {look: LookBack{Watermark: 20, LastStable: 20, LogStart: 8}, met: true, mark: parsley.Mark{Sequence: 5, Offset: 7}},
		"a later one above":  {look: LookBack{Found: true, Sequence: 6, Offset: 11, Watermark: 20, LastStable: 20, LogStart: 8}, met: true, mark: parsley.Mark{Sequence: 5, Offset: 7}},
		"later, may be open": {look: LookBack{Found: true, Sequence: 6, Offset: 11, Watermark: 20, LastStable: 19, LogStart: 8}},
		"later, compacted":   {look: LookBack{Found: true, Sequence: 6, Offset: 11, Watermark: 20, LastStable: 20, LogStart: 8, Compacted: true}},
		"it and log start":   {look: LookBack{Found: true, Sequence: 5, Offset: 11, Watermark: 20, LastStable: 20, LogStart: 8}},
		"open transaction":   {look: LookBack{Watermark: 20, LastStable: 19, LogStart: 8}},
		"compacted":          {look: LookBack{Watermark: 20, LastStable: 20, LogStart: 8, Compacted: true}},
		"nothing deleted":    {look: LookBack{Watermark: 20, LastStable: 20}},
	} {
		r := newRig(t, nil, a, b)
		r.feed(a, rec(10), "1:0@10")
		r.feed(b, rec(0, claim))
		tc.look.Claim = claim
		out, err := r.LookedBack(tc.look, nil)
		if !errors.Is(err, tc.reason) || (len(out) == 1) != tc.met {
			t.Errorf("%s: delivered %v, %v", name, names(out), err)
		}
		if err != nil {
			continue
		}
		r.check(nil, nil, nil)
		r.start()
		if m, ok := r.Mark(parsley.SequenceKey{Channel: a, Sender: other}); ok != tc.met || m != tc.mark {
			t.Errorf("%s: mark %v %v", name, m, ok)
		}
		if held := len(r.Explain()); (held == 0) != tc.met {
			t.Errorf("%s: %d held", name, held)
		}
	}
}

// TestLookBackStamp: the claim on a deleted record becomes one on all that was deleted, as where it lay is not known.
func TestLookBackStamp(t *testing.T) {
	r := newRig(t, nil, a, b)
	r.feed(a, rec(10), "1:0@10")
	r.feed(b, rec(0, seq(a, other, 5)))
	out, err := r.LookedBack(LookBack{Claim: seq(a, other, 5), Watermark: 20, LastStable: 20, LogStart: 15}, nil)
	r.check(out, err, []string{"2:0@0"})
	r.send(sink0, 0, off(a, 14), off(b, 0))
	r.truncated()
	r.send(sink0, 1, off(a, 14), off(b, 0), seq(sink0, me, 0))
}

// TestLookBackHeld: what is looked for may be held here, its log copy deleted.
func TestLookBackHeld(t *testing.T) {
	r := newRig(t, nil, a, b, c)
	r.feed(a, tagged(10, other, 5, off(c, 0)))
	r.feed(b, rec(0, seq(a, other, 5)))
	if _, err := r.LookedBack(LookBack{Claim: seq(a, other, 5), Watermark: 20, LastStable: 20, LogStart: 11}, nil); !errors.Is(err, ErrHeldLost) {
		t.Errorf("looked back over a held record: %v", err)
	}
}

// TestParityRefuses what the existing implementation does not have, and goes on.
func TestParityRefuses(t *testing.T) {
	r := newRig(t, func(r *rig) { r.cfg.Parity = true }, a)
	_, err := r.LookedBack(LookBack{Claim: seq(a, other, 5)}, nil)
	for what, err := range map[string]error{"look back": err, "upgrade custody": r.UpgradeCustody(nil, nil)} {
		if !errors.Is(err, ErrParity) {
			t.Errorf("%s: %v", what, err)
		}
	}
	r.send(sink0, 0)
	if err := r.Acked(sink0, 0, 3); err != nil {
		t.Error(err)
	}
	r.send(sink0, 1, seq(sink0, me, 0))
	h := rec(0)
	h.Headers = []parsley.Header{{Key: "x"}}
	out, err := r.Receive(a, h, nil)
	if err != nil || len(out) != 1 || out[0].Headers != nil {
		t.Errorf("delivered %+v, %v", out, err)
	}
}
