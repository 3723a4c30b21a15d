package group

import (
	"fmt"
	"log/slog"
	"time"
	"unique"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/coordinator"
)

// Replay implements coordinator.State. Offsets change here alone; a group's record is read only while the shard is loaded, as living
// members are ahead of it. Keys of unknown versions are another protocol's and are passed over.
func (s *Shard) Replay(e coordinator.Entry, at coordinator.Position) error {
	r := &s.decoded.r
	r.Reset(e.Key)
	switch version := r.Int16(); {
	case r.Failed():
		return fmt.Errorf("%w: a key of %d bytes", ErrRecord, len(e.Key))
	case version == 0 || version == offsetKeyVersion:
		return s.replayOffset(e, at)
	case version == groupKeyVersion:
		return s.replayGroup(e)
	case s.cfg.Consumer != nil && version >= firstConsumerKeyVersion && version <= lastConsumerKeyVersion:
		return s.replayConsumer(version, e)
	}
	return nil
}

func (s *Shard) replayOffset(e coordinator.Entry, at coordinator.Position) error {
	k, v := &s.decoded.key, &s.decoded.value
	if _, err := s.decoded.read(e.Key, k); err != nil {
		return err
	}
	if e.Value == nil {
		if g := s.groups[k.Group]; g != nil {
			s.forget(g, topicPartition{unique.Make(k.Topic), k.Partition}, at)
		}
		return nil
	}
	if _, err := s.decoded.read(e.Value, v); err != nil {
		return err
	}
	g := s.ensure(k.Group)
	key := topicPartition{unique.Make(k.Topic), k.Partition}
	into := g.offsets
	if at.Txn != nil {
		into = s.pendingOf(g, at.Txn.ID)
	}
	o := into[key]
	if o == nil {
		o = &offset{}
		into[key] = o
	}
	metadata := o.metadata
	if metadata != v.Metadata {
		metadata = cloned(v.Metadata)
	}
	*o = offset{at: at.Offset, offset: v.Offset, epoch: v.LeaderEpoch, metadata: metadata, commit: v.CommitTimestamp, expire: v.ExpireTimestamp}
	g.wrote(key)
	return nil
}

// pendingOf finds or makes the offsets of a transaction.
func (s *Shard) pendingOf(g *group, producer int64) map[topicPartition]*offset {
	p := g.pending[producer]
	if p == nil {
		if g.pending == nil {
			g.pending = make(map[int64]map[topicPartition]*offset)
		}
		p = make(map[topicPartition]*offset)
		g.pending[producer] = p
		s.link(producer, g)
	}
	return p
}

// forget applies the tombstone of an offset: it goes, and so does what a transaction wrote before. In a transaction, which Apache never
// writes, it does nothing.
func (s *Shard) forget(g *group, k topicPartition, at coordinator.Position) {
	if at.Txn != nil {
		return
	}
	delete(g.offsets, k)
	for producer, pending := range g.pending {
		delete(pending, k)
		if len(pending) == 0 {
			s.endPending(g, producer)
		}
	}
	s.tidy(g)
}

// endPending forgets the offsets of a transaction.
func (s *Shard) endPending(g *group, producer int64) {
	delete(g.pending, producer)
	s.unlink(producer, g)
	if len(g.pending) == 0 {
		g.pending = nil
	}
}

// tidy drops a simple group without offsets: nothing tells it from one that never was.
func (s *Shard) tidy(g *group) {
	if g.classic == nil && g.consumer == nil && !g.dead && !g.hasOffsets() {
		s.drop(g)
	}
}

// ReplayMarker implements coordinator.State. Of a pending offset and a plain one the later record counts, wherever the marker lies.
func (s *Shard) ReplayMarker(p coordinator.Producer, commit bool, _ coordinator.Position) {
	for g := range s.txns[p.ID] {
		pending := g.pending[p.ID]
		s.endPending(g, p.ID)
		if commit {
			for k, o := range pending {
				if now := g.offsets[k]; now == nil || now.at < o.at {
					g.offsets[k] = o
				}
			}
		}
		s.tidy(g)
	}
}

func (s *Shard) replayGroup(e coordinator.Entry) error {
	var k api.GroupMetadataKey
	if _, err := read(e.Key, &k); err != nil {
		return err
	}
	if e.Value == nil {
		if g := s.groups[k.Group]; g != nil {
			if g.classic != nil {
				s.stopAll(g.classic)
				g.classic = nil
			}
			s.tidy(g)
		}
		return nil
	}
	if s.loaded {
		return nil
	}
	var v api.GroupMetadataValue
	version, err := read(e.Value, &v)
	if err != nil {
		return err
	}
	g := s.ensure(k.Group)
	g.classic = restored(g, &v, version)
	return nil
}

// restored is a membership as its record tells it.
func restored(g *group, v *api.GroupMetadataValue, version int16) *classic {
	c := &classic{
		g: g, generation: v.Generation, since: v.CurrentStateTimestamp, protocolType: cloned(v.ProtocolType),
		protocol: wire.NullString{String: cloned(v.Protocol.String), Valid: v.Protocol.Valid},
		leader:   cloned(v.Leader.String), members: make(map[string]*member, len(v.Members)), names: make(map[name]int),
	}
	for i := range v.Members {
		r := &v.Members[i]
		m := &member{
			id: cloned(r.MemberId), instance: wire.NullString{String: cloned(r.GroupInstanceId.String), Valid: r.GroupInstanceId.Valid},
			clientID: unique.Make(r.ClientId), clientHost: unique.Make(r.ClientHost),
			rebalance: millis(r.RebalanceTimeout), session: millis(r.SessionTimeout),
			protocols:  []protocol{{unique.Make(v.Protocol.String), copied(r.Subscription)}},
			assignment: copied(r.Assignment), synced: true,
		}
		if version == 0 {
			m.rebalance = m.session
		}
		if c.members[m.id] == nil {
			c.add(m, c.protocolType)
		}
	}
	if len(c.members) > 0 {
		c.state = stable
	}
	return c
}

// Loaded implements coordinator.State: members of stable groups come back with a whole session ahead of them.
func (s *Shard) Loaded(now time.Time) {
	s.loaded = true
	for _, g := range s.groups {
		if g.consumer != nil {
			s.loadedConsumer(g.consumer, now)
		}
		c := g.classic
		if c == nil {
			continue
		}
		if len(c.members) > s.cfg.MaxSize {
			s.prepare(c, now) // whoever comes back first stays
		}
		for _, m := range c.order {
			s.touch(c, m, m.session, now)
		}
	}
	s.log.Info("groups loaded", slog.Int("groups", len(s.groups)))
}

// Closed implements coordinator.State.
func (s *Shard) Closed(err error) {
	s.fx = effects{}
	for _, g := range s.groups {
		if g.consumer != nil {
			s.stopConsumer(g.consumer)
		}
		c := g.classic
		if c == nil {
			continue
		}
		s.stopAll(c)
		c.state = dead // so that writes under way, whose ends are told later, begin nothing
		for _, m := range c.order {
			if reply := m.joining; reply != nil {
				m.joining = nil
				reply(&api.JoinGroupResponse{ErrorCode: Refusal(api.KeyJoinGroup, err), GenerationId: -1, MemberId: m.id})
			}
			if reply := m.syncing; reply != nil {
				m.syncing = nil
				reply(&api.SyncGroupResponse{ErrorCode: Refusal(api.KeySyncGroup, err)})
			}
		}
	}
	clear(s.groups)
	clear(s.txns)
}
