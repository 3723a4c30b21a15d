package api

import "kaas/codec/api"

// AlterReplicaLogDirs, key 34, v0-v2. v1 same as v0; v2 flexible.
//
// A partition may be sent to the directory it is in, named by its absolute path, which changes nothing; other directories are answered
// with 57, for partitions that there are not as well.
func alterReplicaLogDirs(c *call, q *api.AlterReplicaLogDirsRequest, p *api.AlterReplicaLogDirsResponse) {
	own, err := c.s.logDir()
	for i := range q.Dirs {
		for j := range q.Dirs[i].Topics {
			t := &q.Dirs[i].Topics[j]
			out := api.Next(&p.Results)
			out.TopicName = t.Name
			topic := c.s.topics.ByName(t.Name)
			for _, index := range t.Partitions {
				o := api.Next(&out.Partitions)
				o.PartitionIndex = index
				switch {
				case err != nil || q.Dirs[i].Path != own:
					o.ErrorCode = api.ErrLogDirNotFound
				case topic == nil || topic.Partition(index) == nil:
					o.ErrorCode = api.ErrUnknownTopicOrPartition
				case topic.Partition(index).Log.Err() != nil:
					o.ErrorCode = api.ErrKafkaStorageError
				}
			}
		}
	}
}
