package api

import (
	"slices"
	"time"

	"kaas/codec/api"
	"kaas/server/coordinator"
	"kaas/server/group"
)

// OffsetCommit, key 8, v0-v9. v1 generation and member, and a time of the commit that v2 gave up for a retention (until v4); v3 throttle
// time; v6 leader epoch; v7 group instance id; v8 flexible; v9 may be told of a stale member epoch (113), which
// older versions know as 35.
//
// v0 committed to ZooKeeper and is answered 35, as by an Apache without one. A topic without partitions is not answered; of a partition that is
// named twice the last counts.
//
// Deviation: offsets.commit.timeout.ms is not looked at: there is no other broker to wait for, and the disk has no time-out.
var offsetCommit = shardCall(func(q *api.OffsetCommitRequest) string { return q.GroupId }, blind,
	func(c *call, s *group.Shard, q *api.OffsetCommitRequest, now time.Time, reply func(*api.OffsetCommitResponse)) coordinator.Outcome {
		q.Topics = mergeCommits(q.Topics)
		return s.Commit(q, now, func(p *api.OffsetCommitResponse) {
			if c.version() < 9 {
				eachCommitted(p, func(code *api.ErrorCode) {
					if *code == api.ErrStaleMemberEpoch {
						*code = api.ErrUnsupportedVersion
					}
				})
			}
			reply(p)
		})
	}, refusedCommit)

// serveOffsetCommit sorts out the old version.
func serveOffsetCommit(c *call) {
	if c.version() > 0 {
		offsetCommit(c)
		return
	}
	onLoop(commitToZooKeeper)(c)
}

// mergeCommits makes of a request what Apache's map of partitions makes of it. Ordinary requests come out as they are.
func mergeCommits(ts []api.OffsetCommitRequestOffsetCommitRequestTopic) []api.OffsetCommitRequestOffsetCommitRequestTopic {
	type topic = api.OffsetCommitRequestOffsetCommitRequestTopic
	type partition = api.OffsetCommitRequestOffsetCommitRequestPartition
	out := mergeNamed(ts, func(t *topic) string { return t.Name }, func(into, t *topic) { into.Partitions = append(into.Partitions, t.Partitions...) })
	for i := range out {
		out[i].Partitions = lastOfEach(out[i].Partitions, func(p *partition) int32 { return p.PartitionIndex })
	}
	return slices.DeleteFunc(out, func(t topic) bool { return len(t.Partitions) == 0 })
}

// mergeNamed makes one of those that have the same name.
func mergeNamed[T any](ts []T, name func(*T) string, join func(into, t *T)) []T {
	const few = 8 // looked through; more get a map, since a stranger may send very many
	out := ts[:0]
	var at map[string]int
	if len(ts) > few {
		at = make(map[string]int, len(ts))
	}
	for i := range ts {
		k, found := at[name(&ts[i])]
		for j := 0; at == nil && !found && j < len(out); j++ {
			k, found = j, name(&out[j]) == name(&ts[i])
		}
		if found {
			join(&out[k], &ts[i])
			continue
		}
		if at != nil {
			at[name(&ts[i])] = len(out)
		}
		out = append(out, ts[i])
	}
	return out
}

// refusedCommit answers every partition with the same code, but those that do not exist: they are looked for first.
func refusedCommit(c *call, q *api.OffsetCommitRequest, code api.ErrorCode) *api.OffsetCommitResponse {
	p := new(api.OffsetCommitResponse)
	for i := range q.Topics {
		if len(q.Topics[i].Partitions) == 0 {
			continue
		}
		t := api.Next(&p.Topics)
		t.Name = q.Topics[i].Name
		topic := c.s.topics.ByName(t.Name)
		for j := range q.Topics[i].Partitions {
			out := api.Next(&t.Partitions)
			if out.PartitionIndex, out.ErrorCode = q.Topics[i].Partitions[j].PartitionIndex, code; topic == nil || topic.Partition(out.PartitionIndex) == nil {
				out.ErrorCode = api.ErrUnknownTopicOrPartition
			}
		}
	}
	return p
}

// commitToZooKeeper answers v0: partitions that do not exist with 3, and when there is any other, all with 35.
func commitToZooKeeper(c *call, q *api.OffsetCommitRequest, p *api.OffsetCommitResponse) {
	*p = *refusedCommit(c, q, api.ErrUnsupportedVersion)
	any := false
	eachCommitted(p, func(code *api.ErrorCode) { any = any || *code == api.ErrUnsupportedVersion })
	if any {
		eachCommitted(p, func(code *api.ErrorCode) { *code = api.ErrUnsupportedVersion })
	}
}

// eachCommitted calls f with the code of every partition.
func eachCommitted(p *api.OffsetCommitResponse, f func(code *api.ErrorCode)) {
	for i := range p.Topics {
		for j := range p.Topics[i].Partitions {
			f(&p.Topics[i].Partitions[j].ErrorCode)
		}
	}
}
