package server

import (
	"maps"
	"path/filepath"
	"testing"

	"kaas/codec/api"
)

// logSizes asks for log directories and lists the sizes by topic and partition, after checking the rest of the answer.
func (c *client) logSizes(version int16, dir string, q *api.DescribeLogDirsRequest) map[string]map[int32]int64 {
	c.t.Helper()
	var p api.DescribeLogDirsResponse
	c.call(api.KeyDescribeLogDirs, version, q, &p)
	if p.ErrorCode != 0 || len(p.Results) != 1 || p.Results[0].ErrorCode != 0 || p.Results[0].LogDir != dir {
		c.t.Fatalf("v%d: %+v, want one directory %s", version, p, dir)
	}
	r := &p.Results[0]
	if known := version >= 4; known != (r.TotalBytes > 0) || known != (r.UsableBytes > 0) || r.UsableBytes > r.TotalBytes {
		c.t.Errorf("v%d: %d of %d bytes usable", version, r.UsableBytes, r.TotalBytes)
	}
	out := map[string]map[int32]int64{}
	for _, t := range r.Topics {
		if out[t.Name] != nil {
			c.t.Errorf("topic %s is listed twice", t.Name)
		}
		out[t.Name] = map[int32]int64{}
		for _, x := range t.Partitions {
			if _, twice := out[t.Name][x.PartitionIndex]; twice || x.OffsetLag != 0 || x.IsFutureKey {
				c.t.Errorf("%s: %+v", t.Name, x)
			}
			out[t.Name][x.PartitionIndex] = x.PartitionSize
		}
	}
	return out
}

// Null topics are all of them, anything else is a filter, and the room on the disk is told at v4 (regression 66); sizes are also right for
// logs that nobody has touched since the start.
func TestLogDirs(t *testing.T) {
	dir := t.TempDir()
	b := start(t, dir)
	c := dial(t, b)
	c.create("a", 3)
	c.create("b", 1)
	set := records("x")
	c.produce("a", 1, set)
	c.produce("a", 1, set)
	c.produce("b", 0, set)
	stop(t, b)

	b = start(t, dir)
	defer stop(t, b)
	c = dial(t, b)
	defer func() {
		for _, l := range b.topics.Logs() {
			if l.Loaded() {
				t.Errorf("%v was loaded to tell its size", l)
			}
		}
	}()
	size := int64(len(set))
	topic := func(name string, partitions ...int32) api.DescribeLogDirsRequestDescribableLogDirTopic {
		return api.DescribeLogDirsRequestDescribableLogDirTopic{Topic: name, Partitions: partitions}
	}
	none := []api.DescribeLogDirsRequestDescribableLogDirTopic{}
	all := map[string]map[int32]int64{"a": {0: 0, 1: 2 * size, 2: 0}, "b": {0: size}}
	for version := int16(0); version <= 4; version++ {
		for _, x := range []struct {
			what   string
			topics []api.DescribeLogDirsRequestDescribableLogDirTopic
			want   map[string]map[int32]int64
		}{
			{"null", nil, all},
			{"empty", none, nil},
			{"one", append(none, topic("b", 0)), map[string]map[int32]int64{"b": {0: size}}},
			{"unknown", append(none, topic("a", 7, -1), topic("c", 0)), nil},
			{"named twice", append(none, topic("a", 1, 1), topic("a", 2, 1)), map[string]map[int32]int64{"a": {1: 2 * size, 2: 0}}},
			{"no partitions", append(none, topic("a")), nil},
		} {
			got := c.logSizes(version, dir, &api.DescribeLogDirsRequest{Topics: x.topics})
			if len(got) != len(x.want) {
				t.Errorf("v%d %s: %v, want %v", version, x.what, got, x.want)
			}
			for name, parts := range x.want {
				if !maps.Equal(got[name], parts) {
					t.Errorf("v%d %s: %s %v, want %v", version, x.what, name, got[name], parts)
				}
			}
		}
	}
}

// A directory given as relative is told as absolute, and in memory the room is the machine's.
func TestLogDirsOfMemory(t *testing.T) {
	at := t.TempDir()
	t.Chdir(at)
	b := start(t, "data", "kaas.storage", "memory")
	defer stop(t, b)
	c := dial(t, b)
	c.create("a", 1)
	if got := c.logSizes(4, filepath.Join(at, "data"), &api.DescribeLogDirsRequest{}); len(got) != 1 || len(got["a"]) != 1 {
		t.Errorf("%v", got)
	}
}

// A partition can be sent to where it is, and nowhere else.
func TestLogDirsAreNotAltered(t *testing.T) {
	dir := t.TempDir()
	b := start(t, dir)
	defer stop(t, b)
	c := dial(t, b)
	c.create("a", 1)
	topic := []api.AlterReplicaLogDirsRequestAlterReplicaLogDirTopic{{Name: "a", Partitions: []int32{0, 1}}, {Name: "b", Partitions: []int32{0}}}
	for version := int16(0); version <= 2; version++ {
		for path, want := range map[string][3]api.ErrorCode{dir: {0, 3, 3}, dir + "x": {57, 57, 57}} {
			q := api.AlterReplicaLogDirsRequest{Dirs: []api.AlterReplicaLogDirsRequestAlterReplicaLogDir{{Path: path, Topics: topic}}}
			var p api.AlterReplicaLogDirsResponse
			c.call(api.KeyAlterReplicaLogDirs, version, &q, &p)
			if len(p.Results) != 2 || len(p.Results[0].Partitions) != 2 || len(p.Results[1].Partitions) != 1 {
				t.Fatalf("v%d: %+v", version, p)
			}
			got := [3]api.ErrorCode{p.Results[0].Partitions[0].ErrorCode, p.Results[0].Partitions[1].ErrorCode, p.Results[1].Partitions[0].ErrorCode}
			if got != want {
				t.Errorf("v%d %s: %v, want %v", version, path, got, want)
			}
		}
	}
}
