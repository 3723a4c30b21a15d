// Package producer is the idempotence and transaction state of one log: for each producer id the epoch, the last batches
// and the first offset of an open transaction; and the snapshot file of it, in Kafka's own format.
//
// It decides what a batch is (new, an exact repeat, out of order) but keeps no records and knows no files of the log. It is
// not safe for concurrent use: the log's mutex guards it.
//
// It also remembers which producers a first batch of a transaction is being verified for (Guard): the append that follows is
// refused if the transaction was ended meanwhile.
//
// Invariants: a producer's batches are in sequence, at most Kept of them, newest last; no entry has more than one open
// transaction; what Check accepted changes nothing until Append.
package producer

import (
	"errors"
	"math"
)

// Kept is how many batches of a producer are remembered, so that repeats of requests in flight are recognised (Kafka allows
// five in flight).
const Kept = 5

// NoEpoch is the epoch of a producer that was never seen.
const NoEpoch = -1

// The reasons to refuse a batch.
var (
	ErrOutOfOrderSequence = errors.New("producer: sequence out of order")                        // 45
	ErrInvalidEpoch       = errors.New("producer: epoch is older than the producer's")           // 47
	ErrInvalidTxnState    = errors.New("producer: batch is not of the transaction that is open") // 48
	ErrCoordinatorFenced  = errors.New("producer: marker of an older transaction coordinator")   // 52
)

// Batch is what is remembered of one batch.
type Batch struct {
	LastSequence int32
	Delta        int32 // last offset less first offset
	LastOffset   int64
	Timestamp    int64 // max timestamp, milliseconds
}

// FirstOffset is the offset that the batch was given.
func (b *Batch) FirstOffset() int64 { return b.LastOffset - int64(b.Delta) }

// firstSequence wraps from 0 to MaxInt32 as sequences do.
func (b *Batch) firstSequence() int32 {
	if s := b.LastSequence - b.Delta; s >= 0 {
		return s
	}
	return int32(int64(b.LastSequence) - int64(b.Delta) + math.MaxInt32 + 1)
}

// lastSequence is the sequence of the last of n = delta+1 records that begin at first.
func lastSequence(first, delta int32) int32 {
	s := int64(first) + int64(delta)
	if s > math.MaxInt32 {
		s -= math.MaxInt32 + 1
	}
	return int32(s)
}

// Entry is the state of one producer. It is 64 bytes, one allocation: a log may know a million of them, most of which sent one batch.
type Entry struct {
	Epoch            int16
	older            int8  // how many of before are there
	CoordinatorEpoch int32 // of the last transaction marker, -1
	TxnFirst         int64 // first offset of the open transaction, -1
	LastTimestamp    int64 // of the last batch or marker, as stored in it
	seen             int64 // wall clock of the last batch or marker, milliseconds: what expiry counts from
	newest           Batch // LastOffset -1: none
	before           *[Kept - 1]Batch
}

// Saved is a copy of an Entry with all it points to: the log undoes an append with it.
type Saved struct {
	Entry
	batches [Kept - 1]Batch
}

// noBatch stands for no batch.
var noBatch = Batch{LastSequence: -1, LastOffset: -1, Timestamp: -1}

func (e *Entry) last() *Batch {
	if e.newest.LastOffset < 0 {
		return nil
	}
	return &e.newest
}

func (e *Entry) push(b Batch) {
	if old := e.last(); old != nil {
		if e.before == nil {
			e.before = new([Kept - 1]Batch)
		}
		if int(e.older) == len(e.before) {
			copy(e.before[:], e.before[1:])
			e.older--
		}
		e.before[e.older] = *old
		e.older++
	}
	e.newest = b
}

// forgetBatches makes room for those of another epoch.
func (e *Entry) forgetBatches() { e.newest, e.older = noBatch, 0 }

// repeated finds the batch that has these sequences.
func (e *Entry) repeated(first, last int32) *Batch {
	same := func(b *Batch) bool { return b.LastSequence == last && b.firstSequence() == first }
	for i := range e.older {
		if b := &e.before[i]; same(b) {
			return b
		}
	}
	if b := e.last(); b != nil && same(b) {
		return b
	}
	return nil
}

// State is the state of all producers of a log.
type State struct {
	m      map[int64]*Entry
	most   int // the most that m held since it was made: its memory is that large
	guards map[int64]*guard
	guard  int64 // number of the last guard
}

// Len is the number of producers known.
func (s *State) Len() int { return len(s.m) }

// Get copies the entry of a producer; ok is false if it is unknown.
func (s *State) Get(id int64) (e Entry, ok bool) {
	if p := s.m[id]; p != nil {
		return *p, true
	}
	return Entry{}, false
}

// Save copies the entry of a producer into to; false if it is unknown.
func (s *State) Save(id int64, to *Saved) bool {
	p := s.m[id]
	if p == nil {
		return false
	}
	to.Entry = *p
	if p.before != nil {
		to.batches = *p.before
	}
	return true
}

// Restore puts back what Save copied; without known it forgets the producer.
func (s *State) Restore(id int64, from *Saved, known bool) {
	if !known {
		delete(s.m, id)
		return
	}
	p := s.m[id]
	if p == nil {
		return
	}
	before := p.before // of the same producer: made once, and kept
	*p = from.Entry
	if p.before == nil {
		p.before = before
		return
	}
	*p.before = from.batches
}

// Check judges a client's data batch. dup is true for an exact repeat of a batch that is remembered, with the offsets that
// it got then.
func (s *State) Check(id int64, epoch int16, first, delta int32, transactional bool) (dup bool, base, last int64, err error) {
	e := s.m[id]
	if e == nil {
		return false, 0, 0, nil // nothing known: any sequence begins (KIP-360)
	}
	if epoch == e.Epoch {
		if b := e.repeated(first, lastSequence(first, delta)); b != nil {
			return true, b.FirstOffset(), b.LastOffset, nil
		}
	}
	if epoch < e.Epoch {
		return false, 0, 0, ErrInvalidEpoch
	}
	if epoch > e.Epoch {
		if first != 0 && e.Epoch != NoEpoch {
			return false, 0, 0, ErrOutOfOrderSequence
		}
	} else {
		prev := int32(-1)
		if b := e.last(); b != nil {
			prev = b.LastSequence
		}
		if int64(first) != int64(prev)+1 && !(first == 0 && prev == math.MaxInt32) {
			return false, 0, 0, ErrOutOfOrderSequence
		}
	}
	if e.TxnFirst >= 0 && !transactional {
		return false, 0, 0, ErrInvalidTxnState
	}
	return false, 0, 0, nil
}

func (s *State) entry(id int64, epoch int16) *Entry {
	e := s.m[id]
	if e == nil {
		if s.m == nil {
			s.m = map[int64]*Entry{}
		}
		e = &Entry{Epoch: epoch, CoordinatorEpoch: -1, TxnFirst: -1, newest: noBatch}
		s.m[id] = e
		s.most = max(s.most, len(s.m))
	}
	if e.Epoch != epoch {
		e.Epoch = epoch
		e.forgetBatches()
	}
	return e
}

// Append takes a data batch that is in the log into account. began is true when it opens a transaction.
func (s *State) Append(id int64, epoch int16, first, delta int32, lastOffset, timestamp, now int64, transactional bool) (began bool) {
	e := s.entry(id, epoch)
	e.push(Batch{LastSequence: lastSequence(first, delta), Delta: delta, LastOffset: lastOffset, Timestamp: timestamp})
	e.LastTimestamp, e.seen = timestamp, now
	if transactional && e.TxnFirst < 0 {
		e.TxnFirst = lastOffset - int64(delta)
		delete(s.guards, id)
		return true
	}
	return false
}

// CheckMarker judges the end of a transaction: an older epoch, or one of an older coordinator, is refused.
func (s *State) CheckMarker(id int64, epoch int16, coordinatorEpoch int32) error {
	e := s.m[id]
	switch {
	case e == nil:
	case epoch < e.Epoch:
		return ErrInvalidEpoch
	case coordinatorEpoch < e.CoordinatorEpoch:
		return ErrCoordinatorFenced
	}
	return nil
}

// CheckEpoch judges a batch of the broker's own, which has no sequence: an older epoch is refused.
func (s *State) CheckEpoch(id int64, epoch int16) error {
	if e := s.m[id]; e != nil && epoch < e.Epoch {
		return ErrInvalidEpoch
	}
	return nil
}

// Marker takes the end of a transaction into account and returns its first offset, -1 if none was open here.
func (s *State) Marker(id int64, epoch int16, coordinatorEpoch int32, timestamp, now int64) (first int64) {
	e := s.entry(id, epoch)
	first = e.TxnFirst
	e.TxnFirst = -1
	delete(s.guards, id)
	if coordinatorEpoch >= 0 {
		e.CoordinatorEpoch = coordinatorEpoch
	}
	e.LastTimestamp, e.seen = timestamp, now
	return first
}

// Expire forgets producers not seen for keep milliseconds, except those with an open transaction.
func (s *State) Expire(now, keep int64) {
	for id, e := range s.m {
		if e.TxnFirst < 0 && now-e.seen >= keep {
			delete(s.m, id)
		}
	}
	for id, g := range s.guards {
		if now-g.seen >= keep {
			delete(s.guards, id)
		}
	}
	if len(s.m) >= s.most/2 {
		return
	}
	// A map keeps its memory when it is emptied: the survivors move to a smaller one.
	m := make(map[int64]*Entry, len(s.m))
	for id, e := range s.m {
		m[id] = e
	}
	s.m, s.most = m, len(m)
}

// Open calls f for each open transaction.
func (s *State) Open(f func(id, first int64)) {
	for id, e := range s.m {
		if e.TxnFirst >= 0 {
			f(id, e.TxnFirst)
		}
	}
}

// Each calls f for each producer, in no order; batch is the last one, nil when none is remembered.
func (s *State) Each(f func(id int64, e *Entry, batch *Batch)) {
	for id, e := range s.m {
		f(id, e, e.last())
	}
}
