package netio

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The wrappers of x/sys/unix build iovec slices and socket addresses per call;
// these take memory that the loop owns, so that a request allocates nothing.
// RawSyscall for those that never block was tried: no difference in the echo and
// receive benchmarks, so the scheduler may as well know.

// accept takes one waiting connection, non-blocking; peer is scratch.
func accept(fd int, peer *unix.RawSockaddrAny) (int, netip.AddrPort, unix.Errno) {
	size := uint32(unix.SizeofSockaddrAny)
	n, _, e := unix.Syscall6(unix.SYS_ACCEPT4, uintptr(fd), uintptr(unsafe.Pointer(peer)), uintptr(unsafe.Pointer(&size)),
		unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	if e != 0 {
		return -1, netip.AddrPort{}, e
	}
	return int(n), addrPort(peer), 0
}

// localAddr is the address that a socket is bound to.
func localAddr(fd int) (netip.AddrPort, unix.Errno) {
	var a unix.RawSockaddrAny
	size := uint32(unix.SizeofSockaddrAny)
	_, _, e := unix.Syscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(unsafe.Pointer(&a)), uintptr(unsafe.Pointer(&size)))
	return addrPort(&a), e
}

// addrPort reads a socket address of the kernel; IPv4 in IPv6 becomes IPv4.
func addrPort(sa *unix.RawSockaddrAny) netip.AddrPort {
	switch sa.Addr.Family {
	case unix.AF_INET:
		a := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), networkOrder(a.Port))
	case unix.AF_INET6:
		a := (*unix.RawSockaddrInet6)(unsafe.Pointer(sa))
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), networkOrder(a.Port))
	}
	return netip.AddrPort{}
}

// networkOrder reads a port as the kernel keeps it in a socket address.
func networkOrder(port uint16) uint16 { return port>>8 | port<<8 }

// recv reads once from a non-blocking socket.
func recv(fd int, b []byte) (int, unix.Errno) {
	n, _, e := unix.Syscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0, 0, 0)
	return int(n), e
}

// readv reads once into the buffers of iov, in order.
func readv(fd int, iov []unix.Iovec) (int, unix.Errno) {
	n, _, e := unix.Syscall(unix.SYS_READV, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(iov))), uintptr(len(iov)))
	return int(n), e
}

// send writes the buffers of iov once. more says that a file slice follows, so
// that the header of a reply and its first bytes share a segment. hdr is scratch.
func send(fd int, iov []unix.Iovec, more bool, hdr *unix.Msghdr) (int, unix.Errno) {
	flags := uintptr(unix.MSG_NOSIGNAL)
	if more {
		flags |= unix.MSG_MORE
	}
	if len(iov) == 1 {
		n, _, e := unix.Syscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(iov[0].Base)), uintptr(iov[0].Len), flags, 0, 0)
		return int(n), e
	}
	hdr.Iov = unsafe.SliceData(iov)
	hdr.Iovlen = uint64(len(iov))
	n, _, e := unix.Syscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(hdr)), flags)
	hdr.Iov = nil
	return int(n), e
}

// sendfile sends up to n bytes of file from *pos, and moves *pos.
func sendfile(fd, file int, pos *int64, n int) (int, unix.Errno) {
	w, _, e := unix.Syscall6(unix.SYS_SENDFILE, uintptr(fd), uintptr(file), uintptr(unsafe.Pointer(pos)), uintptr(n), 0, 0)
	return int(w), e
}

// preadv2 reads once from a place of a file into the buffers of iov, in order.
func preadv2(fd int, iov []unix.Iovec, pos int64, flags int) (int, unix.Errno) {
	n, _, e := unix.Syscall6(unix.SYS_PREADV2, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(iov))), uintptr(len(iov)), uintptr(pos), 0, uintptr(flags))
	if e != 0 {
		return 0, e
	}
	return int(n), 0
}

// epollWait waits up to timeout milliseconds (-1: without end).
func epollWait(epfd int, events []unix.EpollEvent, timeout int) (int, unix.Errno) {
	n, _, e := unix.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(epfd), uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), uintptr(timeout), 0, 0)
	return int(n), e
}

// unread is the number of received bytes not yet read from a socket.
func unread(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.SIOCINQ)
	if err != nil {
		return 0
	}
	return n
}

// socketError takes the pending error of a socket; nil if there is none.
func socketError(fd int) error {
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return err
	}
	if n == 0 {
		return nil
	}
	return unix.Errno(n)
}
