package netio

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// TLS tells what was negotiated with the peer, its certificates included; false on a plaintext connection. On the loop, from
// Handler.Opened on.
func (c *Conn) TLS() (tls.ConnectionState, bool) {
	if c.sec == nil {
		return tls.ConnectionState{}, false
	}
	return c.sec.conn.ConnectionState(), true
}

// makeCipher makes the scratch memory of TLS, when the loop gets its first such connection.
func (l *Loop) makeCipher() {
	if l.cipher == nil {
		l.cipher = make([]byte, cipherTurn)
		l.plain = make([]byte, cipherTurn)
	}
}

// decrypt reads once from the socket, and puts all that can be decrypted into own and then room. What crypto/tls keeps is less than a
// record, so room, which is never less than cipherTurn/2 + recordMax, takes it all and no state is left but that. EAGAIN: no bytes yet.
// The stream's end is in secure.err, to be looked at after the bytes.
func (l *Loop) decrypt(c *Conn, own, room []byte) (total int, e unix.Errno) {
	t := c.sec
	received := 0
	if !t.fresh {
		n, e := recv(c.fd, l.cipher[:min(cipherTurn, len(room)-recordMax)])
		if e != 0 || n == 0 {
			return n, e
		}
		t.in, received = l.cipher[:n], n
	}
	t.fresh = false
	for {
		into := &own
		if len(own) == 0 {
			into = &room
		}
		if len(*into) == 0 {
			panic(fmt.Sprintf("BUG: %d bytes of ciphertext became more than %d", received, total))
		}
		n, err := t.conn.Read(*into)
		*into = (*into)[n:]
		total += n
		if err != nil {
			if !errors.Is(err, errNoBytes) {
				t.err = err
			}
			break
		}
	}
	t.in = nil
	if t.out != nil {
		l.markDirty(c) // an alert, or the answer to a key update
	}
	c.lastActive = l.now
	l.bytesIn += int64(received - total) // the caller adds total
	if total == 0 {
		return 0, unix.EAGAIN
	}
	return total, 0
}

// endStream closes a connection whose peer has ended the TLS stream, or broken it, once all frames of it were delivered.
func (t *secure) endStream() {
	switch c := t.c; {
	case t.err == nil || c.closed || c.kept && t.err == io.EOF:
	case t.err == io.EOF && c.in != nil:
		c.Close(ErrHalfFrame)
	case t.err == io.EOF:
		c.Close(nil)
	default:
		c.Close(fmt.Errorf("%w: %w", ErrTLS, t.err))
	}
}

// writeSecure is write for TLS: what is encrypted is sent; when it has left, up to cipherTurn bytes of replies are encrypted together, so
// that small ones share a record. Everything counts for the turn, for everything costs time.
func (l *Loop) writeSecure(c *Conn) error {
	t := c.sec
	for budget := cipherTurn; ; {
		if t.out != nil {
			if done, err := l.sendCipher(c); !done || err != nil {
				return err
			}
		}
		if !t.direct || t.shut || c.waiting() {
			return nil
		}
		if budget <= 0 {
			if c.advance(0); c.head != nil && c.head.state == replyReady {
				l.queueTurn(c)
			}
			return nil
		}
		n, err := l.fill(c, l.plain[:budget])
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		budget -= n
		t.out = l.pools.get(cipherOut)
		if _, err := t.conn.Write(l.plain[:n]); err != nil {
			return fmt.Errorf("%w: %w", ErrTLS, err)
		}
	}
}

// account brings the budget's count of what is encrypted and not sent up to date.
func (t *secure) account() {
	size := 0
	if t.out != nil {
		size = cap(t.out.b)
	}
	t.c.loop.budget.replies += int64(size - t.outHeld)
	t.outHeld = size
}

// sendCipher sends what is encrypted; false: the socket is full.
func (l *Loop) sendCipher(c *Conn) (done bool, err error) {
	t := c.sec
	b := t.out.bytes()
	l.iov[0].Base = &b[0]
	l.iov[0].SetLen(len(b))
	w, e := send(c.fd, l.iov[:1], false, &l.hdr)
	clear(l.iov[:1])
	if w, e = l.sent(c, w, e); e != 0 {
		return false, e
	}
	if t.out.at += w; w < len(b) {
		l.block(c)
		return false, nil
	}
	l.pools.put(t.out)
	t.out = nil
	return true, nil
}

// fill copies what is ready at the front of c's replies, memory and files, into b and counts it as sent.
func (l *Loop) fill(c *Conn, b []byte) (n int, err error) {
	for n < len(b) {
		c.advance(0)
		r := c.head
		if r == nil || r.state != replyReady {
			return n, nil
		}
		p := &r.Parts[r.part]
		if p.Ref == nil {
			w := copy(b[n:], r.Buf[p.From+r.off:p.To])
			n += w
			c.advance(w)
			continue
		}
		want := min(p.Len, len(b)-n)
		if p.Old {
			if want = l.sendable(c, p, want); want == 0 {
				return n, nil
			}
		}
		w, err := unix.Pread(p.FD, b[n:n+want], p.Pos)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return 0, err
		case w == 0:
			return 0, ErrShortFile
		}
		n += w
		l.fileLeft -= w
		p.Pos += int64(w)
		p.Len -= w
	}
	c.advance(0)
	return n, nil
}
