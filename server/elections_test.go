package server

import (
	"errors"
	"slices"
	"syscall"
	"testing"

	"kaas/codec/api"
	"kaas/engine/vfs"
)

// elected is what ElectLeaders answered for one partition.
type elected struct {
	topic     string
	partition int32
	code      api.ErrorCode
}

// elect asks for elections and lists the answers; a topic without partitions has partition -1.
func (c *client) elect(version int16, kind int8, topics []api.ElectLeadersRequestTopicPartitions) (whole api.ErrorCode, out []elected) {
	c.t.Helper()
	var p api.ElectLeadersResponse
	c.call(api.KeyElectLeaders, version, &api.ElectLeadersRequest{ElectionType: kind, TopicPartitions: topics, TimeoutMs: 1000}, &p)
	for _, t := range p.ReplicaElectionResults {
		if len(t.PartitionResult) == 0 {
			out = append(out, elected{t.Topic, -1, 0})
		}
		for _, r := range t.PartitionResult {
			if r.ErrorMessage.String == "" {
				c.t.Errorf("%s-%d: no message", t.Topic, r.PartitionId)
			}
			out = append(out, elected{t.Topic, r.PartitionId, r.ErrorCode})
		}
	}
	return p.ErrorCode, out
}

// Nobody can be elected: a partition has its leader, or its log is offline and then it is told among all of them too.
func TestElections(t *testing.T) {
	fs := &gatedFS{FS: vfs.OS, syncErr: syscall.EIO}
	b := startWith(t, fs, t.TempDir())
	defer func() {
		if err := b.Stop(); err != nil && !errors.Is(err, syscall.EIO) {
			t.Error(err)
		}
	}()
	c := dial(t, b)
	c.create("a", 1)
	c.create("t", 2)
	if p := c.produce("t", 1, records("a")); p.ErrorCode != api.ErrKafkaStorageError {
		t.Fatalf("an append whose sync fails: %v", p.ErrorCode)
	}
	named := []api.ElectLeadersRequestTopicPartitions{{Topic: "t", Partitions: []int32{0, 1, 2}}, {Topic: "u", Partitions: []int32{0}}}
	const preferred, unclean = 0, 1
	for _, x := range []struct {
		version int16
		kind    int8
		topics  []api.ElectLeadersRequestTopicPartitions
		whole   api.ErrorCode
		want    []elected
	}{
		{0, preferred, named, 0, []elected{{"t", 0, 84}, {"t", 1, 80}, {"t", 2, 3}, {"u", 0, 3}}},
		{1, unclean, named, 0, []elected{{"t", 0, 84}, {"t", 1, 83}, {"t", 2, 3}, {"u", 0, 3}}},
		{2, preferred, nil, 0, []elected{{"a", -1, 0}, {"t", 1, 80}}},
		{2, unclean, nil, 0, []elected{{"a", -1, 0}, {"t", 1, 83}}},
		{2, preferred, named[:0], 0, nil},
		{1, 2, named, 42, []elected{{"t", 0, 42}, {"t", 1, 42}, {"t", 2, 42}, {"u", 0, 42}}},
		{2, -1, nil, 42, nil},
	} {
		whole, got := c.elect(x.version, x.kind, x.topics)
		if whole != x.whole || !slices.Equal(got, x.want) {
			t.Errorf("v%d type %d of %v: %v %v, want %v %v", x.version, x.kind, x.topics, whole, got, x.whole, x.want)
		}
	}
}
