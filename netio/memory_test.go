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
