package coordinator

import "math/bits"

// wheel is a hierarchical timing wheel over ticks: adding, stopping and firing cost the same whether there are ten timers or a million.
// A level has 64 slots, each 64 times as wide as one of the level below. A timer sits in the level of the highest group of six bits in which
// its tick differs from now; when now reaches its slot it moves down, and fires at its own tick, never before.
//
// It knows no clock and is not safe for concurrent use. A timer that fired is kept until it is claimed or stopped, so that one who stops it
// after it fired, but before its turn came, still stops it.
type wheel[T any] struct {
	now    int64 // everything due at or before this tick has fired
	levels [wheelLevels]wheelLevel
	nodes  []wheelNode[T] // Timer's lower half is an index in here; 0 is nobody
	free   int32          // first of the nodes that are free, chained by next
	armed  int            // timers that have not fired
}

const (
	wheelBits   = 6
	wheelSlots  = 1 << wheelBits
	wheelLevels = 11 // 66 bits: every tick has its place
)

// wheelLevel is the slots of one level: circular lists by the index of their first node, 0 for none.
type wheelLevel struct {
	occupied uint64 // bit per slot
	first    [wheelSlots]int32
}

type nodeState uint8

const (
	nodeFree nodeState = iota
	nodeArmed
	nodeFired
)

type wheelNode[T any] struct {
	due        int64
	what       T
	prev, next int32
	uses       uint32 // Timer's upper half: a handle of an earlier use is not valid
	level      uint8
	slot       uint8
	state      nodeState
}

// add arms a timer for a tick; one that is not after now fires with the next tick.
func (w *wheel[T]) add(due int64, what T) Timer {
	if len(w.nodes) == 0 {
		w.nodes = make([]wheelNode[T], 1, 8)
	}
	i := w.free
	if i == 0 {
		i = int32(len(w.nodes))
		w.nodes = append(w.nodes, wheelNode[T]{})
	} else {
		w.free = w.nodes[i].next
	}
	n := &w.nodes[i]
	n.due, n.what, n.state = max(due, w.now+1), what, nodeArmed
	n.uses++
	w.armed++
	w.link(i)
	return Timer(n.uses)<<32 | Timer(i)
}

// find returns the node of a handle; nil if it is not in use any more.
func (w *wheel[T]) find(t Timer) (int32, *wheelNode[T]) {
	i := uint32(t)
	if i == 0 || uint64(i) >= uint64(len(w.nodes)) {
		return 0, nil
	}
	n := &w.nodes[i]
	if n.uses != uint32(t>>32) || n.state == nodeFree {
		return 0, nil
	}
	return int32(i), n
}

// stop forgets a timer, armed or fired; any other handle is ignored.
func (w *wheel[T]) stop(t Timer) {
	i, n := w.find(t)
	if n == nil {
		return
	}
	if n.state == nodeArmed {
		w.unlink(i)
		w.armed--
	}
	w.release(i)
}

// claim takes a timer that fired; false if it was stopped meanwhile.
func (w *wheel[T]) claim(t Timer) (what T, ok bool) {
	i, n := w.find(t)
	if n == nil || n.state != nodeFired {
		return what, false
	}
	what = n.what
	w.release(i)
	return what, true
}

// release gives a node back.
func (w *wheel[T]) release(i int32) {
	n := &w.nodes[i]
	*n = wheelNode[T]{uses: n.uses, next: w.free}
	w.free = i
}

// link puts a node into the slot that it belongs to as of now; its tick is after now.
func (w *wheel[T]) link(i int32) {
	n := &w.nodes[i]
	level := (bits.Len64(uint64(n.due^w.now)) - 1) / wheelBits
	slot := n.due >> (wheelBits * level) & (wheelSlots - 1)
	n.level, n.slot = uint8(level), uint8(slot)
	l := &w.levels[level]
	head := l.first[slot]
	if head == 0 {
		n.prev, n.next = i, i
		l.first[slot] = i
		l.occupied |= 1 << slot
		return
	}
	last := w.nodes[head].prev
	n.prev, n.next = last, head
	w.nodes[last].next, w.nodes[head].prev = i, i
}

// unlink takes a node out of its slot.
func (w *wheel[T]) unlink(i int32) {
	n := &w.nodes[i]
	l := &w.levels[n.level]
	if n.next == i {
		l.first[n.slot] = 0
		l.occupied &^= 1 << n.slot
		return
	}
	if l.first[n.slot] == i {
		l.first[n.slot] = n.next
	}
	w.nodes[n.prev].next, w.nodes[n.next].prev = n.next, n.prev
}

// next is the earliest tick at which there is something to do: a timer fires, or some move down a level. False: there are none.
func (w *wheel[T]) next() (tick int64, ok bool) {
	for level := range w.levels {
		if o := w.levels[level].occupied; o != 0 {
			return w.start(level, bits.TrailingZeros64(o)), true
		}
	}
	return 0, false
}

// start is the first tick of a slot. Slots in use are ahead of now, and share with it all that is above their level.
func (w *wheel[T]) start(level, slot int) int64 {
	above := uint(wheelBits * (level + 1))
	return int64(uint64(w.now)>>above<<above) | int64(slot)<<(wheelBits*level)
}

// advance moves now to a tick and calls fired for every timer that is due, in the order of their ticks.
func (w *wheel[T]) advance(to int64, fired func(t Timer, what T)) {
	for {
		tick, ok := w.next()
		if !ok || tick > to {
			break
		}
		w.now = tick
		w.open(fired)
	}
	w.now = max(w.now, to)
}

// open empties the slot that now has reached: its timers fire or move down.
func (w *wheel[T]) open(fired func(t Timer, what T)) {
	level := 0
	for w.levels[level].occupied == 0 {
		level++
	}
	l := &w.levels[level]
	slot := bits.TrailingZeros64(l.occupied)
	head := l.first[slot]
	l.first[slot] = 0
	l.occupied &^= 1 << slot
	last := w.nodes[head].prev
	for i := head; ; {
		n := &w.nodes[i]
		following := n.next
		if n.due > w.now {
			w.link(i)
		} else {
			n.state = nodeFired
			w.armed--
			fired(Timer(n.uses)<<32|Timer(i), n.what)
		}
		if i == last {
			return
		}
		i = following
	}
}
