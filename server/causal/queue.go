package causal

import (
	"github.com/google/uuid"

	"kaas/codec/parsley"
)

// How much of a queue is read back from the store at a time: up to PageRecords, fewer when they come to more than pageBytes.
const (
	PageRecords = 64
	pageBytes   = 256 << 10
)

// queue is the held records of a channel, encoded as the store has them, by index. Only the head is decoded.
//
//	head           head+len(pages)         tail-len(fresh)      tail
//	 | in memory and | in the store alone     | in memory, not yet |
//	 | in the store  |                        | in the store       |
type queue struct {
	head, tail int64 // indices; they only grow
	last       int64 // offset of the last record, −1: none was queued
	pages      deque
	fresh      deque
	diskHead   int64 // what the store has: diskHead <= index < diskEnd, of which those below head are to be deleted
	diskEnd    int64
	dirty      bool // head or tail moved
}

func (q *queue) len() int64 { return q.tail - q.head }

// firstFresh is the index from which on records are not in the store.
func (q *queue) firstFresh() int64 { return q.tail - int64(q.fresh.len()) }

// deque is a list of encoded records, taken from the front.
type deque struct {
	items [][]byte
	start int
}

func (d *deque) len() int { return len(d.items) - d.start }

func (d *deque) front() []byte { return d.items[d.start] }

func (d *deque) push(b []byte) {
	if d.start > 0 && len(d.items) == cap(d.items) && d.start > len(d.items)/2 {
		n := copy(d.items, d.items[d.start:])
		clear(d.items[n:])
		d.items, d.start = d.items[:n], 0
	}
	d.items = append(d.items, b)
}

func (d *deque) pop() []byte {
	b := d.items[d.start]
	d.items[d.start] = nil
	if d.start++; d.start == len(d.items) {
		d.items, d.start = d.items[:0], 0
	}
	return b
}

// head is the first record of a queue, and what it waits for.
type head struct {
	offset    int64
	timestamp int64
	tagged    bool
	sender    uuid.UUID
	sequence  int64
	key       []byte
	value     []byte
	headers   []parsley.Header
	needs     []need // the claims that were not met when it became the head
	next      int    // of these, the first that is perhaps still not met
}

// met says whether nothing is left to wait for.
func (h *head) met() bool { return h.next == len(h.needs) }

// enqueue puts r at the end of the queue of c.
func (n *Node) enqueue(c *channel, r *parsley.Held) error {
	q := &c.queue
	b := r.Append(make([]byte, 0, heldSize(r)))
	q.fresh.push(b)
	n.pending += int64(len(b))
	q.tail++
	q.last, q.dirty = r.Offset, true
	n.touch(c)
	if q.len() > 1 {
		n.counts.HeldRecords++
		return nil
	}
	if err := n.loadHead(c); err != nil {
		return err
	}
	if c.head.met() {
		n.agenda.add(c)
	} else {
		n.counts.HeldRecords++
	}
	return nil
}

// heldSize is about what r takes when encoded: 45 bytes, four lengths and its parts.
func heldSize(r *parsley.Held) int {
	size := 57 + r.Clock.Size() + len(r.Key) + len(r.Value)
	for i := range r.Headers {
		size += 8 + len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	if len(r.Headers) > 0 {
		size += 4
	}
	return size
}

// pop takes the head of c away.
func (n *Node) pop(c *channel) {
	q := &c.queue
	switch {
	case q.pages.len() > 0:
		n.memory -= int64(len(q.pages.pop()))
	case q.firstFresh() == q.head:
		n.pending -= int64(len(q.fresh.pop()))
	}
	q.head++
	q.dirty = true
	n.touch(c)
	c.head = head{needs: c.head.needs[:0]}
}

// loadHead decodes the first record of c, if there is one, and finds out what it waits for.
func (n *Node) loadHead(c *channel) error {
	q := &c.queue
	if q.len() == 0 {
		return nil
	}
	if q.pages.len() == 0 && q.head < q.firstFresh() {
		if err := n.readPage(c); err != nil {
			return err
		}
	}
	b := q.fresh
	if q.pages.len() > 0 {
		b = q.pages
	}
	r := &n.held
	if err := r.Decode(b.front(), n.rules); err != nil {
		return n.fail("read held record", c.id, q.head, err)
	}
	h := &c.head
	h.offset, h.timestamp, h.tagged, h.sender, h.sequence = r.Offset, r.Timestamp, r.Tagged, r.Sender, r.Sequence
	h.key, h.value, h.headers = r.Key, r.Value, nil
	if len(r.Headers) > 0 {
		h.headers = append(h.headers, r.Headers...)
	}
	h.needs, h.next = n.unmet(h.needs[:0], c, &r.Clock), 0
	if !h.met() {
		n.settle(c)
	}
	return nil
}

// readPage reads the next records of c from the store into memory.
func (n *Node) readPage(c *channel) error {
	q := &c.queue
	n.counts.PagesRead++
	size := 0
	for i := q.head; i < min(q.head+PageRecords, q.firstFresh()) && size < pageBytes; i++ {
		n.key = parsley.Key{Kind: parsley.KeyHeld, Channel: c.id, Index: i}.Append(n.key[:0])
		v, ok, err := n.store.Get(n.key)
		if err != nil {
			return n.fail("read held record", c.id, i, err)
		}
		if !ok {
			return n.fail("read held record", c.id, i, ErrState)
		}
		q.pages.push(v)
		n.memory += int64(len(v))
		size += len(v)
	}
	return nil
}
