package group

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unique"

	"kaas/codec/api"
	"kaas/codec/wire"
)

type beatAnswer = answer[api.ConsumerGroupHeartbeatResponse, *api.ConsumerGroupHeartbeatResponse]

// subscriber is a client of the consumer model: one process after another.
type subscriber struct {
	m               *consumerModel
	group, instance string
	always          bool // says with every heartbeat what it has; the others do when that changed, as Apache's client
	assignor        string
	topics          []string
	rebalance       time.Duration

	life     int
	down     bool
	id       string
	epoch    int32
	owns     map[topicIDPartition]bool
	giving   map[topicIDPartition]bool // of those: to be given up
	full     bool                      // the next heartbeat says everything
	saidOwns map[topicIDPartition]bool // in the last heartbeat that said it

	beating *beatAnswer
	sentAt  time.Time
	toldAt  time.Time // when the coordinator answered
	lost    bool      // an answer was lost since the last one that came
	goodAt  time.Time // when the last heartbeat was sent that was taken
	asked   time.Time // since when the coordinator waits for partitions to be given up
}

// begin is a new process.
func (c *subscriber) begin() {
	c.life++
	c.id, c.beating, c.lost = "", nil, false
	c.rejoin()
	c.topics = c.someTopics()
	c.rebalance = time.Duration(2+c.m.r.IntN(8)) * time.Second
	c.assignor = []string{"", "uniform", "range"}[c.m.r.IntN(3)]
}

// rejoin is a member that was put out: it has nothing any more.
func (c *subscriber) rejoin() {
	c.epoch, c.full = joinEpoch, true
	c.owns, c.giving, c.saidOwns = map[topicIDPartition]bool{}, nil, nil
	c.asked = time.Time{}
}

func (c *subscriber) someTopics() (names []string) {
	for len(names) == 0 {
		for _, name := range []string{"a", "b", "c", "nowhere"} {
			if c.m.r.IntN(3) > 0 {
				names = append(names, name)
			}
		}
	}
	return names
}

// act moves the client on.
func (c *subscriber) act() {
	m := c.m
	switch {
	case c.down:
		if m.r.IntN(20) == 0 {
			c.down = false
			c.begin()
		}
	case m.r.IntN(200) == 0:
		c.kill()
		m.seen["killed"]++
	case c.beating != nil && c.beating.p == nil:
		if m.r.IntN(20) == 0 {
			c.lose()
		}
	case c.beating != nil:
		if m.r.IntN(25) == 0 {
			c.lose()
		} else {
			c.heard()
		}
	case c.giving != nil && m.r.IntN(3) > 0:
		c.giveUp()
	default:
		c.work()
	}
}

// work is what a member does that waits for nothing.
func (c *subscriber) work() {
	joined := c.epoch != joinEpoch
	switch n := c.m.r.IntN(200); {
	case n < 2 && joined:
		c.leave(leaveEpoch)
	case n < 6 && joined && c.instance != "":
		c.leave(leftForNowEpoch)
	case n < 10:
		c.topics, c.full = c.someTopics(), true
		c.beat()
	case n < 14 && joined:
		c.probe()
	case n < 70 && joined && len(c.owns) > 0:
		c.commit()
	default:
		c.beat()
	}
}

// follow is a client for which nothing goes wrong.
func (c *subscriber) follow() {
	if c.down {
		return
	}
	if c.beating != nil && c.beating.p == nil {
		c.lose()
	}
	if c.beating != nil {
		c.heard()
	}
	if c.giving != nil {
		c.giveUp()
	}
	if !c.down {
		c.full = true
		c.beat()
		c.heard()
	}
}

// kill ends the process: nobody tells the coordinator.
func (c *subscriber) kill() {
	if c.id != "" {
		c.m.ghosts = append(c.m.ghosts, ghost{c.group, c.id, c.owns})
	}
	c.stop()
}

func (c *subscriber) stop() {
	c.down = true
	c.life++
	c.id, c.beating = "", nil
	c.rejoin()
}

// lose is an answer that does not come.
func (c *subscriber) lose() {
	c.beating, c.lost, c.full = nil, true, true
	c.m.seen["lost"]++
}

// giveUp is when partitions are given back; the next heartbeat says so.
func (c *subscriber) giveUp() {
	for k := range c.giving {
		delete(c.owns, k)
	}
	c.giving = nil
	c.m.seen["gave up"]++
}

// owned is what a heartbeat says of what the client has.
func (c *subscriber) owned() []api.ConsumerGroupHeartbeatRequestTopicPartitions {
	p := make(partitions)
	for k := range c.owns {
		p.put(k)
	}
	list := []api.ConsumerGroupHeartbeatRequestTopicPartitions{}
	for _, topic := range p.close().sorted() {
		list = append(list, api.ConsumerGroupHeartbeatRequestTopicPartitions{TopicId: topic, Partitions: p[topic]})
	}
	return list
}

// request is a heartbeat with what has to be in every one.
func (c *subscriber) request(epoch int32) *api.ConsumerGroupHeartbeatRequest {
	q := new(api.ConsumerGroupHeartbeatRequest)
	q.Default()
	q.GroupId, q.MemberId, q.MemberEpoch = c.group, c.id, epoch
	if c.instance != "" {
		q.InstanceId = wire.Some(c.instance)
	}
	return q
}

// send has a heartbeat handled.
func (c *subscriber) send(q *api.ConsumerGroupHeartbeatRequest, told func(*api.ConsumerGroupHeartbeatResponse)) *beatAnswer {
	m := c.m
	a := &beatAnswer{t: m.t, told: told}
	q, spoil := over(m.t, q, 0)
	m.run(m.s.ConsumerHeartbeat(q, Client{ID: "c", Host: "/127.0.0.1"}, m.now, a.take))
	spoil()
	return a
}

// beat sends a heartbeat.
func (c *subscriber) beat() {
	m := c.m
	q := c.request(c.epoch)
	if c.full {
		q.RebalanceTimeoutMs = int32(c.rebalance.Milliseconds())
		q.SubscribedTopicNames = c.topics
		if c.assignor != "" {
			q.ServerAssignor = wire.Some(c.assignor)
		}
	}
	if c.full || c.always || !maps.Equal(c.owns, c.saidOwns) {
		q.TopicPartitions = c.owned()
		c.saidOwns = maps.Clone(c.owns)
	}
	world, topics, life := m.world, c.topics, c.life
	if m.consumers(c.group).members[c.id] == nil {
		delete(m.epochs, c.id)
	}
	if x := m.consumers(c.group).members[c.id]; x != nil && c.epoch < x.epoch && c.epoch == x.previous && c.epoch != joinEpoch {
		m.seen["previous epoch"]++
	}
	if x := m.consumers(c.group).instances[c.instance]; x != nil && x.epoch == leftForNowEpoch && c.epoch == joinEpoch {
		m.seen["replaced"]++
	}
	c.sentAt = m.now
	c.beating = c.send(q, func(p *api.ConsumerGroupHeartbeatResponse) {
		m.seen["beat "+p.ErrorCode.String()]++
		if p.ErrorCode != api.ErrNone {
			if life == c.life {
				c.toldAt = m.now
			}
			return
		}
		id := p.MemberId.String
		if p.MemberEpoch < m.epochs[id] || p.MemberEpoch < 1 {
			m.t.Fatalf("%s is told epoch %d after %d", id, p.MemberEpoch, m.epochs[id])
		}
		m.epochs[id] = p.MemberEpoch
		want(m.t, "interval", p.HeartbeatIntervalMs, 1000)
		if p.Assignment == nil {
			return
		}
		for _, t := range p.Assignment.TopicPartitions {
			for _, part := range t.Partitions {
				if !slices.ContainsFunc(topics, func(name string) bool { return world[name].id == t.TopicId && part < world[name].partitions }) {
					m.t.Fatalf("%s subscribes to %v of %v and is told to have %v-%d", id, topics, world, t.TopicId, part)
				}
			}
		}
	})
}

// heard takes an answer.
func (c *subscriber) heard() {
	m, p := c.m, c.beating.p
	c.beating = nil
	if m.calm && p.ErrorCode != api.ErrNone {
		m.t.Fatalf("%s of %s is told %v (%s) while nothing goes wrong", c.id, c.group, p.ErrorCode, p.ErrorMessage.String)
	}
	switch p.ErrorCode {
	case api.ErrNone:
		c.took(p)
	case api.ErrUnknownMemberId, api.ErrGroupIdNotFound:
		c.putOut(p.ErrorCode)
		if c.rejoin(); m.r.IntN(2) == 0 {
			c.id = ""
		}
	case api.ErrFencedMemberEpoch:
		if !c.lost && c.epoch != joinEpoch {
			m.t.Fatalf("%s is fenced in epoch %d, and no answer was lost: %s", c.id, c.epoch, p.ErrorMessage.String)
		}
		c.kill() // a new process, or the old one as a new member
		if c.down = m.r.IntN(2) == 0; !c.down {
			c.begin()
		}
	case api.ErrUnreleasedInstanceId, api.ErrFencedInstanceId, api.ErrGroupMaxSizeReached:
		c.kill()
	case api.ErrNotCoordinator, api.ErrCoordinatorNotAvailable, api.ErrUnknownServerError:
		c.full = true
	default:
		m.t.Fatalf("heartbeat: %v %s", p.ErrorCode, p.ErrorMessage.String)
	}
}

// took is an answer without an error.
func (c *subscriber) took(p *api.ConsumerGroupHeartbeatResponse) {
	c.id, c.epoch, c.full, c.lost, c.goodAt = p.MemberId.String, p.MemberEpoch, false, false, c.sentAt
	if p.Assignment == nil {
		return
	}
	told := map[topicIDPartition]bool{}
	for _, t := range p.Assignment.TopicPartitions {
		for _, part := range t.Partitions {
			told[topicIDPartition{t.TopicId, part}] = true
		}
	}
	c.giving = nil
	for k := range c.owns {
		if !told[k] {
			if c.giving == nil {
				c.giving = map[topicIDPartition]bool{}
			}
			c.giving[k] = true
		}
	}
	for k := range told {
		c.owns[k] = true
	}
}

// putOut looks for a reason why the client is no member any more.
func (c *subscriber) putOut(code api.ErrorCode) {
	switch {
	case c.epoch == joinEpoch: // it was none
	case c.toldAt.Sub(c.goodAt) >= sessionOfModel:
		c.m.seen["timed out"]++
	case !c.asked.IsZero() && c.toldAt.Sub(c.asked) >= c.rebalance:
		c.m.seen["not given up in time"]++
	default:
		c.m.t.Fatalf("%s of %s is told %v: its last heartbeat is %v ago, it has been asked to give up partitions for %v", c.id, c.group, code,
			c.toldAt.Sub(c.goodAt), c.toldAt.Sub(c.asked))
	}
}

// leave gives everything up and goes, for good or for a while. Whether that was heard is not waited for.
func (c *subscriber) leave(epoch int32) {
	m := c.m
	c.send(c.request(epoch), func(p *api.ConsumerGroupHeartbeatResponse) {
		switch p.ErrorCode {
		case api.ErrNone:
			want(m.t, "epoch", p.MemberEpoch, epoch)
			if epoch == leaveEpoch {
				m.seen["left"]++
			} else {
				m.seen["left for a while"]++
			}
		case api.ErrUnknownMemberId, api.ErrGroupIdNotFound, api.ErrFencedInstanceId, api.ErrNotCoordinator, api.ErrCoordinatorNotAvailable, api.ErrUnknownServerError:
		default:
			m.t.Fatalf("left: %v %s", p.ErrorCode, p.ErrorMessage.String)
		}
	})
	c.stop()
}

// probe sends a heartbeat in another epoch than the member's: it is fenced, and changes nothing.
func (c *subscriber) probe() {
	m := c.m
	x := m.consumers(c.group).members[c.id]
	epoch := c.epoch + int32(2*m.r.IntN(2)) - 1
	if x == nil || epoch == x.epoch || epoch <= joinEpoch {
		return
	}
	before := len(m.log)
	c.send(c.request(epoch), func(p *api.ConsumerGroupHeartbeatResponse) {
		m.seen["stale beat"]++
		if p.ErrorCode != api.ErrFencedMemberEpoch {
			m.t.Fatalf("a heartbeat in epoch %d of a member in %d is answered %v", epoch, x.epoch, p.ErrorCode)
		}
	})
	want(m.t, "records of a refused heartbeat", len(m.log)-before, 0)
}

// commit commits the next offset of a partition that the client has, now and then in another epoch than its own.
func (c *subscriber) commit() {
	m := c.m
	var names []topicPartition
	for name, t := range m.world {
		for p := range t.partitions {
			if c.owns[topicIDPartition{t.id, p}] {
				names = append(names, topicPartition{unique.Make(name), p})
			}
		}
	}
	if len(names) == 0 {
		return
	}
	slices.SortFunc(names, byTopic)
	k := names[m.r.IntN(len(names))]
	epoch := c.epoch
	if m.r.IntN(10) == 0 {
		epoch += int32(2*m.r.IntN(2)) - 1
	}
	expected := api.ErrNone
	switch x := m.consumers(c.group).members[c.id]; {
	case m.s.groups[c.group] == nil:
		expected = api.ErrIllegalGeneration
	case x == nil:
		expected = api.ErrUnknownMemberId
	case x.epoch != epoch:
		expected = api.ErrStaleMemberEpoch
	}
	m.sent++
	at, group := m.sent, c.group
	failing := m.fail != nil
	m.commit(commitQ(c.group, c.id, epoch, k.topic.Value(), k.partition, at), 9, func(p *api.OffsetCommitResponse) {
		got := code(p)
		m.seen["commit "+got.String()]++
		if got == api.ErrNone && expected == api.ErrNone {
			if m.acked[group] == nil {
				m.acked[group] = map[topicPartition]int64{}
			}
			m.acked[group][k] = max(m.acked[group][k], at)
		}
		if got != expected && !(failing && expected == api.ErrNone) {
			m.t.Fatalf("a commit in epoch %d is answered %v, not %v", epoch, got, expected)
		}
	})
}

// String is for messages of failures.
func (c *subscriber) String() string {
	return strings.TrimSpace(fmt.Sprint(c.group, " ", c.id, c.instance, " ", min(c.epoch, math.MaxInt32)))
}
