package api

import (
	"time"

	"kaas/codec/api"
	"kaas/server/coordinator"
	"kaas/server/group"
)

// SyncGroup, key 14, v0-v5. v1 throttle time; v3 group instance id; v4 flexible; v5 protocol type and name, which must not be null.
//
// The request waits for the leader's assignment, with its connection held.
//
// Deviation: a member that asks again while its request waits has the first one answered with 27. Apache forgets that one.
var syncGroup = shardCall(func(q *api.SyncGroupRequest) string { return q.GroupId }, barrier,
	func(c *call, s *group.Shard, q *api.SyncGroupRequest, now time.Time, reply func(*api.SyncGroupResponse)) coordinator.Outcome {
		return s.Sync(q, c.version(), now, reply)
	}, refusedSync)

func refusedSync(_ *call, _ *api.SyncGroupRequest, code api.ErrorCode) *api.SyncGroupResponse {
	return &api.SyncGroupResponse{ErrorCode: code}
}
