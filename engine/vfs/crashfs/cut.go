package crashfs

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
)

// Keep says how much of what was not synced is there after a power cut.
type Keep int

const (
	None    Keep = iota // all is lost
	All                 // all is kept
	Prefix              // what was done before a random moment is kept, as a file system with one journal would
	Some                // each change is kept or lost by chance
	Ordered             // each directory and each file keeps what was done before a random moment of its own
)

func (k Keep) String() string { return [...]string{"none", "all", "prefix", "some", "ordered"}[k] }

// Cut says what a power cut leaves. Names are directory entries, sizes those of files: the metadata of a file system. Data is
// kept by the sector, a sector with all writes to it up to some moment; a write larger than a sector is torn so. A file whose
// size or later sectors were kept reads zeros where others were lost. Sizes of one file are kept in their order: behind a cut or an
// allocation that was lost the file does not grow. A rename is kept or lost whole.
type Cut struct {
	Names, Sizes, Data Keep
	Percent            int // chance of each with Some
	Sector             int // bytes
}

func (c Cut) String() string {
	return fmt.Sprintf("names %v, sizes %v, data %v, %d%%, sectors of %d", c.Names, c.Sizes, c.Data, c.Percent, c.Sector)
}

// RandomCut draws one.
func RandomCut(rng *rand.Rand) Cut {
	c := Cut{Percent: []int{10, 50, 90}[rng.IntN(3)], Sector: []int{512, 4096}[rng.IntN(2)]}
	if rng.IntN(8) == 0 {
		return c // nothing that was not synced
	}
	c.Names, c.Sizes, c.Data = Keep(rng.IntN(5)), Keep(rng.IntN(5)), Keep(rng.IntN(5))
	if rng.IntN(2) == 0 {
		c.Sizes = c.Names
	}
	return c
}

// Crash is the disk as a power cut now may leave it, by a random Cut.
func (d *Disk) Crash(rng *rand.Rand) *Disk { return d.CrashAs(rng, RandomCut(rng)) }

// CrashAs is the disk as a power cut of that kind now may leave it. All of it is durable.
func (d *Disk) CrashAs(rng *rand.Rand, c Cut) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := &cutter{Cut: c, rng: rng, done: map[*node]*node{}}
	p.draw(d.root)
	return newDisk(p.node(d.root), d.seq, d.bare)
}

type cutter struct {
	Cut
	rng    *rand.Rand
	done   map[*node]*node
	moment int64 // for Prefix
}

// draw draws the moment from those of the changes that are pending.
func (p *cutter) draw(root *node) {
	seen := map[*node]bool{}
	first, last := int64(math.MaxInt64), int64(0)
	note := func(seq int64) { first, last = min(first, seq), max(last, seq) }
	var visit func(n *node)
	visit = func(n *node) {
		if seen[n] {
			return
		}
		seen[n] = true
		for _, c := range n.pending {
			note(c.seq)
		}
		for _, e := range n.edits {
			note(e.seq)
			if e.node != nil {
				visit(e.node)
			}
		}
		for _, m := range []map[string]*node{n.names, n.durable} {
			for _, c := range m {
				visit(c)
			}
		}
	}
	visit(root)
	if last > 0 {
		p.moment = p.between(first, last)
	}
}

func (p *cutter) keeps(k Keep, seq, own int64) bool {
	switch k {
	case Ordered:
		return seq < own
	case None:
		return false
	case All:
		return true
	case Prefix:
		return seq < p.moment
	default:
		return p.rng.IntN(100) < p.Percent
	}
}

func (p *cutter) node(n *node) *node {
	if c := p.done[n]; c != nil {
		return c
	}
	if !n.dir {
		data := p.data(n)
		c := &node{data: data.share(), synced: data.share()}
		p.done[n] = c
		return c
	}
	names := maps.Clone(n.durable)
	var own int64
	if m := len(n.edits); m > 0 {
		own = p.between(n.edits[0].seq, n.edits[m-1].seq)
	}
	for _, e := range n.edits {
		if p.keeps(p.Names, e.seq, own) {
			e.apply(names)
		}
	}
	c := newDir()
	p.done[n] = c
	for _, name := range slices.Sorted(maps.Keys(names)) {
		c.names[name] = p.node(names[name])
	}
	c.durable = maps.Clone(c.names)
	return c
}

// data is what a file has after the cut.
func (p *cutter) data(n *node) blob {
	if len(n.pending) == 0 {
		return n.synced.share()
	}
	b := bytes.Clone(n.synced.b)
	var own int64
	if m := len(n.pending); m > 0 {
		own = p.between(n.pending[0].seq, n.pending[m-1].seq)
	}
	late := false                // a change of size was lost, so later ones are: the file does not grow
	sectors := map[int64]int64{} // number → writes before this moment are in
	for _, c := range n.pending {
		if c.kept {
			b = c.apply(b)
			continue
		}
		if c.data == nil {
			if !late && p.keeps(p.Sizes, c.seq, own) {
				b = c.apply(b)
			} else {
				late = true
			}
			continue
		}
		size := int64(p.Sector)
		for at := int64(0); at < int64(len(c.data)); {
			s := (c.off + at) / size
			end := min(int64(len(c.data)), (s+1)*size-c.off)
			until, ok := sectors[s]
			if !ok {
				until = p.sector(n, own)
				sectors[s] = until
			}
			if c.seq < until {
				part := c.data[at:end]
				if room := int64(len(b)) - (c.off + at); late && room < int64(len(part)) {
					part = part[:max(0, room)]
				}
				b = splice(b, c.off+at, part)
			}
			at = end
		}
	}
	return blob{b: b}
}

// sector draws the moment up to which a sector of n is kept.
func (p *cutter) sector(n *node, own int64) int64 {
	switch {
	case p.Data == Prefix:
		return p.moment
	case p.Data == Ordered:
		return own
	case p.Data != Some:
		if p.Data == All {
			return math.MaxInt64
		}
		return 0
	case p.rng.IntN(100) < p.Percent:
		return math.MaxInt64
	}
	return p.between(n.pending[0].seq, n.pending[len(n.pending)-1].seq)
}

// between draws a moment from before the first change to after the last.
func (p *cutter) between(first, last int64) int64 { return first + p.rng.Int64N(last-first+2) }

// Clone is the disk as the next process finds it when this one was killed now: nothing is lost, and what was not synced still
// is not. The clone has a life of its own.
func (d *Disk) Clone() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := newDisk(copyTree(d.root, map[*node]*node{}), d.seq, d.bare)
	c.failures, c.told = d.failures, d.told
	return c
}

func copyTree(n *node, done map[*node]*node) *node {
	if n == nil {
		return nil
	}
	if c := done[n]; c != nil {
		return c
	}
	c := &node{dir: n.dir, data: n.data.share(), synced: n.synced.share(), pending: slices.Clone(n.pending)}
	done[n] = c
	if !n.dir {
		return c
	}
	copyNames := func(m map[string]*node) map[string]*node {
		out := make(map[string]*node, len(m))
		for name, n := range m {
			out[name] = copyTree(n, done)
		}
		return out
	}
	c.names, c.durable = copyNames(n.names), copyNames(n.durable)
	for _, e := range n.edits {
		e.node = copyTree(e.node, done)
		c.edits = append(c.edits, e)
	}
	return c
}
