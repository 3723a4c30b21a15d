package api

import (
	"fmt"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/topics"
)

// ElectLeaders, key 43, v0-v2. v1 type of election (KIP-460) and error code of the whole; v2 flexible.
//
// There is never anyone else to elect: 84 for a partition that has its leader, 80 (preferred) or 83 (unclean) for one whose log is
// offline. Null topics are all topics, which are listed without the partitions that need no election, as in Apache.
func electLeaders(c *call, q *api.ElectLeadersRequest, p *api.ElectLeadersResponse) {
	noLeader := api.ErrPreferredLeaderNotAvailable
	switch q.ElectionType {
	case electPreferred:
	case electUnclean:
		noLeader = api.ErrEligibleLeadersNotAvailable
	default:
		refuseElection(q, p)
		return
	}
	if q.TopicPartitions == nil {
		for _, t := range c.s.topics.All() {
			electAll(api.Next(&p.ReplicaElectionResults), t, noLeader)
		}
		return
	}
	for i := range q.TopicPartitions {
		asked := &q.TopicPartitions[i]
		t := c.s.topics.ByName(asked.Topic)
		out := api.Next(&p.ReplicaElectionResults)
		out.Topic = asked.Topic
		for _, index := range asked.Partitions {
			o := api.Next(&out.PartitionResult)
			o.PartitionId = index
			code, message := elect(t, asked.Topic, index, noLeader)
			o.ErrorCode, o.ErrorMessage = code, wire.Some(message)
		}
	}
}

// Types of election.
const (
	electPreferred = 0
	electUnclean   = 1
)

// refuseElection answers a type of election that there is not.
func refuseElection(q *api.ElectLeadersRequest, p *api.ElectLeadersResponse) {
	p.ErrorCode = api.ErrInvalidRequest
	message := wire.Some(fmt.Sprintf("Unknown election type %d", q.ElectionType))
	for i := range q.TopicPartitions {
		out := api.Next(&p.ReplicaElectionResults)
		out.Topic = q.TopicPartitions[i].Topic
		for _, index := range q.TopicPartitions[i].Partitions {
			o := api.Next(&out.PartitionResult)
			o.PartitionId, o.ErrorCode, o.ErrorMessage = index, p.ErrorCode, message
		}
	}
}

// electAll answers for a whole topic.
func electAll(out *api.ElectLeadersResponseReplicaElectionResult, t *topics.Topic, noLeader api.ErrorCode) {
	out.Topic = t.Name
	for _, part := range t.Partitions() {
		if code, message := elect(t, t.Name, part.Index, noLeader); code != api.ErrElectionNotNeeded {
			o := api.Next(&out.PartitionResult)
			o.PartitionId, o.ErrorCode, o.ErrorMessage = part.Index, code, wire.Some(message)
		}
	}
}

// elect tells why no leader is elected; t is nil if there is no such topic, noLeader is for a partition that nobody can lead.
func elect(t *topics.Topic, name string, index int32, noLeader api.ErrorCode) (api.ErrorCode, string) {
	if t == nil {
		return api.ErrUnknownTopicOrPartition, "No such topic as " + name
	}
	part := t.Partition(index)
	switch {
	case part == nil:
		return api.ErrUnknownTopicOrPartition, fmt.Sprintf("No such partition as %s-%d", name, index)
	case part.Log.Err() != nil:
		return noLeader, "The log of the partition is offline."
	default:
		return api.ErrElectionNotNeeded, "Leader election not needed for topic partition."
	}
}
