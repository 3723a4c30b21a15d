package simulate

import (
	"fmt"

	"kaas/server/causal"
)

func topics(names ...string) []string { return names }

func (w *world) make(names ...string) {
	for _, n := range names {
		w.create(n, 1)
	}
}

var scenarios = []scenario{
	{name: "shared-input diamond", parity: true, play: diamond, floors: []string{"hold"}},
	{name: "blind hop", parity: true, play: blindHop, floors: []string{"hold", "crash", "crash while holding"}},
	{name: "edge cross-topic", parity: true, play: edgeCrossTopic, floors: []string{"hold"}},
	{name: "edge observer", parity: true, play: edgeObserver, floors: []string{"hold", "observed"}},
	{name: "crash chain", parity: true, play: crashChain, floors: []string{"hold", "crash", "restore", "crash in a transaction"}},
	{name: "filter and trailing markers", parity: true, play: trailingMarkers, floors: []string{"position advance", "crash"}},
	{name: "multi-partition sink", parity: true, play: multiPartition, floors: []string{"hold"}},
	{name: "damped cycle", parity: true, play: dampedCycle, floors: []string{"hold"}},
	{name: "truncate mid-history", parity: true, play: truncateMidHistory, floors: []string{"hold"}, always: []string{"truncated"}},
	{name: "truncation at the edge", parity: true, play: truncationEdge, always: []string{"hold"}},
	{name: "wide soak", parity: true, play: wideSoak, floors: []string{"hold", "crash", "position advance", "restore"}},
	{name: "late joiner", play: lateJoiner, always: []string{"looked back"}},
	{name: "late joiner without look-back", parity: true, play: lateJoinerWedge, always: []string{"wedged"}},
	{name: "joiner from the start", parity: true, play: joinerFromStart, floors: []string{"hold"}},
	{name: "truncation to empty", parity: true, play: truncationToEmpty, floors: []string{"hold"}, always: []string{"truncated"}},
	{name: "joiner after truncation", parity: true, play: joinerAfterTruncation, floors: []string{"hold"}},
	{name: "restart claims prior sends", parity: true, play: restartClaims, floors: []string{"hold"}},
	{name: "shrink carries ancestry", parity: true, play: shrinkCarries, floors: []string{"hold"}, always: []string{"truncated"}},
	{name: "ticking stage", parity: true, play: tickingStage, floors: []string{"tick delivered", "hold", "crash"}},
	{name: "tick and dropped sink", parity: true, play: tickDroppedSink, floors: []string{"tick delivered"}},
	{name: "growth at carried knowledge", parity: true, play: growth, always: []string{"resume"}},
	{name: "growth below a carried number", play: growthBelow, floors: []string{"hold", "grown below"}},
	{name: "quiet sink", parity: true, play: quietSink, floors: []string{"released by a position"}},
	{name: "seed above an open transaction", parity: true, play: openTransaction, floors: []string{"hold"}},
	{name: "former sink", parity: true, play: formerSink, floors: []string{"hold"}},
	{name: "lost store", play: lostStore, floors: []string{"hold"}, always: []string{"reset"}},
	{name: "echo of a lost store", play: lostEcho, floors: []string{"hold"}, always: []string{"reset"}},
	{name: "rewinds", play: rewinds, floors: []string{"rewind", "replay", "restore"}},
	{name: "aborted", parity: true, play: abortedRecords, floors: []string{"aborted", "hold"}},
	{name: "retention under way", play: retention, floors: []string{"prune", "truncated", "hold", "custody upgraded"}},
	{name: "retention too far", play: retentionTooFar, floors: []string{"overrun", "refused after a loss", "reset"}},
	{name: "deletion", play: deletion, floors: []string{"deletion", "hold"}},
	{name: "dropped input frees", play: droppedInput, always: []string{"deliverable at the start", "hold"}},
	{name: "compaction", parity: true, play: compaction, floors: []string{"compacted", "compacted unread", "compacted while held", "hold", "restore"}},
	{name: "claim on what was compacted away", parity: true, play: compactedClaim, always: []string{"compacted", "looked back", "wedged"}},
	{name: "look back on a compacted log", play: compactedLookBack, floors: []string{"compacted unread", "looked back", "hold"}},
	{name: "chance", play: chance, times: 5, floors: chanceFloors, rare: chanceRare},
	{name: "chance on disks", play: chanceOnDisks, times: 2, floors: append([]string{"power cut", "power cut in an operation"}, chanceFloors...), rare: chanceRare},
}

func diamond(w *world) {
	w.make("t1", "t2")
	w.stage("A", topics("t1"), topics("t2"), forward)
	w.stage("C", topics("t1", "t2"), nil, consume)
	w.client("p", script(8, 3, "t1"))
	w.finish()
}

func blindHop(w *world) {
	w.make("t1", "t2", "t3")
	w.stage("A", topics("t1"), topics("t2"), forward)
	w.stage("B", topics("t2"), topics("t3"), forward)
	w.stage("C", topics("t3", "t1"), nil, consume).behind = "t1"
	w.client("p", script(8, 3, "t1"))
	w.budget.crashes = 3
	w.finish()
}

func edgeCrossTopic(w *world) {
	w.make("t1a", "t1b")
	w.stage("C", topics("t1a", "t1b"), nil, consume)
	w.client("p", script(6, 3, "t1a", "t1b"))
	w.finish()
}

func edgeObserver(w *world) {
	w.make("t1", "t2", "t3")
	w.stage("A", topics("t1"), topics("t2"), forward)
	w.stage("D", topics("t3", "t2"), nil, consume)
	w.client("p", script(6, 3, "t1"))
	w.client("o", script(6, 3, "t3"), "t2").paced = true
	w.finish()
}

func crashChain(w *world) {
	w.chain()
	w.client("p", script(10, 3, "t1"))
	w.budget.crashes = 4
	w.finish()
}

// chain is three stages, each of which reads what the two before it wrote.
func (w *world) chain() {
	w.make("t1", "t2", "t3")
	w.stage("A", topics("t1"), topics("t2"), forward)
	w.stage("B", topics("t2", "t1"), topics("t3"), forward)
	w.stage("C", topics("t3", "t2"), nil, consume)
}

func trailingMarkers(w *world) {
	w.make("t1", "t2", "t3")
	w.stage("F", topics("t1"), topics("t2"), filter(3))
	w.stage("B", topics("t2", "t1"), topics("t3"), forward)
	w.stage("C", topics("t3"), nil, consume)
	w.client("p", script(10, 4, "t1"))
	w.budget.crashes = 2
	w.finish()
}

func multiPartition(w *world) {
	w.make("t1")
	w.create("t2", 2)
	w.stage("A", topics("t1"), topics("t2"), forward)
	w.stage("C", topics("t2:0", "t2:1"), nil, consume)
	w.client("p", script(10, 3, "t1"))
	w.finish()
}

func dampedCycle(w *world) {
	w.make("t1", "t2", "t3")
	w.stage("A", topics("t1", "t3"), topics("t2"), forward)
	w.stage("B", topics("t2"), topics("t3"), forward)
	w.stage("C", topics("t2", "t3"), nil, consume)
	w.client("p", script(6, 5, "t1"))
	w.finish()
}

// pruneAll has retention take all but the last keep offsets of every log, and every host sweep.
func (w *world) pruneAll(keep int64) {
	for _, p := range w.all {
		p.start = max(p.start, p.end()-keep)
	}
	w.sweepAll()
}

func (w *world) sweepAll() {
	for _, h := range w.hosts {
		if err := h.truncate(); err != nil {
			fail(refused, "%v", err)
		}
		h.commit()
	}
}

func truncateMidHistory(w *world) {
	w.chain()
	w.client("p", script(6, 3, "t1"))
	w.finish()
	w.pruneAll(1)
	w.client("q", script(6, 3, "t1"))
	w.budget.crashes = 2
	w.finish()
}

// truncationEdge: retention takes all that C has read of t1, and not the next record. That this came first is known to B, which sweeps,
// by what it carries for others alone, and to C by what B then sends.
func truncationEdge(w *world) {
	w.budget.cuts = 0
	w.make("t1", "t2", "t3", "t5")
	w.stage("A", topics("t1"), topics("t2"), forward)
	w.stage("B", topics("t2", "t5"), topics("t3"), func(h *host, d *causal.Delivery) []emission {
		if d.Channel.Topic == w.topics["t2"].id {
			return nil
		}
		return forward(h, d)
	})
	c := w.stage("C", topics("t3", "t1"), nil, consume)
	w.client("p", script(3, 3, "t1"))
	w.finish()
	c.frozen = "t1"
	t1 := w.logOf("t1")
	at := t1.end()
	w.client("q", script(1+w.n(2), 3, "t1"))
	w.run()
	t1.start = at
	w.sweepAll()
	w.client("r", script(2, 3, "t5"))
	w.run()
	c.frozen = ""
	w.finish()
}

func wideSoak(w *world) {
	w.create("t1", 2)
	w.create("t2", 2)
	w.make("t3", "t4", "t5")
	w.stage("A", topics("t1:0", "t4"), topics("t2"), forward)
	w.stage("B", topics("t1:1"), topics("t2", "t3"), filter(2))
	w.stage("D", topics("t2:0", "t3"), topics("t4"), filter(3))
	w.stage("E", topics("t2:1", "t3", "t1:0"), topics("t5"), forward)
	w.stage("C", topics("t5", "t4", "t2:0", "t2:1", "t1:1"), nil, consume)
	w.client("p", script(12, 4, "t1"))
	w.client("q", script(6, 4, "t3"), "t5")
	w.budget.crashes, w.budget.strangers, w.budget.rewinds = 6, 2, 2
	w.finish()
}

// twoPartitions has B pass on what A sent to one partition of t2, with claims on numbers that A gave to the other.
func (w *world) twoPartitions() {
	w.acks, w.custody, w.budget.cuts = acksNever, false, 0 // a start of A would turn its numbers into offsets
	w.make("t1", "t3")
	w.create("t2", 2)
	w.stage("A", topics("t1"), topics("t2"), forward)
	w.stage("B", topics("t2:0"), topics("t3"), forward)
	w.client("p", script(12, 3, "t1"))
}

func lateJoiner(w *world) {
	w.looks = true
	w.twoPartitions()
	w.finish()
	w.stage("L", topics("t3", "t2:1"), nil, consume).latest = topics("t2:1")
	w.finish()
}

func lateJoinerWedge(w *world) {
	w.twoPartitions()
	w.finish()
	l := w.stage("L", topics("t3", "t2:1"), nil, consume)
	l.latest = topics("t2:1")
	w.run()
	if wedged(l) {
		w.reached("wedged")
	}
}

func joinerFromStart(w *world) {
	w.twoPartitions()
	w.finish()
	w.stage("L", topics("t3", "t2:1"), nil, consume)
	w.finish()
}

func truncationToEmpty(w *world) {
	w.chain()
	w.custody = false
	w.client("p", script(6, 3, "t1"))
	w.finish()
	w.pruneAll(0)
	for _, h := range w.hosts {
		if list := h.node.StampChannels(); len(list) > 0 {
			fail(falseClaim, "%s carries claims on %v after all was deleted", h.name, list)
		}
	}
	w.client("q", script(6, 3, "t1"))
	w.finish()
}

func joinerAfterTruncation(w *world) {
	w.chain()
	w.client("p", script(6, 3, "t1"))
	w.finish()
	w.pruneAll(int64(w.n(2)))
	w.stage("L", topics("t3", "t1"), nil, consume)
	w.client("q", script(6, 3, "t1"))
	w.finish()
}

func restartClaims(w *world) {
	w.make("t1", "t2", "t3")
	to := "t2"
	a := w.stage("A", topics("t1"), topics("t2", "t3"), func(h *host, d *causal.Delivery) []emission {
		return []emission{{to, d.Key, d.Value}}
	})
	w.client("p", script(4, 3, "t1"))
	w.finish()
	a.stop()
	to = "t3"
	w.client("q", script(4, 3, "t1"))
	w.finish()
	w.stage("C", topics("t2", "t3"), nil, consume)
	w.finish()
}

// shrinkCarries: that A has seen t1b is told by what A sends to t2 after it dropped t1b, and by nothing else.
func shrinkCarries(w *world) {
	w.make("t1a", "t1b", "t2")
	a := w.stage("A", topics("t1a", "t1b"), topics("t2"), forward)
	w.client("p", script(4, 3, "t1b"))
	w.finish()
	a.stop()
	a.sources = topics("t1a")
	w.logOf("t2").start = w.logOf("t2").end()
	w.client("q", script(4, 3, "t1a"))
	w.finish()
	claims := func() bool {
		for _, c := range a.node.StampChannels() {
			if c == w.logOf("t1b").id {
				return true
			}
		}
		return false
	}
	if !claims() {
		fail(vacuous, "A carries no claim on what it dropped")
	}
	w.stage("C", topics("t2", "t1b"), nil, consume)
	w.finish()
	w.pruneAll(0)
	if claims() {
		fail(falseClaim, "A carries a claim on what was deleted")
	}
	w.client("r", script(4, 3, "t1a", "t1b"))
	w.finish()
}

// ticker is stage A with ticks, each of which it answers with a record.
func (w *world) ticker(sinks ...string) *host {
	a := w.stage("A", topics("t1", "tk"), append(sinks, "tk"), forward)
	a.ticks, a.ticking = "tk", 6
	return a
}

func tickingStage(w *world) {
	w.make("t1", "t2", "tk")
	w.ticker("t2")
	w.stage("C", topics("t2", "t1"), nil, consume)
	w.client("p", script(8, 3, "t1"))
	w.budget.crashes = 3
	w.finish()
}

func tickDroppedSink(w *world) {
	w.make("t1", "t2", "t3", "tk")
	a := w.ticker("t2", "t3")
	w.client("p", script(4, 3, "t1"))
	w.budget.crashes = 2
	w.finish()
	a.stop()
	a.sinks, a.ticking = topics("t2", "tk"), 6
	w.client("q", script(4, 3, "t1"))
	w.finish()
	w.stage("C", topics("t2", "t3"), nil, consume)
	w.finish()
}

func growth(w *world) {
	w.make("t1a", "t1b", "t2")
	a := w.stage("A", topics("t1a"), topics("t1b"), forward)
	w.client("p", script(4, 3, "t1a"))
	w.finish()
	a.stop()
	a.sources, a.sinks = topics("t1a", "t1b"), topics("t2")
	if w.chance(50) { // it stays a sink, too
		a.sinks = topics("t2", "t1b")
	}
	before := w.total
	w.client("q", script(4, 3, "t1a", "t1b"))
	w.finish()
	for _, r := range w.oracle.records[:before] {
		if r.by == "A" && a.actor.now.delivered.has(r.id) && r.log == w.logOf("t1b") {
			fail(twice, "A got %s, which it sent", r)
		}
	}
}

// growthBelow: A knows of numbers that S gave on c, by what it read on t2, and then reads c from the start: what it sends after c's first
// records still comes after all that it knows of, also when it starts anew between.
func growthBelow(w *world) {
	w.acks, w.custody, w.budget.cuts = acksNever, false, 0
	w.make("t1", "c", "t2", "t3")
	w.stage("S", topics("t1"), topics("c", "t2"), forward)
	a := w.stage("A", topics("t2"), topics("t3"), func(h *host, d *causal.Delivery) []emission {
		if d.Channel.Topic != w.topics["c"].id || d.Value[1] < 2 {
			return nil // so that nothing else orders what A sends
		}
		return forward(h, d)
	})
	w.client("p", script(6, 4, "t1"))
	w.finish()
	a.stop()
	a.sources = topics("t2", "c")
	w.stage("C", topics("c", "t3"), nil, consume).behind = "c"
	w.client("q", script(3, 4, "t1"))
	w.budget.crashes, w.budget.sweeps = 6, 4
	w.finish()
	if len(a.node.ResumePositions()) == 0 {
		w.reached("grown below")
	}
}

// quietSink: what D sends claims a marker, the last offset of t2, so that only a position lets it go.
func quietSink(w *world) {
	w.make("t1", "t2", "t4", "t0")
	w.stage("A", topics("t0"), topics("t2"), forward)
	d := w.stage("D", topics("t1"), topics("t4", "t2"), func(h *host, d *causal.Delivery) []emission {
		return []emission{{"t4", d.Key, d.Value}}
	})
	w.client("p", script(4, 3, "t0"))
	w.run()
	d.stop()
	w.client("q", script(4, 3, "t1"))
	w.run()
	w.stage("C", topics("t4", "t2"), nil, consume)
	w.finish()
}

// openTransaction: what A sent lies above the last stable offset when A starts again.
func openTransaction(w *world) {
	w.make("t1", "t2", "t3")
	to := "t2"
	a := w.stage("A", topics("t1"), topics("t2", "t3"), func(h *host, d *causal.Delivery) []emission {
		return []emission{{to, d.Key, d.Value}}
	})
	w.run()
	tx, other := &transaction{}, w.oracle.actor("stranger")
	r := &record{value: []byte{0}, sequence: -1}
	w.append(tx, w.logOf("t2"), r)
	w.oracle.sent(other, r)
	w.client("p", script(3, 3, "t1"))
	w.run()
	a.stop()
	to = "t3"
	w.client("q", script(3, 3, "t1"))
	w.run()
	w.stage("C", topics("t2", "t3"), nil, consume)
	if w.chance(50) {
		w.run()
	}
	tx.finish(w.chance(50))
	w.finish()
}

func formerSink(w *world) {
	w.make("t1", "t2", "t3")
	a := w.stage("A", topics("t1"), topics("t3"), forward)
	w.client("p", script(4, 3, "t1"))
	w.finish()
	a.stop()
	a.sinks = topics("t2")
	w.client("q", script(4, 3, "t1"))
	w.finish()
	w.stage("C", topics("t2", "t3"), nil, consume)
	w.finish()
}

// lostStore: A loses its store and goes on under its identity, to two topics.
func lostStore(w *world) {
	w.acks = acksNever
	w.make("t1", "t2", "t3")
	a := w.stage("A", topics("t1"), topics("t2", "t3"), forward)
	w.stage("C", topics("t2", "t3"), nil, consume)
	w.client("p", script(5, 3, "t1"))
	w.finish()
	if a.up {
		a.crash()
	}
	a.reset()
	w.client("q", script(5, 3, "t1"))
	w.finish()
}

// lostEcho: A loses its store and its sinks. What it sent to t5 it hears of from B, by numbers, and nobody but A tells C.
func lostEcho(w *world) {
	w.acks, w.custody, w.budget.cuts = acksNever, false, 0
	w.make("t1", "t2", "t3", "t4", "t5")
	a := w.stage("A", topics("t1"), topics("t5", "t2"), forward)
	w.stage("B", topics("t2"), topics("t4"), forward)
	w.client("p", script(5, 4, "t1"))
	w.finish()
	a.crash()
	a.reset()
	a.sources, a.sinks = topics("t4"), topics("t3")
	w.stage("C", topics("t3", "t5"), nil, consume).behind = "t5"
	w.finish()
}

func rewinds(w *world) {
	w.chain()
	w.client("p", script(10, 3, "t1"))
	w.budget.crashes, w.budget.rewinds = 6, 12
	w.finish()
}

func abortedRecords(w *world) {
	w.chain()
	for _, p := range w.all {
		p.uncommitted = w.broken == readsUncommitted
	}
	w.client("p", script(12, 3, "t1", "t2")).aborts = 40
	w.budget.crashes, w.budget.strangers = 3, 3
	w.finish()
}

// retention deletes and hosts sweep while records flow over two hops that C does not see.
func retention(w *world) {
	w.acks, w.custody = acksNever, true
	w.make("t1", "t2", "t3", "t4", "t5")
	w.stage("A", topics("t1"), topics("t2", "t4"), forward)
	w.stage("B", topics("t2", "t5"), topics("t3"), func(h *host, d *causal.Delivery) []emission {
		if d.Channel.Topic == w.topics["t2"].id {
			return nil // what comes of it later claims what it claimed, by B's memory alone
		}
		return forward(h, d)
	})
	w.client("q", script(12, 3, "t5"))
	w.stage("C", topics("t3", "t1", "t4"), nil, consume).behind = "t4"
	w.client("p", script(12, 3, "t1"))
	w.budget.prunes, w.budget.sweeps, w.budget.crashes = 8, 16, 2
	w.finish()
}

func retentionTooFar(w *world) {
	w.looks = true
	w.chain()
	w.client("p", script(12, 3, "t1"))
	w.budget.overruns, w.budget.crashes, w.calm = 2, 1, w.n(80)
	w.finish()
}

func deletion(w *world) {
	w.make("t1", "t2", "t3")
	w.stage("A", topics("t1"), topics("t2"), forward)
	w.stage("B", topics("t1", "t2"), topics("t3"), forward)
	w.stage("C", topics("t1", "t2", "t3"), nil, consume)
	w.client("p", script(16, 3, "t1"), "t3")
	w.budget.deletions, w.budget.sweeps, w.calm = 3, 4, w.n(150)
	w.finish()
}

// droppedInput: C holds records because of an input that it then drops.
func droppedInput(w *world) {
	w.make("t1", "t2")
	w.stage("A", topics("t1"), topics("t2"), forward)
	c := w.stage("C", topics("t1", "t2"), nil, consume)
	c.frozen = "t1"
	w.client("p", script(6, 3, "t1"))
	w.run()
	c.stop()
	c.sources, c.frozen = topics("t2"), ""
	w.finish()
}

var chanceFloors = []string{"hold", "crash", "crash while holding", "crash in a transaction", "restore", "rewind", "replay", "prune", "truncated",
	"custody upgraded", "deletion", "rescope", "dropped an input", "grew an input", "resume", "position advance", "open transaction", "aborted", "observed",
	"acknowledged", "tick delivered", "resumed", "overrun", "refused after a loss", "reset"}

var chanceRare = []string{"looked back", "deliverable at the start", "number used again"}

// chance is a world of which nothing is settled.
func chance(w *world) {
	w.looks = true
	var names []string
	for i := range 3 + w.n(4) {
		names = append(names, fmt.Sprintf("t%d", i))
		w.create(names[i], int32(1+w.n(2)))
	}
	some := func(list []string, most int) (chosen []string) {
		for range 1 + w.n(most) {
			s := pick(w.dice, list)
			dup := false
			for _, c := range chosen {
				dup = dup || c == s
			}
			if !dup {
				chosen = append(chosen, s)
			}
		}
		return chosen
	}
	var sources []string
	for _, n := range names {
		for p := range w.topics[n].partitions {
			s := n
			if p > 0 {
				s = fmt.Sprintf("%s:%d", n, p)
			}
			sources = append(sources, s)
		}
	}
	for i := range 2 + w.n(4) {
		name := string(rune('A' + i))
		h := w.stage(name, some(sources, 4), some(names, 2), pick(w.dice, []logic{forward, forward, filter(2), consume}))
		if w.chance(30) {
			tk := "tick" + name
			w.make(tk)
			h.ticks, h.ticking = tk, 3
			h.sources, h.sinks = append(h.sources, tk), append(h.sinks, tk)
		}
		if w.chance(25) {
			h.joins = w.n(300)
			h.latest = h.sources
		}
	}
	w.client("p", script(4+w.n(6), 1+w.n(3), some(names, 3)...), some(sources, 2)...).aborts = w.n(30)
	w.client("q", script(4+w.n(6), 1+w.n(3), some(names, 2)...)).plain = w.chance(30)
	w.budget = budget{crashes: w.n(6), rewinds: w.n(4), sweeps: w.n(20), prunes: w.n(12), deletions: w.n(2), rescopes: w.n(5), strangers: w.n(4),
		overruns: w.n(2), resets: w.n(2)}
	w.calm = w.n(200)
	if w.disks {
		w.budget.cuts = 3
	}
	w.finish()
}

func chanceOnDisks(w *world) {
	w.disks = true
	chance(w)
	for _, h := range w.hosts {
		if h.store.(*diskStorage).cuts > 0 {
			w.reached("power cut")
		}
	}
}
