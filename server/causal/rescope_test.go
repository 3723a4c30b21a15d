package causal

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"kaas/codec/parsley"
)

// TestScope: what the node is is written at every start, sorted as signed ids, whatever the order in the configuration.
func TestScope(t *testing.T) {
	low := ch(0, 0)
	low.Topic[0] = 0xff
	r := newRig(t, func(r *rig) { r.cfg.Sinks = []uuid.UUID{topic(31), topic(30), topic(31)} }, b, ch(1, 1), a, low, b)
	want := parsley.Scope{Channels: []parsley.Channel{low, a, ch(1, 1), b}, Sinks: []uuid.UUID{topic(30), topic(31)}}
	if got := r.store.stored(); len(got) != 1 || got["scope"] != hex.EncodeToString(want.Append(nil)) {
		t.Errorf("store %v", got)
	}
	r.cfg.Consumed = r.cfg.Consumed[:1]
	r.start()
	want.Channels = []parsley.Channel{b}
	if got := r.store.stored()["scope"]; got != hex.EncodeToString(want.Append(nil)) {
		t.Errorf("scope %v", got)
	}
}

// TestShrink: what is known of a channel that is no longer consumed becomes carried ancestry; none of its keys are left. It
// survives further starts. A claim on it holds nothing up any more.
func TestShrink(t *testing.T) {
	r := newRig(t, nil, a, b)
	r.feed(a, tagged(4, other, 1, off(far, 3), seq(far, other, 2)), "1:0@4")
	r.feed(a, tagged(5, third, 1, off(b, 7)))
	r.cfg.Consumed = []parsley.Channel{b}
	if err := r.tryStart(); !errors.Is(err, ErrHeldOnRemoved) {
		t.Fatalf("dropped a channel with held records: %v", err)
	}
	r.cfg.Consumed = []parsley.Channel{a, b}
	r.start()
	r.feed(b, rec(7), "2:0@7", "1:0@5")
	r.feed(b, rec(8, off(a, 6)))
	r.cfg.Consumed = []parsley.Channel{b}
	claims := []any{off(a, 5), off(far, 3), off(b, 7), seq(far, other, 2)}
	r.start()
	if !r.More() {
		t.Error("nothing to deliver, though the held record waits for nothing any more")
	}
	for k := range r.store.all() {
		if strings.Contains(k, a.String()) {
			t.Errorf("left over: %s", k)
		}
	}
	out, err := r.Resume(nil)
	r.check(out, err, []string{"2:0@8"})
	claims[0], claims[2] = off(a, 6), off(b, 8) // b@8 claimed a@6
	r.send(sink0, 0, claims...)
	r.start()
	r.send(sink0, 1, claims...)
	if got := r.StampChannels(); !slices.Equal(got, []parsley.Channel{a, b, far}) { // b: by what was received on a
		t.Errorf("stamp channels %v", got)
	}
}

// TestReturn: a channel that was dropped and comes back begins at the frontier it had; its marks are gone.
func TestReturn(t *testing.T) {
	r := newRig(t, nil, a, b)
	r.feed(a, tagged(4, other, 1), "1:0@4")
	r.cfg.Consumed = []parsley.Channel{b}
	r.start()
	r.cfg.Consumed = []parsley.Channel{a, b}
	r.start()
	if got := r.ResumePositions(); !slices.Equal(got, []Position{{a, 5}}) {
		t.Errorf("resume positions %v", got)
	}
	if _, ok := r.Mark(parsley.SequenceKey{Channel: a, Sender: other}); ok || r.frontier(a) != 4 || r.Covered(a) != 5 {
		t.Errorf("frontier %d, mark %v", r.frontier(a), ok)
	}
	r.feed(a, rec(4))
	r.feed(b, rec(0, seq(a, other, 1)))
	r.feed(a, tagged(3, other, 2), "2:0@0") // read again from below, it tells its sequence
	r.start()
	if got := r.ResumePositions(); len(got) != 0 {
		t.Errorf("resume positions %v in the life after", got)
	}
}

// TestGrow: a new channel begins above everything the node has in its past of it: advertised, carried, or sent by itself.
func TestGrow(t *testing.T) {
	for name, tc := range map[string]struct {
		claim int64 // on the new channel, by a record on a; −1: none
		end   int64 // of the new channel as a sink in the life before
		want  int64 // frontier
	}{
		"nothing known":  {-1, 0, -1},
		"advertised":     {6, 0, 6},
		"sent":           {-1, 4, 3},
		"sent at 0":      {-1, 1, 0},
		"both":           {9, 4, 9},
		"sent by others": {2, 8, 7},
	} {
		for _, stays := range []bool{false, true} { // as a sink
			r := newRig(t, nil, a)
			h := rec(0)
			if tc.claim >= 0 {
				h = rec(0, off(sink2, tc.claim))
			}
			r.feed(a, h, "1:0@0")
			r.cfg.Consumed = []parsley.Channel{a, sink2}
			if !stays {
				r.cfg.Sinks = r.cfg.Sinks[:1]
			}
			r.ends(sink2, tc.end)
			r.start()
			var resume []Position
			if tc.want >= 0 {
				resume = []Position{{sink2, tc.want + 1}}
			}
			if got := r.ResumePositions(); !slices.Equal(got, resume) || r.frontier(sink2) != tc.want {
				t.Errorf("%s: resumes at %v, frontier %d, want %d", name, got, r.frontier(sink2), tc.want)
			}
			stored := r.store.stored()["f/"+sink2.String()]
			if want := fmt.Sprintf("%016x", uint64(tc.want)); tc.want >= 0 && stored != want || tc.want < 0 && stored != "" {
				t.Errorf("%s: stored frontier %q", name, stored)
			}
		}
	}
}

// TestGrowInTheMiddle: a life that ends in the middle of a release, and the next consumes what the next record claims: that now
// waits, but the offsets before it still count as delivered.
func TestGrowInTheMiddle(t *testing.T) {
	d := ch(4, 0)
	r := newRig(t, func(r *rig) { r.cfg.ReleaseBytes = 1 }, a, b, c)
	r.feed(a, rec(0, off(c, 0)))
	r.feed(a, rec(5, off(c, 0), seq(d, other, 0)))
	r.feed(c, rec(0), "3:0@0", "1:0@0")
	r.cfg.Consumed = append(r.cfg.Consumed, d)
	r.start()
	out, err := r.Resume(nil)
	r.check(out, err, nil)
	if f := r.frontier(a); f != 4 {
		t.Errorf("frontier %d", f)
	}
	r.feed(b, rec(0, off(a, 4)), "2:0@0")
	r.feed(d, tagged(0, other, 0), "4:0@0", "1:0@5")
}

// TestRecreated: a recreated topic is another channel. The old one leaves, with what is known of it; claims on it mean
// nothing for the new one.
func TestRecreated(t *testing.T) {
	r := newRig(t, nil, a, b)
	r.feed(a, rec(0), "1:0@0")
	again := a
	again.Topic[0] = 1
	r.cfg.Consumed = []parsley.Channel{again, b}
	r.start()
	r.feed(b, rec(0, off(a, 100)), "2:0@0")
	r.feed(b, rec(1, off(again, 0)))
	r.feed(again, rec(0), "1:0@0", "2:0@1")
	if err := r.TruncateToLogStarts(nil, []uuid.UUID{a.Topic}); err != nil {
		t.Fatal(err)
	}
	r.send(sink0, 0, off(again, 0), off(b, 1))
}

// TestFormerSinks: the end of a dropped sink is claimed for good; an empty one adds nothing; a topic that is not asked for
// is a fault of the host.
func TestFormerSinks(t *testing.T) {
	r := newRig(t, nil, a)
	r.cfg.Sinks = r.cfg.Sinks[1:]
	r.facts.Ends = []End{{sink0, 5}, {sink1, 0}, {sink2, 0}}
	n, err := Open(r.cfg, r.store)
	if err != nil {
		t.Fatal(err)
	}
	if got := n.FormerSinks(); !slices.Equal(got, []uuid.UUID{topic(30)}) {
		t.Fatalf("former sinks %v", got)
	}
	r.start()
	r.facts.Ends = []End{{sink2, 0}}
	r.send(sink2, 0, off(sink0, 4))
	r.start()
	r.send(sink2, 1, off(sink0, 4))
	r.facts.Ends = []End{{sink2, 0}, {far, 9}}
	if err := r.tryStart(); !errors.Is(err, ErrInput) {
		t.Errorf("started with the end of a stranger: %v", err)
	}
	r.facts.Ends = nil
	if err := r.tryStart(); !errors.Is(err, ErrUnresolved) {
		t.Errorf("started without the end of a sink: %v", err)
	}
	r.facts.Ends = []End{{sink2, -1}}
	if err := r.tryStart(); !errors.Is(err, ErrInput) {
		t.Errorf("started with a negative end: %v", err)
	}
	r.facts = Facts{Ends: []End{{sink2, 0}}, SequenceBase: -1}
	if err := r.tryStart(); !errors.Is(err, ErrInput) {
		t.Errorf("started with a negative base: %v", err)
	}
}

// TestDamagedState: a store that does not hold what a node wrote refuses to open, whatever is wrong with it.
func TestDamagedState(t *testing.T) {
	r := newRig(t, nil, a, b)
	r.feed(a, tagged(0, other, 0, off(far, 1)), "1:0@0")
	for i := range int64(3) {
		r.feed(a, rec(i+1, off(b, 0)))
	}
	r.send(sink0, 0, off(a, 0), off(b, 0), off(far, 1))
	r.truncated()
	good := r.store
	q, strange := "q/"+a.String(), far.String()
	entry := func(i int) string { return fmt.Sprintf("%s/e/%016x", q, i) }
	for name, change := range map[string]func(*Memory){
		"scope gone":               func(m *Memory) { m.Delete([]byte("scope")) },
		"scope cut":                func(m *Memory) { m.Put([]byte("scope"), m.all()["scope"][:10]) },
		"ca empty":                 func(m *Memory) { m.Put([]byte("ca"), nil) },
		"frontier of a stranger":   func(m *Memory) { m.Put([]byte("f/"+strange), make([]byte, 8)) },
		"frontier short":           func(m *Memory) { m.Put([]byte("f/"+a.String()), make([]byte, 7)) },
		"frontier long":            func(m *Memory) { m.Put([]byte("f/"+a.String()), make([]byte, 9)) },
		"no channel":               func(m *Memory) { m.Put([]byte("f/x"), make([]byte, 8)) },
		"cc corrupt":               func(m *Memory) { m.Put([]byte("cc/"+a.String()), []byte{2}) },
		"mark short":               func(m *Memory) { m.Put([]byte("ds/"+a.String()+"/"+other.String()), make([]byte, 8)) },
		"sequence short":           func(m *Memory) { m.Put([]byte("sq/"+sink0.String()), nil) },
		"first record gone":        func(m *Memory) { m.Delete([]byte(entry(1))) },
		"record in the middle":     func(m *Memory) { m.Delete([]byte(entry(2))) },
		"last record gone":         func(m *Memory) { m.Delete([]byte(entry(3))) },
		"all records gone":         func(m *Memory) { m.Delete([]byte(entry(1))); m.Delete([]byte(entry(2))); m.Delete([]byte(entry(3))) },
		"record too many":          func(m *Memory) { m.Put([]byte(entry(4)), m.all()[entry(3)]) },
		"record before the head":   func(m *Memory) { m.Put([]byte(entry(0)), m.all()[entry(3)]) },
		"record twice":             func(m *Memory) { m.Put([]byte(entry(2)), m.all()[entry(1)]) },
		"record corrupt":           func(m *Memory) { m.Put([]byte(entry(2)), m.all()[entry(2)][:20]) },
		"queue meta gone":          func(m *Memory) { m.Delete([]byte(q + "/m")) },
		"queue meta backwards":     func(m *Memory) { m.Put([]byte(q+"/m"), parsley.Queue{Head: 4, Tail: 1}.Append(nil)) },
		"queue meta short":         func(m *Memory) { m.Put([]byte("q/"+b.String()+"/m"), make([]byte, 15)) },
		"queue meta for no record": func(m *Memory) { m.Put([]byte("q/"+b.String()+"/m"), parsley.Queue{Head: 0, Tail: 1}.Append(nil)) },
	} {
		m := good.Clone()
		change(m)
		_, err := Open(r.cfg, m)
		var refusal *Refusal
		if !errors.As(err, &refusal) || !errors.Is(err, ErrState) && !errors.Is(err, parsley.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(r.cfg, good); err != nil {
		t.Errorf("undamaged: %v", err)
	}
}
