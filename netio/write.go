package netio

import (
	"golang.org/x/sys/unix"
)

const (
	turnBytes = 64 << 10 // of file a connection may send before the next one has its turn
	turnsMax  = 16       // turns between two looks at the sockets
	iovMax    = 256
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
}

// runTurns gives turns to the connections that are sending file slices, in a
// circle, and goes back to the sockets after turnsMax of them.
func (l *Loop) runTurns() {
	for range turnsMax {
		if l.turnHead == len(l.turns) {
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
		if err := l.write(c); err != 0 {
			c.Close(err)
			return
		}
	}
	if c.closing && c.head == nil {
		c.finish()
		return
	}
	c.unpause()
}

// write is the sending part of a turn. It returns an error that ends the connection.
func (l *Loop) write(c *Conn) unix.Errno {
	for budget := turnBytes; ; {
		c.advance(0)
		n, total, file := l.gather(c)
		if n > 0 {
			w, e := send(c.fd, l.iov[:n], file, &l.hdr)
			clear(l.iov[:n])
			if e == unix.EAGAIN || e == unix.EINTR {
				w, e = 0, 0
			}
			if e != 0 {
				return e
			}
			l.sent(c, w)
			c.advance(w)
			if w < total {
				l.block(c)
				return 0
			}
			budget -= w
			continue
		}
		if !file {
			return 0
		}
		if budget <= 0 {
			l.queueTurn(c)
			return 0
		}
		r := c.head
		p := &r.Parts[r.part]
		want := min(p.Len, budget)
		w, e := sendfile(c.fd, p.FD, &p.Pos, want)
		if e == unix.EAGAIN || e == unix.EINTR {
			w, e = 0, unix.EAGAIN
		} else if e != 0 {
			return e
		} else if w == 0 {
			return unix.EIO // the file is shorter than the slice: the reply cannot be completed
		}
		l.sent(c, w)
		p.Len -= w
		budget -= w
		if w < want || e == unix.EAGAIN {
			l.block(c)
			return 0
		}
	}
}

// sent accounts for w bytes that went out.
func (l *Loop) sent(c *Conn, w int) {
	if w > 0 {
		l.bytesOut += int64(w)
		c.lastActive = l.now
	}
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
