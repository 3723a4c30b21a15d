package logtool

import (
	"fmt"
	"strings"

	"kaas/codec/api"
	"kaas/codec/batch"
	"kaas/codec/wire"
)

// Key versions of the records of groups of the consumer protocol (KIP-848). All of a group's state follows from them.
const (
	groupEpochKey    = 3
	groupTopicsKey   = 4
	memberKey        = 5
	targetEpochKey   = 6
	targetKey        = 7
	currentKey       = 8
	firstConsumerKey = groupEpochKey
	lastConsumerKey  = currentKey
)

// consumerGroupObject is a record of a group of the consumer protocol. Which of the last fields there are depends on its kind.
type consumerGroupObject struct {
	Type      string  `json:"type"`
	File      string  `json:"file"`
	Offset    int64   `json:"offset"`
	Timestamp int64   `json:"timestamp"`
	Group     string  `json:"group"`
	Member    *string `json:"memberId,omitempty"`
	Removed   bool    `json:"removed,omitempty"` // a tombstone: nothing follows

	Epoch    *int32              `json:"epoch,omitempty"` // of the group, of its targets or of a member
	Topics   *[]groupTopicObject `json:"topics,omitempty"`
	Details  *subscriberObject   `json:"subscription,omitempty"`
	Previous *int32              `json:"previousMemberEpoch,omitempty"`
	Target   *int32              `json:"targetMemberEpoch,omitempty"`
	Assigned *[]topicPartsObject `json:"assigned,omitempty"`
	Revoking *[]topicPartsObject `json:"pendingRevocation,omitempty"`
	Pending  *[]topicPartsObject `json:"pendingAssignment,omitempty"`
}

// groupTopicObject is a topic as its group knows it.
type groupTopicObject struct {
	Topic      string `json:"topic"`
	ID         string `json:"id"`
	Partitions int32  `json:"partitions"`
}

// subscriberObject is what a member told of itself.
type subscriberObject struct {
	Instance         *string  `json:"instanceId,omitempty"`
	Rack             *string  `json:"rackId,omitempty"`
	ClientID         string   `json:"clientId"`
	ClientHost       string   `json:"clientHost"`
	Topics           []string `json:"topics"`
	Regex            *string  `json:"topicRegex,omitempty"`
	RebalanceTimeout int32    `json:"rebalanceTimeout"`
	Assignor         *string  `json:"serverAssignor,omitempty"`
}

// topicPartsObject are partitions of a topic.
type topicPartsObject struct {
	ID         string  `json:"topicId"`
	Partitions []int32 `json:"partitions"`
}

// consumerGroup prints a record of a group of the consumer protocol.
func (p *batchPrinter) consumerGroup(version int16, c *batch.Cursor) error {
	o := consumerGroupObject{File: p.path, Offset: c.Offset(), Timestamp: c.Timestamp()}
	name, rest, more, err := o.read(version, c)
	if err != nil {
		return err
	}
	line := fmt.Sprintf("  offset=%d time=%s %s group=%q", o.Offset, clock(o.Timestamp), name, o.Group)
	if o.Member != nil {
		line += fmt.Sprintf(" member=%q", *o.Member)
	}
	if o.Removed = c.Value() == nil; o.Removed {
		rest = " removed"
	}
	p.d.text("%s%s", line, rest)
	for _, l := range more {
		p.d.text("    %s", l)
	}
	p.d.object(o)
	return nil
}

// read decodes a record. name is its kind in text, rest and more what follows it there.
func (o *consumerGroupObject) read(version int16, c *batch.Cursor) (name, rest string, more []string, err error) {
	switch version {
	case groupEpochKey:
		o.Type, name = "consumerGroupMetadata", "consumer-group-epoch"
		rest, err = o.groupEpoch(c)
	case groupTopicsKey:
		o.Type, name = "consumerGroupPartitionMetadata", "consumer-group-topics"
		rest, more, err = o.groupTopics(c)
	case memberKey:
		o.Type, name = "consumerGroupMemberMetadata", "consumer-group-member"
		rest, err = o.member(c)
	case targetEpochKey:
		o.Type, name = "consumerGroupTargetAssignmentMetadata", "consumer-group-target-epoch"
		rest, err = o.targetEpoch(c)
	case targetKey:
		o.Type, name = "consumerGroupTargetAssignmentMember", "consumer-group-target"
		rest, err = o.target(c)
	default:
		o.Type, name = "consumerGroupCurrentMemberAssignment", "consumer-group-current"
		rest, err = o.current(c)
	}
	return name, rest, more, err
}

// keyed decodes a key and, if there is one, the value.
func keyed(c *batch.Cursor, k, v api.Message) (there bool, err error) {
	if _, err = versioned(c.Key(), k); err != nil || c.Value() == nil {
		return false, err
	}
	_, err = versioned(c.Value(), v)
	return err == nil, err
}

func (o *consumerGroupObject) groupEpoch(c *batch.Cursor) (string, error) {
	var k api.ConsumerGroupMetadataKey
	var v api.ConsumerGroupMetadataValue
	there, err := keyed(c, &k, &v)
	if o.Group = k.GroupId; !there {
		return "", err
	}
	o.Epoch = &v.Epoch
	return fmt.Sprintf(" epoch=%d", v.Epoch), nil
}

func (o *consumerGroupObject) groupTopics(c *batch.Cursor) (string, []string, error) {
	var k api.ConsumerGroupPartitionMetadataKey
	var v api.ConsumerGroupPartitionMetadataValue
	there, err := keyed(c, &k, &v)
	if o.Group = k.GroupId; !there {
		return "", nil, err
	}
	topics := make([]groupTopicObject, 0, len(v.Topics))
	var lines []string
	for i := range v.Topics {
		t := &v.Topics[i]
		topics = append(topics, groupTopicObject{t.TopicName, t.TopicId.String(), t.NumPartitions})
		lines = append(lines, fmt.Sprintf("topic=%q id=%s partitions=%d", t.TopicName, t.TopicId, t.NumPartitions))
	}
	o.Topics = &topics
	return fmt.Sprintf(" topics=%d", len(topics)), lines, nil
}

func (o *consumerGroupObject) member(c *batch.Cursor) (string, error) {
	var k api.ConsumerGroupMemberMetadataKey
	var v api.ConsumerGroupMemberMetadataValue
	there, err := keyed(c, &k, &v)
	if o.Group, o.Member = k.GroupId, &k.MemberId; !there {
		return "", err
	}
	o.Details = &subscriberObject{Instance: optional(v.InstanceId), Rack: optional(v.RackId), ClientID: v.ClientId, ClientHost: v.ClientHost,
		Topics: v.SubscribedTopicNames, Regex: optional(v.SubscribedTopicRegex), RebalanceTimeout: v.RebalanceTimeoutMs, Assignor: optional(v.ServerAssignor)}
	var b strings.Builder
	said := func(name string, s wire.NullString) {
		if s.Valid {
			fmt.Fprintf(&b, " %s=%q", name, s.String)
		}
	}
	said("instance", v.InstanceId)
	said("rack", v.RackId)
	fmt.Fprintf(&b, " client=%q host=%q rebalance-ms=%d topics=%q", v.ClientId, v.ClientHost, v.RebalanceTimeoutMs, v.SubscribedTopicNames)
	said("regex", v.SubscribedTopicRegex)
	said("assignor", v.ServerAssignor)
	return b.String(), nil
}

func (o *consumerGroupObject) targetEpoch(c *batch.Cursor) (string, error) {
	var k api.ConsumerGroupTargetAssignmentMetadataKey
	var v api.ConsumerGroupTargetAssignmentMetadataValue
	there, err := keyed(c, &k, &v)
	if o.Group = k.GroupId; !there {
		return "", err
	}
	o.Epoch = &v.AssignmentEpoch
	return fmt.Sprintf(" epoch=%d", v.AssignmentEpoch), nil
}

func (o *consumerGroupObject) target(c *batch.Cursor) (string, error) {
	var k api.ConsumerGroupTargetAssignmentMemberKey
	var v api.ConsumerGroupTargetAssignmentMemberValue
	there, err := keyed(c, &k, &v)
	if o.Group, o.Member = k.GroupId, &k.MemberId; !there {
		return "", err
	}
	list := make([]topicPartsObject, 0, len(v.TopicPartitions))
	for i := range v.TopicPartitions {
		list = append(list, topicPartsObject{v.TopicPartitions[i].TopicId.String(), v.TopicPartitions[i].Partitions})
	}
	o.Assigned = &list
	return partsLine("assigned", list), nil
}

func (o *consumerGroupObject) current(c *batch.Cursor) (string, error) {
	var k api.ConsumerGroupCurrentMemberAssignmentKey
	var v api.ConsumerGroupCurrentMemberAssignmentValue
	there, err := keyed(c, &k, &v)
	if o.Group, o.Member = k.GroupId, &k.MemberId; !there {
		return "", err
	}
	parts := func(all []api.ConsumerGroupCurrentMemberAssignmentValueTopicPartitions) *[]topicPartsObject {
		list := make([]topicPartsObject, 0, len(all))
		for i := range all {
			list = append(list, topicPartsObject{all[i].TopicId.String(), all[i].Partitions})
		}
		return &list
	}
	o.Epoch, o.Previous, o.Target = &v.MemberEpoch, &v.PreviousMemberEpoch, &v.TargetMemberEpoch
	o.Assigned, o.Revoking, o.Pending = parts(v.AssignedPartitions), parts(v.PartitionsPendingRevocation), parts(v.PartitionsPendingAssignment)
	return fmt.Sprintf(" epoch=%d previous=%d target=%d", v.MemberEpoch, v.PreviousMemberEpoch, v.TargetMemberEpoch) + partsLine("assigned", *o.Assigned) +
		partsLine("revoking", *o.Revoking) + partsLine("pending", *o.Pending), nil
}

// partsLine is partitions as text, by the ids of their topics.
func partsLine(name string, list []topicPartsObject) string {
	if len(list) == 0 {
		return " " + name + "=-"
	}
	var b strings.Builder
	for i := range list {
		fmt.Fprintf(&b, " %s=%s%v", name, list[i].ID, list[i].Partitions)
	}
	return b.String()
}
