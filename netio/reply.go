package netio

import "time"

// Ref keeps what a file slice reads from alive. Release is called exactly once,
// on the loop: when the slice was sent, or when it never will be.
type Ref interface{ Release() }

// Part is one piece of a reply. With a Ref it is Len bytes of the open file FD
// from Pos, sent by sendfile (see Old); without one it is Buf[From:To] of its Reply.
type Part struct {
	From, To int
	FD       int
	Pos      int64
	Len      int
	Ref      Ref
	// Old: the slice may not be in the page cache. It is read from the disk before it is sent, by a worker.
	Old bool

	warm int64 // before it the file is in the page cache
}

type replyState uint8

const (
	replyFree     replyState = iota // in the pool of a loop
	replyReserved                   // has its place, is being filled by its owner
	replyReady                      // complete, waits for its turn
)

// Reply is one place in the order of replies of a connection. Its owner fills Buf
// and Parts and then calls exactly one of Send, Drop (on the loop), Post and
// DropPost (any goroutine), once; after that it must not touch the reply. That
// is safe too when the connection was closed meanwhile or the loop has ended.
type Reply struct {
	// Buf is the memory of this reply, reused: append to Buf[:0].
	Buf []byte
	// Parts is what is sent, in order. Empty: Buf is sent whole.
	Parts []Part
	// Tag is the owner's name for what is answered; Config.OnDone is told about
	// replies whose Tag is not 0.
	Tag int32

	charged int32 // bytes that the budget counts for the request
	frame   int32 // size of the last frame of conn when the reply was reserved
	start   int64 // Loop.nano then
	size    int64 // bytes of all parts
	conn    *Conn
	next    *Reply
	part    int // first part not sent completely
	off     int // bytes of that part already sent, if it is memory
	memory  int // bytes of memory in all parts
	state   replyState
	dropped bool // set by DropPost, before the post
}

// Limits of what a recycled reply and the pool of a loop keep, so that one burst
// of large answers does not stay in memory.
const (
	replyKeepBuf   = 64 << 10
	replyKeepParts = 256
	poolKeepBytes  = 4 << 20
	poolKeepCount  = 4096
)

// Conn is the connection whose reply this is.
func (r *Reply) Conn() *Conn { return r.conn }

// Send completes the reply. On the loop of its connection.
func (r *Reply) Send() { r.complete(false) }

// Drop completes the place without sending anything (acks=0). On the loop.
func (r *Reply) Drop() { r.complete(true) }

// Post is Send from any goroutine.
func (r *Reply) Post() { r.conn.loop.Post((*postedReply)(r)) }

// DropPost is Drop from any goroutine.
func (r *Reply) DropPost() {
	r.dropped = true
	r.Post()
}

// postedReply makes a Reply its own Task without showing Run to its owner.
type postedReply Reply

func (p *postedReply) Run() {
	r := (*Reply)(p)
	r.complete(r.dropped)
}

func (r *Reply) complete(drop bool) {
	if r.state != replyReserved {
		panic("BUG: a reply was completed twice")
	}
	c := r.conn
	c.loop.budget.requests -= int64(r.charged)
	r.charged = 0
	if drop {
		r.release()
	} else if len(r.Parts) == 0 && len(r.Buf) > 0 {
		r.Parts = append(r.Parts, Part{To: len(r.Buf)})
	}
	if c.closed {
		c.loop.recycle(r)
		return
	}
	for i := range r.Parts {
		p := &r.Parts[i]
		n := p.Len
		if p.Ref == nil {
			n = len(r.Buf[p.From:p.To])
			r.memory += n
		}
		r.size += int64(n)
	}
	r.state = replyReady
	c.pendingBytes += r.memory
	c.loop.budget.replies += int64(r.memory)
	if c.pendingBytes >= c.loop.pauseLimit() {
		c.pause()
	}
	if c.head == r {
		c.loop.markDirty(c)
	}
}

// release gives back every Ref not given back yet and empties Parts.
func (r *Reply) release() {
	for i := range r.Parts {
		if ref := r.Parts[i].Ref; ref != nil {
			r.Parts[i].Ref = nil
			ref.Release()
		}
	}
	r.Parts = r.Parts[:0]
}

// NewReply reserves the next place in the order of replies of c. Never nil, also
// when c is closed. On the loop.
func (c *Conn) NewReply() *Reply {
	l := c.loop
	var r *Reply
	if n := len(l.freeReplies); n > 0 {
		r = l.freeReplies[n-1]
		l.freeReplies = l.freeReplies[:n-1]
		l.freeReplyBytes -= cap(r.Buf)
	} else {
		r = new(Reply)
	}
	r.conn, r.state = c, replyReserved
	r.start, r.frame = l.nano, c.lastFrame
	if c.closed {
		return r
	}
	if c.tail == nil {
		c.head = r
	} else {
		c.tail.next = r
	}
	c.tail = r
	c.pending++
	r.charged = c.lastFrame
	c.loop.budget.requests += int64(r.charged)
	if c.pending >= l.pauseReplies {
		c.pause()
	}
	return r
}

// recycle releases what is left of r and puts it into the pool of the loop.
func (l *Loop) recycle(r *Reply) {
	if r.state == replyReady {
		l.budget.replies -= int64(r.memory)
	}
	r.release()
	if cap(r.Parts) > replyKeepParts {
		r.Parts = nil
	}
	if cap(r.Buf) > replyKeepBuf || l.freeReplyBytes+cap(r.Buf) > poolKeepBytes {
		r.Buf = nil
	}
	*r = Reply{Buf: r.Buf[:0], Parts: r.Parts}
	if len(l.freeReplies) < poolKeepCount {
		l.freeReplies = append(l.freeReplies, r)
		l.freeReplyBytes += cap(r.Buf)
	}
}

// pop removes the first reply of c, which was sent or dropped.
func (c *Conn) pop() {
	r := c.head
	c.head = r.next
	if c.head == nil {
		c.tail = nil
	}
	c.pending--
	c.pendingBytes -= r.memory
	c.proven = true
	c.loop.noteDone(r)
	c.loop.recycle(r)
}

// Done tells of a tagged reply that left: sent to its last byte, or dropped.
type Done struct {
	Tag   int32
	Frame int32 // size of the frame that was answered
	Bytes int64 // of the reply, its size included; 0 if it was dropped
	Nanos int64 // from the start of the round that delivered the frame
}

// doneMax bounds how many replies are told about at once.
const doneMax = 256

// noteDone keeps what OnDone is to be told about r. The clock is read once for all
// of them: a read costs as much as everything else that is counted for a reply.
func (l *Loop) noteDone(r *Reply) {
	if r.Tag == 0 || l.onDone == nil {
		return
	}
	l.done = append(l.done, Done{Tag: r.Tag, Frame: r.frame, Bytes: r.size, Nanos: r.start})
	if len(l.done) >= doneMax {
		l.tellDone()
	}
}

// tellDone tells OnDone what was noted.
func (l *Loop) tellDone() {
	if len(l.done) == 0 {
		return
	}
	now := int64(time.Since(l.server.start))
	l.later = now // saves the read before the sleep
	for i := range l.done {
		l.done[i].Nanos = now - l.done[i].Nanos
	}
	l.onDone(l, l.done)
	l.done = l.done[:0]
}

// abandon takes all replies off a closing connection. Those still being filled
// belong to their owner, perhaps on another goroutine: only next is touched.
func (c *Conn) abandon() {
	for r := c.head; r != nil; {
		following := r.next
		r.next = nil
		if r.state == replyReady && !(c.waiting() && r == c.ahead.reply) { // a worker's: readAhead.Run gives it back
			c.loop.recycle(r)
		}
		r = following
	}
	c.head, c.tail, c.pending, c.pendingBytes = nil, nil, 0, 0
}
