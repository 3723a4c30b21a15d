package api

import (
	"fmt"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/topics"
)

// AlterPartitionReassignments, key 45, v0 (KIP-455).
//
// A partition may be given the replica it has, which changes nothing and is done at once; other replicas are refused as Apache with one
// broker refuses them. There is never a reassignment to cancel (85).
//
// Deviation: timeout_ms is not looked at: nothing has to be waited for.
func alterPartitionReassignments(c *call, q *api.AlterPartitionReassignmentsRequest, p *api.AlterPartitionReassignmentsResponse) {
	if len(q.Topics) > 0 { // the message is null, but "" in an answer to nothing: as in Apache
		p.ErrorMessage = wire.NullString{}
	}
	for i := range q.Topics {
		asked := &q.Topics[i]
		t := c.s.topics.ByName(asked.Name)
		out := api.Next(&p.Responses)
		out.Name = asked.Name
		for j := range asked.Partitions {
			o := api.Next(&out.Partitions)
			o.PartitionIndex, o.ErrorMessage = asked.Partitions[j].PartitionIndex, wire.NullString{}
			if err := c.s.reassign(t, asked.Name, &asked.Partitions[j]); err != nil {
				o.ErrorCode = err.Code
				if err.Message != "" {
					o.ErrorMessage = wire.Some(err.Message)
				}
			}
		}
	}
}

// reassign tells why a partition cannot have these replicas; nil if it has them. t is nil if there is no such topic.
func (s *Service) reassign(t *topics.Topic, name string, asked *api.AlterPartitionReassignmentsRequestReassignablePartition) *topics.Error {
	switch {
	case t == nil:
		return &topics.Error{Code: api.ErrUnknownTopicOrPartition, Message: fmt.Sprintf("Unable to find a topic named %s.", name)}
	case t.Partition(asked.PartitionIndex) == nil:
		return &topics.Error{Code: api.ErrUnknownTopicOrPartition, Message: fmt.Sprintf("Unable to find partition %s:%d.", name, asked.PartitionIndex)}
	case asked.Replicas == nil:
		return &topics.Error{Code: api.ErrNoReassignmentInProgress}
	default:
		return s.topics.CheckReplicas(asked.Replicas)
	}
}
