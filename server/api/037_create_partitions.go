package api

import (
	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/topics"
)

// CreatePartitions, key 37, v0-v3. v2 flexible; v3 same as v2.
func createPartitions(c *call, q *api.CreatePartitionsRequest, p *api.CreatePartitionsResponse) {
	named := make(map[string]int, len(q.Topics))
	for i := range q.Topics {
		named[q.Topics[i].Name]++
	}
	for i := range q.Topics {
		t := &q.Topics[i]
		var err *topics.Error
		switch n := named[t.Name]; {
		case n < 0:
			continue
		case n > 1:
			named[t.Name] = -1 // answered once
			err = &topics.Error{Code: api.ErrInvalidRequest, Message: "Duplicate topic name."}
		default:
			err = c.s.topics.AddPartitions(t.Name, t.Count, partitionAssignments(t), q.ValidateOnly, c.admit(3))
		}
		o := api.Next(&p.Results)
		o.Name = t.Name
		if err != nil {
			o.ErrorCode, o.ErrorMessage = err.Code, wire.Some(err.Message)
		}
	}
}

// partitionAssignments lists the brokers asked for per new partition; nil if none were given (null).
func partitionAssignments(t *api.CreatePartitionsRequestCreatePartitionsTopic) []topics.Assignment {
	if t.Assignments == nil {
		return nil
	}
	out := []topics.Assignment{}
	for i := range t.Assignments {
		out = append(out, topics.Assignment{Brokers: t.Assignments[i].BrokerIds})
	}
	return out
}
