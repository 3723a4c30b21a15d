package api

import (
	"path/filepath"

	"kaas/codec/api"
	"kaas/server/topics"
)

// DescribeLogDirs, key 35, v0-v4. v2 flexible; v3 error code of the whole; v4 room on the disk (KIP-827).
//
// The one directory, with the partitions asked for that exist, or all of them if the list of topics is null (regression 66). A size is
// that of the log's data, without indexes.
//
// Deviation: a partition whose log cannot be read is left out; with Apache it would have taken its whole directory offline.
func describeLogDirs(c *call, q *api.DescribeLogDirsRequest, p *api.DescribeLogDirsResponse) {
	dir := api.Next(&p.Results)
	var err error
	if dir.LogDir, err = c.s.logDir(); err != nil {
		dir.ErrorCode = api.ErrKafkaStorageError
		return
	}
	if dir.TotalBytes, dir.UsableBytes, err = c.s.space(); err != nil {
		c.s.log.Warn("the room on the data directory's file system is not known", "error", err)
		dir.TotalBytes, dir.UsableBytes, dir.ErrorCode = -1, -1, api.ErrKafkaStorageError
		return
	}
	if q.Topics == nil {
		for _, t := range c.s.topics.All() {
			describeLogs(dir, t, nil)
		}
		return
	}
	asked, order := askedLogs(q)
	for _, name := range order {
		if t := c.s.topics.ByName(name); t != nil {
			describeLogs(dir, t, asked[name])
		}
	}
}

// logDir is the absolute path of the directory that the broker's logs are in.
func (s *Service) logDir() (string, error) { return filepath.Abs(s.topics.Config().DataDir) }

// askedLogs is what a request names, each once, and the topics in its order.
func askedLogs(q *api.DescribeLogDirsRequest) (asked map[string]map[int32]bool, order []string) {
	asked = make(map[string]map[int32]bool, len(q.Topics))
	for i := range q.Topics {
		t := &q.Topics[i]
		if asked[t.Topic] == nil {
			asked[t.Topic] = make(map[int32]bool, len(t.Partitions))
			order = append(order, t.Topic)
		}
		for _, index := range t.Partitions {
			asked[t.Topic][index] = true
		}
	}
	return asked, order
}

// describeLogs adds the partitions of one topic; asked is nil for all of them. A topic with none of them is not added.
func describeLogs(dir *api.DescribeLogDirsResponseDescribeLogDirsResult, t *topics.Topic, asked map[int32]bool) {
	var out *api.DescribeLogDirsResponseDescribeLogDirsTopic
	for _, part := range t.Partitions() {
		if asked != nil && !asked[part.Index] {
			continue
		}
		size, err := part.Log.StoredBytes()
		if err != nil {
			continue
		}
		if out == nil {
			out = api.Next(&dir.Topics)
			out.Name = t.Name
		}
		o := api.Next(&out.Partitions)
		o.PartitionIndex, o.PartitionSize = part.Index, size
	}
}
