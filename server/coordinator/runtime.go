package coordinator

import (
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"kaas/codec/batch"
	"kaas/server/topics"
)

// Config are a runtime's surroundings.
type Config[S State] struct {
	// Topic finds the internal topic; nil while it is not there. It must be cheap and may be called from anywhere.
	Topic func() *topics.Topic
	// New makes the empty state of a shard.
	New func(shard int32, timers Timers) S
	// Codec compresses what is written.
	Codec batch.Codec
	// LoadBytes is how much a load reads at a time; a larger batch gets what it needs.
	LoadBytes int
	// Loaders bounds the shards that are loaded at the same time; 0: one per processor.
	Loaders int
	// Ticks are given to every shard again and again.
	Ticks []Tick[S]
	// Clock is the real one if nil.
	Clock  Clock
	Logger *slog.Logger
}

// Tick is an operation about no key in particular, and how often every shard is given it. The first time is after Every.
type Tick[S State] struct {
	Every time.Duration
	Do    Op[S]
}

// Runtime runs the shards of one internal topic. Its methods may be called from anywhere.
type Runtime[S State] struct {
	cfg    Config[S]
	alarms *alarms[S]
	home   atomic.Pointer[home[S]]
	slots  chan struct{} // one for each load under way

	mu     sync.Mutex // guards the binding to a topic, closed and ticks
	closed bool
	ticks  []func() bool // stop the next of each Tick
	busy   sync.WaitGroup

	counts counts
}

// home is what belongs to one topic; one deleted and made again gets another. The number of shards is that of the partitions when it was
// found: more of them would lead keys to other shards, so they count from the next start, as in Apache.
type home[S State] struct {
	topic  *topics.Topic
	shards []*shard[S]
}

// counts are what Stats reads.
type counts struct {
	operations, batches, records, bytes, failed, loadNanos atomic.Int64
}

// Stats are numbers of a runtime. They only grow, but for those of shards.
type Stats struct {
	Shards, Open int           // of the topic, and those that are loaded
	Operations   int64         // given to shards that ran them
	Batches      int64         // appended
	Records      int64         // in them
	Bytes        int64         // of them
	Failed       int64         // batches that were not appended
	Loading      time.Duration // summed over all loads
}

// New makes a runtime. It loads nothing before Load or the first operation.
func New[S State](cfg Config[S]) *Runtime[S] {
	if cfg.Clock == nil {
		cfg.Clock = realClock{}
	}
	if cfg.Loaders <= 0 {
		cfg.Loaders = runtime.GOMAXPROCS(0)
	}
	r := &Runtime[S]{cfg: cfg, slots: make(chan struct{}, cfg.Loaders)}
	r.alarms = newAlarms[S](cfg.Clock)
	r.ticks = make([]func() bool, len(cfg.Ticks))
	for i := range cfg.Ticks {
		r.tickLater(i)
	}
	return r
}

// Load begins to load all shards, if the topic is there, and returns at once.
func (r *Runtime[S]) Load() { _, _ = r.find() }

// find returns the shards of the topic that is there now.
func (r *Runtime[S]) find() (*home[S], error) {
	t := r.cfg.Topic()
	h := r.home.Load()
	if t == nil {
		if h != nil {
			r.bind(nil)
		}
		return nil, ErrNotOwned
	}
	if h == nil || h.topic != t {
		h = r.bind(t)
	}
	if h == nil {
		return nil, ErrNotOwned
	}
	return h, nil
}

// bind makes the shards of a topic and gives up those of the one before; nil for no topic, and when the runtime is closed.
func (r *Runtime[S]) bind(t *topics.Topic) *home[S] {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.home.Load()
	if r.closed || old != nil && old.topic == t {
		return old
	}
	if old != nil {
		for _, sh := range old.shards {
			sh.close()
		}
	}
	if t == nil {
		r.home.Store(nil)
		return nil
	}
	h := &home[S]{topic: t}
	for _, p := range t.Partitions() {
		sh := &shard[S]{rt: r, partition: p}
		r.busy.Add(1)
		h.shards = append(h.shards, sh)
		sh.load()
	}
	r.home.Store(h)
	return h
}

// Submit gives an operation to the shard of its key, on a goroutine other than the caller's. If it is not run, refused is told why, now
// or later.
func (r *Runtime[S]) Submit(key string, op Op[S], refused func(error)) {
	h, err := r.find()
	if err != nil {
		refused(err)
		return
	}
	h.of(key).submit(item[S]{key: key, op: op, refused: refused})
}

// Each gives an operation to every shard, for one that is about no key in particular. It waits for shards that are being loaded, and is
// dropped by those that are closed. refused, which may be nil, is called for each that drops it; the number of shards is returned.
func (r *Runtime[S]) Each(op Op[S], refused func(error)) int {
	h, err := r.find()
	if err != nil {
		return 0
	}
	for _, sh := range h.shards {
		sh.submit(item[S]{op: op, refused: refused, patient: true})
	}
	return len(h.shards)
}

// Ask gives an operation to every shard that is loaded. The others refuse it: with ErrLoading, or why they are closed.
func (r *Runtime[S]) Ask(op Op[S], refused func(error)) (shards int) {
	h, err := r.find()
	if err != nil {
		return 0
	}
	for _, sh := range h.shards {
		sh.submit(item[S]{op: op, refused: refused})
	}
	return len(h.shards)
}

// ShardOf is the index of the shard of a key; -1 while the topic is not there.
func (r *Runtime[S]) ShardOf(key string) int32 {
	h, err := r.find()
	if err != nil {
		return -1
	}
	return partitionOf(key, len(h.shards))
}

// of finds the shard of a key.
func (h *home[S]) of(key string) *shard[S] { return h.shards[partitionOf(key, len(h.shards))] }

// partitionOf is Apache's way from a key to a partition: String.hashCode of Java, without its sign, modulo the partitions.
func partitionOf(key string, partitions int) int32 {
	var h int32
	for _, c := range key {
		if c >= 0x10000 { // two units of UTF-16
			c -= 0x10000
			h = 31*h + (0xD800 + c>>10)
			c = 0xDC00 + c&0x3FF
		}
		h = 31*h + c
	}
	if h < 0 {
		h = max(-h, 0) // the least of all stays negative: 0
	}
	return h % int32(partitions)
}

// tickLater sets the next of a Tick.
func (r *Runtime[S]) tickLater(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.ticks[i] = r.cfg.Clock.AfterFunc(r.cfg.Ticks[i].Every, func() {
		r.Each(r.cfg.Ticks[i].Do, nil)
		r.tickLater(i)
	})
}

// Stats reads the numbers. It waits for moments only.
func (r *Runtime[S]) Stats() Stats {
	c := &r.counts
	s := Stats{Operations: c.operations.Load(), Batches: c.batches.Load(), Records: c.records.Load(), Bytes: c.bytes.Load(),
		Failed: c.failed.Load(), Loading: time.Duration(c.loadNanos.Load())}
	if h := r.home.Load(); h != nil {
		s.Shards = len(h.shards)
		for _, sh := range h.shards {
			if sh.isOpen() {
				s.Open++
			}
		}
	}
	return s
}

// Close answers whoever is parked with ErrNotOwned, refuses everything from now on, and returns when no shard does anything any more.
// Operations given before it are run first.
func (r *Runtime[S]) Close() {
	r.mu.Lock()
	r.closed = true
	for _, stop := range r.ticks {
		stop()
	}
	h := r.home.Load()
	r.mu.Unlock()
	if h != nil {
		for _, sh := range h.shards {
			sh.close()
		}
	}
	r.alarms.close()
	r.busy.Wait()
}

// Round gathers the operations that one event loop has in one of its rounds, so that they are run together at its end and share a batch.
// Only that loop may use it.
type Round[S State] struct {
	rt       *Runtime[S]
	reserved []*shard[S]
}

// NewRound makes the gatherer of one event loop.
func (r *Runtime[S]) NewRound() *Round[S] { return &Round[S]{rt: r} }

// Submit gives an operation to the shard of its key. If nobody is at work on that shard, it and what else comes until then is run by End;
// else by who is.
func (q *Round[S]) Submit(key string, op Op[S], refused func(error)) {
	q.submit(item[S]{key: key, op: op, refused: refused})
}

// SubmitBlind is Submit for an operation that looks at nothing that other such operations write: it may share a batch with those of its
// key, as several commits of one group do.
func (q *Round[S]) SubmitBlind(key string, op Op[S], refused func(error)) {
	q.submit(item[S]{key: key, op: op, refused: refused, blind: true})
}

// Now is Submit for an operation whose answer the loop would rather have before it goes on: it is run on the spot if nobody is at work on the
// shard and nothing waits for it.
func (q *Round[S]) Now(key string, op Op[S], refused func(error)) {
	h, err := q.rt.find()
	if err != nil {
		refused(err)
		return
	}
	if sh := h.of(key); sh.reserve(item[S]{key: key, op: op, refused: refused}) {
		sh.runOnce(nil)
	}
}

func (q *Round[S]) submit(it item[S]) {
	h, err := q.rt.find()
	if err != nil {
		it.refused(err)
		return
	}
	sh := h.of(it.key)
	if sh.reserve(it) {
		q.reserved = append(q.reserved, sh)
	}
}

// End runs what was given since the last End, on the caller's goroutine. It never waits for a commit; it blocks for the page cache only, as
// appends of Produce do. What is run may bring more to its shard, which is run as well, some turns deep; between, which may be nil, is called
// before each of those, so that answers need not wait for it.
func (q *Round[S]) End(between func()) {
	for i, sh := range q.reserved {
		sh.runOnce(between)
		q.reserved[i] = nil
	}
	q.reserved = q.reserved[:0]
}
