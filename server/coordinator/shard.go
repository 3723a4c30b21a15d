package coordinator

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"kaas/server/topics"
)

// phase is what a shard can do.
type phase uint8

const (
	loading phase = iota
	open
	closed // its log failed, or its state did; loaded anew when the log allows it
	gone   // for good
)

// loadAgainAfter is how long a shard that failed without its log is left alone before the next operation has it loaded anew.
const loadAgainAfter = time.Second

// itemsKept is up to how many operations a queue keeps its memory.
const itemsKept = 1024

// shard is one partition of the internal topic: a queue, and whoever works on it. That is one goroutine at a time, which exists while
// there is work; or an event loop at the end of its round.
type shard[S State] struct {
	rt        *Runtime[S]
	partition *topics.Partition

	mu      sync.Mutex // guards what follows; held for moments
	queue   []item[S]
	running bool // somebody works on the queue, or is about to
	news    bool // a commit ended
	closing bool // no operation is taken any more
	phase   phase
	again   time.Time // closed: not loaded anew before

	// What follows belongs to whoever runs the shard.
	items   []item[S] // taken from the queue
	at      int       // index of the one in work
	inOp    bool      // its operation is running, or about to
	state   S
	timers  *timers[S]
	writer  writer
	pending []*commitWait // appended and not yet durable, in order
	spare   *commitWait   // one that nobody waited for; used again
	writing []done        // of the batch that is being appended and replayed
	scratch scratch
}

// item is one operation in a queue, or a timer that fired, or the end of a transaction.
type item[S State] struct {
	key     string
	op      Op[S]
	refused func(error)
	patient bool // waits for a load
	blind   bool // does not look at what other blind ones write
	timer   Timer
	timers  *timers[S]
	marker  *marker
}

// refuse tells that the item is not run.
func (it *item[S]) refuse(err error) {
	if it.timer != 0 {
		it.timers.take(it.timer)
	}
	if it.refused != nil {
		it.refused(err)
	}
}

// done is an operation that waits for its answer.
type done struct {
	f     func(error)
	wrote bool
}

// commitWait is what waits for one append to be durable. It implements engine.DurableWaiter.
type commitWait struct {
	dones []done
	shard interface{ poke() }
	err   error // set before over
	over  atomic.Bool
}

// Durable is called by the committer.
func (w *commitWait) Durable(err error) {
	w.err = err
	w.over.Store(true)
	w.shard.poke()
}

// submit queues an item and has it run on a goroutine.
func (sh *shard[S]) submit(it item[S]) {
	if sh.reserve(it) {
		go sh.run()
	}
}

// reserve queues an item; true: nobody works on the queue, and the caller must now.
func (sh *shard[S]) reserve(it item[S]) bool {
	sh.mu.Lock()
	if err := sh.refusalLocked(&it); err != nil {
		sh.mu.Unlock()
		it.refuse(err)
		return false
	}
	sh.queue = append(sh.queue, it)
	start := !sh.running
	sh.running = true
	sh.mu.Unlock()
	return start
}

// refusalLocked is why an item is not taken; nil if it is. A shard that failed and may be loaded anew is.
func (sh *shard[S]) refusalLocked(it *item[S]) error {
	switch {
	case sh.closing:
		return ErrNotOwned
	case sh.phase == loading && !it.patient:
		return ErrLoading
	case sh.phase != closed:
		return nil
	case sh.partition.Log.Err() != nil || it.timer != 0 || sh.rt.cfg.Clock.Now().Before(sh.again):
		return ErrNotOwned
	}
	sh.loadLocked()
	return ErrLoading
}

// poke has the shard look at commits that ended.
func (sh *shard[S]) poke() {
	sh.mu.Lock()
	sh.news = true
	start := !sh.running
	sh.running = true
	sh.mu.Unlock()
	if start {
		go sh.run()
	}
}

// run works until there is nothing to do.
func (sh *shard[S]) run() {
	for sh.turn() {
	}
}

// turnsInRound is how many turns an event loop gives a shard at the end of a round. A small transaction takes two, one for its decision and
// one for the news of its markers; with one turn the second ran on a goroutine, which cost a wake-up of the loop and a third of the processor
// time of a transaction.
const turnsInRound = 4

// runOnce works on what there is and on what that brings, and leaves what comes after a few turns to a goroutine. between, which may be nil, is
// called after each turn that is not the last.
func (sh *shard[S]) runOnce(between func()) {
	for range turnsInRound {
		if !sh.turn() {
			return
		}
		if between != nil {
			between()
		}
	}
	go sh.run()
}

// turn works on what is queued, as one batch as far as it goes. False: there is no more, and whoever comes next has to run the shard.
func (sh *shard[S]) turn() (more bool) {
	sh.mu.Lock()
	sh.items, sh.queue = sh.queue, sh.items[:0]
	sh.news = false
	sh.mu.Unlock()
	sh.work()
	clear(sh.items)
	if cap(sh.items) > itemsKept {
		sh.items = nil
	}
	sh.mu.Lock()
	more = len(sh.queue) > 0 || sh.news
	end := !more && sh.closing && len(sh.pending) == 0 && sh.phase != gone
	if end {
		sh.phase = gone
	}
	sh.running = more
	sh.mu.Unlock()
	if end {
		sh.end()
	}
	return more
}

// work answers what became durable and runs the items. A panic in the state costs the shard its memory, not its truth: it is loaded anew.
func (sh *shard[S]) work() {
	defer func() {
		if v := recover(); v != nil {
			sh.panicked(v)
		}
	}()
	sh.at, sh.inOp = 0, false
	sh.settle()
	now := sh.rt.cfg.Clock.Now()
	for ; sh.at < len(sh.items); sh.at++ {
		sh.step(&sh.items[sh.at], now)
	}
	sh.flush(now)
}

// step runs one item.
func (sh *shard[S]) step(it *item[S], now time.Time) {
	if sh.timers == nil { // failed since it was queued
		it.refuse(ErrNotOwned)
		return
	}
	sh.rt.counts.operations.Add(1)
	sh.inOp = true // it is not run yet, but nobody else would tell it
	if sh.writer.shows(it.key, it.blind) {
		sh.flush(now)
	}
	var out Outcome
	switch {
	case it.marker != nil:
		sh.inOp = false
		sh.endTxn(it.marker, now)
		return
	case it.timer != 0:
		fn := it.timers.take(it.timer)
		if fn == nil || it.timers != sh.timers {
			return
		}
		out = fn(now)
	default:
		out = it.op(sh.state, now)
	}
	sh.inOp = false
	sh.take(it.key, it.blind, &out, now)
}

// settle answers what became durable, in order.
func (sh *shard[S]) settle() {
	for len(sh.pending) > 0 && sh.pending[0].over.Load() {
		w := sh.pending[0]
		if w.err != nil {
			sh.fail(w.err)
			return
		}
		sh.pending[0] = nil
		sh.pending = sh.pending[1:]
		tell(w.dones, nil)
	}
}

// tell answers.
func tell(ds []done, err error) {
	for i := range ds {
		if ds[i].f != nil {
			ds[i].f(err)
		}
	}
}

// fail gives up what the shard has in memory: it may show what is not in the log, or not what is.
func (sh *shard[S]) fail(cause error) {
	err := fmt.Errorf("%w: %w", ErrNotOwned, cause)
	pending, writing, dones := sh.pending, sh.writing, sh.writer.dones
	sh.pending, sh.writing, sh.writer = nil, nil, writer{}
	for _, w := range pending {
		tell(w.dones, err)
	}
	tell(writing, err)
	tell(dones, err)
	state := sh.state
	was := sh.timers != nil
	sh.forget()
	sh.mu.Lock()
	sh.phase, sh.again = closed, sh.rt.cfg.Clock.Now().Add(loadAgainAfter)
	sh.mu.Unlock()
	if was {
		state.Closed(err)
	}
}

// forget drops the state; its timers die with it.
func (sh *shard[S]) forget() {
	var none S
	sh.state, sh.timers = none, nil
}

// panicked ends the life of a state that panicked.
func (sh *shard[S]) panicked(v any) {
	sh.rt.cfg.Logger.Error("panic in a coordinator; its shard is loaded anew", "log", sh.partition.Log.String(), "panic", v, "stack", string(debug.Stack()))
	rest := sh.items[min(sh.at, len(sh.items)):]
	inOp := sh.inOp
	defer func() {
		if v := recover(); v != nil {
			sh.rt.cfg.Logger.Error("panic in a coordinator that is given up", "log", sh.partition.Log.String(), "panic", v)
		}
	}()
	err := fmt.Errorf("panic: %v", v)
	sh.fail(err)
	for i := range rest {
		if i > 0 || inOp { // else it was run, and whoever waits for it has been told or was lost with Done
			rest[i].refuse(fmt.Errorf("%w: %w", ErrNotOwned, err))
		}
	}
}

// close has the shard end for good once what was given to it is done.
func (sh *shard[S]) close() {
	sh.mu.Lock()
	start := !sh.running && !sh.closing
	sh.closing = true
	sh.running = true
	sh.mu.Unlock()
	if start {
		go sh.run()
	}
}

// end is the end for good.
func (sh *shard[S]) end() {
	defer sh.rt.busy.Done()
	if sh.timers == nil {
		return
	}
	state := sh.state
	sh.forget()
	state.Closed(ErrNotOwned)
}

// isOpen tells whether operations are run.
func (sh *shard[S]) isOpen() bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.phase == open && !sh.closing
}
