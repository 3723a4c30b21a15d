package netio

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
)

// Limits bound connections. Below 0 means no limit everywhere; 0 lets nobody in.
type Limits struct {
	MaxConns       int            // max.connections (package: room.go)
	MaxConnsPerIP  int            // max.connections.per.ip
	PerIPOverrides map[string]int // max.connections.per.ip.overrides: address or host name
	ConnsPerSecond int            // max.connection.creation.rate; those above it wait to be accepted
	// Listeners have limits of their own, by the id given to Listen.
	Listeners map[int]ListenerLimits
}

// ListenerLimits bound the connections of one listener.
type ListenerLimits struct {
	MaxConns       int // listener.name.NAME.max.connections
	ConnsPerSecond int // listener.name.NAME.max.connection.creation.rate
	// Protected: MaxConns and ConnsPerSecond of all together do not keep its peers out, though they count: the listener between brokers
	// beside others, as in Apache Kafka (KIP-402, KIP-612).
	Protected bool
}

// NoLimits are those of a Server before SetLimits.
func NoLimits() Limits { return Limits{MaxConns: -1, MaxConnsPerIP: -1, ConnsPerSecond: -1} }

// connLimits counts connections per address and knows how many there may be.
type connLimits struct {
	rules atomic.Pointer[limitRules]

	mu     sync.Mutex // guards counts
	counts map[netip.Addr]int
}

// limitRules are the limits in force; immutable.
type limitRules struct {
	Limits
	overrides map[netip.Addr]int // PerIPOverrides, resolved
}

// of are the limits of the listener with an id.
func (r *limitRules) of(id int32) ListenerLimits {
	if own, ok := r.Listeners[int(id)]; ok {
		return own
	}
	return ListenerLimits{MaxConns: -1, ConnsPerSecond: -1}
}

// over tells whether n reaches a limit.
func over(n int64, limit int) bool { return limit >= 0 && n >= int64(limit) }

// SetLimits changes the limits of connections. Who is beyond a new MaxConns is closed; what is bounded otherwise stays open. Any goroutine may
// call it; it may look host names up, and changes nothing when one is not known.
func (s *Server) SetLimits(limits Limits) error {
	r := &limitRules{Limits: limits, overrides: map[netip.Addr]int{}}
	for host, n := range limits.PerIPOverrides {
		a, err := net.ResolveIPAddr("ip", host)
		if err != nil {
			return fmt.Errorf("netio: connections per address: %w", err)
		}
		addr, _ := netip.AddrFromSlice(a.IP)
		r.overrides[addr.Unmap()] = n
	}
	s.limits.rules.Store(r)
	s.madeRoom()
	s.shed()
	return nil
}

// enter counts a connection from a; false: there are too many.
func (p *connLimits) enter(a netip.Addr) bool {
	rules := p.rules.Load()
	limit, ok := rules.overrides[a]
	if !ok {
		limit = rules.MaxConnsPerIP
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if over(int64(p.counts[a]), limit) {
		return false
	}
	p.counts[a]++
	return true
}

func (p *connLimits) leave(a netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.counts[a]--; p.counts[a] <= 0 {
		delete(p.counts, a)
	}
}

// leave ends the counting of a connection that was accepted.
func (s *Server) leave(c *Conn) {
	s.conns.Add(-1)
	c.ln.conns.Add(-1)
	s.madeRoom()
	c.loop.assigned.Add(-1)
	s.limits.leave(c.remote.Addr())
}

// paceBurst is how many seconds' worth of connections may come at once after a quiet time: Apache Kafka measures the rate over a window
// of about that (quota.window.num and quota.window.size.seconds, KIP-612).
const paceBurst = 10

// pace is a bucket of connections that may be accepted, filled with the passing of time.
type pace struct {
	rate  int
	level float64
	at    int64 // ms, when level was true
}

// wait is the time, in ms, until another connection may be accepted at this rate; 0: now.
func (p *pace) wait(now int64, rate int) int64 {
	if rate < 0 {
		p.at = 0 // begin anew when there is a rate again
		return 0
	}
	if most := float64(rate) * paceBurst; p.at == 0 || p.rate != rate {
		p.rate, p.level, p.at = rate, most, now
	} else {
		p.level = min(most, p.level+float64(now-p.at)*float64(rate)/1000)
		p.at = now
	}
	switch {
	case p.level >= 1:
		return 0
	case rate == 0:
		return acceptRetry // whether it still is
	}
	return max(1, min(int64((1-p.level)*1000/float64(rate)), acceptRetry))
}

// take counts an accepted connection.
func (p *pace) take() { p.level-- }

// wait is the time, in ms, that the listener must rest before it accepts another connection.
func (ln *listener) wait() int64 {
	s, now := ln.server, ln.loop.now
	rules := s.limits.rules.Load()
	own := rules.of(ln.id)
	rest := ln.pace.wait(now, own.ConnsPerSecond)
	if !own.Protected {
		rest = max(rest, s.pace.wait(now, rules.ConnsPerSecond))
	}
	return rest
}

// leastLoaded is the loop that a new connection goes to: the one with the fewest, the next in turn among equals. A connection never
// moves, so this is what evens out loops after many connections of one have ended.
func (s *Server) leastLoaded() *Loop {
	n := len(s.loops)
	best := s.loops[s.nextLoop]
	for i := 1; i < n; i++ {
		if l := s.loops[(s.nextLoop+i)%n]; l.assigned.Load() < best.assigned.Load() {
			best = l
		}
	}
	s.nextLoop = (best.index + 1) % n
	return best
}
