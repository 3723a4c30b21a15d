package netio

import (
	"flag"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// crowdSize is bounded by the descriptors of one process, which has both ends: kaas bench connections tries 15,000.
var crowdSize = flag.Int("crowd", 1500, "connections of TestCrowd")

// Thousands of connections that fall silent together are closed in one sweep, and as many that a lowered limit has too many at once; some in each
// round of the loop, so that others are served in between, and their memory is given back.
func TestCrowd(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	n := min(*crowdSize, int(limit.Cur/2)-200)
	t.Logf("%d connections", n)
	for name, end := range map[string]func(s *Server, live *Conn){
		"idle": func(s *Server, live *Conn) { fallSilent(s.loops[0], live) },
		"too many": func(s *Server, _ *Conn) {
			if err := s.SetLimits(Limits{MaxConns: 1, MaxConnsPerIP: -1, ConnsPerSecond: -1}); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { crowd(t, n, end) })
	}
}

func crowd(t *testing.T, n int, end func(s *Server, live *Conn)) {
	var rounds, inRound, most int64 // of the loop
	last := int64(-1)
	conns := make(chan *Conn, n+1)
	var s *Server
	s, addr := serve(t, Config{Loops: 1, IdleMax: time.Hour}, &hooks{frame: echo, opened: func(c *Conn) { conns <- c }, closed: func(c *Conn, _ error) {
		if round := c.loop.stats.rounds.Load(); round != last {
			last, inRound = round, 0
			rounds++
		}
		inRound++
		most = max(most, inRound)
	}})
	frame := appendFrame(nil, []byte("x"))
	var peers []net.Conn
	for range n {
		c := dial(t, addr)
		write(t, c, frame)
		wantFrame(t, c, []byte("x"))
		peers = append(peers, c)
		receive(t, conns)
	}
	full := heapInUse()
	peer := dial(t, addr)
	write(t, peer, frame)
	wantFrame(t, peer, []byte("x"))
	live := receive(t, conns)
	onLoop(t, live.loop, func() { live.lastActive += 1000 }) // nobody did anything later
	end(s, live)
	eventually(t, "only one is left", func() bool {
		write(t, peer, frame)
		wantFrame(t, peer, []byte("x"))
		return s.Stats().Conns == 1
	})
	onLoop(t, live.loop, func() {
		if most > closedMax || rounds < int64(n/closedMax) {
			t.Errorf("%d closed in one of %d rounds, want at most %d", most, rounds, closedMax)
		}
	})
	for _, c := range peers {
		wantClosed(t, c)
	}
	peers = nil
	if after := heapInUse(); after > full+full/10 {
		t.Errorf("%d bytes of heap with %d connections, %d without", full, n, after)
	}
}

// fallSilent makes all connections of a loop but one idle for too long, at once.
func fallSilent(l *Loop, but *Conn) {
	l.Post(taskFunc(func() {
		r := &l.idle
		for _, c := range l.conns {
			if c == nil || c == but {
				continue
			}
			r.remove(c)
			c.lastActive = l.now - r.max - 2*r.width
			r.next = r.insert(c)
		}
		l.SetTimer(&r.timer, l.now)
	}))
}
