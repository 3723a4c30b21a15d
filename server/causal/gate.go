package causal

import (
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
	return w.mark.known && w.mark.sequence >= w.n
}

// unmet appends the claims that a record of channel self must wait for: those on other consumed channels beyond what is
// delivered there. Claims on channels that are not consumed are ignored: whoever delivered what they name claims, in the
// same clock, what of it matters here. Claims on self are met by the order of the channel.
func (n *Node) unmet(dst []need, self *channel, clock *parsley.Clock) []need {
	n.counts.GateChecks++
	at := 0
	offsets := clock.Offsets()
	for i := range offsets {
		e := &offsets[i]
		if at = n.seek(at, &e.Key); at == len(n.ids) {
			break
		}
		if c := n.channels[at]; n.ids[at] == e.Key && c != self && c.frontier < e.N {
			dst = append(dst, need{on: c, n: e.N})
		}
	}
	at = 0
	sequences := clock.Sequences()
	var last *channel // of the sequence claim before
	from := 0         // where to go on among its senders
	for i := range sequences {
		e := &sequences[i]
		if at = n.seek(at, &e.Key.Channel); at == len(n.ids) {
			break
		}
		c := n.channels[at]
		if n.ids[at] != e.Key.Channel || c == self {
			continue
		}
		if c != last {
			last, from = c, 0
		}
		from = seekSender(c.senders, from, e.Key.Sender)
		if from < len(c.senders) && c.senders[from] == e.Key.Sender {
			if m := c.marks[from]; m.known && m.sequence >= e.N {
				continue
			}
		}
		dst = append(dst, need{on: c, mark: c.markOf(e.Key.Sender), n: e.N})
	}
	return dst
}

// seek is the first place at or after at whose channel is not below id. Claims and channels are both sorted, so it is mostly
// the next one or the one after; steps that double keep it short when few claims meet many channels.
func (n *Node) seek(at int, id *parsley.Channel) int {
	ids := n.ids
	step := 1
	for at < len(ids) && ids[at] != *id && ids[at].Compare(*id) < 0 {
		if next := at + step; next < len(ids) && ids[next].Compare(*id) < 0 {
			at, step = next, 2*step
		} else if step > 1 {
			step = 1
		} else {
			at++
		}
	}
	return at
}

func seekSender(senders []uuid.UUID, at int, id uuid.UUID) int {
	step := 1
	for at < len(senders) && senders[at] != id && parsley.CompareUUIDs(senders[at], id) < 0 {
		if next := at + step; next < len(senders) && parsley.CompareUUIDs(senders[next], id) < 0 {
			at, step = next, 2*step
		} else if step > 1 {
			step = 1
		} else {
			at++
		}
	}
	return at
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
	m := c.markOf(sender)
	if m.known && m.sequence >= sequence {
		return false
	}
	m.known, m.sequence, m.offset = true, sequence, offset
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
