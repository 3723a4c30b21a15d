package netio

import (
	"sync/atomic"
	"testing"
	"time"
)

func TestDropKeepsThePlaceInOrder(t *testing.T) {
	var parked *Reply
	_, addr := serve(t, Config{}, &hooks{frame: func(c *Conn, b []byte) {
		switch b[0] {
		case 'p':
			parked = c.NewReply()
			parked.Buf = appendFrame(parked.Buf[:0], []byte("parked"))
		case 'd':
			r := c.NewReply()
			r.Buf = appendFrame(r.Buf[:0], []byte("never seen"))
			r.Drop()
		case 's':
			echo(c, b)
			parked.Send()
		default:
			echo(c, b)
		}
	}})
	c := dial(t, addr)
	for _, b := range []string{"1", "d", "p", "d", "2", "d", "s", "d", "3"} {
		write(t, c, appendFrame(nil, []byte(b)))
	}
	for _, b := range []string{"1", "parked", "2", "s", "3"} {
		wantFrame(t, c, []byte(b))
	}
}

func TestCompletingTwicePanics(t *testing.T) {
	got := make(chan any, 1)
	_, addr := serve(t, Config{}, &hooks{frame: func(c *Conn, b []byte) {
		defer func() { got <- recover() }()
		r := c.NewReply()
		r.Buf = appendFrame(r.Buf[:0], b)
		r.Send()
		r.Send()
	}})
	c := dial(t, addr)
	write(t, c, appendFrame(nil, []byte("x")))
	if p := receive(t, got); p != "BUG: a reply was completed twice" {
		t.Errorf("recovered %v", p)
	}
}

// Hold stops right after the frame, keeps what arrived, and reads nothing more.
func TestHoldAndResume(t *testing.T) {
	conns := make(chan *Conn, 1)
	frames := make(chan string, 100)
	s, addr := serve(t, Config{}, &hooks{
		opened: func(c *Conn) { conns <- c },
		frame: func(c *Conn, b []byte) {
			frames <- string(b)
			if b[0] == 'h' {
				c.Hold()
				c.Hold()
			}
		},
	})
	c := dial(t, addr)
	conn := receive(t, conns)
	var sent []byte
	for _, b := range []string{"1", "hold", "2", "hold again", "3", "tail"} {
		sent = appendFrame(sent, []byte(b))
	}
	write(t, c, sent[:len(sent)-2])
	if a, b := receive(t, frames), receive(t, frames); a != "1" || b != "hold" {
		t.Fatalf("got %q, %q", a, b)
	}
	arrived(t, s, int64(len(sent)-2))
	write(t, c, sent[len(sent)-2:])
	write(t, c, appendFrame(nil, []byte("later")))
	resume := func(times int) (delivered int) {
		onLoop(t, conn.Loop(), func() {
			before := len(frames)
			for range times {
				conn.Resume()
			}
			delivered = len(frames) - before
		})
		return delivered
	}
	resume(1)
	onLoop(t, conn.Loop(), func() {}) // a whole round went by
	if len(frames) != 0 {
		t.Fatal("delivered while one Hold was left")
	}
	if n := s.Stats().BytesIn; n != int64(len(sent)-2) {
		t.Errorf("%d bytes read, want %d: a held connection is not read", n, len(sent)-2)
	}
	if n := resume(1); n != 0 {
		t.Errorf("%d frames delivered from inside Resume", n)
	}
	if a, b := receive(t, frames), receive(t, frames); a != "2" || b != "hold again" {
		t.Fatalf("got %q, %q", a, b)
	}
	onLoop(t, conn.Loop(), func() {})
	if len(frames) != 0 {
		t.Fatal("delivered after the second hold")
	}
	resume(2)
	for _, want := range []string{"3", "tail", "later"} {
		if got := receive(t, frames); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
}

// A held connection whose peer left is noticed, unless bytes wait to be read.
func TestPeerLeavesWhileHeld(t *testing.T) {
	closed := make(chan error, 1)
	conns := make(chan *Conn, 1)
	var frames atomic.Int64
	s, addr := serve(t, Config{}, &hooks{
		opened: func(c *Conn) { conns <- c },
		frame: func(c *Conn, _ []byte) {
			if frames.Add(1) == 1 {
				c.Hold()
			}
		},
		closed: func(_ *Conn, err error) { closed <- err },
	})
	c := dial(t, addr)
	write(t, c, appendFrame(nil, []byte("1")))
	arrived(t, s, 5)
	c.Close()
	if err := receive(t, closed); err != nil {
		t.Errorf("closed because of %v, want nil", err)
	}
	receive(t, conns)

	frames.Store(0)
	c = dial(t, addr)
	write(t, c, appendFrame(nil, []byte("1")))
	arrived(t, s, 10)
	write(t, c, appendFrame(nil, []byte("2")))
	c.Close()
	conn := receive(t, conns)
	for range 3 {
		onLoop(t, conn.Loop(), func() {})
	}
	select {
	case err := <-closed:
		t.Fatalf("closed (%v) although a frame was not read yet", err)
	case <-time.After(10 * time.Millisecond):
	}
	onLoop(t, conn.Loop(), conn.Resume)
	if err := receive(t, closed); err != nil {
		t.Errorf("closed because of %v, want nil", err)
	}
	if n := frames.Load(); n != 2 {
		t.Errorf("%d frames, want 2: the last one was sent before the peer left", n)
	}
}

// CloseAfterReplies sends what is due, although requests were not read.
func TestCloseAfterReplies(t *testing.T) {
	replies := make(chan *Reply, 1)
	closed := make(chan error, 1)
	var frames atomic.Int64
	_, addr := serve(t, Config{}, &hooks{
		frame: func(c *Conn, b []byte) {
			frames.Add(1)
			echo(c, b)
			r := c.NewReply()
			r.Buf = appendFrame(r.Buf[:0], pattern(1, 300_000))
			c.CloseAfterReplies(ErrPanic)
			replies <- r
		},
		closed: func(_ *Conn, err error) { closed <- err },
	})
	c := dial(t, addr)
	for range 1000 {
		write(t, c, appendFrame(nil, pattern(2, 100)))
	}
	wantFrame(t, c, pattern(2, 100))
	receive(t, replies).Post()
	wantFrame(t, c, pattern(1, 300_000))
	wantClosed(t, c)
	if err := receive(t, closed); err != ErrPanic {
		t.Errorf("closed because of %v, want %v", err, ErrPanic)
	}
	if n := frames.Load(); n != 1 {
		t.Errorf("%d frames, want 1", n)
	}
}
