package api

import (
	"time"

	"kaas/codec/api"
	"kaas/server/coordinator"
	"kaas/server/group"
)

// ConsumerGroupHeartbeat, key 68, v0 (KIP-848).
//
// 35, as in Apache 3.7, unless group.coordinator.new.enable is set and group.coordinator.rebalance.protocols has "consumer", which Apache
// calls early access. Clients then use the classic protocol.
var consumerHeartbeat = shardCall(func(q *api.ConsumerGroupHeartbeatRequest) string { return q.GroupId }, plain,
	func(c *call, s *group.Shard, q *api.ConsumerGroupHeartbeatRequest, now time.Time, reply func(*api.ConsumerGroupHeartbeatResponse)) coordinator.Outcome {
		return s.ConsumerHeartbeat(q, c.client(), now, reply)
	},
	func(_ *call, _ *api.ConsumerGroupHeartbeatRequest, code api.ErrorCode) *api.ConsumerGroupHeartbeatResponse {
		return &api.ConsumerGroupHeartbeatResponse{ErrorCode: code}
	})

// serveConsumerGroupHeartbeat asks the shard, if the protocol is on.
func serveConsumerGroupHeartbeat(c *call) {
	if c.s.consumerGroups {
		consumerHeartbeat(c)
		return
	}
	onLoop(func(_ *call, _ *api.ConsumerGroupHeartbeatRequest, p *api.ConsumerGroupHeartbeatResponse) {
		p.ErrorCode = api.ErrUnsupportedVersion
	})(c)
}
