package netio

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// within is how long a test waits for something that must happen. Only a failing
// test takes that long.
const within = 20 * time.Second

// hooks is a Handler made of functions; those not set do nothing.
type hooks struct {
	opened   func(*Conn)
	frame    func(*Conn, []byte)
	roundEnd func(*Loop)
	closed   func(*Conn, error)
}

func (h *hooks) Opened(c *Conn) {
	if h.opened != nil {
		h.opened(c)
	}
}

func (h *hooks) Frame(c *Conn, frame []byte) {
	if h.frame != nil {
		h.frame(c, frame)
	}
}

func (h *hooks) RoundEnd(l *Loop) {
	if h.roundEnd != nil {
		h.roundEnd(l)
	}
}

func (h *hooks) Closed(c *Conn, err error) {
	if h.closed != nil {
		h.closed(c, err)
	}
}

// echo answers a frame with itself.
func echo(c *Conn, frame []byte) {
	r := c.NewReply()
	r.Buf = appendFrame(r.Buf[:0], frame)
	r.Send()
}

func appendFrame(b, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(body))), body...)
}

// serve starts a server and stops it at the end of the test.
func serve(t testing.TB, cfg Config, h Handler) (*Server, string) {
	t.Helper()
	s, err := New(cfg, h)
	if err != nil {
		t.Fatal(err)
	}
	addr, err := s.Listen("127.0.0.1:0", 7)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Drain(ctx)
		if n := s.Stats().Conns; n != 0 {
			t.Errorf("%d connections are left after Drain", n)
		}
	})
	return s, addr.String()
}

func dial(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, within)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(2 * within)); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

func write(t testing.TB, c net.Conn, b []byte) {
	t.Helper()
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
}

func readFrame(t testing.TB, r io.Reader) []byte {
	t.Helper()
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		t.Fatalf("size of a reply: %v", err)
	}
	body := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(r, body); err != nil {
		t.Fatalf("body of a reply: %v", err)
	}
	return body
}

// wantFrame reads one frame and compares it.
func wantFrame(t testing.TB, r io.Reader, want []byte) {
	t.Helper()
	if got := readFrame(t, r); !bytes.Equal(got, want) {
		t.Fatalf("reply of %d bytes %.40q, want %d bytes %.40q", len(got), got, len(want), want)
	}
}

// wantClosed reads until the server closes; nothing more may come.
func wantClosed(t testing.TB, c net.Conn) {
	t.Helper()
	n, err := io.Copy(io.Discard, c)
	if n != 0 {
		t.Fatalf("%d bytes before the close, want none", n)
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatal("the server did not close the connection")
	}
}

// eventually waits for cond, which must become true.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("did not happen: %s", what)
		}
	}
}

// receive takes one value from ch, which must come.
func receive[T any](t testing.TB, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(within):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// noise is what pattern copies from; its length is prime, so a piece in the wrong
// place does not look right by chance.
var noise = func() []byte {
	b := make([]byte, 65521)
	rng := rand.New(rand.NewPCG(5, 6))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}()

// pattern is n bytes that depend on seed and tell where they are from.
func pattern(seed, n int) []byte {
	b := make([]byte, n)
	at := copy(b, noise[seed*7919%len(noise):])
	for at < n {
		at += copy(b[at:], noise)
	}
	return b
}

// tempFile is an open file with the given content.
func tempFile(t testing.TB, content []byte) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "slice")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	return f
}

// countRef counts its releases.
type countRef struct{ n atomic.Int32 }

func (r *countRef) Release() { r.n.Add(1) }

// onLoop runs f on l and waits for it.
func onLoop(t testing.TB, l *Loop, f func()) {
	t.Helper()
	done := make(chan struct{})
	l.Post(taskFunc(func() { f(); close(done) }))
	receive(t, done)
}

func TestPipelinedFrames(t *testing.T) {
	rounds := atomic.Int64{}
	s, addr := serve(t, Config{}, &hooks{frame: echo, roundEnd: func(*Loop) { rounds.Add(1) }})
	c := dial(t, addr)
	var sent []byte
	const n = 3000
	for i := range n {
		sent = appendFrame(sent, pattern(i, 1+i%500))
	}
	go func() { _, _ = c.Write(sent) }()
	for i := range n {
		wantFrame(t, c, pattern(i, 1+i%500))
	}
	eventually(t, "counters of the traffic", func() bool {
		st := s.Stats()
		return st.Frames == n && st.BytesIn == int64(len(sent)) && st.BytesOut == int64(len(sent))
	})
	if rounds.Load() == 0 {
		t.Error("RoundEnd was never called")
	}
}

func TestConnFacts(t *testing.T) {
	type facts struct {
		listener      int
		remote, local string
		id            uint64
		nodelay       int
	}
	got := make(chan facts, 2)
	_, addr := serve(t, Config{}, &hooks{opened: func(c *Conn) {
		n, _ := unix.GetsockoptInt(c.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY)
		got <- facts{c.Listener(), c.RemoteAddr(), c.LocalAddr(), c.ID(), n}
	}})
	for id := range uint64(2) {
		c := dial(t, addr)
		want := facts{7, c.LocalAddr().String(), addr, id + 1, 1}
		if f := receive(t, got); f != want {
			t.Errorf("got %+v, want %+v", f, want)
		}
	}
}

func TestFileSlices(t *testing.T) {
	content := pattern(3, 3<<20)
	f := tempFile(t, content)
	ref := &countRef{}
	_, addr := serve(t, Config{}, &hooks{frame: func(c *Conn, frame []byte) {
		from, n := int64(binary.BigEndian.Uint32(frame)), int(binary.BigEndian.Uint32(frame[4:]))
		r := c.NewReply()
		r.Buf = binary.BigEndian.AppendUint32(r.Buf[:0], uint32(4+n+n+3))
		r.Buf = append(r.Buf, "headend"...)
		r.Parts = append(r.Parts, Part{To: 8}, Part{FD: int(f.Fd()), Pos: from, Len: n, Ref: ref},
			Part{FD: int(f.Fd()), Pos: from, Len: n, Ref: ref}, Part{From: 8, To: 11})
		r.Send()
	}})
	c := dial(t, addr)
	var want []byte
	slices := [][2]int{{0, 0}, {0, 1}, {10, 100}, {1 << 20, 1 << 20}, {7, 2 << 20}, {1, 64 << 10}}
	for _, s := range slices {
		req := binary.BigEndian.AppendUint32(nil, uint32(s[0]))
		write(t, c, appendFrame(nil, binary.BigEndian.AppendUint32(req, uint32(s[1]))))
	}
	for _, s := range slices {
		slice := content[s[0] : s[0]+s[1]]
		want = append(append(append(append(want[:0], "head"...), slice...), slice...), "end"...)
		wantFrame(t, c, want)
	}
	eventually(t, "all slices released", func() bool { return ref.n.Load() == int32(2*len(slices)) })
}

// Replies completed by other goroutines, in another order.
func TestRepliesOutOfOrder(t *testing.T) {
	const n = 500
	var mu sync.Mutex
	var waiting []*Reply
	_, addr := serve(t, Config{PausePendingReplies: 2 * n}, &hooks{frame: func(c *Conn, frame []byte) {
		r := c.NewReply()
		r.Buf = appendFrame(r.Buf[:0], frame)
		mu.Lock()
		waiting = append(waiting, r)
		mu.Unlock()
	}})
	c := dial(t, addr)
	var sent []byte
	for i := range n {
		sent = appendFrame(sent, pattern(i, 20))
	}
	write(t, c, sent)
	eventually(t, "all frames", func() bool { mu.Lock(); defer mu.Unlock(); return len(waiting) == n })
	var done sync.WaitGroup
	for g := range 4 {
		done.Go(func() {
			for i := n - 1 - g; i >= 0; i -= 4 {
				if i%10 == 9 {
					waiting[i].DropPost()
				} else {
					waiting[i].Post()
				}
			}
		})
	}
	for i := range n {
		if i%10 != 9 {
			wantFrame(t, c, pattern(i, 20))
		}
	}
	done.Wait()
}

// resume is a Task of pointer shape: making the interface allocates nothing.
type resume struct{ c *Conn }

func (r resume) Run() { r.c.Resume() }
