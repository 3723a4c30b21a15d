package api

import (
	"fmt"

	"kaas/codec/api"
	"kaas/codec/wire"
)

// UnregisterBroker, key 64, v0.
//
// There is no other broker to forget (102).
//
// Deviation: this broker does not forget itself (42). Apache takes the registration away.
func unregisterBroker(c *call, q *api.UnregisterBrokerRequest, p *api.UnregisterBrokerResponse) {
	if q.BrokerId == c.s.nodeID {
		p.ErrorCode = api.ErrInvalidRequest
		p.ErrorMessage = wire.Some(fmt.Sprintf("Broker ID %d is this broker, the only one.", q.BrokerId))
		return
	}
	p.ErrorCode = api.ErrBrokerIdNotRegistered
	p.ErrorMessage = wire.Some(fmt.Sprintf("Broker ID %d is not currently registered", q.BrokerId))
}
