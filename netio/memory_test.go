//go:build !race

package netio

import (
	"testing"

	"golang.org/x/sys/unix"
)

// The race detector makes pools forget at random, so these run without it.

// exchange sends req and reads n bytes of answer, without allocating.
func exchange(t testing.TB, fd int, req, answer []byte) {
	for len(req) > 0 {
		n, err := unix.Write(fd, req)
		if err != nil {
			t.Fatal(err)
		}
		req = req[n:]
	}
	for len(answer) > 0 {
		n, err := unix.Read(fd, answer)
		if err != nil || n == 0 {
			t.Fatalf("read %d: %v", n, err)
		}
		answer = answer[n:]
	}
}

// Frames and replies allocate nothing once the pools are warm.
func TestNoAllocations(t *testing.T) {
	f := tempFile(t, pattern(1, 1<<20))
	ref := &countRef{}
	replies := make(chan *Reply, 64)
	go func() {
		for r := range replies {
			r.Post()
		}
	}()
	defer close(replies)
	var timer Timer
	timer.Fn = func() {}
	// Large frames get a short answer, as Produce does.
	answerOf := func(b []byte) []byte { return b[:min(len(b), 20_000)] }
	handlers := map[string]func(c *Conn, b []byte){
		"echo": func(c *Conn, b []byte) { echo(c, answerOf(b)) },
		"posted": func(c *Conn, b []byte) {
			r := c.NewReply()
			r.Buf = appendFrame(r.Buf[:0], answerOf(b))
			replies <- r
		},
		"file": func(c *Conn, b []byte) {
			c.Loop().SetTimer(&timer, c.Loop().Now()+1000)
			b = answerOf(b)
			r := c.NewReply()
			r.Buf = appendFrame(r.Buf[:0], b[:len(b)-100])
			r.Parts = append(r.Parts, Part{To: len(r.Buf)}, Part{FD: int(f.Fd()), Len: 100, Ref: ref})
			r.Send()
			c.NewReply().Drop()
		},
		"held": func(c *Conn, b []byte) {
			c.Hold()
			echo(c, answerOf(b))
			c.Loop().Post(resume{c})
		},
	}
	for name, h := range handlers {
		for _, p := range []struct{ size, pipelined int }{{1 << 10, 1}, {1 << 10, 16}, {20_000, 4}, {1<<20 + 100, 1}} {
			_, addr := serve(t, Config{Loops: 1}, &hooks{frame: h})
			fd, sa := rawSocket(t, addr)
			if err := unix.Connect(fd, sa); err != nil {
				t.Fatal(err)
			}
			var req []byte
			for range p.pipelined {
				req = appendFrame(req, pattern(2, p.size))
			}
			answer := make([]byte, p.pipelined*(4+min(p.size, 20_000)))
			for range 20 {
				exchange(t, fd, req, answer)
			}
			if n := testing.AllocsPerRun(100, func() { exchange(t, fd, req, answer) }); n >= 1 {
				t.Errorf("%s: %v allocations for %d frames of %d bytes", name, n, p.pipelined, p.size)
			}
		}
	}
}

// Five thousand idle connections that have sent and received frames.
func TestIdleConnectionMemory(t *testing.T) {
	const conns = 5000
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur < 2*conns+200 {
		t.Skipf("needs %d descriptors, the limit is %d", 2*conns+200, limit.Cur)
	}
	s, addr := serve(t, Config{Loops: 1, IdleMax: 1 << 40}, &hooks{frame: echo})
	req := appendFrame(nil, pattern(1, 3000))
	answer := make([]byte, len(req))
	_, sa := rawSocket(t, addr)
	fds := make([]int, 0, conns)
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	open := func(n int) {
		for range n {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err == nil {
				err = unix.Connect(fd, sa)
			}
			if err != nil {
				t.Fatal(err)
			}
			fds = append(fds, fd)
		}
		for _, fd := range fds[len(fds)-n:] {
			exchange(t, fd, req, answer)
		}
	}
	open(100)
	before := heapInUse()
	open(conns - 100)
	grown := (heapInUse() - before) / (conns - 100)
	t.Logf("heap per idle connection: %d bytes", grown)
	if grown > 1024 {
		t.Errorf("an idle connection costs %d bytes of heap, want at most 1024", grown)
	}
	if n := s.Stats().Conns; n != conns {
		t.Errorf("%d connections are open, want %d", n, conns)
	}
}

// Over TLS nothing is allocated but what crypto/tls does: for each record that it reads two readers of a few words, here on both sides.
func TestFewAllocationsOverTLS(t *testing.T) {
	f := tempFile(t, pattern(1, 1<<20))
	ref := &countRef{}
	_, addr, client := serveTLS(t, Config{Loops: 1}, &hooks{frame: func(c *Conn, b []byte) {
		r := c.NewReply()
		r.Buf = appendFrame(r.Buf[:0], b[:16])
		r.Buf[2] = 0x4e // 20,000 bytes more or less: the size is not looked at
		r.Parts = append(r.Parts, Part{To: len(r.Buf)}, Part{FD: int(f.Fd()), Len: 20_000, Ref: ref})
		r.Send()
	}}, nil)
	for _, size := range []int{100, 20_000, 300_000} {
		c := dialTLS(t, addr, client)
		req, answer := appendFrame(nil, pattern(2, size)), make([]byte, 20+20_000)
		exchange := func() {
			if _, err := c.Write(req); err != nil {
				t.Fatal(err)
			}
			for at := 0; at < len(answer); {
				n, err := c.Read(answer[at:])
				if err != nil {
					t.Fatal(err)
				}
				at += n
			}
		}
		for range 50 {
			exchange()
		}
		records := float64(size/(16<<10) + 1 + 2)
		if n := testing.AllocsPerRun(100, exchange); n > 3*records {
			t.Errorf("%v allocations for a frame of %d bytes", n, size)
		}
	}
}

// Fifteen thousand connections on two loops, when the process may have that many descriptors: spread evenly, all served; one more than the limit waits until they go, and when all are gone nothing is left.
func TestManyConnections(t *testing.T) {
	conns := 15_000
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if most := int(limit.Cur)/2 - 200; most < conns || testing.Short() {
		conns = min(most, 2000)
		t.Logf("only %d connections", conns)
	}
	s, addr := serve(t, Config{Loops: 2, Backlog: 4096}, &hooks{frame: echo})
	limits := NoLimits()
	limits.MaxConns = conns
	if err := s.SetLimits(limits); err != nil {
		t.Fatal(err)
	}
	_, sa := rawSocket(t, addr)
	req := appendFrame(nil, pattern(1, 100))
	answer := make([]byte, len(req))
	fds := make([]int, 0, conns)
	for range conns {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Connect(fd, sa)
		}
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	for range 2 {
		for _, fd := range fds {
			exchange(t, fd, req, answer)
		}
	}
	late := dial(t, addr)
	write(t, late, req)
	eventually(t, "one more than the limit waits", func() bool { return s.Stats().FullTotal == 1 })
	for _, l := range s.Loops() {
		onLoop(t, l, func() {
			if l.Conns() != conns/2 {
				t.Errorf("loop %d has %d connections of %d", l.Index(), l.Conns(), conns)
			}
		})
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	wantFrame(t, late, req[4:])
	late.Close()
	eventually(t, "all are gone", func() bool { return s.Stats().Conns == 0 })
	s.limits.mu.Lock()
	defer s.limits.mu.Unlock()
	if n := len(s.limits.counts); n != 0 {
		t.Errorf("%d addresses are still counted", n)
	}
}
