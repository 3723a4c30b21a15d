package netio

import (
	"bytes"
	"sync"
	"testing"
	"time"
)

// collected keeps what OnDone was told.
type collected struct {
	mu   sync.Mutex
	done []Done
}

func (c *collected) take(_ *Loop, done []Done) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done = append(c.done, done...)
}

// wait returns what was told, once there are n.
func (c *collected) wait(t *testing.T, n int) []Done {
	t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(time.Millisecond) {
		c.mu.Lock()
		got := append([]Done(nil), c.done...)
		c.mu.Unlock()
		if len(got) >= n {
			return got
		}
		if time.Now().After(end) {
			t.Fatalf("%d replies were told about, want %d", len(got), n)
		}
	}
}

// Replies are told about once each, in order, with the bytes of both ways; untagged ones are not.
func TestDone(t *testing.T) {
	var got collected
	h := &hooks{frame: func(c *Conn, frame []byte) {
		r := c.NewReply()
		r.Tag = int32(frame[0])
		switch frame[0] {
		case 2:
			r.Drop()
		case 3:
			r.Buf = appendFrame(r.Buf[:0], frame)
			time.AfterFunc(20*time.Millisecond, r.Post)
		default:
			r.Buf = appendFrame(r.Buf[:0], frame)
			r.Send()
		}
	}}
	_, addr := serve(t, Config{OnDone: got.take}, h)
	c := dial(t, addr)
	long := bytes.Repeat([]byte{4}, 100_000)
	for _, frame := range [][]byte{{1, 1}, {2}, {0}, {3, 3, 3}, long} {
		write(t, c, appendFrame(nil, frame))
	}
	for _, want := range [][]byte{{1, 1}, {0}, {3, 3, 3}, long} {
		wantFrame(t, c, want)
	}
	done := got.wait(t, 4)
	want := []Done{{Tag: 1, Frame: 2, Bytes: 6}, {Tag: 2, Frame: 1}, {Tag: 3, Frame: 3, Bytes: 7}, {Tag: 4, Frame: 100_000, Bytes: 100_004}}
	if len(done) != len(want) {
		t.Fatalf("told about %d replies, want %d: %+v", len(done), len(want), done)
	}
	for i := range want {
		nanos := done[i].Nanos
		if nanos <= 0 || want[i].Tag == 3 && nanos < int64(20*time.Millisecond) {
			t.Errorf("reply %d took %d ns", i, nanos)
		}
		done[i].Nanos = 0
		if done[i] != want[i] {
			t.Errorf("reply %d: %+v, want %+v", i, done[i], want[i])
		}
	}
}

// What is told about a reply that is made of a file is its whole size.
func TestDoneCountsFiles(t *testing.T) {
	var got collected
	file := tempFile(t, bytes.Repeat([]byte("x"), 300_000))
	h := &hooks{frame: func(c *Conn, frame []byte) {
		r := c.NewReply()
		r.Tag = 9
		r.Buf = append(r.Buf[:0], 0, 4, 0x93, 0xe0) // 300,000
		r.Parts = append(r.Parts, Part{To: 4}, Part{FD: int(file.Fd()), Len: 300_000, Ref: noRef{}})
		r.Send()
	}}
	_, addr := serve(t, Config{OnDone: got.take}, h)
	c := dial(t, addr)
	write(t, c, appendFrame(nil, []byte("?")))
	if n := len(readFrame(t, c)); n != 300_000 {
		t.Fatalf("a reply of %d bytes", n)
	}
	if d := got.wait(t, 1)[0]; d.Bytes != 300_004 || d.Tag != 9 {
		t.Errorf("told %+v, want 300004 bytes of tag 9", d)
	}
}

type noRef struct{}

func (noRef) Release() {}

// A reply that never leaves, because its connection is gone, is not told about.
func TestDoneIsSilentAboutClosedConnections(t *testing.T) {
	var got collected
	pending := make(chan *Reply, 1)
	closed := make(chan struct{})
	h := &hooks{
		frame: func(c *Conn, frame []byte) {
			r := c.NewReply()
			r.Tag = int32(frame[0])
			r.Buf = appendFrame(r.Buf[:0], frame)
			if frame[0] == 1 {
				pending <- r
				return
			}
			r.Send()
		},
		closed: func(c *Conn, _ error) {
			select {
			case r := <-pending:
				r.Send()
				close(closed)
			default:
			}
		},
	}
	_, addr := serve(t, Config{Loops: 1, OnDone: got.take}, h)
	gone, other := dial(t, addr), dial(t, addr)
	write(t, gone, appendFrame(nil, []byte{1}))
	for len(pending) == 0 {
		time.Sleep(time.Millisecond)
	}
	gone.Close()
	<-closed
	write(t, other, appendFrame(nil, []byte{2}))
	if done := got.wait(t, 1); len(done) != 1 || done[0].Tag != 2 {
		t.Errorf("told %+v, want the one of tag 2", done)
	}
}
