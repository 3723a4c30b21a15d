package api

import (
	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/topics"
)

// Metadata, key 3, v0-v12. v1 null for all topics, controller, rack, internal flag; v2 cluster id; v4 flag for auto-creation; v7 leader
// epoch; v8 authorized operations; v9 flexible; v10 topic ids in answers; v11 no cluster operations; v12 topics asked by id.
//
// Small answers are made on the loop; auto-creation and long lists run on a worker.

// metadataOnLoopMax is the number of topics up to which an answer is made on the loop.
const metadataOnLoopMax = 200

// serveMetadata picks where the request runs.
func serveMetadata(c *call) {
	var q api.MetadataRequest
	if !c.decode(&q) {
		return
	}
	if c.metadataBlocks(&q) {
		c.toWorker(onLoop(metadata))
		return
	}
	var p api.MetadataResponse
	p.Default()
	metadata(c, &q, &p)
	c.answer(&p)
}

// metadataBlocks tells whether answering may take long, or makes a topic.
func (c *call) metadataBlocks(q *api.MetadataRequest) bool {
	if c.allTopics(q) {
		return c.s.topics.Len() > metadataOnLoopMax
	}
	if len(q.Topics) > metadataOnLoopMax {
		return true
	}
	for i := range q.Topics {
		if n := q.Topics[i].Name; n.Valid && c.mayCreate(q) && c.s.topics.ByName(n.String) == nil {
			return true
		}
	}
	return false
}

// allTopics: null asks for all, and so does an empty list in v0 (regression 12).
func (c *call) allTopics(q *api.MetadataRequest) bool {
	return q.Topics == nil || c.version() == 0 && len(q.Topics) == 0
}

// mayCreate: both the broker and the request must allow auto-creation.
func (c *call) mayCreate(q *api.MetadataRequest) bool {
	return q.AllowAutoTopicCreation && c.s.topics.AutoCreate()
}

// metadata answers.
func metadata(c *call, q *api.MetadataRequest, p *api.MetadataResponse) {
	s := c.s
	host, port := s.endpoint(c.conn)
	p.Brokers = []api.MetadataResponseMetadataResponseBroker{{NodeId: s.nodeID, Host: host, Port: port, Rack: s.rack}}
	p.ClusterId = wire.Some(s.clusterID)
	p.ControllerId = s.nodeID
	if q.IncludeClusterAuthorizedOperations {
		p.ClusterAuthorizedOperations = clusterOperations
	}
	switch {
	case c.allTopics(q):
		for _, t := range s.topics.All() {
			p.Topics = append(p.Topics, s.describeTopic(t, q))
		}
	case c.version() >= 10 && asksByID(q):
		c.metadataByID(q, p)
	default:
		c.metadataByName(q, p)
	}
}

// asksByID tells whether any topic is named by id; names beside ids are then left out, as Apache does.
func asksByID(q *api.MetadataRequest) bool {
	for i := range q.Topics {
		if q.Topics[i].TopicId != (wire.UUID{}) {
			return true
		}
	}
	return false
}

// metadataByID answers topics asked by id: served from v12 on.
func (c *call) metadataByID(q *api.MetadataRequest, p *api.MetadataResponse) {
	for i := range q.Topics {
		id := q.Topics[i].TopicId
		if id == (wire.UUID{}) && c.version() >= 12 {
			continue
		}
		t := c.s.topics.ByID(id)
		if c.version() >= 12 && t != nil {
			p.Topics = append(p.Topics, c.s.describeTopic(t, q))
			continue
		}
		code := api.ErrUnknownTopicId
		name := wire.NullString{}
		if c.version() < 12 {
			code, name = api.ErrInvalidRequest, wire.Some(q.Topics[i].Name.String)
		}
		p.Topics = append(p.Topics, noTopic(code, name, id, q))
	}
}

// metadataByName answers topics asked by name, and makes unknown ones where that is allowed.
func (c *call) metadataByName(q *api.MetadataRequest, p *api.MetadataResponse) {
	var create []string
	asked := make(map[string]bool, len(q.Topics))
	for i := range q.Topics {
		name := q.Topics[i].Name.String
		if asked[name] {
			continue
		}
		asked[name] = true
		if t := c.s.topics.ByName(name); t != nil {
			p.Topics = append(p.Topics, c.s.describeTopic(t, q))
			continue
		}
		code := api.ErrUnknownTopicOrPartition
		switch {
		case topics.CheckName(name) != nil:
			code = api.ErrInvalidTopicException
		case c.mayCreate(q) && c.off:
			create = append(create, name)
		}
		p.Topics = append(p.Topics, noTopic(code, wire.Some(name), wire.UUID{}, q))
	}
	// The topic is there for the next Metadata; this answer says 3, as Apache's does, and clients come again.
	c.s.topics.AutoCreateTopics(create)
}

// noTopic is the answer for a topic that is not there.
func noTopic(code api.ErrorCode, name wire.NullString, id wire.UUID, q *api.MetadataRequest) (t api.MetadataResponseMetadataResponseTopic) {
	t.Default()
	t.ErrorCode, t.Name, t.TopicId = code, name, id
	t.IsInternal = topics.IsInternal(name.String)
	if q.IncludeTopicAuthorizedOperations {
		t.TopicAuthorizedOperations = topicOperations
	}
	return t
}

// describeTopic is the answer for a topic that is: this broker leads every partition, and is its only replica.
func (s *Service) describeTopic(t *topics.Topic, q *api.MetadataRequest) (out api.MetadataResponseMetadataResponseTopic) {
	out.Default()
	out.Name, out.TopicId, out.IsInternal = wire.Some(t.Name), t.ID, t.Internal
	parts := t.Partitions()
	out.Partitions = make([]api.MetadataResponseMetadataResponsePartition, len(parts))
	for i, p := range parts {
		o := &out.Partitions[i]
		o.Default()
		o.PartitionIndex, o.LeaderId, o.LeaderEpoch = p.Index, s.nodeID, p.LeaderEpoch
		o.ReplicaNodes, o.IsrNodes = s.replicas, s.replicas
		if p.Log.Err() != nil { // offline: no leader until it is repaired
			o.ErrorCode, o.LeaderId, o.OfflineReplicas = api.ErrLeaderNotAvailable, -1, s.replicas
		}
	}
	if q.IncludeTopicAuthorizedOperations {
		out.TopicAuthorizedOperations = topicOperations
	}
	return out
}
