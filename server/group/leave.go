package group

import (
	"time"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/coordinator"
)

// Leave serves LeaveGroup, key 13. Up to v2 one member leaves and its error is the answer's; from v3 several do, each with its own, and an
// instance id without a member id takes a static member out.
func (s *Shard) Leave(q *api.LeaveGroupRequest, version int16, now time.Time, reply func(*api.LeaveGroupResponse)) coordinator.Outcome {
	p := s.leave(q, version, now)
	s.after(func(err error) {
		if err != nil {
			p = &api.LeaveGroupResponse{ErrorCode: Refusal(api.KeyLeaveGroup, err)}
		}
		reply(p)
	})
	return s.outcome()
}

func (s *Shard) leave(q *api.LeaveGroupRequest, version int16, now time.Time) *api.LeaveGroupResponse {
	g := s.groups[q.GroupId]
	switch {
	case q.GroupId == "":
		return &api.LeaveGroupResponse{ErrorCode: api.ErrInvalidGroupId}
	case g != nil && g.dead:
		return &api.LeaveGroupResponse{ErrorCode: api.ErrCoordinatorNotAvailable}
	case g != nil && g.consumer != nil:
		return &api.LeaveGroupResponse{ErrorCode: api.ErrGroupIdNotFound}
	case version < 3:
		return &api.LeaveGroupResponse{ErrorCode: s.leaveOne(g, q.MemberId, wire.NullString{}, now)}
	}
	p := &api.LeaveGroupResponse{Members: make([]api.LeaveGroupResponseMemberResponse, len(q.Members))}
	for i := range q.Members {
		m := &q.Members[i]
		p.Members[i] = api.LeaveGroupResponseMemberResponse{
			MemberId: cloned(m.MemberId), ErrorCode: s.leaveOne(g, m.MemberId, m.GroupInstanceId, now),
			GroupInstanceId: wire.NullString{String: cloned(m.GroupInstanceId.String), Valid: m.GroupInstanceId.Valid},
		}
	}
	return p
}

// leaveOne takes one member, or an id that was handed out, out of its group.
func (s *Shard) leaveOne(g *group, memberID string, instance wire.NullString, now time.Time) api.ErrorCode {
	if g == nil || g.classic == nil {
		return api.ErrUnknownMemberId
	}
	c := g.classic
	if memberID == "" {
		m := c.static(instance.String)
		if !instance.Valid || m == nil {
			return api.ErrUnknownMemberId
		}
		s.expel(c, m, now)
		return api.ErrNone
	}
	if s.takeBack(c, memberID) {
		s.tryComplete(c, now)
		return api.ErrNone
	}
	m, code := g.check(memberID, instance.String, instance.Valid)
	if code == api.ErrNone {
		s.expel(c, m, now)
	}
	return code
}
