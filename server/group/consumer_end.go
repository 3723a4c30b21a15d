package group

import (
	"log/slog"
	"strings"
	"time"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/coordinator"
)

// expelAgain is how long after a failed write a member is taken out anew.
const expelAgain = time.Second

// expelConsumer takes a member out. If that cannot be written, again is called after a while.
func (s *Shard) expelConsumer(c *consumerGroup, m *consumerMember, why string, timer *coordinator.Timer, again func(now time.Time) coordinator.Outcome) coordinator.Outcome {
	s.log.Info("member taken out", slog.String("group", c.g.id), slog.String("member", m.id), slog.String("why", why))
	return coordinator.Outcome{Write: coordinator.Write{Entries: s.without(c, m)}, Done: func(err error) {
		if err != nil && !m.gone && *timer == 0 {
			*timer = s.timers.After(expelAgain, again)
		}
	}}
}

func compareText(a, b string) int { return strings.Compare(a, b) }

// consumerCheck tells whether a commit or fetch comes from a member in its epoch (25, 113).
func (c *consumerGroup) check(memberID string, epoch int32) api.ErrorCode {
	m := c.member(memberID)
	switch {
	case m == nil:
		return api.ErrUnknownMemberId
	case m.epoch != epoch:
		return api.ErrStaleMemberEpoch
	}
	return api.ErrNone
}

// mayFetch tells whether offsets are shown to whoever asks: to anybody who claims nothing, and to members in their epoch. A claim to an
// epoch without a member makes Apache fail (-1).
func (g *group) mayFetch(memberID wire.NullString, epoch int32) api.ErrorCode {
	switch {
	case g.consumer == nil || !memberID.Valid && epoch < 0:
		return api.ErrNone
	case !memberID.Valid:
		return api.ErrUnknownServerError
	}
	return g.consumer.check(memberID.String, epoch)
}

// ConsumerDescribe serves one group of ConsumerGroupDescribe, key 69, v0. Names of topics stay empty, as by Apache 3.7; members are in the
// order of their ids. AuthorizedOperations is left at "not asked for".
func (s *Shard) ConsumerDescribe(id string) api.ConsumerGroupDescribeResponseDescribedGroup {
	var p api.ConsumerGroupDescribeResponseDescribedGroup
	p.Default()
	p.GroupId = cloned(id)
	g := s.groups[id]
	if g == nil || g.dead || g.consumer == nil {
		p.ErrorCode = api.ErrGroupIdNotFound
		return p
	}
	c := g.consumer
	p.GroupState, p.GroupEpoch, p.AssignmentEpoch = c.state().lower(), c.epoch, c.targetEpoch
	p.AssignorName = s.assignor(c.memberStates(nil, nil)).name
	for _, m := range c.memberStates(nil, nil) {
		p.Members = append(p.Members, api.ConsumerGroupDescribeResponseMember{
			MemberId: m.id, InstanceId: m.instance, RackId: m.rack, MemberEpoch: m.epoch, ClientId: m.clientID.Value(), ClientHost: m.clientHost.Value(),
			SubscribedTopicNames: m.topics, SubscribedTopicRegex: wire.Some(""),
			Assignment: m.assigned.described(), TargetAssignment: c.targets[m.id].described()})
	}
	return p
}

func (p partitions) described() api.ConsumerGroupDescribeResponseAssignment {
	a := api.ConsumerGroupDescribeResponseAssignment{MetadataBytes: []byte{}}
	for _, topic := range p.sorted() {
		a.TopicPartitions = append(a.TopicPartitions, api.ConsumerGroupDescribeResponseTopicPartitions{TopicId: topic, Partitions: p[topic]})
	}
	return a
}
