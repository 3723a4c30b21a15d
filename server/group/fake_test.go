package group

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/coordinator"
)

var errDisk = errors.New("disk")

// record is one record of the fake's log; or, without an entry, a marker.
type record struct {
	entry  coordinator.Entry
	at     coordinator.Position
	commit bool
}

// alarm is a timer of the fake.
type alarm struct {
	id   coordinator.Timer
	when time.Time
	fn   func(time.Time) coordinator.Outcome
}

// fake is a runtime in one slice: it appends, replays, tells and rings, all when it is told to.
type fake struct {
	t      testing.TB
	cfg    Config
	topics map[string]int
	s      *Shard
	now    time.Time
	log    []record
	alarms []alarm
	last   coordinator.Timer
	ids    int
	// held are the outcomes that wait for the next batch while hold is set.
	hold bool
	held []coordinator.Outcome
	// late keeps answers back that belong to what was appended and replayed, as group commit does, until told lets them go.
	late   bool
	untold []func()
	// durable is how much of the log nobody can lose: answers have been given that rest on it.
	durable int
	// wrote, if set, is called when a batch was replayed.
	wrote func()
	// fail, if set, is what the next write ends with.
	fail    error
	largest int // entries of one batch
}

func newFake(t testing.TB) *fake {
	f := &fake{t: t, now: time.UnixMilli(1_700_000_000_000), topics: map[string]int{"t": 4, "u": 2}}
	f.cfg = Config{
		MinSessionTimeout: 6 * time.Second, MaxSessionTimeout: 30 * time.Minute, MaxSize: math.MaxInt32,
		MaxMetadata: 4096, OffsetRetention: 7 * 24 * time.Hour,
		Partitions: func(name string) int { return f.topics[name] },
	}
	f.open()
	return f
}

// open begins with an empty shard and replays the log.
func (f *fake) open() {
	f.alarms, f.held, f.untold = nil, nil, nil
	f.s = New(&f.cfg, f, func() string { f.ids++; return fmt.Sprintf("%08d", f.ids) }, slog.New(slog.DiscardHandler))
	for _, r := range f.log {
		if r.entry.Key == nil {
			f.s.ReplayMarker(*r.at.Txn, r.commit, r.at)
			continue
		}
		f.replay(r)
	}
	f.s.Loaded(f.now)
}

// replay gives the shard a copy of a record that is overwritten afterwards: it must have kept nothing of it.
func (f *fake) replay(r record) {
	e := coordinator.Entry{Key: slices.Clone(r.entry.Key), Value: slices.Clone(r.entry.Value)}
	if r.entry.Value != nil && e.Value == nil {
		e.Value = []byte{}
	}
	if err := f.s.Replay(e, r.at); err != nil {
		f.t.Fatal(err)
	}
	scramble(e.Key)
	scramble(e.Value)
}

func scramble(b []byte) {
	for i := range b {
		b[i] = 0xA5
	}
}

// restart is a crash: nobody is told anything, what is in the log comes back.
func (f *fake) restart() { f.open() }

func (f *fake) After(d time.Duration, fn func(time.Time) coordinator.Outcome) coordinator.Timer {
	if d < 0 {
		f.t.Fatalf("alarm in %v", d)
	}
	f.last++
	f.alarms = append(f.alarms, alarm{f.last, f.now.Add(d), fn})
	return f.last
}

func (f *fake) Stop(id coordinator.Timer) {
	f.alarms = slices.DeleteFunc(f.alarms, func(a alarm) bool { return a.id == id })
}

// run takes an outcome.
func (f *fake) run(o coordinator.Outcome) {
	if len(f.s.fx.entries)+len(f.s.fx.after) > 0 {
		f.t.Fatal("effects of an operation were left behind")
	}
	f.held = append(f.held, o)
	if !f.hold {
		f.flush()
	}
}

// flush appends what is held as one batch each, applies all, then tells.
func (f *fake) flush() {
	held := f.held
	f.held = nil
	errs := make([]error, len(held))
	for i, o := range held {
		if len(o.Write.Entries) == 0 {
			continue
		}
		f.largest = max(f.largest, len(o.Write.Entries))
		if f.fail != nil {
			errs[i], f.fail = f.fail, nil
			continue
		}
		for _, e := range o.Write.Entries {
			r := record{entry: e, at: coordinator.Position{Offset: int64(len(f.log)), Timestamp: f.now.UnixMilli(), Txn: o.Write.Txn}}
			f.log = append(f.log, r)
			f.replay(r)
		}
		if f.wrote != nil {
			f.wrote()
		}
	}
	upTo := len(f.log)
	for i, o := range held {
		f.untold = append(f.untold, func() {
			f.durable = max(f.durable, upTo)
			if o.Done != nil {
				o.Done(errs[i])
			}
		})
	}
	if !f.late {
		f.told()
	}
}

// told gives the answers that were kept back.
func (f *fake) told() {
	for len(f.untold) > 0 {
		next := f.untold[0]
		f.untold = f.untold[1:]
		next()
	}
}

// marker ends a transaction.
func (f *fake) marker(p coordinator.Producer, commit bool) {
	r := record{at: coordinator.Position{Offset: int64(len(f.log)), Timestamp: f.now.UnixMilli(), Txn: &p}, commit: commit}
	f.log = append(f.log, r)
	f.s.ReplayMarker(p, commit, r.at)
}

// ring rings the earliest alarm if it is due by end.
func (f *fake) ring(end time.Time) bool {
	if len(f.alarms) == 0 {
		return false
	}
	first := slices.MinFunc(f.alarms, func(a, b alarm) int { return a.when.Compare(b.when) })
	if first.when.After(end) {
		return false
	}
	f.Stop(first.id)
	if first.when.After(f.now) {
		f.now = first.when
	}
	f.run(first.fn(f.now))
	return true
}

// pass lets time pass.
func (f *fake) pass(d time.Duration) {
	for end := f.now.Add(d); ; {
		if !f.ring(end) {
			f.now = end
			return
		}
	}
}

// over encodes m and decodes it again, so that it aliases a buffer as requests do; spoil overwrites that.
func over[M any, P interface {
	*M
	api.Message
}](t testing.TB, m P, version int16) (q P, spoil func()) {
	t.Helper()
	var w wire.Writer
	m.Encode(&w, version)
	if w.Err != nil {
		t.Fatalf("%T v%d: %v", m, version, w.Err)
	}
	r := wire.NewReader(w.B)
	q = new(M)
	q.Decode(&r, version)
	if r.Failed() || r.Rest() > 0 {
		t.Fatalf("%T v%d: %v, %d bytes left", m, version, r.Err(), r.Rest())
	}
	return q, func() { scramble(w.B) }
}

// answer is where a reply lands. It travels the wire in its version.
type answer[M any, P interface {
	*M
	api.Message
}] struct {
	t       testing.TB
	version int16
	p       P
	told    func(P) // if not nil, called with the reply when it comes
}

func (a *answer[M, P]) take(p P) {
	if a.p != nil {
		a.t.Fatalf("answered twice: %+v, then %+v", a.p, p)
	}
	if a.p, _ = over[M, P](a.t, p, a.version); a.told != nil {
		a.told(a.p)
	}
}

// got is the reply, which must be there.
func (a *answer[M, P]) got() P {
	a.t.Helper()
	if a.p == nil {
		a.t.Fatalf("no answer yet (%v)", reflect.TypeFor[M]())
	}
	return a.p
}

func (a *answer[M, P]) parked() {
	a.t.Helper()
	if a.p != nil {
		a.t.Fatalf("answered early: %+v", a.p)
	}
}

type (
	joinAnswer   = answer[api.JoinGroupResponse, *api.JoinGroupResponse]
	syncAnswer   = answer[api.SyncGroupResponse, *api.SyncGroupResponse]
	leaveAnswer  = answer[api.LeaveGroupResponse, *api.LeaveGroupResponse]
	commitAnswer = answer[api.OffsetCommitResponse, *api.OffsetCommitResponse]
)

// joiner is a JoinGroup in short.
type joiner struct {
	group, id, instance string
	version             int16 // 0 means 9; oldest for v0
	session, rebalance  time.Duration
	kind                string // protocol type; "" means consumer, none means ""
	offer               []string
	metadata            string
	client              string
	told                func(*api.JoinGroupResponse)
}

const (
	none   = "-"
	oldest = -1
)

func (f *fake) join(j joiner) *joinAnswer {
	f.t.Helper()
	version := j.version
	switch version {
	case 0:
		version = 9
	case oldest:
		version = 0
	}
	q := &api.JoinGroupRequest{GroupId: j.group, MemberId: j.id, ProtocolType: "consumer", SessionTimeoutMs: 10_000, RebalanceTimeoutMs: 60_000}
	if q.GroupId == "" {
		q.GroupId = "g"
	}
	if q.GroupId == none {
		q.GroupId = ""
	}
	if j.instance != "" {
		q.GroupInstanceId = wire.Some(j.instance)
	}
	if j.session != 0 {
		q.SessionTimeoutMs = int32(j.session.Milliseconds())
	}
	if j.rebalance != 0 {
		q.RebalanceTimeoutMs = int32(j.rebalance.Milliseconds())
	}
	switch j.kind {
	case "":
	case none:
		q.ProtocolType = ""
	default:
		q.ProtocolType = j.kind
	}
	if j.offer == nil {
		j.offer = []string{"range"}
	}
	for _, name := range j.offer {
		q.Protocols = append(q.Protocols, api.JoinGroupRequestJoinGroupRequestProtocol{Name: name, Metadata: []byte(name + "/" + j.metadata)})
	}
	if j.client == "" {
		j.client = "c"
	}
	a := &joinAnswer{t: f.t, version: version, told: j.told}
	q, spoil := over(f.t, q, version)
	f.run(f.s.Join(q, Client{ID: j.client, Host: "/127.0.0.1"}, version, f.now, a.take))
	spoil()
	return a
}

// enter does what a new dynamic member does: 79, then again.
func (f *fake) enter(j joiner) (id string, a *joinAnswer) {
	f.t.Helper()
	id = f.join(j).got().MemberId
	j.id = id
	return id, f.join(j)
}

func (f *fake) sync(group, id, instance string, generation int32, parts map[string]string) *syncAnswer {
	f.t.Helper()
	q := &api.SyncGroupRequest{GroupId: group, MemberId: id, GenerationId: generation,
		ProtocolType: wire.Some("consumer"), ProtocolName: wire.Some("range")}
	if instance != "" {
		q.GroupInstanceId = wire.Some(instance)
	}
	for m, part := range parts {
		q.Assignments = append(q.Assignments, api.SyncGroupRequestSyncGroupRequestAssignment{MemberId: m, Assignment: []byte(part)})
	}
	return f.syncRaw(q)
}

func (f *fake) syncRaw(q *api.SyncGroupRequest) *syncAnswer {
	f.t.Helper()
	version := int16(5)
	if !q.ProtocolName.Valid {
		version = 4
	}
	return f.syncAt(q, version)
}

func (f *fake) syncAt(q *api.SyncGroupRequest, version int16, told ...func(*api.SyncGroupResponse)) *syncAnswer {
	f.t.Helper()
	a := &syncAnswer{t: f.t, version: version}
	if len(told) > 0 {
		a.told = told[0]
	}
	q, spoil := over(f.t, q, version)
	f.run(f.s.Sync(q, version, f.now, a.take))
	spoil()
	return a
}

func (f *fake) beat(group, id, instance string, generation int32) api.ErrorCode {
	f.t.Helper()
	q := &api.HeartbeatRequest{GroupId: group, MemberId: id, GenerationId: generation}
	if instance != "" {
		q.GroupInstanceId = wire.Some(instance)
	}
	q, spoil := over(f.t, q, 4)
	code := f.s.Heartbeat(q, f.now)
	spoil()
	return code
}

func (f *fake) leave(group string, members ...api.LeaveGroupRequestMemberIdentity) *leaveAnswer {
	f.t.Helper()
	q := &api.LeaveGroupRequest{GroupId: group, Members: members}
	a := &leaveAnswer{t: f.t, version: 5}
	q, spoil := over(f.t, q, 5)
	f.run(f.s.Leave(q, 5, f.now, a.take))
	spoil()
	return a
}

// commitQ is a commit of one partition.
func commitQ(group, id string, generation int32, topic string, partition int32, at int64) *api.OffsetCommitRequest {
	q := &api.OffsetCommitRequest{}
	q.Default()
	q.GroupId, q.MemberId, q.GenerationIdOrMemberEpoch = group, id, generation
	q.Topics = []api.OffsetCommitRequestOffsetCommitRequestTopic{{Name: topic,
		Partitions: []api.OffsetCommitRequestOffsetCommitRequestPartition{{
			PartitionIndex: partition, CommittedOffset: at, CommittedLeaderEpoch: -1, CommitTimestamp: -1, CommittedMetadata: wire.Some("")}}}}
	return q
}

func (f *fake) commit(q *api.OffsetCommitRequest, version int16, told ...func(*api.OffsetCommitResponse)) *commitAnswer {
	f.t.Helper()
	a := &commitAnswer{t: f.t, version: version}
	if len(told) > 0 {
		a.told = told[0]
	}
	q, spoil := over(f.t, q, version)
	f.run(f.s.Commit(q, f.now, a.take))
	spoil()
	return a
}

// committed commits as nobody in particular and returns the error of the partition.
func (f *fake) committed(group, topic string, partition int32, at int64) api.ErrorCode {
	f.t.Helper()
	return f.commit(commitQ(group, "", -1, topic, partition, at), 8).got().Topics[0].Partitions[0].ErrorCode
}

// fetch reads one partition.
func (f *fake) fetch(group, topic string, partition int32, requireStable bool) (int64, api.ErrorCode) {
	f.t.Helper()
	p := f.s.Fetch(&api.OffsetFetchRequestOffsetFetchRequestGroup{GroupId: group, MemberEpoch: -1,
		Topics: []api.OffsetFetchRequestOffsetFetchRequestTopics{{Name: topic, PartitionIndexes: []int32{partition}}}}, requireStable)
	return p.Topics[0].Partitions[0].CommittedOffset, p.Topics[0].Partitions[0].ErrorCode
}

// wantOffset checks what is committed for a partition.
func (f *fake) wantOffset(group, topic string, partition int32, want int64) {
	f.t.Helper()
	if got, code := f.fetch(group, topic, partition, false); got != want || code != api.ErrNone {
		f.t.Fatalf("offset of %q %s-%d: %d (%v), want %d", group, topic, partition, got, code, want)
	}
}

func (f *fake) txnCommit(group, id string, generation int32, p coordinator.Producer, topic string, partition int32, at int64) api.ErrorCode {
	f.t.Helper()
	q := &api.TxnOffsetCommitRequest{TransactionalId: "x", GroupId: group, MemberId: id, GenerationId: generation, ProducerId: p.ID, ProducerEpoch: p.Epoch,
		Topics: []api.TxnOffsetCommitRequestTxnOffsetCommitRequestTopic{{Name: topic,
			Partitions: []api.TxnOffsetCommitRequestTxnOffsetCommitRequestPartition{{
				PartitionIndex: partition, CommittedOffset: at, CommittedLeaderEpoch: -1, CommittedMetadata: wire.Some("")}}}}}
	a := &answer[api.TxnOffsetCommitResponse, *api.TxnOffsetCommitResponse]{t: f.t, version: 3}
	q, spoil := over(f.t, q, 3)
	f.run(f.s.TxnCommit(q, f.now, a.take))
	spoil()
	return a.got().Topics[0].Partitions[0].ErrorCode
}

func (f *fake) deleteGroup(id string) api.ErrorCode {
	f.t.Helper()
	code := api.ErrorCode(math.MinInt16)
	f.run(f.s.DeleteGroup(id, f.now, func(c api.ErrorCode) { code = c }))
	f.pass(0)
	if code == math.MinInt16 {
		f.t.Fatal("no answer")
	}
	return code
}

func (f *fake) state(group string) string { return f.s.Describe(group).GroupState }

func (f *fake) wantState(group, want string) {
	f.t.Helper()
	if got := f.state(group); got != want {
		f.t.Fatalf("group %q is %s, want %s", group, got, want)
	}
}

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

// member1 makes a stable group of one dynamic member in generation 1.
func (f *fake) member1(group string) (id string) {
	f.t.Helper()
	id, a := f.enter(joiner{group: group})
	f.pass(0)
	want(f.t, "join", a.got().ErrorCode, api.ErrNone)
	want(f.t, "sync", f.sync(group, id, "", 1, map[string]string{id: "part"}).got().ErrorCode, api.ErrNone)
	f.wantState(group, "Stable")
	return id
}

// at sets the clock, in ms, without ringing anything.
func (f *fake) at(ms int64) { f.now = time.UnixMilli(ms) }
