package group

import (
	"errors"
	"log/slog"
	"time"

	"kaas/codec/api"
	"kaas/server/coordinator"
)

// Sync serves SyncGroup, key 14: the leader brings the assignment, everybody gets his part once it is durable. From v5 protocol type and
// name must be there (KIP-559).
func (s *Shard) Sync(q *api.SyncGroupRequest, version int16, now time.Time, reply func(*api.SyncGroupResponse)) coordinator.Outcome {
	if version >= 5 && !(q.ProtocolType.Valid && q.ProtocolName.Valid) {
		s.sendSync(reply, &api.SyncGroupResponse{ErrorCode: api.ErrInconsistentGroupProtocol})
	} else {
		s.sync(q, now, reply)
	}
	return s.outcome()
}

func (s *Shard) sync(q *api.SyncGroupRequest, now time.Time, reply func(*api.SyncGroupResponse)) {
	refuse := func(code api.ErrorCode) { s.sendSync(reply, &api.SyncGroupResponse{ErrorCode: code}) }
	if q.GroupId == "" {
		refuse(api.ErrInvalidGroupId)
		return
	}
	g := s.groups[q.GroupId]
	if g == nil {
		refuse(api.ErrUnknownMemberId)
		return
	}
	m, code := g.checkSync(q)
	if code != api.ErrNone {
		refuse(code)
		return
	}
	c := g.classic
	switch c.state {
	case empty:
		refuse(api.ErrUnknownMemberId)
	case preparingRebalance:
		refuse(api.ErrRebalanceInProgress)
	case completingRebalance:
		s.answerSync(m, &api.SyncGroupResponse{ErrorCode: api.ErrRebalanceInProgress}) // sent twice: the first is given up
		m.syncing = reply
		s.sent(c, m)
		if m.id == c.leader {
			s.assign(c, q, now)
		}
	case stable:
		s.sent(c, m)
		s.sendSync(reply, c.assigned(m))
		s.touch(c, m, m.session, now)
	}
}

// checkSync validates a SyncGroup.
func (g *group) checkSync(q *api.SyncGroupRequest) (*member, api.ErrorCode) {
	if g.dead {
		return nil, api.ErrCoordinatorNotAvailable
	}
	if g.consumer != nil {
		return nil, api.ErrGroupIdNotFound
	}
	m, code := g.check(q.MemberId, q.GroupInstanceId.String, q.GroupInstanceId.Valid)
	if code != api.ErrNone {
		return nil, code
	}
	c := g.classic
	switch {
	case q.GenerationId != c.generation:
		return nil, api.ErrIllegalGeneration
	case q.ProtocolType.Valid && q.ProtocolType.String != c.protocolType,
		q.ProtocolName.Valid && (!c.protocol.Valid || q.ProtocolName.String != c.protocol.String):
		return nil, api.ErrInconsistentGroupProtocol
	}
	return m, api.ErrNone
}

// assign writes the leader's assignment and gives it out when it is durable. Members that it leaves out get an empty one.
func (s *Shard) assign(c *classic, q *api.SyncGroupRequest, now time.Time) {
	parts := make(map[string][]byte, len(c.members))
	for i := range q.Assignments {
		a := &q.Assignments[i]
		if m := c.members[a.MemberId]; m != nil {
			parts[m.id] = copied(a.Assignment)
		}
	}
	generation := c.generation
	s.write(metadataEntry(c, parts))
	s.after(func(err error) {
		if c.state != completingRebalance || c.generation != generation {
			return // the rebalance that came in between has answered
		}
		s.settle(func() { s.assigning(c, parts, err, now) })
	})
}

// assigning ends a rebalance, or begins the next one when its result could not be written.
func (s *Shard) assigning(c *classic, parts map[string][]byte, err error, now time.Time) {
	if err != nil {
		s.log.Warn("assignment not written", slog.String("group", c.g.id), slog.Any("error", err))
		s.propagate(c, storeError(err), now)
		s.prepare(c, now)
		return
	}
	for _, m := range c.order {
		if m.assignment = parts[m.id]; m.assignment == nil {
			m.assignment = []byte{}
		}
	}
	s.propagate(c, api.ErrNone, now)
	c.enter(stable, now)
}

// storeError is what members are told when their group could not be written.
func storeError(err error) api.ErrorCode {
	switch {
	case errors.Is(err, coordinator.ErrNotAvailable):
		return api.ErrCoordinatorNotAvailable
	case errors.Is(err, coordinator.ErrTooLarge):
		return api.ErrUnknownServerError
	}
	return api.ErrNotCoordinator
}

// Heartbeat serves Heartbeat, key 12. It allocates nothing.
func (s *Shard) Heartbeat(q *api.HeartbeatRequest, now time.Time) api.ErrorCode {
	if q.GroupId == "" {
		return api.ErrInvalidGroupId
	}
	g := s.groups[q.GroupId]
	if g == nil {
		return api.ErrUnknownMemberId
	}
	if g.dead {
		return api.ErrCoordinatorNotAvailable
	}
	if g.consumer != nil {
		return api.ErrGroupIdNotFound
	}
	m, code := g.check(q.MemberId, q.GroupInstanceId.String, q.GroupInstanceId.Valid)
	if code != api.ErrNone {
		return code
	}
	c := g.classic
	switch {
	case q.GenerationId != c.generation:
		return api.ErrIllegalGeneration
	case c.state == empty:
		return api.ErrUnknownMemberId
	}
	s.touch(c, m, m.session, now)
	if c.state == preparingRebalance {
		return api.ErrRebalanceInProgress
	}
	return api.ErrNone
}
