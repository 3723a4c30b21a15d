package netio

import (
	"cmp"
	"slices"

	"golang.org/x/sys/unix"
)

// What happens at max.connections is Apache Kafka's (KIP-402). A listener that has as many connections as it may, or that is not protected while the
// server has, accepts no more: peers wait in the queue of the kernel until a connection is closed. When there are more than there may be, for a protected
// listener let somebody in or the limit was lowered, those of other listeners are closed that were silent for longest. A limit of a
// listener that is lowered closes nobody.

// restsUntilRoom tells whether there is no room for another connection; then the listener rests until there may be.
func (ln *listener) restsUntilRoom() bool {
	s := ln.server
	if !ln.staysFull() {
		return false
	}
	if rules := s.limits.rules.Load(); over(ln.conns.Load(), rules.of(ln.id).MaxConns) {
		s.fullOwn.Add(1)
	} else {
		s.fullTotal.Add(1)
	}
	ln.full = true
	ln.arm(0)
	return true
}

// staysFull tells whether there is no room, and sees to it that the listener is told when there is.
func (ln *listener) staysFull() bool {
	if !ln.isFull() {
		return false
	}
	ln.server.roomWanted.Store(true)
	return ln.isFull() // again: who closed between the two looks did not see that room is wanted
}

// isFull tells whether the listener may not have another connection now.
func (ln *listener) isFull() bool {
	rules := ln.server.limits.rules.Load()
	own := rules.of(ln.id)
	return over(ln.conns.Load(), own.MaxConns) || !own.Protected && over(ln.server.conns.Load(), rules.MaxConns)
}

// madeRoom has listeners that rest look again. Any goroutine.
func (s *Server) madeRoom() {
	if s.roomWanted.Load() && s.roomWanted.Swap(false) {
		s.loops[0].Post(taskFunc(s.wakeFull))
	}
}

// wakeFull has the listeners that rest try to accept again. On loop 0.
func (s *Server) wakeFull() {
	for _, ln := range s.listeners {
		if ln.full && !ln.staysFull() {
			ln.full = false
			ln.arm(unix.EPOLLIN)
		}
	}
}

// shed closes connections that are too many. Any goroutine.
func (s *Server) shed() {
	if s.excess() > 0 {
		t := &shedding{server: s}
		t.timer.Fn = t.Run
		s.loops[0].Post(t)
	}
}

// excess is how many connections are too many; 0 or less: none.
func (s *Server) excess() int64 {
	most := s.limits.rules.Load().MaxConns
	if most < 0 {
		return 0
	}
	return s.conns.Load() - int64(most)
}

// shedding closes what is too many of the connections of one loop, and then of the next.
type shedding struct {
	server *Server
	loop   int
	timer  Timer
}

// Run implements Task.
func (t *shedding) Run() {
	s := t.server
	n := s.excess()
	if n <= 0 {
		return
	}
	l := s.loops[t.loop]
	victims := l.leastRecent(min(n, closedMax))
	for _, c := range victims {
		c.Close(ErrExcess)
		s.excessClosed.Add(1)
	}
	if len(victims) == closedMax { // there may be more in this one
		l.SetTimer(&t.timer, l.now+1) // in another round, whatever other timers are due in this one
	} else if t.loop++; t.loop < len(s.loops) {
		s.loops[t.loop].Post(t)
	}
}

// leastRecent are up to n connections that may be closed for others: of listeners without protection, those silent for longest first.
func (l *Loop) leastRecent(n int64) []*Conn {
	rules := l.server.limits.rules.Load()
	var all []*Conn
	for _, c := range l.conns {
		if c != nil && !c.closed && !rules.of(c.ln.id).Protected {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *Conn) int { return cmp.Or(cmp.Compare(a.lastActive, b.lastActive), cmp.Compare(a.id, b.id)) })
	return all[:min(n, int64(len(all)))]
}
