// Package commit is group commit: many waiters, one sync.
//
// It knows neither files nor logs. Whoever writes says so (Schedule), whoever needs durability waits (Await), and one
// goroutine runs rounds: it takes every item scheduled since, syncs them through the functions it was given, several by one sync
// and the others in parallel, publishes how far each is durable and wakes the waiters. There is no timer: a round begins as soon as there is something
// to sync and the last round has ended, save for a bounded gather (see gather).
//
// Invariants: the durable end of an item never moves back, and is never more than what Sync says it covered; a failed sync poisons its item for good: its waiters, and all later ones, get the error, and it is never
// synced again (the kernel has dropped the error and perhaps the pages, so a later success would mean nothing). An error that wraps ErrNotNow
// is no failed sync: those who wait get it, and the item is synced when it is scheduled again.
package commit

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// ErrNotNow is wrapped by errors of Sync that came before anything was synced.
var ErrNotNow = errors.New("commit: not synced")

// Waiter is told once, from a goroutine of the group: nil when what it waited for is durable. It must not block.
type Waiter interface {
	Durable(err error)
}

// Config are the surroundings of a group.
type Config[T any] struct {
	// Sync makes everything durable that was written to the owner before the call, and returns how far that reaches: an
	// end (exclusive) in whatever unit the owner counts, read before the sync began.
	Sync func(owner T) (end int64, err error)
	// Pick and SyncPicked, if set, make several items durable with one sync. Pick is asked at the start of a round about all its items
	// that are not poisoned; it sets Picked, and End as Sync would return it, of those that SyncPicked is going to cover. SyncPicked runs
	// beside the Syncs of the others, if any was picked; an error of one item goes to its Outcome, one of all is returned.
	Pick       func(owners []T, out []Outcome)
	SyncPicked func(out []Outcome) error
	// Publish is called after each sync, before the waiters are woken; end is exclusive, and unchanged when err is not nil.
	Publish func(owner T, end int64, err error)
	// Threads bounds the syncs that run at the same time; at least 1.
	Threads int
	// OnRound, if set, is told about each round: how many items, how many waiters were released, how long the syncs took.
	OnRound func(items, released int, took time.Duration)
}

// Outcome is what becomes of one item of a round that Pick was asked about.
type Outcome struct {
	Picked bool
	End    int64
	Err    error
}

// Item is one thing to sync. It is embedded in its owner and is zero until Init.
type Item[T any] struct {
	owner   T
	durable atomic.Int64
	queued  atomic.Bool
	// refused is the ErrNotNow of the last round, until the next one begins: for those who come to wait after it.
	refused atomic.Pointer[error]

	mu      sync.Mutex // guards what follows; held for moments only
	waiters []waiting
	err     error
}

type waiting struct {
	end int64
	w   Waiter
}

// Init sets the owner, and what is durable already. It must not run beside any other call for this item.
func (it *Item[T]) Init(owner T, durable int64) {
	it.owner = owner
	it.durable.Store(durable)
}

// Durable is the end (exclusive) up to which the item is durable.
func (it *Item[T]) Durable() int64 { return it.durable.Load() }

// Err is why the item was poisoned, or nil.
func (it *Item[T]) Err() error {
	it.mu.Lock()
	defer it.mu.Unlock()
	return it.err
}

// Group commits items of one kind.
type Group[T any] struct {
	cfg     Config[T]
	waiting atomic.Int64 // waiters registered and not yet woken, of all items

	mu      sync.Mutex // guards pending and closed
	pending []*Item[T]
	closed  bool

	wake chan struct{} // capacity 1: something is pending
	done chan struct{}

	// What follows belongs to the committer, except that helpers take items of round by next.
	round    []*Item[T]
	owners   []T // of round, and what becomes of them, when Pick is set
	out      []Outcome
	together []*Item[T] // those picked
	next     atomic.Int64
	released atomic.Int64
	peak     atomic.Int64 // the most waiters seen in this round
	help     chan struct{}
	helpers  sync.WaitGroup
	pace     pace
	gate     gate
}

// New starts a group.
func New[T any](cfg Config[T]) *Group[T] {
	g := &Group[T]{cfg: cfg, wake: make(chan struct{}, 1), done: make(chan struct{}), help: make(chan struct{}, cfg.Threads)}
	g.gate.open()
	for range cfg.Threads - 1 {
		go g.helper()
	}
	go g.run()
	return g
}

// Schedule has the item synced in the next round. It is called after the write that it is to cover.
func (g *Group[T]) Schedule(it *Item[T]) {
	if it.queued.Load() || !it.queued.CompareAndSwap(false, true) {
		return
	}
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return
	}
	g.pending = append(g.pending, it)
	g.mu.Unlock()
	g.signal()
}

// ScheduleAll has the items synced in the next round, all in the same, and wakes the committer once.
func (g *Group[T]) ScheduleAll(items []*Item[T]) {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return
	}
	before := len(g.pending)
	for _, it := range items {
		if it.queued.CompareAndSwap(false, true) {
			g.pending = append(g.pending, it)
		}
	}
	some := len(g.pending) > before
	g.mu.Unlock()
	if some {
		g.signal()
	}
}

// Await reports true when the item is durable up to end (exclusive), or returns the error that poisoned it. Otherwise w is
// called once, later.
func (g *Group[T]) Await(it *Item[T], end int64, w Waiter) (bool, error) {
	if it.durable.Load() >= end {
		return true, nil
	}
	it.mu.Lock()
	defer it.mu.Unlock()
	if it.durable.Load() >= end {
		return true, nil
	}
	if it.err != nil {
		return false, it.err
	}
	if r := it.refused.Load(); r != nil && !it.queued.Load() {
		return false, *r
	}
	it.waiters = append(it.waiters, waiting{end, w})
	g.gate.passed(g.waiting.Add(1))
	return false, nil
}

type flushed chan error

func (f flushed) Durable(err error) { f <- err }

// Flush schedules the item and blocks until it is durable up to end.
func (g *Group[T]) Flush(it *Item[T], end int64) error {
	f := make(flushed, 1)
	g.Schedule(it)
	if done, err := g.Await(it, end, f); done || err != nil {
		return err
	}
	return <-f
}

// Poison marks the item as failed from outside, for an error that makes its unsynced data doubtful.
func (g *Group[T]) Poison(it *Item[T], err error) {
	g.finish(it, 0, err)
}

// Close ends the group after the rounds that are pending. Later writes are not committed.
func (g *Group[T]) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.signal()
	<-g.done
}

func (g *Group[T]) signal() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

func (g *Group[T]) run() {
	defer close(g.done)
	defer close(g.help)
	defer g.gate.close()
	for {
		<-g.wake
		for g.take() {
			g.commit()
		}
		g.mu.Lock()
		end := g.closed && len(g.pending) == 0
		g.mu.Unlock()
		if end {
			return
		}
	}
}

// take moves what is pending into the round, after a gather.
func (g *Group[T]) take() bool {
	g.mu.Lock()
	some := len(g.pending) > 0
	closed := g.closed
	g.mu.Unlock()
	if !some {
		return false
	}
	if !closed {
		g.pace.gather(&g.waiting, g.gate.wait)
	}
	g.mu.Lock()
	g.round, g.pending = g.pending, g.round[:0]
	g.mu.Unlock()
	return true
}

func (g *Group[T]) commit() {
	start := time.Now()
	g.released.Store(0)
	g.peak.Store(0)
	g.next.Store(0)
	items := len(g.round)
	g.pick()
	jobs := len(g.round)
	if len(g.together) > 0 {
		jobs++
	}
	for range min(jobs, g.cfg.Threads) - 1 {
		g.helpers.Add(1)
		g.help <- struct{}{}
	}
	g.syncPicked()
	g.syncSome()
	g.helpers.Wait()
	took := time.Since(start)
	released := int(g.released.Load())
	clear(g.round)
	g.pace.ended(took, g.peak.Load())
	if g.cfg.OnRound != nil {
		g.cfg.OnRound(items, released, took)
	}
}

// pick moves the items that one sync is going to cover from round to together, and takes poisoned ones out.
func (g *Group[T]) pick() {
	g.together = g.together[:0]
	keep := g.round[:0]
	g.owners, g.out = g.owners[:0], g.out[:0]
	for _, it := range g.round {
		it.refused.Store(nil)
		it.queued.Store(false) // before any sync: a write that the sync may miss queues the item again
		if it.Err() == nil {
			keep = append(keep, it)
			g.owners, g.out = append(g.owners, it.owner), append(g.out, Outcome{})
		}
	}
	clear(g.round[len(keep):])
	g.round = keep
	if g.cfg.Pick == nil || len(keep) == 0 {
		return
	}
	g.cfg.Pick(g.owners, g.out)
	rest, out := g.round[:0], g.out[:0]
	for i, it := range g.round {
		if g.out[i].Picked {
			g.together, out = append(g.together, it), append(out, g.out[i])
		} else {
			rest = append(rest, it)
		}
	}
	clear(g.owners)
	clear(g.round[len(rest):])
	g.round, g.out = rest, out
}

func (g *Group[T]) syncPicked() {
	if len(g.together) == 0 {
		return
	}
	err := g.cfg.SyncPicked(g.out)
	for i, it := range g.together {
		o := g.out[i]
		if o.Err == nil {
			o.Err = err
		}
		g.finish(it, o.End, o.Err)
	}
	clear(g.together)
}

func (g *Group[T]) helper() {
	for range g.help {
		g.syncSome()
		g.helpers.Done()
	}
}

func (g *Group[T]) syncSome() {
	for {
		i := int(g.next.Add(1)) - 1
		if i >= len(g.round) {
			return
		}
		it := g.round[i]
		end, err := g.cfg.Sync(it.owner)
		g.finish(it, end, err)
	}
}

// scratch is where finish collects the waiters it wakes without holding the item's lock.
var scratch = sync.Pool{New: func() any { return new([]Waiter) }}

func (g *Group[T]) finish(it *Item[T], end int64, err error) {
	wake := scratch.Get().(*[]Waiter)
	it.mu.Lock()
	if err == nil {
		err = it.err // poisoned from outside meanwhile
	}
	if err == nil {
		end = max(end, it.durable.Load())
		it.durable.Store(end)
	} else if errors.Is(err, ErrNotNow) {
		refused := err // err itself would be on the heap each time
		it.refused.Store(&refused)
	} else if it.err == nil {
		it.err = err
	}
	keep := it.waiters[:0]
	for _, w := range it.waiters {
		if err != nil || w.end <= end {
			*wake = append(*wake, w.w)
		} else {
			keep = append(keep, w)
		}
	}
	clear(it.waiters[len(keep):])
	it.waiters = keep
	it.mu.Unlock()

	g.cfg.Publish(it.owner, it.durable.Load(), err)
	n := len(*wake)
	// Counted before anybody is woken: those who come again at once must not be counted twice.
	for now, old := g.waiting.Load(), g.peak.Load(); now > old && !g.peak.CompareAndSwap(old, now); old = g.peak.Load() {
	}
	g.waiting.Add(int64(-n))
	g.released.Add(int64(n))
	for _, w := range *wake {
		w.Durable(err)
	}
	clear(*wake)
	*wake = (*wake)[:0]
	scratch.Put(wake)
}
