package causal

import (
	"encoding/hex"
	"errors"
	"slices"
	"testing"

	"kaas/codec/parsley"
)

// TestPhases: what belongs to a started node is refused before the start, and changes nothing.
func TestPhases(t *testing.T) {
	r := newRig(t, nil, a)
	n, err := Open(r.cfg, r.store)
	if err != nil {
		t.Fatal(err)
	}
	_, advance := n.PositionAdvance(a, 1, nil)
	_, resume := n.Resume(nil)
	_, look := n.LookedBack(LookBack{Claim: seq(a, other, 0)}, nil)
	for what, err := range map[string]error{"advance": advance, "resume": resume, "look back": look, "stamp": n.Stamp(sink0, &parsley.Stamp{}),
		"acknowledge": n.Acked(sink0, 0, 0), "check logs": n.CheckLogs(nil), "truncate": n.Truncate(&parsley.Clock{}),
		"sweep": n.TruncateToLogStarts(nil, nil), "upgrade custody": n.UpgradeCustody(nil, nil)} {
		if !errors.Is(err, ErrPhase) || n.Err() != nil {
			t.Errorf("%s before the start: %v", what, err)
		}
	}
	if err := n.Start(r.facts); err != nil {
		t.Error(err)
	}
}

// TestRefusalText: an error says what was done, where, and why.
func TestRefusalText(t *testing.T) {
	for want, r := range map[string]*Refusal{
		"causal: receive 00000000-0000-0000-0000-000000000001:0 at 7: " + ErrNotConsumed.Error(): {"receive", a, 7, ErrNotConsumed},
		"causal: start: " + ErrInput.Error():                                                     {"start", parsley.Channel{}, -1, ErrInput},
	} {
		if r.Error() != want {
			t.Errorf("%q, want %q", r.Error(), want)
		}
	}
}

// TestNotConsumed: of other channels nothing is known.
func TestNotConsumed(t *testing.T) {
	r := newRig(t, nil, a)
	if s, ok := r.Channel(far); ok || s != (ChannelState{}) {
		t.Errorf("state %+v", s)
	}
	if m, ok := r.Mark(parsley.SequenceKey{Channel: far, Sender: other}); ok || m != (parsley.Mark{}) {
		t.Errorf("mark %+v", m)
	}
	if n := r.Covered(far); n != 0 {
		t.Errorf("covered to %d", n)
	}
}

// failing is a store of which one key cannot be read.
type failing struct {
	Memory
	key string
	err error
}

func (f *failing) Get(key []byte) ([]byte, bool, error) {
	if string(key) == f.key {
		return nil, false, f.err
	}
	return f.Memory.Get(key)
}

// TestUnreadable: a value that cannot be read stops the node, wherever that is.
func TestUnreadable(t *testing.T) {
	eio := errors.New("input/output error")
	s := &failing{err: eio}
	cfg := Config{Sender: me, Consumed: []parsley.Channel{a, b}, HeldBytes: -1}
	begin := func() (*Node, error) {
		n, err := Open(cfg, s)
		if err == nil {
			err = n.Start(Facts{})
		}
		return n, err
	}
	n, err := begin()
	for i := range int64(2) {
		if err == nil {
			_, err = n.Receive(a, rec(i, off(b, 0)), nil)
		}
	}
	if err == nil {
		err = n.Commit(nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	key := func(kind parsley.Kind, i int64) string { return parsley.Key{Kind: kind, Channel: a, Index: i}.String() }
	for _, k := range []string{"scope", "ca", key(parsley.KeyQueue, 0), key(parsley.KeyHeld, 0)} {
		s.key = k
		if n, err := begin(); !errors.Is(err, eio) || n != nil && n.Err() != err {
			t.Errorf("%s: %v", k, err)
		}
	}
	s.key = ""
	if _, err := begin(); err != nil {
		t.Errorf("with all values readable again: %v", err)
	}
}

// TestDamagedLater: a held record that cannot be understood when it becomes the head stops the node; nothing of it is delivered.
func TestDamagedLater(t *testing.T) {
	r := newRig(t, nil, a, b)
	r.feed(a, rec(0, off(b, 0)))
	r.feed(a, rec(1, off(b, 0)))
	clear(r.channels[0].queue.pages.items[1][45:])
	out, err := r.Receive(b, rec(0), nil)
	if !errors.Is(err, parsley.ErrCorrupt) || r.Err() != err || r.More() {
		t.Errorf("delivered %v, %v", names(out), err)
	}
}

// TestParityQueue: in parity mode other headers are lost also while held, and records outside of head and tail do not count.
func TestParityQueue(t *testing.T) {
	r := newRig(t, func(r *rig) { r.cfg.Parity = true }, a, b)
	h := rec(3, off(b, 0))
	h.Headers = []parsley.Header{{Key: "x"}}
	r.feed(a, h)
	if len(h.Headers) != 1 {
		t.Error("the caller's record was changed")
	}
	stored := r.store.stored()
	r.store.Put(parsley.Key{Kind: parsley.KeyHeld, Channel: a, Index: 1}.Append(nil), []byte("outside"))
	r.start()
	out, err := r.Receive(b, rec(0), nil)
	if err != nil || !slices.Equal(names(out), []string{"2:0@0", "1:0@3"}) || out[1].Headers != nil {
		t.Errorf("delivered %+v, %v", out, err)
	}
	bare := rec(3, off(b, 0))
	if got := stored[parsley.Key{Kind: parsley.KeyHeld, Channel: a}.String()]; got != hex.EncodeToString(bare.Append(nil)) {
		t.Errorf("held as %s", got)
	}
}

// TestExplainMet: of a head that waits, only what is still missing is told.
func TestExplainMet(t *testing.T) {
	r := newRig(t, nil, a, b, c)
	r.feed(a, rec(0, off(b, 3), off(c, 2)))
	r.feed(c, rec(2), "3:0@2")
	got := r.Explain()
	if len(got) != 1 || len(got[0].Unmet) != 1 || got[0].Unmet[0].Channel != b {
		t.Errorf("explained as %+v", got)
	}
}
