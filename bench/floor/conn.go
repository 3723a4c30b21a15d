package floor

import (
	"encoding/binary"
	"unsafe"

	"github.com/klauspost/crc32"
	"golang.org/x/sys/unix"

	"kaas/bench/frames"
)

var be = binary.BigEndian

// conn is a connection. Of a Produce request only the head is ever kept: its batch streams through the read buffer.
type conn struct {
	fd   int
	rest []byte // bytes that do not yet make a request, or the head of a Produce
	out  []byte // answers not yet sent

	// the batch of the Produce that is being received
	left  int // bytes still to come
	at    int64
	base  int64      // its offset
	part  *partition // whose file it goes to
	crc   uint32
	want  uint32
	reply [128]byte // head of the answer: correlation id, topic, partition
	head  int       // length of it; 0: nobody waits for an answer

	// the answer to a Fetch that is being sent
	send     int
	sendAt   int64
	sendPart *partition
	turning  bool
}

// writer gathers neighbouring pieces of one file for one pwritev.
type writer struct {
	part   *partition
	from   int64
	next   int64
	pieces [pieceCount]unix.Iovec
	n      int
}

func (w *writer) add(p *partition, at int64, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if w.n > 0 && (w.part != p || w.next != at || w.n == len(w.pieces)) {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if w.n == 0 {
		w.part, w.from, w.next = p, at, at
	}
	w.pieces[w.n].Base = &b[0]
	w.pieces[w.n].SetLen(len(b))
	w.n++
	w.next += int64(len(b))
	return nil
}

func (w *writer) flush() error {
	if w.n == 0 {
		return nil
	}
	n, _, errno := unix.Syscall6(unix.SYS_PWRITEV, uintptr(w.part.fd), uintptr(unsafe.Pointer(&w.pieces[0])), uintptr(w.n),
		uintptr(w.from), 0, 0)
	w.n = 0
	if errno != 0 {
		return errno
	}
	if int64(n) != w.next-w.from {
		return unix.ENOSPC
	}
	return nil
}

// ready handles events of one connection. What it reads stays in the buffer until endRound.
func (s *Server) ready(c *conn, events uint32) error {
	for more := events&^unix.EPOLLOUT != 0; more; {
		if s.used > len(s.buf)-roomBytes {
			if err := s.endRound(); err != nil {
				return err
			}
		}
		kept := copy(s.buf[s.used:], c.rest)
		room := s.buf[s.used+kept:]
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(c.fd), uintptr(unsafe.Pointer(&room[0])), uintptr(len(room)), 0, 0, 0)
		if errno == unix.EAGAIN {
			break
		}
		if errno != 0 || n == 0 || !s.take(c, s.buf[s.used:s.used+kept+int(n)]) {
			s.drop(c)
			return s.endRound()
		}
		s.used += kept + int(n)
		more = int(n) == len(room)
	}
	if len(c.out) > 0 || c.send > 0 {
		s.answered = append(s.answered, c)
	}
	return nil
}

// endRound writes the received batches with as few calls as it takes, syncs them if that is wanted, and then sends the answers.
func (s *Server) endRound() error {
	if err := s.writer.flush(); err != nil {
		return err
	}
	if s.dirty {
		s.dirty = false
		s.syncs.Add(1)
		if err := unix.Fdatasync(s.shared.fd); err != nil {
			return err
		}
	}
	for _, c := range s.answered {
		if c.fd >= 0 && !c.flush() {
			s.drop(c)
		}
		if c.send > 0 && !c.turning {
			c.turning = true
			s.turns = append(s.turns, c)
		}
	}
	s.answered, s.used = s.answered[:0], 0
	return nil
}

// flush sends what answers there are; false means that the connection is gone.
func (c *conn) flush() bool {
	for len(c.out) > 0 {
		flags := uintptr(0)
		if c.send > 0 {
			flags = unix.MSG_MORE
		}
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(c.fd), uintptr(unsafe.Pointer(&c.out[0])), uintptr(len(c.out)),
			flags|unix.MSG_NOSIGNAL, 0, 0)
		if errno == unix.EAGAIN {
			return true
		}
		if errno != 0 {
			return false
		}
		c.out = c.out[:copy(c.out, c.out[n:])]
	}
	return true
}

// sendTurns gives each sending connection one turn of sendfile.
func (s *Server) sendTurns() {
	still := s.turns[:0]
	for _, c := range s.turns {
		if c.send > 0 && len(c.out) == 0 && c.fd >= 0 {
			at := c.sendAt
			n, _, errno := unix.RawSyscall6(unix.SYS_SENDFILE, uintptr(c.fd), uintptr(c.sendPart.fd), uintptr(unsafe.Pointer(&at)),
				uintptr(min(c.send, turnBytes)), 0, 0)
			if errno == 0 && n > 0 {
				c.send -= int(n)
				c.sendAt += int64(n)
				if c.send > 0 {
					still = append(still, c)
					continue
				}
			} else if errno != unix.EAGAIN {
				s.drop(c)
			}
		}
		c.turning = false
	}
	s.turns = still
}

// take handles received bytes, which begin with c.rest; false closes the connection.
func (s *Server) take(c *conn, b []byte) bool {
	for len(b) > 0 {
		if c.left > 0 {
			n := min(c.left, len(b))
			if !s.stream(c, b[:n]) {
				return false
			}
			b = b[n:]
			continue
		}
		if c.send > 0 {
			return false // a second request before the answer to a Fetch has been sent
		}
		if len(b) < frames.RequestHead {
			break
		}
		size, key := 4+int(be.Uint32(b)), be.Uint16(b[4:])
		if key == frames.KeyProduce {
			n, ok := s.openProduce(c, b)
			if !ok {
				return false
			}
			if n == 0 {
				break
			}
			b = b[n:]
			continue
		}
		if size > readBytes/2 || size < frames.RequestHead {
			return false
		}
		if len(b) < size {
			break
		}
		if !s.answer(c, key, b[:size]) {
			return false
		}
		b = b[size:]
	}
	c.rest = append(c.rest[:0], b...)
	return true
}

// openProduce reads the head of a Produce and of its batch, and returns how many bytes were used: 0 when more must come.
func (s *Server) openProduce(c *conn, b []byte) (used int, ok bool) {
	const nameAt = frames.RequestHead + 2 + 2 + 4 + 4
	if len(b) < nameAt+2 {
		return 0, true
	}
	n := int(be.Uint16(b[nameAt:]))
	head := frames.ProduceHeadBytes(n)
	if n > 100 {
		return 0, false // the answer must fit into reply
	}
	if len(b) < head+frames.BatchHeader {
		return 0, true
	}
	t, index := s.topics[string(b[nameAt+2:nameAt+2+n])], int(be.Uint32(b[head-8:]))
	size := int(be.Uint32(b[head-4:]))
	batch := b[head:]
	if t == nil || index >= len(t.parts) || size < frames.BatchHeader ||
		size != frames.BatchLengthEnd+int(be.Uint32(batch[frames.BatchLengthAt:])) || 4+int(be.Uint32(b)) != head+size {
		return 0, false
	}
	p := t.parts[index]
	if p.each == 0 {
		p.each, p.records = int64(size), int64(be.Uint32(batch[frames.BatchLastDeltaAt:]))+1
	}
	if p.each != int64(size) {
		return 0, false
	}
	to, at, base, err := s.reserve(p, int64(size))
	if err != nil {
		return 0, false
	}
	be.PutUint64(batch, uint64(base))
	c.part, c.at, c.base, c.left = to, at, base, size
	c.want, c.crc = be.Uint32(batch[frames.BatchCRCAt:]), 0
	c.head = 0
	if acks := be.Uint16(b[frames.RequestHead+2:]); acks != 0 {
		c.head = appendReply(c.reply[:0], b, n)
	}
	have := min(size, len(batch))
	c.crc = crc32.Update(0, frames.Castagnoli, batch[frames.BatchCRCFrom:have])
	return head + have, s.store(c, batch[:have])
}

// appendReply makes the answer's head: all up to the error code. It returns its length.
func appendReply(r, b []byte, name int) int {
	const nameAt = frames.RequestHead + 2 + 2 + 4 + 4
	r = be.AppendUint32(r, uint32(frames.ProduceAnswerBytes(name)-4))
	r = append(r, b[frames.CorrelationAt:frames.CorrelationAt+4]...)
	r = be.AppendUint32(r, 1)
	r = append(r, b[nameAt:nameAt+2+name]...)
	r = be.AppendUint32(r, 1)
	at := nameAt + 2 + name + 4
	return len(append(r, b[at:at+4]...))
}

func (s *Server) stream(c *conn, b []byte) bool {
	c.crc = crc32.Update(c.crc, frames.Castagnoli, b)
	return s.store(c, b)
}

// store writes bytes of the current batch; the last ones make the answer.
func (s *Server) store(c *conn, b []byte) bool {
	if s.writer.add(c.part, c.at, b) != nil {
		return false
	}
	c.at += int64(len(b))
	if c.left -= len(b); c.left > 0 {
		return true
	}
	if c.head == 0 {
		return c.crc == c.want
	}
	code := uint16(0)
	if c.crc != c.want {
		code = 2 // corrupt message
	}
	s.dirty = s.shared != nil
	c.out = append(c.out, c.reply[:c.head]...)
	c.out = be.AppendUint16(c.out, code)
	c.out = be.AppendUint64(c.out, uint64(c.base))
	c.out = be.AppendUint64(c.out, ^uint64(0)) // no append time
	c.out = be.AppendUint64(c.out, 0)          // log start
	c.out = be.AppendUint32(c.out, 0)          // not throttled
	return true
}
