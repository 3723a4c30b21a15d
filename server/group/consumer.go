package group

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/coordinator"
)

// ConsumerConfig is what groups of the consumer protocol (KIP-848) need to know.
type ConsumerConfig struct {
	SessionTimeout    time.Duration // group.consumer.session.timeout.ms
	HeartbeatInterval time.Duration // group.consumer.heartbeat.interval.ms, told to members
	MaxSize           int           // group.consumer.max.size, members
	Assignors         []Assignor    // group.consumer.assignors, at least one; the first is the default
	// Topics says what topics there are. It is called on the shards' goroutines.
	Topics func() Topics
}

// Topics is what topics there are at one moment.
type Topics interface {
	// Topic finds a topic by name; ok is false if there is none.
	Topic(name string) (id wire.UUID, partitions int32, ok bool)
	// Same says whether nothing has changed since other was taken. A false alarm costs a look at the topics of a group.
	Same(other Topics) bool
}

// consumerGroup is the membership of a group of the consumer protocol. All of it but seen and the members' alarms follows from records, and
// changes in Replay alone.
type consumerGroup struct {
	g *group
	// epoch is the group's: it grows when members come, go or subscribe to something else, and when their topics change.
	epoch int32
	// targetEpoch is the epoch that targets was made for.
	targetEpoch int32
	members     map[string]*consumerMember
	instances   map[string]*consumerMember // those that are static
	targets     map[string]partitions      // what each member is to have in the end, by member id
	topics      map[string]topicMetadata   // the subscribed ones that exist, by name, as of epoch
	owners      map[topicIDPartition]*consumerMember
	// seen is when topics was last compared with what there is; nil: not since the shard was loaded.
	seen Topics
}

// topicMetadata is what a group knows of a topic.
type topicMetadata struct {
	id         wire.UUID
	partitions int32
}

// topicIDPartition names a partition of one topic, and not of another one that gets its name later.
type topicIDPartition struct {
	topic     wire.UUID
	partition int32
}

// partitions are partitions by topic, in ascending order; no topic is without any. They are replaced, never changed.
type partitions map[wire.UUID][]int32

// consumerMember is a member of a consumer group.
type consumerMember struct {
	memberState
	described bool // has a record of its subscription; one without is not a member
	gone      bool

	session    coordinator.Timer
	deadline   time.Time // when the session ends; the alarm may ring earlier, and looks
	revocation coordinator.Timer
}

// memberState is what the records say of a member. Operations make a changed copy of it.
type memberState struct {
	id         string
	instance   wire.NullString
	rack       wire.NullString
	clientID   name
	clientHost name
	topics     []string // subscribed to, in order
	rebalance  int32    // ms, how long the member may take to give up partitions; -1 unknown
	assignor   wire.NullString

	epoch    int32 // acknowledged by the member; leftForNow for a static member that will be back
	previous int32 // the epoch before it
	target   int32 // of the target assignment that it moves towards
	assigned partitions
	revoking partitions // still owned, until the member says that it has given them up
	pending  partitions // to be assigned when their owners have given them up
}

// Epochs with a meaning of their own.
const (
	joinEpoch       int32 = 0
	leaveEpoch      int32 = -1
	leftForNowEpoch int32 = -2
)

// isStatic says whether the member has an instance id.
func (m *memberState) isStatic() bool { return m.instance.Valid }

// settled says whether the member has nothing to give up and nothing to wait for.
func (m *memberState) settled() bool { return len(m.revoking)+len(m.pending) == 0 }

func newConsumer(g *group) *consumerGroup {
	return &consumerGroup{
		g: g, members: make(map[string]*consumerMember), instances: make(map[string]*consumerMember),
		targets: make(map[string]partitions), topics: make(map[string]topicMetadata), owners: make(map[topicIDPartition]*consumerMember),
	}
}

// state is what ConsumerGroupDescribe says, in small letters.
func (c *consumerGroup) state() state {
	switch {
	case len(c.members) == 0:
		return empty
	case c.epoch > c.targetEpoch:
		return assigning
	}
	for _, m := range c.members {
		if m.target != c.targetEpoch || !m.settled() {
			return reconciling
		}
	}
	return stable
}

// ids are the members' ids, in order.
func (c *consumerGroup) ids() []string { return slices.Sorted(maps.Keys(c.members)) }

// subscribes says whether any member subscribes to a topic.
func (c *consumerGroup) subscribes(topic string) bool {
	for _, m := range c.members {
		if _, found := slices.BinarySearch(m.topics, topic); found {
			return true
		}
	}
	return false
}

// subscriptions are the topics that any member subscribes to.
func (c *consumerGroup) subscriptions() map[string]struct{} {
	topics := make(map[string]struct{})
	for _, m := range c.members {
		for _, t := range m.topics {
			topics[t] = struct{}{}
		}
	}
	return topics
}

// member finds a member.
func (c *consumerGroup) member(id string) *consumerMember {
	if m := c.members[id]; m != nil && m.described {
		return m
	}
	return nil
}

// each calls f for every partition.
func (p partitions) each(f func(k topicIDPartition)) {
	for topic, list := range p {
		for _, i := range list {
			f(topicIDPartition{topic, i})
		}
	}
}

// sorted are the topics in a fixed order.
func (p partitions) sorted() []wire.UUID {
	return slices.SortedFunc(maps.Keys(p), compareID)
}

func compareID(a, b wire.UUID) int { return bytes.Compare(a[:], b[:]) }

// has says whether a partition is among them.
func (p partitions) has(k topicIDPartition) bool {
	_, found := slices.BinarySearch(p[k.topic], k.partition)
	return found
}

// equal compares.
func (p partitions) equal(q partitions) bool {
	return maps.EqualFunc(p, q, func(a, b []int32) bool { return slices.Equal(a, b) })
}

// put takes a partition in. It is for sets that are being made; close ends that.
func (p partitions) put(k topicIDPartition) { p[k.topic] = append(p[k.topic], k.partition) }

// close puts them in order.
func (p partitions) close() partitions {
	for _, list := range p {
		slices.Sort(list)
	}
	return p
}

// plus is both together; they have none in common.
func (p partitions) plus(q partitions) partitions {
	if len(q) == 0 {
		return p
	}
	out := make(partitions, len(p)+len(q))
	p.each(out.put)
	q.each(out.put)
	return out.close()
}

// split parts them by a condition.
func (p partitions) split(when func(topicIDPartition) bool) (yes, no partitions) {
	yes, no = make(partitions), make(partitions)
	p.each(func(k topicIDPartition) {
		if when(k) {
			yes.put(k)
		} else {
			no.put(k)
		}
	})
	return yes.close(), no.close()
}

// owned is what a heartbeat says that a member has; nil if it does not say.
type owned []api.ConsumerGroupHeartbeatRequestTopicPartitions

// any says whether a condition holds for a partition of them.
func (o owned) any(f func(topicIDPartition) bool) bool {
	for i := range o {
		for _, p := range o[i].Partitions {
			if f(topicIDPartition{o[i].TopicId, p}) {
				return true
			}
		}
	}
	return false
}

// subscribedTo is the form in which topics are kept.
func subscribedTo(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = cloned(n)
	}
	slices.Sort(out)
	return out
}
