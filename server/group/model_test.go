package group

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/coordinator"
)

// The model check plays clients that join, sync, beat, commit, crash, leave and come back, coordinators that crash or lose their log,
// writes that fail and writes that wait for their batch, in an order that a seed decides, and looks for:
//   - a partition that two members own in one generation,
//   - a generation that goes back (one that nobody synced may come again after a crash),
//   - a committed offset that goes back, or one that was never committed,
//   - a request that is not answered within the timeouts,
//   - a shard that comes back from its log other than it was.

const (
	modelParked = 6 * time.Minute // new members wait five; everything else ends sooner with the timeouts that the clients use
	modelParts  = 6
)

// consumer is a client of the model.
type consumer struct {
	group, instance string
	id              string
	version         int16
	generation      int32
	leads           []string // the members, if this one leads
	joining         *joinAnswer
	syncing         *syncAnswer
	since           time.Time // when the parked request was sent
	owns            []int32
	stable          bool
	down            bool
}

// pendingTxn is a transaction of the model with the offsets that it commits.
type pendingTxn struct {
	p      coordinator.Producer
	offset map[string]map[int32]int64
}

// model is the world.
type model struct {
	*fake
	r         *rand.Rand
	consumers []*consumer
	owner     map[string]string // group/generation/partition → who
	synced    map[string]int32  // highest generation with an assignment
	joined    map[string]int32  // highest generation since the last crash
	acked     map[string]map[int32]int64
	sent      int64 // the last offset that anybody tried to commit: they only grow, in the order of the log
	txns      []pendingTxn
	commits   []sentCommit
	unsure    map[string]bool // groups of which a write may have failed: the log may be behind
	seen      map[string]int  // what happened, to see that the model reaches it
}

func newModel(t testing.TB, seed uint64) *model {
	m := &model{fake: newFake(t), r: rand.New(rand.NewPCG(seed, 1)), owner: map[string]string{}, synced: map[string]int32{},
		joined: map[string]int32{}, acked: map[string]map[int32]int64{}, unsure: map[string]bool{}, seen: map[string]int{}}
	m.topics = map[string]int{"t": modelParts}
	m.cfg.InitialRebalanceDelay = time.Duration(m.r.IntN(2)) * time.Second
	if m.r.IntN(3) == 0 {
		m.cfg.MaxSize = 3
	}
	m.cfg.OffsetRetention = 1000 * time.Hour
	for i := range 3 + m.r.IntN(6) {
		c := &consumer{group: "g" + strconv.Itoa(m.r.IntN(2)), version: []int16{2, 5, 9}[m.r.IntN(3)], down: i > 2}
		if m.r.IntN(3) == 0 && c.version >= 5 {
			c.instance = "i" + strconv.Itoa(m.r.IntN(3)) // sometimes twice: they fence each other
		}
		m.consumers = append(m.consumers, c)
	}
	return m
}

func (c *consumer) name() string {
	if c.instance != "" {
		return c.instance
	}
	return c.id
}

// reset is a client that begins anew.
func (c *consumer) reset() {
	c.id, c.joining, c.syncing, c.owns, c.stable, c.leads, c.generation = "", nil, nil, nil, false, nil, -1
}

func (m *model) step() {
	switch n := m.r.IntN(1000); {
	case n < 3:
		m.crash()
	case n < 6:
		m.giveUp()
	case n < 10:
		m.fail = []error{errDisk, coordinator.ErrTooLarge, coordinator.ErrNotAvailable}[m.r.IntN(3)]
		m.unsure["g0"], m.unsure["g1"] = true, true
	case n < 60:
		m.hold = true
	case n < 160:
		m.letGo()
	case n < 260:
		m.wait(time.Duration(m.r.IntN(3000)) * time.Millisecond)
	case n < 264:
		m.wait(time.Duration(m.r.IntN(60)) * time.Second)
	case n < 280:
		m.transaction()
	case n < 283:
		m.remove()
	case n < 286:
		m.compare()
	case n < 289:
		m.quiet()
	case n < 296:
		m.commitBetween()
	default:
		m.act(m.consumers[m.r.IntN(len(m.consumers))])
	}
	m.check()
}

// letGo lets held batches through.
func (m *model) letGo() {
	m.hold = false
	m.flush()
}

// wait lets time pass; batches do not wait for long.
func (m *model) wait(d time.Duration) {
	m.letGo()
	m.pass(d)
}

// crash loses everything that is not in the log, and everybody's connection.
func (m *model) crash() {
	m.hold = false
	m.seen["crash"]++
	m.restart()
	m.lost()
}

// giveUp is a shard whose log failed: those who wait are told.
func (m *model) giveUp() {
	m.hold = false
	held, closedFirst := m.held, m.r.IntN(2) == 0
	m.held = nil
	if closedFirst {
		m.s.Closed(coordinator.ErrNotOwned)
	}
	for _, o := range held {
		if o.Done != nil {
			o.Done(coordinator.ErrNotOwned)
		}
	}
	if !closedFirst {
		m.s.Closed(coordinator.ErrNotOwned)
	}
	for _, c := range m.consumers {
		if c.joining != nil {
			c.joining.got()
		}
		if c.syncing != nil {
			c.syncing.got()
		}
	}
	want(m.t, "alarms of a closed shard", len(m.alarms), 0)
	m.seen["closed"]++
	m.restart()
	m.lost()
}

// lost makes every client find out that its coordinator is gone: what it waited for never comes.
func (m *model) lost() {
	clear(m.joined)
	m.fail = nil
	for _, c := range m.consumers {
		if c.joining != nil || c.syncing != nil {
			c.joining, c.syncing, c.stable = nil, nil, false
		}
	}
}

// act moves one client on.
func (m *model) act(c *consumer) {
	switch {
	case c.down:
		if m.r.IntN(20) == 0 {
			c.reset()
			c.down = false
		}
	case m.r.IntN(150) == 0: // killed: it may come back as somebody else
		c.down = true
		m.seen["killed"]++
	case c.joining != nil:
		m.joinedBy(c)
	case c.syncing != nil:
		m.syncedBy(c)
	case c.stable:
		m.work(c)
	default:
		m.sendJoin(c)
	}
}

func (m *model) sendJoin(c *consumer) {
	c.owns, c.stable = nil, false
	c.since = m.now
	c.joining = m.join(joiner{group: c.group, id: c.id, instance: c.instance, version: c.version, session: 10 * time.Second,
		rebalance: time.Duration(10+m.r.IntN(50)) * time.Second, metadata: strconv.Itoa(m.r.IntN(3)), told: func(p *api.JoinGroupResponse) {
			m.seen["join "+p.ErrorCode.String()]++
			if p.ErrorCode != api.ErrNone {
				return
			}
			if low := max(m.synced[c.group], m.joined[c.group]); p.GenerationId < low {
				m.t.Fatalf("generation %d of %s after %d", p.GenerationId, c.group, low)
			}
			m.joined[c.group] = p.GenerationId
		}})
}

// joinedBy looks whether a JoinGroup was answered.
func (m *model) joinedBy(c *consumer) {
	p := c.joining.p
	if p == nil {
		if m.r.IntN(100) == 0 { // its connection broke: it asks again
			m.sendJoin(c)
		}
		return
	}
	c.joining = nil
	switch p.ErrorCode {
	case api.ErrNone:
		c.id, c.generation, c.leads = p.MemberId, p.GenerationId, nil
		for _, x := range p.Members {
			c.leads = append(c.leads, x.MemberId)
		}
		if p.SkipAssignment {
			c.leads = nil
			m.seen["skip"]++
		}
		if m.r.IntN(20) == 0 {
			c.owns = []int32{0} // of the generation before, it thinks
			m.commitBy(c)
			c.owns = nil
		}
		if m.r.IntN(12) == 0 {
			m.seen["never syncs"]++
			c.stable = true // and beats
			return
		}
		m.sendSync(c)
	case api.ErrMemberIdRequired:
		c.id = p.MemberId
	case api.ErrUnknownMemberId, api.ErrGroupMaxSizeReached:
		c.reset()
	case api.ErrFencedInstanceId:
		c.down = true
	case api.ErrRebalanceInProgress, api.ErrNotCoordinator, api.ErrCoordinatorNotAvailable, api.ErrUnknownServerError:
	default:
		m.t.Fatalf("join: %v", p.ErrorCode)
	}
}

func (m *model) sendSync(c *consumer) {
	q := &api.SyncGroupRequest{GroupId: c.group, MemberId: c.id, GenerationId: c.generation, ProtocolType: wire.Some("consumer"), ProtocolName: wire.Some("range")}
	version := int16(5)
	if c.version < 5 {
		q.ProtocolType, q.ProtocolName, version = wire.NullString{}, wire.NullString{}, 2
	}
	if c.instance != "" {
		q.GroupInstanceId = wire.Some(c.instance)
	}
	parts := make([][]string, len(c.leads))
	for p := range modelParts {
		if len(c.leads) > 0 {
			i := m.r.IntN(len(c.leads))
			parts[i] = append(parts[i], strconv.Itoa(p))
		}
	}
	for i, id := range c.leads {
		q.Assignments = append(q.Assignments, api.SyncGroupRequestSyncGroupRequestAssignment{MemberId: id, Assignment: []byte(strings.Join(parts[i], ","))})
	}
	if c.generation > 1 && m.r.IntN(20) == 0 { // a message of long ago
		old := *q
		old.GenerationId--
		m.syncAt(&old, version, func(p *api.SyncGroupResponse) {
			m.seen["stale sync"]++
			if p.ErrorCode == api.ErrNone {
				m.t.Fatal("a SyncGroup of an older generation was served")
			}
		})
	}
	c.since = m.now
	c.syncing = m.syncAt(q, version, func(p *api.SyncGroupResponse) {
		if p.ErrorCode == api.ErrNone {
			m.synced[c.group] = max(m.synced[c.group], q.GenerationId)
		}
	})
}

// syncedBy looks whether a SyncGroup was answered.
func (m *model) syncedBy(c *consumer) {
	p := c.syncing.p
	if p == nil {
		if m.r.IntN(100) == 0 {
			m.sendSync(c)
		}
		return
	}
	c.syncing = nil
	m.seen["sync "+p.ErrorCode.String()]++
	switch p.ErrorCode {
	case api.ErrNone:
		c.stable = true
		for part := range strings.SplitSeq(string(p.Assignment), ",") {
			if part == "" {
				continue
			}
			n, err := strconv.Atoi(part)
			if err != nil {
				m.t.Fatalf("assignment %q", p.Assignment)
			}
			key := fmt.Sprintf("%s/%d/%d", c.group, c.generation, n)
			if other := m.owner[key]; other != "" && other != c.name() {
				m.t.Fatalf("%s is owned by %s and by %s", key, other, c.name())
			}
			m.owner[key] = c.name()
			c.owns = append(c.owns, int32(n))
		}
	case api.ErrUnknownMemberId, api.ErrIllegalGeneration:
		c.reset()
	case api.ErrFencedInstanceId:
		c.down = true
	case api.ErrRebalanceInProgress, api.ErrNotCoordinator, api.ErrCoordinatorNotAvailable, api.ErrUnknownServerError:
	default:
		m.t.Fatalf("sync: %v", p.ErrorCode)
	}
}

// work is what a member does that has its assignment.
func (m *model) work(c *consumer) {
	switch n := m.r.IntN(100); {
	case n < 1:
		m.seen["leave"]++
		m.leave(c.group, identity(c.id, c.instance))
		c.reset()
	case n < 3:
		m.sendJoin(c) // its subscription changed, or it leads and sees new partitions
	case n < 50 && len(c.owns) > 0:
		m.commitBy(c)
	default:
		code := m.beat(c.group, c.id, c.instance, c.generation)
		m.seen["beat "+code.String()]++
		switch code {
		case api.ErrNone, api.ErrCoordinatorNotAvailable:
		case api.ErrRebalanceInProgress:
			m.sendJoin(c)
		case api.ErrFencedInstanceId:
			c.down = true
		default:
			c.reset()
		}
	}
}

// commitBy commits the next offset.
func (m *model) commitBy(c *consumer) {
	m.sent++
	part, at := c.owns[m.r.IntN(len(c.owns))], m.sent
	q := commitQ(c.group, c.id, c.generation, "t", part, at)
	stale := c.generation > 1 && m.r.IntN(20) == 0
	if stale {
		q.GenerationIdOrMemberEpoch--
	}
	version := int16(3)
	if c.instance != "" {
		q.GroupInstanceId, version = wire.Some(c.instance), 8
	}
	a := m.commit(q, version, func(p *api.OffsetCommitResponse) {
		m.seen["commit "+code(p).String()]++
		if code(p) == api.ErrNone {
			if stale {
				m.t.Fatal("a commit of an older generation was taken")
			}
			m.ack(q.GroupId, part, at)
		}
	})
	m.commits = append(m.commits, sentCommit{a: a, since: m.now, s: m.s})
}

// sentCommit is a commit whose answer has not been looked at.
type sentCommit struct {
	a     *commitAnswer
	since time.Time
	s     *Shard
}

// looked looks for the answer; false if it may still come.
func (m *model) looked(c sentCommit) bool {
	if c.a.p == nil {
		if m.s == c.s && m.now.Sub(c.since) > modelParked {
			m.t.Fatal("a commit is not answered")
		}
		return m.s != c.s
	}
	return true
}

func (m *model) ack(group string, part int32, at int64) {
	if m.acked[group] == nil {
		m.acked[group] = map[int32]int64{}
	}
	m.acked[group][part] = max(m.acked[group][part], at)
}

// transaction begins one with an offset, or ends one.
func (m *model) transaction() {
	if m.hold {
		return
	}
	if n := len(m.txns); n > 0 && (n > 3 || m.r.IntN(2) == 0) {
		i := m.r.IntN(n)
		x := m.txns[i]
		m.txns = slices.Delete(m.txns, i, i+1)
		commit := m.r.IntN(2) == 0
		m.marker(x.p, commit)
		m.seen["marker"]++
		for group, parts := range x.offset {
			for part, at := range parts {
				if commit {
					m.ack(group, part, at)
				}
			}
		}
		return
	}
	m.sent++
	x := pendingTxn{p: coordinator.Producer{ID: m.sent}, offset: map[string]map[int32]int64{}}
	group, part := "g"+strconv.Itoa(m.r.IntN(2)), int32(m.r.IntN(modelParts))
	if m.txnCommit(group, "", -1, x.p, "t", part, m.sent) == api.ErrNone {
		x.offset[group] = map[int32]int64{part: m.sent}
		m.txns = append(m.txns, x)
	}
}

// remove deletes a group, if it is empty.
func (m *model) remove() {
	group := "g" + strconv.Itoa(m.r.IntN(2))
	m.run(m.s.DeleteGroup(group, m.now, func(code api.ErrorCode) {
		m.seen["delete "+code.String()]++
		if code != api.ErrNone {
			return
		}
		delete(m.acked, group)
		delete(m.synced, group)
		delete(m.joined, group)
		maps.DeleteFunc(m.owner, func(k, _ string) bool { return strings.HasPrefix(k, group+"/") })
		for _, x := range m.txns {
			delete(x.offset, group)
		}
		for _, c := range m.consumers { // whoever believes in the old group finds out; its generations begin anew
			if c.group == group {
				c.reset()
			}
		}
	}))
}

// commitBetween has a simple commit and a deletion share a batch.
func (m *model) commitBetween() {
	m.hold = true
	c := &consumer{group: "g" + strconv.Itoa(m.r.IntN(2)), generation: -1, owns: []int32{int32(m.r.IntN(modelParts))}}
	m.commitBy(c)
	m.remove()
}

// quiet has everybody go, so that groups become empty.
func (m *model) quiet() {
	for _, c := range m.consumers {
		c.down = true
	}
	m.wait(time.Minute)
}

// check is run after each step.
func (m *model) check() {
	m.commits = slices.DeleteFunc(m.commits, m.looked)
	for _, c := range m.consumers {
		if !c.down && (c.joining != nil && c.joining.p == nil || c.syncing != nil && c.syncing.p == nil) && m.now.Sub(c.since) > modelParked {
			m.t.Fatalf("%+v is not answered since %v", c, c.since)
		}
	}
	if m.hold {
		return
	}
	for group, parts := range m.acked {
		for part, at := range parts {
			got, code := m.fetch(group, "t", part, false)
			if got < at || got > m.sent || code != api.ErrNone {
				m.t.Fatalf("%s %d: fetched %d (%v), %d was acknowledged, %d the last", group, part, got, code, at, m.sent)
			}
		}
	}
	for _, x := range m.txns {
		for group, parts := range x.offset {
			for part := range parts {
				if _, code := m.fetch(group, "t", part, true); code != api.ErrUnstableOffsetCommit {
					m.t.Fatalf("%s %d in a transaction: %v", group, part, code)
				}
			}
		}
	}
}

// compare replays the log into another shard and compares all that is durable.
func (m *model) compare() {
	if m.hold {
		return
	}
	m.seen["compared"]++
	twin := *m.fake
	twin.open()
	a, b := m.s.durable(), twin.s.durable()
	for _, id := range []string{"g0", "g1"} {
		if st := m.state(id); st == "Stable" {
			delete(m.unsure, id)
		} else if m.unsure[id] || st != "Empty" && st != "Dead" { // members that rebalance are ahead of the log
			delete(a, id)
			delete(b, id)
		}
	}
	for id, text := range b {
		if a[id] != text {
			m.t.Fatalf("group %s\nbefore %s\nafter  %s", id, a[id], text)
		}
	}
	for id, text := range a {
		if b[id] != text {
			m.t.Fatalf("group %s\nbefore %s\nafter  %s", id, text, b[id])
		}
	}
}

// durable is a shard's state in text: members and offsets by group.
func (s *Shard) durable() map[string]string {
	all := map[string]string{}
	for id, g := range s.groups {
		offsets := ""
		for _, k := range g.keys() {
			if o := g.offsets[k]; o != nil {
				offsets += fmt.Sprint(k.topic.Value(), k.partition, *o, " ")
			}
			for _, producer := range slices.Sorted(maps.Keys(g.pending)) {
				if o := g.pending[producer][k]; o != nil {
					offsets += fmt.Sprint("pending of ", producer, k.topic.Value(), k.partition, *o, " ")
				}
			}
		}
		if offsets != "" {
			all["offsets of "+id] = offsets
		}
		if g.consumer != nil {
			all[id] = g.consumer.durable()
		}
		c := g.classic
		if c == nil || c.generation == 0 {
			continue
		}
		text := fmt.Sprint(c.state, c.generation, c.protocolType, c.protocol, c.leader)
		for _, x := range c.order {
			text += fmt.Sprint("; ", x.id, x.instance, x.clientID.Value(), x.clientHost.Value(), x.session, x.rebalance, string(x.metadata(c.protocol.String)), "=", string(x.assignment))
		}
		all[id] = text
	}
	return all
}

// drain lets everybody fall silent: all requests are answered, all groups become empty, no alarm is left.
func (m *model) drain() {
	m.letGo()
	m.fail = nil
	for range modelParked/(5*time.Second) + 2 { // those that live beat, and do nothing else: that must not hold up the others
		m.pass(5 * time.Second)
		for _, c := range m.consumers {
			if !c.down && c.id != "" && (c.joining == nil || c.joining.p != nil) {
				m.beat(c.group, c.id, c.instance, c.generation)
			}
		}
	}
	m.check()
	m.pass(11 * time.Minute)
	for _, c := range m.consumers {
		if !c.down && (c.joining != nil && c.joining.p == nil || c.syncing != nil && c.syncing.p == nil) {
			m.t.Fatalf("%+v is never answered", c)
		}
	}
	for id, g := range m.s.groups {
		if st := g.state(); st != empty {
			m.t.Fatalf("%s is %v for ever", id, st)
		}
		if c := g.classic; c != nil && (len(c.members)+len(c.order)+len(c.names)+len(c.instances)+len(c.handedOut)+c.waiting > 0 || c.leader != "") {
			m.t.Fatalf("%s: left behind: %+v", id, c)
		}
		if len(g.writing) > 0 {
			m.t.Fatalf("%s: still writing %v", id, g.writing)
		}
	}
	want(m.t, "alarms", len(m.alarms), 0)
	m.check()
	m.compare()
}

func TestModel(t *testing.T) {
	seen := map[string]int{}
	for seed := *firstSeed; seed < *firstSeed+*modelSeeds; seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			m := newModel(t, seed)
			for range modelSteps {
				m.step()
			}
			m.drain()
			for k, n := range m.seen {
				seen[k] += n
			}
		})
	}
	t.Log(seen)
	for _, what := range []string{"crash", "closed", "killed", "never syncs", "skip", "leave", "marker", "compared", "delete NONE", "delete NON_EMPTY_GROUP",
		"join NONE", "join MEMBER_ID_REQUIRED", "join FENCED_INSTANCE_ID", "join GROUP_MAX_SIZE_REACHED", "join REBALANCE_IN_PROGRESS",
		"join UNKNOWN_MEMBER_ID", "sync NONE", "sync REBALANCE_IN_PROGRESS", "sync NOT_COORDINATOR", "beat NONE", "beat REBALANCE_IN_PROGRESS",
		"beat UNKNOWN_MEMBER_ID", "commit NONE", "commit REBALANCE_IN_PROGRESS", "commit NOT_COORDINATOR"} {
		if seen[what] == 0 {
			t.Errorf("the model never reached %q", what)
		}
	}
}

// How much the model plays.
var (
	modelSeeds = flag.Uint64("seeds", 60, "random runs of TestModel and of TestConsumerModel")
	firstSeed  = flag.Uint64("first", 0, "their first `seed`")
)

const modelSteps = 1500
