package api

import (
	"time"

	"kaas/codec/api"
	"kaas/server/coordinator"
	"kaas/server/group"
)

// ConsumerGroupDescribe, key 69, v0 (KIP-848). It is offered only with unstable.api.versions.enable.
//
// With the consumer protocol off every group is answered 35. Names of topics are left empty, as by Apache 3.7.

// serveConsumerGroupDescribe asks the shard of each group.
func serveConsumerGroupDescribe(c *call) {
	c = c.detach()
	q, p := new(api.ConsumerGroupDescribeRequest), new(api.ConsumerGroupDescribeResponse)
	if !c.decode(q) {
		return
	}
	p.Groups = make([]api.ConsumerGroupDescribeResponseDescribedGroup, len(q.GroupIds))
	all := c.parts(len(q.GroupIds), func() { c.answer(p) })
	for i, id := range q.GroupIds {
		out := &p.Groups[i]
		fail := func(code api.ErrorCode) {
			out.Default()
			out.GroupId, out.ErrorCode = id, code
			all.done()
		}
		if !c.s.consumerGroups {
			fail(api.ErrUnsupportedVersion)
			continue
		}
		refused := func(err error) { fail(group.Refusal(api.KeyConsumerGroupDescribe, err)) }
		c.onShard(id, func(s *group.Shard, _ time.Time) coordinator.Outcome {
			*out = s.ConsumerDescribe(id)
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
