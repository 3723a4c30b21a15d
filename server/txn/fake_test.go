package txn

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/coordinator"
)

var errDisk = errors.New("disk")

// alarm is a timer of the fake.
type alarm struct {
	id   coordinator.Timer
	when time.Time
	fn   func(time.Time) coordinator.Outcome
}

// due is a Done that waits for the log to be durable up to end.
type due struct {
	end  int
	done func(error)
}

// fake is a runtime and its log in one: it appends and replays at once, and is durable when it is told to be, or at once without hold.
type fake struct {
	t      testing.TB
	cfg    Config
	s      *Shard
	now    time.Time
	log    []coordinator.Entry
	stable int // records that are durable
	due    []due
	alarms []alarm
	last   coordinator.Timer
	hold   bool
	// fail, if set, is what the next write ends with.
	fail    error
	largest int // records of one batch
	next    int64
	works   []MarkerWork
	take    func(MarkerWork) bool // instead of works
	queued  []func()              // operations that were given from inside another one
}

func newFake(t testing.TB) *fake {
	f := &fake{t: t, now: time.UnixMilli(1_700_000_000_000), next: 1000}
	f.cfg = Config{
		MaxTimeout: 15 * time.Minute, Expiration: 7 * 24 * time.Hour, AnswerWithin: time.Second,
		Markers: func(w MarkerWork) bool {
			if f.take != nil {
				return f.take(w)
			}
			f.works = append(f.works, w)
			return false
		},
	}
	f.open()
	return f
}

// open begins with an empty shard and replays the log.
func (f *fake) open() {
	f.alarms, f.due = nil, nil
	f.stable = len(f.log)
	f.s = New(&f.cfg, 3, f, slog.New(slog.DiscardHandler))
	for i := range f.log {
		f.replay(i)
	}
	f.s.Loaded(f.now)
}

// replay gives the shard a copy of a record that is overwritten afterwards: it must have kept nothing of it.
func (f *fake) replay(i int) {
	e := coordinator.Entry{Key: slices.Clone(f.log[i].Key), Value: slices.Clone(f.log[i].Value)}
	if err := f.s.Replay(e, coordinator.Position{Offset: int64(i), Timestamp: f.now.UnixMilli()}); err != nil {
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

// crash is the end of the process: nobody is told anything, and of the log what was durable comes back, with lucky more records.
func (f *fake) crash(lucky int) {
	f.log = f.log[:min(f.stable+lucky, len(f.log))]
	f.works = nil
	f.open()
}

// reload is a log that failed: everybody is told, then the shard is loaded anew. What was not durable may have become so.
func (f *fake) reload(lucky int) {
	f.log = f.log[:min(f.stable+lucky, len(f.log))]
	pending := f.due
	f.due, f.alarms = nil, nil
	for _, d := range pending {
		d.done(coordinator.ErrNotOwned)
	}
	f.s.Closed(coordinator.ErrNotOwned)
	f.open()
}

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
	if len(o.Write.Entries) > 0 {
		if f.fail != nil {
			err := f.fail
			f.fail = nil
			o.Done(err)
			return
		}
		f.largest = max(f.largest, len(o.Write.Entries))
		for _, e := range o.Write.Entries {
			f.log = append(f.log, e)
			f.replay(len(f.log) - 1)
		}
	}
	if o.Done != nil {
		f.due = append(f.due, due{len(f.log), o.Done})
	}
	if !f.hold || f.stable == len(f.log) {
		f.sync(len(f.log))
	}
}

// sync makes the log durable up to end, and tells whoever waits for that.
func (f *fake) sync(end int) {
	f.stable = end
	for len(f.due) > 0 && f.due[0].end <= f.stable {
		d := f.due[0]
		f.due = f.due[1:]
		d.done(nil)
	}
	for len(f.queued) > 0 {
		op := f.queued[0]
		f.queued = f.queued[1:]
		op()
	}
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
	end := f.now.Add(d)
	for f.ring(end) {
	}
	f.now = end
}

// fresh gives producer ids.
func (f *fake) fresh() (int64, api.ErrorCode) {
	f.next++
	return f.next, api.ErrNone
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

// answered is where a reply lands.
type answered[T any] struct {
	t    testing.TB
	n    int
	v    T
	told func(T) // if not nil, called when it comes
}

func (a *answered[T]) take(v T) {
	if a.n++; a.n > 1 {
		a.t.Fatalf("answered twice: %+v, then %+v", a.v, v)
	}
	if a.v = v; a.told != nil {
		a.told(v)
	}
}

func (a *answered[T]) got() T {
	a.t.Helper()
	if a.n == 0 {
		a.t.Fatal("no answer yet")
	}
	return a.v
}

func (a *answered[T]) waits() {
	a.t.Helper()
	if a.n > 0 {
		a.t.Fatalf("answered early: %+v", a.v)
	}
}

// inited is an answer to InitProducerId in short.
type inited struct {
	code  api.ErrorCode
	id    int64
	epoch int16
}

// nobody is what a producer that has no id names.
var nobody = coordinator.Producer{ID: noProducer, Epoch: noEpoch}

func (f *fake) initAs(id string, p coordinator.Producer, timeout time.Duration, version int16, told func(inited)) *answered[inited] {
	f.t.Helper()
	q := &api.InitProducerIdRequest{TransactionalId: wire.Some(id), TransactionTimeoutMs: int32(timeout.Milliseconds()), ProducerId: p.ID, ProducerEpoch: p.Epoch}
	q, spoil := over(f.t, q, version)
	a := &answered[inited]{t: f.t, told: told}
	f.run(f.s.InitProducerID(q, version, f.fresh, f.now, func(p *api.InitProducerIdResponse) {
		a.take(inited{p.ErrorCode, p.ProducerId, p.ProducerEpoch})
	}))
	spoil()
	return a
}

// init is InitProducerId v4 of a new producer with a time-out of a minute; it must be taken.
func (f *fake) init(id string) coordinator.Producer {
	f.t.Helper()
	got := f.initAs(id, nobody, time.Minute, 4, nil).got()
	want(f.t, "InitProducerId", got.code, api.ErrNone)
	return coordinator.Producer{ID: got.id, Epoch: got.epoch}
}

func (f *fake) add(id string, p coordinator.Producer, told func(api.ErrorCode), partitions ...Partition) *answered[api.ErrorCode] {
	f.t.Helper()
	q := &api.AddPartitionsToTxnRequest{V3AndBelowTransactionalId: id, V3AndBelowProducerId: p.ID, V3AndBelowProducerEpoch: p.Epoch}
	for _, x := range partitions {
		q.V3AndBelowTopics = append(q.V3AndBelowTopics, api.AddPartitionsToTxnRequestAddPartitionsToTxnTopic{Name: x.Topic, Partitions: []int32{x.Index}})
	}
	q, spoil := over(f.t, q, 3)
	a := &answered[api.ErrorCode]{t: f.t, told: told}
	f.run(f.s.AddPartitions(q.V3AndBelowTransactionalId, p, q.V3AndBelowTopics, f.now, a.take))
	spoil()
	return a
}

func (f *fake) addOffsets(id string, p coordinator.Producer, version int16) api.ErrorCode {
	f.t.Helper()
	q, spoil := over(f.t, &api.AddOffsetsToTxnRequest{TransactionalId: id, ProducerId: p.ID, ProducerEpoch: p.Epoch, GroupId: "g"}, version)
	a := &answered[api.ErrorCode]{t: f.t}
	f.run(f.s.AddOffsets(q, version, Partition{"__consumer_offsets", 7}, f.now, func(p *api.AddOffsetsToTxnResponse) { a.take(p.ErrorCode) }))
	spoil()
	return a.got()
}

func (f *fake) end(id string, p coordinator.Producer, commit bool, version int16, told func(api.ErrorCode)) *answered[api.ErrorCode] {
	f.t.Helper()
	q, spoil := over(f.t, &api.EndTxnRequest{TransactionalId: id, ProducerId: p.ID, ProducerEpoch: p.Epoch, Committed: commit}, version)
	a := &answered[api.ErrorCode]{t: f.t, told: told}
	f.run(f.s.EndTxn(q, version, f.now, func(p *api.EndTxnResponse) { a.take(p.ErrorCode) }))
	spoil()
	return a
}

// verified is an answer to Verify.
type verified struct {
	code api.ErrorCode
	each []api.ErrorCode
}

func (f *fake) verify(id string, p coordinator.Producer, told func(verified), partitions ...Partition) *answered[verified] {
	f.t.Helper()
	a := &answered[verified]{t: f.t, told: told}
	f.run(f.s.Verify(id, p, partitions, func(code api.ErrorCode, each []api.ErrorCode) { a.take(verified{code, each}) }))
	return a
}

// mark reports partitions of the first work that was handed out; without any, all of them.
func (f *fake) mark(partitions ...Partition) {
	f.t.Helper()
	if len(f.works) == 0 {
		f.t.Fatal("no work was handed out")
	}
	w := f.works[0]
	if len(partitions) == 0 {
		partitions = w.Partitions
		f.works = f.works[1:]
	}
	f.run(f.s.MarkersWritten(w.ID, w.Decision, partitions, f.now))
}

// sweep is what the runtime's ticks do.
func (f *fake) sweep() {
	f.run(f.s.AbortOverdue(f.now))
	f.run(f.s.Expire(f.now))
	f.pass(0)
}

// commit is a whole transaction that begins with a producer that is initialized.
func (f *fake) commit(id string, p coordinator.Producer, partitions ...Partition) {
	f.t.Helper()
	want(f.t, "AddPartitionsToTxn", f.add(id, p, nil, partitions...).got(), api.ErrNone)
	a := f.end(id, p, true, 3, nil)
	f.mark()
	want(f.t, "EndTxn", a.got(), api.ErrNone)
}

// wantState checks what DescribeTransactions says.
func (f *fake) wantState(id string, st Status, p coordinator.Producer) {
	f.t.Helper()
	d := f.s.Describe(id)
	if d.ErrorCode != api.ErrNone || d.TransactionState != st.String() || d.ProducerId != p.ID || d.ProducerEpoch != p.Epoch {
		f.t.Fatalf("%q is %s of %d epoch %d (%v), want %s of %+v", id, d.TransactionState, d.ProducerId, d.ProducerEpoch, d.ErrorCode, st, p)
	}
}

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
}
