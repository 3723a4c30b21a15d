package group

import (
	"strings"
	"testing"
	"time"

	"kaas/codec/api"
	"kaas/codec/wire"
)

// Regression 44: v4 and later hand out an id first, static members and old versions come in at once.
func TestMemberIDHandshake(t *testing.T) {
	f := newFake(t)
	a := f.join(joiner{client: "cl"}).got()
	want(t, "first join", a.ErrorCode, api.ErrMemberIdRequired)
	want(t, "id begins with the client id", strings.HasPrefix(a.MemberId, "cl-"), true)
	want(t, "generation", a.GenerationId, -1)
	f.wantState("g", "Empty")
	b := f.join(joiner{id: a.MemberId})
	b.parked() // the initial delay is 0, but it is an alarm all the same
	f.pass(0)
	want(t, "second join", b.got().ErrorCode, api.ErrNone)
	want(t, "generation", b.p.GenerationId, 1)
	want(t, "leader", b.p.Leader, a.MemberId)
	want(t, "members", len(b.p.Members), 1)
	want(t, "metadata", string(b.p.Members[0].Metadata), "range/")

	for _, v := range []int16{oldest, 1, 2, 3} {
		a := f.join(joiner{group: "old" + string(rune('a'+v)), version: v})
		f.pass(0)
		want(t, "old version", a.got().ErrorCode, api.ErrNone)
	}
	c := f.join(joiner{group: "static", instance: "i"})
	f.pass(0)
	want(t, "static", c.got().ErrorCode, api.ErrNone)
	want(t, "static id", strings.HasPrefix(c.p.MemberId, "i-"), true)
}

func TestHandedOutIDExpires(t *testing.T) {
	f := newFake(t)
	id := f.join(joiner{}).got().MemberId
	f.pass(10 * time.Second)
	want(t, "late", f.join(joiner{id: id}).got().ErrorCode, api.ErrUnknownMemberId)
	want(t, "alarms", len(f.alarms), 0)
	// An id that was handed out holds up a rebalance until it comes or its session is over.
	a := f.member1("g")
	id = f.join(joiner{}).got().MemberId
	again := f.join(joiner{id: a, metadata: "new"})
	again.parked()
	f.beat("g", a, "", 1)
	f.pass(10 * time.Second)
	want(t, "rejoin", again.got().ErrorCode, api.ErrNone)
	want(t, "left behind", f.join(joiner{id: id}).got().ErrorCode, api.ErrUnknownMemberId)
}

func TestJoinArguments(t *testing.T) {
	f := newFake(t)
	for _, c := range []struct {
		what string
		j    joiner
		want api.ErrorCode
		id   string
	}{
		{"empty group", joiner{group: none}, api.ErrInvalidGroupId, ""},
		{"session too short", joiner{session: 5999 * time.Millisecond}, api.ErrInvalidSessionTimeout, ""},
		{"session too long", joiner{session: 30*time.Minute + time.Millisecond}, api.ErrInvalidSessionTimeout, ""},
		{"no protocols", joiner{offer: []string{}}, api.ErrInconsistentGroupProtocol, ""},
		{"no type", joiner{kind: none}, api.ErrInconsistentGroupProtocol, ""},
		{"unknown group", joiner{group: "never", id: "m"}, api.ErrUnknownMemberId, "m"},
		{"unknown group, no protocols", joiner{group: "never", id: "m", offer: []string{}}, api.ErrUnknownMemberId, "m"},
		{"id longer than a string", joiner{client: strings.Repeat("x", 32767)}, api.ErrUnknownServerError, ""},
	} {
		for _, v := range []int16{2, 5, 6, 7, 9} {
			c.j.version = v
			p := f.join(c.j).got()
			want(t, c.what, p.ErrorCode, c.want)
			want(t, c.what+": member id", p.MemberId, c.id)
			want(t, c.what+": protocol is null", p.ProtocolName.Valid, v < 7)
		}
	}
	want(t, "never", f.state("never"), "Dead")
}

func TestInconsistentProtocol(t *testing.T) {
	f := newFake(t)
	id := f.member1("g")
	want(t, "other type", f.join(joiner{kind: "connect"}).got().ErrorCode, api.ErrInconsistentGroupProtocol)
	p := f.join(joiner{id: id, offer: []string{"sticky"}}).got()
	want(t, "nothing in common", p.ErrorCode, api.ErrInconsistentGroupProtocol)
	want(t, "member", p.MemberId, id)
	f.wantState("g", "Stable")
}

// While the first members are waited for all of them may leave; the next one is welcome.
func TestJoinAfterAllLeft(t *testing.T) {
	f := newFake(t)
	f.cfg.InitialRebalanceDelay = time.Second
	a := f.join(joiner{instance: "a"})
	f.leave("g", identity("", "a"))
	want(t, "left", a.got().ErrorCode, api.ErrUnknownMemberId)
	b := f.join(joiner{instance: "b", offer: []string{"other"}})
	want(t, "other type", f.join(joiner{instance: "c", kind: "connect"}).got().ErrorCode, api.ErrInconsistentGroupProtocol)
	f.pass(2 * time.Second) // once more, as somebody arrived
	want(t, "joined", b.got().ErrorCode, api.ErrNone)
	want(t, "protocol", b.p.ProtocolName, wire.Some("other"))
}

// The protocol that most members prefer among those that all have.
func TestProtocolVote(t *testing.T) {
	f := newFake(t)
	a := f.join(joiner{version: 3, offer: []string{"a", "b", "x"}})
	f.pass(0)
	m1 := a.got().MemberId
	b := f.join(joiner{version: 3, offer: []string{"b", "a"}})
	c := f.join(joiner{version: 3, offer: []string{"y", "b", "a"}})
	b.parked()
	d := f.join(joiner{version: 3, id: m1, offer: []string{"a", "b", "x"}})
	want(t, "protocol", d.got().ProtocolName, wire.Some("b"))
	want(t, "leader", d.p.Leader, m1)
	want(t, "members", len(d.p.Members), 3)
	want(t, "metadata", string(d.p.Members[2].Metadata), "b/")
	want(t, "followers are told nothing", len(b.got().Members)+len(c.got().Members), 0)
	want(t, "generation", c.p.GenerationId, 2)
}

// Regression 45: the delay begins again while members arrive, up to the rebalance timeout.
func TestInitialDelay(t *testing.T) {
	f := newFake(t)
	f.cfg.InitialRebalanceDelay = 3 * time.Second
	begin := f.now
	_, first := f.enter(joiner{rebalance: 10 * time.Second})
	var all []*joinAnswer
	for first.p == nil {
		f.pass(time.Second)
		if first.p == nil {
			_, a := f.enter(joiner{rebalance: 10 * time.Second})
			all = append(all, a)
		}
	}
	want(t, "capped", f.now.Sub(begin), 10*time.Second)
	want(t, "one generation for all (regression 55)", len(first.p.Members), len(all)+1)
	for _, a := range all {
		want(t, "generation", a.got().GenerationId, 1)
	}
	begin = f.now
	_, first = f.enter(joiner{group: "lonely"})
	for first.p == nil {
		f.pass(time.Second)
	}
	want(t, "nobody else came", f.now.Sub(begin), 3*time.Second)
}

func TestJoinAgain(t *testing.T) {
	f := newFake(t)
	m1, a := f.enter(joiner{})
	f.pass(0)
	a.got()
	// The same offer while the assignment is awaited: the present generation again.
	want(t, "completing", f.join(joiner{id: m1}).got().GenerationId, 1)
	f.sync("g", m1, "", 1, nil).got()
	m2, b := f.enter(joiner{metadata: "2"})
	b.parked()
	want(t, "leader comes back", f.join(joiner{id: m1}).got().GenerationId, 2)
	want(t, "follower", b.got().GenerationId, 2)
	f.sync("g", m1, "", 2, nil).got()
	f.sync("g", m2, "", 2, nil).got()
	f.wantState("g", "Stable")
	// A follower with the same offer changes nothing; with another one, and the leader in any case, it rebalances.
	c := f.join(joiner{id: m2, metadata: "2"}).got()
	want(t, "follower, same", c.GenerationId, 2)
	want(t, "members", len(c.Members), 0)
	f.wantState("g", "Stable")
	d := f.join(joiner{id: m2, metadata: "3"})
	d.parked()
	f.wantState("g", "PreparingRebalance")
	// The client lost its connection and asks again: the first request must not wait for ever.
	e := f.join(joiner{id: m2, metadata: "3"})
	want(t, "given up", d.got().ErrorCode, api.ErrRebalanceInProgress)
	want(t, "heartbeat", f.beat("g", m1, "", 2), api.ErrRebalanceInProgress)
	f.join(joiner{id: m1}).got()
	want(t, "next", e.got().GenerationId, 3)
}

// Regression 46: group.max.size counts those who wait while a rebalance gathers, and members otherwise.
func TestMaxSize(t *testing.T) {
	f := newFake(t)
	f.cfg.MaxSize = 2
	m1 := f.member1("g")
	m2, b := f.enter(joiner{})
	m3, c := f.enter(joiner{})
	want(t, "one waits", f.s.groups["g"].classic.waiting, 2)
	want(t, "whoever comes back last", f.join(joiner{id: m1}).got().ErrorCode, api.ErrGroupMaxSizeReached)
	want(t, "generation", b.got().GenerationId, 2)
	want(t, "the others", c.got().GenerationId, 2)
	want(t, "gone", f.beat("g", m1, "", 2), api.ErrUnknownMemberId)
	want(t, "full", f.join(joiner{}).got().ErrorCode, api.ErrGroupMaxSizeReached)
	f.sync("g", m2, "", 2, nil)
	f.sync("g", m3, "", 2, nil)
	want(t, "full", f.join(joiner{}).got().ErrorCode, api.ErrGroupMaxSizeReached)
	want(t, "full", f.join(joiner{}).got().MemberId, "")
	f.wantState("g", "Stable")
	// A smaller limit after a restart: the group rebalances, and the last one has no place.
	f.cfg.MaxSize = 1
	f.restart()
	f.wantState("g", "PreparingRebalance")
	d := f.join(joiner{id: m2})
	d.parked()
	want(t, "too many", f.join(joiner{id: m3}).got().ErrorCode, api.ErrGroupMaxSizeReached)
	want(t, "the first", d.got().GenerationId, 3)
}
