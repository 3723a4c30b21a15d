package netio

import (
	"io"
	"testing"

	"golang.org/x/sys/unix"
)

// Between two looks at its sockets a loop sends so many bytes of files and no more, however many connections have some ready at once; what
// the round has no room for is sent in the next ones.
func TestFileBytesOfOneRound(t *testing.T) {
	const conns, slices = 20, 3
	f := tempFile(t, make([]byte, turnBytes))
	opened := make(chan *Conn, conns)
	s, addr := serve(t, Config{Loops: 1, SendBufferBytes: 2 * slices * turnBytes}, &hooks{opened: func(c *Conn) { opened <- c }})
	l := s.Loops()[0]
	var served []*Conn
	for range conns {
		c := dial(t, addr)
		served = append(served, receive(t, opened))
		go func() { _, _ = io.Copy(io.Discard, c) }()
	}
	rounds := make(chan int64, conns*slices)
	onLoop(t, l, func() {
		for _, c := range served {
			r := c.NewReply()
			for range slices {
				r.Parts = append(r.Parts, Part{FD: int(f.Fd()), Len: turnBytes, Ref: refFunc(func() { rounds <- l.stats.rounds.Load() })})
			}
			r.Send()
		}
	})
	sent := map[int64]int{}
	for range conns * slices {
		n := receive(t, rounds)
		if sent[n] += turnBytes; sent[n] > roundBytes+turnBytes {
			t.Fatalf("%d bytes of files in a round, want %d and a turn at most", sent[n], roundBytes)
		}
	}
}

// What a worker has read and is gone from the page cache before it is sent is read again by a worker, not by the loop; when that has happened
// too often it is sent all the same. Either way the peer gets the right bytes.
func TestSliceThatIsGoneAgain(t *testing.T) {
	if findLookWay() != lookByStat {
		t.Skip("the other way to look has the kernel read what is missing, and a quick disk has it by the next look")
	}
	const size = 48 << 10
	content := pattern(7, size)
	for gones, wantGone := range map[int]int64{0: 1, gonesMax - 1: 1, gonesMax: 0} {
		f := coldFile(t, content)
		ref := &countRef{}
		opened := make(chan *Conn, 1)
		s, addr := serve(t, Config{Loops: 1}, &hooks{opened: func(c *Conn) { opened <- c }})
		peer := dial(t, addr)
		c := receive(t, opened)
		onLoop(t, s.Loops()[0], func() {
			c.ahead, c.lookedAt = &readAhead{conn: c, cold: true, gones: gones}, c.loop.now
			r := c.NewReply()
			r.Buf = append(r.Buf[:0], 0, 0, size>>8, 0)
			r.Parts = append(r.Parts, Part{To: 4}, Part{FD: int(f.Fd()), Len: size, Ref: ref, Old: true, warm: size})
			r.Send()
		})
		wantFrame(t, peer, content)
		if n := s.Stats().ColdGone; n != wantGone {
			t.Errorf("gone %d times before: %d looks found it gone, want %d", gones, n, wantGone)
		}
		onLoop(t, s.Loops()[0], func() { gones = c.ahead.gones })
		if gones != 0 {
			t.Errorf("%d in a row are remembered after something was sent", gones)
		}
	}
}

// A worker waits until all of a slice is in memory, with the null device and without one; a file that cannot be read ends the wait.
func TestAwait(t *testing.T) {
	const size = 3<<20 + 100
	broken, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(broken)
	for name, sink := range map[string]int{"null device": nullDevice(), "none": 0} {
		f := coldFile(t, pattern(2, size))
		k := looker{sink: sink}
		k.await(int(f.Fd()), 5000, size-5000)
		for pos := int64(5000); pos < size; pos += touchBytes {
			if n := min(touchBytes, size-int(pos)); k.readable(int(f.Fd()), pos, n) != n {
				t.Errorf("%s: not all of the %d bytes at %d can be read without waiting", name, n, pos)
			}
		}
		k.await(int(f.Fd()), size-10, 20) // beyond the end: it returns
		k.sink = broken
		k.await(int(f.Fd()), 0, size)
		k.await(-1, 0, size)
	}
	if nullDevice() <= 0 {
		t.Error("this machine has a null device")
	}
}
