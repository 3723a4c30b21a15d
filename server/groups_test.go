package server

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"kaas/codec/api"
	"kaas/codec/batch"
	"kaas/codec/wire"
	"kaas/engine"
	"kaas/server/brokertest"
	"kaas/server/topics"
)

// findGroup has the internal topic made.
func (c *client) findGroup(group string) {
	c.t.Helper()
	q := api.FindCoordinatorRequest{Key: group}
	var p api.FindCoordinatorResponse
	if c.call(api.KeyFindCoordinator, 3, &q, &p); p.ErrorCode != api.ErrNone {
		c.t.Fatalf("no coordinator of %s: %v", group, p.ErrorCode)
	}
}

// joinRequest asks to join as a dynamic member without an id, in a version that needs none.
func joinRequest(group string) *api.JoinGroupRequest {
	return &api.JoinGroupRequest{GroupId: group, SessionTimeoutMs: 10_000, RebalanceTimeoutMs: 10_000, ProtocolType: "consumer",
		Protocols: []api.JoinGroupRequestJoinGroupRequestProtocol{{Name: "range", Metadata: []byte("m")}}}
}

// commitRequest commits one offset without being a member.
func commitRequest(group, topic string, offset int64, metadata string) *api.OffsetCommitRequest {
	return &api.OffsetCommitRequest{GroupId: group, GenerationIdOrMemberEpoch: -1, RetentionTimeMs: -1,
		Topics: []api.OffsetCommitRequestOffsetCommitRequestTopic{{Name: topic, Partitions: []api.OffsetCommitRequestOffsetCommitRequestPartition{
			{CommittedOffset: offset, CommittedLeaderEpoch: -1, CommitTimestamp: -1, CommittedMetadata: wire.Some(metadata)}}}}}
}

// commit commits partition 0 of a topic.
func (c *client) commit(group, topic string, offset int64) api.ErrorCode {
	c.t.Helper()
	var p api.OffsetCommitResponse
	c.call(api.KeyOffsetCommit, 8, commitRequest(group, topic, offset, ""), &p)
	return p.Topics[0].Partitions[0].ErrorCode
}

// committed reads partition 0 of a topic, waiting while the group is being loaded. A deadline of the connection bounds it.
func (c *client) committed(group, topic string) (int64, api.ErrorCode) {
	c.t.Helper()
	q := api.OffsetFetchRequest{GroupId: group, Topics: []api.OffsetFetchRequestOffsetFetchRequestTopic{{Name: topic, PartitionIndexes: []int32{0}}}}
	for {
		var p api.OffsetFetchResponse
		if c.call(api.KeyOffsetFetch, 7, &q, &p); p.ErrorCode == api.ErrCoordinatorLoadInProgress {
			continue
		} else if p.ErrorCode != api.ErrNone {
			return -1, p.ErrorCode
		}
		return p.Topics[0].Partitions[0].CommittedOffset, p.Topics[0].Partitions[0].ErrorCode
	}
}

// wantCommitted fails unless that offset is committed.
func (c *client) wantCommitted(group, topic string, want int64) {
	c.t.Helper()
	if got, code := c.committed(group, topic); got != want || code != api.ErrNone {
		c.t.Errorf("%s has %d (%v) of %s, want %d", group, got, code, topic, want)
	}
}

// TestGroupSettings sees an effect of every setting of groups and their offsets, those that are found out by a refusal.
func TestGroupSettings(t *testing.T) {
	b := broker(t, "group.initial.rebalance.delay.ms", "0", "group.min.session.timeout.ms", "9000", "group.max.session.timeout.ms", "11000",
		"group.max.size", "1", "offset.metadata.max.bytes", "3", "offsets.topic.num.partitions", "3", "offsets.topic.segment.bytes", "1048576")
	c := dial(t, b)
	c.findGroup("g")
	c.create("t", 1)
	join := func(group string, session int32) api.ErrorCode {
		q := joinRequest(group)
		q.SessionTimeoutMs = session
		var p api.JoinGroupResponse
		c.call(api.KeyJoinGroup, 3, q, &p)
		return p.ErrorCode
	}
	for _, s := range []struct {
		group   string
		session int32
		want    api.ErrorCode
	}{{"short", 8999, api.ErrInvalidSessionTimeout}, {"long", 11001, api.ErrInvalidSessionTimeout}, {"least", 9000, api.ErrNone},
		{"most", 11000, api.ErrNone}, {"most", 10000, api.ErrGroupMaxSizeReached}} {
		if got := join(s.group, s.session); got != s.want {
			t.Errorf("a member of %s with a session of %d ms: %v, want %v", s.group, s.session, got, s.want)
		}
	}
	for metadata, want := range map[string]api.ErrorCode{"abc": api.ErrNone, "abcd": api.ErrOffsetMetadataTooLarge} {
		var p api.OffsetCommitResponse
		c.call(api.KeyOffsetCommit, 8, commitRequest("g", "t", 1, metadata), &p)
		if got := p.Topics[0].Partitions[0].ErrorCode; got != want {
			t.Errorf("metadata %q: %v, want %v", metadata, got, want)
		}
	}
	topic := b.topics.ByName(topics.OffsetsTopic)
	if n, size := len(topic.Partitions()), topic.Settings().Config.SegmentBytes; n != 3 || size != 1<<20 {
		t.Errorf("%d partitions with segments of %d bytes", n, size)
	}
}

// A JoinGroup holds its connection until the rebalance begins; a stop answers it, so that it delays nobody.
func TestStopAnswersParkedMembers(t *testing.T) {
	b := start(t, t.TempDir(), "group.initial.rebalance.delay.ms", "3600000")
	c, other := dial(t, b), dial(t, b)
	c.findGroup("g")
	q := joinRequest("g")
	q.RebalanceTimeoutMs = 3_600_000
	c.send(api.KeyJoinGroup, 3, q)
	c.send(api.KeyListPartitionReassignments, 0, new(api.ListPartitionReassignmentsRequest))
	// It is there when it is shown; whoever asks is answered meanwhile.
	for {
		var p api.DescribeGroupsResponse
		other.call(api.KeyDescribeGroups, 3, &api.DescribeGroupsRequest{Groups: []string{"g"}}, &p)
		if len(p.Groups[0].Members) == 1 {
			break
		}
	}
	stop(t, b)
	var p api.JoinGroupResponse
	if c.receive(api.KeyJoinGroup, 3, &p); p.ErrorCode != api.ErrNotCoordinator {
		t.Errorf("answered %v, want 16", p.ErrorCode)
	}
	if n, err := io.ReadFull(c.c, make([]byte, 12)); n != 12 && !errors.Is(err, io.EOF) {
		t.Errorf("after it: %d bytes, %v", n, err)
	}
}

// Expiry of offsets: counted from the commit for a group without members, searched for at the interval that is set; a commit that brings its
// own retention goes by that.
func TestOffsetsExpire(t *testing.T) {
	b := broker(t, "offsets.retention.minutes", "1", "offsets.retention.check.interval.ms", "20")
	c := dial(t, b)
	c.findGroup("g")
	c.create("t", 1)
	old, own := commitRequest("old", "t", 5, ""), commitRequest("own", "t", 5, "")
	old.Topics[0].Partitions[0].CommitTimestamp = time.Now().UnixMilli() - 61_000
	own.RetentionTimeMs = 1
	var p api.OffsetCommitResponse
	c.call(api.KeyOffsetCommit, 1, old, &p)
	c.call(api.KeyOffsetCommit, 3, own, &p)
	if code := c.commit("young", "t", 5); code != api.ErrNone {
		t.Fatal(code)
	}
	for _, group := range []string{"old", "own"} {
		for {
			if at, code := c.committed(group, "t"); code != api.ErrNone {
				t.Fatal(code)
			} else if at == -1 {
				break
			}
		}
	}
	c.wantCommitted("young", "t", 5)
}

// The topic is compressed as is asked for, and read in pieces as small as is asked for.
func TestOffsetsCodecAndLoadBuffer(t *testing.T) {
	dir := t.TempDir()
	settings := []string{"offsets.topic.compression.codec", "4", "offsets.topic.num.partitions", "1", "offsets.load.buffer.size", "1"}
	b := start(t, dir, settings...)
	c := dial(t, b)
	c.findGroup("g")
	c.create("t", 1)
	for i := range 20 {
		if code := c.commit(fmt.Sprint("g", i), "t", int64(i)); code != api.ErrNone {
			t.Fatal(code)
		}
	}
	buf := make([]byte, 1<<10)
	if _, _, err := b.topics.ByName(topics.OffsetsTopic).Partition(0).Log.ReadBytes(buf, 0, engine.ReadUncommitted); err != nil {
		t.Fatal(err)
	}
	if got := batch.View(buf).Codec(); got != batch.CodecZstd {
		t.Errorf("codec %v", got)
	}
	stop(t, b)
	b = start(t, dir, settings...)
	defer stop(t, b)
	c = dial(t, b)
	for i := range 20 {
		c.wantCommitted(fmt.Sprint("g", i), "t", int64(i))
	}
}

// Offsets of a deleted topic go with it (regression 52), also when a topic of that name is made at once, and over a restart.
func TestOffsetsGoWithTheirTopic(t *testing.T) {
	dir := t.TempDir()
	b := start(t, dir)
	c := dial(t, b)
	c.findGroup("g")
	c.create("gone", 1)
	c.create("stays", 1)
	for i := range 5 {
		for _, topic := range []string{"gone", "stays"} {
			if code := c.commit(fmt.Sprint("g", i), topic, 7); code != api.ErrNone {
				t.Fatal(code)
			}
		}
	}
	var p api.DeleteTopicsResponse
	c.call(api.KeyDeleteTopics, 5, &api.DeleteTopicsRequest{TopicNames: []string{"gone"}, TimeoutMs: 1000}, &p)
	c.create("gone", 1)
	check := func() {
		t.Helper()
		for i := range 5 {
			c.wantCommitted(fmt.Sprint("g", i), "gone", -1)
			c.wantCommitted(fmt.Sprint("g", i), "stays", 7)
		}
	}
	check()
	stop(t, b)
	b = start(t, dir)
	defer stop(t, b)
	c = dial(t, b)
	check()
}

// Offsets of a topic that was deleted just before a kill, which were not removed any more, are removed at the next start.
func TestOffsetsOfATopicThatIsGone(t *testing.T) {
	dir := t.TempDir()
	b := start(t, dir)
	c := dial(t, b)
	c.findGroup("g")
	c.create("gone", 1)
	c.create("stays", 1)
	for _, topic := range []string{"gone", "stays"} {
		if code := c.commit("g", topic, 7); code != api.ErrNone {
			t.Fatal(code)
		}
	}
	b.topics.OnTopicRemoved(func(string) {}) // as if the kill had come first
	var p api.DeleteTopicsResponse
	c.call(api.KeyDeleteTopics, 5, &api.DeleteTopicsRequest{TopicNames: []string{"gone"}, TimeoutMs: 1000}, &p)
	c.wantCommitted("g", "gone", 7)
	stop(t, b)
	b = start(t, dir)
	defer stop(t, b)
	c = dial(t, b)
	for {
		if at, code := c.committed("g", "gone"); code != api.ErrNone {
			t.Fatal(code)
		} else if at == -1 {
			break
		}
	}
	c.wantCommitted("g", "stays", 7)
}

// Commits that were acknowledged are there after kill -9, whatever the durability (regression 51).
func TestCommitsSurviveKill(t *testing.T) {
	bin, err := brokertest.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, durability := range []string{"group-commit", "page-cache"} {
		process, err := brokertest.Start(bin, "--data-dir", t.TempDir(), "--set", "kaas.durability="+durability)
		if err != nil {
			t.Fatal(err)
		}
		c := dialAt(t, process.Addr)
		c.findGroup("g")
		c.create("t", 1)
		for round := range int64(4) {
			for i := range int64(20) {
				group := fmt.Sprint("g", i)
				if code := c.commit(group, "t", round*100+i); code != api.ErrNone {
					t.Fatal(code)
				}
			}
			if err := process.Restart(true); err != nil {
				t.Fatal(err)
			}
			c = dialAt(t, process.Addr)
			for i := range int64(20) {
				c.wantCommitted(fmt.Sprint("g", i), "t", round*100+i)
			}
		}
		if err := process.Stop(); err != nil {
			t.Error(err)
		}
	}
}

// What a client may not do: write to the internal topic. What nobody waits for: members whose connection is gone.
func TestGroupOddities(t *testing.T) {
	b := broker(t, "group.initial.rebalance.delay.ms", "0")
	c := dial(t, b)
	c.findGroup("g")
	if p := c.produce(topics.OffsetsTopic, 0, records("x")); p.ErrorCode != api.ErrInvalidTopicException {
		t.Errorf("a write to the internal topic: %v", p.ErrorCode)
	}
	gone := dial(t, b)
	gone.send(api.KeyJoinGroup, 3, joinRequest("g"))
	gone.c.Close()
	for {
		var p api.ListGroupsResponse
		if c.call(api.KeyListGroups, 4, new(api.ListGroupsRequest), &p); len(p.Groups) == 1 && p.Groups[0].GroupState == "CompletingRebalance" {
			break
		}
	}
	for _, empty := range []struct {
		key, version int16
		q, p         api.Message
	}{
		{api.KeyDescribeGroups, 5, &api.DescribeGroupsRequest{Groups: []string{}}, new(api.DescribeGroupsResponse)},
		{api.KeyDeleteGroups, 2, &api.DeleteGroupsRequest{GroupsNames: []string{}}, new(api.DeleteGroupsResponse)},
		{api.KeyOffsetFetch, 8, &api.OffsetFetchRequest{Topics: []api.OffsetFetchRequestOffsetFetchRequestTopic{}}, new(api.OffsetFetchResponse)},
	} {
		c.call(empty.key, empty.version, empty.q, empty.p)
	}
	var d api.DeleteGroupsResponse
	c.call(api.KeyDeleteGroups, 2, &api.DeleteGroupsRequest{GroupsNames: []string{"g", "g", "unknown"}}, &d)
	if len(d.Results) != 2 || d.Results[0].ErrorCode != api.ErrNonEmptyGroup || d.Results[1].ErrorCode != api.ErrGroupIdNotFound {
		t.Errorf("deleted %+v", d.Results)
	}
}

// Without the internal topic there is no coordinator, as with an Apache that has not made it yet; FindCoordinator makes it.
func TestGroupsWithoutTheirTopic(t *testing.T) {
	b := broker(t)
	c := dial(t, b)
	c.create("t", 1)
	var list api.ListGroupsResponse
	if c.call(api.KeyListGroups, 4, new(api.ListGroupsRequest), &list); list.ErrorCode != api.ErrNone || len(list.Groups) != 0 {
		t.Errorf("groups: %+v", list)
	}
	if code := c.commit("g", "t", 1); code != api.ErrNotCoordinator {
		t.Errorf("commit: %v", code)
	}
	if _, code := c.committed("g", "t"); code != api.ErrNotCoordinator {
		t.Errorf("fetch: %v", code)
	}
	c.findGroup("g")
	if code := c.commit("g", "t", 1); code != api.ErrNone {
		t.Errorf("commit: %v", code)
	}
	c.wantCommitted("g", "t", 1)
}

// What the coordinator holds and does is shown, without names of groups.
func TestGroupMetrics(t *testing.T) {
	b := broker(t, "kaas.metrics.listen", "127.0.0.1:0", "group.initial.rebalance.delay.ms", "0", "offsets.topic.num.partitions", "4")
	c := dial(t, b)
	c.findGroup("g")
	c.create("t", 1)
	for i := range 3 {
		if code := c.commit(fmt.Sprint("g", i), "t", 1); code != api.ErrNone {
			t.Fatal(code)
		}
	}
	if code := c.commit("g0", "t", 2); code != api.ErrNone {
		t.Fatal(code)
	}
	var p api.JoinGroupResponse
	if c.call(api.KeyJoinGroup, 3, joinRequest("joined"), &p); p.ErrorCode != api.ErrNone {
		t.Fatal(p.ErrorCode)
	}
	wantSeries(t, scrape(t, b), map[string]float64{
		`kaas_groups{state="Empty"}`: 3, `kaas_groups{state="CompletingRebalance"}`: 1, `kaas_groups{state="Stable"}`: 0,
		"kaas_group_members": 1, "kaas_group_offsets": 3, "kaas_group_shards": 4, "kaas_group_shards_open": 4,
		"kaas_group_log_records_total": 4, "kaas_group_log_batches_total": 4, "kaas_group_log_failures_total": 0,
	})
}

// Four consumers that start together, each sent back with an id first, are one generation (regression 55).
func TestColdStart(t *testing.T) {
	b := broker(t, "group.initial.rebalance.delay.ms", "500")
	const members = 4
	var conns [members]*client
	for i := range conns {
		conns[i] = dial(t, b)
		q := joinRequest("g")
		if i == 0 {
			conns[i].findGroup("g")
		}
		var p api.JoinGroupResponse
		if conns[i].call(api.KeyJoinGroup, 5, q, &p); p.ErrorCode != api.ErrMemberIdRequired || p.MemberId == "" {
			t.Fatalf("the first JoinGroup: %v, id %q", p.ErrorCode, p.MemberId)
		}
		q.MemberId = p.MemberId
		conns[i].send(api.KeyJoinGroup, 5, q)
	}
	listed := 0
	for i, c := range conns {
		var p api.JoinGroupResponse
		if c.receive(api.KeyJoinGroup, 5, &p); p.ErrorCode != api.ErrNone || p.GenerationId != 1 {
			t.Errorf("member %d: %v, generation %d", i, p.ErrorCode, p.GenerationId)
		}
		listed += len(p.Members)
	}
	if listed != members {
		t.Errorf("the leader sees %d members, want %d", listed, members)
	}
}

// Commits of one group that arrive together share a batch, heartbeats between them do not part them, and the last one counts.
func TestCommitsOfAGroupShareABatch(t *testing.T) {
	b := broker(t, "group.initial.rebalance.delay.ms", "0")
	c := dial(t, b)
	c.findGroup("g")
	c.create("t", 1)
	const n = 40
	var all []byte
	for i := range int64(n) {
		all = append(all, c.frame(api.KeyOffsetCommit, 8, commitRequest("g", "t", i, ""))...)
		all = append(all, c.frame(api.KeyHeartbeat, 3, &api.HeartbeatRequest{GroupId: "g", MemberId: "stranger"})...)
	}
	before := b.groups.Stats()
	if _, err := c.c.Write(all); err != nil { // one segment: they are there in one round, or nearly
		t.Fatal(err)
	}
	for range n {
		var p api.OffsetCommitResponse
		if c.receive(api.KeyOffsetCommit, 8, &p); p.Topics[0].Partitions[0].ErrorCode != api.ErrNone {
			t.Fatalf("%+v", p)
		}
		var h api.HeartbeatResponse
		if c.receive(api.KeyHeartbeat, 3, &h); h.ErrorCode != api.ErrUnknownMemberId {
			t.Fatalf("%+v", h)
		}
	}
	c.wantCommitted("g", "t", n-1)
	after := b.groups.Stats()
	if records, batches := after.Records-before.Records, after.Batches-before.Batches; records != n || batches > n/2 {
		t.Errorf("%d records in %d batches", records, batches)
	}
}
