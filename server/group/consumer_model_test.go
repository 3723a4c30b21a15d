package group

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/coordinator"
)

// This model check plays clients of the consumer protocol (KIP-848) that join, beat, change what they subscribe to, commit, leave for good or for
// a while, are killed, and lose answers; topics that come, grow and go; coordinators that crash and come back from the log, of which they may lose
// what nobody was told of; writes that fail and answers that wait for their write: in an order that a seed decides. It looks for
//   - a partition that two members have at the same time, as they say themselves,
//   - an epoch that goes back, a member told to have what it did not ask for or what there is not,
//   - a member that is put out without a reason, or one that is gone and stays,
//   - a commit that is taken from a member in another epoch, or refused to one in its own; a committed offset that goes back,
//   - a group that does not come to rest once everybody beats, with every partition with one member and as even as its assignor promises,
//   - a log of which any prefix, or what compaction leaves of it, replays to something else than what was there.
//
// A client of the model takes what it is told to have at once. One that waits with that while answers are lost may take what is another's by
// then: the protocol has no cure for it.

const (
	sessionOfModel = 3 * time.Second // of newConsumerFake
	beatOfModel    = time.Second

	consumerModelSteps = 1000
)

// ghost is a process that is gone; what it had is its own until its member is out.
type ghost struct {
	group, id string
	owns      map[topicIDPartition]bool
}

// consumerModel is the world.
type consumerModel struct {
	*consumerFake
	r       *rand.Rand
	clients []*subscriber
	ghosts  []ghost
	epochs  map[string]int32 // that a member was told, by id
	group   map[string]int32 // epoch of a group since the last crash
	acked   map[string]map[topicPartition]int64
	sent    int64 // the last offset that anybody tried to commit
	ends    []int // lengths of the log at the end of each batch
	dumps   map[int]string
	by      map[string]map[int32]string // who made the targets of an epoch, by group: wishes that come later count with the next ones
	topicID uint32
	calm    bool // nothing goes wrong any more
	seen    map[string]int
}

func newConsumerModel(t testing.TB, seed uint64) *consumerModel {
	m := &consumerModel{consumerFake: newConsumerFake(t), r: rand.New(rand.NewPCG(seed, 2)), epochs: map[string]int32{}, group: map[string]int32{},
		acked: map[string]map[topicPartition]int64{}, dumps: map[int]string{}, seen: map[string]int{},
		by: map[string]map[int32]string{}}
	m.topics = map[string]int{}
	m.cfg.Consumer.MaxSize = 3 + m.r.IntN(6)
	m.cfg.OffsetRetention = 1000 * time.Hour
	if m.r.IntN(2) == 0 {
		slices.Reverse(m.cfg.Consumer.Assignors)
	}
	m.wrote = func() {
		m.ends = append(m.ends, len(m.log))
		m.dumps[len(m.log)] = m.dump()
		m.noteAssignors()
	}
	for _, name := range []string{"a", "b", "c"} {
		m.changeTopic(name)
	}
	for i := range 3 + m.r.IntN(6) {
		c := &subscriber{m: m, group: []string{"g0", "g0", "g1"}[m.r.IntN(3)], down: i > 3, always: m.r.IntN(3) == 0}
		if m.r.IntN(3) == 0 {
			c.instance = fmt.Sprint("i", m.r.IntN(3))
		}
		c.begin()
		m.clients = append(m.clients, c)
	}
	return m
}

// noteAssignors notes who made the targets of epochs that are new.
func (m *consumerModel) noteAssignors() {
	for id, g := range m.s.groups {
		if g.consumer == nil || m.by[id][g.consumer.targetEpoch] != "" {
			continue
		}
		if m.by[id] == nil {
			m.by[id] = map[int32]string{}
		}
		m.by[id][g.consumer.targetEpoch] = m.s.assignor(g.consumer.memberStates(nil, nil)).name
	}
}

// changeTopic makes, grows or deletes a topic.
func (m *consumerModel) changeTopic(name string) {
	m.letGo() // a removal of offsets and the answers of commits before it
	was, there := m.world[name]
	switch {
	case !there:
		m.topicID++
		m.topic(name, wire.UUID{byte(m.r.Uint32()), byte(m.topicID), byte(m.topicID >> 8)}, int32(1+m.r.IntN(4)))
	case was.partitions < 7 && m.r.IntN(3) > 0:
		m.topic(name, was.id, was.partitions+1+int32(m.r.IntN(2)))
		m.seen["grown"]++
	default:
		m.topic(name, was.id, 0)
		m.run(m.s.TopicDeleted(name, m.now))
		m.pass(0)
		for _, acked := range m.acked {
			maps.DeleteFunc(acked, func(k topicPartition, _ int64) bool { return k.topic.Value() == name })
		}
		m.seen["topic deleted"]++
	}
}

func (m *consumerModel) step() {
	switch n := m.r.IntN(1000); {
	case n < 4:
		m.crash()
	case n < 8:
		m.fail = []error{errDisk, coordinator.ErrTooLarge, coordinator.ErrNotAvailable}[m.r.IntN(3)]
	case n < 60:
		m.late = true
	case n < 160:
		m.letGo()
	case n < 280:
		m.wait(time.Duration(m.r.IntN(400)) * time.Millisecond)
	case n < 284:
		m.wait(time.Duration(m.r.IntN(8000)) * time.Millisecond)
	case n < 292:
		m.changeTopic([]string{"a", "b", "c"}[m.r.IntN(3)])
	case n < 296:
		m.remove([]string{"g0", "g1"}[m.r.IntN(2)])
	case n < 298:
		m.compare()
	case n < 300:
		m.rest()
	default:
		m.clients[m.r.IntN(len(m.clients))].act()
	}
	m.check()
}

// letGo gives the answers that waited.
func (m *consumerModel) letGo() {
	m.late = false
	m.told()
}

// wait lets time pass; answers do not wait for long.
func (m *consumerModel) wait(d time.Duration) {
	m.letGo()
	m.pass(d)
}

// crash loses everything that is not in the log, and of that a part of what nobody was told of.
func (m *consumerModel) crash() {
	kept := slices.DeleteFunc(slices.Clone(m.ends), func(end int) bool { return end < m.durable })
	if len(kept) > 0 {
		cut := kept[m.r.IntN(len(kept))]
		if cut < len(m.log) {
			m.seen["tail lost"]++
		}
		m.log = m.log[:cut]
		m.ends = slices.DeleteFunc(m.ends, func(end int) bool { return end > cut })
	}
	m.late, m.fail = false, nil
	clear(m.group)
	m.restart()
	for id, epochs := range m.by {
		maps.DeleteFunc(epochs, func(epoch int32, _ string) bool { return epoch > m.consumers(id).targetEpoch })
	}
	for _, c := range m.clients {
		if c.beating != nil && c.beating.p == nil {
			c.lose()
		}
	}
	m.seen["crash"]++
}

// remove deletes a group, if it is empty.
func (m *consumerModel) remove(group string) {
	m.letGo()
	m.fail = nil
	code := m.deleteGroup(group)
	m.seen["delete "+code.String()]++
	if code == api.ErrNone {
		delete(m.acked, group)
		delete(m.group, group)
		delete(m.by, group)
	}
}

// consumers is a group's state; an empty one if it is not there.
func (m *consumerModel) consumers(group string) *consumerGroup {
	if g := m.s.groups[group]; g != nil && g.consumer != nil {
		return g.consumer
	}
	return newConsumer(nil)
}

// check is run after each step.
func (m *consumerModel) check() {
	m.ghosts = slices.DeleteFunc(m.ghosts, func(g ghost) bool { return m.consumers(g.group).members[g.id] == nil })
	for _, group := range []string{"g0", "g1"} {
		c := m.consumers(group)
		if c.epoch < m.group[group] {
			m.t.Fatalf("epoch %d of %s after %d", c.epoch, group, m.group[group])
		}
		m.group[group] = c.epoch
		if c.targetEpoch > c.epoch {
			m.t.Fatalf("targets of epoch %d in epoch %d", c.targetEpoch, c.epoch)
		}
		owners := map[topicIDPartition]string{}
		take := func(id string, owns map[topicIDPartition]bool) {
			for k := range owns {
				if other := owners[k]; other != "" {
					m.t.Fatalf("%s: %v is owned by %s and by %s", group, k, other, id)
				}
				owners[k] = id
			}
		}
		for _, s := range m.clients {
			x := c.members[s.id]
			if s.group != group || s.down || x == nil {
				continue
			}
			take(s.id, s.owns)
			if len(x.revoking) == 0 {
				s.asked = time.Time{}
			} else if s.asked.IsZero() {
				s.asked = m.now
			}
		}
		for _, g := range m.ghosts {
			if g.group == group {
				take(g.id, g.owns)
			}
		}
		for k, at := range m.acked[group] {
			if got, code := m.fetch(group, k.topic.Value(), k.partition, false); got < at || got > m.sent || code != api.ErrNone {
				m.t.Fatalf("%s %v: fetched %d (%v), %d was acknowledged, %d the last", group, k, got, code, at, m.sent)
			}
		}
		c.consistent(m.t)
	}
}

// consistent looks whether what is derived from the members agrees with them, and no partition is with two.
func (c *consumerGroup) consistent(t testing.TB) {
	n := 0
	for _, m := range c.members {
		m.assigned.plus(m.revoking).each(func(k topicIDPartition) {
			if n++; c.owners[k] != m {
				t.Fatalf("%v is with %s, its owner is %v", k, m.id, c.owners[k])
			}
		})
		if m.isStatic() && c.instances[m.instance.String] != m {
			t.Fatalf("instance %s is not %s", m.instance.String, m.id)
		}
	}
	if n != len(c.owners) {
		t.Fatalf("%d partitions with members, %d with owners", n, len(c.owners))
	}
}

// dump is all that is durable, in text.
func (m *consumerModel) dump() string { return inText(m.s.durable()) }

func inText(all map[string]string) string {
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "%s: %s\n", id, all[id])
	}
	return b.String()
}

// durable is a consumer group in text.
func (c *consumerGroup) durable() string {
	var b strings.Builder
	parts := func(p partitions) string {
		var b strings.Builder
		for _, topic := range p.sorted() {
			fmt.Fprintf(&b, "%x%v", topic[:3], p[topic])
		}
		return b.String()
	}
	fmt.Fprint(&b, c.epoch, "/", c.targetEpoch, " ", c.state(), " topics")
	for _, name := range slices.Sorted(maps.Keys(c.topics)) {
		t := c.topics[name]
		fmt.Fprintf(&b, " %s %x/%d", name, t.id[:3], t.partitions)
	}
	for _, id := range c.ids() {
		m := c.members[id]
		fmt.Fprint(&b, "; ", id, m.instance, m.assignor, m.rebalance, m.clientID.Value(), m.topics, m.epoch, m.previous, m.target, " has ", parts(m.assigned), " gives up ",
			parts(m.revoking), " waits for ", parts(m.pending))
	}
	for _, id := range slices.Sorted(maps.Keys(c.targets)) {
		fmt.Fprint(&b, "; ", id, " is to have ", parts(c.targets[id]))
	}
	return b.String()
}

// twin is a shard that comes back from another log, and how to hold it against what was there.
func (m *consumerModel) twin() (twin *fake, check func(what, want string)) {
	t := *m.fake
	t.wrote, t.log = nil, nil
	t.open()
	return &t, func(what, want string) {
		if got := inText(t.s.durable()); got != want {
			m.t.Fatalf("%s\nwas\n%s\ncomes back as\n%s", what, want, got)
		}
		for _, g := range t.s.groups {
			if g.consumer != nil {
				g.consumer.consistent(m.t)
			}
		}
	}
}

// prefixes replays the log batch by batch, and looks each time whether that is what was there when it was that long.
func (m *consumerModel) prefixes() {
	twin, check := m.twin()
	from := 0
	for _, end := range m.ends {
		for _, r := range m.log[from:end] {
			twin.replay(r)
		}
		from = end
		check(fmt.Sprint("the first ", end, " records"), m.dumps[end])
	}
}

// compare replays what compaction leaves of the log, and looks whether that is what is there now.
func (m *consumerModel) compare() {
	m.seen["compared"]++
	last := map[string]int{}
	for i, r := range m.log {
		last[string(r.entry.Key)] = i
	}
	twin, check := m.twin()
	for _, tombstones := range []bool{true, false} {
		twin.log = nil
		for i, r := range m.log {
			if last[string(r.entry.Key)] == i && (tombstones || r.entry.Value != nil) {
				twin.log = append(twin.log, r)
			}
		}
		twin.open()
		check(fmt.Sprintf("compacted, tombstones %v", tombstones), m.dump())
	}
}

// rest has everybody beat, and nothing else: the groups come to rest.
func (m *consumerModel) rest() {
	m.letGo()
	m.fail = nil
	const rounds = 20
	for round := range rounds {
		m.calm = round > rounds/2
		m.pass(beatOfModel)
		for _, c := range m.clients {
			c.follow()
		}
		m.check()
	}
	m.calm = false
	m.seen["rest"]++
	for _, group := range []string{"g0", "g1"} {
		m.atRest(group)
	}
}

// atRest checks a group in which everybody has beaten for long.
func (m *consumerModel) atRest(group string) {
	c := m.consumers(group)
	live := map[string]*subscriber{}
	for _, s := range m.clients {
		if s.group == group && !s.down {
			live[s.id] = s
		}
	}
	if !slices.Equal(c.ids(), slices.Sorted(maps.Keys(live))) {
		m.t.Fatalf("%s has the members %v, there are %v", group, c.ids(), slices.Sorted(maps.Keys(live)))
	}
	if len(live) == 0 {
		return
	}
	d := m.s.ConsumerDescribe(group)
	if d.GroupState != "stable" || d.GroupEpoch != d.AssignmentEpoch {
		m.t.Fatalf("%s is at rest and yet %+v\n%s", group, d, m.dump())
	}
	owners := map[topicIDPartition]*subscriber{}
	for _, x := range d.Members {
		s, has := live[x.MemberId], map[topicIDPartition]bool{}
		for _, t := range x.Assignment.TopicPartitions {
			for _, p := range t.Partitions {
				has[topicIDPartition{t.TopicId, p}] = true
				owners[topicIDPartition{t.TopicId, p}] = s
			}
		}
		if !maps.Equal(has, s.owns) || x.MemberEpoch != s.epoch || x.MemberEpoch != d.GroupEpoch {
			m.t.Fatalf("%s has %v in epoch %d; described as %+v in epoch %d", s.id, s.owns, s.epoch, x, d.GroupEpoch)
		}
	}
	for name, topic := range m.world {
		m.fair(m.by[group][d.AssignmentEpoch], name, topic, live, owners)
	}
}

// fair looks whether a topic is given out, and as evenly as the assignor promises.
func (m *consumerModel) fair(assignor, name string, topic topicMetadata, live map[string]*subscriber, owners map[topicIDPartition]*subscriber) {
	load := func(s *subscriber) (n int) {
		for k := range s.owns {
			if assignor == "uniform" || k.topic == topic.id {
				n++
			}
		}
		return n
	}
	for p := range topic.partitions {
		owner := owners[topicIDPartition{topic.id, p}]
		for _, s := range live {
			if !slices.Contains(s.topics, name) {
				continue
			}
			switch {
			case owner == nil:
				m.t.Fatalf("nobody has %s-%d, and %s subscribes to it", name, p, s.id)
			case load(owner) > load(s)+1:
				m.t.Fatalf("%s: %s has %d, with %s-%d; %s has %d", assignor, owner.id, load(owner), name, p, s.id, load(s))
			}
		}
	}
	m.seen["fair "+assignor]++
}

// drain has everybody leave: nothing stays behind.
func (m *consumerModel) drain() {
	m.rest()
	for _, c := range m.clients {
		if !c.down {
			c.leave(leaveEpoch)
		}
	}
	m.check()
	m.compare()
	for _, group := range []string{"g0", "g1"} {
		c := m.consumers(group)
		if len(c.members)+len(c.instances)+len(c.owners)+len(c.targets) > 0 {
			m.t.Fatalf("%s: left behind: %+v", group, c)
		}
		m.remove(group)
	}
	want(m.t, "groups", len(m.s.groups), 0)
	want(m.t, "alarms", len(m.alarms), 0)
	m.compare()
	m.prefixes()
}

func TestConsumerModel(t *testing.T) {
	seen := map[string]int{}
	for seed := *firstSeed; seed < *firstSeed+*modelSeeds; seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			m := newConsumerModel(t, seed)
			for range consumerModelSteps {
				m.step()
			}
			m.drain()
			for k, n := range m.seen {
				seen[k] += n
			}
		})
	}
	t.Log(seen)
	if t.Failed() {
		return
	}
	for _, what := range []string{"crash", "tail lost", "killed", "lost", "compared", "rest", "grown", "topic deleted", "left", "left for a while", "replaced",
		"gave up", "fair uniform", "fair range", "delete NONE", "delete NON_EMPTY_GROUP", "beat NONE", "beat UNKNOWN_MEMBER_ID", "beat FENCED_MEMBER_EPOCH",
		"beat UNRELEASED_INSTANCE_ID", "beat GROUP_MAX_SIZE_REACHED", "beat COORDINATOR_NOT_AVAILABLE", "previous epoch", "commit NONE", "commit STALE_MEMBER_EPOCH",
		"commit UNKNOWN_MEMBER_ID", "timed out", "not given up in time", "stale beat"} {
		if seen[what] == 0 {
			t.Errorf("the model never reached %q", what)
		}
	}
}
