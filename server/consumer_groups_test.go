package server

import (
	"strings"
	"testing"
	"time"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/config"
)

// consumerProtocol turns KIP-848 on.
var consumerProtocol = []string{"group.coordinator.new.enable", "true", "group.coordinator.rebalance.protocols", "classic,consumer", "offsets.topic.num.partitions", "1"}

// member is a member of a consumer group that speaks frames.
type member struct {
	c     *client
	group string
	id    string
	epoch int32
	has   []api.ConsumerGroupHeartbeatResponseTopicPartitions
}

// beat sends a heartbeat; the first one joins. What the member was told to have it has at once.
func (m *member) beat(topics ...string) *api.ConsumerGroupHeartbeatResponse {
	m.c.t.Helper()
	var q api.ConsumerGroupHeartbeatRequest
	q.Default()
	q.GroupId, q.MemberId, q.MemberEpoch = m.group, m.id, m.epoch
	q.TopicPartitions = []api.ConsumerGroupHeartbeatRequestTopicPartitions{}
	for _, t := range m.has {
		q.TopicPartitions = append(q.TopicPartitions, api.ConsumerGroupHeartbeatRequestTopicPartitions{TopicId: t.TopicId, Partitions: t.Partitions})
	}
	if len(topics) > 0 {
		q.SubscribedTopicNames, q.RebalanceTimeoutMs = topics, 60_000
	}
	p := new(api.ConsumerGroupHeartbeatResponse)
	m.c.call(api.KeyConsumerGroupHeartbeat, 0, &q, p)
	if p.ErrorCode == api.ErrNone {
		m.id, m.epoch = p.MemberId.String, p.MemberEpoch
		if p.Assignment != nil {
			m.has = p.Assignment.TopicPartitions
		}
	}
	return p
}

// partitions is how many the member has.
func (m *member) partitions() (n int) {
	for _, t := range m.has {
		n += len(t.Partitions)
	}
	return n
}

// joined makes a member, once the coordinator is there.
func joined(c *client, group string, topics ...string) *member {
	c.t.Helper()
	m := &member{c: c, group: group}
	eventually(c.t, "a member", func() bool { return m.beat(topics...).ErrorCode == api.ErrNone })
	return m
}

// offsetsTopic has the internal topic made.
func offsetsTopic(c *client) {
	c.t.Helper()
	eventually(c.t, "a coordinator", func() bool {
		var p api.FindCoordinatorResponse
		c.call(api.KeyFindCoordinator, 4, &api.FindCoordinatorRequest{CoordinatorKeys: []string{"g"}}, &p)
		return p.Coordinators[0].ErrorCode == api.ErrNone
	})
}

func (c *client) describeConsumers(group string) api.ConsumerGroupDescribeResponseDescribedGroup {
	c.t.Helper()
	var p api.ConsumerGroupDescribeResponse
	c.call(api.KeyConsumerGroupDescribe, 0, &api.ConsumerGroupDescribeRequest{GroupIds: []string{group}}, &p)
	return p.Groups[0]
}

// TestConsumerProtocolIsOff: either setting alone leaves it off.
func TestConsumerProtocolIsOff(t *testing.T) {
	for _, settings := range [][]string{nil, consumerProtocol[:2], consumerProtocol[2:]} {
		b := broker(t, append([]string{"unstable.api.versions.enable", "true"}, settings...)...)
		c := dial(t, b)
		m := &member{c: c, group: "g"}
		if p := m.beat("t"); p.ErrorCode != api.ErrUnsupportedVersion {
			t.Errorf("%q: heartbeat answered %v", settings, p.ErrorCode)
		}
		if p := c.describeConsumers("g"); p.ErrorCode != api.ErrUnsupportedVersion || p.GroupId != "g" {
			t.Errorf("%q: described %+v", settings, p)
		}
	}
}

// TestUnstableVersions: ConsumerGroupDescribe is there only with unstable.api.versions.enable.
func TestUnstableVersions(t *testing.T) {
	for _, on := range []bool{false, true} {
		settings := consumerProtocol
		if on {
			settings = append([]string{"unstable.api.versions.enable", "true"}, settings...)
		}
		c := dial(t, broker(t, settings...))
		var q api.ApiVersionsRequest
		q.ClientSoftwareName, q.ClientSoftwareVersion = "test", "1"
		var p api.ApiVersionsResponse
		c.call(api.KeyApiVersions, 3, &q, &p)
		offered := false
		for _, k := range p.ApiKeys {
			offered = offered || k.ApiKey == api.KeyConsumerGroupDescribe
		}
		if offered != on {
			t.Errorf("unstable %v: offered %v", on, offered)
		}
		if !on {
			c.send(api.KeyConsumerGroupDescribe, 0, &api.ConsumerGroupDescribeRequest{GroupIds: []string{"g"}})
			c.closed()
			continue
		}
		offsetsTopic(c)
		eventually(t, "an answer of the shard", func() bool { return c.describeConsumers("g").ErrorCode == api.ErrGroupIdNotFound })
	}
}

// TestConsumerGroup: two members share a topic, it grows, the broker restarts under them, and one goes.
func TestConsumerGroup(t *testing.T) {
	dir := t.TempDir()
	settings := append([]string{"unstable.api.versions.enable", "true"}, consumerProtocol...)
	b := start(t, dir, settings...)
	c := dial(t, b)
	offsetsTopic(c)
	c.create("t", 3)
	one, two := joined(c, "g", "t"), joined(c, "g", "t")
	if one.partitions() != 3 || two.partitions() != 0 {
		t.Fatalf("%d and %d partitions", one.partitions(), two.partitions())
	}
	one.beat() // told to give one up
	one.beat() // has
	two.beat()
	if one.partitions() != 2 || two.partitions() != 1 || one.epoch != 2 || two.epoch != 2 {
		t.Fatalf("%d and %d partitions in epochs %d and %d", one.partitions(), two.partitions(), one.epoch, two.epoch)
	}
	grow := &api.CreatePartitionsRequest{TimeoutMs: 10_000, Topics: []api.CreatePartitionsRequestCreatePartitionsTopic{{Name: "t", Count: 4, Assignments: nil}}}
	c.call(api.KeyCreatePartitions, 3, grow, new(api.CreatePartitionsResponse))
	one.beat()
	two.beat()
	if one.partitions() != 2 || two.partitions() != 2 || two.epoch != 3 {
		t.Fatalf("after the topic grew: %d and %d partitions in epoch %d", one.partitions(), two.partitions(), two.epoch)
	}
	before := c.describeConsumers("g")
	stop(t, b)
	b = start(t, dir, settings...)
	c = dial(t, b)
	one.c, two.c = c, c
	eventually(t, "the shard", func() bool { return one.beat().ErrorCode == api.ErrNone })
	if p := two.beat(); p.ErrorCode != api.ErrNone || two.partitions() != 2 {
		t.Fatalf("after a restart: %+v", p)
	}
	after := c.describeConsumers("g")
	if before.GroupState != "stable" || after.GroupState != "stable" || before.GroupEpoch != after.GroupEpoch || len(after.Members) != 2 {
		t.Errorf("described %+v, after the restart %+v", before, after)
	}
	commitStale(t, c, one)
	two.epoch = -1
	if p := two.beat(); p.ErrorCode != api.ErrNone || p.MemberEpoch != -1 {
		t.Errorf("leave: %+v", p)
	}
	if one.beat(); one.partitions() != 4 || one.epoch != 4 {
		t.Errorf("alone: %d partitions in epoch %d", one.partitions(), one.epoch)
	}
	stop(t, b)
}

// commitStale commits in the epoch of a member and in another one.
func commitStale(t *testing.T, c *client, m *member) {
	t.Helper()
	for _, k := range []struct {
		version int16
		epoch   int32
		want    api.ErrorCode
	}{{9, m.epoch, api.ErrNone}, {8, m.epoch, api.ErrNone}, {9, m.epoch - 1, api.ErrStaleMemberEpoch}, {8, m.epoch - 1, api.ErrUnsupportedVersion}} {
		var q api.OffsetCommitRequest
		q.Default()
		q.GroupId, q.MemberId, q.GenerationIdOrMemberEpoch = m.group, m.id, k.epoch
		q.Topics = []api.OffsetCommitRequestOffsetCommitRequestTopic{{Name: "t", Partitions: []api.OffsetCommitRequestOffsetCommitRequestPartition{
			{CommittedOffset: 5, CommittedLeaderEpoch: -1, CommitTimestamp: -1, CommittedMetadata: wire.Some("")}}}}
		var p api.OffsetCommitResponse
		c.call(api.KeyOffsetCommit, k.version, &q, &p)
		if got := p.Topics[0].Partitions[0].ErrorCode; got != k.want {
			t.Errorf("commit v%d in epoch %d: %v, want %v", k.version, k.epoch, got, k.want)
		}
	}
	for epoch, want := range map[int32]api.ErrorCode{m.epoch: api.ErrNone, m.epoch + 1: api.ErrStaleMemberEpoch} {
		q := &api.OffsetFetchRequest{Topics: []api.OffsetFetchRequestOffsetFetchRequestTopic{}, Groups: []api.OffsetFetchRequestOffsetFetchRequestGroup{{GroupId: m.group, MemberId: wire.Some(m.id), MemberEpoch: epoch}}}
		var p api.OffsetFetchResponse
		c.call(api.KeyOffsetFetch, 9, q, &p)
		if p.Groups[0].ErrorCode != want {
			t.Errorf("fetch in epoch %d: %v, want %v", epoch, p.Groups[0].ErrorCode, want)
		}
	}
}

// TestConsumerSettings: the interval that members are told, how many there may be, when a silent one is taken out, and the assignors.
func TestConsumerSettings(t *testing.T) {
	b := broker(t, append([]string{"unstable.api.versions.enable", "true", "group.consumer.max.size", "1", "group.consumer.heartbeat.interval.ms", "300",
		"group.consumer.min.heartbeat.interval.ms", "200", "group.consumer.max.heartbeat.interval.ms", "400",
		"group.consumer.session.timeout.ms", "1200", "group.consumer.min.session.timeout.ms", "1000", "group.consumer.max.session.timeout.ms", "1500",
		"group.consumer.assignors", "org.apache.kafka.coordinator.group.assignor.RangeAssignor"}, consumerProtocol...)...)
	c := dial(t, b)
	offsetsTopic(c)
	c.create("t", 1)
	began := time.Now()
	m := joined(c, "g", "t")
	if p := m.beat(); p.HeartbeatIntervalMs != 300 {
		t.Errorf("told an interval of %d ms", p.HeartbeatIntervalMs)
	}
	if p := (&member{c: c, group: "g"}).beat("t"); p.ErrorCode != api.ErrGroupMaxSizeReached {
		t.Errorf("a second member: %v", p.ErrorCode)
	}
	if d := c.describeConsumers("g"); d.AssignorName != "range" {
		t.Errorf("assignor %q", d.AssignorName)
	}
	eventually(t, "the end of the session", func() bool { return c.describeConsumers("g").GroupState == "empty" })
	if lived := time.Since(began); lived < 1200*time.Millisecond {
		t.Errorf("the session lasted %v", lived)
	}
	if p := m.beat(); p.ErrorCode != api.ErrUnknownMemberId {
		t.Errorf("after its session: %v", p.ErrorCode)
	}
}

// TestUnknownAssignor: a class that is not there stops the start.
func TestUnknownAssignor(t *testing.T) {
	opts := config.Options{Settings: []config.Setting{{Key: "group.consumer.assignors", Value: "org.example.Own"}}}
	for i := 0; i < len(consumerProtocol); i += 2 {
		opts.Settings = append(opts.Settings, config.Setting{Key: consumerProtocol[i], Value: consumerProtocol[i+1]})
	}
	cfg, err := config.Load(opts)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := groupConfig(cfg, nil); err == nil || !strings.Contains(err.Error(), "group.consumer.assignors: org.example.Own") {
		t.Errorf("started: %v", err)
	}
}
