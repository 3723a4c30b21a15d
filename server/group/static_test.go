package group

import (
	"testing"
	"time"

	"kaas/codec/api"
)

// statics makes a stable group of static members a (the leader) and b in generation 1.
func (f *fake) statics() (a, b string) {
	f.t.Helper()
	x, y := f.join(joiner{instance: "a", metadata: "a"}), f.join(joiner{instance: "b", metadata: "b"})
	f.pass(0)
	a, b = x.got().MemberId, y.got().MemberId
	f.sync("g", a, "a", 1, map[string]string{a: "A", b: "B"}).got()
	f.sync("g", b, "b", 1, nil).got()
	f.wantState("g", "Stable")
	return a, b
}

// A static member that comes back to a stable group keeps its assignment, without a rebalance (regression of KIP-345 and KIP-814).
func TestStaticComesBack(t *testing.T) {
	f := newFake(t)
	a, b := f.statics()
	p := f.join(joiner{instance: "b", metadata: "b", version: 8}).got()
	want(t, "follower", p.ErrorCode, api.ErrNone)
	want(t, "generation", p.GenerationId, 1)
	want(t, "leader", p.Leader, a)
	b2 := p.MemberId
	want(t, "new id", b2 != b, true)
	want(t, "old id", f.beat("g", b, "b", 1), api.ErrFencedInstanceId)
	want(t, "old id, no instance", f.beat("g", b, "", 1), api.ErrUnknownMemberId)
	want(t, "old id syncs", f.sync("g", b, "b", 1, nil).got().ErrorCode, api.ErrFencedInstanceId)
	want(t, "old id joins", f.join(joiner{instance: "b", id: b}).got().ErrorCode, api.ErrFencedInstanceId)
	want(t, "old id commits", f.commit(fenced(b, "b"), 8).got().Topics[0].Partitions[0].ErrorCode, api.ErrFencedInstanceId)
	want(t, "assignment", string(f.sync("g", b2, "b", 1, nil).got().Assignment), "B")

	// Up to v8 the leader is told the old id and no members: it cannot be told to skip the assignment.
	p = f.join(joiner{instance: "a", metadata: "a", version: 8}).got()
	want(t, "leader v8", p.Leader, a)
	want(t, "members", len(p.Members), 0)
	a2 := p.MemberId
	p = f.join(joiner{instance: "a", metadata: "a"}).got()
	want(t, "leader v9", p.Leader, p.MemberId)
	want(t, "another id", p.MemberId != a2, true)
	want(t, "skip", p.SkipAssignment, true)
	want(t, "members", len(p.Members), 2)
	want(t, "state", f.state("g"), "Stable")
	want(t, "v9 follower", f.join(joiner{instance: "b", metadata: "b"}).got().SkipAssignment, false)
	// And it is written: after a restart the new ids count.
	f.restart()
	want(t, "after a restart", f.beat("g", p.MemberId, "a", 1), api.ErrNone)
	want(t, "after a restart", f.beat("g", a2, "a", 1), api.ErrFencedInstanceId)
	want(t, "assignment", string(f.sync("g", p.MemberId, "a", 1, nil).got().Assignment), "A")
}

func fenced(id, instance string) *api.OffsetCommitRequest {
	q := commitQ("g", id, 1, "t", 0, 1)
	q.GroupInstanceId.String, q.GroupInstanceId.Valid = instance, true
	return q
}

// Other metadata of the sole static member: no rebalance, as the protocol stays. Another protocol: a rebalance.
func TestStaticNewMetadata(t *testing.T) {
	f := newFake(t)
	x := f.join(joiner{instance: "a"})
	f.pass(0)
	f.sync("g", x.got().MemberId, "a", 1, nil).got()
	p := f.join(joiner{instance: "a", metadata: "other"}).got()
	want(t, "generation", p.GenerationId, 1)
	want(t, "metadata", string(p.Members[0].Metadata), "range/other")
	y := f.join(joiner{instance: "a", offer: []string{"sticky", "range"}})
	f.wantState("g", "CompletingRebalance")
	want(t, "generation", y.got().GenerationId, 2)
	want(t, "protocol", y.p.ProtocolName.String, "sticky")
}

// Whoever waits under the old id is fenced at once.
func TestStaticFencesParked(t *testing.T) {
	f := newFake(t)
	a, b := f.statics()
	x := f.join(joiner{instance: "b", id: b, metadata: "new"})
	x.parked()
	y := f.join(joiner{instance: "b", metadata: "new"})
	want(t, "parked join", x.got().ErrorCode, api.ErrFencedInstanceId)
	y.parked()
	f.join(joiner{instance: "a", id: a}).got()
	b2 := y.got().MemberId
	z := f.sync("g", b2, "b", 2, nil)
	z.parked()
	w := f.join(joiner{instance: "b", metadata: "new"})
	want(t, "parked sync", z.got().ErrorCode, api.ErrFencedInstanceId)
	f.wantState("g", "PreparingRebalance") // the leader knows the old id
	f.join(joiner{instance: "a", id: a}).got()
	want(t, "generation", w.got().GenerationId, 3)
}

func TestStaticNotWritten(t *testing.T) {
	f := newFake(t)
	a, b := f.statics()
	f.fail = errDisk
	p := f.join(joiner{instance: "a", metadata: "other"}).got()
	want(t, "error", p.ErrorCode, api.ErrNotCoordinator)
	want(t, "id", p.MemberId, "")
	want(t, "the old one lives", f.beat("g", a, "a", 1), api.ErrNone)
	want(t, "and leads", f.s.groups["g"].classic.leader, a)
	want(t, "with its metadata", string(f.s.Describe("g").Members[0].MemberMetadata), "range/a")
	_ = b
}

// Its alarm rang for nobody while the write took long: the session runs all the same.
func TestStaticSlowWrite(t *testing.T) {
	f := newFake(t)
	a, _ := f.statics()
	f.hold = true
	x := f.join(joiner{instance: "b", metadata: "b"})
	for range 2 {
		f.pass(8 * time.Second)
		f.beat("g", a, "a", 1)
	}
	f.hold = false
	f.flush()
	want(t, "answered", x.got().ErrorCode, api.ErrNone)
	for range 2 {
		f.wantState("g", "Stable")
		f.pass(5 * time.Second)
		f.beat("g", a, "a", 1)
	}
	f.wantState("g", "PreparingRebalance")
	want(t, "gone", f.beat("g", x.p.MemberId, "b", 1), api.ErrUnknownMemberId)
}

// A rebalance that begins while the new id is written takes the member in.
func TestStaticOvertaken(t *testing.T) {
	f := newFake(t)
	a, _ := f.statics()
	f.hold = true
	x := f.join(joiner{instance: "b", metadata: "b"})
	y := f.join(joiner{instance: "a", id: a, metadata: "a"}) // the leader: a rebalance
	f.hold = false
	f.flush()
	want(t, "b", x.got().GenerationId, 2)
	want(t, "a", y.got().GenerationId, 2)
	want(t, "members", len(y.p.Members), 2)
}

// Static members that do not come back keep their place until their session ends.
func TestStaticAbsent(t *testing.T) {
	f := newFake(t)
	a, b := f.statics()
	x := f.join(joiner{instance: "c", rebalance: 8 * time.Second})
	for range 6 {
		f.pass(9 * time.Second)
		f.beat("g", a, "a", 1)
		f.beat("g", b, "b", 1)
	}
	x.parked()
	f.pass(6 * time.Second)
	want(t, "generation", x.got().GenerationId, 2)
	want(t, "leader is who came", x.p.Leader, x.p.MemberId)
	want(t, "all have a place", len(x.p.Members), 3)
	f.pass(10 * time.Second)
	f.wantState("g", "Empty")
}

// With nobody there but absent static members a rebalance waits for their sessions' ends.
func TestStaticAllAbsent(t *testing.T) {
	f := newFake(t)
	f.statics()
	m, _ := f.enter(joiner{rebalance: time.Second})
	f.leave("g", identity(m, ""))
	f.wantState("g", "PreparingRebalance")
	f.pass(10 * time.Second)
	f.wantState("g", "Empty")
	want(t, "alarms", len(f.alarms), 0)
}

func TestHandedOutIDIsNotStatic(t *testing.T) {
	f := newFake(t)
	id := f.join(joiner{}).got().MemberId
	want(t, "with an instance", f.join(joiner{id: id, instance: "i"}).got().ErrorCode, api.ErrUnknownServerError)
}
