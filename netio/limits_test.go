package netio

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The pace against its definition: never more than the rate allows since the bucket was full, and never less when asked often enough.
func TestPace(t *testing.T) {
	for _, rate := range []int{1, 7, 500, 20_000} {
		var p pace
		accepted := 0
		for now := int64(1); now < 20_000; now++ {
			for p.wait(now, rate) == 0 {
				p.take()
				accepted++
			}
			if most := rate*paceBurst + int(now*int64(rate)/1000) + 1; accepted > most {
				t.Fatalf("rate %d: %d accepted after %d ms, want at most %d", rate, accepted, now, most)
			}
		}
		if least := rate*paceBurst + rate*19; accepted < least {
			t.Errorf("rate %d: %d accepted in 20 s, want at least %d", rate, accepted, least)
		}
	}
	var p pace
	if p.wait(1, 0) == 0 {
		t.Error("rate 0 lets connections in")
	}
	for range 100 {
		p.take()
	}
	if p.wait(5, -1) != 0 || p.wait(6, 1) != 0 {
		t.Error("what was accepted before there was a rate counts")
	}
}

// Connections above the rate wait to be accepted, and are when it is raised.
func TestConnectionRate(t *testing.T) {
	for name, limits := range map[string]Limits{
		"of all":          {ConnsPerSecond: 0},
		"of the listener": {ConnsPerSecond: -1, Listeners: map[int]ListenerLimits{7: {MaxConns: -1, ConnsPerSecond: 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			limits.MaxConns, limits.MaxConnsPerIP = -1, -1
			s, addr := serve(t, Config{}, &hooks{frame: echo})
			if err := s.SetLimits(limits); err != nil {
				t.Fatal(err)
			}
			c := dial(t, addr)
			write(t, c, appendFrame(nil, []byte("x")))
			eventually(t, "accepting rests", func() bool { return s.Stats().Paced > 1 })
			if n := s.Stats().Opened; n != 0 {
				t.Fatalf("%d connections were opened", n)
			}
			if err := s.SetLimits(NoLimits()); err != nil {
				t.Fatal(err)
			}
			wantFrame(t, c, []byte("x"))
		})
	}
}

// New connections go to the loop with the fewest, so loops are even again after those of one have ended.
func TestConnectionsSpread(t *testing.T) {
	const loops, each = 3, 8
	opened := make(chan *Conn, loops*each)
	s, addr := serve(t, Config{Loops: loops}, &hooks{opened: func(c *Conn) { opened <- c }})
	open := func() (*net.TCPConn, *Conn) { return dial(t, addr), receive(t, opened) }
	byLoop := map[int][]*net.TCPConn{}
	for range loops * each {
		peer, c := open()
		byLoop[c.Loop().Index()] = append(byLoop[c.Loop().Index()], peer)
	}
	for i := range loops {
		if n := len(byLoop[i]); n != each {
			t.Errorf("loop %d has %d connections, want %d", i, n, each)
		}
	}
	for _, peer := range byLoop[1] {
		peer.Close()
	}
	eventually(t, "those of a loop are closed", func() bool { return s.Stats().Conns == (loops-1)*each })
	for i := range each {
		if _, c := open(); c.Loop().Index() != 1 {
			t.Errorf("connection %d after the close went to loop %d, want 1", i, c.Loop().Index())
		}
	}
}

// A peer that vanishes without a word is found by keep-alive. Its socket is taken away in repair mode, which sends nothing.
func TestHalfOpenPeerIsFound(t *testing.T) {
	closed := make(chan error, 1)
	options := make(chan [4]int, 1)
	_, addr := serve(t, Config{KeepAliveIdle: time.Second}, &hooks{
		opened: func(c *Conn) {
			var got [4]int
			got[0], _ = unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE)
			for i, o := range []int{unix.TCP_KEEPIDLE, unix.TCP_KEEPINTVL, unix.TCP_KEEPCNT} {
				got[i+1], _ = unix.GetsockoptInt(c.fd, unix.IPPROTO_TCP, o)
			}
			options <- got
		},
		closed: func(_ *Conn, err error) { closed <- err },
	})
	c := dial(t, addr)
	if got, want := receive(t, options), [4]int{1, 1, keepAliveInterval, keepAliveCount}; got != want {
		t.Errorf("keep-alive is set to %v, want %v", got, want)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if e := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR, 1) }); e != nil || err != nil {
		t.Skipf("no repair mode here: %v %v", e, err)
	}
	c.Close()
	if err := receive(t, closed); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.ETIMEDOUT) {
		t.Errorf("closed because of %v, want a reset or a timeout", err)
	}
}

// TestSlowLoris: peers that send their frames byte by byte, for ever, take little and keep nobody from being served; when they stop, they are
// closed as idle, and so is one among them that sends nothing.
func TestSlowLoris(t *testing.T) {
	const peers = 100
	frame := []byte("\x03\x00\x00\x00") // of 48 MiB, by its size; zeros follow
	crowd := func(addr string) (slow []*net.TCPConn) {
		for range peers {
			slow = append(slow, dial(t, addr))
		}
		return slow
	}
	s, addr := serve(t, Config{Loops: 1}, &hooks{frame: echo})
	slow, sent := crowd(addr), 50
	for i := range sent {
		for _, c := range slow {
			write(t, c, frame[min(i, len(frame)-1):][:1])
		}
		c, ok := served(t, addr)
		if !ok {
			t.Fatal("others are not served")
		}
		c.Close()
	}
	memory := 0
	onLoop(t, s.loops[0], func() {
		for _, c := range s.loops[0].conns {
			if c != nil && c.in != nil {
				memory += cap(c.in.b)
			}
		}
	})
	if memory == 0 || memory > peers*max(minBuffer, 4*sent) {
		t.Errorf("%d peers that sent %d bytes each hold %d bytes", peers, sent, memory)
	}

	s, addr = serve(t, Config{Loops: 1, IdleMax: 500 * time.Millisecond}, &hooks{frame: echo})
	slow = crowd(addr)
	silent := dial(t, addr)
	turn := 0
	eventually(t, "who is silent is closed", func() bool {
		for _, c := range slow {
			// On a busy machine a turn may come too late for some. That nobody is closed too early is for TestIdleRingAgainstModel.
			_, _ = c.Write(frame[min(turn, len(frame)-1):][:1])
		}
		turn++
		return s.Stats().IdleClosed > 0
	})
	wantClosed(t, silent)
	eventually(t, "all are closed", func() bool { return s.Stats().IdleClosed == peers+1 })
}

// Of more connections than there may be those are closed that were silent for longest, on whichever loop; never those of a protected listener. Whoever is
// left, and a limit that is raised, lets in who waits.
func TestExcessIsClosed(t *testing.T) {
	closed := make(chan error, 20)
	s, err := New(Config{Loops: 3}, &hooks{frame: echo, closed: func(_ *Conn, err error) { closed <- err }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Drain(t.Context())
	plain, err := s.Listen("127.0.0.1:0", 1)
	if err != nil {
		t.Fatal(err)
	}
	inside, err := s.Listen("127.0.0.1:0", 2)
	if err != nil {
		t.Fatal(err)
	}
	most := func(n int) {
		limit(t, s, Limits{MaxConns: n, MaxConnsPerIP: -1, ConnsPerSecond: -1, Listeners: map[int]ListenerLimits{1: {MaxConns: -1}, 2: {MaxConns: -1, Protected: true}}})
	}
	s.Start()
	var peers []net.Conn
	for range 9 {
		c, ok := served(t, plain.String())
		if !ok {
			t.Fatal("not served")
		}
		peers = append(peers, c)
	}
	onLoop(t, s.loops[0], func() {
		for _, c := range s.loops[0].conns {
			c.lastActive = 1000 - int64(c.id)
		}
		if of := s.loops[0].leastRecent(2); len(of) != 2 || of[0].id != 9 && of[0].id != 8 && of[0].id != 7 || of[0].id != of[1].id+3 {
			t.Errorf("silent for longest are %+v", of)
		}
	})
	most(9)
	for range 2 {
		if _, ok := served(t, inside.String()); !ok {
			t.Fatal("a protected listener lets nobody in")
		}
		if err := receive(t, closed); !errors.Is(err, ErrExcess) {
			t.Errorf("closed because of %v", err)
		}
	}
	eventually(t, "two were closed", func() bool { return s.Stats().Conns == 9 })
	waiting := dial(t, plain.String())
	write(t, waiting, appendFrame(nil, []byte("x")))
	eventually(t, "one waits", func() bool { return s.Stats().FullTotal == 1 })
	most(4)
	eventually(t, "a limit that is lowered is kept to", func() bool { return s.Stats().Conns == 4 })
	most(1)
	eventually(t, "all but the protected are closed", func() bool { return s.Stats().Conns == 2 && s.Stats().ExcessClosed == 9 })
	for _, c := range peers {
		wantClosed(t, c)
	}
	most(3)
	wantFrame(t, waiting, []byte("x"))
}
