package netio

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Replies completed after their connection died give everything back, once.
func TestRepliesCompletedAfterClose(t *testing.T) {
	f := tempFile(t, pattern(1, 1000))
	const n = 50
	var refs [2 * n]countRef
	replies := make(chan *Reply, n)
	closed := make(chan error, 1)
	s, addr := serve(t, Config{PausePendingReplies: 2 * n}, &hooks{
		frame: func(c *Conn, b []byte) {
			r := c.NewReply()
			for i := range 2 {
				r.Parts = append(r.Parts, Part{FD: int(f.Fd()), Len: 1000, Ref: &refs[2*int(b[0])+i]})
			}
			switch b[0] % 5 {
			case 1: // complete, waits for the places before it
				r.Send()
			case 2:
				r.Drop()
			default:
				replies <- r
			}
		},
		closed: func(_ *Conn, err error) { closed <- err },
	})
	c := dial(t, addr)
	for i := range n {
		write(t, c, appendFrame(nil, []byte{byte(i)}))
	}
	arrived(t, s, 5*n)
	if err := c.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := receive(t, closed); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("closed because of %v, want %v", err, unix.ECONNRESET)
	}
	var done sync.WaitGroup
	for i := range n * 3 / 5 {
		r := receive(t, replies)
		done.Go(func() {
			if i%2 == 0 {
				r.Post()
			} else {
				r.DropPost()
			}
		})
	}
	done.Wait()
	onLoop(t, s.Loops()[0], func() {})
	for i := range refs {
		if k := refs[i].n.Load(); k != 1 {
			t.Errorf("slice %d was released %d times", i, k)
		}
	}
	if n := len(s.Loops()[0].freeReplies); n < 1 || n > 50 {
		t.Errorf("%d replies are in the pool", n)
	}
}

// After Drain tasks and replies are still taken, from many goroutines.
func TestPostsAfterTheEnd(t *testing.T) {
	const n = 100
	replies := make(chan *Reply, n)
	s, err := New(Config{PausePendingReplies: 2 * n}, &hooks{frame: func(c *Conn, _ []byte) { replies <- c.NewReply() }})
	if err != nil {
		t.Fatal(err)
	}
	addr, err := s.Listen("127.0.0.1:0", 0)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	c := dial(t, addr.String())
	for range n {
		write(t, c, appendFrame(nil, []byte("x")))
	}
	arrived(t, s, 5*n)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Drain(ctx); err != context.Canceled {
		t.Errorf("Drain returned %v", err)
	}
	var ref countRef
	var ran int // no lock: the tasks run one at a time
	var done sync.WaitGroup
	for range n {
		r := receive(t, replies)
		done.Go(func() {
			r.Parts = append(r.Parts, Part{FD: -1, Len: 1, Ref: &ref})
			r.Post()
			s.Loops()[0].Post(taskFunc(func() { ran++ }))
		})
	}
	done.Wait()
	onLoop(t, s.Loops()[0], func() {
		if ran != n || ref.n.Load() != n {
			t.Errorf("%d tasks ran, %d slices were released, want %d", ran, ref.n.Load(), n)
		}
	})
	if err := s.Drain(context.Background()); err != nil {
		t.Errorf("second Drain returned %v", err)
	}
}

// A peer that resets the connection is noticed while it is held, too.
func TestResetWhileHeld(t *testing.T) {
	closed := make(chan error, 1)
	s, addr := serve(t, Config{}, &hooks{
		frame:  func(c *Conn, _ []byte) { c.Hold() },
		closed: func(_ *Conn, err error) { closed <- err },
	})
	c := dial(t, addr)
	write(t, c, appendFrame(nil, []byte("x")))
	arrived(t, s, 5)
	if err := c.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := receive(t, closed); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("closed because of %v, want %v", err, unix.ECONNRESET)
	}
}

// A reply that cannot be completed ends the connection; the client must not take
// what follows for the missing bytes.
func TestFileShorterThanSlice(t *testing.T) {
	f := tempFile(t, pattern(1, 1000))
	closed := make(chan error, 1)
	ref := &countRef{}
	_, addr := serve(t, Config{}, &hooks{
		frame: func(c *Conn, b []byte) {
			r := c.NewReply()
			r.Parts = append(r.Parts, Part{FD: int(f.Fd()), Len: 1001, Ref: ref})
			r.Send()
			echo(c, b)
		},
		closed: func(_ *Conn, err error) { closed <- err },
	})
	c := dial(t, addr)
	write(t, c, appendFrame(nil, []byte("x")))
	if got, _ := io.ReadAll(c); !bytes.Equal(got, pattern(1, 1000)) {
		t.Errorf("%d bytes came, want the 1000 of the file", len(got))
	}
	if err := receive(t, closed); err != ErrShortFile {
		t.Errorf("closed because of %v, want %v", err, ErrShortFile)
	}
	if n := ref.n.Load(); n != 1 {
		t.Errorf("released %d times", n)
	}
}

// One line at debug level per connection, with its peer and the reason.
func TestLogOfClosedConnections(t *testing.T) {
	var mu sync.Mutex
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return out.Write(b)
	}), &slog.HandlerOptions{Level: slog.LevelDebug}))
	closed := make(chan error, 1)
	_, addr := serve(t, Config{Logger: log}, &hooks{closed: func(_ *Conn, err error) { closed <- err }})
	c := dial(t, addr)
	write(t, c, []byte("GET / HTTP/1.1\r\n"))
	wantClosed(t, c)
	receive(t, closed)
	mu.Lock()
	defer mu.Unlock()
	line := out.String()
	if strings.Count(line, "\n") != 1 || !strings.Contains(line, "level=DEBUG") ||
		!strings.Contains(line, "peer="+c.LocalAddr().String()) || !strings.Contains(line, ErrFrameSize.Error()) {
		t.Errorf("log is %q", line)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestIPv6(t *testing.T) {
	remote := make(chan string, 1)
	s, err := New(Config{}, &hooks{frame: echo, opened: func(c *Conn) { remote <- c.Remote().String() + " " + c.LocalAddr() }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Drain(context.Background()) }()
	addr, err := s.Listen("[::1]:0", 0)
	if err != nil {
		t.Skipf("no IPv6 here: %v", err)
	}
	s.Start()
	c := dial(t, addr.String())
	write(t, c, appendFrame(nil, []byte("six")))
	wantFrame(t, c, []byte("six"))
	if got, want := receive(t, remote), c.LocalAddr().String()+" "+addr.String(); got != want {
		t.Errorf("addresses are %q, want %q", got, want)
	}
}

func TestPanicInHandler(t *testing.T) {
	closed := make(chan error, 1)
	s, addr := serve(t, Config{Loops: 1}, &hooks{
		opened: func(c *Conn) {
			if c.ID() == 3 {
				panic("opened")
			}
		},
		frame: func(c *Conn, b []byte) {
			if b[0] == '!' {
				c.NewReply()
				panic("frame")
			}
			echo(c, b)
		},
		closed: func(_ *Conn, err error) { closed <- err },
	})
	good, bad := dial(t, addr), dial(t, addr)
	write(t, good, appendFrame(nil, []byte("before")))
	wantFrame(t, good, []byte("before"))
	write(t, bad, appendFrame(appendFrame(nil, []byte("!")), []byte("not seen")))
	wantClosed(t, bad)
	wantClosed(t, dial(t, addr))
	for range 2 {
		if err := receive(t, closed); err != ErrPanic {
			t.Errorf("closed because of %v, want %v", err, ErrPanic)
		}
	}
	write(t, good, appendFrame(nil, []byte("after")))
	wantFrame(t, good, []byte("after"))
	if n := s.Stats().Panics; n != 2 {
		t.Errorf("%d panics counted, want 2", n)
	}
}

// served tells whether the server answers on a new connection.
func served(t *testing.T, addr string) (net.Conn, bool) {
	t.Helper()
	c := dial(t, addr)
	_, _ = c.Write(appendFrame(nil, []byte("x")))
	_, err := io.ReadFull(c, make([]byte, 5))
	return c, err == nil
}

func limit(t testing.TB, s *Server, limits Limits) {
	t.Helper()
	for id, l := range limits.Listeners {
		l.ConnsPerSecond = -1
		limits.Listeners[id] = l
	}
	if err := s.SetLimits(limits); err != nil {
		t.Fatal(err)
	}
}

func TestConnectionLimits(t *testing.T) {
	for name, c := range map[string]struct {
		limits          Limits
		fit             int
		total, per, own int64
	}{
		"total":                   {Limits{MaxConns: 3, MaxConnsPerIP: 10}, 3, 1, 0, 0},
		"nobody":                  {Limits{MaxConns: 0, MaxConnsPerIP: 10}, 0, 1, 0, 0},
		"per address":             {Limits{MaxConns: 10, MaxConnsPerIP: 2}, 2, 0, 1, 0},
		"override":                {Limits{MaxConns: -1, MaxConnsPerIP: 1, PerIPOverrides: map[string]int{"127.0.0.1": 4}}, 4, 0, 1, 0},
		"override of another":     {Limits{MaxConns: -1, MaxConnsPerIP: 2, PerIPOverrides: map[string]int{"127.0.0.9": 9}}, 2, 0, 1, 0},
		"only those with a limit": {Limits{MaxConns: -1, PerIPOverrides: map[string]int{"127.0.0.9": 9}}, 0, 0, 1, 0},
		"of the listener":         {Limits{MaxConns: 9, MaxConnsPerIP: -1, Listeners: map[int]ListenerLimits{7: {MaxConns: 2}}}, 2, 0, 0, 1},
		"of another listener":     {Limits{MaxConns: 3, MaxConnsPerIP: -1, Listeners: map[int]ListenerLimits{8: {MaxConns: 1}}}, 3, 1, 0, 0},
		"protected":               {Limits{MaxConns: 1, MaxConnsPerIP: -1, Listeners: map[int]ListenerLimits{7: {MaxConns: 3, Protected: true}}}, 3, 0, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, addr := serve(t, Config{}, &hooks{frame: echo})
			c.limits.ConnsPerSecond = -1
			limit(t, s, c.limits)
			var open net.Conn
			for i := range c.fit {
				var ok bool
				if open, ok = served(t, addr); !ok {
					t.Fatalf("connection %d of %d is not served", i+1, c.fit)
				}
			}
			late := dial(t, addr)
			write(t, late, appendFrame(nil, []byte("x")))
			eventually(t, "one too many is seen", func() bool {
				st := s.Stats()
				return st.FullTotal+st.RejectedPerIP+st.FullListener > 0
			})
			if st := s.Stats(); st.FullTotal != c.total || st.RejectedPerIP != c.per || st.FullListener != c.own || st.Conns != int64(c.fit) {
				t.Errorf("counted %+v", st)
			}
			if c.per > 0 {
				wantClosed(t, late)
			}
			if open == nil {
				return
			}
			open.Close()
			if c.per == 0 {
				wantFrame(t, late, []byte("x")) // it waited
				return
			}
			eventually(t, "a place is free", func() bool { return s.Stats().Conns == int64(c.fit-1) })
			if _, ok := served(t, addr); !ok {
				t.Error("a place that became free is not given away")
			}
		})
	}
	s, err := New(Config{}, &hooks{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Drain(t.Context())
	if err := s.SetLimits(Limits{PerIPOverrides: map[string]int{"not a host": 1}}); err == nil {
		t.Error("an override for a host that cannot be is accepted")
	}
}

func TestIdleConnectionIsClosed(t *testing.T) {
	closed := make(chan error, 1)
	s, addr := serve(t, Config{IdleMax: 30 * time.Millisecond}, &hooks{closed: func(_ *Conn, err error) { closed <- err }})
	wantClosed(t, dial(t, addr))
	if err := receive(t, closed); err != ErrIdle {
		t.Errorf("closed because of %v, want %v", err, ErrIdle)
	}
	if n := s.Stats().IdleClosed; n != 1 {
		t.Errorf("%d idle connections counted, want 1", n)
	}
}

// Drain sends what is due, reads nothing new, and ends when all is sent.
func TestDrain(t *testing.T) {
	replies := make(chan *Reply, 10)
	var frames atomic.Int64
	s, addr := serve(t, Config{Loops: 2}, &hooks{frame: func(c *Conn, b []byte) {
		frames.Add(1)
		r := c.NewReply()
		r.Buf = appendFrame(r.Buf[:0], b)
		replies <- r
	}})
	idle, busy := dial(t, addr), dial(t, addr)
	write(t, busy, appendFrame(nil, []byte("due")))
	due := receive(t, replies)
	drained := make(chan error, 1)
	go func() { drained <- s.Drain(context.Background()) }()
	wantClosed(t, idle)
	eventually(t, "the port is closed", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	eventually(t, "the other loop drains as well", func() (draining bool) {
		onLoop(t, due.conn.loop, func() { draining = due.conn.loop.draining })
		return draining
	})
	write(t, busy, appendFrame(nil, []byte("too late")))
	onLoop(t, due.conn.loop, func() {})
	select {
	case err := <-drained:
		t.Fatalf("Drain returned %v before the reply was sent", err)
	default:
	}
	due.Post()
	wantFrame(t, busy, []byte("due"))
	if err := receive(t, drained); err != nil {
		t.Errorf("Drain returned %v", err)
	}
	if n := frames.Load(); n != 1 {
		t.Errorf("%d frames, want 1", n)
	}
}

func TestDrainBeforeStart(t *testing.T) {
	s, err := New(Config{Loops: 2}, &hooks{})
	if err != nil {
		t.Fatal(err)
	}
	addr, err := s.Listen("127.0.0.1:0", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	if c, err := net.Dial("tcp", addr.String()); err == nil {
		c.Close()
		t.Error("the port is still open")
	}
}

func TestConnectionsAreSpreadOverLoops(t *testing.T) {
	s, addr := serve(t, Config{Loops: 3}, &hooks{frame: echo})
	for range 9 {
		if _, ok := served(t, addr); !ok {
			t.Fatal("not served")
		}
	}
	for _, l := range s.Loops() {
		onLoop(t, l, func() {
			if l.Conns() != 3 {
				t.Errorf("loop %d has %d connections, want 3", l.Index(), l.Conns())
			}
		})
	}
}

func TestListenFails(t *testing.T) {
	s, err := New(Config{}, &hooks{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Drain(context.Background()) }()
	addr, err := s.Listen("127.0.0.1:0", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Listen(addr.String(), 1); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("the same port again: %v, want %v", err, unix.EADDRINUSE)
	}
}

// Without descriptors the listener rests and tries again; it does not spin.
func TestNoDescriptorsLeft(t *testing.T) {
	s, addr := serve(t, Config{}, &hooks{frame: echo})
	fd, sa := rawSocket(t, addr)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	spare, err := unix.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(spare)
	restore := func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Fatal(err)
		}
	}
	defer restore()
	// Descriptors below the lowest free one stay usable; no new one fits.
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(spare), Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	before := s.Stats()
	if err := unix.Connect(fd, sa); err != nil {
		t.Fatal(err)
	}
	eventually(t, "two attempts", func() bool { return s.Stats().AcceptErrors >= before.AcceptErrors+2 })
	const rounds = 200
	for range rounds {
		onLoop(t, s.Loops()[0], func() {})
	}
	if n := s.Stats().AcceptErrors - before.AcceptErrors; n > rounds/2 {
		t.Errorf("%d attempts to accept in little more than %d rounds", n, rounds)
	}
	restore()
	if _, err := unix.Write(fd, appendFrame(nil, []byte("x"))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the connection is served at last", func() bool { return s.Stats().BytesOut == 5 })
}

// rawSocket is a TCP socket outside the runtime's poller, and the address to connect it to.
func rawSocket(t testing.TB, addr string) (int, unix.Sockaddr) {
	t.Helper()
	a, err := net.ResolveTCPAddr("tcp4", addr)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd, &unix.SockaddrInet4{Port: a.Port, Addr: [4]byte(a.IP.To4())}
}
