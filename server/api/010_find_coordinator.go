package api

import (
	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/topics"
)

// FindCoordinator, key 10, v0-v4. v1 key type, error message, throttle time; v3 flexible; v4 many keys in one request.
//
// This broker is the coordinator of every group and transactional id. Asking makes the internal topic, as in Apache.
//
// Deviation: the first question is answered with the coordinator. Apache says 15 until the internal topic is there; here it is there
// before the answer.

// Key types of FindCoordinator.
const (
	coordinatorGroup       = 0
	coordinatorTransaction = 1
)

// findCoordinator answers.
func findCoordinator(c *call, q *api.FindCoordinatorRequest, p *api.FindCoordinatorResponse) {
	if c.version() < 4 {
		f := c.coordinator(q.Key, q.KeyType)
		p.NodeId, p.Host, p.Port, p.ErrorCode, p.ErrorMessage = f.NodeId, f.Host, f.Port, f.ErrorCode, f.ErrorMessage
		return
	}
	for _, key := range q.CoordinatorKeys {
		p.Coordinators = append(p.Coordinators, c.coordinator(key, q.KeyType))
	}
}

// coordinator finds the coordinator of one key.
func (c *call) coordinator(key string, kind int8) api.FindCoordinatorResponseCoordinator {
	if kind != coordinatorGroup && kind != coordinatorTransaction {
		code := api.ErrInvalidRequest
		return api.FindCoordinatorResponseCoordinator{Key: key, NodeId: -1, Port: -1, ErrorCode: code, ErrorMessage: wire.Some(code.Message())}
	}
	name := topics.OffsetsTopic
	if kind == coordinatorTransaction {
		name = topics.TransactionsTopic
	}
	if err := c.s.topics.EnsureInternal(name); err != nil {
		code := api.ErrCoordinatorNotAvailable
		return api.FindCoordinatorResponseCoordinator{Key: key, NodeId: -1, Port: -1, ErrorCode: code, ErrorMessage: wire.Some(err.Message)}
	}
	if kind == coordinatorGroup {
		c.s.groups.Load()
	} else {
		c.s.txns.Load()
	}
	host, port := c.s.endpoint(c.conn)
	return api.FindCoordinatorResponseCoordinator{Key: key, NodeId: c.s.nodeID, Host: host, Port: port, ErrorMessage: wire.Some("")}
}
