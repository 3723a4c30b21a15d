package causal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"kaas/codec/parsley"
)

var a, b, c, far = ch(1, 0), ch(2, 0), ch(3, 0), ch(9, 0) // far is not consumed

// TestHoldAndRelease: a record waits for what it claims, and goes when that is there.
func TestHoldAndRelease(t *testing.T) {
	r := newRig(t, nil, a, b)
	r.feed(a, rec(0), "1:0@0")
	r.feed(b, rec(0, off(a, 1)))
	r.feed(b, rec(1)) // behind a held record
	if s, _ := r.Channel(b); s != (ChannelState{Channel: b, Frontier: -1, Position: 2, Held: 2, Head: 0}) {
		t.Errorf("state %+v", s)
	}
	r.feed(a, rec(1), "1:0@1", "2:0@0", "2:0@1")
	if s, _ := r.Channel(b); s != (ChannelState{Channel: b, Frontier: 1, Position: 2, Held: 0, Head: -1}) {
		t.Errorf("state %+v", s)
	}
	if got := r.Counts(); got.Delivered != 4 || got.HeldRecords != 2 {
		t.Errorf("counts %+v", got)
	}
}

// TestGate is one record on a before anything else is known than: b is delivered up to 5, and of other on b number 3, at offset 4.
func TestGate(t *testing.T) {
	for _, tc := range []struct {
		name   string
		claims []any
		met    bool
	}{
		{"nothing", nil, true},
		{"offset below", []any{off(b, 4)}, true},
		{"offset at the frontier", []any{off(b, 5)}, true},
		{"offset above", []any{off(b, 6)}, false},
		{"own channel", []any{off(a, 99), seq(a, other, 99)}, true},
		{"channel not consumed", []any{off(far, 99), seq(far, other, 99)}, true},
		{"channel never fed, offset 0", []any{off(c, 0)}, false},
		{"sequence below the mark", []any{seq(b, other, 2)}, true},
		{"sequence at the mark", []any{seq(b, other, 3)}, true},
		{"sequence above", []any{seq(b, other, 4)}, false},
		{"sequence of nobody", []any{seq(b, third, 0)}, false},
		{"own sequence, not delivered here", []any{seq(b, me, 0)}, false},
		{"met and not met", []any{off(b, 5), seq(b, other, 3), off(c, 7)}, false},
		{"not met, then met", []any{off(b, 6), seq(b, other, 3)}, false},
		{"other partition", []any{off(ch(2, 1), 9)}, true},
	} {
		r := newRig(t, nil, a, b, c)
		r.feed(b, tagged(4, other, 3), "2:0@4")
		r.feed(b, rec(5), "2:0@5")
		want := []string{"1:0@0"}
		if !tc.met {
			want = nil
		}
		out, err := r.Receive(a, rec(0, tc.claims...), nil)
		if err != nil || !slices.Equal(names(out), want) {
			t.Errorf("%s: delivered %v, %v", tc.name, names(out), err)
		}
		if blocked := r.Explain(); (len(blocked) == 0) != tc.met {
			t.Errorf("%s: explained as %+v", tc.name, blocked)
		}
	}
}

// TestOwnSequence: a node that consumes its own sink meets claims on its sends by delivering them.
func TestOwnSequence(t *testing.T) {
	own := ch(30, 0)
	r := newRig(t, nil, a, own)
	r.send(own, 0)
	r.feed(a, rec(0, seq(own, me, 0)))
	r.feed(own, tagged(0, me, 0), "30:0@0", "1:0@0")
}

// TestSeed: what lies before the first record is out of scope, and so are offsets that never arrive between two.
func TestSeed(t *testing.T) {
	r := newRig(t, nil, a, b, c)
	r.feed(b, rec(0, off(a, 41)))
	r.feed(a, rec(42), "1:0@42", "2:0@0")
	r.feed(b, rec(1, off(a, 43)))
	r.feed(c, rec(7, off(b, 1)))
	r.feed(a, rec(44, off(c, 7)), "2:0@1", "3:0@7", "1:0@44") // the run up to 43 counts, though a@44 itself has to wait
}

// TestSkippedRuns: offsets that never arrive count as delivered: between two records, before a held head, behind the last
// record by the position. Never those that may still be held back.
func TestSkippedRuns(t *testing.T) {
	t.Run("between", func(t *testing.T) {
		r := newRig(t, nil, a, b)
		r.feed(a, rec(0), "1:0@0")
		r.feed(b, rec(0, off(a, 3)))
		r.feed(a, rec(4), "1:0@4", "2:0@0")
	})
	t.Run("before a held head", func(t *testing.T) {
		r := newRig(t, nil, a, b, c)
		r.feed(a, rec(0, off(c, 0)))
		r.feed(a, rec(5, off(c, 9)))
		r.feed(b, rec(0, off(a, 4)))
		r.feed(c, rec(0), "3:0@0", "1:0@0", "2:0@0")
		if f := r.frontier(a); f != 4 {
			t.Errorf("frontier %d", f)
		}
	})
	t.Run("a record behind a held head does not bridge", func(t *testing.T) {
		r := newRig(t, nil, a, b, c)
		r.feed(a, rec(0), "1:0@0")
		r.feed(a, rec(1, off(c, 0)))
		r.feed(a, rec(9))
		r.feed(b, rec(0, off(a, 5)))
		if f := r.frontier(a); f != 0 {
			t.Errorf("frontier %d", f)
		}
		r.feed(c, rec(0), "3:0@0", "1:0@1", "1:0@9", "2:0@0")
	})
	t.Run("position", func(t *testing.T) {
		r := newRig(t, nil, a, b)
		r.feed(a, rec(0), "1:0@0")
		r.feed(b, rec(0, off(a, 3)))
		r.pass(a, 3)
		r.pass(a, 4, "2:0@0")
		r.pass(a, 2)
		if f := r.frontier(a); f != 3 {
			t.Errorf("frontier %d", f)
		}
	})
	t.Run("position while holding folds at the drain", func(t *testing.T) {
		r := newRig(t, nil, a, b, c)
		r.feed(a, rec(0, off(c, 0)))
		r.pass(a, 7)
		r.feed(b, rec(0, off(a, 6)))
		if f := r.frontier(a); f != -1 {
			t.Errorf("frontier %d while holding", f)
		}
		r.feed(c, rec(0), "3:0@0", "1:0@0", "2:0@0")
		if f := r.frontier(a); f != 6 {
			t.Errorf("frontier %d", f)
		}
	})
}

// TestCascadeOrder: channels take turns in ascending order, also when they come up in another; one pass behind the other.
func TestCascadeOrder(t *testing.T) {
	low := ch(0, 0)
	low.Topic[0] = 0x80 // signed order: below all others
	r := newRig(t, nil, c, a, b, low)
	r.feed(low, rec(0, off(b, 0)))
	r.feed(a, rec(0, off(c, 0)))
	r.feed(b, rec(0, off(a, 0)))
	r.feed(a, rec(1, off(b, 0)))
	// The seed of c is 0: that releases a@0, that b@0 behind it in the same pass, and that low@0 and a@1 in the next, which
	// ends with c itself.
	r.feed(c, rec(1, off(low, 0)), "1:0@0", "2:0@0", "0:0@0", "1:0@1", "3:0@1")
	if got := r.Consumed(); !slices.Equal(got, []parsley.Channel{low, a, b, c}) {
		t.Fatalf("consumed %v", got)
	}
}

// TestReplays: what was delivered is skipped; what is held is not held twice; neither folds a clock.
func TestReplays(t *testing.T) {
	r := newRig(t, nil, a, b)
	r.feed(a, rec(0), "1:0@0")
	r.feed(a, rec(1, off(b, 0)))
	r.feed(a, rec(2))
	for _, again := range []int64{0, 1, 2} {
		r.feed(a, rec(again, off(far, 77)))
	}
	if r.Replays() != 3 {
		t.Errorf("%d replays", r.Replays())
	}
	r.send(ch(30, 0), 0, off(a, 0), off(b, 0))
	r.start() // a rewind to inside the held range
	r.feed(a, rec(1, off(b, 0)))
	r.feed(a, rec(2))
	r.feed(a, rec(3))
	r.feed(b, rec(0), "2:0@0", "1:0@1", "1:0@2", "1:0@3")
	for _, again := range []int64{1, 3} {
		r.feed(a, rec(again))
	}
	if r.Replays() != 4 || r.Covered(a) != 4 {
		t.Errorf("%d replays, covered to %d", r.Replays(), r.Covered(a))
	}
}

// TestReplayMarks: a record that comes again tells who sent it, where that is not known yet.
func TestReplayMarks(t *testing.T) {
	r := newRig(t, nil, a, b)
	r.feed(a, rec(10), "1:0@10") // the baseline is 10
	r.feed(b, rec(0, seq(a, other, 5)))
	r.feed(a, tagged(3, other, 4))
	r.feed(a, tagged(4, other, 6), "2:0@0")
	if m, ok := r.Mark(parsley.SequenceKey{Channel: a, Sender: other}); !ok || m != (parsley.Mark{Sequence: 6, Offset: 4}) {
		t.Errorf("mark %v", m)
	}
	r.feed(a, tagged(5, other, 1)) // lower: nothing changes
	r.start()
	if m, _ := r.Mark(parsley.SequenceKey{Channel: a, Sender: other}); m != (parsley.Mark{Sequence: 6, Offset: 4}) {
		t.Errorf("mark %v after a restart", m)
	}
}

// TestHeldReplayMarks: a record that comes again while it is held was not delivered: its sender's claims are not met.
func TestHeldReplayMarks(t *testing.T) {
	r := newRig(t, nil, a, b, c)
	r.feed(a, tagged(0, other, 3, off(c, 0)))
	r.feed(b, rec(0, seq(a, other, 3)))
	r.feed(a, tagged(0, other, 3, off(c, 0)))
	if m, ok := r.Mark(parsley.SequenceKey{Channel: a, Sender: other}); ok {
		t.Errorf("mark %v", m)
	}
	r.feed(c, rec(0), "3:0@0", "1:0@0", "2:0@0")
}

// TestHeaps: both heaps give back in order what was put in, whatever the order was.
func TestHeaps(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var h waits
		var x indexHeap
		var want []int
		for range rng.IntN(20) {
			v := rng.IntN(10)
			want = append(want, v)
			h.push(wait{n: int64(v)})
			x.push(v)
		}
		slices.Sort(want)
		for i, v := range want {
			if w, j := h.pop(), x.pop(); w.n != int64(v) || j != v {
				t.Fatalf("%d: %d and %d, want %d", i, w.n, j, v)
			}
		}
		if len(h) != 0 || len(x) != 0 {
			t.Fatal("not empty")
		}
	}
}

// TestHeldRecordSurvives: key, value, timestamp and other headers of a held record are those that came, also after a
// restart, when its delivery advances the frontier as ever.
func TestHeldRecordSurvives(t *testing.T) {
	h := tagged(7, other, 3, off(b, 0))
	h.Timestamp, h.Key, h.Value = -5, []byte{}, nil
	h.Headers = []parsley.Header{{Key: "x", Value: []byte("1")}, {Key: parsley.HeaderClock, Value: []byte("no")}, {Key: "y"}}
	for _, restart := range []bool{false, true} {
		r := newRig(t, nil, a, b)
		r.feed(a, h)
		if restart {
			r.start()
		}
		out, err := r.Receive(b, rec(0), nil)
		if err != nil || len(out) != 2 {
			t.Fatal(out, err)
		}
		got := out[1]
		if got.Channel != a || got.Offset != 7 || got.Timestamp != -5 || got.Key == nil || len(got.Key) != 0 || got.Value != nil {
			t.Errorf("restart %v: delivered %+v", restart, got)
		}
		if fmt.Sprint(got.Headers) != "[{x [49]} {y []}]" || got.Headers[1].Value != nil {
			t.Errorf("restart %v: headers %v", restart, got.Headers)
		}
		if f := r.frontier(a); f != 7 {
			t.Errorf("restart %v: frontier %d", restart, f)
		}
		if m, _ := r.Mark(parsley.SequenceKey{Channel: a, Sender: other}); m != (parsley.Mark{Sequence: 3, Offset: 7}) {
			t.Errorf("restart %v: mark %v", restart, m)
		}
	}
	r := newRig(t, nil, a, b)
	h.Clock.Reset()
	out, err := r.Receive(a, h, nil)
	if err != nil || len(out) != 1 || fmt.Sprint(out[0].Headers) != "[{x [49]} {y []}]" {
		t.Errorf("delivered at once: %v, %v", out, err)
	}
}

// TestReleaseLimit: a long release comes in parts, in the same order, and stops nothing for good, a restart in the middle
// included.
func TestReleaseLimit(t *testing.T) {
	limited := func(r *rig) { r.cfg.ReleaseBytes = 3 * deliveryOverhead }
	r := newRig(t, limited, a, b, c)
	var want []string
	for i := range int64(8) {
		r.feed(a, rec(i, off(c, 0)))
		want = append(want, fmt.Sprintf("1:0@%d", i))
	}
	r.feed(b, rec(0, off(a, 7)))
	want = append([]string{"3:0@0"}, append(want, "2:0@0")...)
	out, err := r.Receive(c, rec(0), nil)
	if err != nil || !r.More() || len(out) != 4 {
		t.Fatalf("delivered %v, %v", names(out), err)
	}
	got := names(out)
	if err := r.Commit(nil); err != nil {
		t.Fatal(err)
	}
	r.start()
	for r.More() {
		if out, err = r.Resume(out[:0]); err != nil {
			t.Fatal(err)
		}
		got = append(got, names(out)...)
	}
	if !slices.Equal(got, want) {
		t.Errorf("delivered %v, want %v", got, want)
	}
	if out, err := r.Resume(nil); len(out) != 0 || err != nil {
		t.Errorf("resumed with nothing left: %v, %v", out, err)
	}
}

// TestPages: held records beyond the memory budget are read back in order, in pages.
func TestPages(t *testing.T) {
	for _, budget := range []int64{-1, 500, 1 << 20} {
		r := newRig(t, func(r *rig) { r.cfg.HeldBytes = budget }, a, b)
		const n = 3*PageRecords + 5
		var want []string
		for i := range int64(n) {
			r.feed(a, rec(i, off(b, i/100)))
			want = append(want, fmt.Sprintf("1:0@%d", i))
			if i == n/2 {
				r.start()
			}
		}
		const page = PageRecords * 100 // a record takes less than 100 bytes
		if r.memory > max(budget, page) {
			t.Errorf("budget %d: %d bytes in memory", budget, r.memory)
		}
		r.feed(b, rec(0), append([]string{"2:0@0"}, want[:100]...)...)
		r.feed(b, rec(1), append([]string{"2:0@1"}, want[100:]...)...)
		if pages := r.Counts().PagesRead; (budget == 1<<20) != (pages == 0) {
			t.Errorf("budget %d: %d pages read", budget, pages)
		}
		if r.memory != 0 || r.Pending() != 0 {
			t.Errorf("budget %d: %d bytes in memory, %d pending, of an empty node", budget, r.memory, r.Pending())
		}
		for k := range r.store.all() {
			if key, err := parsley.ParseKey([]byte(k)); err != nil || key.Kind == parsley.KeyHeld {
				t.Errorf("left over: %s", k)
			}
		}
	}
}

// TestPagesInterleaved: records come and go while a part of the queue is on disk alone.
func TestPagesInterleaved(t *testing.T) {
	r := newRig(t, func(r *rig) { r.cfg.HeldBytes = 500 }, a, b)
	next := int64(0)
	for i := range int64(40) {
		for range 3 {
			r.feed(a, rec(next, off(b, next)))
			next++
		}
		if r.memory > 500+PageRecords*100 {
			t.Fatalf("%d bytes in memory", r.memory)
		}
		r.feed(b, rec(i), fmt.Sprintf("2:0@%d", i), fmt.Sprintf("1:0@%d", i))
	}
	if s, _ := r.Channel(a); s.Held != 80 || s.Head != 40 || r.Counts().PagesRead == 0 {
		t.Errorf("%+v, %d pages read", s, r.Counts().PagesRead)
	}
}

// TestCoalescing: what came and went between two commits is not written, and a value once.
func TestCoalescing(t *testing.T) {
	r := newRig(t, nil, a, b)
	before := r.Counts().StoreOps
	for i := range int64(50) {
		if _, err := r.Receive(a, tagged(i, other, i, off(far, i), off(b, i)), nil); err != nil {
			t.Fatal(err)
		}
	}
	for i := range int64(40) {
		if _, err := r.Receive(b, rec(i), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Commit(nil); err != nil {
		t.Fatal(err)
	}
	// f, cc, ds and q/m of a; f and q/m of b; ten held records.
	if ops := r.Counts().StoreOps - before; ops != 4+2+10 {
		t.Errorf("%d operations", ops)
	}
	before = r.Counts().StoreOps
	r.feed(a, rec(50, off(far, 3))) // claims nothing new: no cc; one held record, q/m
	if ops := r.Counts().StoreOps - before; ops != 2 {
		t.Errorf("%d operations", ops)
	}
	batches := r.Counts().StoreBatches
	if err := r.Commit(nil); err != nil || r.Counts().StoreBatches != batches || r.Dirty() {
		t.Errorf("a commit of nothing: %v", err)
	}
}

// TestExplain: why each head waits, with all that it waits for.
func TestExplain(t *testing.T) {
	r := newRig(t, nil, a, b, c)
	r.feed(b, tagged(0, other, 7), "2:0@0")
	r.feed(b, rec(1, off(c, 0)))
	r.feed(a, rec(3, off(b, 0), off(b, 1), off(c, 2), seq(b, other, 8), seq(b, third, 0), seq(b, other, 7), off(far, 1)))
	r.feed(a, rec(4))
	r.pass(c, 1, "2:0@1")
	r.feed(b, rec(2, off(a, 4)))
	got := r.Explain()
	want := []Blocked{
		{Channel: a, Offset: 3, Depth: 2, Unmet: []Unmet{
			{Channel: c, Claimed: 2, Frontier: 0, Position: 1, Delivered: -1},
			{Channel: b, Sequenced: true, Sender: other, Claimed: 8, Frontier: 1, Position: 3, Delivered: 7},
			{Channel: b, Sequenced: true, Sender: third, Claimed: 0, Frontier: 1, Position: 3, Delivered: -1},
		}},
		{Channel: b, Offset: 2, Depth: 1, Unmet: []Unmet{{Channel: a, Claimed: 4, Frontier: 2, Position: 5, Delivered: -1}}},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("explained as\n%+v\nwant\n%+v", got, want)
	}
	for i, d := range []Diagnosis{NotFetched, SenderBehind, SenderUnseen} {
		if got[0].Unmet[i].Diagnosis() != d {
			t.Errorf("claim %d: %s, want %s", i, got[0].Unmet[i].Diagnosis(), d)
		}
	}
	if d := got[1].Unmet[0].Diagnosis(); d != HeldUpstream {
		t.Errorf("%s, want %s", d, HeldUpstream)
	}
}

// TestRefusals: every guard, its reason, and that the node refuses everything from then on.
func TestRefusals(t *testing.T) {
	receive := func(c parsley.Channel, h *parsley.Held) func(*rig) error {
		return func(r *rig) error { _, err := r.Receive(c, h, nil); return err }
	}
	for name, tc := range map[string]struct {
		do     func(*rig) error
		reason error
	}{
		"record on another channel":   {receive(far, rec(0)), ErrNotConsumed},
		"negative offset":             {receive(a, rec(-1)), ErrInput},
		"negative sequence":           {receive(a, tagged(0, other, -1)), ErrInput},
		"position on another channel": {func(r *rig) error { _, err := r.PositionAdvance(far, 1, nil); return err }, ErrNotConsumed},
		"negative position":           {func(r *rig) error { _, err := r.PositionAdvance(a, -1, nil); return err }, ErrInput},
		"stamp for no sink":           {func(r *rig) error { return r.Stamp(a, &parsley.Stamp{}) }, ErrNotSink},
		"stamp for nothing":           {func(r *rig) error { return r.Stamp(parsley.Channel{}, &parsley.Stamp{}) }, ErrNotSink},
		"ack of what was not sent":    {func(r *rig) error { return r.Acked(ch(30, 0), 0, 0) }, ErrInput},
		"log of another channel":      {func(r *rig) error { return r.CheckLogs([]LogFact{{far, 0, 0}}) }, ErrNotConsumed},
		"look back elsewhere": {func(r *rig) error {
			_, err := r.LookedBack(LookBack{Claim: seq(far, other, 0)}, nil)
			return err
		}, ErrNotConsumed},
		"negative end": {func(r *rig) error { return r.UpgradeCustody([]End{{far, -1}}, nil) }, ErrInput},
	} {
		r := newRig(t, nil, a, b)
		err := tc.do(r)
		var refusal *Refusal
		if !errors.Is(err, tc.reason) || !errors.As(err, &refusal) {
			t.Errorf("%s: %v, want %v", name, err, tc.reason)
		}
		after := []error{receive(a, rec(0))(r), r.Stamp(ch(30, 0), &parsley.Stamp{}), r.Commit(nil), r.Err(), r.CheckLogs(nil), r.TruncateToLogStarts(nil, nil)}
		for i, e := range after {
			if e != err {
				t.Errorf("%s: afterwards %d: %v", name, i, e)
			}
		}
	}
	r := newRig(t, nil, a)
	if err := r.Start(r.facts); !errors.Is(err, ErrPhase) || r.Err() != nil {
		t.Errorf("started twice: %v", err)
	}
	n, err := Open(r.cfg, &Memory{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Receive(a, rec(0), nil); !errors.Is(err, ErrPhase) || n.Err() != nil {
		t.Errorf("received before the start: %v", err)
	}
}
