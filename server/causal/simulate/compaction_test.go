package simulate

import "fmt"

var actCompact = func(w *world, _ *host, i int) {
	w.budget.compactions--
	p := w.all[i]
	w.compact(p, int64(w.n(int(p.stableEnd())+1)))
}

// compactTopics makes topics whose logs keep the latest record of each key.
func (w *world) compactTopics(partitions int32, names ...string) {
	for _, name := range names {
		w.create(name, partitions)
		for _, p := range w.of(w.topics[name].id) {
			p.compacted = true
		}
	}
}

// superseded are the offsets below upTo of records with a later one of the same key, also below upTo.
func (p *partition) superseded(upTo int64) (list []int64) {
	later := map[string]bool{}
	for offset := min(upTo, p.stableEnd()) - 1; offset >= p.start; offset-- {
		s := p.slots[offset]
		if s.kind != business || s.record.key == nil {
			continue
		}
		if later[string(s.record.key)] {
			list = append(list, offset)
		}
		later[string(s.record.key)] = true
	}
	return list
}

// compact removes what is superseded below upTo. Offsets and the log start stay as they are: where a record was there is a hole that
// readers pass like a marker.
func (w *world) compact(p *partition, upTo int64) {
	list := p.superseded(upTo)
	for _, offset := range list {
		w.reached("compacted")
		p.slots[offset].kind = removed
		r := p.slots[offset].record
		w.tracef("    %s is compacted away", r)
		for _, h := range w.hosts {
			if !h.received(p, offset) {
				if h.actor.wanted.has(r.id) {
					w.reached("compacted unread")
				}
				h.actor.misses(r)
			} else if head, ok := h.held[p]; ok && offset >= head && !h.actor.kept.delivered.has(r.id) {
				w.reached("compacted while held")
			}
		}
	}
}

// received says whether h has got what lay at an offset, in this life or in what is committed: then it delivers it, or did.
func (h *host) received(p *partition, offset int64) bool {
	if h.up {
		for i := range h.feeds {
			if h.feeds[i].log == p {
				return offset < h.feeds[i].position
			}
		}
	}
	at, ok := h.positions[p]
	return ok && offset < at
}

// forgetRemoved is for the start of a life: what was compacted away before it was committed as received never comes again.
func (h *host) forgetRemoved(scope []*partition) {
	for _, p := range scope {
		for offset := range p.slots {
			if s := p.slots[offset]; s.kind == removed && !h.actor.gone.has(s.record.id) && !h.received(p, int64(offset)) {
				h.actor.misses(s.record)
			}
		}
	}
}

// keyed is n records for each topic with few keys in no order.
func (w *world) keyed(n, hops, keys int, topics ...string) (list []emission) {
	for i := range n {
		for _, t := range topics {
			list = append(list, emission{t, fmt.Appendf(nil, "k%d", w.n(keys)), []byte{byte(hops), byte(i), byte(i >> 8)}})
		}
	}
	return list
}

// compaction: sources and sinks are compacted while they are read, before they are read, and while what they had is held.
func compaction(w *world) {
	w.compactTopics(1, "t1", "t2", "t3")
	w.stage("A", topics("t1"), topics("t2"), forward)
	w.stage("B", topics("t2", "t1"), topics("t3"), forward)
	w.stage("C", topics("t3", "t2"), nil, consume).behind = "t2"
	w.client("p", w.keyed(14, 3, 3, "t1"))
	w.budget = budget{crashes: 5, rewinds: 3, compactions: 10, prunes: 2, sweeps: 6}
	w.finish()
}

// compactedClaim: all that S sent to t2 is superseded by what R sent there, and compacted away before L reads it. L is told of it by
// S's numbers alone. Nothing can show that they are met, so L waits, however often it looks back: on a compacted log what is not there
// need not have been the last of what must come first.
func compactedClaim(w *world) {
	w.acks, w.custody, w.budget.cuts = acksNever, false, 0
	w.make("t1", "u1", "t3")
	w.compactTopics(1, "t2")
	w.stage("S", topics("t1"), topics("t2", "t3"), forward)
	w.stage("R", topics("u1"), topics("t2"), forward)
	w.client("p", w.keyed(4, 3, 2, "t1"))
	w.finish()
	w.client("q", script(2, 3, "u1")) // k0 and k1
	w.finish()
	t2 := w.logOf("t2")
	w.compact(t2, t2.end())
	t2.start = 1
	l := w.stage("L", topics("t3", "t2"), nil, consume)
	w.run()
	if claim, ok := l.lookable(true); ok && w.broken != parityMode {
		if claim.Found || !claim.Compacted || claim.LastStable < claim.Watermark || claim.LogStart == 0 {
			fail(vacuous, "a look back finds %+v", claim)
		}
		l.lookBack(true)
		w.run()
	}
	if wedged(l) {
		w.reached("wedged")
	}
}

// compactedLookBack: L is told by numbers of what A sent to the other partition of t2, has not read what lies before it, and looks back
// after compaction. That the record itself is gone says nothing about those before it.
func compactedLookBack(w *world) {
	w.acks, w.custody, w.budget.cuts = acksNever, false, 0
	w.make("t1", "t3")
	w.compactTopics(2, "t2")
	w.stage("A", topics("t1"), topics("t2"), forward)
	w.stage("B", topics("t2:0"), topics("t3"), forward)
	w.client("p", w.keyed(6, 3, 6, "t1"))
	w.finish()
	w.pruneAll(0) // so that a look back cannot see all that ever was
	l := w.stage("L", topics("t3", "t2:1"), nil, consume)
	l.frozen = "t2:1"
	w.client("q", append(w.keyed(14, 3, 6, "t1"), script(6, 3, "t1")...)) // in the end something for each partition
	w.run()
	other := w.logOf("t2:1")
	w.compact(other, other.end()-int64(w.n(3)))
	for range 3 {
		if _, ok := l.lookable(true); ok {
			l.lookBack(true)
		}
	}
	l.frozen = ""
	w.budget.crashes = 2
	w.finish()
}
