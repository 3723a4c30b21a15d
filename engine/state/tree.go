package state

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math/bits"
)

// The index is a B+ tree in memory. A node keeps its keys in one byte slice and its entries without pointers: a million keys
// are some 20,000 leaves for the garbage collector, and under 50 bytes each beside the key. (Keys as strings cost 16 bytes of
// header and one object each.) Stored keys share long prefixes, so a node searches by the eight bytes that follow what all its
// keys have in common, which lie together, and touches the keys themselves only at the end. What they have in common is compared
// on the way down only as far as the node above has not settled it, and by the copy of its last bytes that lies in the node: for a
// store that does not fit into the processor's caches every touch of the keys of a node costs more than the search in it.

const (
	nodeMax  = 64 // keys of a leaf, separators of an inner node
	leafMin  = 16 // a smaller leaf is merged with a neighbour if both fit into mergeMax
	mergeMax = 48
)

// place is where a value lies: file number, offset of the value in it, length of the value.
type place struct {
	file, off, size uint32
}

// keySet is a sorted set of at most nodeMax keys.
type keySet struct {
	n      int
	waste  int    // bytes of blob that no key uses
	prefix int    // all keys have their first prefix bytes in common
	tail   uint64 // the last eight bytes of the prefix, if it has as many
	blob   []byte
	heads  [nodeMax]uint64 // the eight bytes after the prefix, big-endian, padded with zeros
	offs   [nodeMax]uint32
	lens   [nodeMax]uint16
}

type leaf struct {
	keySet
	places [nodeMax]place
}

// inner has kids or, on the lowest level, leaves, one more than seps. seps.key(i) is ≤ all keys of child i+1 and > all keys
// of child i.
type inner struct {
	seps   keySet
	kids   []*inner
	leaves []*leaf
}

// tree maps keys to places, in order. The zero tree is empty. Not safe for concurrent use.
type tree struct {
	root   *inner
	n      int
	warmed uint64 // see warm
}

func (s *keySet) key(i int) []byte {
	return s.blob[s.offs[i] : s.offs[i]+uint32(s.lens[i])]
}

// headOf returns up to eight bytes of key as a number that is ordered as they are, but for trailing zeros.
func headOf(key []byte) (h uint64) {
	if len(key) >= 8 {
		return binary.BigEndian.Uint64(key)
	}
	for i, c := range key {
		h |= uint64(c) << (56 - 8*i)
	}
	return h
}

// toPrefix compares key with what all keys have in common; the first known bytes are known to be equal.
func (s *keySet) toPrefix(key []byte, known int) int {
	switch {
	case s.prefix <= known:
		return 0
	case s.prefix >= 8 && s.prefix-known <= 8 && len(key) >= s.prefix:
		return cmp.Compare(binary.BigEndian.Uint64(key[s.prefix-8:]), s.tail)
	}
	return bytes.Compare(key[:min(s.prefix, len(key))], s.blob[s.offs[0]:s.offs[0]+uint32(s.prefix)])
}

// find returns the first position with a key ≥ key, and whether it is that key. The first known bytes of key are those of all
// keys here.
func (s *keySet) find(key []byte, known int) (int, bool) {
	if s.n == 0 {
		return 0, false
	}
	switch c := s.toPrefix(key, known); {
	case c < 0:
		return 0, false
	case c > 0:
		return s.n, false
	}
	rest := key[s.prefix:]
	h := headOf(rest)
	lo := s.below(h)
	if lo == s.n || s.heads[lo] != h {
		return lo, false
	}
	for hi := lo + s.equal(lo); lo < hi; { // mostly one
		mid := int(uint(lo+hi) >> 1)
		switch c := bytes.Compare(s.key(mid)[s.prefix:], rest); {
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

// stride is how many heads share a line of the processor's cache.
const stride = 8

// below is how many heads are below h. It counts without a branch, first over one head of each line and then in one line, so that the
// processor fetches all lines at once: a binary search waits for three of them, one after the other, and guesses wrong at half of its steps.
func (s *keySet) below(h uint64) int {
	var lines uint64
	for i := stride - 1; i < s.n; i += stride {
		_, less := bits.Sub64(s.heads[i], h, 0)
		lines += less
	}
	lo := lines * stride
	n := lo
	for i := int(lo); i < min(int(lo)+stride-1, s.n); i++ {
		_, less := bits.Sub64(s.heads[i], h, 0)
		n += less
	}
	return int(n)
}

// equal is how many heads from i on are as that of i.
func (s *keySet) equal(i int) int {
	n := 1
	for i+n < s.n && s.heads[i+n] == s.heads[i] {
		n++
	}
	return n
}

// repack copies the keys, in order, into a new slice, and finds the prefix anew.
func (s *keySet) repack(capacity int) {
	blob := make([]byte, 0, capacity)
	for i := range s.n {
		k := s.key(i)
		s.offs[i] = uint32(len(blob))
		blob = append(blob, k...)
	}
	s.blob, s.waste = blob, 0
	if s.n > 0 {
		s.setPrefix(shared(s.key(0), s.key(s.n-1)))
	}
}

// shared is how many bytes a and b have in common at the front.
func shared(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

func tailOf(prefix []byte) uint64 {
	if len(prefix) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64(prefix[len(prefix)-8:])
}

func (s *keySet) setPrefix(n int) {
	s.prefix, s.tail = n, tailOf(s.key(0)[:n])
	for i := range s.n {
		s.heads[i] = headOf(s.key(i)[n:])
	}
}

// insert puts key at position i, where find says it belongs.
func (s *keySet) insert(i int, key []byte) {
	if len(s.blob)+len(key) > cap(s.blob) {
		// By an eighth: doubling would waste a third of all memory.
		need := len(s.blob) - s.waste + len(key)
		s.repack(need + need/8 + 16)
	}
	if s.n == 0 {
		s.prefix, s.tail = len(key), tailOf(key)
	} else if p := shared(key, s.key(0)); p < s.prefix {
		s.setPrefix(p)
	}
	copy(s.heads[i+1:s.n+1], s.heads[i:s.n])
	copy(s.offs[i+1:s.n+1], s.offs[i:s.n])
	copy(s.lens[i+1:s.n+1], s.lens[i:s.n])
	s.heads[i], s.offs[i], s.lens[i] = headOf(key[s.prefix:]), uint32(len(s.blob)), uint16(len(key))
	s.blob = append(s.blob, key...)
	s.n++
}

func (s *keySet) remove(i int) {
	s.waste += int(s.lens[i])
	copy(s.heads[i:s.n-1], s.heads[i+1:s.n])
	copy(s.offs[i:s.n-1], s.offs[i+1:s.n])
	copy(s.lens[i:s.n-1], s.lens[i+1:s.n])
	s.n--
	if s.waste > 256 && s.waste > len(s.blob)/2 {
		s.repack(len(s.blob) - s.waste)
	}
}

// cut drops the keys from position n on.
func (s *keySet) cut(n int) {
	s.n = n
	used := 0
	for i := range n {
		used += int(s.lens[i])
	}
	s.repack(used)
}

func (l *leaf) insert(i int, key []byte, p place) {
	copy(l.places[i+1:l.n+1], l.places[i:l.n])
	l.places[i] = p
	l.keySet.insert(i, key)
}

func (l *leaf) remove(i int) {
	copy(l.places[i:l.n-1], l.places[i+1:l.n])
	l.keySet.remove(i)
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
		r.insert(r.n, l.key(i), l.places[i])
	}
	r.repack(len(r.blob))
	l.cut(from)
	return r
}

// child is the position of the child in which key belongs, and how many bytes key and all keys of that child have in common for sure,
// if known is that of this node.
func (in *inner) child(key []byte, known int) (i, below int) {
	i, ok := in.seps.find(key, known)
	if ok {
		i++
	}
	if i > 0 && i < in.seps.n { // what lies between two separators begins as both of them do
		known = max(known, in.seps.prefix)
	}
	return i, known
}

// leafOf is where key belongs, and how many bytes it has in common with all keys there for sure. The tree is not empty.
func (t *tree) leafOf(key []byte) (l *leaf, known int) {
	in := t.root
	c, known := in.child(key, 0)
	for in.kids != nil {
		in = in.kids[c]
		c, known = in.child(key, known)
	}
	return in.leaves[c], known
}

func (t *tree) get(key []byte) (place, bool) {
	if t.root == nil {
		return place{}, false
	}
	l, known := t.leafOf(key)
	i, ok := l.find(key, known)
	if !ok {
		return place{}, false
	}
	return l.places[i], true
}

// put sets the place of key and returns the one it had.
func (t *tree) put(key []byte, p place) (old place, had bool) {
	if t.root == nil {
		t.root = &inner{leaves: []*leaf{{}}}
	}
	old, had = t.root.put(key, 0, p)
	if !had {
		t.n++
	}
	if t.root.full() {
		left := t.root
		right, sep := left.split()
		t.root = &inner{kids: []*inner{left, right}}
		t.root.seps.insert(0, sep)
	}
	return old, had
}

func (in *inner) size() int { return len(in.kids) + len(in.leaves) }

// full: there may be no room for one more child.
func (in *inner) full() bool { return in.seps.n == nodeMax }

func insertAt[T any](s []T, i int, v T) []T {
	s = append(s, v)
	copy(s[i+1:], s[i:])
	s[i] = v
	return s
}

func (in *inner) put(key []byte, known int, p place) (old place, had bool) {
	c, known := in.child(key, known)
	if in.kids != nil {
		kid := in.kids[c]
		old, had = kid.put(key, known, p)
		if kid.full() {
			right, sep := kid.split()
			in.kids = insertAt(in.kids, c+1, right)
			in.seps.insert(c, sep)
		}
		return old, had
	}
	l := in.leaves[c]
	i, ok := l.find(key, known)
	if ok {
		old = l.places[i]
		l.places[i] = p
		return old, true
	}
	if l.n == nodeMax {
		r := l.split(i == l.n)
		in.leaves = insertAt(in.leaves, c+1, r)
		in.seps.insert(c, r.key(0))
		if bytes.Compare(key, r.key(0)) > 0 {
			l = r
		}
		i, _ = l.find(key, known)
	}
	l.insert(i, key, p)
	return place{}, false
}

// split moves the upper half to a new node and returns it with the separator between both.
func (in *inner) split() (*inner, []byte) {
	m := in.size() / 2
	r := &inner{}
	for i := m; i < in.seps.n; i++ {
		r.seps.insert(r.seps.n, in.seps.key(i))
	}
	sep := bytes.Clone(in.seps.key(m - 1))
	if in.kids != nil {
		r.kids = append([]*inner(nil), in.kids[m:]...)
		clear(in.kids[m:])
		in.kids = in.kids[:m]
	} else {
		r.leaves = append([]*leaf(nil), in.leaves[m:]...)
		clear(in.leaves[m:])
		in.leaves = in.leaves[:m]
	}
	in.seps.cut(m - 1)
	return r, sep
}

// remove deletes key and returns the place it had.
func (t *tree) remove(key []byte) (old place, had bool) {
	if t.root == nil {
		return place{}, false
	}
	old, had = t.root.remove(key, 0)
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
	if in.seps.n > 0 {
		in.seps.remove(max(i-1, 0))
	}
}

func deleteAt[T any](s []T, i int) []T {
	copy(s[i:], s[i+1:])
	var zero T
	s[len(s)-1] = zero
	return s[:len(s)-1]
}

func (in *inner) remove(key []byte, known int) (old place, had bool) {
	c, known := in.child(key, known)
	if in.kids != nil {
		kid := in.kids[c]
		if old, had = kid.remove(key, known); had && kid.size() == 0 {
			in.drop(c)
		}
		return old, had
	}
	l := in.leaves[c]
	i, ok := l.find(key, known)
	if !ok {
		return place{}, false
	}
	old = l.places[i]
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
		l.insert(l.n, r.key(j), r.places[j])
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
	first, _ := in.child(from, 0) // the children after it share nothing with from for sure
	for c := first; c < len(in.kids); c++ {
		if !in.kids[c].ascend(from, visit) {
			return false
		}
	}
	for c := first; c < len(in.leaves); c++ {
		l, i := in.leaves[c], 0
		if c == first {
			i, _ = l.find(from, 0)
		}
		for ; i < l.n; i++ {
			if !visit(l.key(i), l.places[i]) {
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
	if b.last == nil || b.last.n == nodeMax {
		if b.last != nil {
			b.last.repack(len(b.last.blob))
		}
		b.last = &leaf{keySet: keySet{blob: make([]byte, 0, nodeMax*(len(key)+4))}}
		b.leaves = append(b.leaves, b.last)
	}
	b.last.insert(b.last.n, key, p)
	b.n++
	return true
}

// fill is how many children a node gets: some room is left for the first insertions.
const fill = nodeMax * 3 / 4

func (b *builder) tree() *tree {
	if b.n == 0 {
		return &tree{}
	}
	b.last.repack(len(b.last.blob))
	var level []*inner
	var lows [][]byte // the lowest key of each node in level
	for ls := b.leaves; len(ls) > 0; {
		k := min(fill, len(ls))
		in := &inner{leaves: append([]*leaf(nil), ls[:k]...)}
		for _, l := range ls[1:k] {
			in.seps.insert(in.seps.n, l.key(0))
		}
		level, lows = append(level, in), append(lows, bytes.Clone(ls[0].key(0)))
		ls = ls[k:]
	}
	for len(level) > 1 {
		var up []*inner
		var upLows [][]byte
		for len(level) > 0 {
			k := min(fill, len(level))
			in := &inner{kids: append([]*inner(nil), level[:k]...)}
			for _, low := range lows[1:k] {
				in.seps.insert(in.seps.n, low)
			}
			up = append(up, in)
			upLows = append(upLows, lows[0])
			level, lows = level[k:], lows[k:]
		}
		level, lows = up, upLows
	}
	return &tree{root: level[0], n: b.n}
}
