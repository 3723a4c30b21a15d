package group

import (
	"slices"
	"strings"

	"kaas/codec/api"
)

// Describe serves one group of DescribeGroups, key 15. Of a group that does not exist, or is of the
// consumer protocol, it says Dead; metadata and assignments are shown of
// a stable group only. AuthorizedOperations is left at "not asked for".
func (s *Shard) Describe(id string) api.DescribeGroupsResponseDescribedGroup {
	var p api.DescribeGroupsResponseDescribedGroup
	p.Default()
	p.GroupId = cloned(id)
	g := s.groups[id]
	if g == nil || g.consumer != nil {
		p.GroupState = dead.String()
		return p
	}
	st := g.state()
	p.GroupState, p.ProtocolType = st.String(), g.protocolType()
	c := g.classic
	if c == nil {
		return p
	}
	if st == stable {
		p.ProtocolData = c.protocol.String
	}
	p.Members = make([]api.DescribeGroupsResponseDescribedGroupMember, len(c.order))
	for i, m := range c.order {
		p.Members[i] = api.DescribeGroupsResponseDescribedGroupMember{
			MemberId: m.id, GroupInstanceId: m.instance, ClientId: m.clientID.Value(), ClientHost: m.clientHost.Value(),
			MemberMetadata: []byte{}, MemberAssignment: []byte{},
		}
		if st == stable {
			p.Members[i].MemberMetadata, p.Members[i].MemberAssignment = m.metadata(c.protocol.String), m.assignment
		}
	}
	return p
}

// List serves this shard's part of ListGroups, key 16, by group id. No states ask for all; they are compared without regard to case, and
// unknown ones match nothing. Groups of the consumer protocol have states in small letters, to be asked for as they are.
func (s *Shard) List(states []string) []api.ListGroupsResponseListedGroup {
	var all []api.ListGroupsResponseListedGroup
	for id, g := range s.groups {
		if g.dead {
			continue
		}
		st := g.state().String()
		same := strings.EqualFold
		if g.consumer != nil {
			st = g.state().lower()
			same = func(a, b string) bool { return a == b }
		}
		if len(states) > 0 && !slices.ContainsFunc(states, func(f string) bool { return same(f, st) }) {
			continue
		}
		all = append(all, api.ListGroupsResponseListedGroup{GroupId: id, ProtocolType: g.protocolType(), GroupState: st})
	}
	slices.SortFunc(all, func(a, b api.ListGroupsResponseListedGroup) int { return strings.Compare(a.GroupId, b.GroupId) })
	return all
}
