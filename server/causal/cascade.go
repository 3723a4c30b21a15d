package causal

import "math"

// agenda is the set of channels whose head may go, or whose frontier may move, taken in the order in which the existing
// implementation would come to them: it walks through all channels in ascending order, again and again, until nothing
// changes. So a channel behind the current one has its turn in this pass, one before it in the next.
type agenda struct {
	now, later indexHeap
	at         int // index of the channel whose turn it is; nothing has begun: outside
}

const outside = math.MaxInt

func (a *agenda) empty() bool { return len(a.now) == 0 && len(a.later) == 0 }

// add puts c on the agenda unless it is there.
func (a *agenda) add(c *channel) {
	if c.listed {
		return
	}
	c.listed = true
	if c.index > a.at {
		a.now.push(c.index)
	} else {
		a.later.push(c.index)
	}
}

// next takes the channel whose turn it is; −1: the agenda is empty.
func (a *agenda) next() int {
	if len(a.now) == 0 {
		a.now, a.later = a.later, a.now
	}
	if len(a.now) == 0 {
		a.at = outside
		return -1
	}
	a.at = a.now.pop()
	return a.at
}

// indexHeap is a heap of indices, the smallest on top.
type indexHeap []int

func (h *indexHeap) push(v int) {
	s := append(*h, v)
	i := len(s) - 1
	for i > 0 && s[(i-1)/2] > v {
		s[i] = s[(i-1)/2]
		i = (i - 1) / 2
	}
	s[i] = v
	*h = s
}

func (h *indexHeap) pop() int {
	s := *h
	top, last := s[0], s[len(s)-1]
	s = s[:len(s)-1]
	i := 0
	for 2*i+1 < len(s) {
		kid := 2*i + 1
		if kid+1 < len(s) && s[kid+1] < s[kid] {
			kid++
		}
		if last <= s[kid] {
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

// deliveryOverhead is what a delivery counts for beside its bytes.
const deliveryOverhead = 128

// cascade delivers what can be delivered, and what that makes deliverable, until nothing is left or the limit is reached.
func (n *Node) cascade(out []Delivery) ([]Delivery, error) {
	budget := n.cfg.ReleaseBytes
	if n.cfg.Parity {
		budget = math.MaxInt64
	}
	for i := n.agenda.next(); i >= 0; i = n.agenda.next() {
		c := n.channels[i]
		c.listed = false
		for c.queue.len() > 0 && c.head.met() {
			if budget <= 0 {
				c.listed = true
				n.agenda.now.push(i) // its turn is not over
				n.agenda.at = i - 1
				return out, nil
			}
			d, err := n.release(c)
			if err != nil {
				return out, err
			}
			budget -= int64(len(d.Key)+len(d.Value)) + deliveryOverhead
			out = append(out, d)
		}
		n.fold(c)
	}
	return out, nil
}

// release delivers the head of c.
func (n *Node) release(c *channel) (Delivery, error) {
	h := &c.head
	d := Delivery{Channel: c.id, Offset: h.offset, Timestamp: h.timestamp, Key: h.key, Value: h.value, Headers: h.headers}
	sender, sequence, tagged := h.sender, h.sequence, h.tagged
	n.pop(c)
	n.delivered(c, d.Offset)
	if tagged {
		n.raise(c, sender, sequence, d.Offset)
	}
	return d, n.loadHead(c)
}

func (n *Node) delivered(c *channel, offset int64) {
	n.counts.Delivered++
	n.advance(c, offset)
}

// fold moves the frontier of c over offsets that never arrive: those behind the last record, and those before a held head.
func (n *Node) fold(c *channel) {
	if c.queue.len() > 0 {
		n.advance(c, c.head.offset-1)
	} else {
		n.advance(c, c.known-1)
	}
}

// More says whether the last call stopped at Config.ReleaseBytes, or Start made records deliverable: call Resume.
func (n *Node) More() bool { return n.phase == started && n.err == nil && !n.agenda.empty() }

// Resume goes on delivering and appends to out. When there is nothing to do it does nothing.
func (n *Node) Resume(out []Delivery) ([]Delivery, error) {
	if err := n.ready(started, "resume"); err != nil {
		return out, err
	}
	return n.cascade(out)
}
