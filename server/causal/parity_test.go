package causal

import (
	"bytes"
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/uuid"

	"kaas/codec/parsley"
)

var worlds = flag.Uint64("worlds", 300, "random histories that TestParity compares")

// parityWorld drives a node in parity mode and the reference with the same random inputs. The inputs need not make sense as a history:
// both must do the same with anything.
type parityWorld struct {
	t        *testing.T
	rng      *rand.Rand
	channels []parsley.Channel // sources and sinks, all may be claimed
	consumed []parsley.Channel
	sinks    []uuid.UUID
	next     map[parsley.Channel]int64
	stores   [2]*Memory
	node     *Node
	ref      *reference
	reached  map[string]int // what happened, so that the test is not for nothing
	commits  bool           // after every step, else only before a restart
}

func newParityWorld(t *testing.T, seed uint64, reached map[string]int) *parityWorld {
	w := &parityWorld{t: t, rng: rand.New(rand.NewPCG(seed, 7)), next: map[parsley.Channel]int64{}, reached: reached}
	w.stores = [2]*Memory{{}, {}}
	for i := range byte(2 + w.rng.IntN(4)) {
		id := topic(i)
		if w.rng.IntN(3) == 0 {
			id[0] = 0x80 // sorts below the others
		}
		for p := range int32(1 + w.rng.IntN(2)) {
			w.channels = append(w.channels, parsley.Channel{Topic: id, Partition: p})
		}
	}
	w.commits = w.rng.IntN(2) == 0
	w.rescope()
	w.start()
	return w
}

// rescope chooses what is consumed and what is sent to; a topic may be both.
func (w *parityWorld) rescope() {
	held := func(c parsley.Channel) bool { return w.ref != nil && len(w.ref.queues[c]) > 0 }
	w.consumed, w.sinks = nil, nil
	for _, c := range w.channels {
		if held(c) || w.rng.IntN(4) > 0 {
			w.consumed = append(w.consumed, c)
		}
		if w.rng.IntN(3) == 0 && !slices.Contains(w.sinks, c.Topic) {
			w.sinks = append(w.sinks, c.Topic)
		}
	}
	w.rng.Shuffle(len(w.consumed), func(i, j int) { w.consumed[i], w.consumed[j] = w.consumed[j], w.consumed[i] })
}

func (w *parityWorld) start() {
	var err error
	if w.node, err = Open(Config{Sender: me, Consumed: w.consumed, Sinks: w.sinks, Parity: true, HeldBytes: -1}, w.stores[0]); err != nil {
		w.t.Fatal(err)
	}
	var f Facts
	asked := append(w.node.FormerSinks(), w.sinks...)
	for _, c := range w.channels {
		if slices.Contains(asked, c.Topic) {
			f.Ends = append(f.Ends, End{c, w.next[c]})
		}
	}
	if err := w.node.Start(f); err != nil {
		w.t.Fatal(err)
	}
	w.ref = newReference(me, w.consumed, w.sinks, w.stores[1], f)
	w.compare(true)
	got := map[parsley.Channel]int64{}
	for _, p := range w.node.ResumePositions() {
		got[p.Channel] = p.Offset
		w.reached["resume"]++
	}
	if !maps.Equal(got, w.ref.resume) {
		w.t.Fatalf("resume positions %v, want %v", got, w.ref.resume)
	}
}

// compare commits, and compares the stores.
func (w *parityWorld) compare(commit bool) {
	w.t.Helper()
	if !commit {
		return
	}
	if err := w.node.Commit(nil); err != nil {
		w.t.Fatal(err)
	}
	got, want := w.stores[0].values, w.stores[1].values
	for k, v := range want {
		if got[k] == nil {
			w.t.Fatalf("key %s is missing", k)
		}
		if !bytes.Equal(got[k].bytes, v.bytes) {
			w.t.Fatalf("%s is %x, want %x", k, got[k].bytes, v.bytes)
		}
	}
	for k := range got {
		if want[k] == nil {
			w.t.Fatalf("key %s should not be there", k)
		}
	}
}

func (w *parityWorld) randomClock() (c parsley.Clock) {
	for range w.rng.IntN(3) {
		k := w.channels[w.rng.IntN(len(w.channels))]
		n := w.next[k] + int64(w.rng.IntN(6)) - 4 // up to two offsets that are not there yet
		if w.rng.IntN(6) == 0 {
			c.RaiseSequence(parsley.SequenceKey{Channel: k, Sender: w.randomSender()}, n-int64(w.rng.IntN(5)))
		} else {
			c.RaiseOffset(k, n)
		}
	}
	return c
}

func (w *parityWorld) randomSender() uuid.UUID {
	return []uuid.UUID{me, other, third, {0: 0x80, 15: 1}}[w.rng.IntN(4)]
}

func (w *parityWorld) step() {
	switch p := w.rng.IntN(100); {
	case p < 60:
		w.receive()
	case p < 75 && len(w.consumed) > 0:
		c := w.consumed[w.rng.IntN(len(w.consumed))]
		w.next[c] = max(w.next[c], w.next[c]+int64(w.rng.IntN(3)-1))
		got, err := w.node.PositionAdvance(c, w.next[c], nil)
		w.same(got, err, w.ref.positionAdvance(c, w.next[c]))
	case p < 90:
		w.stamp()
	case p < 94:
		var bound parsley.Clock
		for _, c := range w.channels {
			bound.RaiseOffset(c, int64(w.rng.IntN(int(w.next[c]+2))-1))
		}
		if err := w.node.Truncate(&bound); err != nil {
			w.t.Fatal(err)
		}
		w.ref.truncate(&bound)
	default:
		w.compare(true)
		if w.rng.IntN(2) == 0 {
			w.rescope()
		}
		w.start()
		w.reached["restart"]++
	}
	w.compare(w.commits)
}

func (w *parityWorld) receive() {
	if len(w.consumed) == 0 {
		return
	}
	c := w.consumed[w.rng.IntN(len(w.consumed))]
	h := &parsley.Held{Offset: w.next[c], Timestamp: w.rng.Int64(), Sequence: -1, Clock: w.randomClock(), Value: []byte{1}}
	switch w.rng.IntN(12) {
	case 0:
		h.Offset += int64(w.rng.IntN(4)) // markers before it
	case 1:
		h.Offset = max(0, h.Offset-int64(w.rng.IntN(5))) // again
	}
	if w.rng.IntN(2) == 0 {
		h.Tagged, h.Sender, h.Sequence = true, w.randomSender(), w.next[c]+int64(w.rng.IntN(4))-1
	}
	if w.rng.IntN(2) == 0 {
		h.Key = []byte("key")
	}
	w.next[c] = max(w.next[c], h.Offset+1)
	got, err := w.node.Receive(c, h, nil)
	w.same(got, err, w.ref.receive(c, h))
}

func (w *parityWorld) stamp() {
	var list []parsley.Channel
	for _, c := range w.channels {
		if slices.Contains(w.sinks, c.Topic) {
			list = append(list, c)
		}
	}
	if len(list) == 0 {
		return
	}
	dest := list[w.rng.IntN(len(list))]
	wantOffsets, wantSequences := len(w.ref.merged().Offsets()), len(w.ref.merged().Sequences())
	if o, s := w.node.Width(); o != wantOffsets || s != wantSequences {
		w.t.Fatalf("width %d, %d, want %d, %d", o, s, wantOffsets, wantSequences)
	}
	var got parsley.Stamp
	if err := w.node.Stamp(dest, &got); err != nil {
		w.t.Fatal(err)
	}
	want, n := w.ref.stamp(dest)
	if !got.Clock.Equal(want) || got.Sequence != n {
		w.t.Fatalf("stamp\n%s #%d, want\n%s #%d", show(&got.Clock), got.Sequence, show(want), n)
	}
	if len(want.Sequences()) > 1 {
		w.reached["sequences in stamps"]++
	}
	w.next[dest] += int64(w.rng.IntN(2)) // sent records and markers
}

func (w *parityWorld) same(got []Delivery, err error, want []Delivery) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
	if !slices.Equal(names(got), names(want)) {
		w.t.Fatalf("delivered %v, want %v", names(got), names(want))
	}
	for i := range got {
		if got[i].Timestamp != want[i].Timestamp || !bytes.Equal(got[i].Key, want[i].Key) || (got[i].Key == nil) != (want[i].Key == nil) || !bytes.Equal(got[i].Value, want[i].Value) {
			w.t.Fatalf("delivered %+v, want %+v", got[i], want[i])
		}
	}
	w.reached["delivered"] += len(got)
	if len(got) > 1 {
		w.reached["cascades"]++
	}
	for _, q := range w.ref.queues {
		if len(q) > 1 {
			w.reached["queues"]++
		}
	}
}

// TestParity: in parity mode a node delivers, stamps and stores exactly what the reference does, over restarts and changes of scope.
func TestParity(t *testing.T) {
	reached := map[string]int{}
	for seed := range *worlds {
		w := newParityWorld(t, seed, reached)
		for range 120 {
			w.step()
		}
		w.compare(true)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	for what, floor := range map[string]int{"delivered": 10, "cascades": 1, "queues": 5, "restart": 3, "resume": 1, "sequences in stamps": 1} {
		if least := floor * int(*worlds) / 2; reached[what] < least {
			t.Errorf("%s: %d times, want at least %d", what, reached[what], least)
		}
	}
	t.Log(reached)
}
