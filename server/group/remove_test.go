package group

import (
	"fmt"
	"testing"
	"time"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/coordinator"
)

func (f *fake) deleteOffsets(group string, topics map[string][]int32) *api.OffsetDeleteResponse {
	f.t.Helper()
	q := &api.OffsetDeleteRequest{GroupId: group}
	for _, name := range []string{"t", "u", "nope"} {
		if topics[name] == nil {
			continue
		}
		x := api.OffsetDeleteRequestOffsetDeleteRequestTopic{Name: name}
		for _, p := range topics[name] {
			x.Partitions = append(x.Partitions, api.OffsetDeleteRequestOffsetDeleteRequestPartition{PartitionIndex: p})
		}
		q.Topics = append(q.Topics, x)
	}
	a := &answer[api.OffsetDeleteResponse, *api.OffsetDeleteResponse]{t: f.t}
	q, spoil := over(f.t, q, 0)
	f.run(f.s.DeleteOffsets(q, f.now, a.take))
	spoil()
	f.pass(0)
	return a.got()
}

// subscription is metadata of a consumer.
func subscription(topics ...string) string {
	var w wire.Writer
	w.Int16(3)
	(&api.ConsumerProtocolSubscription{Topics: topics, GenerationId: -1}).Encode(&w, 3)
	return string(w.B)
}

// subscriber makes a stable group of one member that reads topics.
func (f *fake) subscriber(group, kind, metadata string) string {
	f.t.Helper()
	q := &api.JoinGroupRequest{GroupId: group, ProtocolType: kind, SessionTimeoutMs: 10000, RebalanceTimeoutMs: 10000,
		Protocols: []api.JoinGroupRequestJoinGroupRequestProtocol{{Name: "range", Metadata: []byte(metadata)}}}
	a := &joinAnswer{t: f.t, version: 3}
	f.run(f.s.Join(q, Client{}, 3, f.now, a.take))
	f.pass(0)
	s := &api.SyncGroupRequest{GroupId: group, MemberId: a.got().MemberId, GenerationId: a.p.GenerationId}
	want(f.t, "sync", f.syncAt(s, 3).got().ErrorCode, api.ErrNone)
	return a.p.MemberId
}

func TestDeleteGroup(t *testing.T) {
	f := newFake(t)
	want(t, "unknown", f.deleteGroup("g"), api.ErrGroupIdNotFound)
	m := f.member1("g")
	f.commit(commitQ("g", m, 1, "t", 0, 5), 8).got()
	want(t, "members", f.deleteGroup("g"), api.ErrNonEmptyGroup)
	f.leave("g", identity(m, ""))
	f.txnCommit("g", "", -1, coordinator.Producer{ID: 1}, "t", 1, 6)
	f.fail = errDisk
	want(t, "not written", f.deleteGroup("g"), api.ErrNotCoordinator)
	f.wantState("g", "Empty")
	f.wantOffset("g", "t", 0, 5)
	want(t, "deleted, with what is pending", f.deleteGroup("g"), api.ErrNone)
	f.wantState("g", "Dead")
	f.wantOffset("g", "t", 0, -1)
	for range 2 { // regression 54, and a marker that comes later brings nothing back
		f.restart()
		f.wantState("g", "Dead")
		f.marker(coordinator.Producer{ID: 1}, true)
		f.wantState("g", "Dead")
	}
	f.committed("simple", "t", 0, 5)
	want(t, "simple", f.deleteGroup("simple"), api.ErrNone)
	want(t, "its offset alone, as it has no record", f.log[len(f.log)-1].entry.Key[1], byte(offsetKeyVersion))
	f.restart()
	f.wantState("simple", "Dead")
	id := f.join(joiner{group: "h"}).got().MemberId
	want(t, "ids handed out do not keep it", f.deleteGroup("h"), api.ErrNone)
	want(t, "alarms", len(f.alarms), 0)
	want(t, "late", f.join(joiner{group: "h", id: id}).got().ErrorCode, api.ErrUnknownMemberId)
}

// While its tombstones are written a group takes nothing.
func TestWhileDeleted(t *testing.T) {
	f := newFake(t)
	m := f.member1("g")
	f.commit(commitQ("g", m, 1, "t", 0, 5), 8).got()
	f.leave("g", identity(m, ""))
	f.hold = true
	onItsWay := f.commit(commitQ("g", "", -1, "t", 2, 9), 8)
	deleted := api.ErrorCode(-7)
	f.run(f.s.DeleteGroup("g", f.now, func(c api.ErrorCode) { deleted = c }))
	late := f.commit(commitQ("g", "", -1, "t", 1, 5), 8)
	join := f.join(joiner{})
	leave := f.leave("g", identity(m, ""))
	sync := f.sync("g", m, "", 1, nil)
	want(t, "heartbeat", f.beat("g", m, "", 1), api.ErrCoordinatorNotAvailable)
	f.wantState("g", "Dead")
	want(t, "list", len(f.s.List(nil)), 0)
	f.wantOffset("g", "t", 0, -1)
	f.hold = false
	f.flush()
	want(t, "before it", code(onItsWay.got()), api.ErrNone)
	want(t, "commit", code(late.got()), api.ErrCoordinatorNotAvailable)
	want(t, "join", join.got().ErrorCode, api.ErrCoordinatorNotAvailable)
	want(t, "sync", sync.got().ErrorCode, api.ErrCoordinatorNotAvailable)
	want(t, "leave", leave.got().ErrorCode, api.ErrCoordinatorNotAvailable)
	want(t, "deleted", deleted, api.ErrNone)
	want(t, "groups", len(f.s.groups), 0)
	f.restart()
	want(t, "groups", len(f.s.groups), 0)
}

func TestDeleteOffsets(t *testing.T) {
	f := newFake(t)
	want(t, "empty id", f.deleteOffsets("", nil).ErrorCode, api.ErrInvalidGroupId)
	want(t, "unknown", f.deleteOffsets("g", nil).ErrorCode, api.ErrGroupIdNotFound)
	for p := range int32(2) {
		f.committed("g", "t", p, 5)
		f.committed("g", "u", p, 5)
	}
	f.txnCommit("g", "", -1, coordinator.Producer{ID: 1}, "t", 0, 6)
	p := f.deleteOffsets("g", map[string][]int32{"t": {0, 9, 3}, "nope": {0}})
	want(t, "partition", p.Topics[0].Partitions[0].ErrorCode, api.ErrNone)
	want(t, "no such partition", p.Topics[0].Partitions[1].ErrorCode, api.ErrUnknownTopicOrPartition)
	want(t, "nothing committed", p.Topics[0].Partitions[2].ErrorCode, api.ErrNone)
	want(t, "no such topic", p.Topics[1].Partitions[0].ErrorCode, api.ErrUnknownTopicOrPartition)
	f.wantOffset("g", "t", 0, -1)
	f.marker(coordinator.Producer{ID: 1}, true)
	f.wantOffset("g", "t", 0, -1) // what was pending went too
	m := f.subscriber("g", "consumer", subscription("t"))
	p = f.deleteOffsets("g", map[string][]int32{"t": {1}, "u": {0}})
	want(t, "subscribed", p.Topics[0].Partitions[0].ErrorCode, api.ErrGroupSubscribedToTopic)
	want(t, "not subscribed", p.Topics[1].Partitions[0].ErrorCode, api.ErrNone)
	f.wantOffset("g", "t", 1, 5)
	f.wantOffset("g", "u", 0, -1)
	f.leave("g", identity(m, ""))
	f.fail = errDisk
	want(t, "not written", f.deleteOffsets("g", map[string][]int32{"t": {1}, "u": {1}}).ErrorCode, api.ErrNotCoordinator)
	f.wantState("g", "Empty")
	f.deleteOffsets("g", map[string][]int32{"t": {1}, "u": {1}})
	f.wantState("g", "Dead") // the last offset of an empty group
	f.restart()
	f.wantState("g", "Dead")
	f.subscriber("connect", "connect", "")
	want(t, "not consumers", f.deleteOffsets("connect", map[string][]int32{"t": {1}}).ErrorCode, api.ErrNonEmptyGroup)
	f.subscriber("odd", "consumer", "\x00")
	p = f.deleteOffsets("odd", map[string][]int32{"t": {1}})
	want(t, "unknown subscription", p.Topics[0].Partitions[0].ErrorCode, api.ErrGroupSubscribedToTopic)
}

// Regression 52. Tombstones come in bounded batches, and what is committed to a new topic of that name meanwhile stays.
func TestTopicDeleted(t *testing.T) {
	f := newFake(t)
	for i := range 2500 {
		f.committed(fmt.Sprint("g", i), "t", int32(i%4), 5)
	}
	f.committed("g0", "u", 0, 5)
	m := f.subscriber("live", "consumer", subscription("t"))
	f.commit(commitQ("live", m, 1, "t", 0, 5), 8).got()
	f.txnCommit("pending", "", -1, coordinator.Producer{ID: 1}, "t", 0, 6)
	f.largest = 0
	f.run(f.s.TopicDeleted("t", f.now))
	want(t, "bounded", f.largest, tombstonesPerBatch)
	f.committed("live2", "t", 0, 7)
	f.commit(commitQ("live", m, 1, "t", 1, 7), 8).got()
	f.pass(0)
	want(t, "groups left", len(f.s.groups), 3)
	f.marker(coordinator.Producer{ID: 1}, true)
	for range 2 {
		f.wantOffset("g0", "u", 0, 5)
		f.wantOffset("g0", "t", 0, -1)
		f.wantOffset("live", "t", 0, -1)
		f.wantOffset("live", "t", 1, 7)
		f.wantOffset("live2", "t", 0, 7)
		f.wantState("pending", "Dead")
		f.restart()
	}
	f.run(f.s.TopicDeleted("nothing", f.now))
}

func (f *fake) expire() {
	f.run(f.s.ExpireOffsets(f.now))
	f.pass(0)
}

// Regression 52: time counts from when a group became empty, and from the commit for simple groups.
func TestExpiry(t *testing.T) {
	f := newFake(t)
	f.cfg.OffsetRetention = time.Hour
	f.committed("simple", "t", 0, 5)
	m := f.subscriber("g", "consumer", subscription("t"))
	f.commit(commitQ("g", m, 1, "t", 0, 5), 8).got()
	f.commit(commitQ("g", m, 1, "u", 0, 5), 8).got()
	other := f.subscriber("connect", "connect", "")
	f.commit(commitQ("connect", other, 1, "t", 0, 5), 8).got()
	f.txnCommit("g", m, 1, coordinator.Producer{ID: 3}, "u", 1, 6)
	f.commit(commitQ("g", m, 1, "u", 1, 5), 8).got()
	live := func(d time.Duration) {
		for range d / (5 * time.Second) {
			f.pass(5 * time.Second)
			f.beat("g", m, "", 1)
			f.beat("connect", other, "", 1)
		}
	}
	live(time.Hour - 5*time.Second)
	f.expire()
	f.wantOffset("simple", "t", 0, 5)
	f.wantOffset("g", "u", 0, 5)
	live(5 * time.Second)
	f.expire()
	f.wantState("simple", "Dead")
	f.wantOffset("g", "t", 0, 5) // subscribed
	f.wantOffset("g", "u", 0, -1)
	f.wantOffset("g", "u", 1, 5) // a transaction is open
	f.wantOffset("connect", "t", 0, 5)
	f.marker(coordinator.Producer{ID: 3}, false)
	f.leave("g", identity(m, ""))
	f.leave("connect", identity(other, ""))
	f.pass(time.Hour - time.Millisecond)
	f.restart() // the record tells since when it is empty
	f.expire()
	f.wantOffset("g", "t", 0, 5)
	f.wantOffset("connect", "t", 0, 5)
	f.pass(time.Millisecond)
	f.expire()
	for range 2 {
		want(t, "groups", len(f.s.groups), 0)
		f.restart()
	}
}

// Old commits bring their own end, and old records of empty groups do not tell since when they are.
func TestExpiryOfOldRecords(t *testing.T) {
	f := newFake(t)
	f.cfg.OffsetRetention = time.Hour
	q := commitQ("own", "", -1, "t", 0, 5)
	q.RetentionTimeMs = (3 * time.Hour).Milliseconds()
	f.commit(q, 2).got()
	q.GroupId, q.RetentionTimeMs = "short", time.Minute.Milliseconds()
	f.commit(q, 4).got()
	f.committed("old", "t", 0, 5)
	var a arena
	v := &api.GroupMetadataValue{ProtocolType: "consumer", Generation: 3}
	f.log = append(f.log, record{entry: coordinator.Entry{Key: a.groupKey("old"), Value: a.put(1, v)}})
	f.restart()
	f.pass(time.Minute)
	f.expire()
	f.wantState("short", "Dead")
	f.wantOffset("old", "t", 0, 5)
	f.pass(time.Hour)
	f.expire()
	f.wantState("old", "Dead")
	f.wantOffset("own", "t", 0, 5)
	f.pass(2 * time.Hour)
	f.expire()
	f.wantState("own", "Dead")
}

// Empty groups without offsets go, those whose ids were handed out stay for them.
func TestExpiryOfGroups(t *testing.T) {
	f := newFake(t)
	m := f.member1("g")
	f.leave("g", identity(m, ""))
	id := f.join(joiner{group: "h"}).got().MemberId
	f.committed("i", "t", 0, 5)
	f.fail = errDisk
	f.expire()
	f.wantState("g", "Empty")
	f.expire()
	f.wantState("g", "Dead")
	f.wantState("i", "Empty")
	a := f.join(joiner{group: "h", id: id})
	f.pass(0)
	want(t, "joined", a.got().ErrorCode, api.ErrNone)
	f.restart()
	f.wantState("g", "Dead")
	f.join(joiner{group: "j"}).got()
	f.pass(10 * time.Second)
	f.expire()
	f.wantState("j", "Dead")
}
