package group

import (
	"cmp"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unique"

	"kaas/codec/api"
	"kaas/server/coordinator"
)

// Bounds of one batch of tombstones. What is more follows in further ones, so that the other groups of the shard are served in between.
const (
	tombstonesPerBatch     = 1000
	tombstoneBytesPerBatch = 256 << 10
)

// removal is an offset to be removed.
type removal struct {
	g   *group
	key topicPartition
	// at is the record that goes: if another one has come since, that one stays. anyRecord for whatever is there.
	at int64
}

const anyRecord = -1

// sweep removes offsets and groups, in as many batches as it takes.
type sweep struct {
	s       *Shard
	work    []removal
	dead    []*group // marked dead when the sweep began; they go when their offsets are gone
	done    func(error)
	removed int
}

func byTopic(a, b topicPartition) int {
	return cmp.Or(strings.Compare(a.topic.Value(), b.topic.Value()), cmp.Compare(a.partition, b.partition))
}

// keys are all partitions of which a group holds or is about to get an offset, in order.
func (g *group) keys() []topicPartition {
	seen := make(map[topicPartition]struct{}, len(g.offsets))
	for k := range g.offsets {
		seen[k] = struct{}{}
	}
	for k := range g.writing {
		seen[k] = struct{}{}
	}
	for _, p := range g.pending {
		for k := range p {
			seen[k] = struct{}{}
		}
	}
	keys := make([]topicPartition, 0, len(seen))
	for k := range seen {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, byTopic)
	return keys
}

// holds says whether there is anything of a partition.
func (g *group) holds(k topicPartition) bool { return g.offsets[k] != nil || g.unstable(k) }

// take adds partitions of a group to a sweep, and the group itself when it is empty and nothing is left of it. A consumer
// group stays until it expires or is deleted.
func (w *sweep) take(g *group, keys []topicPartition, at func(topicPartition) int64) {
	for _, k := range keys {
		w.work = append(w.work, removal{g, k, at(k)})
	}
	if g.consumer == nil && g.state() == empty && !g.hasMembers() && len(keys) == len(g.keys()) {
		w.kill(g)
	}
}

// kill marks a group dead.
func (w *sweep) kill(g *group) {
	g.dead = true
	w.dead = append(w.dead, g)
}

func always(topicPartition) int64 { return anyRecord }

// next makes the next batch.
func (w *sweep) next() coordinator.Outcome {
	var a arena
	var entries []coordinator.Entry
	for len(w.work) > 0 && len(entries) < tombstonesPerBatch && len(a.w.B) < tombstoneBytesPerBatch {
		r := w.work[0]
		w.work = w.work[1:]
		if o := r.g.offsets[r.key]; r.at == anyRecord || o != nil && o.at == r.at {
			entries = append(entries, coordinator.Entry{Key: a.offsetKey(r.g.id, r.key)})
		}
	}
	w.removed += len(entries)
	ending := len(w.work) == 0
	if ending {
		for _, g := range w.dead {
			// A group that never had a generation has no record.
			if g.generation() > 0 {
				entries = append(entries, coordinator.Entry{Key: a.groupKey(g.id)})
			}
			if g.consumer != nil {
				r := consumerRecords{group: g.id}
				r.removeGroup()
				entries = append(entries, r.entries...)
			}
		}
	}
	return coordinator.Outcome{Write: coordinator.Write{Entries: entries}, Done: func(err error) {
		if err == nil && !ending {
			w.s.timers.After(0, func(time.Time) coordinator.Outcome { return w.next() })
			return
		}
		w.end(err)
	}}
}

// end settles what became of the dead.
func (w *sweep) end(err error) {
	for _, g := range w.dead {
		g.dead = false
		if err == nil {
			w.s.drop(g)
		} else {
			w.s.tidy(g)
		}
	}
	w.done(err)
}

// DeleteGroup serves one group of DeleteGroups, key 42: an empty group goes with all its offsets, those of open transactions included.
func (s *Shard) DeleteGroup(id string, _ time.Time, reply func(api.ErrorCode)) coordinator.Outcome {
	answer := func(code api.ErrorCode) coordinator.Outcome {
		return coordinator.Outcome{Done: func(err error) {
			if err != nil {
				code = Refusal(api.KeyDeleteGroups, err)
			}
			reply(code)
		}}
	}
	g := s.groups[id]
	switch {
	case g == nil || g.dead:
		return answer(api.ErrGroupIdNotFound)
	case g.state() != empty:
		return answer(api.ErrNonEmptyGroup)
	}
	w := &sweep{s: s, done: func(err error) { reply(Refusal(api.KeyDeleteGroups, err)) }}
	for _, k := range g.keys() {
		w.work = append(w.work, removal{g, k, anyRecord})
	}
	w.kill(g)
	return w.next()
}

// DeleteOffsets serves OffsetDelete, key 47. Of a living group of consumers only what nobody subscribes to goes (86), of another living
// group nothing (68). An empty group that loses its last offset goes with it.
func (s *Shard) DeleteOffsets(q *api.OffsetDeleteRequest, _ time.Time, reply func(*api.OffsetDeleteResponse)) coordinator.Outcome {
	g, subscribed, code := s.mayDelete(q.GroupId)
	p := &api.OffsetDeleteResponse{ErrorCode: code}
	w := &sweep{s: s}
	w.done = func(err error) {
		if err != nil {
			p = &api.OffsetDeleteResponse{ErrorCode: Refusal(api.KeyOffsetDelete, err)}
		}
		reply(p)
	}
	if code != api.ErrNone {
		return w.next()
	}
	var keys []topicPartition
	named := make(map[topicPartition]struct{})
	for i := range q.Topics {
		t := &q.Topics[i]
		topic := unique.Make(t.Name)
		partitions := s.cfg.Partitions(topic.Value())
		all := make([]api.OffsetDeleteResponseOffsetDeleteResponsePartition, len(t.Partitions))
		for j := range t.Partitions {
			k := topicPartition{topic, t.Partitions[j].PartitionIndex}
			all[j].PartitionIndex = k.partition
			switch {
			case k.partition < 0 || int(k.partition) >= partitions:
				all[j].ErrorCode = api.ErrUnknownTopicOrPartition
			case subscribed(topic.Value()):
				all[j].ErrorCode = api.ErrGroupSubscribedToTopic
			case g.holds(k):
				if _, again := named[k]; !again {
					named[k] = struct{}{}
					keys = append(keys, k)
				}
			}
		}
		p.Topics = append(p.Topics, api.OffsetDeleteResponseOffsetDeleteResponseTopic{Name: topic.Value(), Partitions: all})
	}
	if len(keys) > 0 {
		w.take(g, keys, always)
	}
	return w.next()
}

// mayDelete tells whether offsets of a group may be deleted, and which topics its members subscribe to.
func (s *Shard) mayDelete(id string) (g *group, subscribed func(topic string) bool, code api.ErrorCode) {
	g = s.groups[id]
	switch {
	case id == "":
		return nil, nil, api.ErrInvalidGroupId
	case g == nil || g.dead:
		return nil, nil, api.ErrGroupIdNotFound
	case g.state() == empty:
		return g, func(string) bool { return false }, api.ErrNone
	case g.protocolType() != consumerProtocol:
		return nil, nil, api.ErrNonEmptyGroup
	case g.consumer != nil:
		return g, g.consumer.subscribes, api.ErrNone
	}
	topics, known := g.classic.subscriptions()
	return g, func(topic string) bool {
		_, yes := topics[topic]
		return yes || !known
	}, api.ErrNone
}

// TopicDeleted removes the offsets of a topic that is gone, in all groups. What is committed to another topic of its name meanwhile stays.
func (s *Shard) TopicDeleted(name string, _ time.Time) coordinator.Outcome {
	topic := unique.Make(cloned(name))
	w := s.sweep("offsets of a deleted topic", slog.String("topic", topic.Value()))
	var doubtful []removal // on their way to the log: they go first, before anything can be committed anew
	for _, g := range s.groups {
		if g.dead {
			continue
		}
		keys := slices.DeleteFunc(g.keys(), func(k topicPartition) bool { return k.topic != topic })
		if len(keys) == 0 {
			continue
		}
		from := len(w.work)
		w.take(g, keys, func(k topicPartition) int64 {
			if g.unstable(k) {
				return anyRecord
			}
			return g.offsets[k].at
		})
		for _, r := range w.work[from:] {
			if r.at == anyRecord {
				doubtful = append(doubtful, r)
			}
		}
		w.work = append(w.work[:from], slices.DeleteFunc(w.work[from:], func(r removal) bool { return r.at == anyRecord })...)
	}
	w.work = append(doubtful, w.work...)
	return w.begin()
}

// sweep is one whose end only the log is told.
func (s *Shard) sweep(what string, attrs ...any) *sweep {
	w := &sweep{s: s}
	w.done = func(err error) {
		attrs = append(attrs, slog.String("what", what), slog.Int("offsets", w.removed), slog.Int("groups", len(w.dead)))
		if err != nil {
			s.log.Warn("removal failed", append(attrs, slog.Any("error", err))...)
			return
		}
		s.log.Info("removed", attrs...)
	}
	return w
}

// begin is next, unless there is nothing to do.
func (w *sweep) begin() coordinator.Outcome {
	if len(w.work)+len(w.dead) == 0 {
		return coordinator.Outcome{}
	}
	return w.next()
}

// ExpireOffsets removes offsets whose time is over, and empty groups that hold none. It is called every offsets.retention.check.interval.ms.
// Time counts (KIP-211): for an empty group from when it became so; for a stable group of consumers, of topics that nobody subscribes to,
// for a simple group, and for a group of the consumer protocol, from the commit; an offset with its own expiry, from old commits, by that.
func (s *Shard) ExpireOffsets(now time.Time) coordinator.Outcome {
	w := s.sweep("expired offsets")
	ms := now.UnixMilli()
	for _, g := range s.groups {
		if g.dead {
			continue
		}
		if keys := g.expired(ms, s.cfg.OffsetRetention.Milliseconds()); len(keys) > 0 {
			w.take(g, keys, func(k topicPartition) int64 { return g.offsets[k].at })
			if g.consumer != nil && g.state() == empty && len(keys) == len(g.keys()) {
				w.kill(g)
			}
		} else if g.state() == empty && !g.hasOffsets() && !g.hasMembers() {
			w.kill(g)
		}
	}
	return w.begin()
}

// expired are the partitions whose offset is to go. One that a commit under way or a transaction will change stays.
func (g *group) expired(now, retention int64) []topicPartition {
	var subscribed map[string]struct{}
	since := int64(-1)
	if g.consumer != nil {
		subscribed = g.consumer.subscriptions()
	}
	if c := g.classic; c != nil && c.protocolType != "" {
		switch c.state {
		case empty:
			since = c.since
		case stable:
			var known bool
			if subscribed, known = c.subscriptions(); !known {
				return nil
			}
		default:
			return nil
		}
	}
	var keys []topicPartition
	for k, o := range g.offsets {
		base := o.commit
		if since >= 0 {
			base = since
		}
		over := now-base >= retention
		if o.expire >= 0 {
			over = now >= o.expire
		}
		if _, read := subscribed[k.topic.Value()]; over && !read && !g.unstable(k) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, byTopic)
	return keys
}
