package api

import "kaas/codec/api"

// OffsetForLeaderEpoch, key 23, v0-v4. v1 leader epoch in the answer; v2 the epoch the client knows; v3 replica id; v4 flexible.
func offsetForLeaderEpoch(c *call, q *api.OffsetForLeaderEpochRequest, p *api.OffsetForLeaderEpochResponse) {
	for i := range q.Topics {
		t := &q.Topics[i]
		out := api.Next(&p.Topics)
		out.Topic = t.Topic
		topic := c.s.topics.ByName(t.Topic)
		for j := range t.Partitions {
			asked := &t.Partitions[j]
			o := api.Next(&out.Partitions)
			o.Partition = asked.Partition
			part, code := loaded(topic, asked.Partition)
			if code == api.ErrNone {
				code = checkLeaderEpoch(asked.CurrentLeaderEpoch, part.Log.Offsets().LeaderEpoch)
			}
			if code != api.ErrNone {
				o.ErrorCode = code
				continue
			}
			o.LeaderEpoch, o.EndOffset = part.Log.EndOffsetForEpoch(asked.LeaderEpoch)
		}
	}
}
