package server

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"

	"kaas/codec/api"
	"kaas/engine/vfs"
	"kaas/engine/vfs/crashfs"
	"kaas/server/topics"
)

// joined makes the only member of a group; its connection is free again afterwards.
func (c *client) joined(group string) *api.JoinGroupResponse {
	c.t.Helper()
	var p api.JoinGroupResponse
	if c.call(api.KeyJoinGroup, 3, joinRequest(group), &p); p.ErrorCode != api.ErrNone {
		c.t.Fatalf("join of %s: %v", group, p.ErrorCode)
	}
	p.MemberId = strings.Clone(p.MemberId)
	return &p
}

// synced hands out an assignment as the leader.
func (c *client) synced(group string, m *api.JoinGroupResponse) api.ErrorCode {
	c.t.Helper()
	q := api.SyncGroupRequest{GroupId: group, MemberId: m.MemberId, GenerationId: m.GenerationId,
		Assignments: []api.SyncGroupRequestSyncGroupRequestAssignment{{MemberId: m.MemberId, Assignment: []byte("a")}}}
	var p api.SyncGroupResponse
	c.call(api.KeySyncGroup, 2, &q, &p)
	return p.ErrorCode
}

// heartbeat is one of a member.
func (c *client) heartbeat(group string, m *api.JoinGroupResponse) api.ErrorCode {
	c.t.Helper()
	var p api.HeartbeatResponse
	c.call(api.KeyHeartbeat, 3, &api.HeartbeatRequest{GroupId: group, MemberId: m.MemberId, GenerationId: m.GenerationId}, &p)
	return p.ErrorCode
}

// A failed sync of the internal topic is told to the commit that waits for it, to the member that is parked, and to all who ask about a
// group of that log afterwards; the next start knows what was acknowledged before.
func TestFailedSyncOfTheOffsets(t *testing.T) {
	fs, dir := &heldFS{FS: vfs.OS}, t.TempDir()
	b := startWith(t, fs, dir, "offsets.topic.num.partitions", "1", "group.initial.rebalance.delay.ms", "0")
	c, waits, parked := dial(t, b), dial(t, b), dial(t, b)
	c.findGroup("g")
	c.create("t", 1)
	if code := c.commit("g", "t", 1); code != api.ErrNone {
		t.Fatal(code)
	}
	member := c.joined("living")
	if code := c.synced("living", member); code != api.ErrNone {
		t.Fatal(code)
	}
	log := b.topics.ByName(topics.OffsetsTopic).Partition(0).Log
	parked.send(api.KeyJoinGroup, 3, joinRequest("living")) // waits for the member that is there
	eventually(t, "the rebalance has begun", func() bool { return c.heartbeat("living", member) == api.ErrRebalanceInProgress })
	end := log.Offsets().LogEnd
	let := fs.hold()
	defer let(nil)
	waits.send(api.KeyOffsetCommit, 8, commitRequest("g", "t", 2, ""))
	eventually(t, "the commit is appended", func() bool { return log.Offsets().LogEnd == end+1 })
	waits.unanswered("a commit whose sync hangs")
	let(syscall.EIO)
	var p api.OffsetCommitResponse
	if waits.receive(api.KeyOffsetCommit, 8, &p); p.Topics[0].Partitions[0].ErrorCode != api.ErrNotCoordinator {
		t.Errorf("the commit: %+v", p)
	}
	var j api.JoinGroupResponse
	if parked.receive(api.KeyJoinGroup, 3, &j); j.ErrorCode != api.ErrNotCoordinator {
		t.Errorf("the parked member: %v", j.ErrorCode)
	}
	fs.mu.Lock()
	fs.failure = nil // the disk is well again, what was lost is lost
	fs.mu.Unlock()
	if code := c.commit("g", "t", 3); code != api.ErrNotCoordinator {
		t.Errorf("a commit after it: %v", code)
	}
	if _, code := c.committed("g", "t"); code != api.ErrNotCoordinator {
		t.Errorf("a fetch after it: %v", code)
	}
	if code := c.heartbeat("living", member); code != api.ErrNotCoordinator {
		t.Errorf("a heartbeat after it: %v", code)
	}
	stopDirty(t, b, true)
	b = start(t, dir, "group.initial.rebalance.delay.ms", "0")
	defer stop(t, b)
	c = dial(t, b)
	if got, code := c.committed("g", "t"); code != api.ErrNone || got != 1 && got != 2 {
		t.Errorf("after a restart: %d, %v", got, code)
	}
	if code := c.heartbeat("living", member); code != api.ErrNone {
		t.Errorf("the member after a restart: %v", code)
	}
	if code := c.commit("g", "t", 4); code != api.ErrNone {
		t.Errorf("a commit after a restart: %v", code)
	}
}

// While the disk is full commits and assignments are answered 15, which every client tries again; what is there can be read, members live on;
// and when there is room again all goes on without a restart (regression 33).
func TestFullDiskUnderGroups(t *testing.T) {
	faults := crashfs.Rules("")
	dir := t.TempDir()
	settings := []string{"offsets.topic.num.partitions", "1", "group.initial.rebalance.delay.ms", "0", "kaas.durability", "page-cache"}
	b := startWith(t, faults.FS(vfs.OS), dir, settings...)
	c := dial(t, b)
	c.findGroup("g")
	c.create("t", 1)
	if code := c.commit("g", "t", 1); code != api.ErrNone {
		t.Fatal(code)
	}
	member := c.joined("living")
	if code := c.synced("living", member); code != api.ErrNone {
		t.Fatal(code)
	}
	if err := faults.Set("write of __consumer_offsets-0/*.log: ENOSPC; allocate of __consumer_offsets-0/*.log: ENOSPC"); err != nil {
		t.Fatal(err)
	}
	for _, group := range []string{"g", "never seen"} {
		if code := c.commit(group, "t", 2); code != api.ErrCoordinatorNotAvailable {
			t.Errorf("a commit of %s: %v", group, code)
		}
	}
	c.wantCommitted("g", "t", 1)
	c.wantCommitted("never seen", "t", -1)
	if code := c.heartbeat("living", member); code != api.ErrNone {
		t.Errorf("heartbeat: %v", code)
	}
	fresh := c.joined("fresh")
	if code := c.synced("fresh", fresh); code != api.ErrCoordinatorNotAvailable {
		t.Errorf("an assignment: %v", code)
	}
	var d api.DeleteGroupsResponse
	if c.call(api.KeyDeleteGroups, 2, &api.DeleteGroupsRequest{GroupsNames: []string{"g"}}, &d); d.Results[0].ErrorCode != api.ErrCoordinatorNotAvailable {
		t.Errorf("deletion: %v", d.Results[0].ErrorCode)
	}
	if err := faults.Set(""); err != nil {
		t.Fatal(err)
	}
	if code := c.commit("g", "t", 3); code != api.ErrNone {
		t.Errorf("a commit when there is room: %v", code)
	}
	q := joinRequest("fresh")
	q.MemberId = fresh.MemberId
	var again api.JoinGroupResponse
	if c.call(api.KeyJoinGroup, 3, q, &again); again.ErrorCode != api.ErrNone {
		t.Fatalf("the member comes back: %v", again.ErrorCode)
	}
	again.MemberId = fresh.MemberId
	if code := c.synced("fresh", &again); code != api.ErrNone {
		t.Errorf("an assignment when there is room: %v", code)
	}
	stop(t, b)
	b = start(t, dir, settings...)
	defer stop(t, b)
	c = dial(t, b)
	c.wantCommitted("g", "t", 3)
	for group, m := range map[string]*api.JoinGroupResponse{"living": member, "fresh": &again} {
		if code := c.heartbeat(group, m); code != api.ErrNone {
			t.Errorf("%s after a restart: %v", group, code)
		}
	}
}

// A power cut between the append of a commit and its answer, or its sync: what was acknowledged is there, of the one in flight either the old
// offset or the new one, and the group goes on.
func TestPowerCutUnderCommits(t *testing.T) {
	for seed := range uint64(6) {
		disk := crashfs.New()
		fs, dir := &heldFS{FS: disk}, t.TempDir()
		settings := []string{"offsets.topic.num.partitions", "1", "group.initial.rebalance.delay.ms", "0"}
		b := startWith(t, fs, dir, settings...)
		c, waits := dial(t, b), dial(t, b)
		c.findGroup("g")
		c.create("t", 1)
		member := c.joined("living")
		if code := c.synced("living", member); code != api.ErrNone {
			t.Fatal(code)
		}
		last := int64(seed) * 3
		for at := range last + 1 {
			if code := c.commit("g", "t", at); code != api.ErrNone {
				t.Fatal(code)
			}
		}
		log := b.topics.ByName(topics.OffsetsTopic).Partition(0).Log
		end := log.Offsets().LogEnd
		let := fs.hold()
		waits.send(api.KeyOffsetCommit, 8, commitRequest("g", "t", last+1, ""))
		eventually(t, "the commit is appended", func() bool { return log.Offsets().LogEnd == end+1 })
		after := disk.Crash(rand.New(rand.NewPCG(seed, 1)))
		catalog := t.TempDir()
		if err := os.CopyFS(catalog, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		let(nil)
		stop(t, b)
		// The logs as the power cut left them, with the catalog of that moment.
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(dir, os.DirFS(catalog)); err != nil {
			t.Fatal(err)
		}
		b = startWith(t, after, dir, settings...)
		c = dial(t, b)
		if got, code := c.committed("g", "t"); code != api.ErrNone || got != last && got != last+1 {
			t.Errorf("seed %d: %d (%v) is committed, %d was acknowledged", seed, got, code, last)
		}
		if code := c.heartbeat("living", member); code != api.ErrNone {
			t.Errorf("seed %d: the member: %v", seed, code)
		}
		if code := c.commit("g", "t", last+2); code != api.ErrNone {
			t.Errorf("seed %d: a commit after it: %v", seed, code)
		}
		c.wantCommitted("g", "t", last+2)
		stop(t, b)
	}
}

// groupKeys are the APIs about groups.
var groupKeys = []int16{api.KeyOffsetCommit, api.KeyOffsetFetch, api.KeyFindCoordinator, api.KeyJoinGroup, api.KeyHeartbeat, api.KeyLeaveGroup,
	api.KeySyncGroup, api.KeyDescribeGroups, api.KeyListGroups, api.KeyDeleteGroups, api.KeyOffsetDelete, api.KeyConsumerGroupHeartbeat}

// Garbage in every version of every request about groups costs its sender the connection at most: nothing panics, nothing is left behind that
// keeps others waiting.
func TestGarbageToGroups(t *testing.T) {
	b := broker(t, "group.initial.rebalance.delay.ms", "0")
	c := dial(t, b)
	c.findGroup("g")
	c.create("t", 1)
	rng := rand.New(rand.NewPCG(7, 7))
	for _, key := range groupKeys {
		fact, ok := api.Lookup(key)
		if !ok {
			t.Fatal(key)
		}
		for version := fact.Min; version <= fact.Max; version++ {
			for n := range 12 {
				victim := dial(t, b)
				m := api.NewRequest(key)
				m.Default()
				if _, err := victim.c.Write(mangled(rng, victim.frame(key, version, m), n)); err != nil {
					t.Fatal(err)
				}
				victim.c.Close()
			}
		}
	}
	if code := c.commit("g", "t", 1); code != api.ErrNone {
		t.Errorf("a commit: %v", code)
	}
	m := c.joined("sane")
	if code := c.synced("sane", m); code != api.ErrNone {
		t.Errorf("a member: %v", code)
	}
	if got := b.api.Stats().Panics; got != 0 {
		t.Errorf("%d panics", got)
	}
}

// mangled damages a frame and puts its length right: bits, counts and lengths that promise more than there is, a cut, noise.
func mangled(rng *rand.Rand, frame []byte, how int) []byte {
	const header = 4 + 8 // its size, and what is before the client id
	body := frame[header:]
	switch how % 4 {
	case 0:
		for range 1 + rng.IntN(4) {
			body[rng.IntN(len(body))] ^= 1 << rng.IntN(8)
		}
	case 1:
		at := rng.IntN(len(body))
		for i := at; i < min(at+5, len(body)); i++ {
			body[i] = 0xff
		}
		body[at] = 0x7f
	case 2:
		frame = frame[:header+rng.IntN(len(body))]
	case 3:
		for range 300 {
			frame = append(frame, byte(rng.Uint32()))
		}
		for i := header + 6; i < len(frame); i++ {
			frame[i] = byte(rng.Uint32())
		}
	}
	n := len(frame) - 4
	frame[0], frame[1], frame[2], frame[3] = byte(n>>24), byte(n>>16), byte(n>>8), byte(n)
	return frame
}

// A group id is any string (regression 53): committed to, described, listed, joined, deleted, and there after a restart.
func TestOddGroupIDs(t *testing.T) {
	dir := t.TempDir()
	b := start(t, dir, "group.initial.rebalance.delay.ms", "0")
	c := dial(t, b)
	c.findGroup("g")
	c.create("t", 1)
	ids := []string{"../x", "/", "a\x00b", strings.Repeat("ü", 150), strings.Repeat("x", 32_000), "\U0001F600", "\xff\xfe", " ", "g\n", "__consumer_offsets", "null"}
	for i, id := range ids {
		if code := c.commit(id, "t", int64(i)); code != api.ErrNone {
			t.Errorf("a commit of %.20q: %v", id, code)
		}
		m := c.joined(id + "+member")
		if code := c.synced(id+"+member", m); code != api.ErrNone {
			t.Errorf("a member of %.20q: %v", id, code)
		}
	}
	stop(t, b)
	b = start(t, dir)
	defer stop(t, b)
	c = dial(t, b)
	for i, id := range ids {
		c.wantCommitted(id, "t", int64(i))
		var p api.DescribeGroupsResponse
		q := api.DescribeGroupsRequest{Groups: []string{id, id + "+member", id + "+unknown"}}
		c.call(api.KeyDescribeGroups, 4, &q, &p)
		var got []string
		for _, g := range p.Groups {
			got = append(got, fmt.Sprint(g.GroupState, len(g.Members)))
		}
		if want := "[Empty0 Stable1 Dead0]"; fmt.Sprint(got) != want {
			t.Errorf("%.20q is described as %v", id, got)
		}
		var d api.DeleteGroupsResponse
		if c.call(api.KeyDeleteGroups, 2, &api.DeleteGroupsRequest{GroupsNames: []string{id}}, &d); d.Results[0].ErrorCode != api.ErrNone {
			t.Errorf("%.20q is not deleted: %v", id, d.Results[0].ErrorCode)
		}
		c.wantCommitted(id, "t", -1)
	}
}
