package simulate

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
)

// bitset is a set of record ids.
type bitset []uint64

func (b *bitset) add(i int) {
	for len(*b) <= i/64 {
		*b = append(*b, 0)
	}
	(*b)[i/64] |= 1 << (i % 64)
}

func (b bitset) remove(i int) {
	if i/64 < len(b) {
		b[i/64] &^= 1 << (i % 64)
	}
}

func (b bitset) has(i int) bool { return i/64 < len(b) && b[i/64]&(1<<(i%64)) != 0 }

func (b *bitset) merge(c bitset) {
	for len(*b) < len(c) {
		*b = append(*b, 0)
	}
	for i, w := range c {
		(*b)[i] |= w
	}
}

// missing is an element of b and of wanted that is not in have, −1: there is none.
func (b bitset) missing(wanted, have bitset) int {
	for i, w := range b[:min(len(b), len(wanted))] {
		if w &= wanted[i]; i < len(have) {
			w &^= have[i]
		}
		if w != 0 {
			return i*64 + bits.TrailingZeros64(w)
		}
	}
	return -1
}

// violation is what a run fails with.
type violation struct {
	kind string
	text string
}

// Kinds of violations.
const (
	causalOrder = "causal order" // a record before one that happened before it
	channelFIFO = "channel order"
	twice       = "twice"
	unreadable  = "not committed" // a record that a reader of committed records must not get
	changed     = "changed"       // another key, value, timestamp or header than was sent
	incomplete  = "incomplete"    // something was not delivered in the end
	falseClaim  = "false claim"   // of something that does not exist
	refused     = "refused"       // by the node, without reason
	vacuous     = "vacuous"       // a scenario did not reach what it is for
	endless     = "endless"
	wrongStore  = "wrong store"
)

func fail(kind, format string, args ...any) {
	panic(violation{kind, fmt.Sprintf(format, args...)})
}

// oracle knows what really happened, never a clock.
type oracle struct {
	records []*record
	actors  []*actor
}

// actor is one program: a node with its logic, or a client.
type actor struct {
	name   string
	oracle *oracle
	now    standing // with what the open transaction did
	kept   standing // at its beginning
	// begins is the first offset of each consumed channel that the actor cares about: below is history. Only the channels of the
	// present scope are in it.
	begins map[*partition]int64
	wanted bitset // the records at or above these offsets
	gone   bitset // records that compaction took before the actor had them: they are not wanted
}

type standing struct {
	knows     bitset // all that happened before the next thing the actor does
	delivered bitset
	last      map[*partition]int64
}

func (s *standing) clone() standing {
	return standing{slices.Clone(s.knows), slices.Clone(s.delivered), maps.Clone(s.last)}
}

func (o *oracle) actor(name string) *actor {
	a := &actor{name: name, oracle: o, begins: map[*partition]int64{}}
	a.now.last, a.kept.last = map[*partition]int64{}, map[*partition]int64{}
	o.actors = append(o.actors, a)
	return a
}

// scope says which channels the actor consumes from now on, and where it begins on those that are new.
func (a *actor) scope(begins map[*partition]int64) {
	for p := range a.begins {
		if _, ok := begins[p]; !ok {
			delete(a.begins, p)
		}
	}
	for p, at := range begins {
		if _, ok := a.begins[p]; !ok {
			a.begins[p] = at
		}
	}
	a.wanted = a.wanted[:0]
	for p, at := range a.begins {
		for _, s := range p.slots[min(at, p.end()):] {
			if s.record != nil && !a.gone.has(s.record.id) {
				a.wanted.add(s.record.id)
			}
		}
	}
}

// misses says that r is compacted away, and that the actor, which does not have it, will not get it.
func (a *actor) misses(r *record) {
	a.gone.add(r.id)
	a.wanted.remove(r.id)
}

// sent says that a sent r, which is in its log.
func (o *oracle) sent(a *actor, r *record) {
	if r.id != len(o.records) {
		panic(fmt.Sprintf("BUG: record %d is number %d", r.id, len(o.records)))
	}
	o.records = append(o.records, r)
	r.by = a.name
	r.past = slices.Clone(a.now.knows)
	a.now.knows.add(r.id)
	for _, b := range o.actors {
		if at, ok := b.begins[r.log]; ok && r.offset >= at {
			b.wanted.add(r.id)
		}
	}
}

// observed says that a saw r, in whatever order: what it does next comes after it.
func (a *actor) observed(r *record) {
	a.now.knows.merge(r.past)
	a.now.knows.add(r.id)
}

// delivers judges a delivery.
func (a *actor) delivers(r *record) {
	if k := r.log.slots[r.offset].kind; k != business && k != removed {
		fail(unreadable, "%s got %s", a.name, r)
	}
	if a.now.delivered.has(r.id) {
		fail(twice, "%s got %s again", a.name, r)
	}
	if last, ok := a.now.last[r.log]; ok && r.offset <= last {
		fail(channelFIFO, "%s got %s after offset %d", a.name, r, last)
	}
	if i := r.past.missing(a.wanted, a.now.delivered); i >= 0 {
		fail(causalOrder, "%s got %s before %s, which happened before it", a.name, r, a.oracle.records[i])
	}
	a.now.delivered.add(r.id)
	a.now.last[r.log] = r.offset
	a.observed(r)
}

func (a *actor) commit() { a.kept = a.now.clone() }

func (a *actor) abort() { a.now = a.kept.clone() }

// complete fails if the actor missed a record that it had to get.
func (a *actor) complete() {
	for p, at := range a.begins {
		if p.destroyed {
			continue
		}
		for _, s := range p.slots[min(at, p.end()):] {
			must := s.kind == business || s.kind == removed && a.wanted.has(s.record.id) // of what is removed, what it had received
			if must && !a.now.delivered.has(s.record.id) {
				fail(incomplete, "%s never got %s", a.name, s.record)
			}
		}
	}
}
