package server

import (
	"testing"

	"kaas/codec/api"
	"kaas/engine/vfs"
	"kaas/engine/vfs/crashfs"
	"kaas/server/topics"
)

// Coordinators whose logs find no room while they are loaded answer what every client tries again (14 or 16), and have loaded them when there
// is room, without a restart (regression 33).
func TestFullDiskWhileCoordinatorsLoad(t *testing.T) {
	faults, dir := crashfs.Rules(""), t.TempDir()
	settings := []string{"offsets.topic.num.partitions", "1", "transaction.state.log.num.partitions", "1", "group.initial.rebalance.delay.ms", "0"}
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
	x := c.producer("x")
	pid, epoch := x.pid, x.epoch
	stop(t, b)

	if err := faults.Set("any of __consumer_offsets-0/*: ENOSPC; any of __transaction_state-0/*: ENOSPC"); err != nil {
		t.Fatal(err)
	}
	b = startWith(t, faults.FS(vfs.OS), dir, settings...)
	c = dial(t, b)
	x.client = c
	seen := map[api.ErrorCode]int{}
	later := func(what string, code api.ErrorCode) {
		t.Helper()
		if seen[code]++; code != api.ErrCoordinatorLoadInProgress && code != api.ErrNotCoordinator {
			t.Errorf("%s while the log finds no room: %v", what, code)
		}
	}
	eventually(t, "both kinds have been refused after a load that failed, and are tried again", func() bool {
		_, code := c.committed("g", "t")
		later("a fetch of offsets", code)
		later("a commit", c.commit("g", "t", 2))
		if code := c.heartbeat("living", member); code != api.ErrNone { // Apache's answer too during a load
			later("a heartbeat", code)
		}
		later("a transactional producer", x.tryInit(60_000).ErrorCode)
		return seen[api.ErrNotCoordinator] > 1 && seen[api.ErrCoordinatorLoadInProgress] > 1
	})
	c.findGroup("g")
	for _, topic := range []string{topics.OffsetsTopic, topics.TransactionsTopic} {
		if err := b.topics.ByName(topic).Partition(0).Log.Err(); err != nil {
			t.Errorf("%s is offline: %v", topic, err)
		}
	}
	if err := faults.Set(""); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the offsets are loaded", func() bool { _, code := c.committed("g", "t"); return code == api.ErrNone })
	c.wantCommitted("g", "t", 1)
	if code := c.heartbeat("living", member); code != api.ErrNone {
		t.Errorf("the member with room: %v", code)
	}
	if code := c.commit("g", "t", 3); code != api.ErrNone {
		t.Errorf("a commit with room: %v", code)
	}
	if x.init(); x.pid != pid || x.epoch != epoch+1 {
		t.Errorf("the transactional id has producer %d, epoch %d, want %d and %d", x.pid, x.epoch, pid, epoch+1)
	}
	stop(t, b)
}
