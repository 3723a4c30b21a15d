package txn

import (
	"errors"
	"log/slog"
	"strings"
	"time"

	"kaas/codec/api"
	"kaas/server/coordinator"
)

// Config is what the broker's settings say to the coordinator, and whom it hands markers to. It is read on the shards' goroutines and not
// changed.
type Config struct {
	MaxTimeout time.Duration // transaction.max.timeout.ms
	Expiration time.Duration // transactional.id.expiration.ms
	// AnswerWithin bounds how long EndTxn waits for its markers after the decision is durable (kaas.transaction.markers.wait.ms). They take
	// microseconds, or a group commit; only what is wrong with a log takes longer, and then the producer is told that the decision is made,
	// and 51 until the markers are there.
	AnswerWithin time.Duration
	// Markers takes the markers of a decided transaction, which it must not refuse. It is called on the shard's goroutine and must not
	// block. True: they are all there already, and the operation that tells Shard.MarkersWritten is queued. See MarkerWork.
	Markers func(MarkerWork) bool
}

// MarkerWork are the markers of one decided transaction: one goes to each of the partitions, and Shard.MarkersWritten is told of those
// that have it durably, by an operation under the transactional id, in as many parts as it likes; of those that are no more, too. If
// the runtime refuses that operation it is given again later.
//
// After a shard was loaded anew the same work (ID and Decision) comes again. A partition of it that is in work, from when it was handed out
// until the operation that tells of it runs, must be left out then: its second marker could fall into the next transaction, which has the
// same epoch. One that was told of before gets another marker: what was told was forgotten, and until it is told again the transaction
// does not end.
type MarkerWork struct {
	ID               string // transactional id
	Decision         int64  // what tells this transaction of the id from all others
	Producer         coordinator.Producer
	CoordinatorEpoch int32
	Commit           bool
	Partitions       []Partition // not to be changed
}

// Shard holds the transactional ids of one partition of __transaction_state. It implements coordinator.State.
type Shard struct {
	cfg    *Config
	epoch  int32
	timers coordinator.Timers
	log    *slog.Logger

	txns map[string]*txn
	// began are those with an open transaction.
	began map[*txn]struct{}
	// lastEpochs is what the record of Empty that an operation is having written leaves in lastEpoch.
	lastEpochs map[string]int16
	// rotated is the producer id before this one, from its change to the next record: a retry may still name it.
	rotated map[string]int64

	writes logRecord // memory of record
	reads  logRecord // memory of Replay
	loaded bool
	closed bool
}

// New makes an empty shard. coordinatorEpoch is the leader epoch of its partition, which the markers carry.
func New(cfg *Config, coordinatorEpoch int32, timers coordinator.Timers, log *slog.Logger) *Shard {
	return &Shard{
		cfg: cfg, epoch: coordinatorEpoch, timers: timers, log: log,
		txns: make(map[string]*txn), began: make(map[*txn]struct{}),
		lastEpochs: make(map[string]int16), rotated: make(map[string]int64),
	}
}

// Refusal is what every API of transactions answers when the runtime did not run its operation, or could not write what it wanted.
func Refusal(err error) api.ErrorCode {
	switch {
	case err == nil:
		return api.ErrNone
	case errors.Is(err, coordinator.ErrLoading):
		return api.ErrCoordinatorLoadInProgress
	case errors.Is(err, coordinator.ErrNotAvailable):
		return api.ErrCoordinatorNotAvailable
	case errors.Is(err, coordinator.ErrTooLarge):
		return api.ErrUnknownServerError
	}
	return api.ErrNotCoordinator
}

// ForVersion is a code as a version of an API says it: before error 90 was known, 47 stood for it.
func ForVersion(key, version int16, code api.ErrorCode) api.ErrorCode {
	if code != api.ErrProducerFenced {
		return code
	}
	since := int16(2)
	if key == api.KeyInitProducerId {
		since = 4
	}
	if version < since {
		return api.ErrInvalidProducerEpoch
	}
	return code
}

// find looks up a transactional id for its producer.
func (s *Shard) find(id string, p coordinator.Producer) (*txn, api.ErrorCode) {
	t := s.txns[id]
	switch {
	case id == "":
		return nil, api.ErrInvalidRequest
	case t == nil || t.producerID != p.ID:
		return nil, api.ErrInvalidProducerIdMapping
	case t.epoch != p.Epoch:
		return nil, api.ErrProducerFenced
	}
	return t, api.ErrNone
}

// answer is the outcome of an operation that writes nothing.
func answer(code api.ErrorCode, reply func(api.ErrorCode)) coordinator.Outcome {
	return coordinator.Outcome{Done: func(err error) {
		if err != nil {
			code = Refusal(err)
		}
		reply(code)
	}}
}

// write is the outcome of an operation that writes records.
func write(done func(error), entries ...coordinator.Entry) coordinator.Outcome {
	return coordinator.Outcome{Write: coordinator.Write{Entries: entries}, Done: done}
}

func cloned(s string) string { return strings.Clone(s) }
