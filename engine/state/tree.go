package state

import (
	"bytes"
	"sort"
)

// The index is a B+ tree in memory. A leaf keeps its keys in one byte slice and its entries without pointers: a million
// keys are some 20,000 objects for the garbage collector, and 32 bytes each beside the key. (Keys as strings cost 16 bytes
// of header and one object each.)

const (
	leafMax  = 64
	leafMin  = 16 // a smaller leaf is merged with a neighbour if both fit into mergeMax
	mergeMax = 48
	innerMax = 64
)

// place is where a value lies: file number, offset of the value in it, length of the value.
type place struct {
	file, off, size uint32
}

type entry struct {
	place
	keyOff uint32
	keyLen uint16
}

type leaf struct {
	n     int
	waste int // bytes of keys that no entry uses
	ents  [leafMax]entry
	keys  []byte
}

// inner has kids or, on the lowest level, leaves. seps[i] is a key ≤ all keys of child i+1 and > all keys of child i.
type inner struct {
	seps   [][]byte
	kids   []*inner
	leaves []*leaf
}

// tree maps keys to places, in order. The zero tree is empty. Not safe for concurrent use.
type tree struct {
	root *inner
	n    int
}

func (l *leaf) key(i int) []byte {
	e := &l.ents[i]
	return l.keys[e.keyOff : e.keyOff+uint32(e.keyLen)]
}

// find returns the first position with a key ≥ key, and whether it is that key.
func (l *leaf) find(key []byte) (int, bool) {
	lo, hi := 0, l.n
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		switch c := bytes.Compare(l.key(mid), key); {
		case c == 0:
			return mid, true
		case c < 0:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return lo, false
}

// room makes the key slice able to take n more bytes, growing by an eighth: doubling would waste half of the memory.
func (l *leaf) room(n int) {
	need := len(l.keys) - l.waste + n
	if len(l.keys)+n <= cap(l.keys) {
		return
	}
	l.repack(need + need/8 + 16)
}

// repack copies the keys in use, in order, into a new slice.
func (l *leaf) repack(capacity int) {
	keys := make([]byte, 0, capacity)
	for i := range l.n {
		k := l.key(i)
		l.ents[i].keyOff = uint32(len(keys))
		keys = append(keys, k...)
	}
	l.keys, l.waste = keys, 0
}

func (l *leaf) insert(i int, key []byte, p place) {
	l.room(len(key))
	copy(l.ents[i+1:l.n+1], l.ents[i:l.n])
	l.ents[i] = entry{place: p, keyOff: uint32(len(l.keys)), keyLen: uint16(len(key))}
	l.keys = append(l.keys, key...)
	l.n++
}

func (l *leaf) remove(i int) {
	l.waste += int(l.ents[i].keyLen)
	copy(l.ents[i:l.n-1], l.ents[i+1:l.n])
	l.n--
	if l.waste > 256 && l.waste > len(l.keys)/2 {
		l.repack(len(l.keys) - l.waste)
	}
}

// split moves the upper part to a new leaf. After an insertion at the very end the lower part stays full: keys that come
// in order would otherwise leave every leaf half empty.
func (l *leaf) split(atEnd bool) *leaf {
	from := l.n / 2
	if atEnd {
		from = l.n - 1
	}
	r := &leaf{}
	for i := from; i < l.n; i++ {
		r.insert(r.n, l.key(i), l.ents[i].place)
	}
	l.n = from
	l.repack(l.used())
	return r
}

func (l *leaf) used() (n int) {
	for i := range l.n {
		n += int(l.ents[i].keyLen)
	}
	return n
}

// child is the position of the child in which key belongs.
func (in *inner) child(key []byte) int {
	return sort.Search(len(in.seps), func(i int) bool { return bytes.Compare(in.seps[i], key) > 0 })
}

func (t *tree) get(key []byte) (place, bool) {
	if t.root == nil {
		return place{}, false
	}
	in := t.root
	for in.kids != nil {
		in = in.kids[in.child(key)]
	}
	l := in.leaves[in.child(key)]
	i, ok := l.find(key)
	if !ok {
		return place{}, false
	}
	return l.ents[i].place, true
}

// put sets the place of key and returns the one it had.
func (t *tree) put(key []byte, p place) (old place, had bool) {
	if t.root == nil {
		t.root = &inner{leaves: []*leaf{{}}}
	}
	old, had = t.root.put(key, p)
	if !had {
		t.n++
	}
	if t.root.size() > innerMax {
		left := t.root
		right, sep := left.split()
		t.root = &inner{kids: []*inner{left, right}, seps: [][]byte{sep}}
	}
	return old, had
}

func (in *inner) size() int { return len(in.kids) + len(in.leaves) }

func insertAt[T any](s []T, i int, v T) []T {
	s = append(s, v)
	copy(s[i+1:], s[i:])
	s[i] = v
	return s
}

func (in *inner) put(key []byte, p place) (old place, had bool) {
	c := in.child(key)
	if in.kids != nil {
		kid := in.kids[c]
		old, had = kid.put(key, p)
		if kid.size() > innerMax {
			right, sep := kid.split()
			in.kids = insertAt(in.kids, c+1, right)
			in.seps = insertAt(in.seps, c, sep)
		}
		return old, had
	}
	l := in.leaves[c]
	i, ok := l.find(key)
	if ok {
		old = l.ents[i].place
		l.ents[i].place = p
		return old, true
	}
	if l.n == leafMax {
		r := l.split(i == l.n)
		in.leaves = insertAt(in.leaves, c+1, r)
		in.seps = insertAt(in.seps, c, bytes.Clone(r.key(0)))
		if bytes.Compare(key, r.key(0)) > 0 {
			l = r
		}
		i, _ = l.find(key)
	}
	l.insert(i, key, p)
	return place{}, false
}

// split moves the upper half to a new node and returns it with the separator between both.
func (in *inner) split() (*inner, []byte) {
	m := in.size() / 2
	r := &inner{seps: append([][]byte(nil), in.seps[m:]...)}
	sep := in.seps[m-1]
	if in.kids != nil {
		r.kids = append([]*inner(nil), in.kids[m:]...)
		clear(in.kids[m:])
		in.kids = in.kids[:m]
	} else {
		r.leaves = append([]*leaf(nil), in.leaves[m:]...)
		clear(in.leaves[m:])
		in.leaves = in.leaves[:m]
	}
	clear(in.seps[m-1:])
	in.seps = in.seps[:m-1]
	return r, sep
}

// remove deletes key and returns the place it had.
func (t *tree) remove(key []byte) (old place, had bool) {
	if t.root == nil {
		return place{}, false
	}
	old, had = t.root.remove(key)
	if !had {
		return old, false
	}
	t.n--
	for len(t.root.kids) == 1 {
		t.root = t.root.kids[0]
	}
	if t.n == 0 {
		t.root = nil
	}
	return old, true
}

// drop takes child i out, with the separator on its left or, for the first, on its right.
func (in *inner) drop(i int) {
	if in.kids != nil {
		in.kids = deleteAt(in.kids, i)
	} else {
		in.leaves = deleteAt(in.leaves, i)
	}
	if len(in.seps) > 0 {
		in.seps = deleteAt(in.seps, max(i-1, 0))
	}
}

func deleteAt[T any](s []T, i int) []T {
	copy(s[i:], s[i+1:])
	var zero T
	s[len(s)-1] = zero
	return s[:len(s)-1]
}

func (in *inner) remove(key []byte) (old place, had bool) {
	c := in.child(key)
	if in.kids != nil {
		kid := in.kids[c]
		if old, had = kid.remove(key); had && kid.size() == 0 {
			in.drop(c)
		}
		return old, had
	}
	l := in.leaves[c]
	i, ok := l.find(key)
	if !ok {
		return place{}, false
	}
	old = l.ents[i].place
	l.remove(i)
	if l.n == 0 {
		in.drop(c)
	} else if l.n < leafMin {
		in.merge(c)
	}
	return old, true
}

// merge joins leaf i with a neighbour under the same node if there is one small enough. Nodes above the leaves are only
// dropped when empty: they are a sixtieth of the memory.
func (in *inner) merge(i int) {
	if i > 0 && in.leaves[i-1].n+in.leaves[i].n <= mergeMax {
		i--
	} else if i+1 >= len(in.leaves) || in.leaves[i].n+in.leaves[i+1].n > mergeMax {
		return
	}
	l, r := in.leaves[i], in.leaves[i+1]
	for j := range r.n {
		l.insert(l.n, r.key(j), r.ents[j].place)
	}
	in.drop(i + 1)
}

// ascend calls visit in order for keys ≥ from until it returns false.
func (t *tree) ascend(from []byte, visit func(key []byte, p place) bool) {
	if t.root != nil {
		t.root.ascend(from, visit)
	}
}

func (in *inner) ascend(from []byte, visit func(key []byte, p place) bool) bool {
	first := in.child(from)
	for c := first; c < len(in.kids); c++ {
		if !in.kids[c].ascend(from, visit) {
			return false
		}
	}
	for c := first; c < len(in.leaves); c++ {
		l, i := in.leaves[c], 0
		if c == first {
			i, _ = l.find(from)
		}
		for ; i < l.n; i++ {
			if !visit(l.key(i), l.ents[i].place) {
				return false
			}
		}
	}
	return true
}

// builder makes a tree of keys that come in ascending order, with full leaves.
type builder struct {
	leaves []*leaf
	last   *leaf
	n      int
}

// add appends a key; false: it is not above the one before.
func (b *builder) add(key []byte, p place) bool {
	if b.last != nil && bytes.Compare(b.last.key(b.last.n-1), key) >= 0 {
		return false
	}
	if b.last == nil || b.last.n == leafMax {
		if b.last != nil {
			b.last.repack(len(b.last.keys))
		}
		b.last = &leaf{keys: make([]byte, 0, leafMax*(len(key)+4))}
		b.leaves = append(b.leaves, b.last)
	}
	b.last.insert(b.last.n, key, p)
	b.n++
	return true
}

// fill is how many children a node gets: some room is left for the first insertions.
const fill = innerMax * 3 / 4

func (b *builder) tree() *tree {
	if b.n == 0 {
		return &tree{}
	}
	b.last.repack(len(b.last.keys))
	var level []*inner
	var lows [][]byte // the lowest key of each node in level
	for ls := b.leaves; len(ls) > 0; {
		k := min(fill, len(ls))
		in := &inner{leaves: append([]*leaf(nil), ls[:k]...)}
		for _, l := range ls[1:k] {
			in.seps = append(in.seps, bytes.Clone(l.key(0)))
		}
		level, lows = append(level, in), append(lows, bytes.Clone(ls[0].key(0)))
		ls = ls[k:]
	}
	for len(level) > 1 {
		var up []*inner
		var upLows [][]byte
		for len(level) > 0 {
			k := min(fill, len(level))
			up = append(up, &inner{kids: append([]*inner(nil), level[:k]...), seps: append([][]byte(nil), lows[1:k]...)})
			upLows = append(upLows, lows[0])
			level, lows = level[k:], lows[k:]
		}
		level, lows = up, upLows
	}
	return &tree{root: level[0], n: b.n}
}
