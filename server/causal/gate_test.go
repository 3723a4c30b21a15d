package causal

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/uuid"

	"kaas/codec/parsley"
)

// plainUnmet is the rule of the gate, claim by claim, without rows and hints.
func plainUnmet(n *Node, self *channel, clock *parsley.Clock) (list []need) {
	for _, e := range clock.Offsets() {
		if c := n.byID[e.Key]; c != nil && c != self && c.frontier < e.N {
			list = append(list, need{on: c, n: e.N})
		}
	}
	for _, e := range clock.Sequences() {
		c := n.byID[e.Key.Channel]
		if c == nil || c == self {
			continue
		}
		reached := int64(math.MinInt64)
		if m, ok := n.Mark(e.Key); ok {
			reached = m.Sequence
		}
		if reached < e.N {
			list = append(list, need{on: c, mark: c.markOf(e.Key.Sender).mark, n: e.N})
		}
	}
	return list
}

// TestGateHints: whatever clocks a channel had before, the gate finds what the plain rule finds. Clocks keep their shape, lose and win
// claims, or are of another shape altogether; marks come between others.
func TestGateHints(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 5))
		var all, consumed []parsley.Channel
		for i := range byte(12) {
			for p := range int32(1 + rng.IntN(3)) {
				c := ch(i, p)
				if i%3 == 0 {
					c.Topic[0] = 0x80
				}
				if all = append(all, c); rng.IntN(100) < 40 {
					consumed = append(consumed, c)
				}
			}
		}
		n, err := Open(Config{Sender: me, Consumed: consumed}, &Memory{})
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Start(Facts{}); err != nil {
			t.Fatal(err)
		}
		for _, c := range n.channels {
			n.advance(c, int64(rng.IntN(10)))
		}
		clocks := make([]parsley.Clock, 1+rng.IntN(3))
		for range 400 {
			changeClock(rng, &clocks[rng.IntN(len(clocks))], all)
			if len(n.channels) == 0 {
				continue
			}
			self, on, clock := n.channels[rng.IntN(len(n.channels))], n.channels[rng.IntN(len(n.channels))], &clocks[rng.IntN(len(clocks))]
			n.raise(on, uuid.UUID{0: byte(rng.IntN(5)) * 50}, int64(rng.IntN(10)), 1)
			want, got := plainUnmet(n, self, clock), n.unmet(nil, self, clock)
			if len(got) != len(want) {
				t.Fatalf("seed %d: %d claims unmet, want %d", seed, len(got), len(want))
			}
			for i := range got {
				if got[i] != want[i] {
					t.Fatalf("seed %d: claim %d is %+v, want %+v", seed, i, got[i], want[i])
				}
			}
		}
	}
}

func changeClock(rng *rand.Rand, c *parsley.Clock, all []parsley.Channel) {
	if rng.IntN(50) == 0 {
		c.Reset()
	}
	for range rng.IntN(4) {
		k, n := all[rng.IntN(len(all))], int64(rng.IntN(12))
		s := parsley.SequenceKey{Channel: k, Sender: uuid.UUID{0: byte(rng.IntN(5)) * 50}}
		switch rng.IntN(5) {
		case 0, 1:
			c.RaiseOffset(k, n)
		case 2, 3:
			c.RaiseSequence(s, n)
		default:
			c.RemoveOffset(k)
			c.RemoveSequence(s)
		}
	}
}
