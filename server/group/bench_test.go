package group

import (
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/coordinator"
)

// slots is a fake of the runtime for measuring: alarms in a map, a log of which only the length is kept.
type slots struct {
	s      *Shard
	now    time.Time
	last   coordinator.Timer
	alarms map[coordinator.Timer]func(time.Time) coordinator.Outcome
	end    int64
}

func newSlots() *slots {
	f := &slots{now: time.UnixMilli(1_700_000_000_000), alarms: map[coordinator.Timer]func(time.Time) coordinator.Outcome{}}
	cfg := &Config{MinSessionTimeout: time.Second, MaxSessionTimeout: time.Hour, MaxSize: 1 << 30, MaxMetadata: 4096, OffsetRetention: time.Hour,
		Partitions: func(string) int { return 100 }}
	ids := 0
	f.s = New(cfg, f, func() string { ids++; return fmt.Sprintf("%08x-1234-1234-1234-123456789abc", ids) }, slog.New(slog.DiscardHandler))
	f.s.Loaded(f.now)
	return f
}

func (f *slots) After(_ time.Duration, fn func(time.Time) coordinator.Outcome) coordinator.Timer {
	f.last++
	f.alarms[f.last] = fn
	return f.last
}

func (f *slots) Stop(t coordinator.Timer) { delete(f.alarms, t) }

func (f *slots) run(o coordinator.Outcome) {
	for _, e := range o.Write.Entries {
		if err := f.s.Replay(e, coordinator.Position{Offset: f.end}); err != nil {
			panic(err)
		}
		f.end++
	}
	if o.Done != nil {
		o.Done(nil)
	}
}

// fill makes a stable group of n members and returns their ids; the leader is the first.
func (f *slots) fill(group string, n int) []string {
	metadata := []byte(subscription("orders", "payments"))
	ids, answers := make([]string, 0, n), 0
	for range n {
		q := &api.JoinGroupRequest{GroupId: group, SessionTimeoutMs: 45000, RebalanceTimeoutMs: 300000, ProtocolType: "consumer",
			Protocols: []api.JoinGroupRequestJoinGroupRequestProtocol{{Name: "range", Metadata: metadata}, {Name: "cooperative-sticky", Metadata: metadata}}}
		f.run(f.s.Join(q, Client{ID: "consumer-1", Host: "/127.0.0.1"}, 3, f.now, func(p *api.JoinGroupResponse) {
			ids = append(ids, p.MemberId)
			answers++
		}))
	}
	c := f.s.groups[group].classic
	for c.state == preparingRebalance {
		ring := f.alarms[c.alarm]
		f.Stop(c.alarm)
		f.run(ring(f.now))
	}
	if answers != n {
		panic(fmt.Sprint("BUG: ", answers, " answers"))
	}
	for i := n - 1; i >= 0; i-- {
		q := &api.SyncGroupRequest{GroupId: group, MemberId: ids[i], GenerationId: c.generation}
		if i == 0 {
			for _, id := range ids {
				q.Assignments = append(q.Assignments, api.SyncGroupRequestSyncGroupRequestAssignment{MemberId: id, Assignment: metadata})
			}
		}
		f.run(f.s.Sync(q, 3, f.now, func(*api.SyncGroupResponse) {}))
	}
	if c.state != stable {
		panic("BUG: not stable")
	}
	return ids
}

// A heartbeat allocates nothing.
func TestHeartbeatAllocatesNothing(t *testing.T) {
	f := newSlots()
	q := &api.HeartbeatRequest{GroupId: "g", MemberId: f.fill("g", 10)[3], GenerationId: 1}
	if n := testing.AllocsPerRun(100, func() {
		f.now = f.now.Add(time.Second)
		if code := f.s.Heartbeat(q, f.now); code != api.ErrNone {
			t.Fatal(code)
		}
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

// A commit of one partition costs few allocations; what is kept of it none, once the partition has an offset.
func TestCommitAllocatesLittle(t *testing.T) {
	f := newSlots()
	q := &api.OffsetCommitRequest{GroupId: "g", GenerationIdOrMemberEpoch: -1, RetentionTimeMs: -1,
		Topics: []api.OffsetCommitRequestOffsetCommitRequestTopic{{Name: "t", Partitions: []api.OffsetCommitRequestOffsetCommitRequestPartition{
			{CommittedOffset: 1, CommittedLeaderEpoch: -1, CommitTimestamp: -1, CommittedMetadata: wire.Some("m")}}}}}
	reply := func(p *api.OffsetCommitResponse) {
		if code := p.Topics[0].Partitions[0].ErrorCode; code != api.ErrNone {
			t.Fatal(code)
		}
	}
	var o coordinator.Outcome
	commit := func() { o = f.s.Commit(q, f.now, reply) }
	// The commit with its answer, the answer's partitions, the list of records, their bytes, what waits for them; one more under the race
	// detector.
	if n := testing.AllocsPerRun(100, func() { commit(); o.Done(nil) }); n > 6 {
		t.Errorf("%v allocations to take a commit", n)
	}
	commit()
	if n := testing.AllocsPerRun(100, func() {
		if err := f.s.Replay(o.Write.Entries[0], coordinator.Position{}); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations to apply it", n)
	}
}

func BenchmarkHeartbeat(b *testing.B) {
	for _, groups := range []int{1, 10000} {
		b.Run(fmt.Sprintf("groups=%d/members=10", groups), func(b *testing.B) {
			f := newSlots()
			qs := make([]api.HeartbeatRequest, 0, groups)
			for i := range groups {
				id := fmt.Sprint("group-", i)
				qs = append(qs, api.HeartbeatRequest{GroupId: id, MemberId: f.fill(id, 10)[i%10], GenerationId: 1})
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if f.s.Heartbeat(&qs[i%groups], f.now) != api.ErrNone {
					b.Fatal("error")
				}
			}
		})
	}
}

func BenchmarkCommit(b *testing.B) {
	for _, partitions := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) {
			f := newSlots()
			id := f.fill("group", 1)[0]
			q := commitQ("group", id, 1, "orders", 0, 5)
			for i := 1; i < partitions; i++ {
				p := q.Topics[0].Partitions[0]
				p.PartitionIndex = int32(i)
				q.Topics[0].Partitions = append(q.Topics[0].Partitions, p)
			}
			failed := func(p *api.OffsetCommitResponse) {
				if p.Topics[0].Partitions[0].ErrorCode != api.ErrNone {
					b.Fatal("error")
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				q.Topics[0].Partitions[0].CommittedOffset++
				f.run(f.s.Commit(q, f.now, failed))
			}
		})
	}
}

func BenchmarkFetchOffsets(b *testing.B) {
	f := newSlots()
	for p := range int32(100) {
		f.run(f.s.Commit(commitQ("group", "", -1, "orders", p, 5), f.now, func(*api.OffsetCommitResponse) {}))
	}
	b.Run("partitions=100", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if len(f.s.Fetch(&api.OffsetFetchRequestOffsetFetchRequestGroup{GroupId: "group"}, true).Topics) != 1 {
				b.Fatal("topics")
			}
		}
	})
}

// A whole rebalance: all join, the leader assigns, all sync.
func BenchmarkRebalance(b *testing.B) {
	for _, members := range []int{10, 200, 1000} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				newSlots().fill("group", members)
			}
		})
	}
}

func BenchmarkReplay(b *testing.B) {
	b.Run("offsets=100000", func(b *testing.B) {
		var entries []coordinator.Entry
		for g := range 1000 {
			for p := range int32(100) {
				f := newSlots()
				entries = append(entries, f.s.Commit(commitQ(fmt.Sprint("group-", g), "", -1, "orders", p, 5), f.now, nil).Write.Entries...)
			}
		}
		b.ReportAllocs()
		for b.Loop() {
			f := newSlots()
			f.s.loaded = false
			for i, e := range entries {
				if err := f.s.Replay(e, coordinator.Position{Offset: int64(i)}); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}

// Bar: 10,000 groups of 10 members idle in 200 MiB, the alarms of the real runtime not counted.
func BenchmarkMemory(b *testing.B) {
	b.Run("groups=10000/members=10", func(b *testing.B) {
		var before, after runtime.MemStats
		for b.Loop() {
			runtime.GC()
			runtime.ReadMemStats(&before)
			f := newSlots()
			for g := range 10000 {
				id := fmt.Sprint("group-", g)
				members := f.fill(id, 10)
				for p, m := range members {
					f.run(f.s.Commit(commitQ(id, m, 1, "orders", int32(p), 5), f.now, func(*api.OffsetCommitResponse) {}))
				}
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MiB")
			runtime.KeepAlive(f)
		}
	})
}
