package floor

import (
	"fmt"
	"net"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	readBytes   = 256 << 10
	roomBytes   = 64 << 10  // a receive has at least so much room, or the round ends before
	turnBytes   = 64 << 10  // of sendfile, for one connection before the next has its turn
	stepBytes   = 256 << 20 // by which files are allocated ahead
	topicsMax   = 1 << 10
	partsMax    = 1 << 14  // per topic
	pieceCount  = 256      // of a pwritev
	groupBytes  = 1 << 20  // of batches that one sync covers at most
	sharedBytes = 64 << 20 // of the one file that is synced
)

// Server is a listening floor. It is owned by the goroutine that calls Serve.
type Server struct {
	dir      string
	listener int
	epoll    int
	port     int
	conns    map[int32]*conn
	topics   map[string]*topic
	shared   *partition // set: what is synced, a file that all batches go to
	dirty    bool       // it has whole batches that no sync has covered
	syncs    atomic.Int64
	buf      []byte
	used     int // bytes of buf that hold what was received in this round
	events   [1 << 10]unix.EpollEvent
	writer   writer
	answered []*conn // with something to send at the end of the round
	turns    []*conn // with a sendfile under way
	stop     [2]int  // pipe
}

type topic struct {
	name  string
	parts []*partition
}

// partition is a file of equal batches.
type partition struct {
	path    string
	fd      int   // 0: not yet created
	size    int64 // bytes reserved for batches
	space   int64 // allocated
	each    int64 // bytes of a batch
	records int64 // in a batch
}

func (p *partition) end() int64 {
	if p.each == 0 {
		return 0
	}
	return p.size / p.each * p.records
}

// Listen opens a floor on an IPv4 address (port 0: any) with its files in dir.
func Listen(address, dir string) (*Server, error) {
	tcp, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, conns: map[int32]*conn{}, topics: map[string]*topic{}, buf: make([]byte, readBytes)}
	if s.listener, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
		return nil, err
	}
	to := &unix.SockaddrInet4{Port: tcp.Port}
	copy(to.Addr[:], tcp.IP.To4())
	err = unix.SetsockoptInt(s.listener, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err == nil {
		err = unix.Bind(s.listener, to)
	}
	if err == nil {
		err = unix.Listen(s.listener, 4096)
	}
	if err == nil {
		s.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	}
	if err == nil {
		err = unix.Pipe2(s.stop[:], unix.O_CLOEXEC|unix.O_NONBLOCK)
	}
	for _, fd := range []int{s.listener, s.stop[0]} {
		if err == nil {
			err = unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
		}
	}
	if err != nil {
		unix.Close(s.listener)
		return nil, fmt.Errorf("floor: listen on %s: %w", address, err)
	}
	name, err := unix.Getsockname(s.listener)
	if a, ok := name.(*unix.SockaddrInet4); ok {
		s.port = a.Port
	}
	return s, err
}

// ListenSynced opens a floor that answers a Produce when it is durable: see the package's comment.
func ListenSynced(address, dir string) (*Server, error) {
	return listenSynced(address, dir, sharedBytes)
}

func listenSynced(address, dir string, size int64) (*Server, error) {
	s, err := Listen(address, dir)
	if err != nil {
		return nil, err
	}
	s.buf = make([]byte, groupBytes+roomBytes)
	s.shared = &partition{path: filepath.Join(dir, "shared.log")}
	if err := s.shared.zero(size); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// Address is where the floor listens.
func (s *Server) Address() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// Syncs is how many times a floor of ListenSynced has synced batches.
func (s *Server) Syncs() int64 { return s.syncs.Load() }

// Stop makes Serve return. It may be called from any goroutine, once.
func (s *Server) Stop() error {
	_, err := unix.Write(s.stop[1], []byte{0})
	return err
}

// Serve runs until Stop or a failed write, and then closes everything. The files stay.
func (s *Server) Serve() error {
	defer s.close()
	for {
		pause := -1
		if len(s.turns) > 0 || s.gathering() {
			pause = 0
		}
		n, err := unix.EpollWait(s.epoll, s.events[:], pause)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		for i := range s.events[:n] {
			ev := &s.events[i]
			switch int(ev.Fd) {
			case s.stop[0]:
				return nil
			case s.listener:
				s.accept()
			default:
				if c := s.conns[ev.Fd]; c != nil {
					if err := s.ready(c, ev.Events); err != nil {
						return err
					}
				}
			}
		}
		if n > 0 && s.gathering() {
			continue // there may be more by now, for the same sync
		}
		if err := s.endRound(); err != nil {
			return err
		}
		s.sendTurns()
	}
}

// gathering tells whether batches wait for a sync.
func (s *Server) gathering() bool { return s.shared != nil && len(s.answered) > 0 }

func (s *Server) accept() {
	for {
		fd, _, err := unix.Accept4(s.listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		if err != nil {
			return // EAGAIN, or a peer that is gone already
		}
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(fd)}
		if unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, fd, &ev) != nil {
			unix.Close(fd)
			continue
		}
		s.conns[int32(fd)] = &conn{fd: fd}
	}
}

func (s *Server) drop(c *conn) {
	delete(s.conns, int32(c.fd))
	unix.Close(c.fd)
	c.fd, c.left = -1, 0
}

func (s *Server) close() {
	for _, c := range s.conns {
		unix.Close(c.fd)
	}
	if s.shared != nil && s.shared.fd > 0 {
		unix.Close(s.shared.fd)
	}
	for _, t := range s.topics {
		for _, p := range t.parts {
			if p.fd > 0 {
				unix.Close(p.fd)
			}
		}
	}
	for _, fd := range []int{s.listener, s.epoll, s.stop[0], s.stop[1]} {
		unix.Close(fd)
	}
}

func (s *Server) create(name string, parts int) *topic {
	t := s.topics[name]
	if t == nil && len(s.topics) < topicsMax && parts <= partsMax && name == filepath.Base(name) {
		t = &topic{name: name}
		for i := range parts {
			t.parts = append(t.parts, &partition{path: filepath.Join(s.dir, fmt.Sprintf("%s-%d.log", name, i))})
		}
		s.topics[name] = t
	}
	return t
}

// open makes the file, if need be.
func (p *partition) open() (err error) {
	if p.fd == 0 {
		p.fd, err = unix.Open(p.path, unix.O_RDWR|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC, 0o644)
	}
	return err
}

// zero writes n zeros and syncs them, so that later syncs are of data alone.
func (p *partition) zero(n int64) error {
	if err := p.open(); err != nil {
		return err
	}
	zeros := make([]byte, 1<<20)
	for p.space < n {
		w, err := unix.Pwrite(p.fd, zeros[:min(n-p.space, int64(len(zeros)))], p.space)
		if err != nil {
			return err
		}
		p.space += int64(w)
	}
	return unix.Fsync(p.fd)
}

// reserve takes n bytes for a batch: at the end of the partition's file, or somewhere in the one that is synced. base is the batch's offset.
func (s *Server) reserve(p *partition, n int64) (to *partition, at, base int64, err error) {
	base = p.end()
	if s.shared != nil {
		p.size += n
		if s.shared.size+n > s.shared.space {
			s.shared.size = 0
		}
		p = s.shared
	} else if err := p.room(n); err != nil {
		return nil, 0, 0, err
	}
	at = p.size
	p.size += n
	return p, at, base, nil
}

// room allocates the file for n more bytes.
func (p *partition) room(n int64) error {
	if err := p.open(); err != nil {
		return err
	}
	for p.size+n > p.space {
		if err := unix.Fallocate(p.fd, 0, p.space, stepBytes); err != nil {
			return err
		}
		p.space += stepBytes
	}
	return nil
}
