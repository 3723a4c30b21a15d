package api

import (
	"time"

	"kaas/codec/api"
	"kaas/server/coordinator"
	"kaas/server/group"
)

// JoinGroup, key 11, v0-v9. v1 rebalance timeout; v2 throttle time; v4 a member without an id is sent back with one (79, KIP-394); v5 group
// instance id (KIP-345); v6 flexible; v7 protocol type in the answer; v8 reason; v9 skip assignment (KIP-814).
//
// The request waits until the rebalance is over, with its connection held.
//
// Deviation: a member that asks again while its request waits has the first one answered with 27. Apache forgets that one.
var joinGroup = shardCall(func(q *api.JoinGroupRequest) string { return q.GroupId }, barrier,
	func(c *call, s *group.Shard, q *api.JoinGroupRequest, now time.Time, reply func(*api.JoinGroupResponse)) coordinator.Outcome {
		return s.Join(q, c.client(), c.version(), now, reply)
	},
	func(_ *call, q *api.JoinGroupRequest, code api.ErrorCode) *api.JoinGroupResponse {
		p := new(api.JoinGroupResponse)
		p.Default()
		p.ErrorCode, p.MemberId = code, q.MemberId
		return p
	})
