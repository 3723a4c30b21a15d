package group

import (
	"log/slog"
	"time"
	"unique"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/coordinator"
)

// replayConsumer applies a record of a consumer group. Compaction keeps the order of what it keeps, but may have removed what came before:
// whatever a record is about is made when it is not there.
func (s *Shard) replayConsumer(version int16, e coordinator.Entry) error {
	switch version {
	case epochKeyVersion:
		return s.replayEpoch(e)
	case topicsKeyVersion:
		return s.replayTopics(e)
	case subscriptionKeyVersion:
		return s.replaySubscription(e)
	case targetEpochKeyVersion:
		return s.replayTargetEpoch(e)
	case targetKeyVersion:
		return s.replayTarget(e)
	}
	return s.replayCurrent(e)
}

// consumerOf finds a consumer group; unless a record is a tombstone it is made if need be.
func (s *Shard) consumerOf(id string, tombstone bool) *consumerGroup {
	g := s.groups[id]
	if tombstone {
		if g == nil {
			return nil
		}
		return g.consumer
	}
	if g == nil {
		g = s.ensure(id)
	}
	if g.consumer == nil {
		g.consumer = newConsumer(g)
	}
	return g.consumer
}

func (s *Shard) replayEpoch(e coordinator.Entry) error {
	var k api.ConsumerGroupMetadataKey
	var v api.ConsumerGroupMetadataValue
	if err := readEntry(e, &k, &v); err != nil {
		return err
	}
	c := s.consumerOf(k.GroupId, e.Value == nil)
	switch {
	case c == nil:
	case e.Value == nil:
		s.stopConsumer(c)
		c.g.consumer = nil
		s.tidy(c.g)
	default:
		c.epoch = v.Epoch
	}
	return nil
}

func (s *Shard) replayTopics(e coordinator.Entry) error {
	var k api.ConsumerGroupPartitionMetadataKey
	var v api.ConsumerGroupPartitionMetadataValue
	if err := readEntry(e, &k, &v); err != nil {
		return err
	}
	if c := s.consumerOf(k.GroupId, e.Value == nil); c != nil {
		c.topics = make(map[string]topicMetadata, len(v.Topics))
		for i := range v.Topics {
			c.topics[cloned(v.Topics[i].TopicName)] = topicMetadata{v.Topics[i].TopicId, v.Topics[i].NumPartitions}
		}
	}
	return nil
}

func (s *Shard) replaySubscription(e coordinator.Entry) error {
	var k api.ConsumerGroupMemberMetadataKey
	var v api.ConsumerGroupMemberMetadataValue
	if err := readEntry(e, &k, &v); err != nil {
		return err
	}
	c := s.consumerOf(k.GroupId, e.Value == nil)
	if c == nil {
		return nil
	}
	if e.Value == nil {
		if m := c.members[k.MemberId]; m != nil {
			s.removeConsumerMember(c, m)
		}
		return nil
	}
	m := c.ensureMember(k.MemberId)
	c.unlinkInstance(m)
	m.described = true
	m.instance, m.rack, m.assignor = ownText(v.InstanceId), ownText(v.RackId), ownText(v.ServerAssignor)
	m.clientID, m.clientHost = unique.Make(v.ClientId), unique.Make(v.ClientHost)
	m.topics, m.rebalance = subscribedTo(v.SubscribedTopicNames), v.RebalanceTimeoutMs
	if m.isStatic() {
		c.instances[m.instance.String] = m
	}
	return nil
}

func (s *Shard) replayTargetEpoch(e coordinator.Entry) error {
	var k api.ConsumerGroupTargetAssignmentMetadataKey
	var v api.ConsumerGroupTargetAssignmentMetadataValue
	if err := readEntry(e, &k, &v); err != nil {
		return err
	}
	if c := s.consumerOf(k.GroupId, e.Value == nil); c != nil {
		c.targetEpoch = v.AssignmentEpoch
	}
	return nil
}

func (s *Shard) replayTarget(e coordinator.Entry) error {
	var k api.ConsumerGroupTargetAssignmentMemberKey
	var v api.ConsumerGroupTargetAssignmentMemberValue
	if err := readEntry(e, &k, &v); err != nil {
		return err
	}
	c := s.consumerOf(k.GroupId, e.Value == nil)
	if c == nil {
		return nil
	}
	if e.Value == nil {
		delete(c.targets, k.MemberId)
		return nil
	}
	p := make(partitions, len(v.TopicPartitions))
	for i := range v.TopicPartitions {
		for _, index := range v.TopicPartitions[i].Partitions {
			p.put(topicIDPartition{v.TopicPartitions[i].TopicId, index})
		}
	}
	c.targets[cloned(k.MemberId)] = p.close()
	return nil
}

func (s *Shard) replayCurrent(e coordinator.Entry) error {
	var k api.ConsumerGroupCurrentMemberAssignmentKey
	var v api.ConsumerGroupCurrentMemberAssignmentValue
	if err := readEntry(e, &k, &v); err != nil {
		return err
	}
	c := s.consumerOf(k.GroupId, e.Value == nil)
	if c == nil || e.Value == nil && c.members[k.MemberId] == nil {
		return nil
	}
	m := c.ensureMember(k.MemberId)
	c.disown(m)
	if e.Value == nil {
		v = api.ConsumerGroupCurrentMemberAssignmentValue{MemberEpoch: leaveEpoch}
	}
	m.epoch, m.previous, m.target = v.MemberEpoch, v.PreviousMemberEpoch, v.TargetMemberEpoch
	m.assigned, m.revoking, m.pending = fromRecord(v.AssignedPartitions), fromRecord(v.PartitionsPendingRevocation), fromRecord(v.PartitionsPendingAssignment)
	c.own(m)
	return nil
}

func fromRecord(list []api.ConsumerGroupCurrentMemberAssignmentValueTopicPartitions) partitions {
	p := make(partitions, len(list))
	for i := range list {
		for _, index := range list[i].Partitions {
			p.put(topicIDPartition{list[i].TopicId, index})
		}
	}
	return p.close()
}

// readEntry decodes a key and, if there is one, its value.
func readEntry(e coordinator.Entry, k, v api.Message) error {
	if _, err := read(e.Key, k); err != nil || e.Value == nil {
		return err
	}
	_, err := read(e.Value, v)
	return err
}

// ownText is a text that aliases nothing.
func ownText(t wire.NullString) wire.NullString {
	return wire.NullString{String: cloned(t.String), Valid: t.Valid}
}

func (c *consumerGroup) ensureMember(id string) *consumerMember {
	m := c.members[id]
	if m == nil {
		m = &consumerMember{memberState: memberState{id: cloned(id), rebalance: -1}}
		c.members[m.id] = m
	}
	return m
}

// own notes whose the partitions of a member are: also those that it is to give up.
func (c *consumerGroup) own(m *consumerMember) {
	take := func(k topicIDPartition) { c.owners[k] = m }
	m.assigned.each(take)
	m.revoking.each(take)
}

// disown takes the partitions of a member from it.
func (c *consumerGroup) disown(m *consumerMember) {
	free := func(k topicIDPartition) {
		if c.owners[k] == m {
			delete(c.owners, k)
		}
	}
	m.assigned.each(free)
	m.revoking.each(free)
}

func (c *consumerGroup) unlinkInstance(m *consumerMember) {
	if m.isStatic() && c.instances[m.instance.String] == m {
		delete(c.instances, m.instance.String)
	}
}

// removeConsumerMember forgets a member.
func (s *Shard) removeConsumerMember(c *consumerGroup, m *consumerMember) {
	c.disown(m)
	c.unlinkInstance(m)
	s.silence(m)
	delete(c.members, m.id)
}

// silence stops the alarms of a member that is no more.
func (s *Shard) silence(m *consumerMember) {
	m.gone = true
	s.stop(&m.session)
	s.stop(&m.revocation)
}

func (s *Shard) stopConsumer(c *consumerGroup) {
	for _, m := range c.members {
		s.silence(m)
	}
}

// loadedConsumer gives the members of a group that was loaded a whole session, and those that were giving up partitions all their time.
func (s *Shard) loadedConsumer(c *consumerGroup, now time.Time) {
	for _, id := range c.ids() {
		m := c.members[id]
		if !m.described { // the rest of one that is gone
			s.log.Warn("a member without a subscription is left out", slog.String("group", c.g.id), slog.String("member", id))
			s.removeConsumerMember(c, m)
			continue
		}
		s.touchConsumer(c, m, now)
		s.watchRevocation(c, m)
	}
}
