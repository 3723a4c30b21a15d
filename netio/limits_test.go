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
