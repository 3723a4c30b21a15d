package group

import (
	"strings"

	"kaas/codec/api"
	"kaas/server/coordinator"
)

// group is one group id. What kind of group it is, is a sum: none of the pointers set is a simple group, which only keeps offsets.
type group struct {
	id string
	// classic is the membership of the classic protocol, nil before the first JoinGroup.
	classic *classic
	// consumer is the membership of the consumer protocol (KIP-848); not together with classic.
	consumer *consumerGroup
	// dead: being deleted, see removal.
	dead bool

	offsets map[topicPartition]*offset
	// pending holds the offsets of open transactions, by producer id. nil without any.
	pending map[int64]map[topicPartition]*offset
	// writing counts the commits of a partition that were handed to the runtime and not yet replayed. nil without any.
	writing map[topicPartition]int
}

// topicPartition names a partition.
type topicPartition struct {
	topic     name
	partition int32
}

// state is a group's state by Apache's names.
type state uint8

const (
	empty state = iota
	preparingRebalance
	completingRebalance
	stable
	dead
	assigning // of consumer groups, as the next
	reconciling
)

var stateNames = [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Assigning", "Reconciling"}

func (st state) String() string { return stateNames[st] }

// lower is how Apache 3.7 writes the states of consumer groups.
func (st state) lower() string { return strings.ToLower(stateNames[st]) }

// state is what DescribeGroups says.
func (g *group) state() state {
	switch {
	case g.dead:
		return dead
	case g.consumer != nil:
		return g.consumer.state()
	case g.classic == nil:
		return empty
	}
	return g.classic.state
}

// protocolType is "" for a simple group.
func (g *group) protocolType() string {
	switch {
	case g.consumer != nil:
		return consumerProtocol
	case g.classic == nil:
		return ""
	}
	return g.classic.protocolType
}

// generation is 0 before the first.
func (g *group) generation() int32 {
	if g.classic == nil {
		return 0
	}
	return g.classic.generation
}

// hasOffsets says whether anything is committed, pending in a transaction or on its way to the log.
func (g *group) hasOffsets() bool { return len(g.offsets)+len(g.pending)+len(g.writing) > 0 }

// hasMembers counts ids that were handed out (79) as well.
func (g *group) hasMembers() bool {
	return g.consumer != nil && len(g.consumer.members) > 0 || g.classic != nil && len(g.classic.members)+len(g.classic.handedOut) > 0
}

// check tells whether memberID (and the instance id that it claims) is a member.
func (g *group) check(memberID string, instance string, static bool) (*member, api.ErrorCode) {
	if g.classic == nil {
		return nil, api.ErrUnknownMemberId
	}
	if static {
		m := g.classic.static(instance)
		switch {
		case m == nil:
			return nil, api.ErrUnknownMemberId
		case m.id != memberID:
			return nil, api.ErrFencedInstanceId
		}
		return m, api.ErrNone
	}
	if m := g.classic.members[memberID]; m != nil {
		return m, api.ErrNone
	}
	return nil, api.ErrUnknownMemberId
}

// ensure finds a group or makes it, in memory only.
func (s *Shard) ensure(id string) *group {
	g := s.groups[id]
	if g == nil {
		g = &group{id: cloned(id), offsets: make(map[topicPartition]*offset)}
		s.groups[g.id] = g
	}
	return g
}

// drop forgets a group with all it holds.
func (s *Shard) drop(g *group) {
	if g.classic != nil {
		s.stopAll(g.classic)
	}
	if g.consumer != nil {
		s.stopConsumer(g.consumer)
	}
	for producer := range g.pending {
		s.unlink(producer, g)
	}
	if s.groups[g.id] == g {
		delete(s.groups, g.id)
	}
}

func (s *Shard) stop(t *coordinator.Timer) {
	if *t != 0 {
		s.timers.Stop(*t)
		*t = 0
	}
}
