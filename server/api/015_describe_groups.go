package api

import (
	"time"

	"kaas/codec/api"
	"kaas/server/coordinator"
	"kaas/server/group"
)

// DescribeGroups, key 15, v0-v5. v1 throttle time; v3 authorized operations; v4 group instance id of members; v5 flexible.

// serveDescribeGroups asks the shard of each group.
func serveDescribeGroups(c *call) {
	c = c.detach()
	q, p := new(api.DescribeGroupsRequest), new(api.DescribeGroupsResponse)
	if !c.decode(q) {
		return
	}
	p.Groups = make([]api.DescribeGroupsResponseDescribedGroup, len(q.Groups))
	all := c.parts(len(q.Groups), func() { c.answer(p) })
	for i, id := range q.Groups {
		out := &p.Groups[i]
		refused := func(err error) {
			out.Default()
			out.GroupId, out.ErrorCode = id, group.Refusal(api.KeyDescribeGroups, err)
			all.done()
		}
		c.onShard(id, func(s *group.Shard, _ time.Time) coordinator.Outcome {
			*out = s.Describe(id)
			if q.IncludeAuthorizedOperations {
				out.AuthorizedOperations = groupOperations
			}
			return coordinator.Outcome{Done: func(err error) {
				if err != nil {
					refused(err)
					return
				}
				all.done()
			}}
		}, refused)
	}
}
