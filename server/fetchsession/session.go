// Package fetchsession keeps incremental fetch sessions (KIP-227): which partitions a consumer reads, how far, and what it was last
// told, so that a Fetch names only what changed and its answer only what is new.
//
// What it is not: it reads no logs and builds no answers; the Fetch handler asks it what to read and tells it what was answered.
//
// Invariants: the cache holds at most its number of slots (max.incremental.fetch.session.cache.slots); a session is evicted only when
// its last use, or its making, lies more than MinEvictionMs back; session ids are positive and not in use twice. The cache's mutex is
// taken before a session's and is never held while a session's partitions are walked.
package fetchsession

import (
	"container/list"
	"math/rand/v2"
	"sync"
)

// Epochs with a meaning of their own (KIP-227).
const (
	InitialEpoch int32 = 0  // a full fetch that asks for a new session
	FinalEpoch   int32 = -1 // a full fetch that wants none, and closes the one it names
)

// MinEvictionMs is how long a session is safe from eviction: 120 s, as in Apache.
const MinEvictionMs = 120_000

// Key names a partition in a session: by name (Fetch up to v12) or by id (from v13); the other of both is zero.
type Key struct {
	Topic     string
	TopicID   [16]byte
	Partition int32
}

// Partition is what a session remembers of one partition.
type Partition struct {
	Key
	FetchOffset      int64
	LogStartOffset   int64 // the fetcher's own
	MaxBytes         int32
	LeaderEpoch      int32
	LastFetchedEpoch int32
	Handle           any // the server's own, looked up once: kept until it says otherwise

	toldHighWatermark int64
	toldLogStart      int64
}

// Told compares what is to be answered with what was told last, and remembers it. It reports whether the partition must be in the
// answer: it has data, an error or a diverging epoch, or its high watermark or log start moved.
func (p *Partition) Told(highWatermark, logStart int64, failed, hasData bool) bool {
	respond := hasData || failed || p.toldHighWatermark != highWatermark || p.toldLogStart != logStart
	p.toldHighWatermark, p.toldLogStart = highWatermark, logStart
	if failed {
		p.toldHighWatermark = -1 // so that the first answer without the error is told
	}
	return respond
}

// Session is one incremental fetch session. Its exported methods want Lock to be held.
type Session struct {
	sync.Mutex
	ID      int32
	ByID    bool // partitions are named by topic id
	epoch   int32
	parts   map[Key]*list.Element
	order   *list.List // of *Partition; those that had data move to the end, so that all get their turn
	created int64
	used    int64
	size    int
}

// Len is the number of partitions.
func (s *Session) Len() int { return s.order.Len() }

// Set adds a partition or updates how far it is read. It keeps what was told of it.
func (s *Session) Set(p Partition) *Partition {
	if e, ok := s.parts[p.Key]; ok {
		old := e.Value.(*Partition)
		old.FetchOffset, old.LogStartOffset, old.MaxBytes = p.FetchOffset, p.LogStartOffset, p.MaxBytes
		old.LeaderEpoch, old.LastFetchedEpoch = p.LeaderEpoch, p.LastFetchedEpoch
		return old
	}
	n := new(Partition)
	*n = p
	n.toldHighWatermark, n.toldLogStart = -1, -1
	s.parts[p.Key] = s.order.PushBack(n)
	return n
}

// Forget removes a partition.
func (s *Session) Forget(k Key) {
	if e, ok := s.parts[k]; ok {
		s.order.Remove(e)
		delete(s.parts, k)
	}
}

// ToEnd moves a partition that was answered with data behind the others.
func (s *Session) ToEnd(k Key) {
	if e, ok := s.parts[k]; ok {
		s.order.MoveToBack(e)
	}
}

// Each calls f for every partition in the order of their turns.
func (s *Session) Each(f func(*Partition)) {
	for e := s.order.Front(); e != nil; e = e.Next() {
		f(e.Value.(*Partition))
	}
}

// First begins a walk in the order of their turns without a closure; the elements hold *Partition.
func (s *Session) First() *list.Element { return s.order.Front() }

// nextEpoch is the epoch of the following request; it wraps to 1, since 0 asks for a new session.
func nextEpoch(e int32) int32 {
	if e == 1<<31-1 {
		return 1
	}
	return e + 1
}

// Problem says why a session cannot be used.
type Problem int

// The ways a session request can be wrong.
const (
	OK           Problem = iota
	NotFound             // FETCH_SESSION_ID_NOT_FOUND (70)
	WrongEpoch           // INVALID_FETCH_SESSION_EPOCH (71)
	TopicIDMixed         // FETCH_SESSION_TOPIC_ID_ERROR (106): begun with names, continued with ids, or the other way round
)

// Cache holds the sessions of a broker.
type Cache struct {
	slots int

	mu       sync.Mutex
	sessions map[int32]*Session
}

// NewCache makes a cache of so many slots.
func NewCache(slots int) *Cache {
	return &Cache{slots: slots, sessions: make(map[int32]*Session)}
}

// Len is the number of sessions.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.sessions)
}

// Create makes a session for so many partitions, already at its first incremental epoch; nil when the cache is full of sessions that
// may not be evicted. now is in ms.
func (c *Cache) Create(now int64, byID bool, partitions int) *Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.sessions) >= c.slots && !c.evict(now, partitions) {
		return nil
	}
	s := &Session{ID: c.freeID(), ByID: byID, epoch: nextEpoch(InitialEpoch), parts: make(map[Key]*list.Element, partitions), order: list.New(),
		created: now, used: now, size: partitions}
	c.sessions[s.ID] = s
	return s
}

// freeID draws a session id that is not in use.
func (c *Cache) freeID() int32 {
	for {
		if id := rand.Int32(); id != 0 && c.sessions[id] == nil {
			return id
		}
	}
}

// evict makes room for a session of so many partitions: the longest unused one goes if it was idle for MinEvictionMs; failing that, the
// smallest of those made more than MinEvictionMs ago, if the new one is larger.
func (c *Cache) evict(now int64, partitions int) bool {
	var stale, small *Session
	for _, s := range c.sessions {
		if stale == nil || s.used < stale.used {
			stale = s
		}
		if now-s.created > MinEvictionMs && s.size < partitions && (small == nil || s.size < small.size) {
			small = s
		}
	}
	victim := small
	if stale != nil && now-stale.used > MinEvictionMs {
		victim = stale
	}
	if victim == nil {
		return false
	}
	delete(c.sessions, victim.ID)
	return true
}

// Remove closes a session; unknown ids are fine.
func (c *Cache) Remove(id int32) {
	c.mu.Lock()
	delete(c.sessions, id)
	c.mu.Unlock()
}

// Use takes a session for the request of that epoch and locks it: the caller unlocks it. The epoch advances with Advance, so that a
// refused request leaves the session as it was.
func (c *Cache) Use(id, epoch int32, byID bool, now int64) (*Session, Problem) {
	c.mu.Lock()
	s := c.sessions[id]
	if s != nil {
		s.used = now
	}
	c.mu.Unlock()
	if s == nil {
		return nil, NotFound
	}
	s.Lock()
	switch {
	case s.epoch != epoch:
		s.Unlock()
		return nil, WrongEpoch
	case s.ByID != byID:
		s.Unlock()
		return nil, TopicIDMixed
	}
	return s, OK
}

// Advance moves a locked session to its next epoch.
func (s *Session) Advance() { s.epoch = nextEpoch(s.epoch) }
