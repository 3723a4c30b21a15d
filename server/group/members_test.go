package group

import (
	"fmt"
	"testing"
	"time"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/coordinator"
)

// identity is a member in LeaveGroup.
func identity(id, instance string) api.LeaveGroupRequestMemberIdentity {
	m := api.LeaveGroupRequestMemberIdentity{MemberId: id}
	if instance != "" {
		m.GroupInstanceId = wire.Some(instance)
	}
	return m
}

func TestSyncErrors(t *testing.T) {
	f := newFake(t)
	want(t, "empty id", f.sync("", "m", "", 1, nil).got().ErrorCode, api.ErrInvalidGroupId)
	want(t, "no group", f.sync("g", "m", "", 1, nil).got().ErrorCode, api.ErrUnknownMemberId)
	m := f.member1("g")
	want(t, "no member", f.sync("g", "m", "", 1, nil).got().ErrorCode, api.ErrUnknownMemberId)
	want(t, "no instance", f.sync("g", m, "i", 1, nil).got().ErrorCode, api.ErrUnknownMemberId)
	want(t, "generation", f.sync("g", m, "", 2, nil).got().ErrorCode, api.ErrIllegalGeneration)
	q := &api.SyncGroupRequest{GroupId: "g", MemberId: m, GenerationId: 1, ProtocolType: wire.Some("connect"), ProtocolName: wire.Some("range")}
	want(t, "type", f.syncRaw(q).got().ErrorCode, api.ErrInconsistentGroupProtocol)
	q.ProtocolType, q.ProtocolName = wire.Some("consumer"), wire.Some("sticky")
	want(t, "name", f.syncRaw(q).got().ErrorCode, api.ErrInconsistentGroupProtocol)
	q.ProtocolName = wire.NullString{}
	want(t, "v5 without a name", f.syncAt(q, 5).got().ErrorCode, api.ErrInconsistentGroupProtocol)
	q.ProtocolType = wire.NullString{}
	want(t, "v4", f.syncAt(q, 4).got().ErrorCode, api.ErrNone)
	q.ProtocolType, q.ProtocolName = wire.Some("consumer"), wire.Some("range")
	p := f.syncRaw(q).got()
	want(t, "stable", p.ErrorCode, api.ErrNone)
	want(t, "assignment", string(p.Assignment), "part")
	want(t, "type", p.ProtocolType, wire.Some("consumer"))
	want(t, "name", p.ProtocolName, wire.Some("range"))
	f.enter(joiner{})
	want(t, "preparing", f.sync("g", m, "", 1, nil).got().ErrorCode, api.ErrRebalanceInProgress)
}

func TestAssignment(t *testing.T) {
	f := newFake(t)
	m1, a := f.enter(joiner{})
	m2, b := f.enter(joiner{})
	f.pass(0)
	want(t, "generation", a.got().GenerationId+b.got().GenerationId, 2)
	c := f.sync("g", m2, "", 1, map[string]string{m2: "of no leader"})
	c.parked()
	want(t, "heartbeat while completing", f.beat("g", m2, "", 1), api.ErrNone)
	d := f.sync("g", m2, "", 1, nil)
	want(t, "sent twice", c.got().ErrorCode, api.ErrRebalanceInProgress)
	d.parked()
	f.hold = true
	e := f.sync("g", m1, "", 1, map[string]string{m1: "one", "stranger": "x"})
	e.parked()
	f.wantState("g", "CompletingRebalance") // not before it is durable
	f.hold = false
	f.flush()
	want(t, "leader", string(e.got().Assignment), "one")
	want(t, "left out", string(d.got().Assignment), "")
	want(t, "left out", d.p.ErrorCode, api.ErrNone)
	f.wantState("g", "Stable")
	want(t, "records", len(f.log), 1)
}

func TestAssignmentNotWritten(t *testing.T) {
	for _, c := range []struct {
		err  error
		want api.ErrorCode
	}{
		{errDisk, api.ErrNotCoordinator},
		{coordinator.ErrNotAvailable, api.ErrCoordinatorNotAvailable},
		{coordinator.ErrTooLarge, api.ErrUnknownServerError},
	} {
		f := newFake(t)
		m1, a := f.enter(joiner{})
		m2, _ := f.enter(joiner{})
		f.pass(0)
		a.got()
		b := f.sync("g", m2, "", 1, nil)
		f.fail = c.err
		want(t, "leader", f.sync("g", m1, "", 1, map[string]string{m1: "x"}).got().ErrorCode, c.want)
		want(t, "follower", b.got().ErrorCode, c.want)
		f.wantState("g", "PreparingRebalance")
		d := f.join(joiner{id: m1})
		d.parked()
		want(t, "again", f.join(joiner{id: m2}).got().GenerationId, 2)
		d.got()
	}
}

// A rebalance that begins while the assignment is written answers those who wait, and the write's end changes nothing.
func TestAssignmentOvertaken(t *testing.T) {
	f := newFake(t)
	m1, a := f.enter(joiner{})
	f.pass(0)
	a.got()
	f.hold = true
	b := f.sync("g", m1, "", 1, map[string]string{m1: "x"})
	c := f.join(joiner{version: 3})
	f.hold = false
	f.flush()
	want(t, "sync", b.got().ErrorCode, api.ErrRebalanceInProgress)
	f.wantState("g", "PreparingRebalance")
	f.join(joiner{id: m1}).got()
	want(t, "generation", c.got().GenerationId, 2)
}

// Even when the next generation has begun: the assignment of the one before is not given to it.
func TestAssignmentOvertakenTwice(t *testing.T) {
	f := newFake(t)
	m1, a := f.enter(joiner{})
	f.pass(0)
	a.got()
	f.hold = true
	b := f.sync("g", m1, "", 1, map[string]string{m1: "old"})
	c := f.join(joiner{version: 3})
	d := f.join(joiner{id: m1})
	f.hold = false
	f.flush()
	want(t, "sync", b.got().ErrorCode, api.ErrRebalanceInProgress)
	want(t, "generation", d.got().GenerationId, 2)
	f.wantState("g", "CompletingRebalance")
	e := f.syncAt(&api.SyncGroupRequest{GroupId: "g", MemberId: c.got().MemberId, GenerationId: 2}, 3)
	e.parked()
	f.sync("g", m1, "", 2, map[string]string{c.p.MemberId: "new"}).got()
	want(t, "assignment", string(e.got().Assignment), "new")
}

// A write that takes as long as a session does not end one: it begins when the answer goes out.
func TestSlowWriteKeepsSession(t *testing.T) {
	f := newFake(t)
	m1, a := f.enter(joiner{})
	f.pass(0)
	a.got()
	f.hold = true
	b := f.sync("g", m1, "", 1, nil)
	f.pass(9 * time.Second)
	f.hold = false
	f.flush()
	b.got()
	f.pass(9 * time.Second)
	f.wantState("g", "Stable")
	f.pass(time.Second)
	f.wantState("g", "Empty")
}

// Regression 47.
func TestHeartbeat(t *testing.T) {
	f := newFake(t)
	want(t, "empty id", f.beat("", "m", "", 1), api.ErrInvalidGroupId)
	want(t, "no group", f.beat("g", "m", "", 1), api.ErrUnknownMemberId)
	want(t, "commit", f.committed("g", "t", 0, 1), api.ErrNone)
	want(t, "simple group", f.beat("g", "m", "", 1), api.ErrUnknownMemberId)
	m := f.member1("g")
	want(t, "no member", f.beat("g", "x", "", 1), api.ErrUnknownMemberId)
	want(t, "generation", f.beat("g", m, "", 0), api.ErrIllegalGeneration)
	want(t, "no instance", f.beat("g", m, "i", 1), api.ErrUnknownMemberId)
	want(t, "stable", f.beat("g", m, "", 1), api.ErrNone)
	f.enter(joiner{})
	want(t, "preparing", f.beat("g", m, "", 1), api.ErrRebalanceInProgress)
	want(t, "other generation", f.beat("g", m, "", 2), api.ErrIllegalGeneration)
	f.leave("g", identity(m, ""))
	want(t, "left", f.beat("g", m, "", 1), api.ErrUnknownMemberId)
}

func TestSession(t *testing.T) {
	f := newFake(t)
	m := f.member1("g")
	for range 20 { // as long as it beats
		f.pass(9 * time.Second)
		want(t, "heartbeat", f.beat("g", m, "", 1), api.ErrNone)
		want(t, "alarms", len(f.alarms), 1)
	}
	f.pass(10*time.Second - time.Nanosecond)
	f.wantState("g", "Stable")
	f.pass(time.Nanosecond)
	f.wantState("g", "Empty")
	want(t, "alarms", len(f.alarms), 0)
	want(t, "late", f.beat("g", m, "", 1), api.ErrUnknownMemberId)
	f.restart()
	f.wantState("g", "Empty")
	want(t, "generation", f.s.groups["g"].classic.generation, 2)
}

// Regression 48: 50 consumers killed at once.
func TestFiftyKilled(t *testing.T) {
	f := newFake(t)
	var ids []string
	var last *joinAnswer
	for range 50 {
		var id string
		id, last = f.enter(joiner{})
		ids = append(ids, id)
	}
	f.pass(0)
	want(t, "one generation", last.got().GenerationId, 1)
	for _, id := range ids {
		f.sync("g", id, "", 1, nil)
	}
	f.wantState("g", "Stable")
	f.pass(10 * time.Second)
	f.wantState("g", "Empty")
	want(t, "alarms", len(f.alarms), 0)
	want(t, "delete", f.deleteGroup("g"), api.ErrNone)
	f.wantState("g", "Dead")
}

// Members whose requests are parked do not expire, but for new ones after five minutes.
func TestParkedMembersLive(t *testing.T) {
	f := newFake(t)
	m1, a := f.enter(joiner{rebalance: time.Hour})
	f.pass(0)
	a.got()
	f.sync("g", m1, "", 1, nil)
	m2, b := f.enter(joiner{rebalance: time.Hour})
	for range 29 {
		f.pass(10*time.Second - time.Nanosecond)
		want(t, "heartbeat", f.beat("g", m1, "", 1), api.ErrRebalanceInProgress)
	}
	b.parked()
	for range 2 {
		f.pass(9 * time.Second)
		f.beat("g", m1, "", 1)
	}
	want(t, "new member, five minutes", b.got().ErrorCode, api.ErrUnknownMemberId)
	want(t, "its id", b.p.MemberId, "")
	want(t, "gone", f.join(joiner{id: m2}).got().ErrorCode, api.ErrUnknownMemberId)
	c := f.join(joiner{id: m1, metadata: "n"}).got()
	want(t, "generation", c.GenerationId, 2)
	// One that waits for its assignment is not new any more: it outlives its session.
	m3, d := f.enter(joiner{rebalance: time.Hour})
	f.join(joiner{id: m1, rebalance: time.Hour}).got()
	want(t, "generation", d.got().GenerationId, 3)
	e := f.sync("g", m3, "", 3, nil)
	for range 10 {
		f.pass(9 * time.Second)
		want(t, "leader", f.beat("g", m1, "", 3), api.ErrNone)
	}
	e.parked()
	f.sync("g", m1, "", 3, map[string]string{m3: "p"}).got()
	want(t, "assignment", string(e.got().Assignment), "p")
	f.pass(10 * time.Second)
	want(t, "and its session runs again", f.beat("g", m3, "", 3), api.ErrUnknownMemberId)
}

// Whoever does not come back within the rebalance timeout is left behind.
func TestRebalanceTimeout(t *testing.T) {
	f := newFake(t)
	m1 := f.member1("g") // 60 s
	_, a := f.enter(joiner{rebalance: 20 * time.Second})
	for range 6 {
		f.pass(9 * time.Second)
		want(t, "old member", f.beat("g", m1, "", 1), api.ErrRebalanceInProgress)
	}
	a.parked()
	f.pass(6 * time.Second)
	want(t, "generation", a.got().GenerationId, 2)
	want(t, "members", len(a.p.Members), 1)
	want(t, "old member", f.beat("g", m1, "", 1), api.ErrUnknownMemberId)
}

// A leader that never syncs is taken out after the rebalance timeout, with everybody else who did not.
func TestLeaderNeverSyncs(t *testing.T) {
	f := newFake(t)
	m1, a := f.enter(joiner{rebalance: 30 * time.Second})
	m2, _ := f.enter(joiner{rebalance: 30 * time.Second})
	f.pass(0)
	a.got()
	b := f.sync("g", m2, "", 1, nil)
	for range 3 {
		f.pass(9 * time.Second)
		want(t, "leader beats", f.beat("g", m1, "", 1), api.ErrNone)
	}
	b.parked()
	f.pass(3 * time.Second)
	want(t, "follower", b.got().ErrorCode, api.ErrRebalanceInProgress)
	want(t, "leader", f.beat("g", m1, "", 1), api.ErrUnknownMemberId)
	c := f.join(joiner{id: m2}).got()
	want(t, "new leader", c.Leader, m2)
	want(t, "generation", c.GenerationId, 2)
}

// A follower that never syncs is taken out of a stable group.
func TestFollowerNeverSyncs(t *testing.T) {
	f := newFake(t)
	m1, _ := f.enter(joiner{rebalance: 30 * time.Second})
	m2, _ := f.enter(joiner{rebalance: 30 * time.Second})
	f.pass(0)
	f.sync("g", m1, "", 1, nil).got()
	f.wantState("g", "Stable")
	for range 3 {
		f.pass(9 * time.Second)
		f.beat("g", m1, "", 1)
		want(t, "beats", f.beat("g", m2, "", 1), api.ErrNone)
	}
	f.pass(3 * time.Second)
	want(t, "out", f.beat("g", m2, "", 1), api.ErrUnknownMemberId)
	f.wantState("g", "PreparingRebalance")
	want(t, "next", f.join(joiner{id: m1}).got().GenerationId, 2)
}

func TestLeave(t *testing.T) {
	f := newFake(t)
	want(t, "empty id", f.leave("").got().ErrorCode, api.ErrInvalidGroupId)
	p := f.leave("never", identity("m", "i")).got()
	want(t, "no group", p.ErrorCode, api.ErrNone)
	want(t, "no group", p.Members[0].ErrorCode, api.ErrUnknownMemberId)
	want(t, "member", p.Members[0].MemberId, "m")
	want(t, "instance", p.Members[0].GroupInstanceId, wire.Some("i"))
	s := f.join(joiner{instance: "i"})
	m, a := f.enter(joiner{})
	f.pass(0)
	id := s.got().MemberId
	a.got()
	pending := f.join(joiner{}).got().MemberId
	p = f.leave("g", identity("x", ""), identity(id, "other"), identity("x", "i"), identity("", "none"), identity("", ""),
		identity(pending, ""), identity("", "i"), identity("", "i"), identity(m, "")).got()
	for i, code := range []api.ErrorCode{api.ErrUnknownMemberId, api.ErrUnknownMemberId, api.ErrFencedInstanceId, api.ErrUnknownMemberId,
		api.ErrUnknownMemberId, api.ErrNone, api.ErrNone, api.ErrUnknownMemberId, api.ErrNone} {
		want(t, fmt.Sprint("member ", i), p.Members[i].ErrorCode, code)
	}
	f.wantState("g", "Empty")
	want(t, "alarms", len(f.alarms), 0)
	// One member, its error is the answer's.
	m = f.member1("h")
	var old *api.LeaveGroupResponse
	for _, c := range []api.ErrorCode{api.ErrNone, api.ErrUnknownMemberId} {
		f.run(f.s.Leave(&api.LeaveGroupRequest{GroupId: "h", MemberId: m}, 1, f.now, func(p *api.LeaveGroupResponse) { old = p }))
		want(t, "v1", old.ErrorCode, c)
	}
}

// A parked member that leaves, on another connection or by an operator, is answered.
func TestParkedMemberLeaves(t *testing.T) {
	f := newFake(t)
	a := f.join(joiner{instance: "a"})
	b := f.join(joiner{instance: "b"})
	f.leave("g", identity("", "a"))
	want(t, "join", a.got().ErrorCode, api.ErrUnknownMemberId)
	f.pass(0)
	want(t, "other", b.got().Leader, b.p.MemberId)
	c := f.join(joiner{instance: "c"})
	f.join(joiner{instance: "b", id: b.p.MemberId}).got()
	d := f.sync("g", c.got().MemberId, "c", 2, nil)
	f.leave("g", identity("", "c"))
	want(t, "sync", d.got().ErrorCode, api.ErrUnknownMemberId)
}

func TestClosed(t *testing.T) {
	f := newFake(t)
	m1, a := f.enter(joiner{})
	m2, _ := f.enter(joiner{})
	f.pass(0)
	a.got()
	b := f.sync("g", m2, "", 1, nil)
	_, c := f.enter(joiner{group: "h"})
	f.s.Closed(coordinator.ErrNotOwned)
	want(t, "sync", b.got().ErrorCode, api.ErrNotCoordinator)
	want(t, "join", c.got().ErrorCode, api.ErrNotCoordinator)
	want(t, "alarms", len(f.alarms), 0)
	want(t, "groups", len(f.s.groups), 0)
	_ = m1
}
