package netio

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// delayedMax bounds the connections that are kept open, unread, only to be closed later; more are closed at once.
const delayedMax = 1024

// Gate is asked about each new connection that the limits let in; above 0 it is one too many, and is closed after so many ms, so that its
// peer does not come again at once (KIP-612). It is called on the loop that accepts and must not block.
type Gate func(peer netip.Addr) (delayMs int64)

// SetGate sets the gate; before Start only.
func (s *Server) SetGate(g Gate) { s.gate = g }

// delayed is a socket that waits to be closed. It belongs to the loop that accepts.
type delayed struct {
	server *Server
	fd     int
	timer  Timer
}

func (d *delayed) close() {
	unix.Close(d.fd)
	delete(d.server.delayed, d)
}

// refuse closes a new socket, later if the gate wants that.
func (s *Server) refuse(l *Loop, fd int, delayMs int64) {
	s.rejectedGate.Add(1)
	if len(s.delayed) >= delayedMax {
		unix.Close(fd)
		return
	}
	d := &delayed{server: s, fd: fd}
	d.timer.Fn = d.close
	s.delayed[d] = struct{}{}
	l.SetTimer(&d.timer, l.now+delayMs)
}

// closeDelayed closes what waits to be closed; on the loop that accepts.
func (s *Server) closeDelayed(l *Loop) {
	for d := range s.delayed {
		l.StopTimer(&d.timer)
		d.close()
	}
}
