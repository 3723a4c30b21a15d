package interop

import (
	"context"
	"fmt"
	"math/rand"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// franzGroup runs consumers of one group until each record of topic was seen, and returns how often.
type franzGroup struct {
	t     *testing.T
	addr  string
	group string
	topic string

	mu   sync.Mutex // guards seen
	seen map[string]int
	more chan struct{}
}

// join adds a consumer that commits what it has read; leave ends it.
func (g *franzGroup) join(opts ...kgo.Opt) (leave func()) {
	g.t.Helper()
	c := newClient(g.t, g.addr, append([]kgo.Opt{kgo.ConsumerGroup(g.group), kgo.ConsumeTopics(g.topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100 * time.Millisecond), kgo.BlockRebalanceOnPoll(),
		kgo.HeartbeatInterval(100 * time.Millisecond), kgo.SessionTimeout(10 * time.Second)}, opts...)...)
	ctx, cancel := context.WithCancel(g.t.Context())
	var over sync.WaitGroup
	over.Go(func() {
		for ctx.Err() == nil {
			poll, done := context.WithTimeout(ctx, 100*time.Millisecond)
			fs := c.PollFetches(poll)
			done()
			if fs.IsClientClosed() || ctx.Err() != nil {
				return
			}
			g.mu.Lock()
			fs.EachRecord(func(r *kgo.Record) { g.seen[string(r.Value)]++ })
			g.mu.Unlock()
			_ = c.CommitUncommittedOffsets(ctx) // what a rebalance or a restart refuses is committed after the next poll, or read again by another member
			c.AllowRebalance()
			select {
			case g.more <- struct{}{}:
			default:
			}
		}
	})
	return func() {
		cancel()
		over.Wait()
		c.AllowRebalance()
		c.Close()
	}
}

// wait waits until n different records were seen and the group's committed offsets stand at total, the records of the topic.
// What is read is committed a moment later: a member that is told to leave between the two leaves its records to be read again.
func (g *franzGroup) wait(n, total int) {
	g.t.Helper()
	ctx := newContext(g.t)
	admin := kadm.NewClient(newClient(g.t, g.addr))
	for {
		g.mu.Lock()
		have := len(g.seen)
		g.mu.Unlock()
		if have >= n {
			var committed int
			offsets, err := admin.FetchOffsets(ctx, g.group)
			if err != nil {
				g.t.Fatal(err)
			}
			offsets.Each(func(o kadm.OffsetResponse) { committed += int(max(o.At, 0)) })
			if committed == total {
				return
			}
			have = committed
		}
		select {
		case <-g.more:
		case <-ctx.Done():
			g.t.Fatalf("%d of %d records", have, n)
		}
	}
}

// TestFranzGroups: members come and go, eager and cooperative, static ones too; the broker is killed under them; a group that comes back goes
// on where it was; and the admin client lists, describes, moves and deletes it.
func TestFranzGroups(t *testing.T) {
	t.Parallel()
	addr, process := startBroker(t, "--set", "group.initial.rebalance.delay.ms=100")
	const client, partitions, each = "franz-go", 6, 300
	write := func(t *testing.T, topic string, from int) {
		t.Helper()
		c := newClient(t, addr, kgo.DefaultProduceTopic(topic))
		var rs []*kgo.Record
		for i := range each {
			rs = append(rs, kgo.StringRecord(fmt.Sprint(from+i)))
		}
		if err := c.ProduceSync(newContext(t), rs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for name, balancer := range map[string]kgo.GroupBalancer{"eager": kgo.RangeBalancer(), "cooperative": kgo.CooperativeStickyBalancer()} {
		cell(t, client, "group "+name, func(t *testing.T) {
			topic := newTopic(t, addr, partitions)
			g := &franzGroup{t: t, addr: addr, group: fmt.Sprintf("franz-%s-%d", name, rand.Uint32()), topic: topic, seen: map[string]int{}, more: make(chan struct{}, 1)}
			write(t, topic, 0)
			first := g.join(kgo.Balancers(balancer))
			g.wait(each, each)
			second := g.join(kgo.Balancers(balancer), kgo.InstanceID("static"))
			third := g.join(kgo.Balancers(balancer))
			write(t, topic, each)
			g.wait(2*each, 2*each)
			first()
			if process != nil {
				if err := process.Restart(true); err != nil {
					t.Fatal(err)
				}
			}
			write(t, topic, 2*each)
			g.wait(3*each, 3*each)
			second()
			third()
			// Everything was read and committed: one more member has nothing to read but what is new.
			last := &franzGroup{t: t, addr: addr, group: g.group, topic: topic, seen: map[string]int{}, more: make(chan struct{}, 1)}
			leave := last.join(kgo.Balancers(balancer))
			write(t, topic, 3*each)
			last.wait(each, 4*each)
			leave()
			if old := len(last.seen) - each; old > 0 {
				t.Errorf("%d records were read again after their commit", old)
			}
		})
	}
	cell(t, client, "group admin", func(t *testing.T) { franzGroupAdmin(t, addr) })
}

func franzGroupAdmin(t *testing.T, addr string) {
	ctx := newContext(t)
	topic, group := newTopic(t, addr, 2), fmt.Sprintf("admin/%d\x00ä", rand.Uint32())
	a := kadm.NewClient(newClient(t, addr))
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: topic, Partition: 1, At: 7, LeaderEpoch: 0, Metadata: "m"})
	if err := a.CommitAllOffsets(ctx, group, offsets); err != nil {
		t.Fatal(err)
	}
	got, err := a.FetchOffsets(ctx, group)
	if err != nil {
		t.Fatal(err)
	}
	if o, ok := got.Lookup(topic, 1); !ok || o.At != 7 || o.Metadata != "m" || o.LeaderEpoch != 0 {
		t.Errorf("committed %+v", got)
	}
	listed, err := a.ListGroups(ctx, "empty")
	if err != nil || listed[group].State != "Empty" {
		t.Errorf("listed %+v, %v", listed[group], err)
	}
	described, err := a.DescribeGroups(ctx, group)
	if err != nil || described[group].State != "Empty" || described[group].Err != nil {
		t.Errorf("described %+v, %v", described[group], err)
	}
	deleted, err := a.DeleteGroup(ctx, group)
	if err != nil || deleted.Err != nil {
		t.Errorf("deleted %+v, %v", deleted, err)
	}
	if got, err := a.FetchOffsets(ctx, group); err != nil || len(got) != 0 {
		t.Errorf("after the deletion: %+v, %v", got, err)
	}
}
