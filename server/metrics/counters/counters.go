// Package counters is where the hot path of the broker counts: plain atomic numbers, sharded by event loop, and histograms of fixed
// buckets. server/metrics reads them.
//
// What it is not: it knows no names of metrics and no exposition.
//
// Invariants: counting takes no lock and allocates nothing; reading waits for nobody; numbers only grow. Numbers that are read together
// need not be of the same instant.
package counters

import (
	"sync"
	"sync/atomic"
	"time"

	"kaas/netio"
)

// API is what was counted for one API key on one shard.
type API struct {
	in, out atomic.Int64
	took    Histogram // nanoseconds
}

// Shard is counted on by one event loop, or by all workers together.
type Shard struct {
	apis []API

	ProduceBatches, ProduceBytes, ProduceRecords atomic.Int64 // appended, without repeats of idempotent producers
	FetchBytes                                   atomic.Int64 // of record batches that were answered
}

// Answered counts replies that left. Those of the same API that stand together cost little more than one.
func (s *Shard) Answered(done []netio.Done) {
	for i := 0; i < len(done); {
		tag := done[i].Tag
		a := &s.apis[tag-1]
		var in, out, nanos, same int64
		at := a.took.bucket(done[i].Nanos)
		for ; i < len(done) && done[i].Tag == tag; i++ {
			d := &done[i]
			in, out, nanos = in+int64(d.Frame), out+d.Bytes, nanos+d.Nanos
			if b := a.took.bucket(d.Nanos); b != at {
				a.took.counts[at].Add(same)
				at, same = b, 0
			}
			same++
		}
		a.took.counts[at].Add(same)
		a.took.sum.Add(nanos)
		a.in.Add(in)
		a.out.Add(out)
	}
}

// Error codes that are counted apart; those beyond are counted with the last.
const (
	codeMin = -1
	codeMax = 126
)

type codes [codeMax - codeMin + 1]atomic.Int64

// Closing is why a connection was closed.
type Closing int

// The reasons. Those from ShortFrame on are faults in what the peer sent.
const (
	ByPeer Closing = iota
	BySocket
	Idle
	Stopped
	Panicked
	AcksZero
	HalfFrame
	Excess
	ShortFrame
	UnknownAPI
	UnknownVersion
	Malformed
	FrameSize
	closings
)

var closingNames = [closings]string{"peer", "socket_error", "idle", "stop", "panic", "acks_0_failed",
	"half_frame", "max_connections", "short_frame", "unknown_api", "unknown_version", "malformed", "frame_size"}

func (c Closing) String() string { return closingNames[c] }

// Set is what the API layer counts on.
type Set struct {
	names  []string // of the APIs, by tag - 1
	errors []atomic.Pointer[codes]
	closed [closings]atomic.Int64
	shards atomic.Pointer[[]*Shard] // never changed in place
	adding sync.Mutex               // guards the replacing of shards
}

// NewSet makes a set for these APIs; the tag of a reply is the index of its API plus 1.
func NewSet(names []string) *Set {
	s := &Set{names: names, errors: make([]atomic.Pointer[codes], len(names))}
	s.shards.Store(new([]*Shard))
	return s
}

// NewShard adds a shard.
func (s *Set) NewShard() *Shard {
	sh := &Shard{apis: make([]API, len(s.names))}
	for i := range sh.apis {
		sh.apis[i].took.Shift = DurationShift
	}
	s.adding.Lock()
	defer s.adding.Unlock()
	old := *s.shards.Load()
	shards := append(old[:len(old):len(old)], sh)
	s.shards.Store(&shards)
	return sh
}

// Error counts an error code in an answer of the API with that tag. The first of an API allocates.
func (s *Set) Error(tag int32, code int16) {
	p := &s.errors[tag-1]
	c := p.Load()
	if c == nil {
		p.CompareAndSwap(nil, new(codes))
		c = p.Load()
	}
	c[min(max(int(code), codeMin), codeMax)-codeMin].Add(1)
}

// Close counts a closed connection.
func (s *Set) Close(why Closing) { s.closed[why].Add(1) }

// APITotals are the totals of one API.
type APITotals struct {
	Name               string
	Requests           int64 // answered, or handled without an answer (acks=0)
	BytesIn, BytesOut  int64
	Nanos              int64
	Took               [Buckets]int64
	NonZeroErrorCounts []ErrorCount
}

// ErrorCount says how often a code was answered.
type ErrorCount struct {
	Code  int16
	Count int64
}

// APIs reads the totals of every API.
func (s *Set) APIs() []APITotals {
	out := make([]APITotals, len(s.names))
	for i := range out {
		t := &out[i]
		t.Name = s.names[i]
		for _, sh := range *s.shards.Load() {
			a := &sh.apis[i]
			t.Nanos += a.took.AddTo(&t.Took)
			t.BytesIn += a.in.Load()
			t.BytesOut += a.out.Load()
		}
		for _, n := range t.Took {
			t.Requests += n
		}
		if c := s.errors[i].Load(); c != nil {
			for j := range c {
				if n := c[j].Load(); n > 0 {
					t.NonZeroErrorCounts = append(t.NonZeroErrorCounts, ErrorCount{Code: int16(j + codeMin), Count: n})
				}
			}
		}
	}
	return out
}

// Traffic are totals of records.
type Traffic struct {
	ProduceBatches, ProduceBytes, ProduceRecords, FetchBytes int64
}

// Traffic reads the totals.
func (s *Set) Traffic() (t Traffic) {
	for _, sh := range *s.shards.Load() {
		t.ProduceBatches += sh.ProduceBatches.Load()
		t.ProduceBytes += sh.ProduceBytes.Load()
		t.ProduceRecords += sh.ProduceRecords.Load()
		t.FetchBytes += sh.FetchBytes.Load()
	}
	return t
}

// EachClosing calls f for every reason; fault tells that the peer sent what it must not.
func (s *Set) EachClosing(f func(why Closing, fault bool, n int64)) {
	for why := range closings {
		f(why, why >= ShortFrame, s.closed[why].Load())
	}
}

// Storage is what the engine's callbacks count on.
type Storage struct {
	Rounds, Syncs, Released             atomic.Int64 // group commit: rounds, logs synced, waiters released
	RoundLogs, RoundReleased, RoundTook Histogram
	WriteBytes                          atomic.Int64
	WriteTook                           Histogram
}

// NewStorage makes one with nothing counted.
func NewStorage() *Storage {
	s := new(Storage)
	s.RoundTook.Shift, s.WriteTook.Shift = DurationShift, DurationShift
	return s
}

// Round counts a round of the group commit (engine.Config.OnCommit).
func (s *Storage) Round(logs, released int, took time.Duration) {
	s.RoundLogs.Observe(int64(logs))
	s.RoundReleased.Observe(int64(released))
	s.RoundTook.Observe(int64(took))
	s.Released.Add(int64(released))
	s.Syncs.Add(int64(logs))
	s.Rounds.Add(1)
}

// Wrote counts a write into the page cache (engine.Config.OnWrite).
func (s *Storage) Wrote(bytes int64, took time.Duration) {
	s.WriteBytes.Add(bytes)
	s.WriteTook.Observe(int64(took))
}
