package group

import (
	"maps"
	"slices"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/coordinator"
)

// Versions of the keys of consumer groups; their values are v0.
const (
	epochKeyVersion         int16 = 3
	topicsKeyVersion        int16 = 4
	subscriptionKeyVersion  int16 = 5
	targetEpochKeyVersion   int16 = 6
	targetKeyVersion        int16 = 7
	currentKeyVersion       int16 = 8
	consumerValueVersion    int16 = 0
	firstConsumerKeyVersion       = epochKeyVersion
	lastConsumerKeyVersion        = currentKeyVersion
)

// consumerRecords makes the records of one operation on a consumer group.
type consumerRecords struct {
	group   string
	arena   arena
	entries []coordinator.Entry
}

func (r *consumerRecords) add(version int16, key, value api.Message) {
	e := coordinator.Entry{Key: r.arena.put(version, key)}
	if value != nil {
		e.Value = r.arena.put(consumerValueVersion, value)
	}
	r.entries = append(r.entries, e)
}

// epoch is the epoch of the group.
func (r *consumerRecords) epoch(epoch int32) {
	r.add(epochKeyVersion, &api.ConsumerGroupMetadataKey{GroupId: r.group}, &api.ConsumerGroupMetadataValue{Epoch: epoch})
}

// topics is what the group knows of its topics.
func (r *consumerRecords) topics(topics map[string]topicMetadata) {
	v := api.ConsumerGroupPartitionMetadataValue{Topics: make([]api.ConsumerGroupPartitionMetadataValueTopicMetadata, 0, len(topics))}
	for _, name := range slices.Sorted(maps.Keys(topics)) {
		t := topics[name]
		v.Topics = append(v.Topics, api.ConsumerGroupPartitionMetadataValueTopicMetadata{TopicId: t.id, TopicName: name, NumPartitions: t.partitions})
	}
	r.add(topicsKeyVersion, &api.ConsumerGroupPartitionMetadataKey{GroupId: r.group}, &v)
}

// subscription is what a member told of itself.
func (r *consumerRecords) subscription(m *memberState) {
	r.add(subscriptionKeyVersion, &api.ConsumerGroupMemberMetadataKey{GroupId: r.group, MemberId: m.id}, &api.ConsumerGroupMemberMetadataValue{
		InstanceId: m.instance, RackId: m.rack, ClientId: m.clientID.Value(), ClientHost: m.clientHost.Value(),
		SubscribedTopicNames: m.topics, SubscribedTopicRegex: wire.Some(""), RebalanceTimeoutMs: m.rebalance, ServerAssignor: m.assignor})
}

// target is what a member is to have.
func (r *consumerRecords) target(id string, p partitions) {
	v := api.ConsumerGroupTargetAssignmentMemberValue{MetadataBytes: []byte{}}
	for _, topic := range p.sorted() {
		v.TopicPartitions = append(v.TopicPartitions, api.ConsumerGroupTargetAssignmentMemberValueTopicPartition{TopicId: topic, Partitions: p[topic]})
	}
	r.add(targetKeyVersion, &api.ConsumerGroupTargetAssignmentMemberKey{GroupId: r.group, MemberId: id}, &v)
}

// targetEpoch ends the targets of an epoch.
func (r *consumerRecords) targetEpoch(epoch int32) {
	r.add(targetEpochKeyVersion, &api.ConsumerGroupTargetAssignmentMetadataKey{GroupId: r.group},
		&api.ConsumerGroupTargetAssignmentMetadataValue{AssignmentEpoch: epoch})
}

// current is where a member stands.
func (r *consumerRecords) current(m *memberState) {
	list := func(p partitions) (out []api.ConsumerGroupCurrentMemberAssignmentValueTopicPartitions) {
		for _, topic := range p.sorted() {
			out = append(out, api.ConsumerGroupCurrentMemberAssignmentValueTopicPartitions{TopicId: topic, Partitions: p[topic]})
		}
		return out
	}
	r.add(currentKeyVersion, &api.ConsumerGroupCurrentMemberAssignmentKey{GroupId: r.group, MemberId: m.id},
		&api.ConsumerGroupCurrentMemberAssignmentValue{MemberEpoch: m.epoch, PreviousMemberEpoch: m.previous, TargetMemberEpoch: m.target,
			AssignedPartitions: list(m.assigned), PartitionsPendingRevocation: list(m.revoking), PartitionsPendingAssignment: list(m.pending),
			MetadataBytes: []byte{}})
}

// removeMember takes a member out.
func (r *consumerRecords) removeMember(id string) {
	r.add(currentKeyVersion, &api.ConsumerGroupCurrentMemberAssignmentKey{GroupId: r.group, MemberId: id}, nil)
	r.add(targetKeyVersion, &api.ConsumerGroupTargetAssignmentMemberKey{GroupId: r.group, MemberId: id}, nil)
	r.add(subscriptionKeyVersion, &api.ConsumerGroupMemberMetadataKey{GroupId: r.group, MemberId: id}, nil)
}

// removeGroup takes an empty group out.
func (r *consumerRecords) removeGroup() {
	r.add(targetEpochKeyVersion, &api.ConsumerGroupTargetAssignmentMetadataKey{GroupId: r.group}, nil)
	r.add(topicsKeyVersion, &api.ConsumerGroupPartitionMetadataKey{GroupId: r.group}, nil)
	r.add(epochKeyVersion, &api.ConsumerGroupMetadataKey{GroupId: r.group}, nil)
}
