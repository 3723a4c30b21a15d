package state

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"

	"kaas/engine/vfs"
	"kaas/engine/vfs/crashfs"
)

// TestKilledBehindFailedSync: a sync fails, and the process dies before anything can be noted. What the next one reads is not on the disk, and
// a sync does not bring it there: it must, before anything behind it is acknowledged.
func TestKilledBehindFailedSync(t *testing.T) {
	for _, first := range []int{0, 3} { // how many puts were durable
		d, faults := crashfs.New(), crashfs.Rules("")
		s, err := Open(faults.FS(d), "/s", Options{CacheBytes: -1})
		if err != nil {
			t.Fatal(err)
		}
		for i := range first {
			put(t, s, fmt.Sprint("first", i), "synced", true)
		}
		put(t, s, "second", "not synced", false)
		setRules(t, faults, "1st fdatasync of *.log: EIO")
		var b Batch
		b.Put([]byte("third"), []byte("failed"))
		if err := s.Apply(&b, true); !errors.Is(err, ErrPoisoned) || !errors.Is(err, syscall.EIO) {
			t.Fatalf("apply: %v", err)
		}
		d = killed(d)
		s = open(t, d, Options{CacheBytes: -1})
		put(t, s, "fourth", "synced again", true)
		s = open(t, d.CrashAs(rand.New(rand.NewPCG(1, 1)), crashfs.Cut{Sector: 512}), Options{CacheBytes: -1})
		for i := range first {
			want(t, s, fmt.Sprint("first", i), "synced")
		}
		want(t, s, "second", "not synced")
		want(t, s, "third", "failed")
		want(t, s, "fourth", "synced again")
	}
}

// TestFailedSyncs has one of the syncs of a life fail, kills the process, and cuts the power after another life: what was acknowledged, and
// what the second life has shown, is there.
func TestFailedSyncs(t *testing.T) {
	for seed := range *seeds * 10 {
		rng := rand.New(rand.NewPCG(seed, 5))
		l := &life{t: t, rng: rng, history: []map[string]string{{}}}
		d := crashfs.New()
		for range 4 {
			faults := crashfs.Rules(fmt.Sprintf("%dth+ fdatasync of *.log: EIO", 4+rng.IntN(12)))
			l.run(faults.FS(d), 60)
			d = killed(d)
			if l.run(d, rng.IntN(20)) {
				t.Fatal("a change failed")
			}
			if rng.IntN(2) == 0 {
				d = killed(d)
			} else {
				d = d.Crash(rng)
			}
		}
		l.run(d.Crash(rng), 5)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// TestOneHearsOfAFailedSync: of two syncs at a time the kernel tells one of a failure. The other must not count as a success: here a roll that
// waits for the sync of a group.
func TestOneHearsOfAFailedSync(t *testing.T) {
	s := open(t, crashfs.New(), Options{FileBytes: 100, CacheBytes: -1})
	once := &failOnce{File: s.active.Load().f, begun: make(chan struct{}), gate: make(chan struct{})}
	s.active.Load().f = once
	var b Batch
	b.Put([]byte("group"), make([]byte, 100))
	failed := make(chan error)
	go func() { failed <- s.Apply(&b, true) }()
	<-once.begun
	rolled := make(chan error, 1)
	go func() {
		var b Batch
		b.Put([]byte("roll"), make([]byte, 100))
		rolled <- s.Apply(&b, false)
	}()
	for len(rolled) == 0 && s.appendMu.TryLock() { // until the roll has it
		s.appendMu.Unlock()
		runtime.Gosched()
	}
	for i := 0; i < 10_000 && once.syncs.Load() == 1; i++ { // and would have synced, if it did not wait
		runtime.Gosched()
	}
	close(once.gate)
	if err := <-failed; !errors.Is(err, ErrPoisoned) {
		t.Errorf("the group: %v", err)
	}
	if err := <-rolled; !errors.Is(err, ErrPoisoned) {
		t.Errorf("the roll: %v", err)
	}
	if n := s.sync.durable.Load(); n != 0 {
		t.Errorf("durable up to %d", n)
	}
}

// failOnce fails its first sync when gate is closed, and no other, as a descriptor does.
type failOnce struct {
	vfs.File
	syncs       atomic.Int32
	begun, gate chan struct{}
}

func (f *failOnce) Sync() error {
	if f.syncs.Add(1) > 1 {
		return nil
	}
	close(f.begun)
	<-f.gate
	return syscall.EIO
}

// TestSyncBehind: what nobody wants to be durable is synced nevertheless, so that a full file has little left to sync.
func TestSyncBehind(t *testing.T) {
	s := open(t, vfs.Memory(), Options{CacheBytes: -1})
	var b Batch
	b.Put([]byte("key"), make([]byte, 1<<20))
	for range behindBytes >> 20 {
		if err := s.Apply(&b, false); err != nil {
			t.Fatal(err)
		}
	}
	for s.sync.durable.Load() == 0 {
		runtime.Gosched()
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
