package api

import (
	"kaas/codec/api"
	"kaas/engine"
	"kaas/server/topics"
)

// ListOffsets, key 2, v0-v8. v0 lists segment starts; v1 one offset and its timestamp; v2 isolation level; v4 leader epoch; v6 flexible;
// v7 the greatest timestamp (-3); v8 the earliest local offset (-4).
//
// Look-ups by time may read segments, so all of it runs on a worker.
//
// Deviation: under group-commit the end (-1) is the durable end of the log, and records written after it are not found by time: the high
// watermark moves with the sync.

// Times with a meaning of their own; others are timestamps in ms.
const (
	timeLatest        = -1 // high watermark, or last stable offset under read_committed
	timeEarliest      = -2
	timeMax           = -3
	timeEarliestLocal = -4
)

// listOffsets answers.
func listOffsets(c *call, q *api.ListOffsetsRequest, p *api.ListOffsetsResponse) {
	repeated := repeatedPartitions(q)
	for i := range q.Topics {
		t := &q.Topics[i]
		out := api.Next(&p.Topics)
		out.Name = t.Name
		topic := c.s.topics.ByName(t.Name)
		for j := range t.Partitions {
			asked := &t.Partitions[j]
			o := api.Next(&out.Partitions)
			o.PartitionIndex = asked.PartitionIndex
			if c.version() > 0 && repeated[partitionName{t.Name, asked.PartitionIndex}] > 1 {
				o.ErrorCode = api.ErrInvalidRequest
				continue
			}
			part, code := loaded(topic, asked.PartitionIndex)
			if code == api.ErrNone {
				code = checkLeaderEpoch(asked.CurrentLeaderEpoch, part.Log.Offsets().LeaderEpoch)
			}
			if code == api.ErrNone {
				code = c.listOffset(part, q, asked, o)
			}
			o.ErrorCode = code
			if c.version() < 4 {
				o.LeaderEpoch = -1
			}
		}
	}
}

// partitionName names a partition in a request.
type partitionName struct {
	topic string
	index int32
}

// repeatedPartitions counts how often each partition is named.
func repeatedPartitions(q *api.ListOffsetsRequest) map[partitionName]int {
	n := make(map[partitionName]int)
	for i := range q.Topics {
		for j := range q.Topics[i].Partitions {
			n[partitionName{q.Topics[i].Name, q.Topics[i].Partitions[j].PartitionIndex}]++
		}
	}
	return n
}

// loaded finds a partition and makes sure that its log is open; on workers only.
func loaded(topic *topics.Topic, index int32) (*topics.Partition, api.ErrorCode) {
	if topic == nil {
		return nil, api.ErrUnknownTopicOrPartition
	}
	part := topic.Partition(index)
	if part == nil {
		return nil, api.ErrUnknownTopicOrPartition
	}
	if err := part.Log.Load(); err != nil {
		return nil, readError(err)
	}
	return part, api.ErrNone
}

// listOffset answers for one partition.
func (c *call) listOffset(part *topics.Partition, q *api.ListOffsetsRequest, asked *api.ListOffsetsRequestListOffsetsPartition, o *api.ListOffsetsResponseListOffsetsPartitionResponse) api.ErrorCode {
	offsets := part.Log.Offsets()
	end := offsets.HighWatermark
	if q.IsolationLevel == 1 {
		end = offsets.LastStable
	}
	if c.version() == 0 {
		o.OldStyleOffsets = segmentStarts(part.Log, asked.Timestamp, int(asked.MaxNumOffsets), end, c.s.now())
		return api.ErrNone
	}
	switch asked.Timestamp {
	case timeLatest:
		o.Offset, o.LeaderEpoch = end, offsets.LeaderEpoch
		return api.ErrNone
	case timeEarliest, timeEarliestLocal:
		o.Offset, o.LeaderEpoch = offsets.LogStart, part.Log.EpochAt(offsets.LogStart)
		return api.ErrNone
	}
	look := func() (int64, int64, int32, bool, error) { return part.Log.OffsetForTime(asked.Timestamp) }
	if asked.Timestamp == timeMax {
		look = part.Log.MaxTimestamp
	}
	offset, timestamp, epoch, found, err := look()
	if err != nil {
		return readError(err)
	}
	if found && offset < end {
		o.Offset, o.Timestamp, o.LeaderEpoch = offset, timestamp, epoch
	}
	return api.ErrNone
}

// segmentStarts answers v0: the first offsets of segments written no later than the time, newest first, the log end among them; at most
// n, and none above end.
func segmentStarts(log *engine.Log, time int64, n int, end, now int64) []int64 {
	type start struct{ offset, modified int64 }
	var starts []start
	segments := log.Segments()
	for _, s := range segments {
		starts = append(starts, start{max(s.BaseOffset, log.Offsets().LogStart), s.ModifiedMs})
	}
	if len(segments) > 0 && segments[len(segments)-1].Size > 0 {
		starts = append(starts, start{log.Offsets().LogEnd, now})
	}
	from := len(starts) - 1
	switch time {
	case timeLatest:
	case timeEarliest:
		from = 0
	default:
		for from >= 0 && starts[from].modified > time {
			from--
		}
	}
	out := []int64{}
	for ; from >= 0 && len(out) < n; from-- {
		out = append(out, min(starts[from].offset, end))
	}
	return out
}
