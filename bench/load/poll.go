package load

import (
	"errors"
	"fmt"
	"net"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const readBytes = 256 << 10 // one hot buffer for all connections

// poller is an epoll instance with the buffers of the loop that owns it. Its socket calls do not block and so go
// past the Go scheduler (RawSyscall); only wait may block.
type poller struct {
	fd     int
	events [256]unix.EpollEvent
	buf    []byte
	iov    [64]unix.Iovec
	base   time.Time
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return &poller{fd: fd, buf: make([]byte, readBytes), base: time.Now()}, nil
}

// now is the time since the poller was made, in nanoseconds.
func (p *poller) now() int64 { return int64(time.Since(p.base)) }

// connect opens a connection and adds it to the poller under the given index.
func (p *poller) connect(address string, index int) (int, error) {
	fd, err := connect(address)
	if err != nil {
		return -1, err
	}
	err = unix.SetNonblock(fd, true)
	if err == nil {
		ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(index)}
		err = unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &ev)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// connect opens a blocking TCP connection without Nagle's delay.
func connect(address string) (int, error) {
	tcp, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return -1, err
	}
	var to unix.Sockaddr
	family := unix.AF_INET
	if ip := tcp.IP.To4(); ip != nil {
		to = &unix.SockaddrInet4{Port: tcp.Port, Addr: [4]byte(ip)}
	} else {
		family = unix.AF_INET6
		to = &unix.SockaddrInet6{Port: tcp.Port, Addr: [16]byte(tcp.IP.To16())}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Connect(fd, to); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("connect to %s: %w", address, err)
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// wait returns how many of p.events are set, after at most the given number of nanoseconds.
func (p *poller) wait(nanoseconds int64) (int, error) {
	timeout := unix.NsecToTimespec(max(nanoseconds, 0))
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events[0])),
		uintptr(len(p.events)), uintptr(unsafe.Pointer(&timeout)), 0, 0)
	switch errno {
	case 0:
		return int(n), nil
	case unix.EINTR:
		return 0, nil
	}
	return 0, errno
}

var errClosed = errors.New("the broker closed the connection")

// recv reads into b; with drop it discards up to drop bytes instead. more is false when the socket has been drained.
func recv(fd int, b []byte, drop int) (n int, more bool, err error) {
	var r uintptr
	var errno unix.Errno
	want := len(b)
	if drop > 0 {
		want = drop
		r, _, errno = unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), 0, uintptr(want), unix.MSG_TRUNC, 0, 0)
	} else {
		r, _, errno = unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(want), 0, 0, 0)
	}
	switch {
	case errno == unix.EAGAIN:
		return 0, false, nil
	case errno == unix.EINTR:
		return 0, true, nil
	case errno != 0:
		return 0, false, errno
	case r == 0:
		return 0, false, errClosed
	}
	return int(r), int(r) == want, nil
}

// writev sends the first n of p.iov; 0 means that the socket is full.
func (p *poller) writev(fd, n int) (int, error) {
	for {
		r, _, errno := unix.RawSyscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&p.iov[0])), uintptr(n))
		switch errno {
		case 0:
			return int(r), nil
		case unix.EAGAIN:
			return 0, nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

func (p *poller) setIov(i int, b []byte) {
	p.iov[i].Base = &b[0]
	p.iov[i].SetLen(len(b))
}
