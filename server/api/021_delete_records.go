package api

import (
	"errors"

	"kaas/codec/api"
	"kaas/engine"
	"kaas/server/topics"
)

// DeleteRecords, key 21, v0-v2. v2 flexible.
//
// The log start is durable before the answer; files go later. -1 stands for the high watermark.
//
// Deviation: Apache writes log starts to a checkpoint once a minute, so a kill can bring deleted records back; here it cannot.
// Deviation: timeout_ms is not looked at: no replica has to be waited for.
func deleteRecords(c *call, q *api.DeleteRecordsRequest, p *api.DeleteRecordsResponse) {
	for i := range q.Topics {
		t := &q.Topics[i]
		out := api.Next(&p.Topics)
		out.Name = t.Name
		for j := range t.Partitions {
			o := api.Next(&out.Partitions)
			o.PartitionIndex = t.Partitions[j].PartitionIndex
			low, code := c.deleteRecordsOf(t.Name, o.PartitionIndex, t.Partitions[j].Offset)
			o.LowWatermark, o.ErrorCode = low, code
		}
	}
}

// deleteRecordsOf moves the log start of one partition; -1 beside an error.
func (c *call) deleteRecordsOf(name string, index int32, offset int64) (int64, api.ErrorCode) {
	if topics.IsInternal(name) {
		return -1, api.ErrInvalidTopicException
	}
	topic := c.s.topics.ByName(name)
	part, code := loaded(topic, index)
	if code != api.ErrNone {
		return -1, code
	}
	if !topic.Settings().Config.Delete {
		return -1, api.ErrPolicyViolation
	}
	low, err := part.Log.DeleteRecords(offset)
	switch {
	case err == nil:
		return low, api.ErrNone
	case errors.Is(err, engine.ErrOffsetOutOfRange):
		return -1, api.ErrOffsetOutOfRange
	default:
		return -1, readError(err)
	}
}
