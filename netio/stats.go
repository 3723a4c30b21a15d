package netio

import "sync/atomic"

// Stats are counters since the start, of all loops together. Those of traffic are
// brought up to date at the end of each round.
type Stats struct {
	Conns             int64 // open now
	Opened            int64
	Closed            int64
	FullTotal         int64 // times that accepting rested because there were MaxConns of all
	FullListener      int64 // likewise MaxConns of a listener
	ExcessClosed      int64 // closed because there were more than MaxConns of all
	Paced             int64 // times that accepting rested to keep to ConnsPerSecond
	RejectedPerIP     int64 // over MaxConnsPerIP
	RejectedGate      int64 // refused by the Gate
	AcceptErrors      int64 // no descriptors left, and the like
	IdleClosed        int64
	Handshakes        int64 // of TLS, done
	HandshakeFailures int64 // of TLS: refused, broken off or too slow
	BadFrames         int64 // sizes that are not positive or over MaxFrameBytes
	Panics            int64 // of Handler.Opened and Handler.Frame
	Pauses            int64 // connections not read because too much was outstanding
	HeldRequests      int64 // bytes of requests not yet answered, partial ones included
	HeldReplies       int64 // bytes of memory of answers not yet read
	Starved           int64 // times a connection was not read because the budget was used up
	ColdReads         int64 // times that a file slice was not in the page cache, or was not trusted to be, and a worker read it
	ColdGone          int64 // times that what a worker had read was gone again when it was to be sent
	Frames            int64
	BytesIn           int64
	BytesOut          int64
	Rounds            int64
	Wakes             int64 // writes of an eventfd
}

// loopStats are written by one loop (wakes: by posters) and read by anyone.
type loopStats struct {
	opened, closed, idleClosed, badFrames, panics, pauses atomic.Int64
	frames, bytesIn, bytesOut, rounds, wakes              atomic.Int64
	handshakes, handshakeFailures                         atomic.Int64
	heldRequests, heldReplies, starved                    atomic.Int64
	coldReads, coldGones                                  atomic.Int64
}

// publish adds what the round counted: a few atomic operations per round, none
// per frame.
func (s *loopStats) publish(l *Loop) {
	s.rounds.Add(1)
	if b := &l.budget; b.requests != s.heldRequests.Load() || b.replies != s.heldReplies.Load() {
		s.show(b)
	}
	if l.bytesIn > 0 {
		s.bytesIn.Add(l.bytesIn)
	}
	if l.frames > 0 {
		s.frames.Add(l.frames)
	}
	if l.bytesOut > 0 {
		s.bytesOut.Add(l.bytesOut)
	}
	l.frames, l.bytesIn, l.bytesOut = 0, 0, 0
}

// show publishes what the loop of b holds.
func (s *loopStats) show(b *budget) {
	s.heldRequests.Store(b.requests)
	s.heldReplies.Store(b.replies)
	b.shown = b.requests + b.replies
}

// Stats adds up the counters of all loops. Any goroutine; takes no lock.
func (s *Server) Stats() Stats {
	st := Stats{
		FullTotal: s.fullTotal.Load(), FullListener: s.fullOwn.Load(), ExcessClosed: s.excessClosed.Load(), RejectedPerIP: s.rejectedPerIP.Load(), AcceptErrors: s.acceptErrors.Load(),
		RejectedGate: s.rejectedGate.Load(), Paced: s.paced.Load(),
		Conns: s.conns.Load(),
	}
	for _, l := range s.loops {
		st.Opened += l.stats.opened.Load()
		st.Closed += l.stats.closed.Load()
		st.IdleClosed += l.stats.idleClosed.Load()
		st.Handshakes += l.stats.handshakes.Load()
		st.HandshakeFailures += l.stats.handshakeFailures.Load()
		st.BadFrames += l.stats.badFrames.Load()
		st.Panics += l.stats.panics.Load()
		st.Pauses += l.stats.pauses.Load()
		st.HeldRequests += l.stats.heldRequests.Load()
		st.HeldReplies += l.stats.heldReplies.Load()
		st.Starved += l.stats.starved.Load()
		st.ColdReads += l.stats.coldReads.Load()
		st.ColdGone += l.stats.coldGones.Load()
		st.Frames += l.stats.frames.Load()
		st.BytesIn += l.stats.bytesIn.Load()
		st.BytesOut += l.stats.bytesOut.Load()
		st.Rounds += l.stats.rounds.Load()
		st.Wakes += l.stats.wakes.Load()
	}
	return st
}
