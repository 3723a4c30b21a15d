package causal

import (
	"errors"
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/uuid"

	"kaas/codec/parsley"
	"kaas/engine/state"
	"kaas/engine/vfs/crashfs"
)

var cuts = flag.Uint64("cuts", 20, "histories that TestPowerCut tries")

// cutWorld is a node on an engine store whose disk loses power, with a model: the contents after each commit, as the changelog
// told them, and a twin of the node on these contents in memory.
type cutWorld struct {
	t       *testing.T
	rng     *rand.Rand
	history []*Memory
	durable int // commits that must survive
	node    *Node
	twin    *Node
	engine  *Engine
	mirror  *Memory
	held    int // starts with held records
}

var (
	cutConfig = Config{Sender: me, Consumed: []parsley.Channel{a, b, c}, Sinks: []uuid.UUID{topic(30)}, HeldBytes: 300}
	cutFacts  = Facts{Ends: []End{{sink0, 0}}, SequenceBase: 10}
)

// open starts the node on the disk and its twin on what the disk should hold.
func (w *cutWorld) open(d *crashfs.Disk) error {
	s, err := state.Open(d, "/s", state.Options{FileBytes: 4000, CheckpointBytes: 10000, CacheBytes: -1})
	if err != nil {
		return err
	}
	w.engine = &Engine{Store: s, Prefix: "n0/"}
	got := map[string]string{}
	if err := w.engine.Scan(nil, func(k, v []byte) error { got[string(k)] = string(v); return nil }); err != nil {
		return err
	}
	at := -1
	for i := w.durable; i < len(w.history); i++ {
		if maps.EqualFunc(got, w.history[i].all(), func(s string, b []byte) bool { return s == string(b) }) {
			at = i
		}
	}
	if at < 0 {
		w.t.Fatalf("the store holds what was there after no commit from %d to %d: %d keys", w.durable, len(w.history)-1, len(got))
	}
	w.history, w.durable = w.history[:at+1], at
	w.mirror = w.history[at].Clone()
	memory := w.history[at].Clone()
	if w.node, err = Open(cutConfig, w.engine); err != nil {
		return err
	}
	if w.twin, err = Open(cutConfig, memory); err != nil {
		w.t.Fatal(err)
	}
	if err := errors.Join(w.node.Start(cutFacts), w.twin.Start(cutFacts)); err != nil {
		w.t.Fatal(err)
	}
	for _, s := range w.node.Channels() {
		if s.Held > 0 {
			w.held++
		}
	}
	return w.commit()
}

func (w *cutWorld) commit() error {
	w.engine.Durable = w.rng.IntN(3) == 0
	if err := w.twin.Commit(nil); err != nil {
		w.t.Fatal(err)
	}
	before := w.node.Counts().StoreBatches
	err := w.node.Commit(w.mirror)
	if w.node.Counts().StoreBatches > before {
		w.history = append(w.history, w.mirror.Clone())
	}
	if err == nil && w.engine.Durable {
		w.durable = len(w.history) - 1
	}
	return err
}

func (w *cutWorld) step() error {
	id := cutConfig.Consumed[w.rng.IntN(3)]
	r := tagged(w.node.Covered(id), other, w.node.Covered(id))
	for range w.rng.IntN(3) {
		on := cutConfig.Consumed[w.rng.IntN(3)]
		r.Clock.RaiseOffset(on, w.node.Covered(on)+int64(w.rng.IntN(8))-4)
	}
	got, err := w.node.Receive(id, r, nil)
	if err != nil {
		return err
	}
	want, err := w.twin.Receive(id, r, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if !slices.Equal(names(got), names(want)) {
		w.t.Fatalf("delivered %v, the twin %v", names(got), names(want))
	}
	if w.rng.IntN(3) == 0 {
		var x, y parsley.Stamp
		if err := errors.Join(w.node.Stamp(sink0, &x), w.twin.Stamp(sink0, &y)); err != nil {
			w.t.Fatal(err)
		}
		if !x.Clock.Equal(&y.Clock) || x.Sequence != y.Sequence {
			w.t.Fatalf("stamped %s #%d, the twin %s #%d", show(&x.Clock), x.Sequence, show(&y.Clock), y.Sequence)
		}
	}
	if w.rng.IntN(2) == 0 {
		return w.commit()
	}
	return nil
}

// TestPowerCut cuts the power at some operation of the disk, several times in a row: the store always holds what it held after
// some commit that is not before the last durable one, and the node goes on from there as one that never saw a disk.
func TestPowerCut(t *testing.T) {
	held, cut := 0, 0
	for seed := range *cuts {
		rng := rand.New(rand.NewPCG(seed, 3))
		w := &cutWorld{t: t, rng: rng, history: []*Memory{{}}}
		d := crashfs.New()
		for range 5 {
			d.CutAfter(1 + rng.Int64N(250))
			err := w.open(d)
			for range 300 {
				if err != nil {
					break
				}
				err = w.step()
			}
			if err == nil {
				t.Fatalf("seed %d: the power never went", seed)
			}
			if !errors.Is(err, crashfs.ErrPower) {
				t.Fatalf("seed %d: %v", seed, err)
			}
			cut++
			d = d.Crash(rng)
		}
		held += w.held
	}
	if floor := int(*cuts); held < floor {
		t.Errorf("%d starts with held records in %d cuts, want %d", held, cut, floor)
	}
	t.Logf("%d cuts, %d starts with held records", cut, held)
}
