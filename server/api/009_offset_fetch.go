package api

import (
	"slices"
	"time"

	"kaas/codec/api"
	"kaas/server/coordinator"
	"kaas/server/group"
)

// OffsetFetch, key 9, v0-v9. v2 an error of the group, and null topics for all; v3 throttle time; v5 leader epoch; v6 flexible; v7
// require stable; v8 many groups; v9 member id and epoch of the new group protocol.
//
// v0 read from ZooKeeper and is answered 35, as by an Apache without one.
//
// Deviation: v8 and later without any group are answered. Apache leaves them without an answer.

// serveOffsetFetch asks the shard of each group.
func serveOffsetFetch(c *call) {
	c = c.detach()
	q, p := new(api.OffsetFetchRequest), new(api.OffsetFetchResponse)
	if !c.decode(q) {
		return
	}
	if c.version() == 0 {
		c.answer(oldOffsets(&api.OffsetFetchResponseOffsetFetchResponseGroup{ErrorCode: api.ErrUnsupportedVersion}, q, 0))
		return
	}
	if c.version() < 8 {
		single := &api.OffsetFetchRequestOffsetFetchRequestGroup{GroupId: q.GroupId}
		if q.Topics != nil {
			single.Topics = make([]wantedOffsets, len(q.Topics))
		}
		for i := range q.Topics {
			single.Topics[i].Name, single.Topics[i].PartitionIndexes = q.Topics[i].Name, q.Topics[i].PartitionIndexes
		}
		c.fetchOffsets(single, q.RequireStable, func(g *api.OffsetFetchResponseOffsetFetchResponseGroup) { c.answer(oldOffsets(g, q, c.version())) })
		return
	}
	p.Groups = make([]api.OffsetFetchResponseOffsetFetchResponseGroup, len(q.Groups))
	all := c.parts(len(q.Groups), func() { c.answer(p) })
	for i := range q.Groups {
		c.fetchOffsets(&q.Groups[i], q.RequireStable, func(g *api.OffsetFetchResponseOffsetFetchResponseGroup) {
			p.Groups[i] = *g
			all.done()
		})
	}
}

// fetchOffsets asks for the offsets of one group. reply is called once.
func (c *call) fetchOffsets(q *api.OffsetFetchRequestOffsetFetchRequestGroup, stable bool, reply func(*api.OffsetFetchResponseOffsetFetchResponseGroup)) {
	q.Topics = mergeWanted(q.Topics)
	refused := func(err error) {
		reply(&api.OffsetFetchResponseOffsetFetchResponseGroup{GroupId: q.GroupId, ErrorCode: group.Refusal(api.KeyOffsetFetch, err)})
	}
	c.onShard(q.GroupId, func(s *group.Shard, _ time.Time) coordinator.Outcome {
		g := s.Fetch(q, stable)
		return coordinator.Outcome{Done: func(err error) {
			if err != nil {
				refused(err)
				return
			}
			reply(&g)
		}}
	}, refused)
}

// wantedOffsets are the partitions of a topic that a request names.
type wantedOffsets = api.OffsetFetchRequestOffsetFetchRequestTopics

// mergeWanted makes of a request what Apache's map of partitions makes of it: each topic and partition once, and no topic without any.
func mergeWanted(ts []wantedOffsets) []wantedOffsets {
	out := mergeNamed(ts, func(t *wantedOffsets) string { return t.Name },
		func(into, t *wantedOffsets) {
			into.PartitionIndexes = append(into.PartitionIndexes, t.PartitionIndexes...)
		})
	for i := range out {
		out[i].PartitionIndexes = firstOfEach(out[i].PartitionIndexes)
	}
	return slices.DeleteFunc(out, func(t wantedOffsets) bool { return len(t.PartitionIndexes) == 0 })
}

// firstOfEach drops indexes that were there before.
func firstOfEach(ps []int32) []int32 {
	if ascending(ps, func(p *int32) int32 { return *p }) {
		return ps
	}
	return distinct(ps)
}

// oldOffsets makes the answer of versions with one group. v0 and v1 have no place for an error of the group: it stands at every partition.
func oldOffsets(g *api.OffsetFetchResponseOffsetFetchResponseGroup, q *api.OffsetFetchRequest, version int16) *api.OffsetFetchResponse {
	p := new(api.OffsetFetchResponse)
	if version >= 2 {
		p.ErrorCode = g.ErrorCode
	}
	for i := range g.Topics {
		t := api.Next(&p.Topics)
		t.Name = g.Topics[i].Name
		for j := range g.Topics[i].Partitions {
			f, out := &g.Topics[i].Partitions[j], api.Next(&t.Partitions)
			out.PartitionIndex, out.CommittedOffset, out.CommittedLeaderEpoch = f.PartitionIndex, f.CommittedOffset, f.CommittedLeaderEpoch
			out.Metadata, out.ErrorCode = f.Metadata, f.ErrorCode
		}
	}
	if version >= 2 || g.ErrorCode == api.ErrNone {
		return p
	}
	for i := range q.Topics {
		t := api.Next(&p.Topics)
		t.Name = q.Topics[i].Name
		for _, index := range q.Topics[i].PartitionIndexes {
			out := api.Next(&t.Partitions)
			out.PartitionIndex, out.CommittedOffset, out.CommittedLeaderEpoch, out.ErrorCode = index, -1, -1, g.ErrorCode
			out.Metadata.Valid = true
		}
	}
	return p
}
