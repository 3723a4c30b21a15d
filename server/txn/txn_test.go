package txn

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"kaas/codec/api"
	"kaas/server/coordinator"
)

var (
	t0 = Partition{"t", 0}
	t1 = Partition{"t", 1}
	u0 = Partition{"u", 0}
)

const minute = time.Minute

func up(p coordinator.Producer) coordinator.Producer { p.Epoch++; return p }

func codes(c ...api.ErrorCode) []api.ErrorCode { return c }

// states are a transactional id in each state that lasts, with its producer.
var states = map[Status]func(f *fake) coordinator.Producer{
	Empty: func(f *fake) coordinator.Producer { return f.init("x") },
	Ongoing: func(f *fake) coordinator.Producer {
		p := f.init("x")
		want(f.t, "add", f.add("x", p, nil, t0).got(), api.ErrNone)
		return p
	},
	PrepareCommit:  func(f *fake) coordinator.Producer { return decided(f, true) },
	PrepareAbort:   func(f *fake) coordinator.Producer { return decided(f, false) },
	CompleteCommit: func(f *fake) coordinator.Producer { p := decided(f, true); f.mark(); return p },
	CompleteAbort:  func(f *fake) coordinator.Producer { p := decided(f, false); f.mark(); return p },
}

func decided(f *fake, commit bool) coordinator.Producer {
	p := f.init("x")
	want(f.t, "add", f.add("x", p, nil, t0).got(), api.ErrNone)
	f.end("x", p, commit, 3, nil)
	return p
}

// step asks for something about "x", whose producer is given.
type step struct {
	name string
	do   func(f *fake, p coordinator.Producer) api.ErrorCode
	code map[Status]api.ErrorCode // where it is not 0
	to   map[Status]Status        // where it changes
}

// always is a code in every state.
func always(c api.ErrorCode) map[Status]api.ErrorCode {
	m := map[Status]api.ErrorCode{}
	for st := range states {
		m[st] = c
	}
	return m
}

func stranger(p coordinator.Producer) coordinator.Producer { p.ID += 77; return p }

func addSteps() []step {
	busy := map[Status]api.ErrorCode{PrepareCommit: 51, PrepareAbort: 51}
	return []step{
		{"add", func(f *fake, p coordinator.Producer) api.ErrorCode { return f.add("x", p, nil, u0).got() }, busy,
			map[Status]Status{Empty: Ongoing, CompleteCommit: Ongoing, CompleteAbort: Ongoing}},
		{"add offsets", func(f *fake, p coordinator.Producer) api.ErrorCode { return f.addOffsets("x", p, 3) }, busy,
			map[Status]Status{Empty: Ongoing, CompleteCommit: Ongoing, CompleteAbort: Ongoing}},
		{"add, other producer", func(f *fake, p coordinator.Producer) api.ErrorCode { return f.add("x", stranger(p), nil, u0).got() }, always(49), nil},
		{"add, epoch ahead", func(f *fake, p coordinator.Producer) api.ErrorCode { return f.add("x", up(p), nil, u0).got() }, always(90), nil},
		{"add, unknown id", func(f *fake, p coordinator.Producer) api.ErrorCode { return f.add("y", p, nil, u0).got() }, always(49), nil},
		{"add, no id", func(f *fake, p coordinator.Producer) api.ErrorCode { return f.add("", p, nil, u0).got() }, always(42), nil},
	}
}

func endSteps() []step {
	end := func(commit bool) func(f *fake, p coordinator.Producer) api.ErrorCode {
		return func(f *fake, p coordinator.Producer) api.ErrorCode {
			a := f.end("x", p, commit, 3, nil)
			f.pass(f.cfg.AnswerWithin)
			return a.got()
		}
	}
	return []step{
		{"commit", end(true), map[Status]api.ErrorCode{Empty: 48, PrepareCommit: 51, PrepareAbort: 51, CompleteAbort: 48},
			map[Status]Status{Ongoing: PrepareCommit}},
		{"abort", end(false), map[Status]api.ErrorCode{Empty: 48, PrepareCommit: 51, PrepareAbort: 51, CompleteCommit: 48},
			map[Status]Status{Ongoing: PrepareAbort}},
		{"commit, other producer", func(f *fake, p coordinator.Producer) api.ErrorCode {
			return f.end("x", stranger(p), true, 3, nil).got()
		}, always(49), nil},
		{"commit, epoch ahead", func(f *fake, p coordinator.Producer) api.ErrorCode { return f.end("x", up(p), true, 3, nil).got() }, always(90), nil},
		{"commit, epoch ahead, v1", func(f *fake, p coordinator.Producer) api.ErrorCode { return f.end("x", up(p), true, 1, nil).got() }, always(47), nil},
		{"commit, unknown id", func(f *fake, p coordinator.Producer) api.ErrorCode { return f.end("y", p, true, 3, nil).got() }, always(49), nil},
		{"commit, no id", func(f *fake, p coordinator.Producer) api.ErrorCode { return f.end("", p, true, 3, nil).got() }, always(42), nil},
	}
}

func otherSteps() []step {
	return []step{
		{"verify", func(f *fake, p coordinator.Producer) api.ErrorCode {
			v := f.verify("x", p, nil, t0).got()
			if v.code == 0 {
				return v.each[0]
			}
			return v.code
		}, map[Status]api.ErrorCode{Empty: 48, PrepareCommit: 51, PrepareAbort: 51, CompleteCommit: 48, CompleteAbort: 48}, nil},
		{"verify, other producer", func(f *fake, p coordinator.Producer) api.ErrorCode {
			return f.verify("x", stranger(p), nil, t0).got().code
		}, always(49), nil},
		{"verify, epoch ahead", func(f *fake, p coordinator.Producer) api.ErrorCode { return f.verify("x", up(p), nil, t0).got().code }, always(90), nil},
		{"verify, no id", func(f *fake, p coordinator.Producer) api.ErrorCode { return f.verify("", p, nil, t0).got().code }, always(42), nil},
		{"init, other producer", func(f *fake, p coordinator.Producer) api.ErrorCode {
			return f.initAs("x", stranger(p), minute, 4, nil).got().code
		},
			map[Status]api.ErrorCode{Empty: 90, Ongoing: 90, PrepareCommit: 51, PrepareAbort: 51, CompleteCommit: 90, CompleteAbort: 90}, nil},
		{"init, other producer, v3", func(f *fake, p coordinator.Producer) api.ErrorCode {
			return f.initAs("x", stranger(p), minute, 3, nil).got().code
		},
			map[Status]api.ErrorCode{Empty: 47, Ongoing: 47, PrepareCommit: 51, PrepareAbort: 51, CompleteCommit: 47, CompleteAbort: 47}, nil},
	}
}

// TestEveryTransition asks for everything in every state. After an operation that was refused the state is what it was.
func TestEveryTransition(t *testing.T) {
	for _, st := range slices.Concat(addSteps(), endSteps(), otherSteps()) {
		for from, begin := range states {
			f := newFake(t)
			p := begin(f)
			if got := st.do(f, p); got != st.code[from] {
				t.Errorf("%s when %s: %v, want %v", st.name, from, got, st.code[from])
			}
			to := from
			if next, changes := st.to[from]; changes {
				to = next
			}
			f.wantState("x", to, p)
			f.crash(0)
			f.wantState("x", to, p)
		}
	}
}

// TestInit is InitProducerId in every state: an open transaction is aborted first (51, with an epoch of its own), others get the next epoch.
func TestInit(t *testing.T) {
	for from, begin := range states {
		for _, recovers := range []bool{false, true} {
			f := newFake(t)
			p := begin(f)
			who := nobody
			if recovers {
				who = p
			}
			got := f.initAs("x", who, minute, 4, nil).got()
			switch from {
			case Ongoing:
				want(t, "with an open transaction", got, inited{51, -1, -1})
				f.wantState("x", PrepareAbort, up(p))
				want(t, "while it is aborted", f.initAs("x", who, minute, 4, nil).got(), inited{51, -1, -1})
				want(t, "the old producer", f.end("x", p, true, 3, nil).got(), api.ErrProducerFenced)
				want(t, "the old producer", f.add("x", p, nil, u0).got(), api.ErrProducerFenced)
				w := f.works[0]
				want(t, "work", fmt.Sprint(w.Producer, w.Commit, w.CoordinatorEpoch, w.Partitions), fmt.Sprint(up(p), false, 3, []Partition{t0}))
				f.mark()
				f.wantState("x", CompleteAbort, up(p))
				if recovers { // its epoch was taken
					want(t, "recovery", f.initAs("x", who, minute, 4, nil).got(), inited{90, -1, -1})
				}
				want(t, "after it", f.initAs("x", nobody, minute, 4, nil).got(), inited{0, p.ID, p.Epoch + 2})
			case PrepareCommit, PrepareAbort:
				want(t, "with markers to come", got, inited{51, -1, -1})
				f.wantState("x", from, p)
			default:
				want(t, "next epoch", got, inited{0, p.ID, p.Epoch + 1})
				f.wantState("x", Empty, up(p))
				if d := f.s.Describe("x"); d.TransactionStartTimeMs != -1 || d.Topics != nil {
					t.Fatalf("%+v", d)
				}
			}
		}
	}
}

// TestRecovery is KIP-360: the holder of the epoch bumps it, its retry is known, others are fenced.
func TestRecovery(t *testing.T) {
	f := newFake(t)
	p := f.init("x")
	want(t, "bump", f.initAs("x", p, minute, 4, nil).got(), inited{0, p.ID, 1})
	want(t, "retry", f.initAs("x", p, minute, 4, nil).got(), inited{0, p.ID, 1})
	f.commit("x", up(p), t0)
	want(t, "late retry", f.initAs("x", p, minute, 4, nil).got(), inited{0, p.ID, 1})
	want(t, "bump again", f.initAs("x", up(p), minute, 4, nil).got(), inited{0, p.ID, 2})
	want(t, "two behind", f.initAs("x", p, minute, 4, nil).got(), inited{90, -1, -1})
	want(t, "a new producer", f.initAs("x", nobody, minute, 4, nil).got(), inited{0, p.ID, 3})
	want(t, "the one before it", f.initAs("x", up(up(p)), minute, 4, nil).got(), inited{90, -1, -1})

	// The epoch before is not in the log, in Apache 3.7 neither.
	want(t, "bump", f.initAs("x", coordinator.Producer{ID: p.ID, Epoch: 3}, minute, 4, nil).got(), inited{0, p.ID, 4})
	f.crash(0)
	want(t, "retry after a restart", f.initAs("x", coordinator.Producer{ID: p.ID, Epoch: 3}, minute, 4, nil).got(), inited{90, -1, -1})
	want(t, "an id never seen", f.initAs("y", coordinator.Producer{ID: 424242, Epoch: 5}, minute, 4, nil).got(), inited{0, f.next, 0})
}

// TestInitFailedWrite checks that a bump that was not written leaves nothing behind.
func TestInitFailedWrite(t *testing.T) {
	f := newFake(t)
	f.fail = coordinator.ErrNotAvailable
	want(t, "new", f.initAs("x", nobody, minute, 4, nil).got(), inited{15, -1, -1})
	want(t, "described", f.s.Describe("x").ErrorCode, api.ErrTransactionalIdNotFound)
	p := f.init("x")
	f.fail = fmt.Errorf("%w: %w", coordinator.ErrNotOwned, errDisk)
	want(t, "bump", f.initAs("x", p, minute, 4, nil).got(), inited{16, -1, -1})
	f.wantState("x", Empty, p)
	want(t, "a new producer", f.init("x"), up(p))
	want(t, "which nobody retried", f.initAs("x", p, minute, 4, nil).got(), inited{90, -1, -1})
	if len(f.s.lastEpochs) > 0 {
		t.Fatal(f.s.lastEpochs)
	}
	f.add("x", up(p), nil, t0)
	f.fail = coordinator.ErrNotAvailable
	want(t, "abort", f.initAs("x", nobody, minute, 4, nil).got(), inited{15, -1, -1})
	f.wantState("x", Ongoing, up(p)) // the transaction goes on
}

// TestInitRefused checks requests.
func TestInitRefused(t *testing.T) {
	f := newFake(t)
	for _, c := range []struct {
		id      string
		p       coordinator.Producer
		timeout time.Duration
		code    api.ErrorCode
	}{
		{"", nobody, minute, api.ErrInvalidRequest},
		{"x", coordinator.Producer{ID: -1, Epoch: 3}, minute, api.ErrInvalidRequest},
		{"x", coordinator.Producer{ID: 3, Epoch: -1}, minute, api.ErrInvalidRequest},
		{"x", coordinator.Producer{ID: 3, Epoch: -1}, 0, api.ErrInvalidRequest},
		{"x", nobody, 0, api.ErrInvalidTransactionTimeout},
		{"x", nobody, -1 * time.Millisecond, api.ErrInvalidTransactionTimeout},
		{"x", nobody, f.cfg.MaxTimeout + time.Millisecond, api.ErrInvalidTransactionTimeout},
		{"x", nobody, f.cfg.MaxTimeout, api.ErrNone},
	} {
		want(t, fmt.Sprint(c), f.initAs(c.id, c.p, c.timeout, 4, nil).got().code, c.code)
	}
}

// force sets the epoch of "x" as its log could hold it.
func force(f *fake, p coordinator.Producer, st Status) {
	x := &txn{id: "x", producerID: p.ID, epoch: p.Epoch, timeoutMs: 60_000, status: st, started: -1}
	f.log = append(f.log, f.s.record(x, f.now, nil))
	f.crash(1)
}

// TestEpochExhaustion moves to another producer id, and knows the retry of that.
func TestEpochExhaustion(t *testing.T) {
	last := coordinator.Producer{ID: 500, Epoch: math.MaxInt16 - 1}
	f := newFake(t)
	force(f, coordinator.Producer{ID: 500, Epoch: math.MaxInt16 - 2}, Empty)
	want(t, "the last bump", f.init("x"), last)
	rotated := f.initAs("x", last, minute, 4, nil).got()
	want(t, "rotation", rotated, inited{0, f.next, 0})
	want(t, "its retry", f.initAs("x", last, minute, 4, nil).got(), inited{0, f.next, 0})
	// The retry wrote a record; another one names a producer id that is forgotten.
	want(t, "another", f.initAs("x", last, minute, 4, nil).got(), inited{90, -1, -1})

	f = newFake(t)
	force(f, last, CompleteCommit)
	want(t, "a new producer", f.initAs("x", nobody, minute, 4, nil).got(), inited{0, f.next, 0})
	want(t, "the old one", f.initAs("x", last, minute, 4, nil).got(), inited{90, -1, -1})
	want(t, "the old one", f.end("x", last, true, 3, nil).got(), api.ErrInvalidProducerIdMapping)

	// An abort takes the very last epoch.
	f = newFake(t)
	force(f, last, Empty)
	f.add("x", last, nil, t0)
	want(t, "abort", f.initAs("x", nobody, minute, 4, nil).got(), inited{51, -1, -1})
	f.mark()
	f.wantState("x", CompleteAbort, up(last))
	want(t, "after it", f.init("x"), coordinator.Producer{ID: f.next, Epoch: 0})

	// Nobody is told that epoch; who guesses it is aborted all the same.
	f = newFake(t)
	force(f, up(last), CompleteAbort)
	f.add("x", up(last), nil, t0)
	f.pass(2 * minute)
	f.run(f.s.AbortOverdue(f.now))
	f.mark()
	f.wantState("x", CompleteAbort, up(last))
	f.cfg.Markers = nil
	want(t, "no id", f.s.txns["x"].epoch, math.MaxInt16)
}

// TestNoProducerID answers what the source of ids says.
func TestNoProducerID(t *testing.T) {
	f := newFake(t)
	q := &api.InitProducerIdRequest{TransactionTimeoutMs: 1, ProducerId: -1, ProducerEpoch: -1}
	q.TransactionalId.String, q.TransactionalId.Valid = "x", true
	var got inited
	f.run(f.s.InitProducerID(q, 4, func() (int64, api.ErrorCode) { return 0, api.ErrKafkaStorageError }, f.now,
		func(p *api.InitProducerIdResponse) { got = inited{p.ErrorCode, p.ProducerId, p.ProducerEpoch} }))
	want(t, "answer", got, inited{56, -1, -1})
	want(t, "records", len(f.log), 0)
}

// TestEndTxnOrder: decision durable, then markers, then completion, then the answer (regressions 56, 58).
func TestEndTxnOrder(t *testing.T) {
	f := newFake(t)
	p := f.init("x")
	f.add("x", p, nil, t0, t1, u0)
	f.hold = true
	a := f.end("x", p, true, 3, nil)
	want(t, "handed out before the decision is durable", len(f.works), 0)
	want(t, "again", f.end("x", p, true, 3, nil).n, 0)
	f.sync(len(f.log))
	want(t, "works", fmt.Sprintf("%+v", f.works), fmt.Sprintf("%+v", []MarkerWork{{ID: "x", Decision: 2, Producer: p, CoordinatorEpoch: 3, Commit: true, Partitions: []Partition{t0, t1, u0}}}))
	a.waits()
	f.mark(t1)
	f.mark(t1, Partition{"other", 9})
	f.wantState("x", PrepareCommit, p)
	want(t, "left", fmt.Sprint(f.s.Describe("x").Topics), fmt.Sprint([]api.DescribeTransactionsResponseTopicData{{Topic: "t", Partitions: []int32{0}}, {Topic: "u", Partitions: []int32{0}}}))
	a.waits()
	f.mark(u0, t0)
	want(t, "answer", a.got(), api.ErrNone) // the decision is durable; the completion need not be
	f.wantState("x", CompleteCommit, p)
	b := f.add("x", p, nil, t0) // the next one begins at once
	f.wantState("x", Ongoing, p)
	b.waits()
	f.sync(len(f.log))
	want(t, "next", b.got(), api.ErrNone)
	f.run(f.s.MarkersWritten("x", 2, []Partition{t0}, f.now)) // a late report of the one before
	f.wantState("x", Ongoing, p)
	f.end("x", p, false, 3, nil)
	f.sync(len(f.log))
	f.run(f.s.MarkersWritten("x", 2, []Partition{t0}, f.now))
	f.wantState("x", PrepareAbort, p)
	f.run(f.s.MarkersWritten("y", 2, nil, f.now))
}

// TestEndTxnDoesNotWaitForever: markers that cannot be written keep nobody waiting, the decision is durable.
func TestEndTxnDoesNotWaitForever(t *testing.T) {
	f := newFake(t)
	p := f.init("x")
	f.add("x", p, nil, t0)
	a := f.end("x", p, true, 3, nil)
	f.pass(f.cfg.AnswerWithin - time.Millisecond)
	a.waits()
	f.pass(time.Millisecond)
	want(t, "answer", a.got(), api.ErrNone)
	want(t, "next transaction", f.add("x", p, nil, t0).got(), api.ErrConcurrentTransactions)
	f.mark()
	f.wantState("x", CompleteCommit, p)
	want(t, "alarms", len(f.alarms), 0)

	a = f.commitPending(p)
	f.mark()
	want(t, "answer", a.got(), api.ErrNone)
	want(t, "alarms after an answer", len(f.alarms), 0)

	a = f.commitPending(p) // whose shard is given up meanwhile
	f.s.Closed(coordinator.ErrNotOwned)
	want(t, "answer", a.got(), api.ErrNone)
}

// TestMarkersAtOnce: markers that are there when they have been handed out keep EndTxn not even for a timer; the completion follows.
func TestMarkersAtOnce(t *testing.T) {
	f := newFake(t)
	p := f.init("x")
	f.add("x", p, nil, t0)
	f.hold = true
	f.take = func(w MarkerWork) bool { f.works = append(f.works, w); return true }
	a := f.end("x", p, true, 3, nil)
	a.waits() // for the decision
	f.sync(len(f.log))
	want(t, "answer", a.got(), api.ErrNone)
	want(t, "alarms", len(f.alarms), 0)
	f.wantState("x", PrepareCommit, p)
	f.mark()
	f.wantState("x", CompleteCommit, p)
}

func (f *fake) commitPending(p coordinator.Producer) *answered[api.ErrorCode] {
	want(f.t, "add", f.add("x", p, nil, t0).got(), api.ErrNone)
	a := f.end("x", p, true, 3, nil)
	a.waits()
	return a
}

// TestNoPartitions: a transaction that added nothing has no markers and is complete all the same.
func TestNoPartitions(t *testing.T) {
	f := newFake(t)
	p := f.init("x")
	want(t, "add nothing", f.add("x", p, nil).got(), api.ErrNone)
	f.wantState("x", Ongoing, p)
	a := f.end("x", p, true, 3, nil)
	f.pass(0)
	want(t, "answer", a.got(), api.ErrNone)
	f.wantState("x", CompleteCommit, p)
	want(t, "works", len(f.works), 0)
}

// TestCompletionIsWrittenAgain when there was no room.
func TestCompletionIsWrittenAgain(t *testing.T) {
	f := newFake(t)
	p := f.init("x")
	a := f.commitPending(p)
	f.fail = coordinator.ErrNotAvailable
	w := f.works[0]
	f.mark()
	want(t, "answer", a.got(), api.ErrNone)
	f.wantState("x", PrepareCommit, p)
	f.run(f.s.MarkersWritten(w.ID, w.Decision, w.Partitions, f.now)) // told twice: now at once
	f.wantState("x", CompleteCommit, p)
	records := len(f.log)
	f.pass(minute)
	want(t, "records", len(f.log), records)

	f.commitPending(p)
	f.fail = coordinator.ErrNotAvailable
	f.mark()
	f.pass(completeAgainAfter)
	f.wantState("x", CompleteCommit, p)
}

// TestEndTxnFailedWrite leaves the transaction open.
func TestEndTxnFailedWrite(t *testing.T) {
	for err, code := range map[error]api.ErrorCode{coordinator.ErrNotAvailable: 15, coordinator.ErrNotOwned: 16, coordinator.ErrTooLarge: -1, coordinator.ErrLoading: 14} {
		f := newFake(t)
		p := states[Ongoing](f)
		f.fail = fmt.Errorf("%w: %w", err, errDisk)
		want(t, "end", f.end("x", p, true, 3, nil).got(), code)
		f.wantState("x", Ongoing, p)
		want(t, "works", len(f.works), 0)
		f.fail = err
		want(t, "add", f.add("x", p, nil, u0).got(), code)
		want(t, "verify", fmt.Sprint(f.verify("x", p, nil, t0, u0).got()), fmt.Sprint(verified{0, codes(0, 48)}))
	}
}

// TestRestart: every state comes back, and what is decided goes on (regression 56).
func TestRestart(t *testing.T) {
	for from, begin := range states {
		f := newFake(t)
		p := begin(f)
		f.crash(0)
		f.wantState("x", from, p)
		want(t, "handed out while loading", len(f.works), 0)
		f.pass(0)
		if !from.prepared() {
			want(t, "works", len(f.works), 0)
			continue
		}
		w := f.works[0]
		want(t, "work", fmt.Sprintf("%+v", w), fmt.Sprintf("%+v", MarkerWork{ID: "x", Decision: 2, Producer: p, CoordinatorEpoch: 3, Commit: from == PrepareCommit, Partitions: []Partition{t0}}))
		f.mark()
		f.wantState("x", Status(from+2), p)
		want(t, "next", f.add("x", p, nil, t0).got(), api.ErrNone)
	}
	// EndTxn after a reconnect, without InitProducerId (regression 59).
	f := newFake(t)
	p := states[Ongoing](f)
	f.crash(0)
	a := f.end("x", p, true, 3, nil)
	f.mark()
	want(t, "commit after a restart", a.got(), api.ErrNone)
}

// TestDecisionAtRestart: what is decided after a load, and before what was decided earlier is handed out, waits for its own durability.
func TestDecisionAtRestart(t *testing.T) {
	f := newFake(t)
	f.add("y", f.init("y"), nil, u0)
	p := decided(f, true)
	f.crash(0)
	f.hold = true
	q := coordinator.Producer{ID: f.s.txns["y"].producerID, Epoch: 0}
	f.end("y", q, true, 3, nil)
	f.pass(0)
	want(t, "works", len(f.works), 1)
	want(t, "work", f.works[0].Producer, p)
	f.sync(len(f.log))
	want(t, "works", len(f.works), 2)
	want(t, "work", f.works[1].Producer, q)

	f = newFake(t) // who was at work before a reload completes it before it is handed out again
	p = decided(f, true)
	f.reload(0)
	f.mark()
	f.wantState("x", CompleteCommit, p)
	f.pass(0)
	want(t, "works", len(f.works), 0)
}

// TestEmptyDecisionAfterRestart: a transaction without partitions that was decided is completed too.
func TestEmptyDecisionAfterRestart(t *testing.T) {
	f := newFake(t)
	p := f.init("x")
	f.add("x", p, nil)
	f.end("x", p, false, 3, nil)
	f.crash(0)
	f.wantState("x", PrepareAbort, p)
	f.pass(0)
	f.wantState("x", CompleteAbort, p)
}

// TestNothingShowsBeforeItIsDurable (regression 57).
func TestNothingShowsBeforeItIsDurable(t *testing.T) {
	f := newFake(t)
	f.hold = true
	a := f.initAs("x", nobody, minute, 4, nil)
	a.waits()
	f.sync(len(f.log))
	p := coordinator.Producer{ID: a.got().id, Epoch: 0}
	b := f.add("x", p, nil, t0)
	c := f.add("x", p, nil, t0) // there already, but not durable
	v := f.verify("x", p, nil, t0, t1)
	b.waits()
	c.waits()
	v.waits()
	f.sync(len(f.log))
	want(t, "added", b.got()+c.got(), 0)
	if got := v.got(); !reflect.DeepEqual(got, verified{0, codes(0, 48)}) {
		t.Fatal(got)
	}
	f.initAs("y", nobody, minute, 4, nil).waits()
	if got := f.verify("x", p, nil, t0).got(); !reflect.DeepEqual(got, verified{0, codes(0)}) { // not kept by another id
		t.Fatal(got)
	}
	f.add("x", p, nil, u0)
	d := f.verify("x", p, nil, u0)
	f.reload(0)
	if got := d.got(); !reflect.DeepEqual(got, verified{16, nil}) {
		t.Fatal(got)
	}
}

// TestTimeouts: a transaction that is open for too long is aborted and its producer loses the epoch (regression 60).
func TestTimeouts(t *testing.T) {
	f := newFake(t)
	p := states[Ongoing](f)
	f.pass(30 * time.Second)
	f.add("x", p, nil, u0) // time counts from the first
	f.pass(30 * time.Second)
	f.run(f.s.AbortOverdue(f.now))
	f.wantState("x", Ongoing, p)
	f.pass(time.Millisecond)
	f.fail = coordinator.ErrNotAvailable
	f.run(f.s.AbortOverdue(f.now))
	f.wantState("x", Ongoing, p)
	f.run(f.s.AbortOverdue(f.now))
	f.wantState("x", PrepareAbort, up(p))
	want(t, "work", fmt.Sprint(f.works[0].Producer, f.works[0].Commit, f.works[0].Partitions), fmt.Sprint(up(p), false, []Partition{t0, u0}))
	want(t, "commit", f.end("x", p, true, 3, nil).got(), api.ErrProducerFenced)
	want(t, "commit", f.end("x", p, true, 1, nil).got(), api.ErrInvalidProducerEpoch)
	f.mark()
	f.wantState("x", CompleteAbort, up(p))
	want(t, "recovery", f.initAs("x", p, minute, 4, nil).got(), inited{90, -1, -1})
	want(t, "init", f.init("x"), up(up(p)))
	f.pass(time.Hour)
	f.run(f.s.AbortOverdue(f.now))
	f.wantState("x", Empty, up(up(p)))
}

// TestManyTimeouts go in several batches.
func TestManyTimeouts(t *testing.T) {
	f := newFake(t)
	const n = 2*abortsPerBatch + 7
	for i := range n {
		id := fmt.Sprint("x", i)
		p := f.init(id)
		f.add(id, p, nil, t0)
	}
	f.largest = 0
	f.pass(2 * minute)
	f.sweep()
	want(t, "works", len(f.works), n)
	want(t, "largest batch", f.largest, abortsPerBatch)
	for len(f.works) > 0 {
		f.mark()
	}
	var total Totals
	f.s.AddTo(&total)
	want(t, "complete", total, Totals{CompleteAbort: n})
}

// TestLargeTimeouts: batches of aborts are bounded in bytes as well.
func TestLargeTimeouts(t *testing.T) {
	f := newFake(t)
	many := make([]Partition, 40_000)
	for i := range many {
		many[i] = Partition{"t", int32(i)}
	}
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		f.add(id, f.init(id), nil, many...)
	}
	f.largest = 0
	f.pass(2 * minute)
	f.sweep()
	want(t, "works", len(f.works), 5)
	want(t, "largest batch", f.largest, 2)
}

// TestExpiry: ids without a transaction that nobody has used for long are removed, for good.
func TestExpiry(t *testing.T) {
	for from, begin := range states {
		f := newFake(t)
		begin(f)
		f.pass(f.cfg.Expiration - time.Hour)
		f.sweep()
		f.pass(0)
		if from == Ongoing {
			f.mark()
			continue
		}
		want(t, "before", f.s.Describe("x").ErrorCode, api.ErrNone)
		f.pass(time.Hour)
		f.sweep()
		if from.prepared() {
			want(t, from.String(), f.s.Describe("x").TransactionState, from.String())
			continue
		}
		want(t, from.String(), f.s.Describe("x").ErrorCode, api.ErrTransactionalIdNotFound)
		want(t, "tombstone", fmt.Sprintf("%x %v", f.log[len(f.log)-1].Key, f.log[len(f.log)-1].Value == nil), "0000000178 true")
		f.crash(0)
		want(t, "after a restart", f.s.Describe("x").ErrorCode, api.ErrTransactionalIdNotFound)
		want(t, "as new", f.init("x"), coordinator.Producer{ID: f.next, Epoch: 0})
	}
}

// TestExpiryInBatches: many ids, a failed write, and ids that are used meanwhile.
func TestExpiryInBatches(t *testing.T) {
	f := newFake(t)
	const n = tombstonesPerBatch + 5
	for i := range n {
		f.init(fmt.Sprintf("x%05d", i))
	}
	f.largest = 0
	f.pass(f.cfg.Expiration)
	f.fail = coordinator.ErrNotAvailable
	f.sweep()
	want(t, "left", len(f.s.txns), n)
	f.run(f.s.Expire(f.now)) // the first batch
	want(t, "left", len(f.s.txns), 5)
	f.init("x01004")
	f.pass(0)
	want(t, "left", fmt.Sprint(len(f.s.txns), f.s.Describe("x01004").ProducerEpoch), "1 1")
	want(t, "largest batch", f.largest, tombstonesPerBatch)
}

// TestDescribeAndList.
func TestDescribeAndList(t *testing.T) {
	f := newFake(t)
	p := f.init("b")
	q := f.init("a")
	r := f.init("c")
	f.add("b", p, nil, u0, t1, t0)
	f.commit("c", r, t0)
	d := f.s.Describe("b")
	want(t, "described", fmt.Sprintf("%+v", d), fmt.Sprintf("%+v", api.DescribeTransactionsResponseTransactionState{
		TransactionalId: "b", TransactionState: "Ongoing", TransactionTimeoutMs: 60_000, TransactionStartTimeMs: f.now.UnixMilli(), ProducerId: p.ID,
		Topics: []api.DescribeTransactionsResponseTopicData{{Topic: "t", Partitions: []int32{0, 1}}, {Topic: "u", Partitions: []int32{0}}}}))
	want(t, "complete", fmt.Sprint(f.s.Describe("c").TransactionStartTimeMs, len(f.s.Describe("c").Topics)), fmt.Sprint(f.now.UnixMilli(), 0))
	want(t, "unknown", f.s.Describe("nobody").ErrorCode, api.ErrTransactionalIdNotFound)
	want(t, "empty", f.s.Describe("").ErrorCode, api.ErrInvalidRequest)
	for _, c := range []struct {
		states []string
		ids    []int64
		want   []string
	}{
		{nil, nil, []string{"a", "b", "c"}},
		{[]string{"Ongoing"}, nil, []string{"b"}},
		{[]string{"Ongoing", "Empty", "nonsense"}, nil, []string{"a", "b"}},
		{[]string{"ongoing"}, nil, nil},
		{[]string{"Dead", "PrepareEpochFence"}, nil, nil},
		{nil, []int64{q.ID, r.ID, 99999}, []string{"a", "c"}},
		{[]string{"CompleteCommit"}, []int64{q.ID, r.ID}, []string{"c"}},
	} {
		var got []string
		for _, l := range f.s.List(&api.ListTransactionsRequest{StateFilters: c.states, ProducerIdFilters: c.ids}) {
			got = append(got, l.TransactionalId)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v %v: %v, want %v", c.states, c.ids, got, c.want)
		}
	}
	want(t, "unknown states", fmt.Sprint(UnknownStates([]string{"Ongoing", "ongoing", "Dead", "x"})), "[ongoing x]")
}

// TestForVersion: 90 came late (regression 58).
func TestForVersion(t *testing.T) {
	for key, since := range map[int16]int16{api.KeyInitProducerId: 4, api.KeyAddPartitionsToTxn: 2, api.KeyAddOffsetsToTxn: 2, api.KeyEndTxn: 2} {
		want(t, "before", ForVersion(key, since-1, api.ErrProducerFenced), api.ErrInvalidProducerEpoch)
		want(t, "since", ForVersion(key, since, api.ErrProducerFenced), api.ErrProducerFenced)
		want(t, "others", ForVersion(key, 0, api.ErrConcurrentTransactions), api.ErrConcurrentTransactions)
	}
	f := newFake(t)
	p := f.init("x")
	want(t, "AddOffsets v1", f.addOffsets("x", up(p), 1), api.ErrInvalidProducerEpoch)
	want(t, "AddOffsets v3", f.addOffsets("x", up(p), 3), api.ErrProducerFenced)
}
