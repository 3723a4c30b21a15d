package group

import (
	"maps"
	"slices"
	"time"

	"kaas/codec/wire"
	"kaas/server/coordinator"
)

// knownTopics are the topics that exist of those that a group subscribes to when one member has become another. was is nil for a new one, is
// for one that goes.
func (c *consumerGroup) knownTopics(there Topics, was, is *memberState) map[string]topicMetadata {
	known := make(map[string]topicMetadata, len(c.topics))
	add := func(names []string) {
		for _, name := range names {
			if _, seen := known[name]; seen {
				continue
			}
			if id, n, ok := there.Topic(name); ok {
				known[name] = topicMetadata{id, n}
			}
		}
	}
	for _, m := range c.members {
		if was == nil || m.id != was.id {
			add(m.topics)
		}
	}
	if is != nil {
		add(is.topics)
	}
	return known
}

func sameTopics(a, b map[string]topicMetadata) bool { return maps.Equal(a, b) }

// memberStates are the members of a group once one has become another, in order.
func (c *consumerGroup) memberStates(was, is *memberState) []*memberState {
	list := make([]*memberState, 0, len(c.members)+1)
	for _, m := range c.members {
		if was == nil || m.id != was.id {
			list = append(list, &m.memberState)
		}
	}
	if is != nil {
		list = append(list, is)
	}
	slices.SortFunc(list, func(a, b *memberState) int { return compareText(a.id, b.id) })
	return list
}

// assignor is the one that most members ask for, of several the first that is configured; without any wish, the default.
func (s *Shard) assignor(members []*memberState) Assignor {
	all := s.cfg.Consumer.Assignors
	votes := make([]int, len(all))
	for _, m := range members {
		if i := slices.IndexFunc(all, func(a Assignor) bool { return m.assignor.Valid && a.name == m.assignor.String }); i >= 0 {
			votes[i]++
		}
	}
	best := 0
	for i, n := range votes {
		if n > votes[best] {
			best = i
		}
	}
	return all[best]
}

// inherit gives the member the target of the one whose place it takes. The others' stay: nobody looks for another target within an epoch.
func (b *beat) inherit() (mine partitions) {
	mine = b.c.targets[b.was.id]
	b.records.target(b.member.id, mine)
	b.records.targetEpoch(b.epoch)
	return mine
}

// assign makes the targets of the group's new epoch and returns the member's.
func (b *beat) assign() (mine partitions) {
	members := b.c.memberStates(b.was, &b.member)
	q := question{members: make([]asking, len(members)), topics: make(map[wire.UUID]int32, len(b.topics))}
	for _, t := range b.topics {
		q.topics[t.id] = t.partitions
	}
	before := func(m *memberState) (partitions, bool) {
		if b.replaced && m.id == b.member.id {
			return b.c.targets[b.was.id], false // the place of another: told anew in any case
		}
		p, ok := b.c.targets[m.id]
		return p, ok
	}
	for i, m := range members {
		q.members[i].id = m.id
		for _, name := range m.topics {
			if t, ok := b.topics[name]; ok {
				q.members[i].topics = append(q.members[i].topics, t.id)
			}
		}
		slices.SortFunc(q.members[i].topics, compareID)
		q.members[i].topics = slices.Compact(q.members[i].topics)
		q.members[i].has, _ = before(m)
	}
	for i, p := range b.s.assignor(members).assign(&q) {
		m := members[i]
		if was, told := before(m); !told || !was.equal(p) {
			b.records.target(m.id, p)
		}
		if m.id == b.member.id {
			mine = p
		}
	}
	b.records.targetEpoch(b.epoch)
	return mine
}

// reconcile moves the member towards its target as far as it can go now; false if it stays where it is. What it is not to have any more it
// gives up first, in its old epoch; then it takes the new one, and what of its target has no owner; the rest comes as it gets free.
func (b *beat) reconcile(target partitions, epoch int32) (moved bool) {
	m := &b.member
	switch {
	case m.target != epoch:
		m.assigned, m.revoking = m.assigned.plus(m.revoking).split(target.has)
		if b.replaced {
			m.revoking = nil // it comes with nothing, and could say so in no epoch but 0, which is for joining
		}
		_, m.pending = target.split(m.assigned.has)
		m.target = epoch
		if len(m.revoking) == 0 {
			b.advance(epoch)
		}
	case len(m.revoking) > 0:
		own := owned(b.q.TopicPartitions)
		if own == nil || own.any(m.revoking.has) {
			return false
		}
		m.revoking = nil
		b.advance(epoch)
	case len(m.pending) > 0:
		free, _ := m.pending.split(b.free)
		if len(free) == 0 {
			return false
		}
		b.advance(epoch)
	default:
		return false
	}
	b.records.current(m)
	return true
}

// advance takes the member to an epoch, with what is free of what it waits for.
func (b *beat) advance(epoch int32) {
	m := &b.member
	free, pending := m.pending.split(b.free)
	m.assigned, m.pending = m.assigned.plus(free), pending
	m.previous, m.epoch = m.epoch, epoch
}

// free says whether nobody owns a partition.
func (b *beat) free(k topicIDPartition) bool { return b.c.owners[k] == nil }

// touchConsumer gives a member a new session. Its alarm is set once and looks again when it rings.
func (s *Shard) touchConsumer(c *consumerGroup, m *consumerMember, now time.Time) {
	m.deadline = now.Add(s.cfg.Consumer.SessionTimeout)
	if m.session == 0 {
		m.session = s.timers.After(s.cfg.Consumer.SessionTimeout, func(now time.Time) coordinator.Outcome { return s.sessionRings(c, m, now) })
	}
}

// sessionRings takes a member out that was not heard of for too long.
func (s *Shard) sessionRings(c *consumerGroup, m *consumerMember, now time.Time) coordinator.Outcome {
	m.session = 0
	if m.gone {
		return coordinator.Outcome{}
	}
	if left := m.deadline.Sub(now); left > 0 {
		m.session = s.timers.After(left, func(now time.Time) coordinator.Outcome { return s.sessionRings(c, m, now) })
		return coordinator.Outcome{}
	}
	return s.expelConsumer(c, m, "session timed out", &m.session, func(now time.Time) coordinator.Outcome { return s.sessionRings(c, m, now) })
}

// watchRevocation has a member taken out that does not give up its partitions in time. It is called whenever the member moves.
func (s *Shard) watchRevocation(c *consumerGroup, m *consumerMember) {
	s.stop(&m.revocation)
	if len(m.revoking) == 0 {
		return
	}
	epoch := m.epoch
	m.revocation = s.timers.After(millis(max(m.rebalance, 0)), func(time.Time) coordinator.Outcome { return s.revocationRings(c, m, epoch) })
}

// revocationRings takes a member out that is still in the epoch in which it was to give up partitions.
func (s *Shard) revocationRings(c *consumerGroup, m *consumerMember, epoch int32) coordinator.Outcome {
	m.revocation = 0
	if m.gone || m.epoch != epoch || len(m.revoking) == 0 {
		return coordinator.Outcome{}
	}
	return s.expelConsumer(c, m, "partitions not given up in time", &m.revocation,
		func(time.Time) coordinator.Outcome { return s.revocationRings(c, m, epoch) })
}
