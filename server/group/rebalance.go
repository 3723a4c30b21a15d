package group

import (
	"log/slog"
	"slices"
	"time"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/coordinator"
)

// touch begins m's session anew: it ends after d, unless touched before. The alarm of an earlier deadline is left to ring and look
// again, so that heartbeats cost no alarm.
func (s *Shard) touch(c *classic, m *member, d time.Duration, now time.Time) {
	m.deadline = now.Add(d)
	if m.timer != 0 {
		if !m.rings.After(m.deadline) {
			return
		}
		s.stop(&m.timer)
	}
	if m.ring == nil {
		m.ring = func(now time.Time) coordinator.Outcome { return s.rang(c, m, now) }
	}
	m.rings = m.deadline
	m.timer = s.timers.After(d, m.ring)
}

// rang is m's alarm. A member whose request is parked does not expire: its session begins anew with the answer. Only a new one does, as
// nobody notices when its client is gone.
func (s *Shard) rang(c *classic, m *member, now time.Time) coordinator.Outcome {
	m.timer = 0
	switch {
	case m.gone || m.parked() && !m.fresh:
		return coordinator.Outcome{}
	case now.Before(m.deadline):
		m.rings = m.deadline
		m.timer = s.timers.After(m.deadline.Sub(now), m.ring)
		return coordinator.Outcome{}
	}
	s.log.Info("member's session ended", slog.String("group", c.g.id), slog.String("member", m.id))
	s.expel(c, m, now)
	return s.outcome()
}

// expel takes a member out whose request, if one is parked, gets 25, and rebalances.
func (s *Shard) expel(c *classic, m *member, now time.Time) {
	s.answerJoin(c, m, &api.JoinGroupResponse{ErrorCode: api.ErrUnknownMemberId, GenerationId: -1})
	s.answerSync(m, &api.SyncGroupResponse{ErrorCode: api.ErrUnknownMemberId})
	s.remove(c, m)
	switch c.state {
	case stable, completingRebalance:
		s.prepare(c, now)
	case preparingRebalance:
		s.tryComplete(c, now)
	}
}

// answerJoin answers m's parked JoinGroup, if there is one, at the end of the operation.
func (s *Shard) answerJoin(c *classic, m *member, p *api.JoinGroupResponse) bool {
	reply := m.joining
	if reply == nil {
		return false
	}
	m.joining = nil
	c.waiting--
	s.sendJoin(reply, p)
	return true
}

// sendJoin has a JoinGroup answered at the end of the operation.
func (s *Shard) sendJoin(reply func(*api.JoinGroupResponse), p *api.JoinGroupResponse) {
	s.after(func(err error) {
		if err != nil {
			p = &api.JoinGroupResponse{ErrorCode: Refusal(api.KeyJoinGroup, err), GenerationId: -1, MemberId: p.MemberId}
		}
		reply(p)
	})
}

// answerSync answers m's parked SyncGroup, if there is one, at the end of the operation.
func (s *Shard) answerSync(m *member, p *api.SyncGroupResponse) bool {
	reply := m.syncing
	if reply == nil {
		return false
	}
	m.syncing = nil
	s.sendSync(reply, p)
	return true
}

// sendSync has a SyncGroup answered at the end of the operation.
func (s *Shard) sendSync(reply func(*api.SyncGroupResponse), p *api.SyncGroupResponse) {
	s.after(func(err error) {
		if err != nil {
			p = &api.SyncGroupResponse{ErrorCode: Refusal(api.KeySyncGroup, err)}
		}
		reply(p)
	})
}

// park has m wait for the end of the rebalance. A request that it sent before is answered 27: its client has given it up.
func (s *Shard) park(c *classic, m *member, reply func(*api.JoinGroupResponse)) {
	s.answerJoin(c, m, &api.JoinGroupResponse{ErrorCode: api.ErrRebalanceInProgress, GenerationId: -1, MemberId: m.id})
	m.joining = reply
	c.waiting++
}

// prepare begins a rebalance, unless one has begun.
func (s *Shard) prepare(c *classic, now time.Time) {
	if c.state == preparingRebalance {
		return
	}
	if c.state == completingRebalance {
		s.propagate(c, api.ErrRebalanceInProgress, now)
	}
	s.stop(&c.alarm)
	wait := c.rebalanceTimeout()
	if c.initial = c.state == empty; c.initial {
		c.arrived = false
		c.step = s.cfg.InitialRebalanceDelay
		c.left = max(wait-c.step, 0)
		wait = c.step
	}
	s.log.Info("rebalance", slog.String("group", c.g.id), slog.String("state", c.state.String()),
		slog.Int("generation", int(c.generation)), slog.Int("members", len(c.members)))
	c.enter(preparingRebalance, now)
	s.alarm(c, wait, s.joinAlarm)
	s.tryComplete(c, now)
}

// alarm sets the end of a phase.
func (s *Shard) alarm(c *classic, d time.Duration, ring func(*classic, time.Time)) {
	s.stop(&c.alarm)
	c.alarm = s.timers.After(max(d, 0), func(now time.Time) coordinator.Outcome {
		c.alarm = 0
		ring(c, now)
		return s.outcome()
	})
}

// joinAlarm ends the wait for members. While those of an empty group arrive, it begins again until the bound is used up.
func (s *Shard) joinAlarm(c *classic, now time.Time) {
	if c.initial && c.arrived && c.left > 0 {
		c.arrived = false
		next := min(s.cfg.InitialRebalanceDelay, c.left)
		c.left = max(c.left-c.step, 0)
		c.step = next
		s.alarm(c, next, s.joinAlarm)
		return
	}
	c.initial = false
	s.completeJoin(c, now)
}

// tryComplete ends the wait when everybody is there.
func (s *Shard) tryComplete(c *classic, now time.Time) {
	if c.state == preparingRebalance && !c.initial && c.waiting == len(c.members) && len(c.handedOut) == 0 {
		s.completeJoin(c, now)
	}
}

// completeJoin begins a generation of those who are there. Static members who are not keep their place until their session ends.
func (s *Shard) completeJoin(c *classic, now time.Time) {
	s.stop(&c.alarm)
	for _, m := range slices.Clone(c.order) {
		if m.joining == nil && !m.static() {
			s.log.Info("member did not come back", slog.String("group", c.g.id), slog.String("member", m.id))
			s.remove(c, m)
		}
	}
	if len(c.members) > 0 && !c.electLeader() {
		s.alarm(c, c.rebalanceTimeout(), s.joinAlarm) // only static members, and none came: until their sessions end
		return
	}
	c.generation++
	c.unsynced = 0
	if len(c.members) == 0 {
		c.protocol = wire.NullString{}
		c.enter(empty, now)
		s.write(metadataEntry(c, nil))
		s.after(func(err error) {
			if err != nil { // the generation before it comes back after a restart, and its members' sessions end
				s.log.Warn("empty group not written", slog.String("group", c.g.id), slog.Any("error", err))
			}
		})
		return
	}
	c.protocol = wire.Some(c.elect())
	c.enter(completingRebalance, now)
	for _, m := range c.order {
		m.fresh, m.synced = false, false
		c.unsynced++
		s.answerJoin(c, m, c.joined(m))
		s.touch(c, m, m.session, now)
	}
	s.alarm(c, c.rebalanceTimeout(), s.syncAlarm)
}

// electLeader sees to a leader who is there; false if nobody is.
func (c *classic) electLeader() bool {
	if m := c.members[c.leader]; m != nil && m.joining != nil {
		return true
	}
	for _, m := range c.order {
		if m.joining != nil {
			c.leader = m.id
			return true
		}
	}
	return false
}

// joined is the answer to a member of the present generation.
func (c *classic) joined(m *member) *api.JoinGroupResponse {
	p := &api.JoinGroupResponse{
		GenerationId: c.generation, ProtocolType: wire.Some(c.protocolType), ProtocolName: c.protocol, Leader: c.leader, MemberId: m.id,
	}
	if m.id == c.leader {
		p.Members = c.roster()
	}
	return p
}

// roster is what the leader is told of the members.
func (c *classic) roster() []api.JoinGroupResponseJoinGroupResponseMember {
	all := make([]api.JoinGroupResponseJoinGroupResponseMember, len(c.order))
	for i, m := range c.order {
		all[i] = api.JoinGroupResponseJoinGroupResponseMember{
			MemberId: m.id, GroupInstanceId: m.instance, Metadata: m.metadata(c.protocol.String),
		}
	}
	return all
}

// propagate answers everybody who waits for an assignment: with it, or with why there is none.
func (s *Shard) propagate(c *classic, code api.ErrorCode, now time.Time) {
	for _, m := range c.order {
		p := &api.SyncGroupResponse{ErrorCode: code}
		if code == api.ErrNone {
			p = c.assigned(m)
		} else {
			m.assignment = []byte{}
		}
		if s.answerSync(m, p) {
			s.stop(&m.timer) // its session did not end while it waited, and now may be when the write began
			s.touch(c, m, m.session, now)
		}
	}
}

// assigned is the answer to SyncGroup.
func (c *classic) assigned(m *member) *api.SyncGroupResponse {
	return &api.SyncGroupResponse{ProtocolType: wire.Some(c.protocolType), ProtocolName: c.protocol, Assignment: m.assignment}
}

// syncAlarm takes out who got a generation and never asked for its assignment, the leader for instance.
func (s *Shard) syncAlarm(c *classic, now time.Time) {
	if c.unsynced == 0 || c.state != completingRebalance && c.state != stable {
		return
	}
	for _, m := range slices.Clone(c.order) {
		if !m.synced {
			s.log.Info("member did not sync", slog.String("group", c.g.id), slog.String("member", m.id))
			s.remove(c, m)
		}
	}
	s.prepare(c, now)
}

// sent counts a SyncGroup; when the last one is there nobody is waited for.
func (s *Shard) sent(c *classic, m *member) {
	c.settleSync(m)
	if c.unsynced == 0 {
		s.stop(&c.alarm)
	}
}
