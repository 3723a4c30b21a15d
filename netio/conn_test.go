package netio

import "golang.org/x/sys/unix"

func getNodelay(c *Conn) (int, error) {
	return unix.GetsockoptInt(c.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY)
}
