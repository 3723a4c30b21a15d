package simulate

import (
	"flag"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

var (
	seeds = flag.Uint64("seeds", 250/fewerSeeds, "runs of each scenario; those of chance alone run five times as many")
	first = flag.Uint64("first", 0, "the first seed")
	seed  = flag.Int64("seed", -1, "one seed alone")
	shown = flag.Int("lines", 150, "steps of a failing run that are printed")
	hasty = flag.Bool("hasty", false, "end all scenarios when one has failed")

	someFailed atomic.Bool
)

// scenario is a world and what happens in it.
type scenario struct {
	name string
	play func(w *world)
	// floors must be reached by one in five seeds.
	floors []string
	// always must be reached by every seed.
	always []string
	// rare must be reached by some seed of 40 or more.
	rare  []string
	times uint64 // as many seeds as others
	// parity: sound in parity mode too. Left out are those that meet a fault of the existing implementation, or need what it has not.
	parity bool
}

func scenarioNamed(t *testing.T, name string) *scenario {
	for i := range scenarios {
		if scenarios[i].name == name {
			return &scenarios[i]
		}
	}
	t.Fatalf("no scenario %q", name)
	return nil
}

// attempt plays s once.
func attempt(s *scenario, d *dice, broken breakage, trace *strings.Builder) (w *world, v *violation) {
	w = newWorld(d)
	w.broken, w.trace = broken, trace
	defer func() {
		switch e := recover().(type) {
		case nil:
		case violation:
			v = &e
		default:
			v = &violation{"panic", fmt.Sprintf("%v\n%s", e, debug.Stack())}
		}
	}()
	s.play(w)
	return w, nil
}

// What is done at most to make a failing run shorter.
const (
	shrinkTries = 1500
	shrinkTime  = 20 * time.Second
)

// report shows a failure: the same run, made as short as it gets while it fails in the same way.
func report(t *testing.T, s *scenario, seed uint64, broken breakage, d *dice, v *violation) {
	t.Helper()
	t.Errorf("seed %d: %s: %s\nagain: go test ./server/causal/simulate -run '%s/^%s$' -seed %d", seed, v.kind, v.text, strings.SplitN(t.Name(), "/", 2)[0], strings.ReplaceAll(s.name, " ", "_"), seed)
	if *shown == 0 {
		return
	}
	began := time.Now()
	again := func(tape []uint32) bool {
		if time.Since(began) > shrinkTime {
			return false
		}
		_, short := attempt(s, &dice{tape: tape}, broken, nil)
		return short != nil && short.kind == v.kind
	}
	tape := d.tape
	if again(tape) {
		tape = shrink(tape, shrinkTries, again)
	}
	var trace strings.Builder
	_, short := attempt(s, &dice{tape: tape}, broken, &trace)
	if short == nil {
		t.Log("does not fail again: background work of a store had a part in it")
		return
	}
	lines := strings.Split(strings.TrimSuffix(trace.String(), "\n"), "\n")
	if n := len(lines) - *shown; n > 0 {
		lines = append([]string{fmt.Sprintf("… %d lines", n)}, lines[n:]...)
	}
	t.Logf("made short (%d of %d draws), it ends with\n%s\n%s: %s", len(tape), len(d.tape), strings.Join(lines, "\n"), short.kind, short.text)
}

// TestScenarios plays every scenario with many seeds.
func TestScenarios(t *testing.T) {
	for i := range scenarios {
		t.Run(scenarios[i].name, func(t *testing.T) {
			t.Parallel()
			playAll(t, &scenarios[i], sound, *seeds*max(scenarios[i].times, 1))
		})
	}
}

// TestParityMode plays the scenarios in which a node of parity mode must do as well.
func TestParityMode(t *testing.T) {
	for i := range scenarios {
		if s := &scenarios[i]; s.parity {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				playAll(t, s, parityMode, max(*seeds*2/5, 40))
			})
		}
	}
}

// parityLacks is what a host asks of no node of parity mode.
var parityLacks = map[string]bool{"looked back": true}

// playAll plays s with so many seeds, and sees that its floors are reached.
func playAll(t *testing.T, s *scenario, broken breakage, runs uint64) {
	from, to := *first, *first+runs
	if *seed >= 0 {
		from, to = uint64(*seed), uint64(*seed)+1
	}
	seen, steps, deliveries, began := map[string]uint64{}, 0, 0, time.Now()
	for n := from; n < to; n++ {
		if *hasty && someFailed.Load() {
			return
		}
		d := newDice(n)
		w, v := attempt(s, d, broken, nil)
		if v != nil {
			someFailed.Store(true)
			report(t, s, n, broken, d, v)
			return
		}
		for what := range w.count {
			seen[what]++
		}
		steps += w.steps
		deliveries += w.count["delivery"]
		for _, what := range s.always {
			if w.count[what] == 0 && (broken != parityMode || !parityLacks[what]) {
				t.Errorf("seed %d: no %s", n, what)
			}
		}
	}
	for _, what := range s.floors {
		if runs := to - from; seen[what]*5 < runs && *seed < 0 && (broken != parityMode || !parityLacks[what]) {
			t.Errorf("%s in %d of %d seeds, want one in five", what, seen[what], runs)
		}
	}
	for _, what := range s.rare {
		if seen[what] == 0 && to-from >= 40 {
			t.Errorf("no %s in %d seeds", what, to-from)
		}
	}
	t.Logf("%d seeds, %d steps, %d deliveries, %v; seeds that reached: %s", to-from, steps, deliveries, time.Since(began).Round(time.Millisecond), listing(seen))
}

func listing(m map[string]uint64) string {
	var list []string
	for k, v := range m {
		list = append(list, fmt.Sprintf("%s %d", k, v))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}
