package group

import (
	"errors"
	"log/slog"
	"time"

	"kaas/codec/api"
	"kaas/engine"
	"kaas/server/coordinator"
)

// Config is what the broker's settings and catalog say to the coordinator. It is read on the shards' goroutines and not changed.
type Config struct {
	MinSessionTimeout     time.Duration // group.min.session.timeout.ms
	MaxSessionTimeout     time.Duration // group.max.session.timeout.ms
	MaxSize               int           // group.max.size, members
	InitialRebalanceDelay time.Duration // group.initial.rebalance.delay.ms
	MaxMetadata           int           // offset.metadata.max.bytes; counted in UTF-16 units, as Apache does
	OffsetRetention       time.Duration // offsets.retention.minutes
	// Consumer is for groups of the consumer protocol (KIP-848). nil: it is off, and its records are passed over.
	Consumer *ConsumerConfig
	// Partitions is how many partitions a topic has, 0 if there is no such topic: offsets are committed and deleted only for
	// partitions that exist (3). It is called on the shards' goroutines, with a name that aliases the request.
	Partitions func(topic string) int
}

// Client is who sent a request, as DescribeGroups shows it.
type Client struct {
	ID   string // client.id of the request's header, "" if null
	Host string // as Apache prints an address: "/127.0.0.1"
}

// Shard holds the groups and offsets of one partition of __consumer_offsets. It implements coordinator.State.
type Shard struct {
	cfg    *Config
	timers coordinator.Timers
	newID  func() string
	log    *slog.Logger

	groups map[string]*group
	// txns finds the groups that have pending offsets of a producer, for its marker.
	txns    map[int64]map[*group]struct{}
	loaded  bool
	fx      effects
	decoded decoded
}

// New makes an empty shard. newMemberID gives the unique part of a member id, a random UUID in text; it comes from outside so that
// tests are deterministic.
func New(cfg *Config, timers coordinator.Timers, newMemberID func() string, log *slog.Logger) *Shard {
	return &Shard{
		cfg: cfg, timers: timers, newID: newMemberID, log: log,
		groups: make(map[string]*group), txns: make(map[int64]map[*group]struct{}),
	}
}

// Refusal is what an API answers when the runtime did not run its operation, or could not write what it wanted.
func Refusal(key int16, err error) api.ErrorCode {
	switch {
	case err == nil:
		return api.ErrNone
	case errors.Is(err, engine.ErrInvalidTxnState): // ended since it was asked whether the group is in it
		return api.ErrInvalidTxnState
	case errors.Is(err, engine.ErrInvalidProducerEpoch):
		return api.ErrInvalidProducerEpoch
	case errors.Is(err, coordinator.ErrLoading):
		switch key {
		case api.KeyHeartbeat:
			return api.ErrNone // the member's session begins anew when the shard is loaded
		case api.KeySyncGroup:
			return api.ErrRebalanceInProgress // the rebalance that it belongs to is lost: back to JoinGroup
		}
		return api.ErrCoordinatorLoadInProgress
	case errors.Is(err, coordinator.ErrNotAvailable):
		return api.ErrCoordinatorNotAvailable
	case errors.Is(err, coordinator.ErrTooLarge):
		if key == api.KeyOffsetCommit || key == api.KeyTxnOffsetCommit {
			return api.ErrInvalidCommitOffsetSize
		}
		return api.ErrUnknownServerError
	}
	return api.ErrNotCoordinator
}

// effects gathers what one operation wants written and whom it answers.
type effects struct {
	entries []coordinator.Entry
	after   []func(err error)
}

// write adds records to the batch of the running operation.
func (s *Shard) write(e ...coordinator.Entry) { s.fx.entries = append(s.fx.entries, e...) }

// after has f called when the batch of the running operation is durable, or has failed.
func (s *Shard) after(f func(err error)) { s.fx.after = append(s.fx.after, f) }

// outcome ends an operation.
func (s *Shard) outcome() coordinator.Outcome {
	fx := s.fx
	s.fx = effects{}
	o := coordinator.Outcome{Write: coordinator.Write{Entries: fx.entries}}
	switch len(fx.after) {
	case 0:
	case 1:
		o.Done = fx.after[0]
		fx.after[0] = nil
		s.fx.after = fx.after[:0] // the usual case costs no memory
	default:
		o.Done = func(err error) {
			for _, f := range fx.after {
				f(err)
			}
		}
	}
	return o
}

// settle runs f within a Done, where no batch can be made: whom it answers is answered now, and what it wants written becomes an
// operation of its own.
func (s *Shard) settle(f func()) {
	outer := s.fx
	s.fx = effects{}
	f()
	o := s.outcome()
	s.fx = outer
	switch {
	case len(o.Write.Entries) > 0:
		s.timers.After(0, func(time.Time) coordinator.Outcome { return o })
	case o.Done != nil:
		o.Done(nil)
	}
}
