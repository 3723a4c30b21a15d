package simulate

import (
	"fmt"
	"strings"

	"kaas/server/causal"
)

// world is one run.
type world struct {
	broker
	*dice
	hosts     []*host
	clients   []*client
	strangers []*transaction // open ones
	steps     int
	count     map[string]int // what was reached, how often
	trace     *strings.Builder
	acts      []action

	broken  breakage // of hosts and nodes, for the tests of the tests
	disks   bool     // engine stores on disks that lose power
	acks    int
	custody bool // sweeps upgrade custody
	looks   bool // hosts look back for claims that they cannot meet
	eager   bool // a commit after every step
	budget  budget
	calm    int // steps before topics, scopes and stores go
}

// budget is how often something may still happen.
type budget struct {
	crashes, cuts, rewinds, sweeps, prunes, deletions, rescopes, strangers, overruns, resets, compactions int
}

// When hosts tell their nodes of acknowledgements.
const (
	acksAtOnce = iota
	acksLate
	acksNever
)

const maxSteps = 200_000

func newWorld(d *dice) *world {
	w := &world{broker: newBroker(), dice: d, count: map[string]int{}}
	w.acks, w.custody, w.eager = d.n(3), d.chance(70), d.chance(50)
	if d.chance(10) {
		w.disks, w.budget.cuts = true, 2
	}
	return w
}

func (w *world) reached(what string) { w.count[what]++ }

func (w *world) tracef(format string, args ...any) {
	if w.trace != nil {
		fmt.Fprintf(w.trace, "%5d  "+format+"\n", append([]any{w.steps}, args...)...)
	}
}

// action is something that can happen now. h is nil if it is not of a host.
type action struct {
	name string
	do   func(w *world, h *host, i int)
	h    *host
	i    int
}

var (
	actStart   = func(_ *world, h *host, _ int) { h.start() }
	actFetch   = func(_ *world, h *host, i int) { h.fetch(i) }
	actAdvance = func(_ *world, h *host, i int) { h.advance(i) }
	actCommit  = func(_ *world, h *host, _ int) { h.commit() }
	actTick    = func(_ *world, h *host, _ int) { h.tick() }
	actSweep   = func(w *world, h *host, _ int) { w.budget.sweeps--; h.sweep() }
	actLook    = func(_ *world, h *host, any int) { h.lookBack(any > 0) }
	actProduce = func(w *world, _ *host, i int) { w.clients[i].produce() }
	actRead    = func(w *world, _ *host, i int) { w.clients[i/100].read(i % 100) }
	actOpen    = func(w *world, _ *host, _ int) { w.budget.strangers--; w.stranger() }
	actEnd     = func(w *world, _ *host, i int) {
		w.strangers[i].finish(w.chance(50))
		w.strangers = append(w.strangers[:i], w.strangers[i+1:]...)
	}
)

func (w *world) add(name string, do func(*world, *host, int), h *host, i int) {
	w.acts = append(w.acts, action{name, do, h, i})
}

// possible collects what can happen: first what moves the world on, then what disturbs it. It is false when nothing moves on any more.
func (w *world) possible() bool {
	w.acts = w.acts[:0]
	for i := range w.strangers {
		w.add("end of an open transaction", actEnd, nil, i)
	}
	for i, name := range w.names {
		if w.topics[name].deleted {
			w.add("create "+name, actCreate, nil, i)
		}
	}
	for i, c := range w.clients {
		if len(c.script) > 0 && (!c.paced || c.ahead > 0) {
			w.add("produce by "+c.name, actProduce, nil, i)
		}
		for j := range c.reads {
			if _, ok := c.reads[j].log.next(c.reads[j].position); ok && !c.reads[j].log.destroyed {
				w.add("read by "+c.name, actRead, nil, i*100+j)
			}
		}
	}
	for _, h := range w.hosts {
		w.ofHost(h, false)
	}
	if len(w.acts) == 0 {
		for _, h := range w.hosts {
			w.ofHost(h, true)
		}
	}
	if len(w.acts) == 0 {
		w.lastResort()
	}
	if len(w.acts) == 0 {
		return false
	}
	if w.chance(30) { // they would all come in the first steps otherwise
		w.disruptions()
	}
	return true
}

// ofHost are the actions by which h moves on; those on slow feeds as a rule only when there are no others.
func (w *world) ofHost(h *host, slow bool) {
	if !h.up {
		if h.startable() && (w.steps >= h.joins || len(w.acts) == 0) {
			w.add("start", actStart, h, 0)
		}
		return
	}
	if h.changed {
		w.add("commit", actCommit, h, 0)
	}
	if h.ticking > 0 {
		w.add("tick", actTick, h, 0)
	}
	for i := range h.feeds {
		f := &h.feeds[i]
		if f.log.destroyed || f.slow && !slow && !w.chance(8) || h.frozen != "" && w.logOf(h.frozen) == f.log {
			continue
		}
		if h.advanceTo(f) > f.told && w.broken != positionsWithheld {
			w.add("advance", actAdvance, h, i)
		}
		if _, ok := f.log.next(f.position); ok {
			w.add("fetch", actFetch, h, i)
		}
	}
}

// lastResort is what is done only when nothing comes any more: a paced client goes on, a host looks back.
func (w *world) lastResort() {
	for i, c := range w.clients {
		if len(c.script) > 0 {
			w.add("produce by "+c.name, actProduce, nil, i)
		}
	}
	for _, h := range w.hosts {
		if h.up && w.looks && w.broken != neverLooks {
			if _, ok := h.lookable(false); ok {
				w.add("look back", actLook, h, 0)
			}
		}
	}
}

// run lets things happen by chance until nothing can any more.
func (w *world) run() {
	for ; w.possible(); w.steps++ {
		if w.steps > maxSteps {
			fail(endless, "%d steps", w.steps)
		}
		a := w.acts[len(w.acts)-1-w.n(len(w.acts))]
		if w.trace != nil {
			w.describe(a)
		}
		a.do(w, a.h, a.i)
		if w.eager && a.h != nil && a.h.up && a.h.changed {
			a.h.commit()
		}
		if w.trace != nil && a.h != nil {
			for i := range a.h.out {
				w.tracef("    delivers %s@%d", w.logs[a.h.out[i].Channel].name, a.h.out[i].Offset)
			}
			a.h.out = a.h.out[:0]
		}
	}
	for _, h := range w.hosts { // what a scenario does by itself goes well
		if s, ok := h.store.(*diskStorage); ok && s.cutting {
			s.cutting = false
			s.disk.CutAfter(-1)
		}
	}
}

func (w *world) describe(a action) {
	s := a.name
	if a.h != nil {
		s = a.h.name + ": " + s
		if a.i < len(a.h.feeds) && (a.name == "fetch" || a.name == "advance" || a.name == "fetch, then crash") {
			f := &a.h.feeds[a.i]
			offset, found := f.log.next(f.position)
			s += fmt.Sprintf(" %s@%d", f.log.name, offset)
			if r := f.log.slots; found && r[offset].record != nil {
				s += " by " + r[offset].record.by
			}
		}
	}
	w.tracef("%s", s)
}

// finish runs the world to its end and checks that everything was delivered.
func (w *world) finish() {
	w.run()
	w.checkDrained()
}

// checkDrained fails for what waits or is missing.
func (w *world) checkDrained() {
	for _, h := range w.hosts {
		if !h.up {
			continue
		}
		for _, c := range h.node.Channels() {
			if c.Held > 0 {
				fail(incomplete, "%s holds %d records of %s: %s", h.name, c.Held, w.logs[c.Channel].name, w.explain(h))
			}
		}
	}
	for _, a := range w.oracle.actors {
		a.complete()
	}
}

func (w *world) explain(h *host) (s string) {
	for _, b := range h.node.Explain() {
		s += fmt.Sprintf(" %s@%d waits for", w.logs[b.Channel].name, b.Offset)
		for _, u := range b.Unmet {
			s += fmt.Sprintf(" %s up to %d (sequenced %v, frontier %d, delivered %d)", w.logs[u.Channel].name, u.Claimed, u.Sequenced, u.Frontier, u.Delivered)
		}
	}
	return s
}

// wedged says whether h holds records.
func wedged(h *host) bool {
	for _, c := range h.node.Channels() {
		if c.Held > 0 {
			return true
		}
	}
	return false
}

// forward sends every record on to all sinks, once less often each time.
func forward(h *host, d *causal.Delivery) (list []emission) {
	if len(d.Value) == 0 || d.Value[0] == 0 {
		return nil
	}
	value := append([]byte{d.Value[0] - 1}, d.Value[1:]...)
	for _, s := range h.sinks {
		if s != h.ticks {
			list = append(list, emission{s, d.Key, value})
		}
	}
	return list
}

// consume sends nothing.
func consume(*host, *causal.Delivery) []emission { return nil }

// filter is forward for one value of n.
func filter(n byte) logic {
	return func(h *host, d *causal.Delivery) []emission {
		if len(d.Value) < 2 || d.Value[1]%n != 0 {
			return nil
		}
		return forward(h, d)
	}
}

// script is n records for each topic, which live for a number of hops.
func script(n, hops int, topics ...string) (list []emission) {
	for i := range n {
		for _, t := range topics {
			key := []byte(fmt.Sprintf("k%d", i))
			if i%7 == 6 {
				key = nil
			}
			list = append(list, emission{t, key, []byte{byte(hops), byte(i), byte(i >> 8)}})
		}
	}
	return list
}
