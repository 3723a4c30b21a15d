package group

import (
	"slices"
	"strings"
	"time"
	"unique"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/coordinator"
)

// consumerProtocol is the protocol type whose member metadata is a ConsumerProtocolSubscription.
const consumerProtocol = "consumer"

// newMemberTimeout is how long a member may wait for the first rebalance that it joined before its request is answered and it is
// forgotten. Apache: NewMemberJoinTimeoutMs.
const newMemberTimeout = 5 * time.Minute

// classic is the membership of a group of the classic protocol.
type classic struct {
	g          *group
	state      state // empty, preparingRebalance, completingRebalance or stable
	generation int32
	// since is when state was entered, in ms; -1 for records that do not tell (GroupMetadataValue before v2).
	since        int64
	protocolType string
	protocol     wire.NullString // the one in use; null while there is none
	leader       string          // member id, "" for none

	members map[string]*member
	order   []*member    // the same, by arrival: whoever is first leads when the leader is gone
	names   map[name]int // how many members can do which protocol
	// instances finds static members; nil without any.
	instances map[string]*member
	// handedOut are ids that were given out with error 79 and have not come back.
	handedOut map[string]*handedOut
	waiting   int // members whose JoinGroup is parked
	unsynced  int // members of this generation that have not sent SyncGroup

	// alarm ends a phase: in preparingRebalance the wait for members, afterwards the wait for their SyncGroup.
	alarm coordinator.Timer
	// initial is set while the first members of an empty group are waited for; left is what remains of the bound.
	initial bool
	arrived bool
	step    time.Duration
	left    time.Duration
}

// name is a string of which many groups hold the same: one copy, and cheap to compare.
type name = unique.Handle[string]

// protocol is what a member offers.
type protocol struct {
	name     name
	metadata []byte
}

// member is a member of a classic group. Its byte slices are replaced, never changed: answers alias them.
type member struct {
	id         string
	instance   wire.NullString
	clientID   name
	clientHost name
	rebalance  time.Duration
	session    time.Duration
	protocols  []protocol
	assignment []byte

	joining func(*api.JoinGroupResponse) // parked JoinGroup, nil without
	syncing func(*api.SyncGroupResponse) // parked SyncGroup, nil without
	fresh   bool                         // has not seen a rebalance end
	synced  bool                         // has sent SyncGroup in this generation
	gone    bool

	// deadline is when the session ends; timer rings at rings, which is not later than deadline, and looks.
	deadline time.Time
	rings    time.Time
	timer    coordinator.Timer
	ring     func(time.Time) coordinator.Outcome
}

// handedOut is an id that a client was told to come back with.
type handedOut struct{ timer coordinator.Timer }

// static says whether m has an instance id (KIP-345).
func (m *member) static() bool { return m.instance.Valid }

// parked says whether a request of m waits.
func (m *member) parked() bool { return m.joining != nil || m.syncing != nil }

// metadata is what m sent for a protocol; empty, not nil, if it sent none.
func (m *member) metadata(of string) []byte {
	for i := range m.protocols {
		if m.protocols[i].name.Value() == of {
			return m.protocols[i].metadata
		}
	}
	return []byte{}
}

// matches says whether a JoinGroup offers what m offered before.
func (m *member) matches(offer []api.JoinGroupRequestJoinGroupRequestProtocol) bool {
	return slices.EqualFunc(m.protocols, offer, func(p protocol, o api.JoinGroupRequestJoinGroupRequestProtocol) bool {
		return p.name.Value() == o.Name && string(p.metadata) == string(o.Metadata)
	})
}

// membership finds the members of a group or makes an empty one.
func (g *group) membership(now time.Time) *classic {
	if g.classic == nil {
		g.classic = &classic{g: g, members: make(map[string]*member), names: make(map[name]int), since: now.UnixMilli()}
	}
	return g.classic
}

// enter changes the state.
func (c *classic) enter(st state, now time.Time) {
	c.state = st
	c.since = now.UnixMilli()
}

// static finds the member that holds an instance id.
func (c *classic) static(instance string) *member { return c.instances[instance] }

// count adds n for each protocol of m. A stranger may offer very many, and the same more than once.
func (c *classic) count(m *member, n int) {
	seen := make(map[name]struct{}, len(m.protocols))
	for i := range m.protocols {
		p := m.protocols[i].name
		if _, again := seen[p]; again {
			continue
		}
		seen[p] = struct{}{}
		if c.names[p] += n; c.names[p] == 0 {
			delete(c.names, p)
		}
	}
}

// common says whether all members can do a protocol. Nobody can do anything: all may have left while the first ones are waited for.
func (c *classic) common(p name) bool {
	return len(c.members) == 0 || c.names[p] == len(c.members)
}

// supports says whether a member with this offer may come in (23).
func (c *classic) supports(protocolType string, offer []api.JoinGroupRequestJoinGroupRequestProtocol) bool {
	if c.state == empty {
		return protocolType != "" && len(offer) > 0
	}
	return c.protocolType == protocolType && slices.ContainsFunc(offer,
		func(o api.JoinGroupRequestJoinGroupRequestProtocol) bool { return c.common(unique.Make(o.Name)) })
}

// elect is the protocol that most members like best among those that all can do. Between equals the one decides who came first.
func (c *classic) elect() string {
	votes := make(map[name]int, 1)
	var order []name
	for _, m := range c.order {
		for i := range m.protocols {
			p := m.protocols[i].name
			if !c.common(p) {
				continue
			}
			if votes[p]++; votes[p] == 1 {
				order = append(order, p)
			}
			break
		}
	}
	if len(order) == 0 {
		return ""
	}
	return slices.MaxFunc(order, func(a, b name) int { return votes[a] - votes[b] }).Value()
}

// add takes m in. Its JoinGroup is parked in it already, or nil when it comes from the log.
func (c *classic) add(m *member, protocolType string) {
	if len(c.members) == 0 {
		c.protocolType = protocolType
	}
	if c.leader == "" {
		c.leader = m.id
	}
	c.members[m.id] = m
	c.order = append(c.order, m)
	if m.static() {
		if c.instances == nil {
			c.instances = make(map[string]*member)
		}
		c.instances[m.instance.String] = m
	}
	c.count(m, 1)
	if m.joining != nil {
		c.waiting++
	}
}

// remove takes m out and stops its alarm. Whoever is parked in it must have been answered.
func (s *Shard) remove(c *classic, m *member) {
	s.stop(&m.timer)
	m.gone = true
	delete(c.members, m.id)
	if m.static() {
		delete(c.instances, m.instance.String)
	}
	c.order = slices.DeleteFunc(c.order, func(o *member) bool { return o == m })
	c.count(m, -1)
	c.settleSync(m)
	if c.leader == m.id {
		c.leader = ""
		if len(c.order) > 0 {
			c.leader = c.order[0].id
		}
	}
}

// settleSync counts m as having sent SyncGroup.
func (c *classic) settleSync(m *member) {
	if !m.synced {
		m.synced = true
		c.unsynced--
	}
}

// rebalanceTimeout is the longest of the members'.
func (c *classic) rebalanceTimeout() time.Duration {
	var d time.Duration
	for _, m := range c.order {
		d = max(d, m.rebalance)
	}
	return d
}

// subscriptions are the topics that the members read, if that can be known. Malformed metadata counts as unknown for the whole group,
// as in Apache.
func (c *classic) subscriptions() (topics map[string]struct{}, known bool) {
	topics = make(map[string]struct{})
	if c.protocolType != consumerProtocol {
		return nil, false
	}
	if len(c.order) == 0 {
		return topics, true
	}
	if !c.protocol.Valid {
		return nil, false
	}
	var sub api.ConsumerProtocolSubscription
	for _, m := range c.order {
		r := wire.NewReader(m.metadata(c.protocol.String))
		if r.Int16() < 0 { // the version; v0 is how all of them begin
			return nil, false
		}
		sub.Decode(&r, 0)
		if r.Failed() {
			return nil, false
		}
		for _, t := range sub.Topics {
			topics[t] = struct{}{}
		}
	}
	return topics, true
}

// stopAll stops every alarm of a membership.
func (s *Shard) stopAll(c *classic) {
	s.stop(&c.alarm)
	for _, m := range c.order {
		s.stop(&m.timer)
		m.gone = true
	}
	for _, h := range c.handedOut {
		s.stop(&h.timer)
	}
}

// cloned is a copy of a string that is a slice of a request.
func cloned(s string) string { return strings.Clone(s) }

// keep clones what a JoinGroup offers.
func keep(offer []api.JoinGroupRequestJoinGroupRequestProtocol) []protocol {
	kept := make([]protocol, len(offer))
	for i := range offer {
		kept[i] = protocol{name: unique.Make(offer[i].Name), metadata: copied(offer[i].Metadata)}
	}
	return kept
}

// copied is a copy of bytes that alias a request; never nil.
func copied(b []byte) []byte { return append(make([]byte, 0, len(b)), b...) }
