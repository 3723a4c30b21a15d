package group

import (
	"fmt"
	"slices"
	"time"
	"unique"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/coordinator"
)

// refusal is why a heartbeat is not taken.
type refusal struct {
	code api.ErrorCode
	text string
}

func refused(code api.ErrorCode, format string, args ...any) *refusal {
	return &refusal{code, fmt.Sprintf(format, args...)}
}

// ConsumerHeartbeat serves ConsumerGroupHeartbeat, key 68, v0 (KIP-848): members join with epoch 0, live, and leave with -1, static ones for
// a while with -2. It must not be called without Config.Consumer.
func (s *Shard) ConsumerHeartbeat(q *api.ConsumerGroupHeartbeatRequest, from Client, now time.Time,
	reply func(*api.ConsumerGroupHeartbeatResponse)) coordinator.Outcome {
	p, r := s.consumerHeartbeat(q, from, now)
	if r != nil {
		s.fx = effects{}
		p = &api.ConsumerGroupHeartbeatResponse{ErrorCode: r.code, ErrorMessage: wire.Some(r.text)}
	}
	s.after(func(err error) {
		if err != nil {
			p = &api.ConsumerGroupHeartbeatResponse{ErrorCode: Refusal(api.KeyConsumerGroupHeartbeat, err)}
		}
		reply(p)
	})
	return s.outcome()
}

func (s *Shard) consumerHeartbeat(q *api.ConsumerGroupHeartbeatRequest, from Client, now time.Time) (*api.ConsumerGroupHeartbeatResponse, *refusal) {
	if r := s.invalid(q); r != nil {
		return nil, r
	}
	g := s.groups[q.GroupId]
	switch {
	case g == nil && q.MemberEpoch != joinEpoch:
		return nil, refused(api.ErrGroupIdNotFound, "There is no group %s.", q.GroupId)
	case g != nil && g.dead:
		return nil, refused(api.ErrCoordinatorNotAvailable, "Group %s is being deleted.", q.GroupId)
	case g != nil && g.consumer == nil:
		return nil, refused(api.ErrGroupIdNotFound, "Group %s is of another protocol.", q.GroupId)
	}
	c := newConsumer(nil) // of a new group it stays empty: what happens to it follows from its records
	if g != nil {
		c = g.consumer
	}
	if q.MemberEpoch < joinEpoch {
		return s.leaveConsumer(c, q)
	}
	b := &beat{s: s, c: c, q: q, now: now, records: consumerRecords{group: q.GroupId}}
	return b.run(from)
}

// invalid checks what can be said of a request without looking at its group.
func (s *Shard) invalid(q *api.ConsumerGroupHeartbeatRequest) *refusal {
	bad := func(text string) *refusal { return refused(api.ErrInvalidRequest, "%s", text) }
	blank := func(t wire.NullString) bool { return t.Valid && t.String == "" }
	joins := q.MemberEpoch == joinEpoch
	switch {
	case q.GroupId == "":
		return bad("The group id is empty.")
	case blank(q.InstanceId):
		return bad("The instance id is empty.")
	case blank(q.RackId):
		return bad("The rack id is empty.")
	case q.MemberEpoch < leftForNowEpoch:
		return bad("There is no such member epoch.")
	case !joins && q.MemberId == "":
		return bad("The member id is empty.")
	case q.MemberEpoch == leftForNowEpoch && !q.InstanceId.Valid:
		return bad("Only a member with an instance id leaves for a while.")
	case joins && q.RebalanceTimeoutMs == -1:
		return bad("A member that joins brings a rebalance timeout.")
	case joins && (q.TopicPartitions == nil || len(q.TopicPartitions) > 0):
		return bad("A member that joins has no partitions, and says so.")
	case joins && len(q.SubscribedTopicNames) == 0:
		return bad("A member that joins subscribes to topics.")
	}
	known := slices.ContainsFunc(s.cfg.Consumer.Assignors, func(a Assignor) bool { return a.name == q.ServerAssignor.String })
	if q.ServerAssignor.Valid && !known {
		return refused(api.ErrUnsupportedAssignor, "There is no assignor %q; there are: %s.", q.ServerAssignor.String, assignorNames(s.cfg.Consumer.Assignors))
	}
	return nil
}

// beat is the heartbeat of a member that joins or lives.
type beat struct {
	s       *Shard
	c       *consumerGroup
	q       *api.ConsumerGroupHeartbeatRequest
	now     time.Time
	records consumerRecords
	// was is the member before, nil if it is new. replaced says that was is another one, whose place a static member takes.
	was      *memberState
	replaced bool
	member   memberState
	epoch    int32 // of the group
	topics   map[string]topicMetadata
}

// run is the whole of a heartbeat: who the member is, what it subscribes to, what it is to have, and what of that it may have now.
func (b *beat) run(from Client) (*api.ConsumerGroupHeartbeatResponse, *refusal) {
	if r := b.identify(); r != nil {
		return nil, r
	}
	b.subscribe(from)
	target := b.c.targets[b.member.id]
	targetEpoch := b.c.targetEpoch
	switch {
	case b.epoch > targetEpoch:
		target, targetEpoch = b.assign(), b.epoch
	case b.replaced:
		target = b.inherit()
	}
	moved := b.reconcile(target, targetEpoch)
	id, group := b.member.id, cloned(b.q.GroupId)
	b.s.write(b.records.entries...)
	b.s.after(func(err error) {
		if err == nil {
			b.s.alive(group, id, moved, b.now)
		}
	})
	p := &api.ConsumerGroupHeartbeatResponse{MemberId: wire.Some(id), MemberEpoch: b.member.epoch,
		HeartbeatIntervalMs: int32(b.s.cfg.Consumer.HeartbeatInterval.Milliseconds())}
	if b.q.TopicPartitions != nil || b.q.MemberEpoch == joinEpoch || moved {
		p.Assignment = &api.ConsumerGroupHeartbeatResponseAssignment{TopicPartitions: []api.ConsumerGroupHeartbeatResponseTopicPartitions{}}
		for _, topic := range b.member.assigned.sorted() {
			p.Assignment.TopicPartitions = append(p.Assignment.TopicPartitions,
				api.ConsumerGroupHeartbeatResponseTopicPartitions{TopicId: topic, Partitions: b.member.assigned[topic]})
		}
	}
	return p, nil
}

// identify finds the member that a heartbeat comes from, or makes it.
func (b *beat) identify() *refusal {
	c, q := b.c, b.q
	known := c.member(q.MemberId)
	if limit := b.s.cfg.Consumer.MaxSize; known == nil && len(c.members) >= limit {
		return refused(api.ErrGroupMaxSizeReached, "The group has its %d members.", limit)
	}
	id := cloned(q.MemberId)
	if id == "" {
		id = b.s.newID()
	}
	fresh := memberState{id: id, rebalance: -1}
	if !q.InstanceId.Valid {
		switch {
		case known != nil:
			return b.resume(known)
		case q.MemberEpoch != joinEpoch:
			return unknownMember(q.GroupId, q.MemberId)
		}
		b.member = fresh
		return nil
	}
	static := c.instances[q.InstanceId.String]
	switch {
	case q.MemberEpoch != joinEpoch:
		if r := checkInstance(static, q); r != nil {
			return r
		}
		return b.resume(static)
	case static == nil && known != nil:
		return b.resume(known)
	case static == nil:
		b.member = fresh
		return nil
	case static.epoch != leftForNowEpoch:
		return refused(api.ErrUnreleasedInstanceId, "Instance id %s is held by member %s.", q.InstanceId.String, static.id)
	}
	b.was, b.replaced = &static.memberState, true
	b.member = fresh
	b.member.assigned = static.assigned
	b.records.removeMember(static.id)
	return nil
}

func unknownMember(group, id string) *refusal {
	return refused(api.ErrUnknownMemberId, "Group %s has no member %s.", group, id)
}

// checkInstance tells whether the member that holds an instance id is the one that a request comes from.
func checkInstance(static *consumerMember, q *api.ConsumerGroupHeartbeatRequest) *refusal {
	switch {
	case static == nil:
		return refused(api.ErrUnknownMemberId, "Group %s has no member with instance id %s.", q.GroupId, q.InstanceId.String)
	case static.id != q.MemberId:
		return refused(api.ErrFencedInstanceId, "Instance id %s is held by member %s.", q.InstanceId.String, static.id)
	}
	return nil
}

// resume goes on with a member that is there. The epoch before its own is taken too, from one that has no more than it may: the answer
// that told the present one was lost.
func (b *beat) resume(m *consumerMember) *refusal {
	epoch, own := b.q.MemberEpoch, owned(b.q.TopicPartitions)
	more := own == nil || own.any(func(k topicIDPartition) bool { return !m.assigned.has(k) })
	if epoch > m.epoch || epoch < m.epoch && (epoch != m.previous || more) {
		return refused(api.ErrFencedMemberEpoch, "Member %s is in epoch %d, not in %d; it has to give up its partitions and join again.", m.id, m.epoch, epoch)
	}
	b.was = &m.memberState
	b.member = m.memberState
	return nil
}

// subscribe takes over what the member tells of itself, and lets the group know of its topics.
func (b *beat) subscribe(from Client) {
	q, m := b.q, &b.member
	if q.InstanceId.Valid {
		m.instance = ownText(q.InstanceId)
	}
	if q.RackId.Valid {
		m.rack = ownText(q.RackId)
	}
	if q.RebalanceTimeoutMs != -1 {
		m.rebalance = q.RebalanceTimeoutMs
	}
	if q.ServerAssignor.Valid {
		m.assignor = ownText(q.ServerAssignor)
	}
	if q.SubscribedTopicNames != nil {
		m.topics = subscribedTo(q.SubscribedTopicNames)
	}
	m.clientID, m.clientHost = unique.Make(from.ID), unique.Make(from.Host)
	b.epoch, b.topics = b.c.epoch, b.c.topics
	changed := b.was == nil || !slices.Equal(b.was.topics, m.topics)
	if b.was == nil || !b.was.toldTheSame(m) {
		b.records.subscription(m)
	}
	there := b.s.cfg.Consumer.Topics()
	if !changed && b.c.seen != nil && there.Same(b.c.seen) {
		return
	}
	if topics := b.c.knownTopics(there, b.was, m); !sameTopics(topics, b.c.topics) {
		changed = true
		b.topics = topics
		b.records.topics(topics)
	}
	if changed {
		b.epoch++
		b.records.epoch(b.epoch)
	} else {
		b.c.seen = there
	}
}

// toldTheSame compares what members tell of themselves.
func (m *memberState) toldTheSame(o *memberState) bool {
	return m.id == o.id && m.instance == o.instance && m.rack == o.rack && m.clientID == o.clientID && m.clientHost == o.clientHost &&
		m.rebalance == o.rebalance && m.assignor == o.assignor && slices.Equal(m.topics, o.topics)
}

// alive gives a member that was heard of a new session. moved: it also moved towards its target.
func (s *Shard) alive(group, id string, moved bool, now time.Time) {
	g := s.groups[group]
	if g == nil || g.consumer == nil {
		return
	}
	if m := g.consumer.member(id); m != nil {
		s.touchConsumer(g.consumer, m, now)
		if moved {
			s.watchRevocation(g.consumer, m)
		}
	}
}

// leaveConsumer takes a member out, or notes that a static one left for a while.
func (s *Shard) leaveConsumer(c *consumerGroup, q *api.ConsumerGroupHeartbeatRequest) (*api.ConsumerGroupHeartbeatResponse, *refusal) {
	m := c.member(q.MemberId)
	if q.InstanceId.Valid {
		m = c.instances[q.InstanceId.String]
		if r := checkInstance(m, q); r != nil {
			return nil, r
		}
	} else if m == nil {
		return nil, unknownMember(q.GroupId, q.MemberId)
	}
	if q.MemberEpoch == leftForNowEpoch {
		left := m.memberState
		left.epoch, left.revoking, left.pending = leftForNowEpoch, nil, nil
		r := consumerRecords{group: c.g.id}
		r.current(&left)
		s.write(r.entries...)
	} else {
		s.write(s.without(c, m)...)
	}
	return &api.ConsumerGroupHeartbeatResponse{MemberId: wire.Some(m.id), MemberEpoch: q.MemberEpoch}, nil
}

// without is what takes a member out of its group.
func (s *Shard) without(c *consumerGroup, m *consumerMember) []coordinator.Entry {
	r := consumerRecords{group: c.g.id}
	r.removeMember(m.id)
	if topics := c.knownTopics(s.cfg.Consumer.Topics(), &m.memberState, nil); !sameTopics(topics, c.topics) {
		r.topics(topics)
	}
	r.epoch(c.epoch + 1)
	return r.entries
}
