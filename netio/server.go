package netio

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Reasons given to Handler.Closed, besides errors of the socket.
var (
	ErrFrameSize = errors.New("netio: frame size is not positive or above the limit")
	ErrHalfFrame = errors.New("netio: closed by the peer in the middle of a frame")
	ErrIdle      = errors.New("netio: idle for too long")
	ErrExcess    = errors.New("netio: one of too many connections, and the one that was silent for longest")
	ErrPanic     = errors.New("netio: the handler of a frame panicked")
	ErrShortFile = errors.New("netio: a file slice of a reply is beyond the end of its file")
	ErrStopped   = errors.New("netio: the server stops")
)

// Handler is the consumer's side. Its methods run on the loop that owns the
// connection and must not block. A panic in Opened or Frame is logged, counted and
// closes that connection; in the others, which are not about one peer, it is not caught.
type Handler interface {
	// Opened: c was accepted, and its TLS handshake, if there is one, is done; may set c.Data, hold or close it.
	Opened(c *Conn)
	// Frame delivers one whole frame without its size. Its bytes are valid until
	// RoundEnd of this loop has returned.
	Frame(c *Conn, frame []byte)
	// RoundEnd: the frames of a round of reads were delivered. Called if there was
	// at least one, before any read buffer is used again and before replies are sent.
	RoundEnd(l *Loop)
	// Closed: the descriptor is closed and completed replies were released; no
	// further call is about c. Comes at the end of a round, after RoundEnd. A nil
	// err means that the peer closed in order. Not called without Opened before. Replies still reserved must be
	// completed as always.
	Closed(c *Conn, err error)
}

// Config says how a Server behaves. Zero values mean the defaults given.
type Config struct {
	Loops           int   // default: one per two processors, at least one
	ReadBufferBytes int   // per loop; default 256 KiB, at least 64 KiB
	MaxFrameBytes   int32 // socket.request.max.bytes; default 100 MiB

	IdleMax time.Duration // connections.max.idle.ms; 0 or less: never
	// Handshakes is how many TLS handshakes may be on their way; default 1024. Further peers wait, unread.
	Handshakes int
	// HandshakeTimeout bounds a TLS handshake, and the wait for its first byte; default 10 s.
	HandshakeTimeout time.Duration

	// KeepAliveIdle is after how much silence a peer is asked whether it is still there; default 60 s, whole seconds. One that has
	// vanished is found after three questions, 10 s apart.
	KeepAliveIdle time.Duration

	SendBufferBytes int // socket.send.buffer.bytes; 0 or less: the system's
	RecvBufferBytes int // socket.receive.buffer.bytes; likewise
	Backlog         int // socket.listen.backlog.size; 0 or less: the system's

	// InflightBytes bounds the memory of requests not yet answered and of answers not yet read, of all connections; RequestBytes bounds
	// that of the requests alone. 0 or less: not bounded.
	InflightBytes, RequestBytes int64

	// ReadAheadThreads is how many goroutines read file slices that are not in the page cache; default 4. ReadAheadBytes is how far they have
	// the kernel read beyond what is to be sent; 0 or less: not.
	ReadAheadThreads, ReadAheadBytes int

	PausePendingReplies int // replies not sent after which a connection is not read; default 64
	PausePendingBytes   int // bytes of memory in them after which it is not read; default 1 MiB

	// BeforeSleep, if set, is called when a loop has nothing to do and is about to
	// sleep. What it completes or posts is done first.
	BeforeSleep func(l *Loop)

	// OnDone, if set, is told on the loop about tagged replies that left, soon after;
	// done is valid during the call.
	OnDone func(l *Loop, done []Done)

	Logger *slog.Logger // default: none
}

// Server owns the loops and the listening sockets.
type Server struct {
	cfg     Config
	handler Handler
	start   time.Time
	loops   []*Loop
	pools   bufferPools
	limits  connLimits

	shakes  handshakes
	aheads  aheads
	lookWay lookWay

	lastID        atomic.Uint64
	conns         atomic.Int64
	fullTotal     atomic.Int64
	fullOwn       atomic.Int64
	excessClosed  atomic.Int64
	roomWanted    atomic.Bool // a listener rests until there is room
	rejectedPerIP atomic.Int64
	paced         atomic.Int64
	acceptErrors  atomic.Int64
	rejectedGate  atomic.Int64
	gate          Gate
	delayed       map[*delayed]struct{} // of the accepting loop
	nextLoop      int                   // likewise
	pace          pace                  // likewise

	mu        sync.Mutex  // guards the two below
	listeners []*listener // only read once started
	started   bool
	running   sync.WaitGroup
}

// New makes a server that neither listens nor runs.
func New(cfg Config, h Handler) (*Server, error) {
	setDefault(&cfg.Loops, max(1, runtime.NumCPU()/2))
	setDefault(&cfg.ReadBufferBytes, 256<<10)
	setDefault(&cfg.MaxFrameBytes, 100<<20)
	setDefault(&cfg.PausePendingReplies, 64)
	setDefault(&cfg.PausePendingBytes, 1<<20)
	setDefault(&cfg.Handshakes, 1024)
	setDefault(&cfg.ReadAheadThreads, 4)
	setDefault(&cfg.HandshakeTimeout, 10*time.Second)
	setDefault(&cfg.KeepAliveIdle, keepAliveIdle)
	cfg.ReadBufferBytes = max(cfg.ReadBufferBytes, 64<<10)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg, handler: h, start: time.Now(), lookWay: findLookWay()}
	s.shakes.work = make(chan struct{}, handshakeWorkers())
	s.limits.counts = map[netip.Addr]int{}
	s.delayed = map[*delayed]struct{}{}
	s.limits.rules.Store(&limitRules{Limits: NoLimits()})
	for i := range cfg.Loops {
		l, err := newLoop(s, i)
		if err != nil {
			for _, l := range s.loops {
				l.end()
			}
			return nil, fmt.Errorf("netio: event loop: %w", err)
		}
		s.loops = append(s.loops, l)
	}
	return s, nil
}

func setDefault[T int | int32 | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// Loops are the event loops; their Data may be set before Start.
func (s *Server) Loops() []*Loop { return s.loops }

// Start begins to accept and serve.
func (s *Server) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return
	}
	s.started = true
	for _, ln := range s.listeners {
		ln.arm(unix.EPOLLIN)
	}
	for _, l := range s.loops {
		s.running.Go(l.run)
	}
}

// taskFunc makes a function a Task, for rare work.
type taskFunc func()

func (f taskFunc) Run() { f() }

// StopAccepting closes the listening sockets. Returns when that is done or left
// to the loop.
func (s *Server) StopAccepting() {
	s.loops[0].Post(taskFunc(func() {
		for _, ln := range s.listeners {
			ln.close()
		}
		s.closeDelayed(s.loops[0])
	}))
}

// Drain stops the server: no new frames are read, replies due are sent, all
// connections are closed and the loops end. When ctx ends first, what is left is
// closed at once and its error returned. Loops wait for replies that are reserved.
func (s *Server) Drain(ctx context.Context) error {
	s.mu.Lock()
	started := s.started
	s.started = true
	s.mu.Unlock()
	s.StopAccepting()
	each := func(finish func(c *Conn)) {
		for _, l := range s.loops {
			l.Post(taskFunc(func() {
				l.draining = true
				for _, c := range l.conns {
					if c != nil {
						finish(c)
					}
				}
			}))
		}
	}
	each(func(c *Conn) { c.CloseAfterReplies(ErrStopped) })
	if !started {
		for _, l := range s.loops {
			l.runPosts()
			l.end()
		}
		return nil
	}
	done := make(chan struct{})
	go func() {
		s.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	each(func(c *Conn) { c.Close(ErrStopped) })
	<-done
	return ctx.Err()
}

// opened calls Handler.Opened; a panic in it closes the connection.
func (l *Loop) opened(c *Conn) {
	defer func() {
		if p := recover(); p != nil {
			l.panicked(c, p)
		}
	}()
	c.isOpen = true
	l.handler.Opened(c)
}

// panicked counts and reports a panic of the handler and closes c.
func (l *Loop) panicked(c *Conn, p any) {
	l.stats.panics.Add(1)
	l.log.Error("handler panicked", slog.Any("panic", p), slog.String("peer", c.RemoteAddr()), slog.String("stack", string(debug.Stack())))
	c.Close(ErrPanic)
}

// reportClosed tells the handler and writes the one log line of a connection.
func (l *Loop) reportClosed(c *Conn) {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		reason := "closed by the peer"
		if c.closeErr != nil {
			reason = c.closeErr.Error()
		}
		l.log.Debug("connection closed", slog.String("peer", c.RemoteAddr()), slog.String("reason", reason))
	}
	if c.isOpen {
		l.handler.Closed(c, c.closeErr)
	}
}
