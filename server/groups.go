package server

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"kaas/codec/batch"
	"kaas/codec/wire"
	"kaas/server/catalog"
	"kaas/server/config"
	"kaas/server/coordinator"
	"kaas/server/group"
	"kaas/server/topics"
)

// openGroups makes the group coordinator and has it begin to load what __consumer_offsets holds. Requests about groups are answered 14
// until theirs is there.
func (b *Broker) openGroups() error {
	c := b.cfg
	gc, err := groupConfig(c, b.topics)
	if err != nil {
		return err
	}
	log := b.levels.Logger("kaas.groups")
	b.groups = coordinator.New(coordinator.Config[*group.Shard]{
		Topic: func() *topics.Topic { return b.topics.ByName(topics.OffsetsTopic) },
		New: func(_ int32, timers coordinator.Timers) *group.Shard {
			return group.New(gc, timers, uuid.NewString, log)
		},
		Codec:     batch.Codec(c.Int("offsets.topic.compression.codec")),
		LoadBytes: int(c.Int("offsets.load.buffer.size")),
		Ticks: []coordinator.Tick[*group.Shard]{
			{Every: config.Millis(c.Int("offsets.retention.check.interval.ms")), Do: (*group.Shard).ExpireOffsets},
		},
		Logger: log,
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
func groupConfig(c *config.Broker, t *topics.Registry) (*group.Config, error) {
	gc := &group.Config{
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
	if consumerGroups(c) {
		assignors, err := group.AssignorsOf(c.List("group.consumer.assignors"))
		if err != nil {
			return nil, fmt.Errorf("group.consumer.assignors: %w", err)
		}
		gc.Consumer = &group.ConsumerConfig{
			SessionTimeout:    config.Millis(c.Int("group.consumer.session.timeout.ms")),
			HeartbeatInterval: config.Millis(c.Int("group.consumer.heartbeat.interval.ms")),
			MaxSize:           int(c.Int("group.consumer.max.size")),
			Assignors:         assignors,
			Topics:            func() group.Topics { return present{t.Catalog().Snapshot()} },
		}
	}
	return gc, nil
}

// consumerGroups says whether the consumer protocol (KIP-848) is on.
func consumerGroups(c *config.Broker) bool {
	return c.Bool("group.coordinator.new.enable") && slices.Contains(c.List("group.coordinator.rebalance.protocols"), "consumer")
}

// present is what topics there are. It implements group.Topics.
type present struct{ s *catalog.Snapshot }

// Topic implements group.Topics.
func (p present) Topic(name string) (id wire.UUID, partitions int32, ok bool) {
	t := p.s.Topic(name)
	if t == nil {
		return id, 0, false
	}
	return t.ID, t.Partitions, true
}

// Same implements group.Topics. Another snapshot may be of a change of settings alone.
func (p present) Same(other group.Topics) bool { return p == other }
