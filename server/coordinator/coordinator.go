// Package coordinator runs coordinators: state machines whose truth is a compacted internal topic (groups in __consumer_offsets,
// transactions in __transaction_state). Each partition of that topic is a shard with its own queue. An operation on a shard looks at its
// state and says what to write; the runtime appends that as one batch, applies it by the same Replay that a restart uses, and lets
// the operation answer once the batch is as durable as the broker's setting asks. Operations that wait at the same time share a batch.
//
// What it is not: it knows neither groups nor transactions, nor requests of the protocol.
//
// Invariants: everything of one shard's State runs on one goroutine at a time. State that is written to the topic changes in Replay
// alone. No answer shows what is not yet durable: an operation that writes nothing is answered after everything that its shard appended
// before it. A shard whose log failed refuses everything until it has been loaded anew.
package coordinator

import (
	"errors"
	"time"

	"kaas/engine"
)

// Why a shard refuses an operation. The operation was not run.
var (
	ErrLoading      = errors.New("coordinator: the shard is being loaded")                                                     // 14
	ErrNotAvailable = errors.New("coordinator: the shard cannot write now, for want of room")                                  // 15
	ErrNotOwned     = errors.New("coordinator: the internal topic is not there yet, the shard's log failed, or it was closed") // 16
	ErrTooLarge     = errors.New("coordinator: the batch exceeds what the topic takes")                                        // 10 in the log; what a client sees is its API's business
)

// Entry is one record of the internal topic. A nil Value is a tombstone. Both are kept until the batch is made and not changed.
type Entry struct{ Key, Value []byte }

// Write is what one operation wants written, all or nothing. The zero value writes nothing.
type Write struct {
	Entries []Entry
	// Txn is set for entries of a transaction (pending offsets): they go to the log in a transactional batch of this producer.
	Txn *Producer
	// Guard, with Txn: the log takes the batch only into an open transaction of the producer, or with this guard (engine.Entry.Verify).
	Guard *engine.Guard
	// Split lets the entries go into as many batches as they need: for removals, of which a part does no harm if the broker dies
	// meanwhile. Without it, entries that do not fit into one batch fail with ErrTooLarge.
	Split bool
}

// Producer names a producer and its epoch.
type Producer struct {
	ID    int64
	Epoch int16
}

// Position is where and when a record lies in the shard's log.
type Position struct {
	Offset    int64
	Timestamp int64     // ms
	Txn       *Producer // nil: a plain record
}

// Outcome is what an operation wants: Write appended, then Done called once, on the shard's goroutine, with nil when Write is durable, or
// with why it is not there. After an error nothing of Write was applied. Done may change state that is not in the topic (who waits,
// timers) and send replies; it must not block. A nil Done tells nobody.
type Outcome struct {
	Write Write
	Done  func(err error)
}

// Op is one operation on a shard: it looks at the state and changes only what is not in the topic. It is given with the key that it is
// about (a group, a transactional id), and sees everything that was written before it for that key; an operation without a key sees
// everything.
type Op[S State] func(s S, now time.Time) Outcome

// State is what a shard keeps in memory. The runtime calls it on the shard's goroutine.
type State interface {
	// Replay applies one record: when loading, and after each append. Key and value are valid during the call only: what is kept of
	// them is cloned.
	Replay(e Entry, at Position) error
	// ReplayMarker applies the end of a producer's transaction in this shard's log.
	ReplayMarker(p Producer, commit bool, at Position)
	// Loaded is called once after the last Replay of a load; timers are set here.
	Loaded(now time.Time)
	// Closed is called when the shard gives up its state: whoever is parked in it is answered with err (ErrNotOwned).
	Closed(err error)
}

// Timers is a shard's alarm clock. Its functions run on the shard's goroutine like any operation.
type Timers interface {
	// After runs fn once at or after d from now. The handle is never 0.
	After(d time.Duration, fn func(now time.Time) Outcome) Timer
	// Stop forgets a timer; one that has run, or 0, is ignored.
	Stop(Timer)
}

// Timer is a handle of Timers. 0 is no timer.
type Timer uint64
