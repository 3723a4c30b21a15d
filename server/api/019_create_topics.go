package api

import (
	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/config"
	"kaas/server/topics"
)

// CreateTopics, key 19, v0-v7. v1 validate only, error message; v4 defaults (-1) for counts; v5 flexible, counts and settings in the
// answer; v7 topic id in the answer.
//
// All topics of a request are made by one durable write, and are visible on every connection before the answer is sent (regression 15).
//
// Deviation: timeout_ms is not looked at: the topic is made before the answer, however long the write takes.
// Deviation: policies (create.topic.policy.class.name) cannot be set, because they are Java classes.
func createTopics(c *call, q *api.CreateTopicsRequest, p *api.CreateTopicsResponse) {
	named := make(map[string]int, len(q.Topics))
	for i := range q.Topics {
		named[q.Topics[i].Name]++
	}
	var specs []topics.Spec
	for i := range q.Topics {
		t := &q.Topics[i]
		switch n := named[t.Name]; {
		case n == 1:
			specs = append(specs, c.topicSpec(t))
		case n > 1:
			named[t.Name] = -1 // answered once
			c.createdTopic(p, topics.Result{Name: t.Name, Err: &topics.Error{Code: api.ErrInvalidRequest, Message: "Duplicate topic name."}}, q)
		}
	}
	for _, r := range c.s.topics.Create(specs, q.ValidateOnly, c.admit(6)) {
		c.createdTopic(p, r, q)
	}
}

// topicSpec is what a request wants of one topic, with names and values of its own.
func (c *call) topicSpec(t *api.CreateTopicsRequestCreatableTopic) topics.Spec {
	s := topics.Spec{Name: cloneString(t.Name), Partitions: t.NumPartitions, ReplicationFactor: t.ReplicationFactor}
	for i := range t.Assignments {
		s.Assignments = append(s.Assignments, topics.Assignment{Partition: t.Assignments[i].PartitionIndex, Brokers: t.Assignments[i].BrokerIds})
	}
	for i := range t.Configs {
		v := t.Configs[i].Value
		s.Configs = append(s.Configs, config.Change{Name: cloneString(t.Configs[i].Name), Value: cloneString(v.String), Null: !v.Valid})
	}
	return s
}

// createdTopic answers for one topic.
func (c *call) createdTopic(p *api.CreateTopicsResponse, r topics.Result, q *api.CreateTopicsRequest) {
	o := api.Next(&p.Topics)
	o.Name = r.Name
	if r.Err != nil {
		o.ErrorCode, o.ErrorMessage = r.Err.Code, wire.Some(r.Err.Message)
		o.NumPartitions, o.ReplicationFactor = -1, -1
		o.Configs = []api.CreateTopicsResponseCreatableTopicConfigs{}
		return
	}
	o.NumPartitions, o.ReplicationFactor, o.TopicId = r.Partitions, 1, r.ID
	o.Configs = []api.CreateTopicsResponseCreatableTopicConfigs{}
	for _, e := range c.s.topics.Config().CreatedTopic(r.Configs) {
		k := api.Next(&o.Configs)
		k.Name, k.Value = e.Name, wire.NullString{String: e.Value, Valid: !e.Null}
		k.ReadOnly, k.ConfigSource, k.IsSensitive = e.ReadOnly, int8(e.Source), e.Sensitive
	}
}
