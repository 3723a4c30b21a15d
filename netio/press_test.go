package netio

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A client that sends and does not read is paused: what the server holds for it
// stays bounded, and everything arrives once it reads.
func TestSlowReaderIsPaused(t *testing.T) {
	const frames, size = 1000, 5000
	const limit = 100_000
	var most atomic.Int64
	s, addr := serve(t, Config{PausePendingBytes: limit, SendBufferBytes: 64 << 10, RecvBufferBytes: 64 << 10}, &hooks{frame: func(c *Conn, b []byte) {
		echo(c, b)
		most.Store(max(most.Load(), int64(c.pendingBytes)))
	}})
	c := dial(t, addr)
	if err := errors.Join(c.SetReadBuffer(64<<10), c.SetWriteBuffer(64<<10)); err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() {
		for i := range frames {
			if _, err := c.Write(appendFrame(nil, pattern(i, size))); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	eventually(t, "a pause", func() bool { return s.Stats().Pauses > 0 })
	// The socket buffers of both sides take some; then nothing moves any more.
	last := int64(-1)
	eventually(t, "no more reading", func() bool {
		time.Sleep(20 * time.Millisecond)
		before := last
		last = s.Stats().BytesIn
		return last == before
	})
	if last >= frames*(size+4) {
		t.Fatal("all was read although nothing was taken")
	}
	for i := range frames {
		wantFrame(t, c, pattern(i, size))
	}
	if err := receive(t, sent); err != nil {
		t.Fatal(err)
	}
	if n := most.Load(); n > limit+size+4 {
		t.Errorf("%d bytes of replies were held at once, limit %d", n, limit)
	}
}

// The number of replies outstanding is bounded although one read brings thousands
// of frames.
func TestOutstandingRepliesAreBounded(t *testing.T) {
	const limit, frames = 5, 1000
	var most atomic.Int64
	var waiting []*Reply
	_, addr := serve(t, Config{PausePendingReplies: limit}, &hooks{
		frame: func(c *Conn, b []byte) {
			r := c.NewReply()
			r.Buf = appendFrame(r.Buf[:0], b)
			waiting = append(waiting, r)
			most.Store(max(most.Load(), int64(c.pending)))
		},
		roundEnd: func(*Loop) {
			for _, r := range waiting {
				r.Send()
			}
			waiting = waiting[:0]
		},
	})
	c := dial(t, addr)
	var sent []byte
	for i := range frames {
		sent = appendFrame(sent, pattern(i, 10))
	}
	go func() { _, _ = c.Write(sent) }()
	for i := range frames {
		wantFrame(t, c, pattern(i, 10))
	}
	if n := most.Load(); n != limit {
		t.Errorf("%d replies outstanding at once, want %d", n, limit)
	}
}

// File slices far above what a socket takes, to a reader of small steps.
func TestFileSlicesToSlowReader(t *testing.T) {
	content := pattern(5, 2<<20)
	f := tempFile(t, content)
	ref := &countRef{}
	conns := make(chan *Conn, 1)
	_, addr := serve(t, Config{SendBufferBytes: 32 << 10}, &hooks{
		opened: func(c *Conn) { conns <- c },
		frame: func(c *Conn, b []byte) {
			r := c.NewReply()
			r.Buf = append(append(r.Buf[:0], b...), b...)
			r.Parts = append(r.Parts, Part{To: len(b)}, Part{FD: int(f.Fd()), Len: len(content), Ref: ref},
				Part{From: len(b), To: 2 * len(b)}, Part{FD: int(f.Fd()), Pos: 1 << 20, Len: 1 << 20, Ref: ref})
			r.Send()
		},
	})
	c := dial(t, addr)
	head := pattern(9, 100_000)
	write(t, c, appendFrame(nil, head))
	want := append(append(append(bytes.Clone(head), content...), head...), content[1<<20:]...)
	got := make([]byte, len(want))
	for at, step := 0, 1; at < len(got); step = step*3%200_000 + 1 {
		n, err := io.ReadFull(c, got[at:min(at+step, len(got))])
		if err != nil {
			t.Fatal(err)
		}
		at += n
	}
	if !bytes.Equal(got, want) {
		t.Fatal("the reply differs from what was put into it")
	}
	conn := receive(t, conns)
	eventually(t, "EPOLLOUT taken off when there is nothing to send", func() (off bool) {
		onLoop(t, conn.Loop(), func() { off = conn.interest&unix.EPOLLOUT == 0 && !conn.blocked && ref.n.Load() == 2 })
		return off
	})
}

// Connections with file slices to send get 64 KiB each in a circle.
func TestTurnsAreFair(t *testing.T) {
	const conns, slices, size = 4, 4, 64 << 10
	f := tempFile(t, make([]byte, size))
	opened := make(chan *Conn, conns)
	// The buffer takes all slices of a connection, so only turns decide the order.
	s, addr := serve(t, Config{Loops: 1, SendBufferBytes: 2 * slices * size}, &hooks{opened: func(c *Conn) { opened <- c }})
	order := make(chan int, conns*slices)
	var clients []net.Conn
	var served []*Conn
	for range conns {
		clients = append(clients, dial(t, addr))
		served = append(served, receive(t, opened))
	}
	for _, c := range clients {
		go func() { _, _ = io.Copy(io.Discard, c) }()
	}
	onLoop(t, s.Loops()[0], func() {
		for i, c := range served {
			r := c.NewReply()
			for range slices {
				r.Parts = append(r.Parts, Part{FD: int(f.Fd()), Len: size, Ref: refFunc(func() { order <- i })})
			}
			r.Send()
		}
	})
	for n := range conns * slices {
		if i := receive(t, order); i != n%conns {
			t.Fatalf("slice %d was sent for connection %d, want %d", n, i, n%conns)
		}
	}
}

// A loop goes back to its sockets after turnsMax turns, however many wait.
func TestTurnsOfOneRound(t *testing.T) {
	const conns = 3 * turnsMax
	f := tempFile(t, make([]byte, turnBytes))
	opened := make(chan *Conn, conns)
	s, addr := serve(t, Config{Loops: 1, SendBufferBytes: 4 * turnBytes}, &hooks{opened: func(c *Conn) { opened <- c }})
	l := s.Loops()[0]
	var served []*Conn
	for range conns {
		c := dial(t, addr)
		served = append(served, receive(t, opened))
		go func() { _, _ = io.Copy(io.Discard, c) }()
	}
	rounds := make(chan int64, conns)
	onLoop(t, l, func() {
		for _, c := range served {
			r := c.NewReply()
			// The first slice is sent with the replies of the round, the second takes a turn.
			r.Parts = append(r.Parts, Part{FD: int(f.Fd()), Len: turnBytes, Ref: refFunc(func() {})},
				Part{FD: int(f.Fd()), Len: turnBytes, Ref: refFunc(func() { rounds <- l.stats.rounds.Load() })})
			r.Send()
		}
	})
	turns := map[int64]int{}
	for range conns {
		n := receive(t, rounds)
		if turns[n]++; turns[n] > turnsMax {
			t.Fatalf("more than %d turns in a round", turnsMax)
		}
	}
}

type refFunc func()

func (f refFunc) Release() { f() }

// One connection that wants a great deal does not keep others waiting.
func TestBigTransferLeavesRoomForOthers(t *testing.T) {
	const slices = 4096 // 256 MiB in all
	f := tempFile(t, make([]byte, 64<<10))
	var sent atomic.Int64
	_, addr := serve(t, Config{Loops: 1}, &hooks{frame: func(c *Conn, b []byte) {
		if b[0] != 'b' {
			echo(c, b)
			return
		}
		r := c.NewReply()
		for range slices {
			r.Parts = append(r.Parts, Part{FD: int(f.Fd()), Len: 64 << 10, Ref: refFunc(func() { sent.Add(1) })})
		}
		r.Send()
	}})
	big, small := dial(t, addr), dial(t, addr)
	write(t, big, appendFrame(nil, []byte("big")))
	if _, err := io.ReadFull(big, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		write(t, small, appendFrame(nil, []byte("small")))
		wantFrame(t, small, []byte("small"))
	}()
	// The big one always has room to send until the small one was answered.
	buf := make([]byte, 1<<20)
	for done := false; !done; {
		select {
		case <-answered:
			done = true
		default:
			if _, err := io.ReadFull(big, buf); err != nil {
				t.Fatalf("the big transfer ended before the small answer came: %v", err)
			}
			if sent.Load() == slices {
				t.Fatal("all of the big transfer was sent before the small answer")
			}
		}
	}
}
