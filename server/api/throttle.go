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
// Bytes of Produce are charged when a request arrives, those of Fetch when it is answered. Time (request_percentage, KIP-124) is charged
// as in Apache Kafka: up to the answer that of whoever works on the request, which throttles the request itself; then that of the
// network, from the arrival of its bytes to the last one sent of its answer, file slices and encryption included, which throttles the next. It is the time that
// goes by, not that of the processor: who waits for a lock or a page pays for it. Waits that nobody is busy with cost nothing: a long poll, a rebalance, a sync
// of the disk.
//
// Exempt, as in Apache Kafka: a Produce with acks=0 (its bytes are charged) and WriteTxnMarkers.
//
// Deviation: the records that operations on groups and transactions leave are written once for all operations of a round; nobody pays for that write.
// Deviation: what an operation on several shards did in the last of them is charged after its answer, and throttles the next request.
// Deviation: connections are muted from the end of the append of a Produce, not from its answer; under group-commit that is a sync earlier.

// usage is what a connection has to do with quotas; made with its first request while any is set.
type usage struct {
	conn  *netio.Conn
	user  string
	bill  bill        // for what the loop does
	timer netio.Timer // ends the mute
	until int64       // ms on the loop's clock
}

// bill charges a client for the time of a request. Where requests go on elsewhere, each has its own. A nil one charges nobody.
type bill struct {
	s      *Service
	client quota.Client
	since  time.Time // when the work began that is not yet charged; zero: nobody works
	exempt bool      // the request is: its time is only counted
}

// begin starts the clock. Only who works on the request alone may use it; others use clock and charge.
func (b *bill) begin() {
	if b != nil {
		b.since = b.clock()
	}
}

// clock is the time now, zero if nobody pays for it.
func (b *bill) clock() (t time.Time) {
	if b != nil && b.client.Limited(quota.Request) {
		t = time.Now()
	}
	return t
}

// charge charges the time since clock.
func (b *bill) charge(since time.Time) {
	if since.IsZero() {
		return
	}
	b.spend(int64(time.Since(since)))
}

func (b *bill) spend(nanos int64) {
	part := quota.InHandler
	if b.exempt {
		part = quota.Exempt
	}
	b.client.Spend(part, nanos, b.s.now())
}

// pay charges the time since begin, or since it was last charged.
func (b *bill) pay() {
	if b == nil || b.since.IsZero() {
		return
	}
	now := time.Now()
	b.spend(int64(now.Sub(b.since)))
	b.since = now
}

// end charges the rest and stops the clock.
func (b *bill) end() {
	if b != nil {
		b.pay()
		b.since = time.Time{}
	}
}

// owed charges the time up to now, for the answer is about to be made, and is for how many ms the client is to be throttled for all its time.
func (b *bill) owed() int64 {
	if b == nil || b.exempt {
		return 0
	}
	b.pay()
	return b.client.Owed(b.s.now())
}

// copy is a bill of the same client for work elsewhere.
func (b *bill) copy() *bill {
	if b == nil {
		return nil
	}
	return &bill{s: b.s, client: b.client, exempt: b.exempt}
}

// usage returns that of a connection, with the limits of now.
func (s *Service) usage(c *netio.Conn, cs *connState, rules *quota.Rules, clientID string, now int64) *usage {
	if cs.usage == nil {
		u := &usage{conn: c, user: userOf(c), bill: bill{s: s}}
		u.timer.Fn = u.conn.Resume
		cs.usage = u
	}
	s.quotas.Update(&cs.usage.bill.client, rules, cs.usage.user, clientID, now)
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
	u := s.usage(c, cs, rules, head.ClientID.String, s.now())
	ls.metered = u
	defer func() { ls.metered = nil }()
	limited := u.bill.client.Limited(quota.Request)
	c.Timed(limited)
	if !limited {
		s.serve(c, cs, h, head, body)
		return
	}
	u.payNetwork()
	u.bill.exempt = h.key == api.KeyWriteTxnMarkers
	u.bill.begin()
	defer u.bill.end()
	s.serve(c, cs, h, head, body)
	ls.gather.flush() // what it costs to append is its own
}

// payNetwork charges the time that the network took since the last request.
func (u *usage) payNetwork() {
	if n := u.conn.TakeNanos(); n > 0 {
		u.bill.client.Spend(quota.InNetwork, n, u.bill.s.now())
	}
}

// meterBytes charges a Produce for what it brings, and holds its connection if that is too much; the rest is done with its answer.
func (op *produceOp) meterBytes(u *usage, bytes int) {
	op.bill, op.throttleMs = nil, 0
	if u == nil {
		return
	}
	op.bill = &u.bill
	if op.req.Acks == acksNone {
		u.bill.exempt = true
	}
	if ms := u.bill.client.Charge(quota.Produce, float64(bytes), op.s.now()); ms > 0 {
		op.throttleMs = int32(ms)
		op.s.hold(u, ms)
	}
}

// throttle ends the metering of a Produce: the connection is muted for the bytes that it brought or for the time that it took.
func (op *produceOp) throttle() {
	if op.bill == nil {
		return
	}
	ms, kind := int64(op.throttleMs), quota.Produce
	if owed := op.bill.owed(); owed >= ms {
		ms, kind = owed, quota.Request
	}
	if op.throttleMs = int32(ms); ms > 0 {
		op.s.muteFrom(op.conn, op.worker, kind, ms)
	}
}

// mute stops reading a connection for some ms, if it was not to be muted for longer anyway, and returns them. On the loop.
func (s *Service) mute(u *usage, kind quota.Kind, ms int64) int32 {
	if ms <= 0 || u.conn.Closed() {
		return 0
	}
	s.quotas.Throttled(kind, ms)
	s.hold(u, ms)
	return int32(ms)
}

// hold is what mute does to the connection.
func (s *Service) hold(u *usage, ms int64) {
	l := u.conn.Loop()
	if at := l.Now() + ms; !u.timer.Set() || at > u.until {
		if !u.timer.Set() {
			u.conn.Hold()
		}
		u.until = at
		l.SetTimer(&u.timer, at)
	}
}

// muteFrom is mute for a request that is answered on its loop, or off it.
func (s *Service) muteFrom(c *netio.Conn, off bool, kind quota.Kind, ms int64) {
	t := muteTask{s, c, kind, ms}
	if !off {
		t.Run()
		return
	}
	c.Loop().Post(&t)
}

// muteTask mutes a connection from another goroutine than its loop.
type muteTask struct {
	s    *Service
	conn *netio.Conn
	kind quota.Kind
	ms   int64
}

// Run implements netio.Task.
func (t *muteTask) Run() {
	if u := t.conn.Data.(*connState).usage; u != nil {
		t.s.mute(u, t.kind, t.ms)
	}
}

// admit charges a request for partitions that it makes or removes, and refuses it when its client is in debt. Versions before strictFrom do
// not know the code for that (89): they are served and throttled (KIP-599). On a worker.
func (c *call) admit(strictFrom int16) topics.Admit {
	if c.bill == nil {
		return nil
	}
	return func(partitions int) bool {
		ok, ms := c.bill.client.Mutate(partitions, c.version() >= strictFrom, c.s.now())
		c.mutationMs = max(c.mutationMs, ms)
		return ok
	}
}

// throttled mutes the connection of a request that is about to be answered if its client is over a quota, and writes into the answer for how long.
func (c *call) throttled(m api.Message) {
	ms, kind := c.mutationMs, quota.Mutation
	if owed := c.bill.owed(); owed >= ms {
		ms, kind = owed, quota.Request
	}
	if ms <= 0 {
		return
	}
	c.s.muteFrom(c.conn, c.off, kind, ms)
	if f := reflect.ValueOf(m).Elem().FieldByName("ThrottleTimeMs"); f.IsValid() {
		f.SetInt(ms)
	}
}

// charge charges a Fetch for the answer that is about to be made, and says whether it is throttled: then there is no data in the answer,
// and its bytes are not charged.
func (op *fetchOp) charge() bool {
	client := &op.conn.Data.(*connState).usage.bill.client
	bytes, now := float64(op.weight()), op.s.now()
	ms := client.Charge(quota.Consume, bytes, now)
	if !op.throttled(ms) {
		return false
	}
	client.Return(quota.Consume, bytes, now)
	return true
}

// throttled mutes the connection of a Fetch that is about to be answered for its bytes, if they are for ms too many, or for its client's time.
func (op *fetchOp) throttled(ms int64) bool {
	u, kind := op.conn.Data.(*connState).usage, quota.Consume
	if owed := u.bill.owed(); owed >= ms {
		ms, kind = owed, quota.Request
	}
	op.throttleMs = op.s.mute(u, kind, ms)
	return op.throttleMs > 0
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
