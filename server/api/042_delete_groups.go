package api

import (
	"slices"
	"time"

	"kaas/codec/api"
	"kaas/server/coordinator"
	"kaas/server/group"
)

// DeleteGroups, key 42, v0-v2. v2 flexible.
//
// A group that is named twice is deleted and answered once.

// serveDeleteGroups asks the shard of each group.
func serveDeleteGroups(c *call) {
	c = c.detach()
	q, p := new(api.DeleteGroupsRequest), new(api.DeleteGroupsResponse)
	if !c.decode(q) {
		return
	}
	ids := distinct(q.GroupsNames)
	p.Results = make([]api.DeleteGroupsResponseDeletableGroupResult, len(ids))
	all := c.parts(len(ids), func() { c.answer(p) })
	for i, id := range ids {
		reply := func(code api.ErrorCode) {
			p.Results[i].GroupId, p.Results[i].ErrorCode = id, code
			all.done()
		}
		c.onShard(id, func(s *group.Shard, now time.Time) coordinator.Outcome { return s.DeleteGroup(id, now, reply) },
			func(err error) { reply(group.Refusal(api.KeyDeleteGroups, err)) })
	}
}

// distinct drops what was there before.
func distinct[T comparable](list []T) []T {
	seen := make(map[T]struct{}, len(list))
	return slices.DeleteFunc(list, func(x T) bool {
		_, twice := seen[x]
		seen[x] = struct{}{}
		return twice
	})
}
