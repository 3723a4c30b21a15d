package server

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/brokertest"
)

// BenchmarkGroups measures the group coordinator of a broker in a process of its own, from outside:
//
//	go test -run '^$' -bench BenchmarkGroups -benchtime 1x ./server
//
// Processor time is the broker's; clients run on the same machine.
func BenchmarkGroups(b *testing.B) {
	bin, err := brokertest.Build(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	for _, depth := range []int{1, 16} {
		b.Run(fmt.Sprintf("heartbeats/groups=100/members=10/connections=20/inflight=%d", depth), func(b *testing.B) { benchHeartbeats(b, bin, depth) })
	}
	for _, durability := range []string{"page-cache", "group-commit"} {
		for _, load := range [][2]int{{16, 1}, {64, 1}, {16, 8}} {
			b.Run(fmt.Sprintf("commits/durability=%s/connections=%d/inflight=%d", durability, load[0], load[1]), func(b *testing.B) {
				benchCommits(b, bin, durability, load[0], load[1])
			})
		}
	}
	b.Run("rebalance/members=200", func(b *testing.B) { benchRebalance(b, bin) })
	b.Run("restart/offsets=100000", func(b *testing.B) { benchRestart(b, bin) })
	b.Run("memory/groups=10000/members=10", func(b *testing.B) { benchMemory(b, bin) })
}

// groupBroker starts a broker for a benchmark.
func groupBroker(b *testing.B, bin string, settings ...string) *brokertest.Broker {
	b.Helper()
	args := []string{"--data-dir", b.TempDir(), "--set", "group.initial.rebalance.delay.ms=20", "--set", "group.min.session.timeout.ms=1"}
	for _, s := range settings {
		args = append(args, "--set", s)
	}
	broker, err := brokertest.Start(bin, args...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := broker.Stop(); err != nil {
			b.Error(err)
		}
	})
	c := dialGroup(b, broker)
	c.coordinator()
	return broker
}

// processor is the time that a process has run, user and system; ticks of the kernel are 10 ms.
func processor(b *testing.B, pid int) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+2:]))
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// anonymous is the memory of a process that is not of files, in bytes.
func anonymous(b *testing.B, pid int) int64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kib, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10
		}
	}
	b.Fatal("no RssAnon")
	return 0
}

// groupConn is a connection that may have many requests in flight.
type groupConn struct {
	tb  testing.TB
	c   net.Conn
	r   *bufio.Reader
	out wire.Writer
	in  []byte
}

func dialGroup(tb testing.TB, broker *brokertest.Broker) *groupConn {
	tb.Helper()
	c, err := net.Dial("tcp", broker.Addr)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	return &groupConn{tb: tb, c: c, r: bufio.NewReaderSize(c, 64<<10)}
}

// add puts a request into the buffer.
func (c *groupConn) add(key, version int16, m api.Message) {
	fact, _ := api.Lookup(key)
	f := c.out.BeginFrame()
	h := wire.RequestHeader{Key: key, Version: version, ClientID: wire.Some("bench")}
	h.Encode(&c.out, fact.RequestHeader(version))
	m.Encode(&c.out, version)
	c.out.EndFrame(f)
	if c.out.Err != nil {
		panic(c.out.Err)
	}
}

// flush sends the buffer.
func (c *groupConn) flush() {
	if _, err := c.c.Write(c.out.B); err != nil {
		panic(err)
	}
	c.out.B = c.out.B[:0]
}

// receive reads one answer.
func (c *groupConn) receive(key, version int16, m api.Message) {
	var size [4]byte
	if _, err := io.ReadFull(c.r, size[:]); err != nil {
		panic(err)
	}
	n := int(binary.BigEndian.Uint32(size[:]))
	if n > cap(c.in) {
		c.in = make([]byte, n)
	}
	c.in = c.in[:n]
	if _, err := io.ReadFull(c.r, c.in); err != nil {
		panic(err)
	}
	fact, _ := api.Lookup(key)
	r := wire.NewReader(c.in)
	var h wire.ResponseHeader
	h.Decode(&r, fact.ResponseHeader(version))
	m.Decode(&r, version)
	if r.Err() != nil {
		panic(r.Err())
	}
}

// ask sends a request and reads its answer.
func (c *groupConn) ask(key, version int16, q, p api.Message) {
	c.add(key, version, q)
	c.flush()
	c.receive(key, version, p)
}

// coordinator has the internal topic made.
func (c *groupConn) coordinator() {
	q := api.FindCoordinatorRequest{CoordinatorKeys: []string{"g"}}
	var p api.FindCoordinatorResponse
	c.ask(api.KeyFindCoordinator, 4, &q, &p)
}

// groupMember is one that has joined.
type groupMember struct {
	group, id  string
	generation int32
	metadata   byte
}

// join joins a group, again if it has an id, and syncs; a leader gives every member the same bytes.
func (c *groupConn) join(m groupMember) groupMember {
	q := api.JoinGroupRequest{GroupId: m.group, MemberId: m.id, SessionTimeoutMs: 600_000, RebalanceTimeoutMs: 60_000, ProtocolType: "consumer",
		Protocols: []api.JoinGroupRequestJoinGroupRequestProtocol{{Name: "range", Metadata: bytes.Repeat([]byte{m.metadata}, 40)}}}
	var p api.JoinGroupResponse
	c.ask(api.KeyJoinGroup, 3, &q, &p)
	if p.ErrorCode != api.ErrNone {
		panic(p.ErrorCode)
	}
	m.id, m.generation = strings.Clone(p.MemberId), p.GenerationId
	sync := api.SyncGroupRequest{GroupId: m.group, MemberId: m.id, GenerationId: m.generation}
	if p.Leader == p.MemberId {
		for i := range p.Members {
			a := api.Next(&sync.Assignments)
			a.MemberId, a.Assignment = strings.Clone(p.Members[i].MemberId), make([]byte, 30)
		}
	}
	var s api.SyncGroupResponse
	c.ask(api.KeySyncGroup, 2, &sync, &s)
	switch s.ErrorCode {
	case api.ErrNone:
		return m
	case api.ErrRebalanceInProgress:
		return c.join(m)
	}
	panic(s.ErrorCode)
}

// form makes groups of ten members, ways at a time.
func form(b *testing.B, broker *brokertest.Broker, groups, ways int) []groupMember {
	const size = 10
	all := make([]groupMember, groups*size)
	var wait sync.WaitGroup
	for w := range ways {
		var conns [size]*groupConn
		for i := range conns {
			conns[i] = dialGroup(b, broker)
		}
		wait.Go(func() {
			for g := w; g < groups; g += ways {
				var members sync.WaitGroup
				for i, c := range conns {
					members.Go(func() { all[g*size+i] = c.join(groupMember{group: fmt.Sprint("group-", g)}) })
				}
				members.Wait()
			}
		})
	}
	wait.Wait()
	return all
}

func benchHeartbeats(b *testing.B, bin string, depth int) {
	const perConn, conns = 20_000, 20
	broker := groupBroker(b, bin)
	members := form(b, broker, 100, 20)
	for b.Loop() {
		before := processor(b, broker.PID())
		began := time.Now()
		var wait sync.WaitGroup
		for k := range conns {
			c := dialGroup(b, broker)
			mine := members[k*len(members)/conns : (k+1)*len(members)/conns]
			wait.Go(func() {
				for n := 0; n < perConn; n += depth {
					for i := range depth {
						m := mine[(n+i)%len(mine)]
						c.add(api.KeyHeartbeat, 3, &api.HeartbeatRequest{GroupId: m.group, MemberId: m.id, GenerationId: m.generation})
					}
					c.flush()
					for range depth {
						var p api.HeartbeatResponse
						if c.receive(api.KeyHeartbeat, 3, &p); p.ErrorCode != api.ErrNone {
							panic(p.ErrorCode)
						}
					}
				}
			})
		}
		wait.Wait()
		took, used := time.Since(began), processor(b, broker.PID())-before
		b.ReportMetric(float64(used.Nanoseconds())/1e3/(perConn*conns), "cpu-us/heartbeat")
		b.ReportMetric(perConn*conns/took.Seconds(), "heartbeats/s")
	}
}

func benchCommits(b *testing.B, bin, durability string, conns, depth int) {
	const total = 128_000
	broker := groupBroker(b, bin, "kaas.durability="+durability)
	makeTopic(b, broker, "t", 100)
	for b.Loop() {
		before := processor(b, broker.PID())
		began := time.Now()
		var wait sync.WaitGroup
		for k := range conns {
			c := dialGroup(b, broker)
			wait.Go(func() {
				q := api.OffsetCommitRequest{GroupId: fmt.Sprint("group-", k), GenerationIdOrMemberEpoch: -1, RetentionTimeMs: -1,
					Topics: []api.OffsetCommitRequestOffsetCommitRequestTopic{{Name: "t", Partitions: make([]api.OffsetCommitRequestOffsetCommitRequestPartition, 1)}}}
				for n := 0; n < total/conns; n += depth {
					for i := range depth {
						at := &q.Topics[0].Partitions[0]
						at.PartitionIndex, at.CommittedOffset, at.CommittedLeaderEpoch, at.CommitTimestamp = int32((n+i)%100), int64(n), -1, -1
						c.add(api.KeyOffsetCommit, 8, &q)
					}
					c.flush()
					for range depth {
						var p api.OffsetCommitResponse
						c.receive(api.KeyOffsetCommit, 8, &p)
						if code := p.Topics[0].Partitions[0].ErrorCode; code != api.ErrNone {
							panic(code)
						}
					}
				}
			})
		}
		wait.Wait()
		took, used := time.Since(began), processor(b, broker.PID())-before
		b.ReportMetric(total/took.Seconds(), "commits/s")
		b.ReportMetric(float64(used.Nanoseconds())/1e3/total, "cpu-us/commit")
	}
}

func makeTopic(tb testing.TB, broker *brokertest.Broker, name string, partitions int32) {
	tb.Helper()
	q := api.CreateTopicsRequest{TimeoutMs: 10_000, Topics: []api.CreateTopicsRequestCreatableTopic{{Name: name, NumPartitions: partitions, ReplicationFactor: -1}}}
	var p api.CreateTopicsResponse
	dialGroup(tb, broker).ask(api.KeyCreateTopics, 7, &q, &p)
	if code := p.Topics[0].ErrorCode; code != api.ErrNone {
		tb.Fatal(code)
	}
}

func benchRebalance(b *testing.B, bin string) {
	const size = 200
	broker := groupBroker(b, bin, "group.initial.rebalance.delay.ms=500")
	members := make([]groupMember, size)
	conns := make([]*groupConn, size)
	all := func() time.Duration {
		began := time.Now()
		var wait sync.WaitGroup
		for i, c := range conns {
			wait.Go(func() {
				members[i].metadata++ // a member that changes nothing has no rebalance
				members[i] = c.join(members[i])
			})
		}
		wait.Wait()
		return time.Since(began)
	}
	for i := range conns {
		conns[i], members[i].group = dialGroup(b, broker), "g"
	}
	all()
	for b.Loop() {
		before := processor(b, broker.PID())
		took := all()
		b.ReportMetric(float64(took.Microseconds())/1e3, "ms/rebalance")
		b.ReportMetric(float64((processor(b, broker.PID())-before).Microseconds())/1e3, "cpu-ms/rebalance")
	}
}

func benchRestart(b *testing.B, bin string) {
	const groups, partitions = 100, 1000
	broker := groupBroker(b, bin)
	makeTopic(b, broker, "t", partitions)
	q := api.OffsetCommitRequest{GenerationIdOrMemberEpoch: -1, RetentionTimeMs: -1,
		Topics: []api.OffsetCommitRequestOffsetCommitRequestTopic{{Name: "t", Partitions: make([]api.OffsetCommitRequestOffsetCommitRequestPartition, partitions)}}}
	for i := range partitions {
		at := &q.Topics[0].Partitions[i]
		at.PartitionIndex, at.CommittedOffset, at.CommittedLeaderEpoch, at.CommitTimestamp = int32(i), int64(i), -1, -1
	}
	c := dialGroup(b, broker)
	for g := range groups {
		q.GroupId = fmt.Sprint("group-", g)
		var p api.OffsetCommitResponse
		c.ask(api.KeyOffsetCommit, 8, &q, &p)
		if code := p.Topics[0].Partitions[partitions-1].ErrorCode; code != api.ErrNone {
			b.Fatal(code)
		}
	}
	for b.Loop() {
		began := time.Now()
		if err := broker.Restart(true); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(time.Since(began).Microseconds())/1e3, "ms/port-open")
		c := dialGroup(b, broker)
		refused := 0
		for g := 0; g < groups; {
			q := api.OffsetFetchRequest{Topics: []api.OffsetFetchRequestOffsetFetchRequestTopic{}, Groups: []api.OffsetFetchRequestOffsetFetchRequestGroup{{GroupId: fmt.Sprint("group-", g)}}}
			var p api.OffsetFetchResponse
			c.ask(api.KeyOffsetFetch, 8, &q, &p)
			switch {
			case p.Groups[0].ErrorCode == api.ErrCoordinatorLoadInProgress:
				refused++
			case len(p.Groups[0].Topics) == 1 && len(p.Groups[0].Topics[0].Partitions) == partitions:
				g++
			default:
				b.Fatalf("group %d: %v", g, p.Groups[0].ErrorCode)
			}
		}
		b.ReportMetric(float64(time.Since(began).Microseconds())/1e3, "ms/all-offsets-read")
		b.ReportMetric(float64(refused), "refused")
	}
}

func benchMemory(b *testing.B, bin string) {
	broker := groupBroker(b, bin)
	before := anonymous(b, broker.PID())
	for b.Loop() {
		form(b, broker, 10_000, 100)
		b.ReportMetric(float64(anonymous(b, broker.PID()))/(1<<20), "MiB")
		b.ReportMetric(float64(before)/(1<<20), "MiB-before")
	}
}
