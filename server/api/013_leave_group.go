package api

import (
	"time"

	"kaas/codec/api"
	"kaas/server/coordinator"
	"kaas/server/group"
)

// LeaveGroup, key 13, v0-v5. v1 throttle time; v3 several members, by id or group instance id (KIP-345); v4 flexible; v5 reason.
var leaveGroup = shardCall(func(q *api.LeaveGroupRequest) string { return q.GroupId }, plain,
	func(c *call, s *group.Shard, q *api.LeaveGroupRequest, now time.Time, reply func(*api.LeaveGroupResponse)) coordinator.Outcome {
		return s.Leave(q, c.version(), now, reply)
	},
	func(_ *call, _ *api.LeaveGroupRequest, code api.ErrorCode) *api.LeaveGroupResponse {
		return &api.LeaveGroupResponse{ErrorCode: code}
	})
