package causal

import (
	"encoding/binary"
	"math"

	"github.com/google/uuid"

	"kaas/codec/parsley"
)

// need is a claim of a head that its node did not meet when it looked.
type need struct {
	on   *channel
	mark *mark // nil: a claim on an offset
	n    int64
}

func (w need) met() bool {
	if w.mark == nil {
		return w.on.frontier >= w.n
	}
	return w.mark.sequence >= w.n
}

// row is what the gate looks at of a channel: its id, split so that it compares as ids are ordered, its frontier, and the
// marks. Rows of the consumed channels lie together: a clock is looked at along them, without going to the channels.
type row struct {
	high, low int64 // halves of the topic id
	partition int32
	frontier  int64   // f; −1: nothing
	marks     []entry // ascending by sender
}

// entry is a mark in a row.
type entry struct {
	sender   uuid.UUID
	sequence int64 // of mark
	mark     *mark
}

// unseen is the sequence of a mark that somebody waits for, but nothing was delivered for.
const unseen = math.MinInt64

func (r *row) set(id *parsley.Channel) {
	r.high, r.low = int64(binary.BigEndian.Uint64(id.Topic[:8])), int64(binary.BigEndian.Uint64(id.Topic[8:]))
	r.partition = id.Partition
}

func (r *row) is(k *row) bool {
	return r.low == k.low && r.high == k.high && r.partition == k.partition
}

func (r *row) below(k *row) bool {
	if r.high != k.high {
		return r.high < k.high
	}
	if r.low != k.low {
		return r.low < k.low
	}
	return r.partition < k.partition
}

// hint says where the gate found what a claim is about, the last time that a clock of the same channel had a claim in its place. Clocks
// of one channel mostly claim things of the same channels and senders, so as a rule one comparison shows that it is still right.
type hint struct {
	row  int32 // index of the row; below 0: ^row is where the row would be, the channel is not consumed
	mark int32 // index of the mark in the row, of a claim on a sequence
}

// hints are those of one channel. They cost 8 bytes for each claim of its widest clock.
type hints struct{ offsets, sequences []hint }

func atLeast(h []hint, n int) []hint {
	if n <= len(h) {
		return h
	}
	return append(h, make([]hint, n-len(h))...)
}

// unmet appends the claims that a record of channel self must wait for: those on other consumed channels beyond what is
// delivered there. Claims on channels that are not consumed are ignored: whoever delivered what they name claims, in the
// same clock, what of it matters here. Claims on self are met by the order of the channel.
func (n *Node) unmet(dst []need, self *channel, clock *parsley.Clock) []need {
	n.counts.GateChecks++
	rows, offsets := n.rows, clock.Offsets()
	self.hints.offsets = atLeast(self.hints.offsets, len(offsets))
	hints, at := self.hints.offsets[:len(offsets)], 0
	var k row
	for i := range offsets {
		e, h := &offsets[i], &hints[i]
		k.set(&e.Key)
		if uint(h.row) >= uint(len(rows)) || !rows[h.row].is(&k) {
			if at = h.find(rows, at, &k); h.row < 0 {
				continue
			}
		}
		at = int(h.row)
		if rows[at].frontier < e.N && at != self.index {
			dst = append(dst, need{on: n.channels[at], n: e.N})
		}
	}
	if len(clock.Sequences()) > 0 {
		dst = n.unmetSequences(dst, self, clock)
	}
	return dst
}

func (n *Node) unmetSequences(dst []need, self *channel, clock *parsley.Clock) []need {
	rows, sequences := n.rows, clock.Sequences()
	self.hints.sequences = atLeast(self.hints.sequences, len(sequences))
	hints, at := self.hints.sequences[:len(sequences)], 0
	var k row
	for i := range sequences {
		e, h := &sequences[i], &hints[i]
		k.set(&e.Key.Channel)
		if uint(h.row) >= uint(len(rows)) || !rows[h.row].is(&k) {
			if at = h.find(rows, at, &k); h.row < 0 {
				continue
			}
		}
		if at = int(h.row); at == self.index {
			continue
		}
		r := &rows[at]
		if uint(h.mark) >= uint(len(r.marks)) || r.marks[h.mark].sender != e.Key.Sender {
			m, ok := r.findMark(e.Key.Sender)
			if !ok {
				r.markOf(e.Key.Sender)
			}
			h.mark = int32(m)
		}
		if m := &r.marks[h.mark]; m.sequence < e.N {
			dst = append(dst, need{on: n.channels[at], mark: m.mark, n: e.N})
		}
	}
	return dst
}

// find puts the hint right, and returns a place at or below that of the next claim. from is one at or below that of k.
func (h *hint) find(rows []row, from int, k *row) int {
	if at := int(^h.row); h.row < 0 && (at == 0 || rows[at-1].below(k)) && (at == len(rows) || k.below(&rows[at])) {
		return at // still not consumed
	}
	at := seek(rows, from, k)
	if h.row = int32(at); at == len(rows) || !rows[at].is(k) {
		h.row = int32(^at)
	}
	return at
}

// seek is the first place at or after at whose row is not below k. Claims and rows are both sorted, so it is mostly the next
// one; steps that double, and halve, keep it short where few claims meet many channels.
func seek(rows []row, at int, k *row) int {
	if at == len(rows) || !rows[at].below(k) {
		return at
	}
	low, high := at, at+1 // low is below k
	for step := 1; high < len(rows) && rows[high].below(k); step *= 2 {
		low, high = high, high+2*step
	}
	high = min(high, len(rows))
	for high-low > 1 {
		if middle := (low + high) / 2; rows[middle].below(k) {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}

// wait is a head that waits until what it waits for reaches n.
type wait struct {
	n int64
	c *channel
}

// waits is a heap of waits with the smallest n on top. A channel is in one heap at most, once, as only its head waits.
type waits []wait

func (h *waits) push(w wait) {
	s := append(*h, w)
	i := len(s) - 1
	for i > 0 {
		up := (i - 1) / 2
		if s[up].n <= w.n {
			break
		}
		s[i] = s[up]
		i = up
	}
	s[i] = w
	*h = s
}

func (h *waits) pop() wait {
	s := *h
	top, last := s[0], s[len(s)-1]
	s[len(s)-1] = wait{}
	s = s[:len(s)-1]
	i := 0
	for 2*i+1 < len(s) {
		kid := 2*i + 1
		if kid+1 < len(s) && s[kid+1].n < s[kid].n {
			kid++
		}
		if last.n <= s[kid].n {
			break
		}
		s[i] = s[kid]
		i = kid
	}
	if len(s) > 0 {
		s[i] = last
	}
	*h = s
	return top
}

// wake looks again at the heads that waited for no more than upTo.
func (n *Node) wake(h *waits, upTo int64) {
	for len(*h) > 0 && (*h)[0].n <= upTo {
		w := h.pop()
		n.counts.ClaimsWoken++
		n.settle(w.c)
	}
}

// settle puts the head of c on the agenda if all that it needs is there, else into the heap of the next claim. What is met
// stays met, so a head goes through its claims once.
func (n *Node) settle(c *channel) {
	needs := c.head.needs
	for c.head.next < len(needs) {
		w := needs[c.head.next]
		if !w.met() {
			if w.mark != nil {
				w.mark.waiting.push(wait{w.n, c})
			} else {
				w.on.waiting.push(wait{w.n, c})
			}
			return
		}
		c.head.next++
	}
	n.agenda.add(c)
}

// advance raises the frontier of c.
func (n *Node) advance(c *channel, to int64) {
	if to <= c.frontier {
		return
	}
	c.frontier, c.frontierDirty = to, true
	n.touch(c)
	n.merged.RaiseOffset(c.id, to)
	n.wake(&c.waiting, to)
}

// raise records that sequence of sender, and all before it, is delivered on c or lies below its baseline.
func (n *Node) raise(c *channel, sender uuid.UUID, sequence, offset int64) (raised bool) {
	e := c.markOf(sender)
	m := e.mark
	if m.sequence >= sequence {
		return false
	}
	e.sequence, m.sequence, m.offset = sequence, sequence, offset
	if !m.dirty {
		m.dirty = true
		c.dirtyMarks = append(c.dirtyMarks, m)
		n.touch(c)
	}
	if sender != n.cfg.Sender && len(n.merged.Sequences()) > 0 {
		key := parsley.SequenceKey{Channel: c.id, Sender: sender}
		if claimed, ok := n.merged.Sequence(key); ok && claimed <= sequence {
			n.merged.RemoveSequence(key)
			n.merged.RaiseOffset(c.id, offset)
		}
	}
	n.wake(&m.waiting, sequence)
	return true
}
