package txn

import (
	"flag"
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"time"

	"kaas/codec/api"
	"kaas/server/coordinator"
	"kaas/server/history"
)

var (
	seeds     = flag.Int("seeds", 40, "random histories of TestHistories")
	firstSeed = flag.Int("first", 0, "the first `seed` of TestHistories")
)

// The world is a broker in small: the coordinator's shard, partitions with what a log knows of producers, who writes markers, and producers that
// run transactions, two of them under each transactional id. Any two steps may have a crash between them, after which every log keeps what was
// durable and a random part of the rest; answers get lost; the coordinator's log fails alone; clocks jump. What the producers were told is held
// against what the partitions hold in the end.
type world struct {
	t     testing.TB
	rng   *rand.Rand
	f     *fake
	parts []*part
	all   []*producer
	tries []*attempt
	jobs  []*job
	work  map[inWork]bool
	told  []MarkerWork // reports of markers, to be made again
	life  int          // of the process; what was begun in an earlier one is lost
	seen  map[coordinator.Producer]int
	calm  bool // no more faults, nobody begins anything
	did   map[string]int
}

// part is a partition.
type part struct {
	recs   []rec
	stable int
	due    []due
}

// rec is a record of a partition, or a marker.
type rec struct {
	marker, commit bool
	p              coordinator.Producer
	try, n         int
}

// attempt is one transaction as its producer knows it.
type attempt struct {
	seq    int
	p      coordinator.Producer
	sent   map[int]int  // by partition: records that were given to it
	acked  []rec        // try and n as written, with the partition in p.ID
	unsure bool         // an answer of Produce was lost: it must not be committed
	asked  map[bool]int // EndTxn by decision
	ended  *bool        // what an answer of EndTxn said
}

// job is the markers of one decision, as who writes them keeps it.
type job struct {
	w    MarkerWork
	mine []Partition
	todo []Partition // not written
	left int         // not durable
}

// inWork names a marker that is being written and told of.
type inWork struct {
	id       string
	decision int64
	p        Partition
}

// producer is one client.
type producer struct {
	id       string
	p        coordinator.Producer // nobody before the first InitProducerId and after it was fenced
	ready    bool                 // its producer id is its own, as far as it knows
	cur      *attempt
	added    []int
	busy     bool // waits for an answer
	decision *bool
	clean    bool // the EndTxn that is asked has had no answer lost so far
}

const (
	worldParts = 3
	worldIDs   = 3
)

func newWorld(t testing.TB, seed int64) *world {
	w := &world{t: t, rng: rand.New(rand.NewSource(seed)), f: newFake(t), seen: map[coordinator.Producer]int{}, work: map[inWork]bool{}, did: map[string]int{}}
	w.f.hold = true
	w.f.take = w.takeWork
	for range worldParts {
		w.parts = append(w.parts, &part{})
	}
	for i := range 2 * worldIDs {
		w.all = append(w.all, &producer{id: fmt.Sprint("id", i%worldIDs), p: nobody})
	}
	return w
}

func (w *world) failf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf(format, args...)
}

// takeWork is where the coordinator hands markers out. Partitions of the same decision that are in work already are not taken twice.
func (w *world) takeWork(m MarkerWork) bool {
	w.did["handed out"]++
	j := &job{w: m}
	for _, p := range m.Partitions {
		k := inWork{m.ID, m.Decision, p}
		if w.work[k] {
			w.did["in work already"]++
			continue
		}
		w.work[k] = true
		j.mine = append(j.mine, p)
	}
	if j.left = len(j.mine); j.left == 0 {
		return false
	}
	if j.left == len(m.Partitions) && w.rng.Intn(3) == 0 && w.markAtOnce(j) {
		return true
	}
	j.todo = slices.Clone(j.mine)
	w.jobs = append(w.jobs, j)
	return false
}

// markAtOnce writes the markers of a job where nothing waits for a disk, and they are durable; the coordinator is told by its next operation.
func (w *world) markAtOnce(j *job) bool {
	for _, at := range j.mine {
		if len(w.parts[at.Index].due) > 0 {
			return false
		}
	}
	for _, at := range j.mine {
		pt := w.parts[at.Index]
		w.checkMarker(j, pt)
		pt.recs = append(pt.recs, rec{marker: true, commit: j.w.Commit, p: j.w.Producer})
		pt.stable = len(pt.recs)
	}
	w.did["marked at once"]++
	life := w.life
	w.f.queued = append(w.f.queued, func() {
		if life == w.life {
			w.tell(j)
		}
	})
	return true
}

// checkMarker fails for a marker that a partition would refuse.
func (w *world) checkMarker(j *job, pt *part) {
	if pt.epochOf(j.w.Producer.ID) > j.w.Producer.Epoch {
		w.failf("marker of epoch %d after one of epoch %d", j.w.Producer.Epoch, pt.epochOf(j.w.Producer.ID))
	}
}

// tell tells the coordinator that all markers of a job are there.
func (w *world) tell(j *job) {
	for _, p := range j.mine {
		delete(w.work, inWork{j.w.ID, j.w.Decision, p})
	}
	w.f.run(w.f.s.MarkersWritten(j.w.ID, j.w.Decision, j.mine, w.f.now))
	w.told = append(w.told, MarkerWork{ID: j.w.ID, Decision: j.w.Decision, Partitions: j.mine})
}

// mark writes one marker of a job. When all are durable the coordinator is told; until then, and not only until they are durable, they are in
// work: one that is handed out again in between would be written when the report of this one has made the transaction complete.
func (w *world) mark(j *job) {
	i := w.rng.Intn(len(j.todo))
	at := j.todo[i]
	if j.todo = slices.Delete(j.todo, i, i+1); len(j.todo) == 0 {
		w.jobs = slices.DeleteFunc(w.jobs, func(x *job) bool { return x == j })
	}
	pt := w.parts[at.Index]
	w.checkMarker(j, pt)
	w.append(pt, rec{marker: true, commit: j.w.Commit, p: j.w.Producer}, func() {
		if j.left--; j.left == 0 {
			w.tell(j)
		}
	})
}

// append adds to a partition; stable is called when that is durable, unless the process dies before.
func (w *world) append(pt *part, r rec, stable func()) {
	life := w.life
	pt.recs = append(pt.recs, r)
	pt.due = append(pt.due, due{len(pt.recs), func(error) {
		if life == w.life {
			stable()
		}
	}})
}

func (pt *part) sync() {
	pt.stable = len(pt.recs)
	for len(pt.due) > 0 {
		d := pt.due[0]
		pt.due = pt.due[1:]
		d.done(nil)
	}
}

// epochOf is what the log of a partition knows of a producer: older epochs are refused.
func (pt *part) epochOf(id int64) int16 {
	e := noEpoch
	for _, r := range pt.recs {
		if r.p.ID == id {
			e = max(e, r.p.Epoch)
		}
	}
	return e
}

// crash ends the process. With a power cut, logs lose what was not durable, or a part of it.
func (w *world) crash() {
	w.did["crash"]++
	w.life++
	keep := func(n int) int { return w.rng.Intn(n + 1) }
	for _, pt := range w.parts {
		pt.recs = pt.recs[:pt.stable+keep(len(pt.recs)-pt.stable)]
		pt.stable, pt.due = len(pt.recs), nil
	}
	w.jobs, w.work = nil, map[inWork]bool{}
	w.f.crash(keep(len(w.f.log) - w.f.stable))
	for _, c := range w.all {
		if c.busy {
			c.busy = false
			c.lost()
		}
	}
}

// lost is an answer that does not come.
func (c *producer) lost() {
	c.clean = false
	if c.cur != nil && c.decision == nil {
		c.cur.unsure = true
	}
}

// begin has a producer wait for an answer of this life. answered is false for one of an earlier life.
func (w *world) begin(c *producer) (answered func() bool) {
	c.busy = true
	life := w.life
	return func() bool {
		if life != w.life {
			return false
		}
		c.busy = false
		return true
	}
}

// transient says that a producer has to come again.
func transient(code api.ErrorCode) bool {
	return code == api.ErrConcurrentTransactions || code == api.ErrCoordinatorNotAvailable || code == api.ErrNotCoordinator || code == api.ErrCoordinatorLoadInProgress
}

// step is one step of a producer.
func (w *world) step(c *producer) {
	switch {
	case c.busy:
	case !c.ready:
		if !w.calm && (!w.rivalOf(c).ready || w.rng.Intn(50) == 0) {
			w.initialize(c)
		}
	case c.decision != nil:
		w.end(c, *c.decision)
	case w.rng.Intn(40) == 0: // a program that is killed; the next one knows nothing
		c.ready, c.p, c.cur, c.added = false, nobody, nil, nil
	case c.cur != nil && (w.calm || w.rng.Intn(4) == 0) && len(c.added) > 0:
		commit := !c.cur.unsure && w.rng.Intn(4) > 0
		c.decision, c.clean = &commit, true
	case w.calm:
		c.ready = false
	case len(c.added) == 0 || w.rng.Intn(3) == 0:
		w.add(c)
	default:
		w.produce(c)
	}
}

// rivalOf is the other producer under a transactional id.
func (w *world) rivalOf(c *producer) *producer {
	for _, r := range w.all {
		if r != c && r.id == c.id {
			return r
		}
	}
	return nil
}

// fenced is the end of a producer's id.
func (c *producer) fenced() { c.ready, c.p, c.cur, c.added, c.decision = false, nobody, nil, nil, nil }

func (w *world) initialize(c *producer) {
	was := c.p
	ok := w.begin(c)
	w.f.initAs(c.id, was, time.Duration(1+w.rng.Intn(60))*time.Second, 4, func(got inited) {
		if !ok() {
			return
		}
		switch {
		case transient(got.code):
			w.did["init: "+got.code.String()]++
		case got.code == api.ErrProducerFenced:
			c.p = nobody
		case got.code != api.ErrNone:
			w.failf("InitProducerId: %v", got.code)
		default:
			p := coordinator.Producer{ID: got.id, Epoch: got.epoch}
			if w.seen[p]++; w.seen[p] > 1 && was == nobody {
				w.failf("%+v was given out twice", p)
			}
			w.did["init"]++
			c.p, c.ready, c.cur, c.added, c.decision = p, true, nil, nil, nil
		}
	})
}

func (w *world) add(c *producer) {
	if c.cur == nil {
		c.cur = &attempt{seq: len(w.tries), p: c.p, sent: map[int]int{}, asked: map[bool]int{}}
		w.tries = append(w.tries, c.cur)
	}
	i := w.rng.Intn(worldParts)
	ok := w.begin(c)
	w.f.add(c.id, c.p, func(code api.ErrorCode) {
		switch {
		case !ok():
		case code == api.ErrNone:
			if !slices.Contains(c.added, i) {
				c.added = append(c.added, i)
			}
		case code == api.ErrProducerFenced || code == api.ErrInvalidProducerIdMapping:
			w.did["fenced"]++
			c.fenced()
		case !transient(code):
			w.failf("AddPartitionsToTxn: %v", code)
		default:
			w.did["add: "+code.String()]++
		}
	}, Partition{"t", int32(i)})
}

// produce writes a record as the broker does: verified, then checked by the log.
func (w *world) produce(c *producer) {
	i := c.added[w.rng.Intn(len(c.added))]
	try := c.cur
	ok := w.begin(c)
	w.f.verify(c.id, c.p, func(v verified) {
		switch {
		case !ok():
		case v.code == api.ErrProducerFenced || v.code == api.ErrInvalidProducerIdMapping:
			c.fenced()
		case transient(v.code):
		case v.code != api.ErrNone:
			w.failf("verification: %v", v.code)
		case v.each[0] != api.ErrNone:
			w.failf("lost partition: %q has not %d, which was added", c.id, i)
		case w.parts[i].epochOf(try.p.ID) > try.p.Epoch:
			c.fenced()
		default:
			r := rec{p: try.p, try: try.seq, n: try.sent[i]}
			try.sent[i]++
			done := w.begin(c)
			w.append(w.parts[i], r, func() {
				if done() {
					r.p.ID = int64(i)
					try.acked = append(try.acked, r)
				}
			})
		}
	}, Partition{"t", int32(i)})
}

func (w *world) end(c *producer, commit bool) {
	try := c.cur
	try.asked[commit]++
	ok := w.begin(c)
	w.f.end(c.id, c.p, commit, 3, func(code api.ErrorCode) {
		switch {
		case !ok():
		case code == api.ErrNone:
			w.did[fmt.Sprint("commit: ", commit)]++
			try.ended = &commit
			c.cur, c.added, c.decision = nil, nil, nil
		case code == api.ErrProducerFenced || code == api.ErrInvalidProducerIdMapping:
			w.did["fenced at the end"]++
			c.fenced()
		case code == api.ErrInvalidTxnState && c.clean:
			w.failf("EndTxn of an open transaction: %v", code)
		case code == api.ErrNotCoordinator: // it may have been written
			c.clean = false
		case code == api.ErrInvalidTxnState: // which of the two ends it had is not known
			c.fenced()
		case !transient(code):
			w.failf("EndTxn: %v", code)
		default:
			w.did["end: "+code.String()]++
		}
	})
}

// disturb is what happens besides.
func (w *world) disturb() {
	switch n := w.rng.Intn(1000); {
	case n < 4:
		w.crash()
	case n < 8:
		w.did["reload"]++
		w.f.reload(w.rng.Intn(len(w.f.log) - w.f.stable + 1))
	case n < 20:
		w.f.fail = coordinator.ErrNotAvailable
	case n < 70:
		w.f.pass(time.Duration(w.rng.Intn(1000)) * time.Millisecond)
	case n < 75:
		w.f.pass(time.Minute)
	case n < 90:
		w.tick()
	case n < 91:
		w.f.pass(w.f.cfg.Expiration)
		w.tick()
	case n < 300:
		w.f.sync(w.f.stable + w.rng.Intn(len(w.f.log)-w.f.stable+1))
	case n < 550:
		w.parts[w.rng.Intn(worldParts)].sync()
	case n < 750 && len(w.jobs) > 0:
		w.mark(w.jobs[w.rng.Intn(len(w.jobs))])
	case n < 850:
		w.f.ring(w.f.now)
	case n < 900 && len(w.told) > 0: // of an earlier decision: late
		r := w.told[max(0, len(w.told)-1-w.rng.Intn(20))]
		if t := w.f.s.txns[r.ID]; t != nil && t.open != nil && t.open.decided != r.Decision {
			w.did["late report"]++
			w.f.run(w.f.s.MarkersWritten(r.ID, r.Decision, r.Partitions, w.f.now))
		}
	}
}

func (w *world) tick() {
	before := len(w.f.s.txns)
	w.f.sweep()
	if len(w.f.s.txns) < before {
		w.did["expired"]++
	}
}

// settle has everything that was begun end: nobody begins, every marker is written, what is open times out.
func (w *world) settle() {
	w.calm, w.f.fail = true, nil
	for round := 0; ; round++ {
		for len(w.jobs) > 0 {
			w.mark(w.jobs[0])
		}
		w.f.sync(len(w.f.log))
		for _, pt := range w.parts {
			pt.sync()
		}
		w.f.pass(time.Second)
		idle := true
		for _, c := range w.all {
			w.step(c)
			idle = idle && !c.ready
		}
		if round > 20 && idle {
			w.f.pass(w.f.cfg.MaxTimeout)
			w.tick()
		}
		if round > 60 {
			break
		}
	}
	if len(w.jobs) > 0 {
		w.failf("%d jobs without an end", len(w.jobs))
	}
	for id, x := range w.f.s.txns {
		if x.status.isOpen() {
			w.failf("%q is %s for ever", id, x.status)
		}
	}
}

// judge holds what producers were told against what partitions hold.
func (w *world) judge() {
	txns := make([]*history.Txn, len(w.tries))
	for i, try := range w.tries {
		x := &history.Txn{Name: fmt.Sprintf("%+v", *try), AskedCommit: try.asked[true] > 0, Sent: map[int32]int{}, Acked: map[int32]int{}}
		for p, n := range try.sent {
			x.Sent[int32(p)] = n
		}
		for _, r := range try.acked {
			x.Acked[int32(r.p.ID)] = max(x.Acked[int32(r.p.ID)], r.n+1)
		}
		if try.ended != nil {
			x.Told = map[bool]history.End{true: history.Committed, false: history.Aborted}[*try.ended]
		}
		txns[i] = x
	}
	logs := map[int32][]history.Record{}
	for i, pt := range w.parts {
		for _, r := range pt.recs {
			logs[int32(i)] = append(logs[int32(i)], history.Record{Producer: r.p.ID, Marker: r.marker, Commit: r.commit, Txn: r.try, N: r.n})
		}
	}
	for _, f := range history.Judge(txns, logs).Faults {
		w.t.Errorf("%s: %s", f.Kind, f.Text)
	}
}

// TestHistories is the judge. A failure names its seed.
func TestHistories(t *testing.T) {
	total := map[string]int{}
	for seed := *firstSeed; seed < *firstSeed+*seeds; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, int64(seed))
			for range 5000 {
				if w.rng.Intn(2) == 0 {
					w.step(w.all[w.rng.Intn(len(w.all))])
				} else {
					w.disturb()
				}
			}
			w.settle()
			w.judge()
			for what, n := range w.did {
				total[what] += n
			}
		})
	}
	t.Log(total)
	for _, what := range []string{"crash", "reload", "commit: true", "commit: false", "fenced at the end", "expired", "in work already", "marked at once", "late report", "init: CONCURRENT_TRANSACTIONS"} {
		if total[what] == 0 && *seeds >= 40 && !t.Failed() {
			t.Errorf("never happened: %s", what)
		}
	}
}
