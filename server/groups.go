package server

import (
	"time"

	"github.com/google/uuid"

	"kaas/codec/batch"
	"kaas/server/config"
	"kaas/server/coordinator"
	"kaas/server/group"
	"kaas/server/topics"
)

// openGroups makes the group coordinator and has it begin to load what __consumer_offsets holds. Requests about groups are answered 14
// until theirs is there.
func (b *Broker) openGroups() error {
	c := b.cfg
	gc := groupConfig(c, b.topics)
	log := b.levels.Logger("kaas.groups")
	b.groups = coordinator.New(coordinator.Config[*group.Shard]{
		Topic: func() *topics.Topic { return b.topics.ByName(topics.OffsetsTopic) },
		New: func(_ int32, timers coordinator.Timers) *group.Shard {
			return group.New(gc, timers, uuid.NewString, log)
		},
		Codec:     batch.Codec(c.Int("offsets.topic.compression.codec")),
		LoadBytes: int(c.Int("offsets.load.buffer.size")),
		Every:     config.Millis(c.Int("offsets.retention.check.interval.ms")),
		Tick:      (*group.Shard).ExpireOffsets,
		Logger:    log,
	})
	b.topics.OnTopicRemoved(b.forgetOffsets)
	b.groups.Load()
	// A kill may have come between the deletion of a topic and that of its offsets.
	b.groups.Each(func(s *group.Shard, _ time.Time) coordinator.Outcome {
		for _, name := range s.MissingTopics() {
			b.forgetOffsets(name)
		}
		return coordinator.Outcome{}
	}, nil)
	return nil
}

// forgetOffsets removes the offsets of a topic that is gone. It returns at once.
func (b *Broker) forgetOffsets(topic string) {
	b.groups.Each(func(s *group.Shard, now time.Time) coordinator.Outcome { return s.TopicDeleted(topic, now) }, nil)
}

// groupConfig is what the group coordinator wants to know of the settings and the catalog.
func groupConfig(c *config.Broker, t *topics.Registry) *group.Config {
	return &group.Config{
		MinSessionTimeout:     config.Millis(c.Int("group.min.session.timeout.ms")),
		MaxSessionTimeout:     config.Millis(c.Int("group.max.session.timeout.ms")),
		MaxSize:               int(c.Int("group.max.size")),
		InitialRebalanceDelay: config.Millis(c.Int("group.initial.rebalance.delay.ms")),
		MaxMetadata:           int(c.Int("offset.metadata.max.bytes")),
		OffsetRetention:       time.Duration(c.Int("offsets.retention.minutes")) * time.Minute,
		Partitions: func(name string) int {
			topic := t.ByName(name)
			if topic == nil {
				return 0
			}
			return len(topic.Partitions())
		},
	}
}
