package causal

import (
	"slices"

	"github.com/google/uuid"

	"kaas/codec/parsley"
)

// Limits that apply where Config has zero.
const (
	DefaultHeldBytes    = 16 << 20
	DefaultReleaseBytes = 32 << 20
	DefaultStampBytes   = 256 << 10
)

// Config says what a node is. Identity, channels and sinks may change only between two lives of a node.
type Config struct {
	Sender   uuid.UUID         // parsley.SenderID
	Consumed []parsley.Channel // in any order; duplicates count once
	Sinks    []uuid.UUID       // topic ids; likewise

	// Parity makes the node write exactly what the existing implementation writes, faults included: sequences begin at 0, a
	// record that is fed again while held is held twice, headers are lost, and what else the package comment lists. It is
	// for comparing with that implementation, never for production.
	Parity bool

	// HeldBytes bounds the held records kept in memory, over all queues, once they are in the store; others are read from
	// there when their turn comes, a page of PageRecords for each queue. 0 is DefaultHeldBytes, negative: none.
	HeldBytes int64
	// ReleaseBytes bounds what one call delivers: beyond it More is true. 0 is DefaultReleaseBytes. Parity ignores it.
	ReleaseBytes int64
	// StampBytes bounds the clock of a stamp: ErrStampSize. 0 is DefaultStampBytes. Parity ignores it.
	StampBytes int
}

// Delivery is a record whose past was delivered before it. Key, Value and Headers are valid until the next call of a
// method of the node other than Stamp, and must not be changed.
type Delivery struct {
	Channel   parsley.Channel
	Offset    int64
	Timestamp int64
	Key       []byte
	Value     []byte
	Headers   []parsley.Header // those that are not of the protocol
}

// phase of a node's life.
type phase uint8

const (
	opened phase = iota
	started
)

// Node is one life of a node: see the package comment. Not safe for concurrent use.
type Node struct {
	cfg   Config
	rules parsley.Rules
	store Store
	phase phase
	err   error // sticky: see fail

	// channels are the consumed ones in ascending order; ids and rows are of the same.
	channels []*channel
	ids      []parsley.Channel
	rows     []row
	byID     map[parsley.Channel]*channel
	last     *channel // of the last look-up; records come in runs
	sinks    []*sink  // every channel with an entry in sq or own outputs, ascending
	sinkByID map[parsley.Channel]*sink
	carried  parsley.Clock // ca

	// merged is the clock of the next stamp, kept up to date: frontiers, advertised clocks, carried ancestry, own outputs and
	// self-claims, normalised. It only grows, but for the sweeps, which build it anew.
	merged  parsley.Clock
	base    int64 // where sequences of a channel begin that has none in the store
	replays int64
	agenda  agenda
	memory  int64 // bytes of held records in memory that are in the store too
	pending int64 // bytes of held records that are not in the store yet

	carriedDirty, scopeDirty bool
	dirtyChannels            []*channel
	dirtySinks               []*sink
	removed                  [][]byte // keys to be deleted
	former                   former

	scratch parsley.Clock // of normalising
	held    parsley.Held  // of reading a head
	needs   []need        // of the gate at arrival
	key     []byte        // of flushing
	value   []byte
	counts  Counts
}

// channel is the state of one consumed channel.
type channel struct {
	*row
	id    parsley.Channel
	index int // in Node.channels

	known      int64 // everything below was fed or skipped
	resume     int64 // −1: the committed position governs
	seen       bool  // read in an earlier life
	advertised parsley.Clock
	advertises bool // cc is in the store, or about to be

	waiting waits // heads that wait for the frontier
	hints   hints // of the gate

	queue  queue
	head   head
	listed bool // on the agenda

	dirty                          bool // in Node.dirtyChannels
	frontierDirty, advertisedDirty bool
	dirtyMarks                     []*mark
	keys                           struct{ frontier, advertised, queue []byte } // of the store, once they are needed
}

// mark is the delivered mark of one sender on one channel.
type mark struct {
	sender   uuid.UUID
	sequence int64 // unseen: only somebody waits for it
	offset   int64
	dirty    bool
	waiting  waits
	key      []byte // of the store, once it is needed
}

// sink is what the node knows of its own sends to one channel.
type sink struct {
	id       parsley.Channel
	sent     int64 // sq, if has
	has      bool
	baseline int64 // sequences at or below are covered by own; −1: none
	own      int64 // own outputs: everything at or below; −1: nothing
	dirty    bool
	key      []byte // of the store, once it is needed
}

// Counts are figures of a node since Open. They only grow.
type Counts struct {
	Delivered    int64 // records
	HeldRecords  int64 // records that had to wait
	Stamps       int64
	GateChecks   int64 // clocks looked at
	ClaimsWoken  int64 // waits that ended
	PagesRead    int64 // pages of held records read back from the store
	StoreOps     int64 // puts and deletes
	StoreBatches int64
}

// Counts returns the figures.
func (n *Node) Counts() Counts { return n.counts }

func newNode(cfg Config, store Store) *Node {
	cfg.Consumed = sortedUnique(cfg.Consumed, parsley.Channel.Compare)
	cfg.Sinks = sortedUnique(cfg.Sinks, parsley.CompareUUIDs)
	if cfg.HeldBytes == 0 {
		cfg.HeldBytes = DefaultHeldBytes
	}
	if cfg.ReleaseBytes == 0 {
		cfg.ReleaseBytes = DefaultReleaseBytes
	}
	if cfg.StampBytes == 0 {
		cfg.StampBytes = DefaultStampBytes
	}
	n := &Node{cfg: cfg, store: store, byID: make(map[parsley.Channel]*channel, len(cfg.Consumed)), sinkByID: map[parsley.Channel]*sink{}}
	if cfg.Parity {
		n.rules = parsley.Parity
	}
	n.ids, n.rows = cfg.Consumed, make([]row, len(cfg.Consumed))
	for i, id := range cfg.Consumed {
		c := newChannel(id, i, &n.rows[i])
		n.channels = append(n.channels, c)
		n.byID[id] = c
	}
	return n
}

func newChannel(id parsley.Channel, index int, r *row) *channel {
	r.set(&id)
	r.frontier = -1
	return &channel{row: r, id: id, index: index, resume: -1, queue: queue{last: -1}}
}

func sortedUnique[T comparable](list []T, compare func(a, b T) int) []T {
	list = slices.Clone(list)
	slices.SortFunc(list, compare)
	return slices.Compact(list)
}

// consumed finds a consumed channel; nil: it is none.
func (n *Node) consumed(id parsley.Channel) *channel {
	if n.last != nil && n.last.id == id {
		return n.last
	}
	c := n.byID[id]
	if c != nil {
		n.last = c
	}
	return c
}

// ready is the error of a node that failed or is in another phase.
func (n *Node) ready(want phase, what string) error {
	if n.err != nil {
		return n.err
	}
	if n.phase != want {
		return &Refusal{What: what, Offset: -1, Reason: ErrPhase}
	}
	return nil
}

func (n *Node) touch(c *channel) {
	if !c.dirty {
		c.dirty = true
		n.dirtyChannels = append(n.dirtyChannels, c)
	}
}

func (n *Node) touchSink(s *sink) {
	if !s.dirty {
		s.dirty = true
		n.dirtySinks = append(n.dirtySinks, s)
	}
}

// findMark is the place of a sender among the marks, and whether it is there.
func (r *row) findMark(sender uuid.UUID) (int, bool) {
	if len(r.marks) > 0 && r.marks[0].sender == sender { // as a rule a channel has few senders
		return 0, true
	}
	return slices.BinarySearchFunc(r.marks, sender, func(e entry, id uuid.UUID) int { return parsley.CompareUUIDs(e.sender, id) })
}

// markOf finds the mark of a sender, and makes one that nothing was delivered for yet. The entry is valid until the next.
func (r *row) markOf(sender uuid.UUID) *entry {
	i, ok := r.findMark(sender)
	if !ok {
		r.marks = slices.Insert(r.marks, i, entry{sender, unseen, &mark{sender: sender, sequence: unseen}})
	}
	return &r.marks[i]
}
