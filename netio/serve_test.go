package netio

import (
	"net"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Requests that are small do not wait for large ones that came before them.
func TestSmallFramesGoFirst(t *testing.T) {
	const large, frames, size = 3, 24, 100 << 10
	opened, order := make(chan *Conn, large+1), make(chan int, large*(frames+1)+2)
	s, addr := serve(t, Config{Loops: 1, RecvBufferBytes: 1 << 20}, &hooks{ // room for a frame before the first is read
		opened: func(c *Conn) { opened <- c },
		frame: func(c *Conn, b []byte) {
			order <- int(b[0])
			c.NewReply().Drop()
		},
	})
	var peers []net.Conn
	var conns []*Conn
	for range large + 1 {
		peers = append(peers, dial(t, addr))
		conns = append(conns, receive(t, opened))
	}
	frame := func(i, n int) []byte {
		b := make([]byte, n)
		b[0] = byte(i)
		return appendFrame(nil, b)
	}
	for i := range large { // the loop learns who sends what
		write(t, peers[i], frame(i, size))
		receive(t, order)
	}
	write(t, peers[large], frame(large, 10))
	receive(t, order)
	free := make(chan struct{})
	release := sync.OnceFunc(func() { close(free) })
	t.Cleanup(release) // before the server's own
	s.Loops()[0].Post(taskFunc(func() { <-free }))
	for i := range large {
		go func() {
			for range frames {
				if _, err := peers[i].Write(frame(i, size)); err != nil {
					t.Error(err)
					return
				}
			}
		}()
		eventually(t, "a large frame has come", func() bool { return unread(conns[i].fd) >= size })
	}
	write(t, peers[large], frame(large, 10))
	eventually(t, "a small one has come", func() bool { return unread(conns[large].fd) > 0 })
	release()
	if first := receive(t, order); first != large {
		t.Errorf("a frame of connection %d was served before the small one", first)
	}
	for range large * frames {
		receive(t, order) // none is left behind
	}
}

// The circle of slots goes on from the last one served, whatever the order of the events.
func TestNextLarge(t *testing.T) {
	l := &Loop{}
	for _, slot := range []int32{9, 4, 0, 7} {
		l.large = append(l.large, len(l.events))
		l.events = append(l.events, unix.EpollEvent{Fd: slot})
	}
	for last, want := range map[int32]int32{0: 4, 3: 4, 4: 7, 8: 9, 9: 0, 100: 0} {
		l.lastLarge = last
		if got := l.events[l.large[l.nextLarge()]].Fd; got != want {
			t.Errorf("after slot %d comes %d, want %d", last, got, want)
		}
	}
}
