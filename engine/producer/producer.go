// Package producer is the idempotence and transaction state of one log: for each producer id the epoch, the last batches
// and the first offset of an open transaction; and the snapshot file of it, in Kafka's own format.
//
// It decides what a batch is (new, an exact repeat, out of order) but keeps no records and knows no files of the log. It is
// not safe for concurrent use: the log's mutex guards it.
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
	ErrOutOfOrderSequence = errors.New("producer: sequence out of order")                                // 45
	ErrInvalidEpoch       = errors.New("producer: epoch is older than the producer's")                   // 47
	ErrInvalidTxnState    = errors.New("producer: plain batch while the producer's transaction is open") // 48
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

// Entry is the state of one producer. Entries are plain values: the log copies them to undo an append.
type Entry struct {
	Epoch            int16
	n                int8
	batches          [Kept]Batch // n of them, oldest first
	CoordinatorEpoch int32       // of the last transaction marker, -1
	TxnFirst         int64       // first offset of the open transaction, -1
	LastTimestamp    int64       // of the last batch or marker, as stored in it
	seen             int64       // wall clock of the last batch or marker, milliseconds: what expiry counts from
}

func (e *Entry) last() *Batch {
	if e.n == 0 {
		return nil
	}
	return &e.batches[e.n-1]
}

func (e *Entry) push(b Batch) {
	if e.n == Kept {
		copy(e.batches[:], e.batches[1:])
		e.n--
	}
	e.batches[e.n] = b
	e.n++
}

// State is the state of all producers of a log.
type State struct {
	m map[int64]*Entry
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

// Put restores an entry that Get copied; without known it forgets the producer.
func (s *State) Put(id int64, e Entry, known bool) {
	if !known {
		delete(s.m, id)
	} else if p := s.m[id]; p != nil {
		*p = e
	}
}

// Check judges a client's data batch. dup is true for an exact repeat of a batch that is remembered, with the offsets that
// it got then.
func (s *State) Check(id int64, epoch int16, first, delta int32, transactional bool) (dup bool, base, last int64, err error) {
	e := s.m[id]
	if e == nil {
		return false, 0, 0, nil // nothing known: any sequence begins (KIP-360)
	}
	if epoch == e.Epoch {
		seq := lastSequence(first, delta)
		for i := range e.n {
			if b := &e.batches[i]; b.LastSequence == seq && b.firstSequence() == first {
				return true, b.FirstOffset(), b.LastOffset, nil
			}
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
		e = &Entry{Epoch: epoch, CoordinatorEpoch: -1, TxnFirst: -1}
		s.m[id] = e
	}
	if e.Epoch != epoch {
		e.Epoch = epoch
		e.n = 0
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
		return true
	}
	return false
}

// CheckEpoch judges what has no sequence, the end of a transaction (KIP-890) and a batch of the broker's own: an older epoch is refused.
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
