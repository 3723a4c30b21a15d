package coordinator

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestWheelAgainstList arms, stops and fires timers at random and compares with a plain list of ticks.
func TestWheelAgainstList(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var w wheel[int]
		type armed struct {
			due int64
			t   Timer
		}
		model := map[int]armed{}
		spread := []int64{3, 70, 5_000, 300_000, 1 << 40}[rng.IntN(5)]
		for id := range 400 {
			switch rng.IntN(4) {
			case 0, 1:
				due := w.now + rng.Int64N(spread) - 1
				h := w.add(due, id)
				if h == 0 {
					t.Fatalf("seed %d: handle 0", seed)
				}
				model[id] = armed{max(due, w.now+1), h}
			case 2:
				for other, a := range model {
					w.stop(a.t)
					w.stop(a.t) // twice does no harm
					delete(model, other)
					break
				}
			case 3:
				to := w.now + rng.Int64N(spread)
				last := w.now
				w.advance(to, func(h Timer, id int) {
					a, ok := model[id]
					if !ok || a.t != h || a.due > to || a.due < last {
						t.Fatalf("seed %d: timer %d fired at %d, armed %+v (known %v), after one of %d", seed, id, to, a, ok, last)
					}
					last = a.due
					if what, ok := w.claim(h); !ok || what != id {
						t.Fatalf("seed %d: claim of %d: %d, %v", seed, id, what, ok)
					}
					delete(model, id)
				})
				for id, a := range model {
					if a.due <= to {
						t.Fatalf("seed %d: timer %d of %d did not fire at %d", seed, id, a.due, to)
					}
				}
			}
			if w.armed != len(model) {
				t.Fatalf("seed %d: %d armed, want %d", seed, w.armed, len(model))
			}
			next, ok := w.next()
			var least int64 = math.MaxInt64
			for _, a := range model {
				least = min(least, a.due)
			}
			if ok != (len(model) > 0) || ok && (next > least || next <= w.now) {
				t.Fatalf("seed %d: next %d (%v) at %d, earliest timer %d", seed, next, ok, w.now, least)
			}
		}
	}
}

// A timer that fired and was not yet run is still stopped, and its handle does not hit the one that gets its place.
func TestWheelStopAfterFiring(t *testing.T) {
	var w wheel[string]
	a := w.add(5, "a")
	fired := []Timer{}
	w.advance(5, func(h Timer, _ string) { fired = append(fired, h) })
	if !slices.Equal(fired, []Timer{a}) {
		t.Fatalf("fired %v, want %v", fired, a)
	}
	w.stop(a)
	if _, ok := w.claim(a); ok {
		t.Error("a stopped timer was claimed")
	}
	b := w.add(9, "b")
	if uint32(b) != uint32(a) || b == a {
		t.Errorf("handle %x after %x: the same place with another use is wanted", b, a)
	}
	w.stop(a)
	if _, ok := w.claim(b); ok {
		t.Error("a timer that did not fire was claimed")
	}
	w.advance(100, func(h Timer, _ string) { fired = append(fired, h) })
	if what, ok := w.claim(b); !ok || what != "b" {
		t.Errorf("b: %q, %v", what, ok)
	}
	if _, ok := w.claim(b); ok {
		t.Error("claimed twice")
	}
	for _, bad := range []Timer{0, 7, Timer(1)<<32 | 99, math.MaxUint64} {
		w.stop(bad)
	}
}

func BenchmarkWheel(b *testing.B) {
	// 100,000 members whose session timers are set anew by each heartbeat.
	b.Run("rearm/timers=100000", func(b *testing.B) {
		var w wheel[int]
		hs := make([]Timer, 100_000)
		for i := range hs {
			hs[i] = w.add(int64(10_000+i%3_000), i)
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			k := i % len(hs)
			w.stop(hs[k])
			hs[k] = w.add(w.now+45_000, k)
			if i%30 == 0 { // 30,000 heartbeats a second, ticks of 1 ms
				w.advance(w.now+1, func(Timer, int) {})
			}
		}
	})
}
