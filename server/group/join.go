package group

import (
	"math"
	"time"
	"unique"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/coordinator"
)

// join is a JoinGroup under way.
type join struct {
	q       *api.JoinGroupRequest
	from    Client
	version int16
	now     time.Time
	reply   func(*api.JoinGroupResponse)
	session time.Duration
	wait    time.Duration // the rebalance timeout
}

// Join serves JoinGroup, key 11. From v4 a member without an id is sent back with one (79, KIP-394), unless it is static (KIP-345); from
// v9 a static leader that comes back to a stable group is told to skip the assignment (KIP-814). The answer's ProtocolName is null where
// there is none; versions before 7 need "" there, which Join sees to.
func (s *Shard) Join(q *api.JoinGroupRequest, from Client, version int16, now time.Time, reply func(*api.JoinGroupResponse)) coordinator.Outcome {
	if version < 7 {
		send := reply
		reply = func(p *api.JoinGroupResponse) {
			p.ProtocolName.Valid = true
			send(p)
		}
	}
	j := &join{q: q, from: from, version: version, now: now, reply: reply,
		session: millis(q.SessionTimeoutMs), wait: millis(q.RebalanceTimeoutMs)}
	if version == 0 {
		j.wait = j.session
	}
	s.join(j)
	return s.outcome()
}

func millis(ms int32) time.Duration { return time.Duration(ms) * time.Millisecond }

// refuse answers with an error and the member id that Apache names beside it.
func (s *Shard) refuse(j *join, code api.ErrorCode, memberID string) {
	s.sendJoin(j.reply, &api.JoinGroupResponse{ErrorCode: code, GenerationId: -1, MemberId: cloned(memberID)})
}

func (s *Shard) join(j *join) {
	q := j.q
	switch {
	case q.GroupId == "":
		s.refuse(j, api.ErrInvalidGroupId, q.MemberId)
		return
	case j.session < s.cfg.MinSessionTimeout || j.session > s.cfg.MaxSessionTimeout:
		s.refuse(j, api.ErrInvalidSessionTimeout, q.MemberId)
		return
	}
	g := s.groups[q.GroupId]
	if g == nil {
		if q.MemberId != "" {
			s.refuse(j, api.ErrUnknownMemberId, q.MemberId)
			return
		}
		g = s.ensure(q.GroupId)
	}
	if g.dead {
		s.refuse(j, api.ErrCoordinatorNotAvailable, q.MemberId)
		return
	}
	if g.consumer != nil {
		s.refuse(j, api.ErrGroupIdNotFound, q.MemberId)
		return
	}
	c := g.membership(j.now)
	switch {
	case !s.hasRoom(c, q.MemberId):
		if m := c.members[q.MemberId]; m != nil {
			s.remove(c, m)
		}
		s.takeBack(c, q.MemberId)
		s.refuse(j, api.ErrGroupMaxSizeReached, "")
	case q.MemberId == "":
		s.joinNew(c, j)
	default:
		s.joinKnown(c, j)
	}
	s.tryComplete(c, j.now)
}

// hasRoom keeps group.max.size. While a rebalance gathers members those who are there count, and whoever comes back last is too many;
// otherwise members have their place.
func (s *Shard) hasRoom(c *classic, memberID string) bool {
	m := c.members[memberID]
	switch c.state {
	case empty:
		return true
	case preparingRebalance:
		return m != nil && m.joining != nil || c.waiting < s.cfg.MaxSize
	}
	return m != nil || len(c.members) < s.cfg.MaxSize
}

// joinNew is a JoinGroup without a member id.
func (s *Shard) joinNew(c *classic, j *join) {
	q := j.q
	if !c.supports(q.ProtocolType, q.Protocols) {
		s.refuse(j, api.ErrInconsistentGroupProtocol, "")
		return
	}
	id := j.from.ID
	if q.GroupInstanceId.Valid {
		id = q.GroupInstanceId.String
	}
	id += "-" + s.newID()
	switch {
	case len(id) > math.MaxInt16: // no message can carry it
		s.refuse(j, api.ErrUnknownServerError, "")
	case q.GroupInstanceId.Valid:
		if old := c.static(q.GroupInstanceId.String); old != nil {
			s.replaceStatic(c, old, id, j)
			return
		}
		s.admit(c, id, j)
	case j.version >= 4:
		s.handOut(c, id, j.session)
		s.refuse(j, api.ErrMemberIdRequired, id)
	default:
		s.admit(c, id, j)
	}
}

// handOut remembers an id that a client is to come back with, for the length of its session.
func (s *Shard) handOut(c *classic, id string, session time.Duration) {
	h := &handedOut{}
	if c.handedOut == nil {
		c.handedOut = make(map[string]*handedOut)
	}
	c.handedOut[id] = h
	h.timer = s.timers.After(session, func(now time.Time) coordinator.Outcome {
		h.timer = 0
		s.takeBack(c, id)
		s.tryComplete(c, now)
		return s.outcome()
	})
}

// takeBack forgets an id that was handed out; false if there is none.
func (s *Shard) takeBack(c *classic, id string) bool {
	h := c.handedOut[id]
	if h == nil {
		return false
	}
	s.stop(&h.timer)
	delete(c.handedOut, id)
	return true
}

// admit takes a new member in and rebalances.
func (s *Shard) admit(c *classic, id string, j *join) {
	m := &member{
		id: id, clientID: unique.Make(j.from.ID), clientHost: unique.Make(j.from.Host), rebalance: j.wait, session: j.session,
		protocols: keep(j.q.Protocols), assignment: []byte{}, joining: j.reply, fresh: true, synced: true,
	}
	if j.q.GroupInstanceId.Valid {
		m.instance = wire.Some(cloned(j.q.GroupInstanceId.String))
	}
	if c.state == preparingRebalance && c.generation == 0 {
		c.arrived = true
	}
	c.add(m, cloned(j.q.ProtocolType))
	s.touch(c, m, newMemberTimeout, j.now)
	s.prepare(c, j.now)
}

// update parks the JoinGroup of a member that offers something else, or leads, and rebalances.
func (s *Shard) update(c *classic, m *member, j *join) {
	s.offer(c, m, j)
	s.park(c, m, j.reply)
	s.prepare(c, j.now)
}

// offer takes over what a JoinGroup says of a member.
func (s *Shard) offer(c *classic, m *member, j *join) {
	c.count(m, -1)
	m.protocols = keep(j.q.Protocols)
	c.count(m, 1)
	m.rebalance, m.session = j.wait, j.session
}

// joinKnown is a JoinGroup with a member id.
func (s *Shard) joinKnown(c *classic, j *join) {
	q := j.q
	if !c.supports(q.ProtocolType, q.Protocols) {
		s.refuse(j, api.ErrInconsistentGroupProtocol, q.MemberId)
		return
	}
	if c.handedOut[q.MemberId] != nil {
		if q.GroupInstanceId.Valid { // such an id is never a static member's
			s.refuse(j, api.ErrUnknownServerError, "")
			return
		}
		s.takeBack(c, q.MemberId)
		s.admit(c, cloned(q.MemberId), j)
		return
	}
	m, code := c.g.check(q.MemberId, q.GroupInstanceId.String, q.GroupInstanceId.Valid)
	if code != api.ErrNone {
		s.refuse(j, code, q.MemberId)
		return
	}
	switch {
	case c.state == empty:
		s.refuse(j, api.ErrUnknownMemberId, q.MemberId)
	case c.state == completingRebalance && m.matches(q.Protocols):
		s.sendJoin(j.reply, c.joined(m)) // the first answer was lost
	case c.state == stable && m.id != c.leader && m.matches(q.Protocols):
		s.sendJoin(j.reply, c.joined(m))
	default:
		s.update(c, m, j)
	}
}
