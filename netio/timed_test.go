package netio

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
)

// Timed measures what a connection costs in reads, writes and sendfile, TLS and the workers that read ahead included; nobody else pays for it, and
// nothing is measured when it is off. How long it takes is the machine's affair: only whether there is some time is looked at.
func TestTimed(t *testing.T) {
	const size = 1 << 20
	conns := make(chan *Conn, 1)
	var reading atomic.Int64
	warm := tempFile(t, pattern(1, size))
	answer := func(old bool) func(c *Conn, b []byte) {
		file := warm
		if old {
			file = coldFile(t, pattern(1, size))
		}
		return func(c *Conn, _ []byte) {
			reading.Store(c.TakeNanos()) // what follows is for the answer
			r := c.NewReply()
			r.Parts = append(r.Parts, Part{FD: int(file.Fd()), Len: size, Ref: &countRef{}, Old: old})
			r.Send()
		}
	}
	opened := func(c *Conn) { conns <- c }
	taken := func(c *Conn) (read, written int64) {
		onLoop(t, c.loop, func() { read, written = reading.Swap(0), c.TakeNanos() })
		return read, written
	}
	ask := func(peer net.Conn) {
		write(t, peer, appendFrame(nil, []byte("x")))
		if _, err := io.ReadFull(peer, make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	for name, old := range map[string]bool{"warm": false, "cold": true} {
		t.Run(name, func(t *testing.T) {
			h := &hooks{opened: opened, frame: answer(old)}
			_, plain := serve(t, Config{Loops: 1}, h)
			_, secure, trusting := serveTLS(t, Config{Loops: 1}, h, nil)
			for _, peer := range []net.Conn{dial(t, plain), dialTLS(t, secure, trusting)} {
				c := receive(t, conns)
				ask(peer)
				if r, w := taken(c); r != 0 || w != 0 {
					t.Errorf("%d and %d ns are measured unasked", r, w)
				}
				onLoop(t, c.loop, func() { c.Timed(true) })
				ask(peer)
				if r, w := taken(c); r <= 0 || w <= 0 {
					t.Errorf("%d ns for a request, %d for an answer of %d bytes", r, w, size)
				}
				onLoop(t, c.loop, func() { c.Timed(false) })
				ask(peer)
				if r, w := taken(c); r != 0 || w != 0 {
					t.Errorf("%d and %d ns are measured when it is off again", r, w)
				}
			}
		})
	}
}
