package netio

import (
	"encoding/binary"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Conn is one accepted connection. All methods are for its loop only.
type Conn struct {
	// Data is for the handler.
	Data any

	loop    *Loop
	id      uint64
	fd      int
	slot    int32
	ln      *listener
	remote  netip.AddrPort
	address string // RemoteAddr, made when first asked for

	// Reading.
	in        *inbuf // bytes not yet delivered; nil between frames
	lastFrame int32  // size of the last whole frame: what this peer has proven
	holds     int32
	kept      bool // in may hold whole frames: deliver before reading
	lowWater  bool // the kernel waits for the rest of a frame
	isReady   bool // in loop.ready
	paused    bool // too much is outstanding
	starved   bool // in budget.starved
	proven    bool // an answer was sent to its last byte
	closing   bool // closes after its replies
	closed    bool

	// Writing.
	head, tail   *Reply
	pending      int // replies reserved and not sent
	pendingBytes int // bytes of memory in completed ones
	isDirty      bool
	inTurns      bool // in loop.turns
	blocked      bool // the socket is full; waits for EPOLLOUT

	timed bool  // Timed
	nanos int64 // TakeNanos

	ahead    *readAhead // nil until something was not in the page cache
	lookedAt int64      // ms, when the page cache was last looked at

	sec    *secure // nil: plaintext
	isOpen bool    // the handler knows of it

	inHeld     int    // bytes of in that the budget knows of
	exemptAt   int64  // ms, when it was last exempted
	interest   uint32 // what epoll was told
	closeErr   error
	lastActive int64 // ms, of the last read or write
	idlePrev   *Conn
	idleNext   *Conn
	idleBucket int8
}

// Loop is the loop that owns the connection.
func (c *Conn) Loop() *Loop { return c.loop }

// ID is unique among the connections of a Server, from 1.
func (c *Conn) ID() uint64 { return c.id }

// Listener is the id given to Server.Listen.
func (c *Conn) Listener() int { return int(c.ln.id) }

// Remote is the address of the peer; IPv4 in IPv6 is unwrapped.
func (c *Conn) Remote() netip.AddrPort { return c.remote }

// RemoteAddr is Remote as text; made once, when first asked for.
func (c *Conn) RemoteAddr() string {
	if c.address == "" {
		c.address = c.remote.String()
	}
	return c.address
}

// LocalAddr is the address the peer connected to; empty once closed. It costs a
// system call.
func (c *Conn) LocalAddr() string {
	if c.closed {
		return ""
	}
	local, e := localAddr(c.fd)
	if e != 0 {
		return ""
	}
	return local.String()
}

// Closed tells whether the connection is gone.
func (c *Conn) Closed() bool { return c.closed }

// Timed says whether the time that the connection costs its loop is measured: in reads, writes, decryption and encryption, and that of a worker
// which reads file slices ahead. The handler's is its own. Off at first: it costs four looks at the clock for a request.
func (c *Conn) Timed(on bool) { c.timed = on }

// TakeNanos is the time measured since the last call, in ns; also inside Handler.Closed.
func (c *Conn) TakeNanos() int64 {
	n := c.nanos
	c.nanos = 0
	return n
}

// clock is the time now if time is measured.
func (c *Conn) clock() (now time.Time) {
	if c.timed {
		now = time.Now()
	}
	return now
}

// spent measures the time since clock.
func (c *Conn) spent(since time.Time) {
	if !since.IsZero() {
		c.nanos += int64(time.Since(since))
	}
}

// Hold stops the delivery of frames until as many calls of Resume. Called inside
// Frame it takes effect right after it. Bytes that already arrived are kept;
// nothing more is read.
func (c *Conn) Hold() { c.holds++ }

// Resume undoes one Hold. Frames kept meanwhile are delivered in the next round,
// never from inside Resume.
func (c *Conn) Resume() {
	if c.holds <= 0 {
		panic("BUG: Resume without Hold")
	}
	c.holds--
	c.readAgain()
}

// pause stops reading until half of what is outstanding is gone.
func (c *Conn) pause() {
	if !c.paused {
		c.paused = true
		c.loop.stats.pauses.Add(1)
	}
}

// unpause starts reading again if enough was sent.
func (c *Conn) unpause() {
	if c.paused && c.pending <= c.loop.pauseReplies/2 && c.pendingBytes <= c.loop.pauseLimit()/2 {
		c.paused = false
		c.readAgain()
	}
}

// readable tells whether frames may be delivered now.
func (c *Conn) readable() bool {
	return !c.closed && !c.closing && !c.paused && !c.starved && c.holds == 0
}

// readAgain goes on with a connection that became readable: first with the frames
// it kept, then with its socket.
func (c *Conn) readAgain() {
	switch {
	case !c.readable():
	case !c.kept && (c.sec == nil || !c.sec.fresh):
		c.listen(c.interest | unix.EPOLLIN | unix.EPOLLRDHUP)
	case !c.isReady:
		c.isReady = true
		c.loop.ready = append(c.loop.ready, c)
	}
}

// listen tells epoll what the connection waits for, if that changed.
func (c *Conn) listen(interest uint32) {
	if interest == c.interest || c.closed {
		return
	}
	c.interest = interest
	event := unix.EpollEvent{Events: interest, Fd: c.slot, Pad: int32(c.id)}
	if err := unix.EpollCtl(c.loop.epfd, unix.EPOLL_CTL_MOD, c.fd, &event); err != nil {
		c.Close(err)
	}
}

// CloseAfterReplies reads no more, waits until all replies reserved so far were
// sent or dropped, and closes the connection then.
func (c *Conn) CloseAfterReplies(err error) {
	if c.closed || c.closing {
		return
	}
	c.closing, c.closeErr = true, err
	c.loop.markDirty(c)
}

// Close closes the connection at once and releases its completed replies.
// Handler.Closed follows at the end of the round, never from inside this call.
func (c *Conn) Close(err error) {
	if c.closed {
		return
	}
	c.closed, c.closeErr = true, err
	l := c.loop
	if c.sec != nil {
		c.sec.close()
		if c.sec.direct {
			c.sec.account()
		}
	}
	unix.Close(c.fd)
	c.abandon()
	if c.in != nil {
		l.retire(c.in)
		c.in = nil
	}
	c.account()
	l.idle.remove(c)
	l.forget(c)
	l.closedConns = append(l.closedConns, c)
}

// finish closes a connection that has sent its last reply. Bytes not read are
// thrown away first: closing a socket with unread input resets it, and the peer
// could lose the replies still on their way.
func (c *Conn) finish() {
	const discardMax = 64
	if c.sec != nil && c.sec.direct {
		c.sec.goodbye()
	}
	_ = unix.Shutdown(c.fd, unix.SHUT_WR)
	for range discardMax {
		if n, e := recv(c.fd, c.loop.discard[:]); e != 0 || n <= 0 {
			break
		}
	}
	c.Close(c.closeErr)
}

// deliver hands the whole frames at the start of data to the handler and returns
// the number of bytes used. It stops when the connection is held, paused or
// closed. A panic of the handler costs the peer its connection and nobody else.
func (l *Loop) deliver(c *Conn, data []byte) (used int) {
	defer func() {
		if p := recover(); p != nil {
			l.panicked(c, p)
		}
	}()
	for c.readable() && len(data)-used >= 4 {
		size := int32(binary.BigEndian.Uint32(data[used:]))
		if size <= 0 || size > l.maxFrame {
			l.stats.badFrames.Add(1)
			c.Close(ErrFrameSize)
			break
		}
		from, to := used+4, used+4+int(size)
		if to > len(data) {
			break
		}
		used = to
		c.lastFrame = size
		l.frames++
		l.delivered = true
		l.handler.Frame(c, data[from:to:to])
		l.tookFrame(c)
	}
	return used
}

// wanted is how many bytes belong to the frame at the start of b, its size
// included; 4 while the size is not complete.
func wanted(b []byte) int {
	if len(b) < 4 {
		return 4
	}
	return 4 + int(int32(binary.BigEndian.Uint32(b)))
}

// capacity is how much memory a peer gets that has sent have bytes of a frame of
// want bytes: at most twice what it has sent, in this frame or as its last one.
// So buffers grow with the bytes that arrive, and a stream of equal large frames
// is received without copying.
func (c *Conn) capacity(have, want int) int {
	return max(have, min(want, max(2*have, 4+2*int(c.lastFrame), minBuffer)))
}

// bytes are those of b not delivered yet.
func (b *inbuf) bytes() []byte { return b.b[b.at:] }

// keep copies bytes that were read but not delivered out of the loop's buffer.
func (l *Loop) keep(c *Conn, rest []byte) {
	if c.closed || c.closing || len(rest) == 0 {
		return
	}
	c.kept = !c.readable()
	c.in = l.pools.get(c.capacity(len(rest), wanted(rest)))
	c.in.b = append(c.in.b, rest...)
}

// readFresh reads a connection that owns no bytes, into the loop's buffer.
func (l *Loop) readFresh(c *Conn) {
	room := l.room(c)
	var n int
	var e unix.Errno
	began := c.clock()
	if c.sec == nil {
		n, e = recv(c.fd, room)
	} else {
		n, e = l.decrypt(c, nil, room)
	}
	c.spent(began)
	if !l.received(c, n, e) {
		return
	}
	used := l.deliver(c, room[:n])
	l.filled += used
	l.keep(c, room[used:n])
}

// readRest reads a connection that has a partial frame: the rest of the frame
// straight into its buffer, what follows into the loop's.
func (l *Loop) readRest(c *Conn) {
	in := c.in
	have, want := len(in.b), wanted(in.b)
	if cap(in.b) < want {
		in = l.grow(c, have, want)
	}
	own := in.b[have:min(cap(in.b), want)]
	room := l.room(c)
	var n int
	var e unix.Errno
	began := c.clock()
	if c.sec == nil {
		vec := l.iov[:2]
		vec[0].Base, vec[1].Base = &own[0], &room[0]
		vec[0].SetLen(len(own))
		vec[1].SetLen(len(room))
		n, e = readv(c.fd, vec)
		clear(vec)
	} else {
		n, e = l.decrypt(c, own, room)
	}
	c.spent(began)
	if !l.received(c, n, e) {
		return
	}
	n0 := min(n, len(own))
	in.b = in.b[:have+n0]
	l.absorb(c, room[:n-n0])
}

// absorb completes the partial frame of c with bytes from the loop's buffer, and
// delivers it and what follows. got begins where the loop's buffer is free.
func (l *Loop) absorb(c *Conn, got []byte) {
	rest := got
	for len(rest) > 0 {
		have, want := len(c.in.b), wanted(c.in.b)
		if want <= have || want < 4 || want-4 > int(l.maxFrame) {
			break // complete, or a size that deliver refuses
		}
		n := min(want-have, len(rest))
		if cap(c.in.b) < have+n {
			l.grow(c, have+n, want)
		}
		c.in.b = append(c.in.b, rest[:n]...)
		rest = rest[n:]
	}
	used := l.deliver(c, c.in.bytes())
	if c.closed || used == 0 {
		return
	}
	l.retire(c.in)
	c.in = nil
	if used = l.deliver(c, rest); used > 0 {
		l.filled += len(got) - len(rest) + used
	}
	l.keep(c, rest[used:])
}

// grow moves the partial frame of c to a buffer for a frame of want bytes of
// which have are there or about to be.
func (l *Loop) grow(c *Conn, have, want int) *inbuf {
	size := c.capacity(have, want)
	if size <= cap(c.in.b) {
		return c.in
	}
	bigger := l.pools.get(size)
	bigger.b = append(bigger.b, c.in.b...)
	l.retire(c.in)
	c.in = bigger
	return bigger
}

// Sizes of what is missing of a partial frame between which the kernel is asked to wait for all of it, in bytes.
const (
	lowWaterMin = 64 << 10
	lowWaterMax = 1 << 20
)

// waitForRest has the kernel report a connection with a large partial frame only when the rest, or what fits its buffer, is there: one
// wake-up and one read instead of one for each segment, and the buffers of other connections stay out of the cache meanwhile. It has no
// effect on a peer that stops sending, who is reaped when idle, or closes.
func (c *Conn) waitForRest() {
	n := 1
	if c.in != nil && !c.kept {
		if missing := min(wanted(c.in.b), cap(c.in.b)) - len(c.in.b); missing >= lowWaterMin {
			n = min(missing, lowWaterMax)
		}
	}
	if n == 1 && !c.lowWater || c.closed || c.sec != nil { // TLS may hold part of the rest already, and reads in turns
		return
	}
	c.lowWater = n > 1
	// An error leaves the mark as it was, which costs wake-ups and nothing else.
	_ = unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, n)
}

// deliverKept delivers the frames of a connection that was held or paused.
func (l *Loop) deliverKept(c *Conn) {
	in := c.in
	in.at += l.deliver(c, in.bytes())
	if c.closed {
		return
	}
	defer c.account()
	if !c.readable() && in.at < len(in.b) {
		return // still kept: held or paused again
	}
	// A partial frame is left, or nothing. Delivered frames lie in this buffer
	// until the end of the round, so the rest moves to one of its own.
	c.kept, c.in = false, nil
	l.keep(c, in.bytes())
	l.retire(in)
	if c.readable() {
		c.listen(c.interest | unix.EPOLLIN | unix.EPOLLRDHUP)
	}
}

// received judges the result of a read; false: there is nothing to deliver.
func (l *Loop) received(c *Conn, n int, e unix.Errno) bool {
	switch {
	case e == unix.EAGAIN || e == unix.EINTR:
		return false
	case e != 0:
		c.Close(e)
		return false
	case n == 0:
		var err error
		if c.in != nil {
			err = ErrHalfFrame
		}
		c.Close(err)
		return false
	}
	c.lastActive = l.now
	l.bytesIn += int64(n)
	return true
}
