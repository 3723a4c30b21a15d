package api

import (
	"time"

	"kaas/codec/api"
	"kaas/server/coordinator"
	"kaas/server/group"
)

// OffsetDelete, key 47, v0.
var offsetDelete = shardCall(func(q *api.OffsetDeleteRequest) string { return q.GroupId }, plain,
	func(_ *call, s *group.Shard, q *api.OffsetDeleteRequest, now time.Time, reply func(*api.OffsetDeleteResponse)) coordinator.Outcome {
		return s.DeleteOffsets(q, now, reply)
	},
	func(_ *call, _ *api.OffsetDeleteRequest, code api.ErrorCode) *api.OffsetDeleteResponse {
		return &api.OffsetDeleteResponse{ErrorCode: code}
	})
