package group

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/coordinator"
)

// code is the error of the only partition.
func code(p *api.OffsetCommitResponse) api.ErrorCode { return p.Topics[0].Partitions[0].ErrorCode }

// Regressions 47 and 50: who may commit, and when.
func TestWhoMayCommit(t *testing.T) {
	f := newFake(t)
	commit := func(group, id string, generation int32) api.ErrorCode {
		return code(f.commit(commitQ(group, id, generation, "t", 0, 7), 8).got())
	}
	want(t, "unknown group with a generation", commit("g", "m", 1), api.ErrIllegalGeneration)
	f.wantState("g", "Dead")
	want(t, "simple", commit("g", "", -1), api.ErrNone)
	want(t, "simple, a member id", commit("g", "m", -1), api.ErrNone)
	want(t, "simple, a generation", commit("g", "m", 1), api.ErrUnknownMemberId)
	f.wantState("g", "Empty")
	m := f.member1("g")
	want(t, "member", commit("g", m, 1), api.ErrNone)
	want(t, "stranger", commit("g", "x", 1), api.ErrUnknownMemberId)
	want(t, "older generation", commit("g", m, 0), api.ErrIllegalGeneration)
	want(t, "no generation", commit("g", m, -1), api.ErrIllegalGeneration)
	want(t, "nobody", commit("g", "", -1), api.ErrUnknownMemberId)
	_, a := f.enter(joiner{})
	want(t, "preparing", commit("g", m, 1), api.ErrNone)
	f.join(joiner{id: m}).got()
	a.got()
	want(t, "completing", commit("g", m, 2), api.ErrRebalanceInProgress)
	want(t, "completing, older", commit("g", m, 1), api.ErrIllegalGeneration)
	f.wantOffset("g", "t", 0, 7)
}

// A commit counts as a sign of life.
func TestCommitKeepsSession(t *testing.T) {
	f := newFake(t)
	m := f.member1("g")
	for range 5 {
		f.pass(9 * time.Second)
		want(t, "commit", code(f.commit(commitQ("g", m, 1, "t", 0, 7), 8).got()), api.ErrNone)
	}
	f.pass(9 * time.Second)
	f.wantState("g", "Stable")
}

func TestCommitPartitions(t *testing.T) {
	f := newFake(t)
	q := commitQ("g", "", -1, "t", 0, 1)
	more := []api.OffsetCommitRequestOffsetCommitRequestPartition{q.Topics[0].Partitions[0], q.Topics[0].Partitions[0], q.Topics[0].Partitions[0],
		q.Topics[0].Partitions[0], q.Topics[0].Partitions[0]}
	more[0].CommittedMetadata = wire.NullString{}
	more[1].PartitionIndex, more[1].CommittedMetadata = 1, wire.Some(strings.Repeat("x", 4096))
	more[2].PartitionIndex, more[2].CommittedMetadata = 2, wire.Some(strings.Repeat("x", 4097))
	more[3].PartitionIndex, more[4].PartitionIndex = 4, -1
	q.Topics[0].Partitions = more
	q.Topics = append(q.Topics, api.OffsetCommitRequestOffsetCommitRequestTopic{Name: "nope", Partitions: more[:1]})
	p := f.commit(q, 8).got()
	for i, code := range []api.ErrorCode{api.ErrNone, api.ErrNone, api.ErrOffsetMetadataTooLarge, api.ErrUnknownTopicOrPartition, api.ErrUnknownTopicOrPartition} {
		want(t, fmt.Sprint("partition ", i), p.Topics[0].Partitions[i].ErrorCode, code)
	}
	want(t, "topic", p.Topics[1].Partitions[0].ErrorCode, api.ErrUnknownTopicOrPartition)
	want(t, "records", len(f.log), 2)
	all := f.s.Fetch(&api.OffsetFetchRequestOffsetFetchRequestGroup{GroupId: "g"}, false)
	want(t, "topics", len(all.Topics), 1)
	want(t, "null metadata is read as empty", all.Topics[0].Partitions[0].Metadata, wire.Some(""))
	want(t, "metadata", len(all.Topics[0].Partitions[1].Metadata.String), 4096)
	// Counted in UTF-16, as Apache does.
	for n, code := range map[int]api.ErrorCode{2048: api.ErrNone, 2049: api.ErrOffsetMetadataTooLarge} {
		q := commitQ("g", "", -1, "t", 0, 1)
		q.Topics[0].Partitions[0].CommittedMetadata = wire.Some(strings.Repeat("\U0001F600", n))
		want(t, "pairs", f.commit(q, 8).got().Topics[0].Partitions[0].ErrorCode, code)
	}
	// Whoever may not commit is told so for partitions that exist.
	f.member1("g")
	p = f.commit(q, 8).got()
	want(t, "exists", p.Topics[0].Partitions[2].ErrorCode, api.ErrUnknownMemberId)
	want(t, "does not", p.Topics[0].Partitions[3].ErrorCode, api.ErrUnknownTopicOrPartition)
}

// Regression 49.
func TestFetch(t *testing.T) {
	f := newFake(t)
	f.wantOffset("never", "t", 0, -1)
	q := commitQ("g", "", -1, "u", 1, 11)
	q.Topics[0].Partitions[0].CommittedLeaderEpoch = 5
	f.commit(q, 8).got()
	f.committed("g", "t", 3, 33)
	f.committed("g", "t", 0, 30)
	f.wantOffset("g", "t", 1, -1)
	f.wantOffset("g", "nope", 0, -1)
	p := f.s.Fetch(&api.OffsetFetchRequestOffsetFetchRequestGroup{GroupId: "g"}, true)
	want(t, "group", p.GroupId, "g")
	want(t, "topics", p.Topics[0].Name+p.Topics[1].Name, "tu")
	want(t, "order", p.Topics[0].Partitions[0].PartitionIndex, 0)
	want(t, "order", p.Topics[0].Partitions[1].PartitionIndex, 3)
	want(t, "epoch", p.Topics[1].Partitions[0].CommittedLeaderEpoch, 5)
	want(t, "unknown group", len(f.s.Fetch(&api.OffsetFetchRequestOffsetFetchRequestGroup{GroupId: "x"}, false).Topics), 0)
	none := f.s.Fetch(&api.OffsetFetchRequestOffsetFetchRequestGroup{GroupId: "g", Topics: []api.OffsetFetchRequestOffsetFetchRequestTopics{}}, false)
	want(t, "no topics", len(none.Topics), 0)
}

// Regression 53.
func TestAnyGroupID(t *testing.T) {
	f := newFake(t)
	ids := []string{"", "../x", "/", "a\x00b", strings.Repeat("g", 300), "ünïcode 日本", "\xff\xfe", " "}
	for i, id := range ids {
		want(t, id, f.committed(id, "t", 0, int64(i)), api.ErrNone)
		if id != "" {
			f.member1(id)
		}
	}
	f.restart()
	for i, id := range ids {
		f.wantOffset(id, "t", 0, int64(i))
		want(t, id, f.state(id), map[bool]string{true: "Empty", false: "Stable"}[id == ""])
	}
	want(t, "list", len(f.s.List(nil)), len(ids))
	want(t, "delete", f.deleteGroup(""), api.ErrNone)
	want(t, "again", f.deleteGroup(""), api.ErrGroupIdNotFound)
}

func TestCommitNotWritten(t *testing.T) {
	f := newFake(t)
	f.committed("g", "t", 0, 5)
	for err, code := range map[error]api.ErrorCode{errDisk: api.ErrNotCoordinator, coordinator.ErrTooLarge: api.ErrInvalidCommitOffsetSize,
		coordinator.ErrNotAvailable: api.ErrCoordinatorNotAvailable} {
		f.fail = err
		want(t, "error", f.committed("g", "t", 0, 6), code)
		f.fail = err
		want(t, "a new group", f.committed("h", "t", 0, 6), code)
		f.fail = err
		want(t, "pending", f.txnCommit("h", "", -1, coordinator.Producer{ID: 1}, "t", 0, 6), code)
	}
	f.wantOffset("g", "t", 0, 5)
	f.wantState("h", "Dead")
	want(t, "nothing counted", f.s.groups["g"].unstable(f.s.groups["g"].keys()[0]), false)
}

// A commit that is not yet in the log is not read; asked for stable offsets, that is told.
func TestCommitOnItsWay(t *testing.T) {
	f := newFake(t)
	f.committed("g", "t", 0, 5)
	f.hold = true
	a := f.commit(commitQ("g", "", -1, "t", 0, 6), 8)
	b := f.commit(commitQ("g", "", -1, "t", 0, 7), 8)
	a.parked()
	f.wantOffset("g", "t", 0, 5)
	_, unstable := f.fetch("g", "t", 0, true)
	want(t, "stable", unstable, api.ErrUnstableOffsetCommit)
	f.hold = false
	f.flush()
	want(t, "a", code(a.got()), api.ErrNone)
	want(t, "b", code(b.got()), api.ErrNone)
	at, unstable := f.fetch("g", "t", 0, true)
	want(t, "then", at, 7)
	want(t, "then", unstable, api.ErrNone)
}

// Regression 61, and the order of records, not of markers.
func TestTransactions(t *testing.T) {
	f := newFake(t)
	p, q := coordinator.Producer{ID: 7, Epoch: 1}, coordinator.Producer{ID: 8}
	want(t, "empty group id", f.txnCommit("", "", -1, p, "t", 0, 1), api.ErrInvalidGroupId)
	want(t, "unknown group with a generation", f.txnCommit("g", "m", 3, p, "t", 0, 1), api.ErrUnknownMemberId)
	want(t, "partition", f.txnCommit("g", "", -1, p, "t", 9, 1), api.ErrUnknownTopicOrPartition)
	f.wantState("g", "Dead")
	want(t, "pending", f.txnCommit("g", "", -1, p, "t", 0, 10), api.ErrNone)
	want(t, "transactional", *f.log[0].at.Txn, p)
	f.wantState("g", "Empty")
	f.wantOffset("g", "t", 0, -1)
	stable := func(want int64, wantCode api.ErrorCode) {
		t.Helper()
		at, code := f.fetch("g", "t", 0, true)
		if at != want || code != wantCode {
			t.Fatalf("%d %v, want %d %v", at, code, want, wantCode)
		}
	}
	stable(-1, api.ErrUnstableOffsetCommit)
	f.restart()
	stable(-1, api.ErrUnstableOffsetCommit)
	f.marker(p, true)
	stable(10, api.ErrNone)
	// A plain commit after the pending one wins, whenever the marker comes.
	f.txnCommit("g", "", -1, p, "t", 0, 20)
	f.txnCommit("g", "", -1, q, "t", 0, 21)
	f.committed("g", "t", 0, 15)
	f.marker(p, true)
	f.wantOffset("g", "t", 0, 15)
	stable(-1, api.ErrUnstableOffsetCommit) // q
	f.marker(q, false)
	stable(15, api.ErrNone)
	f.committed("g", "t", 1, 1)
	f.txnCommit("g", "", -1, p, "t", 1, 2)
	f.marker(p, true)
	f.wantOffset("g", "t", 1, 2)
	f.restart()
	f.wantOffset("g", "t", 0, 15)
	f.wantOffset("g", "t", 1, 2)
	// An aborted one leaves no group behind.
	f.txnCommit("h", "", -1, p, "t", 0, 1)
	f.marker(p, false)
	f.wantState("h", "Dead")
	want(t, "producers", len(f.s.txns), 0)
	// Members are fenced; who brings no member is not, even while there are some.
	m := f.member1("g")
	want(t, "member", f.txnCommit("g", m, 1, p, "t", 0, 30), api.ErrNone)
	want(t, "older generation", f.txnCommit("g", m, 0, p, "t", 0, 31), api.ErrIllegalGeneration)
	want(t, "stranger", f.txnCommit("g", "x", 1, p, "t", 0, 31), api.ErrUnknownMemberId)
	want(t, "nobody", f.txnCommit("g", "", -1, p, "t", 0, 32), api.ErrNone)
	f.marker(p, true)
	f.wantOffset("g", "t", 0, 32)
}

func TestDescribeAndList(t *testing.T) {
	f := newFake(t)
	want(t, "unknown", f.s.Describe("g").ErrorCode, api.ErrNone)
	f.committed("simple", "t", 0, 1)
	m, a := f.enter(joiner{group: "live", metadata: "md"})
	f.pass(0)
	a.got()
	d := f.s.Describe("live")
	want(t, "completing", d.GroupState+d.ProtocolType+d.ProtocolData, "CompletingRebalanceconsumer")
	want(t, "metadata", len(d.Members[0].MemberMetadata), 0)
	f.sync("live", m, "", 1, map[string]string{m: "part"}).got()
	d = f.s.Describe("live")
	want(t, "stable", d.GroupState+"/"+d.ProtocolType+"/"+d.ProtocolData, "Stable/consumer/range")
	x := d.Members[0]
	want(t, "member", x.MemberId, m)
	want(t, "client", x.ClientId+x.ClientHost, "c/127.0.0.1")
	want(t, "parts", string(x.MemberMetadata)+"/"+string(x.MemberAssignment), "range/md/part")
	want(t, "operations", d.AuthorizedOperations, -2147483648)
	f.leave("live", identity(m, ""))
	d = f.s.Describe("live")
	want(t, "empty", d.GroupState+"/"+d.ProtocolType+"/"+d.ProtocolData, "Empty/consumer/")
	f.member1("other")
	for _, c := range []struct {
		states []string
		want   string
	}{
		{nil, "live:Empty other:Stable simple:Empty "}, {[]string{"Stable"}, "other:Stable "}, {[]string{"sTABLE", "nonsense"}, "other:Stable "},
		{[]string{"Dead"}, ""}, {[]string{"Empty", "Stable"}, "live:Empty other:Stable simple:Empty "},
	} {
		got := ""
		for _, g := range f.s.List(c.states) {
			got += g.GroupId + ":" + g.GroupState + " "
		}
		want(t, fmt.Sprint(c.states), got, c.want)
	}
}

func TestRefusal(t *testing.T) {
	for _, c := range []struct {
		key  int16
		err  error
		want api.ErrorCode
	}{
		{api.KeyHeartbeat, coordinator.ErrLoading, api.ErrNone},
		{api.KeySyncGroup, coordinator.ErrLoading, api.ErrRebalanceInProgress},
		{api.KeyOffsetFetch, coordinator.ErrLoading, api.ErrCoordinatorLoadInProgress},
		{api.KeyJoinGroup, coordinator.ErrNotAvailable, api.ErrCoordinatorNotAvailable},
		{api.KeyJoinGroup, coordinator.ErrNotOwned, api.ErrNotCoordinator},
		{api.KeyTxnOffsetCommit, fmt.Errorf("x: %w", coordinator.ErrTooLarge), api.ErrInvalidCommitOffsetSize},
		{api.KeyDeleteGroups, coordinator.ErrTooLarge, api.ErrUnknownServerError},
		{api.KeyDeleteGroups, errDisk, api.ErrNotCoordinator},
		{api.KeyDeleteGroups, nil, api.ErrNone},
	} {
		want(t, fmt.Sprint(c.key, c.err), Refusal(c.key, c.err), c.want)
	}
}
