//go:build interop

package interop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// place is one record.
type place struct {
	partition int32
	offset    int64
}

// churn is the history of a group whose members come and go.
type churn struct {
	t           *testing.T
	addr, topic string

	mu      sync.Mutex      // guards what follows
	seen    map[place]int   // how often
	excused map[place]bool  // its commit failed: it may be seen again
	ends    map[int32]int64 // the furthest commit that was acknowledged, as an offset
	back    []string        // reads from before that
	failed  int
}

// member reads and commits until the function that it returns ends it in good order.
func (h *churn) member(opts ...kgo.Opt) (leave func()) {
	c := newClient(h.t, h.addr, append([]kgo.Opt{kgo.ConsumerGroup("churn"), kgo.ConsumeTopics(h.topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(50 * time.Millisecond), kgo.BlockRebalanceOnPoll(),
		kgo.Balancers(kgo.CooperativeStickyBalancer()), kgo.HeartbeatInterval(100 * time.Millisecond), kgo.SessionTimeout(30 * time.Second)}, opts...)...)
	ctx, cancel := context.WithCancel(h.t.Context())
	var over sync.WaitGroup
	over.Go(func() {
		for ctx.Err() == nil {
			fs := c.PollFetches(ctx)
			if fs.IsClientClosed() || errors.Is(fs.Err0(), context.Canceled) {
				break
			}
			h.read(fs)
			h.committed(fs, c.CommitUncommittedOffsets(h.t.Context()))
			c.AllowRebalance()
		}
		c.AllowRebalance()
		c.Close()
	})
	return func() {
		cancel()
		over.Wait()
	}
}

func (h *churn) read(fs kgo.Fetches) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fs.EachRecord(func(r *kgo.Record) {
		h.seen[place{r.Partition, r.Offset}]++
		if r.Offset < h.ends[r.Partition] {
			h.back = append(h.back, fmt.Sprintf("%d/%d, committed is %d", r.Partition, r.Offset, h.ends[r.Partition]))
		}
	})
}

func (h *churn) committed(fs kgo.Fetches, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.failed++
	}
	fs.EachRecord(func(r *kgo.Record) {
		if err != nil {
			h.excused[place{r.Partition, r.Offset}] = true
		} else {
			h.ends[r.Partition] = max(h.ends[r.Partition], r.Offset+1)
		}
	})
}

// TestGroupChurn: twenty members of a cooperative group come and go under load: nothing is read twice but what a member could not commit,
// nothing is left out, nobody is given what lies before an acknowledged commit, and no committed offset goes back.
func TestGroupChurn(t *testing.T) {
	const partitions, members, rounds = 20, 20, 12
	addr, _ := startBroker(t, "--set", "group.initial.rebalance.delay.ms=0")
	adm := kadm.NewClient(newClient(t, addr))
	h := &churn{t: t, addr: addr, topic: newTopic(t, addr, partitions), seen: map[place]int{}, excused: map[place]bool{}, ends: map[int32]int64{}}
	producing, stop := context.WithCancel(t.Context())
	var over sync.WaitGroup
	var produced atomic.Int64
	writer := newClient(t, addr, kgo.DefaultProduceTopic(h.topic), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	over.Go(func() {
		for producing.Err() == nil {
			some := make([]*kgo.Record, 50)
			for i := range some {
				some[i] = kgo.StringRecord("x")
			}
			if err := writer.ProduceSync(t.Context(), some...).FirstErr(); err != nil {
				t.Error(err)
				return
			}
			produced.Add(int64(len(some)))
		}
	})
	over.Go(func() { h.watch(producing, adm, partitions) })
	rng := rand.New(rand.NewPCG(1, 2))
	var leave []func()
	for range members {
		leave = append(leave, h.member())
	}
	reached(t, func() error { return groupIs(t, adm, "Stable", members) })
	for range rounds {
		i := rng.IntN(len(leave))
		leave[i]()
		leave[i] = h.member()
		reached(t, func() error { return groupIs(t, adm, "Stable", members) })
	}
	stop()
	over.Wait()
	reached(t, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if want := int(produced.Load()); len(h.seen) != want {
			return fmt.Errorf("%d records were read of %d", len(h.seen), want)
		}
		return nil
	})
	for _, f := range leave {
		f()
	}
	twice := 0
	for at, n := range h.seen {
		if n > 1 && !h.excused[at] {
			twice++
		}
	}
	t.Logf("%d records, %d commits failed, %d records excused", len(h.seen), h.failed, len(h.excused))
	if twice > 0 || len(h.back) > 0 {
		t.Errorf("%d records were read again though they were committed; %d reads from before a commit: %.10q", twice, len(h.back), h.back)
	}
}

// watch wants committed offsets to grow only, until ctx is over.
func (h *churn) watch(ctx context.Context, adm *kadm.Client, partitions int32) {
	last := make([]int64, partitions)
	for ctx.Err() == nil {
		all, err := adm.FetchOffsets(ctx, "churn")
		if err != nil {
			continue // before the first member, and at the end
		}
		all.Each(func(o kadm.OffsetResponse) {
			if o.At < last[o.Partition] {
				h.t.Errorf("the commit of partition %d went from %d to %d", o.Partition, last[o.Partition], o.At)
			}
			last[o.Partition] = o.At
		})
	}
}

// groupIs is nil if the group is in that state with so many members.
func groupIs(t *testing.T, adm *kadm.Client, state string, members int) error {
	d, err := adm.DescribeGroups(newContext(t), "churn")
	if err != nil {
		return err
	}
	if g := d["churn"]; g.State != state || len(g.Members) != members {
		return fmt.Errorf("the group is %s with %d members, want %s with %d", g.State, len(g.Members), state, members)
	}
	return nil
}

// reached waits until check has no complaint.
func reached(t *testing.T, check func() error) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// cord cuts connections as a killed process does: at once, and none is made again.
type cord struct {
	mu    sync.Mutex // guards what follows
	cut   bool
	conns []net.Conn
}

func (c *cord) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		conn.Close()
		return nil, errors.New("dead")
	}
	c.conns = append(c.conns, conn)
	return conn, nil
}

func (c *cord) pull() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	for _, conn := range c.conns {
		_ = conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	}
}

// TestFiftyKilled: fifty consumers that die at once, while they are at rest or in the middle of a rebalance, leave their group empty, and it can
// be deleted (regression 48).
func TestFiftyKilled(t *testing.T) {
	const members = 50
	addr, _ := startBroker(t, "--set", "group.initial.rebalance.delay.ms=0", "--set", "group.min.session.timeout.ms=1000")
	adm := kadm.NewClient(newClient(t, addr))
	for _, rebalancing := range []bool{false, true} {
		h := &churn{t: t, addr: addr, topic: newTopic(t, addr, members), seen: map[place]int{}, excused: map[place]bool{}, ends: map[int32]int64{}}
		var c cord
		opts := []kgo.Opt{kgo.Dialer(c.dial), kgo.SessionTimeout(2 * time.Second), kgo.RebalanceTimeout(3 * time.Second)}
		leave := make([]func(), members)
		for i := range leave {
			leave[i] = h.member(opts...)
		}
		reached(t, func() error { return groupIs(t, adm, "Stable", members) })
		if rebalancing {
			h.member(opts...) // killed, too, while the others are told to join again
		}
		c.pull()
		reached(t, func() error { return groupIs(t, adm, "Empty", 0) })
		d, err := adm.DeleteGroup(newContext(t), "churn")
		if err != nil || d.Err != nil {
			t.Errorf("rebalancing %v: deletion: %v, %v", rebalancing, err, d.Err)
		}
	}
}
