package netio

// A large frame takes a loop a millisecond or more: it is copied, checked and written. So events of connections whose frames are small are
// served first, and of the others only until roundBytes have come in, one at least; then the loop answers and looks at its sockets again.
// A small request waits for one large frame at most and not for one of each connection; that costs a system call for each
// large one. Those that were left have their turn by the number of their slot, in a circle: epoll would name the same ones first again.

// serve handles n events of epoll.
func (l *Loop) serve(n int) {
	l.large = l.large[:0]
	for i := range l.events[:n] {
		if e := &l.events[i]; e.Fd >= 0 && l.sendsLarge(e.Fd) {
			l.large = append(l.large, i)
		} else {
			l.event(e)
		}
	}
	for before := l.bytesIn; len(l.large) > 0 && l.bytesIn-before < roundBytes; {
		at := l.nextLarge()
		e := &l.events[l.large[at]]
		l.lastLarge = e.Fd
		l.large[at] = l.large[len(l.large)-1]
		l.large = l.large[:len(l.large)-1]
		l.event(e)
	}
}

// sendsLarge tells whether the connection in a slot sends frames that are read in one piece.
func (l *Loop) sendsLarge(slot int32) bool {
	c := l.conns[slot]
	return c != nil && c.lastFrame >= lowWaterMin
}

// nextLarge is the place in l.large of the slot that follows lastLarge, in a circle.
func (l *Loop) nextLarge() int {
	next := 0
	for i := range l.large {
		// As numbers without a sign, those up to lastLarge come after the others.
		if uint32(l.events[l.large[i]].Fd-l.lastLarge-1) < uint32(l.events[l.large[next]].Fd-l.lastLarge-1) {
			next = i
		}
	}
	return next
}
