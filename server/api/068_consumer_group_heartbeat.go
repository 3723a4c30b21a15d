package api

import "kaas/codec/api"

// ConsumerGroupHeartbeat, key 68, v0 (KIP-848).
//
// Always 35, as in Apache 3.7 unless it is told to have the new group protocol, which it calls early access. Clients then use the
// classic one.
func consumerGroupHeartbeat(_ *call, _ *api.ConsumerGroupHeartbeatRequest, p *api.ConsumerGroupHeartbeatResponse) {
	p.ErrorCode = api.ErrUnsupportedVersion
}
