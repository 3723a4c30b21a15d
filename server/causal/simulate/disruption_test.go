package simulate

import (
	"slices"
)

var (
	actCrash = func(w *world, h *host, _ int) { w.crash(h) }
	// actDie crashes in the middle of handling what a fetch releases.
	actDie = func(w *world, h *host, i int) {
		h.fuse = w.n(4)
		if h.fetch(i); h.up {
			w.crash(h)
		}
	}
	actCut = func(w *world, h *host, _ int) {
		w.budget.cuts--
		h.store.(*diskStorage).cutSoon(w.dice)
	}
	actPrune   = func(w *world, _ *host, i int) { w.prune(w.all[i]) }
	actOverrun = func(w *world, h *host, i int) { w.overrun(h, h.feeds[i].log) }
	actDelete  = func(w *world, _ *host, i int) { w.recreate(w.names[i]) }
	actCreate  = func(w *world, _ *host, i int) { w.createAgain(w.names[i]) }
	actRescope = func(w *world, h *host, _ int) { w.rescope(h) }
	actReset   = func(w *world, h *host, _ int) {
		w.budget.resets--
		w.crash(h)
		h.reset()
	}
)

// disruptions adds what hosts and logs suffer.
func (w *world) disruptions() {
	b := &w.budget
	for _, h := range w.hosts {
		if h.up {
			w.ofVictim(h)
		}
	}
	if b.strangers > 0 {
		w.add("open transaction", actOpen, nil, 0)
	}
	if b.prunes > 0 {
		for i, p := range w.all {
			if p.start < w.needed(p) {
				w.add("prune "+p.name, actPrune, nil, i)
			}
		}
	}
	if b.compactions > 0 {
		for i, p := range w.all {
			if p.compacted && len(p.superseded(p.end())) > 0 {
				w.add("compact "+p.name, actCompact, nil, i)
			}
		}
	}
	if b.deletions > 0 && w.steps >= w.calm {
		for i, name := range w.names {
			if !w.topics[name].deleted {
				w.add("delete and create "+name, actDelete, nil, i)
			}
		}
	}
}

// ofVictim are the disruptions of one host. One crash is kept for a host that holds records, and such a host is offered twice.
func (w *world) ofVictim(h *host) {
	b := &w.budget
	holds := wedged(h)
	for range 1 + btoi(holds) {
		if b.crashes > 1 || b.crashes == 1 && holds {
			w.add("crash", actCrash, h, 0)
			for i := range h.feeds {
				if _, ok := h.feeds[i].log.next(h.feeds[i].position); ok && !h.feeds[i].log.destroyed {
					w.add("fetch, then crash", actDie, h, i)
				}
			}
		}
	}
	if d, ok := h.store.(*diskStorage); ok && b.cuts > 0 && !d.cutting {
		w.add("the power will go", actCut, h, 0)
	}
	if w.looks && holds && w.steps%5 == 0 {
		if _, ok := h.lookable(true); ok {
			w.add("look back", actLook, h, 1)
		}
	}
	if b.sweeps > 0 {
		w.add("sweep", actSweep, h, 0)
	}
	if b.rescopes > 0 && w.steps >= w.calm {
		w.add("new scope", actRescope, h, 0)
	}
	if b.resets > 0 && w.steps >= w.calm {
		w.add("crash and lose the store", actReset, h, 0)
	}
	if b.overruns > 0 && w.steps >= w.calm {
		for i, f := range h.feeds {
			if f.position < f.log.end() && !f.log.destroyed {
				w.add("retention goes too far on "+f.log.name+" for", actOverrun, h, i)
			}
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (w *world) crash(h *host) {
	w.budget.crashes--
	w.reached("crash")
	if wedged(h) {
		w.reached("crash while holding")
	}
	if !h.tx.empty() {
		w.reached("crash in a transaction")
	}
	h.crash()
}

// stop ends a life in good order.
func (h *host) stop() {
	if h.commit(); h.up {
		h.crash()
	}
}

// needed is the offset up to which retention may delete p without hurting anybody: what every host has read, and holds nothing of.
func (w *world) needed(p *partition) int64 {
	n := p.stableEnd()
	for _, h := range w.hosts {
		at, known := h.positions[p]
		if !known && (!h.up || !slices.ContainsFunc(h.feeds, func(f feed) bool { return f.log == p })) {
			continue
		}
		n = min(n, at)
		if head, ok := h.held[p]; ok {
			n = min(n, head)
		}
		for i := range h.feeds {
			if h.up && h.feeds[i].log == p {
				n = min(n, h.feeds[i].position)
			}
		}
		if h.up {
			if s, ok := h.node.Channel(p.id); ok && s.Held > 0 {
				n = min(n, s.Head)
			}
		}
	}
	return n
}

// prune is retention.
func (w *world) prune(p *partition) {
	w.budget.prunes--
	w.reached("prune")
	p.start += 1 + int64(w.n(int(w.needed(p)-p.start)))
	if w.chance(40) {
		p.start = w.needed(p)
	}
	w.tracef("    %s begins at %d", p.name, p.start)
}

// overrun is retention that takes what h has not read. It must refuse to go on.
func (w *world) overrun(h *host, p *partition) {
	w.budget.overruns--
	for _, other := range w.hosts { // who else needs it is a victim too
		s, consumes := other.positions[p]
		_, holds := other.held[p]
		if consumes && (s < p.end() || holds) || other == h {
			other.victim = true
			if other.up {
				other.crash() // the next life looks at the logs before anything else
			}
		}
	}
	p.start = max(p.start, p.stableEnd())
	w.reached("overrun")
}

// recreate deletes a topic and makes it again. Those who use it stop.
func (w *world) recreate(name string) {
	w.budget.deletions--
	w.reached("deletion")
	t := w.topics[name]
	id := t.id
	for _, h := range w.hosts {
		uses := slices.Contains(h.sinks, name)
		for _, f := range h.feeds {
			uses = uses || f.log.id.Topic == id
		}
		if h.up && uses {
			if w.chance(50) {
				h.stop()
			} else {
				h.crash()
			}
		}
		for p := range h.held {
			h.victim = h.victim || p.id.Topic == id
		}
	}
	w.delete(name)
	if w.chance(80) {
		w.createAgain(name)
	}
}

// createAgain makes a deleted topic anew. Observers begin at its begin.
func (w *world) createAgain(name string) {
	w.create(name, w.topics[name].partitions)
	for _, c := range w.clients {
		for i := range c.reads {
			if p := w.logOf(c.topics[i]); p != nil {
				if p != c.reads[i].log {
					c.reads[i] = feed{log: p}
				}
			}
		}
	}
}

// rescope stops h, and lets it begin again with other sources and sinks. What it holds records of stays.
func (w *world) rescope(h *host) {
	w.budget.rescopes--
	if h.stop(); h.up {
		return
	}
	w.reached("rescope")
	keep := func(s string) bool {
		_, held := h.held[w.logOf(s)]
		return held
	}
	for _, name := range w.names {
		t := w.topics[name]
		if t.deleted || name == h.ticks {
			continue
		}
		switch i := slices.Index(h.sinks, name); {
		case i >= 0 && w.chance(30):
			h.sinks = slices.Delete(slices.Clone(h.sinks), i, i+1)
		case i < 0 && w.chance(15):
			h.sinks = append(slices.Clone(h.sinks), name)
		}
		switch i := slices.Index(h.sources, name); {
		case i >= 0 && len(h.sources) > 1 && !keep(name) && w.chance(40):
			h.sources = slices.Delete(slices.Clone(h.sources), i, i+1)
			w.reached("dropped an input")
		case i < 0 && w.chance(25):
			h.sources = append(slices.Clone(h.sources), name)
			w.reached("grew an input")
		}
	}
}
