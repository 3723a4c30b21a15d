package catalog

import "math/bits"

// index is a persistent hash trie from K to topics: with and without copy the few nodes on the way and share the rest, so a
// change costs the same with ten topics and with a hundred thousand, and a snapshot is a pointer.
type index[K comparable] struct {
	root *node[K]
	hash func(K) uint64
}

// edit marks the nodes that one mutation has made and may therefore change in place.
type edit struct{ _ byte }

type node[K comparable] struct {
	owner  *edit
	bitmap uint32
	slots  []slot[K]
}

// slot is a child or, with kid nil, a topic.
type slot[K comparable] struct {
	kid   *node[K]
	key   K
	topic *Topic
}

const (
	trieBits = 5
	// From here on the hash is used up: keys with the same hash stand in one node in any order. 12 levels of 5 bits.
	trieDepth = 60
)

func (x index[K]) get(key K) *Topic {
	h := x.hash(key)
	n := x.root
	for shift := 0; n != nil; shift += trieBits {
		i, ok := n.at(h, shift, key)
		if !ok {
			return nil
		}
		s := &n.slots[i]
		if s.kid == nil {
			if s.key == key {
				return s.topic
			}
			return nil
		}
		n = s.kid
	}
	return nil
}

// at returns the slot for the hash, or where it would have to be.
func (n *node[K]) at(h uint64, shift int, key K) (int, bool) {
	if shift >= trieDepth {
		for i := range n.slots {
			if n.slots[i].key == key {
				return i, true
			}
		}
		return len(n.slots), false
	}
	bit := uint32(1) << (h >> shift & (1<<trieBits - 1))
	return bits.OnesCount32(n.bitmap & (bit - 1)), n.bitmap&bit != 0
}

// own returns n, or a copy that e may change.
func (n *node[K]) own(e *edit) *node[K] {
	if n.owner == e {
		return n
	}
	return &node[K]{owner: e, bitmap: n.bitmap, slots: append(make([]slot[K], 0, len(n.slots)+1), n.slots...)}
}

// with sets key to t.
func (x index[K]) with(e *edit, key K, t *Topic) index[K] {
	if x.root == nil {
		x.root = &node[K]{owner: e}
	}
	x.root = x.set(x.root, e, x.hash(key), 0, slot[K]{key: key, topic: t})
	return x
}

func (x index[K]) set(n *node[K], e *edit, h uint64, shift int, s slot[K]) *node[K] {
	n = n.own(e)
	i, ok := n.at(h, shift, s.key)
	switch {
	case !ok:
		if shift < trieDepth {
			n.bitmap |= 1 << (h >> shift & (1<<trieBits - 1))
		}
		n.slots = append(n.slots, slot[K]{})
		copy(n.slots[i+1:], n.slots[i:])
		n.slots[i] = s
	case n.slots[i].kid != nil:
		n.slots[i].kid = x.set(n.slots[i].kid, e, h, shift+trieBits, s)
	case n.slots[i].key == s.key:
		n.slots[i] = s
	default: // two keys with the same bits so far: one level down
		old := n.slots[i]
		kid := x.set(&node[K]{owner: e}, e, x.hash(old.key), shift+trieBits, old)
		n.slots[i] = slot[K]{kid: x.set(kid, e, h, shift+trieBits, s)}
	}
	return n
}

// without removes key.
func (x index[K]) without(e *edit, key K) index[K] {
	if x.get(key) != nil {
		x.root = x.root.remove(e, x.hash(key), 0, key)
	}
	return x
}

// remove takes out a key that is there; nil when nothing is left. A child with one topic left becomes a slot again.
func (n *node[K]) remove(e *edit, h uint64, shift int, key K) *node[K] {
	n = n.own(e)
	i, _ := n.at(h, shift, key)
	if n.slots[i].kid != nil {
		kid := n.slots[i].kid.remove(e, h, shift+trieBits, key)
		if len(kid.slots) == 1 && kid.slots[0].kid == nil {
			n.slots[i] = kid.slots[0]
		} else {
			n.slots[i].kid = kid
		}
		return n
	}
	if len(n.slots) == 1 {
		return nil
	}
	n.slots = append(n.slots[:i], n.slots[i+1:]...)
	clear(n.slots[len(n.slots) : len(n.slots)+1])
	if shift < trieDepth {
		n.bitmap &^= 1 << (h >> shift & (1<<trieBits - 1))
	}
	return n
}
