package causal

import (
	"runtime"
	"testing"

	"github.com/google/uuid"

	"kaas/codec/parsley"
	"kaas/engine/state"
	"kaas/engine/vfs"
)

// heldHeap holds n records on disk and returns the heap bytes that each takes, and the node.
func heldHeap(t testing.TB, n int64) (float64, *Node, func()) {
	t.Helper()
	s, err := state.Open(vfs.OS, t.TempDir(), state.Options{OnError: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	node, err := Open(Config{Sender: me, Consumed: []parsley.Channel{a, b, c}, Sinks: []uuid.UUID{topic(30)}, HeldBytes: 1 << 20}, &Engine{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Start(Facts{Ends: []End{{sink0, 0}}}); err != nil {
		t.Fatal(err)
	}
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	before := heap()
	var out []Delivery
	for i := range n {
		r := tagged(i/2, other, i/2, off(far, i), off(c, 0), off(b, i/2))
		r.Value = make([]byte, 100)
		if out, err = node.Receive([]parsley.Channel{a, b}[i%2], r, out[:0]); err != nil || len(out) > 0 {
			t.Fatal(len(out), err)
		}
		if i%100 == 99 || i == n-1 {
			if err := node.Commit(nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	return (heap() - before) / float64(n), node, func() { s.Close() }
}

// TestHeldHeap: a held record on disk takes little memory, and all of them come out.
func TestHeldHeap(t *testing.T) {
	const n = 40_000
	each, node, closeStore := heldHeap(t, n)
	defer closeStore()
	if limit := 200 + float64(1<<20)/n; each > limit {
		t.Errorf("%.0f bytes of heap for each of %d held records, limit %.0f", each, n, limit)
	}
	out, err := node.Receive(c, rec(0), nil)
	for err == nil && node.More() {
		out, err = node.Resume(out)
	}
	if err != nil || len(out) != n+1 {
		t.Errorf("delivered %d, %v", len(out), err)
	}
	t.Logf("%.0f bytes", each)
}

// TestCascadeCost: looking at clocks, waking and releasing grow with what is released, not with all that waits.
func TestCascadeCost(t *testing.T) {
	const n = 2000
	var channels []parsley.Channel
	for i := range int32(n + 1) {
		channels = append(channels, ch(1, i))
	}
	r := newRig(t, nil, append(channels[:len(channels):len(channels)], ch(20, 0), b)...)
	// The head of each channel waits for the one before it, backwards in channel order: a pass over all channels would release one.
	for i := range n {
		if _, err := r.Receive(channels[i], rec(0, off(channels[i+1], 0), off(b, 0)), nil); err != nil {
			t.Fatal(err)
		}
	}
	before := r.Counts()
	for i := range int64(50) { // traffic that nobody waits for
		quiet := ch(20, 0)
		r.feed(quiet, rec(i), names([]Delivery{{Channel: quiet, Offset: i}})...)
	}
	if got := r.Counts(); got.GateChecks-before.GateChecks != 50 || got.ClaimsWoken != before.ClaimsWoken {
		t.Errorf("counts %+v, before %+v", got, before)
	}
	before = r.Counts()
	r.feed(b, rec(0), "2:0@0")
	if got := r.Counts(); got.ClaimsWoken-before.ClaimsWoken > 1 || got.GateChecks-before.GateChecks != 1 {
		t.Errorf("counts %+v, before %+v", got, before)
	}
	before = r.Counts()
	out, err := r.Receive(channels[n], rec(0), nil)
	if err != nil || len(out) != n+1 {
		t.Fatal(len(out), err)
	}
	if got := r.Counts(); got.GateChecks-before.GateChecks != 1 || got.ClaimsWoken-before.ClaimsWoken != n {
		t.Errorf("%d gate checks, %d wakes for %d releases", got.GateChecks-before.GateChecks, got.ClaimsWoken-before.ClaimsWoken, n+1)
	}
}

// TestAllocations: in steady state a record that passes, a stamp and an acknowledgement allocate nothing.
func TestAllocations(t *testing.T) {
	r := newRig(t, nil, a, b, c, ch(4, 0))
	h := tagged(0, other, 0, off(b, 0), off(far, 0), seq(c, third, 0), off(ch(9, 1), 5))
	r.feed(b, rec(3), "2:0@3")
	r.feed(c, tagged(0, third, 1<<40), "3:0@0")
	var out []Delivery
	var stamp parsley.Stamp
	var err error
	n := int64(0)
	step := func() {
		h.Offset, h.Sequence = n, n
		if out, err = r.Receive(a, h, out[:0]); err != nil || len(out) != 1 {
			t.Fatal(len(out), err)
		}
		if err = r.Stamp(sink0, &stamp); err != nil {
			t.Fatal(err)
		}
		if err = r.Acked(sink0, stamp.Sequence, 2*n); err != nil {
			t.Fatal(err)
		}
		n++
	}
	step()
	if got := testing.AllocsPerRun(100, step); got != 0 {
		t.Errorf("%v allocations", got)
	}
}
