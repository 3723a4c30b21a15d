package netio

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// arrived waits until the server has read n bytes in all.
func arrived(t testing.TB, s *Server, n int64) {
	t.Helper()
	eventually(t, "bytes read by the server", func() bool { return s.Stats().BytesIn >= n })
}

func TestFramesSplitAtEachByte(t *testing.T) {
	s, addr := serve(t, Config{}, &hooks{frame: echo})
	bodies := [][]byte{pattern(1, 1), pattern(2, 9), pattern(3, 5)}
	var stream []byte
	for _, b := range bodies {
		stream = appendFrame(stream, b)
	}
	c := dial(t, addr)
	total := int64(0)
	for cut := 1; cut < len(stream); cut++ {
		write(t, c, stream[:cut])
		arrived(t, s, total+int64(cut))
		write(t, c, stream[cut:])
		for _, b := range bodies {
			wantFrame(t, c, b)
		}
		total += int64(len(stream))
	}
	for i := range stream {
		write(t, c, stream[i:i+1])
		arrived(t, s, total+int64(i)+1)
	}
	for _, b := range bodies {
		wantFrame(t, c, b)
	}
}

func TestLargeFrames(t *testing.T) {
	_, addr := serve(t, Config{ReadBufferBytes: 64 << 10}, &hooks{frame: echo})
	c := dial(t, addr)
	sizes := []int{1 << 20, 1<<20 + 100, 3 << 20, 1, 64<<10 - 4, 64 << 10, 64<<10 + 1, 200, 1 << 20, 1 << 20, 5, 700_000}
	go func() {
		for i, n := range sizes {
			_, _ = c.Write(appendFrame(nil, pattern(i, n)))
		}
	}()
	for i, n := range sizes {
		wantFrame(t, c, pattern(i, n))
	}
}

// A buffer is at most twice what the peer has sent, in this frame or as its last.
func TestBufferFollowsBytesThatArrived(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		last       int32
		have, want int
		capacity   int
	}{
		{0, 4, 100 * mib, minBuffer},
		{0, 10_000, 100 * mib, 20_000},
		{0, 10_000, 12_000, 12_000},
		{0, 10_000, 500, 10_000}, // several frames were kept
		{mib, 16 << 10, mib + 4, mib + 4},
		{mib, 16 << 10, 100 * mib, 2*mib + 4},
		{mib, 4 * mib, 100 * mib, 8 * mib},
		{5, 3, 4, minBuffer},
	} {
		// minBuffer only rounds up what get rounds up anyway.
		got := (&Conn{lastFrame: c.last}).capacity(c.have, c.want)
		if _, size := classOf(got); got != c.capacity && size != c.capacity {
			t.Errorf("last %d, have %d of %d: capacity %d, want %d", c.last, c.have, c.want, got, c.capacity)
		}
	}
}

func TestBufferClasses(t *testing.T) {
	last, lastSize := 0, minBuffer
	for n := 1; n < 1<<31-1-n/7; n += 1 + n/7 {
		index, size := classOf(n)
		if size < n || n > minBuffer && size > n+n/4+1 {
			t.Fatalf("%d bytes get %d", n, size)
		}
		if index < last || index > last+1 || (index == last) != (size == lastSize) {
			t.Fatalf("%d bytes: class %d after class %d, size %d after %d", n, index, last, size, lastSize)
		}
		if again, same := classOf(size); again != index || same != size {
			t.Fatalf("class %d of size %d becomes class %d of size %d", index, size, again, same)
		}
		last, lastSize = index, size
	}
	var p bufferPools
	if n := len(p) - 1; last > n {
		t.Fatalf("class %d is beyond the table", last)
	}
	if b := p.get(600); cap(b.b) != 640 || len(b.b) != 0 {
		t.Fatalf("buffer of %d bytes in %d", len(b.b), cap(b.b))
	}
}

// Frames that may not be: closed before anything is allocated for them.
func TestRefusedSizes(t *testing.T) {
	closed := make(chan error, 1)
	s, addr := serve(t, Config{MaxFrameBytes: 1000}, &hooks{frame: echo, closed: func(_ *Conn, err error) { closed <- err }})
	sized := func(n uint32) []byte { return append(binary.BigEndian.AppendUint32(nil, n), "body"...) }
	refused := map[string][]byte{
		"zero": sized(0), "minus one": sized(0xffffffff), "least": sized(0x80000000), "most": sized(0x7fffffff),
		"one over": sized(1001), "TLS hello": []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
		"HTTP": []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "size alone": sized(0x7fffffff)[:4],
		"zero alone": sized(0)[:4],
	}
	for name, b := range refused {
		for _, before := range []int{0, 1000} {
			c := dial(t, addr)
			if before > 0 {
				write(t, c, appendFrame(nil, pattern(1, before)))
				wantFrame(t, c, pattern(1, before))
			}
			write(t, c, b)
			wantClosed(t, c)
			if err := receive(t, closed); err != ErrFrameSize {
				t.Errorf("%s: closed because of %v, want %v", name, err, ErrFrameSize)
			}
		}
	}
	if n := s.Stats().BadFrames; n != int64(2*len(refused)) {
		t.Errorf("%d bad frames counted, want %d", n, 2*len(refused))
	}
	// In pieces: the size is judged as soon as its last byte is there.
	c := dial(t, addr)
	have := s.Stats().BytesIn
	write(t, c, []byte{0x7f, 0xff})
	arrived(t, s, have+2)
	write(t, c, []byte{0xff, 0xff})
	wantClosed(t, c)
	if err := receive(t, closed); err != ErrFrameSize {
		t.Errorf("split size: closed because of %v, want %v", err, ErrFrameSize)
	}
}

// Peers that declare 100 MiB and send little cost little.
func TestDeclaredSizeCostsNothing(t *testing.T) {
	s, addr := serve(t, Config{}, &hooks{frame: echo})
	before := heapInUse()
	const peers = 100
	for range peers {
		c := dial(t, addr)
		write(t, c, append(binary.BigEndian.AppendUint32(nil, 100<<20), make([]byte, 1000)...))
	}
	arrived(t, s, peers*1004)
	if grown := heapInUse() - before; grown > 2<<20 {
		t.Errorf("heap grew by %d bytes for %d peers that sent 1004 bytes each", grown, peers)
	}
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}

func TestHalfFrameThenClose(t *testing.T) {
	closed := make(chan error, 1)
	s, addr := serve(t, Config{}, &hooks{frame: echo, closed: func(_ *Conn, err error) { closed <- err }})
	for _, c := range []struct {
		sent []byte
		want error
	}{
		{nil, nil},
		{[]byte{0}, ErrHalfFrame},
		{[]byte{0, 0, 0, 9}, ErrHalfFrame},
		{[]byte{0, 0, 0, 9, 1, 2, 3}, ErrHalfFrame},
	} {
		have := s.Stats().BytesIn
		conn := dial(t, addr)
		write(t, conn, c.sent)
		arrived(t, s, have+int64(len(c.sent)))
		conn.Close()
		if err := receive(t, closed); err != c.want {
			t.Errorf("after %d bytes closed because of %v, want %v", len(c.sent), err, c.want)
		}
	}
}

// A client that closes its sending side still gets what was answered at once.
func TestHalfCloseGetsAnswer(t *testing.T) {
	_, addr := serve(t, Config{}, &hooks{frame: echo})
	c := dial(t, addr)
	write(t, c, appendFrame(nil, []byte("last words")))
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	wantFrame(t, c, []byte("last words"))
	wantClosed(t, c)
}

// Frame bytes are untouched until RoundEnd returns, whatever else is read.
func TestFrameBytesLiveUntilRoundEnd(t *testing.T) {
	type pending struct {
		c    *Conn
		b    []byte
		copy []byte
	}
	var round []pending
	var torn atomic.Int64
	s, addr := serve(t, Config{Loops: 1, ReadBufferBytes: 64 << 10}, &hooks{
		frame: func(c *Conn, b []byte) { round = append(round, pending{c, b, bytes.Clone(b)}) },
		roundEnd: func(*Loop) {
			for _, p := range round {
				if !bytes.Equal(p.b, p.copy) {
					torn.Add(1)
				}
				echo(p.c, p.b)
			}
			round = round[:0]
		},
	})
	clients := make([]*net.TCPConn, 8)
	for i := range clients {
		clients[i] = dial(t, addr)
		go func() {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			for n := range 100 {
				_, _ = clients[i].Write(appendFrame(nil, pattern(n, 1+rng.IntN(40_000))))
			}
		}()
	}
	for i, c := range clients {
		rng := rand.New(rand.NewPCG(1, uint64(i)))
		for n := range 100 {
			wantFrame(t, c, pattern(n, 1+rng.IntN(40_000)))
		}
	}
	if n := torn.Load(); n != 0 {
		t.Errorf("%d frames changed before RoundEnd", n)
	}
	if n := s.Stats().Frames; n != int64(100*len(clients)) {
		t.Errorf("%d frames, want %d", n, 100*len(clients))
	}
}

// Random chunks, sizes, holds, drops and orders of completion against the one
// rule: what comes back is what was sent, in order.
func TestRandomTraffic(t *testing.T) {
	type state struct {
		rng   *rand.Rand
		queue chan func()
	}
	_, addr := serve(t, Config{Loops: 2, ReadBufferBytes: 64 << 10, PausePendingReplies: 7, PausePendingBytes: 200_000}, &hooks{
		opened: func(c *Conn) {
			st := &state{rand.New(rand.NewPCG(2, c.ID())), make(chan func(), 64)}
			for range 3 {
				go func() {
					for f := range st.queue {
						f()
					}
				}()
			}
			c.Data = st
		},
		closed: func(c *Conn, _ error) { close(c.Data.(*state).queue) },
		frame: func(c *Conn, b []byte) {
			st := c.Data.(*state)
			r := c.NewReply()
			r.Buf = appendFrame(r.Buf[:0], b)
			switch n := st.rng.IntN(8); {
			case b[0] == 0 && n < 4:
				r.Drop()
			case b[0] == 0:
				st.queue <- r.DropPost
			case n < 3:
				r.Send()
			case n < 4:
				c.Hold()
				st.queue <- func() {
					r.Post()
					c.Loop().Post(taskFunc(func() {
						if !c.Closed() {
							c.Resume()
						}
					}))
				}
			default:
				st.queue <- r.Post
			}
		},
	})
	clients := make([]*net.TCPConn, 6)
	frameOf := func(rng *rand.Rand, i int) []byte {
		b := pattern(i, 1+rng.IntN(1<<rng.IntN(18)))
		b[0] = byte(rng.IntN(4)) // 0: no answer
		return b
	}
	const frames = 400
	for i := range clients {
		clients[i] = dial(t, addr)
		go randomSender(clients[i], uint64(i), frames, frameOf)
	}
	for i, c := range clients {
		rng := rand.New(rand.NewPCG(3, uint64(i)))
		for n := range frames {
			if b := frameOf(rng, n); b[0] != 0 {
				wantFrame(t, c, b)
			}
		}
	}
}

// randomSender writes the frames of seed in chunks that respect no boundary.
func randomSender(w io.Writer, seed uint64, frames int, frameOf func(*rand.Rand, int) []byte) {
	rng := rand.New(rand.NewPCG(3, seed))
	chunks := rand.New(rand.NewPCG(4, seed))
	var out []byte
	for n := range frames {
		out = appendFrame(out, frameOf(rng, n))
		for len(out) > 0 && (n == frames-1 || chunks.IntN(3) > 0) {
			m := min(len(out), 1+chunks.IntN(1<<chunks.IntN(19)))
			if _, err := w.Write(out[:m]); err != nil {
				return
			}
			out = out[m:]
		}
	}
}

// FuzzFrames cuts a stream of any bytes into any reads and compares what is
// delivered with a plain walk over the stream.
func FuzzFrames(f *testing.F) {
	f.Add(appendFrame(appendFrame(nil, []byte("one")), []byte("two")), []byte{1, 2, 3})
	f.Add(append(appendFrame(nil, pattern(1, 250)), 0, 0, 1), []byte{255, 7})
	f.Add([]byte("\x00\x00\x00\x00GET / HTTP/1.1\r\n"), []byte{4})
	f.Add([]byte("\x16\x03\x01\x02\x00\x01"), []byte{1, 1, 1, 1})
	f.Fuzz(func(t *testing.T, stream, cuts []byte) {
		const limit = 300
		if len(stream) > 4000 {
			return
		}
		var want [][]byte
		bad := false
		for rest := stream; len(rest) >= 4 && !bad; {
			size := int32(binary.BigEndian.Uint32(rest))
			if bad = size <= 0 || size > limit; bad || len(rest)-4 < int(size) {
				break
			}
			want = append(want, rest[4:4+size])
			rest = rest[4+size:]
		}
		var got [][]byte
		s, err := New(Config{Loops: 1, MaxFrameBytes: limit}, &hooks{frame: func(_ *Conn, b []byte) { got = append(got, bytes.Clone(b)) }})
		if err != nil {
			t.Fatal(err)
		}
		l := s.loops[0]
		defer l.end()
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(pair[1])
		c := &Conn{loop: l, ln: new(listener), fd: pair[0], id: 1}
		s.conns.Add(1)
		l.adopt(c)
		defer c.Close(nil)
		sent := int64(0)
		for i := 0; len(stream) > 0 && !c.closed; i++ {
			n := len(stream)
			if i < len(cuts) {
				n = min(n, 1+int(cuts[i]))
			}
			if _, err := unix.Write(pair[1], stream[:n]); err != nil {
				t.Fatal(err)
			}
			stream = stream[n:]
			sent += int64(n)
			for !c.closed && l.stats.bytesIn.Load() < sent {
				l.round(l.wait())
			}
		}
		if c.closed != bad || bad && c.closeErr != ErrFrameSize {
			t.Fatalf("closed: %v (%v), want %v", c.closed, c.closeErr, bad)
		}
		if !slices.EqualFunc(got, want, bytes.Equal) {
			t.Fatalf("delivered %q, want %q", got, want)
		}
		if c.in != nil && cap(c.in.b) > 2*minBuffer {
			t.Fatalf("%d bytes of memory for a frame of at most %d", cap(c.in.b), limit)
		}
	})
}

// Large frames on several connections, and what follows them: the kernel is asked to wait for the rest of a large frame, never for a
// small one, and a peer that sends the rest by the byte, or leaves in the middle, is served or let go all the same.
func TestLargeFramesWaitForTheirRest(t *testing.T) {
	var closed atomic.Int32
	_, addr := serve(t, Config{}, &hooks{frame: echo, closed: func(*Conn, error) { closed.Add(1) }})
	big := pattern(1, 300<<10)
	var peers []*net.TCPConn
	for range 3 {
		c := dial(t, addr)
		peers = append(peers, c)
		write(t, c, appendFrame(nil, big))
		wantFrame(t, c, big)
	}
	frame := appendFrame(nil, big)
	for i, c := range peers { // a large frame stands still in the middle
		write(t, c, frame[:len(frame)/2+i])
	}
	write(t, peers[0], frame[len(frame)/2:len(frame)-3])
	for _, b := range frame[len(frame)-3:] {
		write(t, peers[0], []byte{b})
	}
	wantFrame(t, peers[0], big)
	for range 3 {
		write(t, peers[0], appendFrame(nil, []byte("small")))
		wantFrame(t, peers[0], []byte("small"))
	}
	peers[1].Close()
	eventually(t, "the peer that left is let go", func() bool { return closed.Load() == 1 })
	write(t, peers[2], frame[len(frame)/2+2:])
	wantFrame(t, peers[2], big)
}
