// Package topics holds the topics of a running broker: names, ids, settings and logs, ready for look-ups from every event loop; and the
// rules by which topics are made, altered and deleted.
//
// What it is not: the truth about what exists, which is server/catalog's, durable; this package asks the catalog for every change and
// keeps in memory what follows from it. It knows no requests.
//
// Invariants: a topic is visible here exactly when the catalog holds it; look-ups take no lock; a partition, once found, stays usable
// (its log refuses reads and writes when the topic was deleted, and Gone says so).
package topics

import (
	"sync/atomic"

	"kaas/codec/batch"
	"kaas/engine"
	"kaas/server/config"
)

// Topic is one topic. Its identity never changes; a topic deleted and made again is another Topic.
type Topic struct {
	Name     string
	ID       [16]byte
	Internal bool

	settings   atomic.Pointer[Settings]
	partitions atomic.Pointer[[]*Partition]
	gone       atomic.Bool
}

// Partition is one partition of a topic.
type Partition struct {
	Topic       *Topic
	Index       int32
	LeaderEpoch int32 // this start's: it grows with every start of the broker (design, Seams 8)
	Log         *engine.Log
}

// Settings are what a topic's settings and the broker's come to; immutable, replaced as a whole when either is altered.
type Settings struct {
	Config            config.Topic
	Rules             batch.Rules // what Produce checks
	MinInSyncReplicas int32

	overrides map[string]string // the topic's own, by name
}

// Settings returns the settings in force.
func (t *Topic) Settings() *Settings { return t.settings.Load() }

// Overrides returns the settings that the topic itself has; read only.
func (t *Topic) Overrides() map[string]string { return t.settings.Load().overrides }

// Partitions lists the partitions by index; read only.
func (t *Topic) Partitions() []*Partition { return *t.partitions.Load() }

// Partition finds a partition; nil if there is none of that index.
func (t *Topic) Partition(index int32) *Partition {
	ps := *t.partitions.Load()
	if index < 0 || int(index) >= len(ps) {
		return nil
	}
	return ps[index]
}

// Gone tells whether the topic was deleted.
func (p *Partition) Gone() bool { return p.Topic.gone.Load() }

// compressions maps compression.type to what it makes of a batch.
var compressions = map[string]batch.Target{
	"producer":     batch.TargetProducer,
	"uncompressed": batch.TargetOf(batch.CodecNone),
	"gzip":         batch.TargetOf(batch.CodecGzip),
	"snappy":       batch.TargetOf(batch.CodecSnappy),
	"lz4":          batch.TargetOf(batch.CodecLZ4),
	"zstd":         batch.TargetOf(batch.CodecZstd),
}

// newSettings works out what overrides come to on a broker so configured.
func newSettings(b *config.Broker, overrides map[string]string) *Settings {
	t := b.Topic(overrides)
	rules := batch.Rules{
		MaxMessageBytes: t.MaxMessageBytes,
		NeedKeys:        t.Compact,
		LogAppendTime:   t.LogAppendTime,
		BeforeMaxMs:     t.TimestampBeforeMaxMs,
		AfterMaxMs:      t.TimestampAfterMaxMs,
		Compression:     compressions[t.Compression],
		FullCompressed:  b.FullBatchValidation,
	}
	return &Settings{Config: t, Rules: rules, MinInSyncReplicas: t.MinInsyncReplicas, overrides: overrides}
}
