package api

import (
	"crypto/x509/pkix"
	"encoding/asn1"
	"net"
	"net/netip"
	"reflect"
	"time"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/netio"
	"kaas/server/catalog"
	"kaas/server/quota"
	"kaas/server/topics"
)

// A client over its quota is answered at once, told for how long it is throttled, and its connection is not read for that time (KIP-219,
// regression 69). While no quota of users and client ids is set, all that this costs a request is a look at a pointer.
//
// Bytes of Produce are charged when a request arrives, those of Fetch when it is answered. The time of the processor that a request
// took is charged when its handler has returned, and throttles the client's next request.
//
// Deviation: Apache throttles the request itself whose time was too much.
// Deviation: time is that of the event loop in the handler, or of the worker; operations on groups and the sending of file slices are
// not in it.
// Deviation: connections are muted from the arrival of a Produce, not from its answer; under group-commit that is a sync earlier.

// usage is what a connection has to do with quotas; made with its first request while any is set.
type usage struct {
	conn   *netio.Conn
	user   string
	client quota.Client
	timer  netio.Timer // ends the mute
	until  int64       // ms on the loop's clock
}

// usage returns that of a connection, with the limits of now.
func (s *Service) usage(c *netio.Conn, cs *connState, rules *quota.Rules, clientID string, now int64) *usage {
	if cs.usage == nil {
		u := &usage{conn: c, user: userOf(c)}
		u.timer.Fn = u.conn.Resume
		cs.usage = u
	}
	s.quotas.Update(&cs.usage.client, rules, cs.usage.user, clientID, now)
	return cs.usage
}

// userOf is the name of the user on the other side: the subject of his certificate, or ANONYMOUS.
func userOf(c *netio.Conn) string {
	state, ok := c.TLS()
	if !ok || len(state.PeerCertificates) == 0 {
		return anonymousName
	}
	var subject pkix.RDNSequence
	if _, err := asn1.Unmarshal(state.PeerCertificates[0].RawSubject, &subject); err != nil {
		return anonymousName
	}
	return subject.String()
}

// metered is serve for a time in which quotas are set.
func (s *Service) metered(c *netio.Conn, cs *connState, h *handler, head *wire.RequestHeader, body []byte, rules *quota.Rules) {
	ls := cs.ls
	ls.metered = s.usage(c, cs, rules, head.ClientID.String, s.now())
	defer func() { ls.metered = nil }()
	if !ls.metered.client.Limited(quota.Request) {
		s.serve(c, cs, h, head, body)
		return
	}
	began := time.Now()
	s.serve(c, cs, h, head, body)
	ls.gather.flush() // what it costs to append is its own
	ls.metered.client.Spend(int64(time.Since(began)), s.now())
}

// owed is how long the answer to the request being served is to say that its client is throttled, for time spent before; its
// connection is muted for as long.
func (s *Service) owed(ls *loopState) int32 {
	if ls.metered == nil {
		return 0
	}
	return s.mute(ls.metered, quota.Request, ls.metered.client.Owed(s.now()))
}

// owedByProduce is owed for a Produce, with what it brings. One with acks=0 pays for its bytes alone, for its client learns nothing.
func (s *Service) owedByProduce(ls *loopState, bytes int, silent bool) int32 {
	if ls.metered == nil {
		return 0
	}
	now := s.now()
	ms, kind := ls.metered.client.Charge(quota.Produce, float64(bytes), now), quota.Produce
	if !silent {
		if other := ls.metered.client.Owed(now); other >= ms {
			ms, kind = other, quota.Request
		}
	}
	return s.mute(ls.metered, kind, ms)
}

// mute stops reading a connection for some ms, if it was not to be muted for longer anyway, and returns them.
func (s *Service) mute(u *usage, kind quota.Kind, ms int64) int32 {
	if ms <= 0 || u.conn.Closed() {
		return 0
	}
	s.quotas.Throttled(kind, ms)
	l := u.conn.Loop()
	if at := l.Now() + ms; !u.timer.Set() || at > u.until {
		if !u.timer.Set() {
			u.conn.Hold()
		}
		u.until = at
		l.SetTimer(&u.timer, at)
	}
	return int32(ms)
}

// muteTask mutes a connection from another goroutine than its loop.
type muteTask struct {
	s    *Service
	conn *netio.Conn
	ms   int64
}

// Run implements netio.Task.
func (t *muteTask) Run() {
	if u := t.conn.Data.(*connState).usage; u != nil {
		t.s.mute(u, quota.Mutation, t.ms)
	}
}

// admit charges a request for partitions that it makes or removes, and refuses it when its client is in debt. Versions before strictFrom do
// not know the code for that (89): they are served and throttled (KIP-599). On a worker.
func (c *call) admit(strictFrom int16) topics.Admit {
	if c.payer == nil {
		return nil
	}
	return func(partitions int) bool {
		ok, ms := c.payer.Mutate(partitions, c.version() >= strictFrom, c.s.now())
		c.mutationMs = max(c.mutationMs, ms)
		return ok
	}
}

// paid serves a request on a worker and charges the time.
func (c *call) paid(serve func(*call)) {
	if c.payer == nil || !c.payer.Limited(quota.Request) {
		serve(c)
		return
	}
	began := time.Now()
	defer func() { c.payer.Spend(int64(time.Since(began)), c.s.now()) }()
	serve(c)
}

// throttled writes how long the client is throttled into an answer.
func (c *call) throttled(m api.Message) {
	if c.mutationMs > 0 {
		c.conn.Loop().Post(&muteTask{c.s, c.conn, c.mutationMs})
	}
	if ms := max(int64(c.throttleMs), c.mutationMs); ms > 0 {
		if f := reflect.ValueOf(m).Elem().FieldByName("ThrottleTimeMs"); f.IsValid() {
			f.SetInt(ms)
		}
	}
}

// charge charges a Fetch for the answer that is about to be made, and says whether it is throttled: then there is no data in the answer,
// and it is not charged.
func (op *fetchOp) charge() bool {
	u := op.conn.Data.(*connState).usage
	if !u.client.Limited(quota.Consume) {
		return false
	}
	bytes, now := float64(op.weight()), op.s.now()
	ms := u.client.Charge(quota.Consume, bytes, now)
	if ms == 0 {
		return false
	}
	u.client.Return(quota.Consume, bytes, now)
	op.throttleMs = max(op.throttleMs, op.s.mute(u, quota.Consume, ms))
	return true
}

// Bytes of a Fetch response beside records, about: of the whole, and of each partition with records.
const (
	fetchHeadBytes      = 24
	fetchPartitionBytes = 48
)

// weight is how many bytes the answer to a Fetch will have, about.
func (op *fetchOp) weight() int {
	n := fetchHeadBytes
	for i := range op.parts {
		if size := op.parts[i].slice.Len; size > 0 {
			n += size + fetchPartitionBytes
		}
	}
	return n
}

// answerThrottled answers a Fetch without data. A session that it was to begin is not begun.
func (op *fetchOp) answerThrottled() {
	op.dropSlices()
	if op.session != nil && op.full {
		op.s.sessions.Remove(op.session.ID)
		op.session = nil
	}
	clear(op.parts)
	op.parts = op.parts[:0]
	op.resp.Default()
	op.resp.Responses = op.resp.Responses[:0]
	op.resp.ThrottleTimeMs = op.throttleMs
	if op.session != nil {
		op.resp.SessionId = op.session.ID
	}
	op.send()
}

// Connected counts a new connection from an address; above 0 it is over connection_creation_rate, and to be closed after so many ms: for
// netio.Server.SetGate.
func (s *Service) Connected(peer netip.Addr) (delayMs int64) {
	if !s.quotas.Addresses() {
		return 0
	}
	return s.quotas.Connect(peer, s.now())
}

// setQuotas puts the quotas of the catalog in force.
func (s *Service) setQuotas(all []*catalog.Quota) {
	limits := make([]quota.Limits, 0, len(all))
	for _, q := range all {
		l := quota.Limits{Values: q.Values}
		for _, e := range q.Entity {
			n := quota.Name{Given: true, Default: e.Default, Text: e.Name}
			switch e.Type {
			case quota.TypeUser:
				l.Entity.User = n
			case quota.TypeClientID:
				l.Entity.ClientID = n
			case quota.TypeIP:
				n.Text = s.addressOf(n)
				l.Entity.IP = n
			}
		}
		limits = append(limits, l)
	}
	s.quotas.Set(limits)
}

// addressOf is the address of a host for which there is a quota; one that is not known (any more) limits nobody.
func (s *Service) addressOf(n quota.Name) string {
	if _, err := netip.ParseAddr(n.Text); n.Default || err == nil {
		return n.Text
	}
	a, err := net.ResolveIPAddr("ip", n.Text)
	if err != nil {
		s.log.Warn("a quota of new connections is not in force", "host", n.Text, "error", err)
		return n.Text
	}
	return a.IP.String()
}
