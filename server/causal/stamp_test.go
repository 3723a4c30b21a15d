package causal

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/uuid"

	"kaas/codec/parsley"
)

var sink0, sink1, sink2 = ch(30, 0), ch(30, 1), ch(31, 0)

// TestStamp: frontiers, clocks of all that was received (held records too), own sends; never the record itself.
func TestStamp(t *testing.T) {
	r := newRig(t, nil, a, b)
	r.send(sink0, 0)
	r.feed(a, rec(3, off(far, 4), seq(far, other, 2)), "1:0@3")
	r.send(sink0, 1, off(a, 3), off(far, 4), seq(far, other, 2), seq(sink0, me, 0))
	r.feed(b, rec(0, off(a, 9), off(far, 1)))
	r.send(sink2, 0, off(a, 9), off(far, 4), seq(far, other, 2), seq(sink0, me, 1))
	r.send(sink2, 1, off(a, 9), off(far, 4), seq(far, other, 2), seq(sink0, me, 1), seq(sink2, me, 0))
	if o, s := r.Width(); o != 2 || s != 1 {
		t.Errorf("width %d, %d", o, s)
	}
}

// TestNormalise: a claim of another sender becomes an offset exactly when its sequence is delivered, and not before; one of
// a sender that is not known travels on.
func TestNormalise(t *testing.T) {
	r := newRig(t, nil, a, b)
	r.feed(a, tagged(5, other, 3), "1:0@5")
	r.feed(b, rec(0, seq(a, other, 3), seq(a, third, 0)))
	r.send(sink0, 0, off(a, 5), seq(a, third, 0))
	r.feed(b, rec(1, seq(a, other, 4)))
	r.send(sink0, 1, off(a, 5), seq(a, third, 0), seq(a, other, 4), seq(sink0, me, 0))
	r.feed(a, tagged(8, other, 4), "1:0@8")
	r.send(sink0, 2, off(a, 8), seq(a, third, 0), seq(sink0, me, 1))
	r.start()
	r.send(sink0, 3, off(a, 8), seq(a, third, 0)) // the same, built from the store; own sends are covered by the ends, of which there are none
	r.feed(a, tagged(9, third, 1), "1:0@9", "2:0@0", "2:0@1")
	r.send(sink0, 4, off(a, 9), off(b, 1), seq(sink0, me, 3))
}

// TestOwnOutputs: what earlier lives sent is claimed by the end of the sinks (the high watermark, whatever it is).
func TestOwnOutputs(t *testing.T) {
	r := newRig(t, nil, a)
	r.send(sink0, 0)
	r.send(sink0, 1, seq(sink0, me, 0))
	r.ends(sink0, 9)
	r.ends(sink1, 1)
	r.start()
	r.send(sink2, 0, off(sink0, 8), off(sink1, 0))
	r.send(sink0, 2, off(sink0, 8), off(sink1, 0), seq(sink2, me, 0))
	// Echoes: of an earlier life (covered by the end), and of this one (covered by the fresher claim on sink0).
	r.feed(a, rec(0, seq(sink0, me, 1), seq(sink2, me, 0)), "1:0@0")
	r.send(sink1, 0, off(a, 0), off(sink0, 8), off(sink1, 0), seq(sink0, me, 2), seq(sink2, me, 0))
}

// TestAcked: an acknowledgement turns own sequence claims into offsets, up to what it covers.
func TestAcked(t *testing.T) {
	acked := func(r *rig, c parsley.Channel, s, o int64) {
		t.Helper()
		if err := r.Acked(c, s, o); err != nil {
			t.Fatal(err)
		}
	}
	r := newRig(t, nil, a)
	r.send(sink0, 0)
	r.send(sink0, 1, seq(sink0, me, 0))
	acked(r, sink0, 0, 4)
	r.send(sink2, 0, off(sink0, 4), seq(sink0, me, 1))
	acked(r, sink0, 1, 6)
	r.send(sink2, 1, off(sink0, 6), seq(sink2, me, 0))
	acked(r, sink0, 0, 4) // late
	acked(r, sink2, 1, 1)
	r.send(sink0, 2, off(sink0, 6), off(sink2, 1))
	// An echo of an acknowledged send adds nothing, one of the open send neither.
	r.feed(a, rec(0, seq(sink0, me, 1)), "1:0@0")
	r.feed(a, rec(1, seq(sink0, me, 2)), "1:0@1")
	r.send(sink2, 2, off(a, 1), off(sink0, 6), off(sink2, 1), seq(sink0, me, 2))
	r.truncated()
	r.send(sink2, 3, off(a, 1), off(sink0, 6), off(sink2, 1), seq(sink0, me, 2), seq(sink2, me, 2))
	if err := r.Acked(sink0, 3, 9); !errors.Is(err, ErrInput) {
		t.Errorf("acknowledged what was not sent: %v", err)
	}
}

// truncated makes the node build its clock anew.
func (r *rig) truncated() {
	r.t.Helper()
	if err := r.Truncate(&parsley.Clock{}); err != nil {
		r.t.Fatal(err)
	}
	r.check(nil, nil, nil)
}

// TestSequenceBase: without a counter in the store sequences begin at the base, so that a lost store repeats none; with
// one they go on.
func TestSequenceBase(t *testing.T) {
	r := newRig(t, func(r *rig) { r.facts.SequenceBase = 1000 }, a)
	r.send(sink0, 1000)
	r.send(sink0, 1001, seq(sink0, me, 1000))
	r.facts.SequenceBase = 5000
	r.ends(sink0, 2)
	r.start()
	r.send(sink0, 1002, off(sink0, 1))
	r.send(sink2, 5000, off(sink0, 1), seq(sink0, me, 1002))
	// The store is lost. Echoes of sends before: covered by the end where there is one, else passed on as they are.
	*r.store = Memory{}
	r.facts.SequenceBase = 9000
	r.ends(sink0, 3)
	r.start()
	r.feed(a, rec(0, seq(sink0, me, 1002), seq(far, me, 700)), "1:0@0")
	r.send(sink0, 9000, off(a, 0), off(sink0, 2), seq(far, me, 700))
	r.truncated()
	r.send(sink0, 9001, off(a, 0), off(sink0, 2), seq(far, me, 700), seq(sink0, me, 9000))
}

// TestEchoOnFormerSink: a claim on own sends to a sink that was dropped becomes what is known of its end; of a destroyed one
// nothing is left.
func TestEchoOnFormerSink(t *testing.T) {
	for _, destroyed := range []bool{false, true} {
		r := newRig(t, nil, a)
		r.send(sink2, 0)
		r.cfg.Sinks = r.cfg.Sinks[:1]
		r.facts.Ends = r.facts.Ends[:2]
		if err := r.tryStart(); !errors.Is(err, ErrUnresolved) {
			t.Errorf("started without knowing of the dropped sink: %v", err)
		}
		want := []any{off(a, 0)}
		if destroyed {
			r.facts.Destroyed = append(r.facts.Destroyed, sink2.Topic)
		} else {
			r.facts.Ends = append(r.facts.Ends, End{sink2, 3})
			want = append(want, off(sink2, 2))
		}
		r.start()
		r.feed(a, rec(0, seq(sink2, me, 0)), "1:0@0")
		r.send(sink0, 0, want...)
		// A second start knows the sink no more, and needs no fact about it.
		r.facts.Ends, r.facts.Destroyed = r.facts.Ends[:2], nil
		r.start()
		if got := r.FormerSinks(); got != nil {
			t.Errorf("former sinks %v", got)
		}
		r.send(sink0, 1, want...)
		if got := r.store.stored()["sq/"+sink2.String()]; got != "0000000000000000" {
			t.Errorf("the number of the last record for the former sink is %q: it must stay for ever", got)
		}
	}
}

// TestStampSize: a clock beyond the limit is refused, one at it is not.
func TestStampSize(t *testing.T) {
	small := func(r *rig) { r.cfg.StampBytes = 9 + 28 }
	r := newRig(t, small, a)
	r.feed(a, rec(0), "1:0@0")
	r.send(sink0, 0, off(a, 0))
	if err := r.Stamp(sink0, &parsley.Stamp{}); !errors.Is(err, ErrStampSize) {
		t.Errorf("stamped beyond the limit: %v", err)
	}
}

// TestTruncate: claims in custody at or below the bound go, for good; frontiers, own outputs and sequences stay.
func TestTruncate(t *testing.T) {
	var farther = ch(9, 1)
	r := newRig(t, func(r *rig) { r.ends(sink0, 3) }, a)
	r.feed(a, rec(5, off(far, 4), off(farther, 7), seq(far, other, 1)), "1:0@5")
	if got := r.StampChannels(); !slices.Equal(got, []parsley.Channel{far, farther}) {
		t.Errorf("stamp channels %v", got)
	}
	before := r.store.stored()
	all := []any{off(a, 5), off(far, 4), off(farther, 7), off(sink0, 2), seq(far, other, 1)}
	sweep := func(starts ...Position) {
		t.Helper()
		if err := r.TruncateToLogStarts(starts, nil); err != nil {
			t.Fatal(err)
		}
		r.check(nil, nil, nil)
	}
	sweep(Position{far, 0}, Position{farther, 0}) // nothing was deleted
	if after := r.store.stored(); len(after) != len(before) {
		t.Errorf("a sweep of nothing wrote %v", after)
	}
	r.send(sink0, 0, all...)
	sweep(Position{far, 4}, Position{farther, 8}, Position{sink0, 3}, Position{a, 6}) // at the log start stays, below goes
	r.send(sink0, 1, off(a, 5), off(far, 4), off(sink0, 2), seq(far, other, 1), seq(sink0, me, 0))
	sweep(Position{far, 5})
	r.start()
	r.send(sink0, 2, off(a, 5), off(sink0, 2), seq(far, other, 1))
	if got := r.StampChannels(); len(got) != 0 {
		t.Errorf("stamp channels %v", got)
	}
	if r.store.stored()["ca"] != "010000000000000000" {
		t.Errorf("ca is %q", r.store.stored()["ca"])
	}
}

// TestTruncateDestroyed: nothing of a destroyed topic is claimed, in custody.
func TestTruncateDestroyed(t *testing.T) {
	r := newRig(t, nil, a)
	r.feed(a, rec(0, off(far, 1<<40), seq(far, other, 1)), "1:0@0")
	if err := r.TruncateToLogStarts(nil, slices.Concat(r.cfg.Sinks, []uuid.UUID{far.Topic})); err != nil {
		t.Fatal(err)
	}
	r.send(sink0, 0, off(a, 0), seq(far, other, 1))
	if err := r.UpgradeCustody(nil, []uuid.UUID{far.Topic}); err != nil {
		t.Fatal(err)
	}
	r.send(sink0, 1, off(a, 0), seq(sink0, me, 0))
}

// TestUpgradeCustody: sequence claims in custody become offsets below the high watermark; those of a held record do not.
func TestUpgradeCustody(t *testing.T) {
	r := newRig(t, nil, a, b)
	r.feed(a, rec(0, seq(far, other, 3), seq(far, third, 4), off(far, 2), seq(b, other, 9)))
	if got := r.SequenceChannels(); !slices.Equal(got, []parsley.Channel{b, far}) {
		t.Errorf("sequence channels %v", got)
	}
	if err := r.UpgradeCustody([]End{{far, 20}, {b, 0}, {sink0, 7}}, nil); err != nil { // an empty b: the claim stays
		t.Fatal(err)
	}
	r.send(sink0, 0, off(far, 19), seq(b, other, 9))
	r.start()
	r.send(sink0, 1, off(far, 19), seq(b, other, 9))
	if err := r.UpgradeCustody([]End{{b, 50}}, nil); err != nil {
		t.Fatal(err)
	}
	r.send(sink0, 2, off(far, 19), off(b, 49), seq(sink0, me, 1))
	if got := r.SequenceChannels(); len(got) != 0 {
		t.Errorf("sequence channels %v", got)
	}
	r.feed(b, tagged(4, other, 9), "2:0@4", "1:0@0") // not first at 49
	if err := r.Commit(nil); err != nil {
		t.Fatal(err)
	}
}
