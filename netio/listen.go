package netio

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// acceptRetry is how long a listener rests, in ms, when the process has no
// descriptors left: a level-triggered loop would spin on it.
const acceptRetry = 100

// Keep-alive finds peers that vanished without a word (half-open connections): after a minute of silence three questions, 10 s apart. The
// system's own default is two hours. A client that is idle but there answers, and is left to connections.max.idle.ms.
const (
	keepAliveIdle     = time.Minute
	keepAliveInterval = 10 // seconds
	keepAliveCount    = 3
)

// listener is one listening socket; it belongs to loop 0, which hands the
// connections out.
type listener struct {
	server *Server
	loop   *Loop
	fd     int
	number int
	id     int32
	retry  Timer
	peer   unix.RawSockaddrAny // scratch of accept
	tls    *tls.Config         // nil: plaintext
	conns  atomic.Int64
	pace   pace
	full   bool // it rests until a connection is closed or limits change
}

// Listen binds a listening socket to addr (host:port; port 0: any free one) and
// returns its address. Conn.Listener of its connections is id. Before Start only.
func (s *Server) Listen(addr string, id int) (net.Addr, error) { return s.ListenTLS(addr, id, nil) }

// ListenTLS is Listen for connections that begin with a TLS handshake, with cfg; nil: plaintext. What cfg calls back runs on a goroutine of
// the handshake and may block for a while.
func (s *Server) ListenTLS(addr string, id int, cfg *tls.Config) (net.Addr, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		panic("BUG: Listen after Start")
	}
	// Package net resolves names and serves both families on one socket; the
	// socket then is ours alone. Options set here are inherited by accepted ones.
	config := net.ListenConfig{KeepAlive: -1, Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		if e := raw.Control(func(fd uintptr) { err = s.setOptions(int(fd)) }); e != nil {
			return e
		}
		return err
	}}
	nl, err := config.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer nl.Close()
	raw, err := nl.(*net.TCPListener).SyscallConn()
	if err != nil {
		return nil, err
	}
	ln := &listener{server: s, loop: s.loops[0], number: len(s.listeners), id: int32(id), tls: cfg}
	ln.retry.Fn = func() { ln.arm(unix.EPOLLIN) }
	if e := raw.Control(func(fd uintptr) { ln.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); e != nil {
		return nil, e
	}
	if err != nil {
		return nil, err
	}
	if s.cfg.Backlog > 0 {
		err = unix.Listen(ln.fd, s.cfg.Backlog)
	}
	if err == nil {
		event := unix.EpollEvent{Fd: ln.slot()}
		err = unix.EpollCtl(ln.loop.epfd, unix.EPOLL_CTL_ADD, ln.fd, &event)
	}
	if err != nil {
		unix.Close(ln.fd)
		return nil, err
	}
	s.listeners = append(s.listeners, ln)
	return nl.Addr(), nil
}

func (s *Server) setOptions(fd int) error {
	if n := s.cfg.SendBufferBytes; n > 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, n); err != nil {
			return err
		}
	}
	if n := s.cfg.RecvBufferBytes; n > 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, n); err != nil {
			return err
		}
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1); err != nil {
		return err
	}
	for _, o := range [...]struct{ option, value int }{
		{unix.TCP_NODELAY, 1},
		{unix.TCP_KEEPIDLE, max(1, int(s.cfg.KeepAliveIdle/time.Second))}, {unix.TCP_KEEPINTVL, keepAliveInterval}, {unix.TCP_KEEPCNT, keepAliveCount},
	} {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, o.option, o.value); err != nil {
			return err
		}
	}
	return nil
}

func (ln *listener) slot() int32 { return int32(wakeSlot - 1 - ln.number) }

// arm registers what the listener waits for: EPOLLIN or nothing.
func (ln *listener) arm(events uint32) {
	if ln.fd < 0 {
		return
	}
	event := unix.EpollEvent{Events: events, Fd: ln.slot()}
	if err := unix.EpollCtl(ln.loop.epfd, unix.EPOLL_CTL_MOD, ln.fd, &event); err != nil {
		panic("BUG: epoll_ctl of a listener: " + err.Error())
	}
}

// close closes the socket; on loop 0.
func (ln *listener) close() {
	if ln.fd >= 0 {
		ln.loop.StopTimer(&ln.retry)
		unix.Close(ln.fd)
		ln.fd = -1
	}
}

// accept takes the connections that wait, up to adoptMax; the rest next round.
func (ln *listener) accept() {
	s := ln.server
	for i := range adoptMax {
		if ln.fd < 0 {
			return
		}
		if rest := ln.wait(); rest > 0 {
			s.paced.Add(1)
			ln.arm(0)
			ln.loop.SetTimer(&ln.retry, ln.loop.now+rest)
			return
		}
		if i > 0 && ln.isFull() || ln.restsUntilRoom() {
			return // who still waits after others were accepted is told of again
		}
		fd, remote, err := accept(ln.fd, &ln.peer)
		switch err {
		case 0:
			s.admit(ln, fd, remote)
		case unix.EAGAIN:
			return
		case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM:
			s.acceptErrors.Add(1)
			s.cfg.Logger.Debug("cannot accept", slog.Any("error", err))
			ln.arm(0)
			ln.loop.SetTimer(&ln.retry, ln.loop.now+acceptRetry)
			return
		default: // the peer gave up while it waited
			s.acceptErrors.Add(1)
		}
	}
}

// admit applies the limits to a new socket and gives it to a loop.
func (s *Server) admit(ln *listener, fd int, remote netip.AddrPort) {
	s.pace.take()
	ln.pace.take()
	if !s.limits.enter(remote.Addr()) {
		s.rejectedPerIP.Add(1)
		unix.Close(fd)
		return
	}
	if s.gate != nil {
		if ms := s.gate(remote.Addr()); ms > 0 {
			s.limits.leave(remote.Addr())
			s.refuse(ln.loop, fd, ms)
			return
		}
	}
	s.place(ln, fd, remote)
	s.shed()
}

// place makes the connection of an admitted socket.
func (s *Server) place(ln *listener, fd int, remote netip.AddrPort) {
	s.conns.Add(1)
	ln.conns.Add(1)
	l := s.leastLoaded()
	l.assigned.Add(1)
	c := &Conn{loop: l, id: s.lastID.Add(1), fd: fd, ln: ln, remote: remote}
	if ln.tls != nil {
		c.sec = newSecure(c, ln.tls)
	}
	if l == ln.loop {
		l.adopt(c)
	} else {
		l.Post(taskFunc(func() { l.adopt(c) }))
	}
}
