package netio

import (
	"golang.org/x/sys/unix"
)

const (
	// The kernel moves a file through a pipe of 16 pages. A call for more goes through it in pieces, and each but the last is held back for
	// company: with the rest in a call of its own, 64 KiB that begin inside a page cost 35 µs in place of 42.
	pageBytes = 4 << 10
	pipeBytes = 16 * pageBytes

	turnBytes  = 64 << 10      // of file a connection may send before the next one has its turn
	turnsMax   = 16            // turns between two looks at the sockets
	roundBytes = 4 * turnBytes // of files a loop sends between two looks at the sockets, and one turn more
	iovMax     = 256
)

// markDirty notes that c may have something to send at the end of the round.
func (l *Loop) markDirty(c *Conn) {
	if !c.isDirty {
		c.isDirty = true
		l.dirty = append(l.dirty, c)
	}
}

// settle sends what was completed and reports connections that were closed. It
// returns when neither has left anything new.
func (l *Loop) settle() {
	for len(l.dirty) > 0 || len(l.closedConns) > 0 {
		for i := 0; i < len(l.dirty); i++ {
			c := l.dirty[i]
			l.dirty[i] = nil
			c.isDirty = false
			if !c.inTurns {
				l.turn(c)
			}
		}
		l.dirty = l.dirty[:0]
		for i := 0; i < len(l.closedConns); i++ {
			c := l.closedConns[i]
			l.closedConns[i] = nil
			l.reportClosed(c)
		}
		l.closedConns = l.closedConns[:0]
	}
	l.tellDone()
}

// runTurns gives turns to the connections that are sending file slices, in a
// circle, and goes back to the sockets after turnsMax of them, or when the round has sent roundBytes of files.
func (l *Loop) runTurns() {
	l.fileLeft = max(l.fileLeft, 1)
	for range turnsMax {
		if l.turnHead == len(l.turns) || l.fileLeft <= 0 {
			break
		}
		c := l.turns[l.turnHead]
		l.turns[l.turnHead] = nil
		l.turnHead++
		c.inTurns = false
		l.turn(c)
	}
	if l.turnHead == len(l.turns) {
		l.turns, l.turnHead = l.turns[:0], 0
	}
}

// queueTurn puts c at the end of the circle.
func (l *Loop) queueTurn(c *Conn) {
	c.inTurns = true
	if len(l.turns) == cap(l.turns) && l.turnHead > len(l.turns)/2 {
		n := copy(l.turns, l.turns[l.turnHead:])
		clear(l.turns[n:])
		l.turns, l.turnHead = l.turns[:n], 0
	}
	l.turns = append(l.turns, c)
}

// turn sends what c has ready, up to turnBytes of file, and queues it again if
// there is more and its socket takes more.
func (l *Loop) turn(c *Conn) {
	if c.closed {
		return
	}
	if !c.blocked {
		var err error
		began := c.clock()
		if c.sec == nil {
			err = l.write(c)
		} else {
			err = l.writeSecure(c)
			if c.sec.direct {
				c.sec.account()
			}
		}
		c.spent(began)
		if err != nil {
			c.Close(err)
			return
		}
	}
	if c.closing && c.head == nil && (c.sec == nil || c.sec.out == nil) {
		c.finish()
		return
	}
	c.unpause()
}

// write is the sending part of a turn. It returns an error that ends the
// connection. Only bytes of files count for the turn: memory is bounded by the
// pause of the connection. A file waits for the circle when the round has sent enough of them.
func (l *Loop) write(c *Conn) error {
	budget := turnBytes
	if l.fileLeft <= 0 {
		budget = 0
	}
	for !c.waiting() {
		c.advance(0)
		n, total, file := l.gather(c)
		switch {
		case n > 0:
			w, e := send(c.fd, l.iov[:n], file && budget > 0, &l.hdr)
			clear(l.iov[:n])
			if w, e = l.sent(c, w, e); e != 0 {
				return e
			}
			c.advance(w)
			if w < total {
				l.block(c)
				return nil
			}
		case !file:
			return nil
		case budget <= 0:
			l.queueTurn(c)
			return nil
		default:
			p := &c.head.Parts[c.head.part]
			want := p.Len
			if want > budget+turnBytes/4 { // a small rest is not worth another turn
				want = budget
			}
			want = min(want, pipeBytes-int(p.Pos%pageBytes))
			if p.Old {
				if want = l.sendable(c, p, want); want == 0 {
					return nil
				}
			}
			w, e := sendfile(c.fd, p.FD, &p.Pos, want)
			if w == 0 && e == 0 {
				return ErrShortFile
			}
			if w, e = l.sent(c, w, e); e != 0 {
				return e
			}
			p.Len -= w
			budget -= w
			l.fileLeft -= w
			if w < want {
				l.block(c)
				return nil
			}
		}
	}
	return nil
}

// sent accounts for the result of a system call that sends: no bytes is what a
// full socket takes, any other error is returned.
func (l *Loop) sent(c *Conn, w int, e unix.Errno) (int, unix.Errno) {
	switch {
	case e == unix.EAGAIN || e == unix.EINTR:
		return 0, 0
	case e != 0:
		return 0, e
	}
	l.bytesOut += int64(w)
	c.lastActive = l.now
	return w, 0
}

// block waits for room in the socket. EPOLLOUT stays registered until it fires
// with nothing to send, so a stream that blocks often costs no epoll_ctl.
func (l *Loop) block(c *Conn) {
	c.blocked = true
	c.listen(c.interest | unix.EPOLLOUT)
}

// gather puts the memory that is ready at the front of c's replies into l.iov. It
// returns the number of pieces, their bytes, and whether a file slice comes next.
func (l *Loop) gather(c *Conn) (n, total int, file bool) {
	for r := c.head; r != nil && r.state == replyReady; r = r.next {
		off := r.off
		for i := r.part; i < len(r.Parts); i++ {
			p := &r.Parts[i]
			if p.Ref != nil {
				return n, total, true
			}
			if b := r.Buf[p.From+off : p.To]; len(b) > 0 {
				if n == iovMax {
					return n, total, false
				}
				l.iov[n].Base = &b[0]
				l.iov[n].SetLen(len(b))
				n++
				total += len(b)
			}
			off = 0
		}
	}
	return n, total, false
}

// advance marks n bytes of memory as sent, and removes replies that are done.
func (c *Conn) advance(n int) {
	for r := c.head; r != nil && r.state == replyReady; r = c.head {
		for ; r.part < len(r.Parts); r.part++ {
			p := &r.Parts[r.part]
			if p.Ref != nil {
				if p.Len > 0 {
					return
				}
				ref := p.Ref
				p.Ref = nil
				p.From, p.To = 0, 0
				ref.Release()
				continue
			}
			left := p.To - p.From - r.off
			if n < left {
				r.off += n
				return
			}
			n -= left
			r.off = 0
		}
		c.pop()
	}
}
