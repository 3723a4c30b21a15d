package netio

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
	"testing"
)

// settled waits until loops have counted all that the server holds, and returns it.
func settledHeld(t *testing.T, s *Server) held {
	t.Helper()
	for range 3 {
		for _, l := range s.Loops() {
			onLoop(t, l, func() {})
		}
	}
	st := s.Stats()
	return held{st.HeldRequests, st.HeldReplies}
}

// 200 clients that send requests and never read an answer hold no more than the budget and what two loops do in a round; without it, it would
// be 200 times what one connection may have. Nobody is closed, one who reads is served meanwhile, and when all read, all are.
func TestBudgetOfUnreadReplies(t *testing.T) {
	const (
		clients, each = 200, 4
		size          = 256 << 10
		budget        = 16 << 20
		perConn       = 1 << 20                  // answers of a connection that may wait
		more          = 2*(perConn+size) + 2<<20 // loops in a round; buffers of readers, goroutines
	)
	before := heapInUse()
	answer := pattern(1, size)
	s, addr := serve(t, Config{Loops: 2, InflightBytes: budget, PausePendingBytes: perConn, SendBufferBytes: 16 << 10}, &hooks{frame: func(c *Conn, frame []byte) {
		r := c.NewReply()
		if r.Buf = appendFrame(r.Buf[:0], frame); len(frame) == 8 {
			r.Buf = appendFrame(r.Buf[:0], answer)
		}
		r.Send()
	}})
	for _, l := range s.Loops() {
		onLoop(t, l, func() { l.budget.stallMs = 20 })
	}
	var conns []net.Conn
	polite := dial(t, addr)
	write(t, polite, appendFrame(nil, pattern(0, 100)))
	wantFrame(t, polite, pattern(0, 100))
	for range clients {
		conn := dial(t, addr)
		conns = append(conns, conn)
		for range each {
			write(t, conn, appendFrame(nil, make([]byte, 8)))
		}
	}
	eventually(t, "the budget is used up and stops others", func() bool {
		st := s.Stats()
		return st.HeldReplies >= budget/8*6 && st.Starved > clients/4
	})
	if h := settledHeld(t, s); h.requests+h.replies > budget+more {
		t.Errorf("%d bytes are held, budget %d", h.requests+h.replies, budget)
	}
	if grown := heapInUse() - before; grown > budget+more+8<<20 {
		t.Errorf("the heap grew by %d bytes, budget %d", grown, budget)
	}
	for i := range 3 {
		write(t, polite, appendFrame(nil, pattern(i, 100)))
		wantFrame(t, polite, pattern(i, 100))
	}
	polite.Close()
	for _, conn := range conns {
		go func() { _, _ = io.Copy(io.Discard, conn) }()
	}
	eventually(t, "all is answered", func() bool { return s.Stats().BytesOut >= clients*each*(size+4) })
	eventually(t, "nothing is held", func() bool { return settledHeld(t, s) == held{} })
	if st := s.Stats(); st.Closed != 1 {
		t.Errorf("%d connections were closed", st.Closed)
	}
}

// 200 clients that never read are each paused before they are in the way of others: those never wait for the budget.
func TestUnreadRepliesStarveNobody(t *testing.T) {
	const clients, each, size, budget = 200, 256, 16 << 10, 64 << 20
	answer := pattern(1, size)
	s, addr := serve(t, Config{Loops: 2, InflightBytes: budget, PausePendingReplies: 1 << 20, PausePendingBytes: 4 << 20, SendBufferBytes: 16 << 10}, &hooks{frame: func(c *Conn, frame []byte) {
		r := c.NewReply()
		if r.Buf = appendFrame(r.Buf[:0], frame); len(frame) == 8 {
			r.Buf = appendFrame(r.Buf[:0], answer)
		}
		r.Send()
	}})
	for range clients {
		conn := dial(t, addr)
		if err := conn.SetReadBuffer(16 << 10); err != nil {
			t.Fatal(err)
		}
		for range each {
			write(t, conn, appendFrame(nil, make([]byte, 8)))
		}
	}
	eventually(t, "all are paused", func() bool { return s.Stats().Pauses >= clients })
	good := dial(t, addr)
	for i := range 1000 {
		write(t, good, appendFrame(nil, pattern(i, 1000)))
		wantFrame(t, good, pattern(i, 1000))
	}
	if st := s.Stats(); st.Starved != 0 || st.HeldReplies > budget/8*feedEighths {
		t.Errorf("%d times the budget was in the way, %d bytes are held of %d", st.Starved, st.HeldReplies, budget)
	}
}

// A budget full of pieces of requests stops nobody for ever: they are completed one after the other.
func TestBudgetOfPartialFrames(t *testing.T) {
	const clients, size, budget = 24, 256 << 10, 1 << 20
	s, addr := serve(t, Config{Loops: 1, InflightBytes: budget}, &hooks{frame: echo})
	var conns []net.Conn
	for i := range clients {
		conn := dial(t, addr)
		conns = append(conns, conn)
		write(t, conn, appendFrame(nil, pattern(i, 10)))
		wantFrame(t, conn, pattern(i, 10))
	}
	for i, conn := range conns {
		write(t, conn, binary.BigEndian.AppendUint32(nil, size))
		write(t, conn, pattern(i, size)[:size/2])
	}
	eventually(t, "the budget is used up", func() bool { return s.Stats().Starved > 0 })
	if h := settledHeld(t, s); h.requests < budget/2 || h.requests > budget+2*size {
		t.Errorf("%d bytes are held, budget %d", h.requests, budget)
	}
	done := make(chan error, clients)
	for i, conn := range conns {
		go func() {
			whole := pattern(i, size)
			if _, err := conn.Write(whole[size/2:]); err != nil {
				done <- err
				return
			}
			got := make([]byte, 4+size)
			_, err := io.ReadFull(conn, got)
			if err == nil && !bytes.Equal(got[4:], whole) {
				t.Errorf("client %d got something else", i)
			}
			done <- err
		}()
	}
	for range clients {
		if err := receive(t, done); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "nothing is held", func() bool { return settledHeld(t, s) == held{} })
}

// RequestBytes counts requests until they are answered, and not their answers.
func TestBudgetOfRequests(t *testing.T) {
	const clients, size, budget = 20, 10_000, 50_000
	var taken atomic.Int64
	replies := make(chan *Reply, clients)
	s, addr := serve(t, Config{Loops: 1, RequestBytes: budget}, &hooks{frame: func(c *Conn, frame []byte) {
		taken.Add(1)
		r := c.NewReply()
		r.Buf = appendFrame(r.Buf[:0], frame[:8])
		replies <- r
	}})
	var conns []net.Conn
	for i := range clients {
		conn := dial(t, addr)
		conns = append(conns, conn)
		write(t, conn, appendFrame(nil, pattern(i, size)))
	}
	eventually(t, "the rest waits", func() bool { return s.Stats().Starved >= clients-budget/size-1 })
	// Besides those that fit, one that has its turn.
	if h := settledHeld(t, s); h.requests < budget || taken.Load() > budget/size+1 {
		t.Errorf("%d bytes are held, %d requests", h.requests, taken.Load())
	}
	for range clients {
		receive(t, replies).Post()
	}
	for i, conn := range conns {
		wantFrame(t, conn, pattern(i, size)[:8])
	}
	eventually(t, "nothing is held", func() bool { return settledHeld(t, s) == held{} })
}

// Whoever has his turn although the budget is used up, and sends nothing, loses it to the next.
func TestBudgetTurnPasses(t *testing.T) {
	const budget, size = 1 << 20, 800 << 10 // the buffer of the frame is 7/8 of the budget
	s, addr := serve(t, Config{Loops: 1, InflightBytes: budget}, &hooks{frame: echo})
	l := s.Loops()[0]
	stallAfter := func(ms int64) { onLoop(t, l, func() { l.budget.stallMs = ms }) }
	stallAfter(20)
	full, stalled, next := dial(t, addr), dial(t, addr), dial(t, addr)
	for _, conn := range []net.Conn{full, stalled, next} {
		write(t, conn, appendFrame(nil, pattern(0, 10)))
		wantFrame(t, conn, pattern(0, 10))
	}
	write(t, full, appendFrame(nil, pattern(1, size/2))) // who sent so much gets all of the next buffer at once
	wantFrame(t, full, pattern(1, size/2))
	have := s.Stats().BytesIn
	write(t, full, append(binary.BigEndian.AppendUint32(nil, size), make([]byte, 100)...))
	arrived(t, s, have+104)
	eventually(t, "the budget is used up, and nobody has a turn", func() (is bool) {
		onLoop(t, l, func() { is = l.budget.requests == budget/8*7 && l.budget.exempt == nil })
		return is
	})
	stallAfter(1 << 40)
	write(t, stalled, binary.BigEndian.AppendUint32(nil, 1000))
	eventually(t, "the first has his turn", func() (is bool) {
		onLoop(t, l, func() {
			c := l.budget.exempt
			is = c != nil && c.in != nil && len(c.in.b) == 4
		})
		return is
	})
	stallAfter(20)
	write(t, next, appendFrame(nil, pattern(3, 1000)))
	wantFrame(t, next, pattern(3, 1000))
	write(t, full, make([]byte, size-100)) // and so does he who filled it
	wantFrame(t, full, make([]byte, size))
	write(t, stalled, pattern(4, 1000))
	wantFrame(t, stalled, pattern(4, 1000))
}

// Requests larger than the whole budget are completed, one after the other, though all stop in the middle for longer than a turn lasts.
func TestBudgetOfLargerFrames(t *testing.T) {
	const clients, size, budget = 4, 3 << 20, 1 << 20
	for loops := 1; loops <= 2; loops++ {
		s, addr := serve(t, Config{Loops: loops, InflightBytes: budget}, &hooks{frame: echo})
		for _, l := range s.Loops() {
			onLoop(t, l, func() { l.budget.stallMs = -1 }) // each turn has stalled
		}
		done := make(chan error, clients)
		for i := range clients {
			conn := dial(t, addr)
			whole := pattern(i, size)
			write(t, conn, binary.BigEndian.AppendUint32(nil, size))
			go func() {
				got := make([]byte, 4+size)
				_, err := io.ReadFull(conn, got)
				if err == nil && !bytes.Equal(got[4:], whole) {
					t.Errorf("client %d got something else", i)
				}
				done <- err
			}()
			go func() { _, _ = conn.Write(whole) }()
		}
		for range clients {
			if err := receive(t, done); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "nothing is held", func() bool { return settledHeld(t, s) == held{} })
	}
}

// Answers that are encrypted and not read are in the budget too.
func TestBudgetOverTLS(t *testing.T) {
	const clients, size, budget = 30, 200 << 10, 2 << 20
	s, addr, cfg := serveTLS(t, Config{Loops: 1, InflightBytes: budget, SendBufferBytes: 16 << 10}, &hooks{frame: func(c *Conn, _ []byte) {
		r := c.NewReply()
		r.Buf = appendFrame(r.Buf[:0], pattern(1, size))
		r.Send()
	}}, nil)
	var conns []net.Conn
	for range clients {
		conn := dialTLS(t, addr, cfg)
		conns = append(conns, conn)
		write(t, conn, appendFrame(nil, make([]byte, 8)))
	}
	eventually(t, "the budget is used up", func() bool { return s.Stats().Starved > 0 })
	if h := settledHeld(t, s); h.replies < budget*6/8 || h.replies > budget+2*size+clients*cipherOut {
		t.Errorf("%d bytes are held, budget %d", h.replies, budget)
	}
	done := make(chan error, clients)
	for _, conn := range conns {
		go func() {
			_, err := io.ReadFull(conn, make([]byte, 4+size))
			done <- err
		}()
	}
	for range clients {
		if err := receive(t, done); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "nothing is held", func() bool { return settledHeld(t, s) == held{} })
}
