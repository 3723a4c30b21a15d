package group

import (
	"time"

	"kaas/codec/api"
	"kaas/codec/wire"
)

// replaceStatic gives the place of a static member to a client that comes with its instance id and no member id: a restart, or a second
// one by mistake. The old id is fenced from now on (82).
func (s *Shard) replaceStatic(c *classic, m *member, id string, j *join) {
	was := place{id: m.id, leader: c.leader, protocols: m.protocols, rebalance: m.rebalance, session: m.session}
	s.rename(c, m, id)
	s.offer(c, m, j)
	s.park(c, m, j.reply)
	s.touch(c, m, m.session, j.now)
	switch {
	case c.state == completingRebalance:
		s.prepare(c, j.now) // the leader may have been told of the old id
	case c.state == stable && c.protocol.String == c.elect():
		s.keepStable(c, m, j, was)
	case c.state == stable:
		s.prepare(c, j.now)
	}
}

// place is what a static member was before somebody took its place.
type place struct {
	id, leader         string
	protocols          []protocol
	rebalance, session time.Duration
}

// rename gives m another id and answers who waits under the old one: it is fenced.
func (s *Shard) rename(c *classic, m *member, id string) {
	s.answerJoin(c, m, &api.JoinGroupResponse{ErrorCode: api.ErrFencedInstanceId, GenerationId: -1, MemberId: m.id})
	s.answerSync(m, &api.SyncGroupResponse{ErrorCode: api.ErrFencedInstanceId})
	delete(c.members, m.id)
	if c.leader == m.id {
		c.leader = id
	}
	m.id = id
	c.members[id] = m
}

// keepStable writes a static member's new id without a rebalance and then answers it.
func (s *Shard) keepStable(c *classic, m *member, j *join, was place) {
	id, generation, version := m.id, c.generation, j.version
	s.write(metadataEntry(c, nil))
	s.after(func(err error) {
		if m.gone || m.id != id || m.joining == nil || c.state != stable || c.generation != generation {
			return // a rebalance has begun and answers it, or somebody else came with the instance id and it was fenced
		}
		s.settle(func() {
			s.stop(&m.timer) // it rings for nobody whose request is parked
			s.touch(c, m, m.session, j.now)
			switch {
			case err != nil:
				s.undoStatic(c, m, was, storeError(err))
			case version >= 9:
				p := c.joined(m)
				p.SkipAssignment = id == c.leader
				s.answerJoin(c, m, p)
			default:
				// The old leader's id keeps clients that cannot skip it from making an assignment that a stable group ignores.
				p := c.joined(m)
				p.Leader, p.Members = was.leader, nil
				s.answerJoin(c, m, p)
			}
		})
	})
}

// undoStatic gives a place back, as its new holder could not be written.
func (s *Shard) undoStatic(c *classic, m *member, was place, code api.ErrorCode) {
	s.answerJoin(c, m, &api.JoinGroupResponse{ErrorCode: code, GenerationId: c.generation, ProtocolType: wire.Some(c.protocolType),
		ProtocolName: c.protocol, Leader: was.leader})
	c.count(m, -1)
	m.protocols, m.rebalance, m.session = was.protocols, was.rebalance, was.session
	c.count(m, 1)
	s.rename(c, m, was.id)
}
