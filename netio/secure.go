package netio

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// TLS runs over memory. crypto/tls cannot put a handshake aside, so a handshake blocks: on a goroutine of its own, never on a loop. It
// begins with the first bytes of the peer; Config.Handshakes bounds how many there are (further peers wait for their turn, unread),
// Config.HandshakeTimeout how long one takes, handshakeWorkers how many compute at a time, so that a storm of them leaves processors to the
// loops. Only the loop touches the socket: it carries bytes between it and the goroutine. Once the handshake is done the goroutine ends and
// the loop calls crypto/tls itself: reading and writing then find all they need in memory, or errNoBytes.

// Sizes of TLS on a connection, in bytes.
const (
	shakeIn    = 8 << 10   // received and not yet taken by the handshake; above it the socket is not read
	cipherTurn = 64 << 10  // received per round, and encrypted per turn
	recordMax  = 17 << 10  // the longest record: what crypto/tls may keep between two reads
	cipherOut  = 66 << 10  // what cipherTurn becomes: five records and a little
	cipherMost = 256 << 10 // not sent yet; more (answers to a flood of key updates) closes the connection
)

// handshakeWorkers is how many handshakes compute at the same time.
func handshakeWorkers() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// errNoBytes tells crypto/tls to come back later: it is temporary, so that crypto/tls keeps a partial record.
var errNoBytes net.Error = noBytes{}

type noBytes struct{}

func (noBytes) Error() string   { return "netio: no bytes yet" }
func (noBytes) Timeout() bool   { return true }
func (noBytes) Temporary() bool { return true }

// secure is the TLS of a connection, and the net.Conn below it.
type secure struct {
	c     *Conn
	conn  *tls.Conn
	timer Timer // deadline of the handshake
	begun bool  // bytes have come: a handshake was asked for

	// direct: the handshake is done, all below up to mu is the loop's and the rest unused. Before that Read and Write are called by the
	// goroutine of the handshake.
	direct  bool
	fresh   bool   // crypto/tls may hold whole records that came with the end of the handshake
	in      []byte // received, not taken by crypto/tls; memory of the loop
	out     *inbuf // encrypted, not sent
	outHeld int    // bytes of out that the budget knows of
	err     error  // that crypto/tls ended the stream with
	shut    bool   // nothing more is sent

	wake    chan struct{} // one place: bytes came, or the end
	mu      sync.Mutex    // guards the rest
	arrived []byte
	leaving []byte // written by the handshake, not yet with the loop
	posted  bool   // a flush is on its way to the loop
	ended   bool   // the peer sends no more
	full    bool   // the socket is not read until arrived is taken
	dead    bool
	result  error
}

func newSecure(c *Conn, cfg *tls.Config) *secure {
	t := &secure{c: c, wake: make(chan struct{}, 1)}
	t.conn = tls.Server(t, cfg)
	t.timer.Fn = func() {
		c.Close(fmt.Errorf("%w: not done within %v", ErrHandshake, c.loop.server.cfg.HandshakeTimeout))
	}
	return t
}

// handshakes admits Config.Handshakes of them at a time.
type handshakes struct {
	work chan struct{} // one for each that computes

	mu      sync.Mutex // guards the rest
	running int
	waiting []*secure // in order of arrival
}

// begin starts the handshake of t or puts it in the queue. On the loop.
func (s *Server) beginHandshake(t *secure) {
	h := &s.shakes
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running >= s.cfg.Handshakes {
		h.waiting = append(h.waiting, t)
		return
	}
	h.running++
	t.start()
}

// endHandshake gives the place of one that ended to the next that still wants it.
func (s *Server) endHandshake() {
	h := &s.shakes
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.waiting) > 0 {
		t := h.waiting[0]
		h.waiting[0] = nil
		h.waiting = h.waiting[1:]
		t.mu.Lock()
		dead := t.dead
		t.mu.Unlock()
		if !dead {
			t.start()
			return
		}
	}
	h.waiting = nil
	h.running--
}

// start gives t its goroutine, and its time from now on: what it spent in the queue is not the peer's fault.
func (t *secure) start() {
	t.c.loop.Post(taskFunc(func() { t.c.loop.setDeadline(t) }))
	go t.shake()
}

// setDeadline (re)starts the time that the handshake of t may take.
func (l *Loop) setDeadline(t *secure) {
	if !t.c.closed && !t.direct {
		l.SetTimer(&t.timer, l.now+l.server.cfg.HandshakeTimeout.Milliseconds())
	}
}

// shake is the goroutine of a handshake.
func (t *secure) shake() {
	s := t.c.loop.server
	s.shakes.work <- struct{}{}
	err := t.handshake()
	<-s.shakes.work
	t.mu.Lock()
	t.result = err
	t.mu.Unlock()
	t.c.loop.Post((*shaken)(t))
	s.endHandshake()
}

// handshake turns a panic over what a peer sent into an error: it may cost that peer its connection and nobody else's.
func (t *secure) handshake() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return t.conn.Handshake()
}

// readHandshake carries what a peer sends to its handshake. On the loop.
func (l *Loop) readHandshake(c *Conn, events uint32) {
	t := c.sec
	t.mu.Lock()
	t.full = len(t.arrived) >= shakeIn
	rest := t.full || t.ended
	t.mu.Unlock()
	if rest {
		if events&(unix.EPOLLHUP|unix.EPOLLERR) != 0 {
			c.Close(socketError(c.fd))
			return
		}
		c.listen(c.interest &^ (unix.EPOLLIN | unix.EPOLLRDHUP))
		return
	}
	n, e := recv(c.fd, l.cipher[:shakeIn])
	ended := e == 0 && n == 0 && t.begun // but what came before may be all that is needed, and requests besides
	if !ended && !l.received(c, n, e) {
		return
	}
	t.mu.Lock()
	t.arrived, t.ended = append(t.arrived, l.cipher[:n]...), ended
	t.mu.Unlock()
	t.signal()
	if !t.begun {
		t.begun = true
		l.StopTimer(&t.timer)
		l.server.beginHandshake(t)
	}
}

func (t *secure) signal() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Read implements net.Conn for crypto/tls.
func (t *secure) Read(p []byte) (int, error) {
	if t.direct {
		if len(t.in) == 0 {
			return 0, errNoBytes
		}
		n := copy(p, t.in)
		t.in = t.in[n:]
		return n, nil
	}
	work := t.c.loop.server.shakes.work
	for {
		t.mu.Lock()
		n := copy(p, t.arrived)
		t.arrived = t.arrived[n:]
		if len(t.arrived) == 0 {
			t.arrived = nil
		}
		dead, ended, full := t.dead, t.ended, t.full && n > 0
		t.full = t.full && !full
		t.mu.Unlock()
		switch {
		case dead:
			return 0, net.ErrClosed
		case n == 0 && ended:
			return 0, io.EOF
		case n == 0:
			<-work // others may compute while this one waits
			<-t.wake
			work <- struct{}{}
			continue
		case full:
			t.c.loop.Post((*shakeReads)(t))
		}
		return n, nil
	}
}

// Write implements net.Conn for crypto/tls.
func (t *secure) Write(p []byte) (int, error) {
	if t.direct {
		if t.shut || t.unsent()+len(p) > cipherMost {
			return 0, net.ErrClosed
		}
		t.keep(p)
		return len(p), nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dead {
		return 0, net.ErrClosed
	}
	t.leaving = append(t.leaving, p...)
	if !t.posted {
		t.posted = true
		t.c.loop.Post((*shakeFlush)(t))
	}
	return len(p), nil
}

// unsent is the number of encrypted bytes not sent.
func (t *secure) unsent() int {
	if t.out == nil {
		return 0
	}
	return len(t.out.bytes())
}

// keep adds encrypted bytes to those not sent.
func (t *secure) keep(p []byte) {
	pools := t.c.loop.pools
	if t.out == nil {
		t.out = pools.get(len(p))
	}
	if need := len(t.out.b) + len(p); need > cap(t.out.b) {
		bigger := pools.get(max(need, 2*cap(t.out.b)))
		bigger.b = append(bigger.b, t.out.bytes()...)
		pools.put(t.out)
		t.out = bigger
	}
	t.out.b = append(t.out.b, p...)
}

// shakeFlush, shakeReads and shaken are a secure's posts to its loop.
type (
	shakeFlush secure
	shakeReads secure
	shaken     secure
)

// Run takes over what the handshake wrote.
func (p *shakeFlush) Run() {
	t := (*secure)(p)
	t.mu.Lock()
	b := t.leaving
	t.leaving, t.posted = nil, false
	t.mu.Unlock()
	if !t.c.closed {
		t.keep(b)
		t.c.loop.markDirty(t.c)
	}
}

// Run goes on reading the socket of a handshake.
func (p *shakeReads) Run() {
	t := (*secure)(p)
	if !t.direct {
		t.c.listen(t.c.interest | unix.EPOLLIN | unix.EPOLLRDHUP)
	}
}

// Run ends a handshake: the handler learns of the connection, or it is closed.
func (p *shaken) Run() {
	t := (*secure)(p)
	c := t.c
	l := c.loop
	if c.closed {
		return
	}
	t.mu.Lock()
	err, rest := t.result, t.arrived
	t.arrived = nil
	t.mu.Unlock()
	if err != nil {
		c.Close(fmt.Errorf("%w: %w", ErrHandshake, err))
		return
	}
	l.StopTimer(&t.timer)
	t.direct, t.fresh, t.in = true, true, rest
	l.stats.handshakes.Add(1)
	l.opened(c)
	if c.closed {
		return
	}
	c.listen(c.interest | unix.EPOLLIN | unix.EPOLLRDHUP)
	c.isReady = true
	l.ready = append(l.ready, c)
}

// close ends the TLS of a connection that closes: what is encrypted, and crypto/tls's goodbye, are sent if the socket takes them at once.
func (t *secure) close() {
	l := t.c.loop
	if t.direct {
		t.goodbye()
	} else {
		if t.begun {
			l.stats.handshakeFailures.Add(1)
		}
		l.StopTimer(&t.timer)
		t.mu.Lock()
		t.dead = true
		t.arrived = nil
		t.mu.Unlock()
		t.signal()
		t.sendOnce()
	}
	if t.out != nil {
		l.pools.put(t.out)
		t.out = nil
	}
	t.in = nil
}

// goodbye sends close_notify, once, if the socket takes it: a peer that does not read is not waited for.
func (t *secure) goodbye() {
	if t.shut {
		return
	}
	_ = t.conn.CloseWrite()
	t.sendOnce()
	t.shut = true
}

// sendOnce sends what is encrypted and does not care for what became of it.
func (t *secure) sendOnce() {
	if t.out == nil || t.c.blocked {
		return
	}
	l := t.c.loop
	b := t.out.bytes()
	l.iov[0].Base = &b[0]
	l.iov[0].SetLen(len(b))
	n, _ := send(t.c.fd, l.iov[:1], false, &l.hdr)
	clear(l.iov[:1])
	t.out.at += max(0, n)
	if t.out.at == len(t.out.b) {
		l.pools.put(t.out)
		t.out = nil
	}
}

// The rest of net.Conn. Addresses are asked for by nobody, deadlines are the loop's.

func (t *secure) Close() error                     { return nil }
func (t *secure) LocalAddr() net.Addr              { return nil }
func (t *secure) RemoteAddr() net.Addr             { return net.TCPAddrFromAddrPort(t.c.remote) }
func (t *secure) SetDeadline(time.Time) error      { return nil }
func (t *secure) SetReadDeadline(time.Time) error  { return nil }
func (t *secure) SetWriteDeadline(time.Time) error { return nil }

// ErrHandshake is wrapped by the reasons why a TLS handshake failed. Handler.Closed is not told of them: it never heard of the connection.
var ErrHandshake = errors.New("netio: TLS handshake failed")

// ErrTLS is wrapped by the reasons why TLS ended an established connection: a record that was tampered with, an alert of the peer.
var ErrTLS = errors.New("netio: TLS")
