package api

import (
	"time"

	"kaas/codec/api"
	"kaas/server/coordinator"
	"kaas/server/group"
)

// Heartbeat, key 12, v0-v4. v1 throttle time; v3 group instance id; v4 flexible.
var heartbeat = shardCall(func(q *api.HeartbeatRequest) string { return q.GroupId }, blind,
	func(_ *call, s *group.Shard, q *api.HeartbeatRequest, now time.Time, reply func(*api.HeartbeatResponse)) coordinator.Outcome {
		p := &api.HeartbeatResponse{ErrorCode: s.Heartbeat(q, now)}
		return coordinator.Outcome{Done: func(err error) {
			if err != nil {
				p.ErrorCode = group.Refusal(api.KeyHeartbeat, err)
			}
			reply(p)
		}}
	},
	func(_ *call, _ *api.HeartbeatRequest, code api.ErrorCode) *api.HeartbeatResponse {
		return &api.HeartbeatResponse{ErrorCode: code}
	})
