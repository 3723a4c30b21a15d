package catalog

import (
	"errors"
	"testing"

	"kaas/engine/state"
	"kaas/engine/vfs"
)

func openStore(t *testing.T, fs vfs.FS) *state.Store {
	t.Helper()
	s, err := state.Open(fs, "/data/__kaas", state.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// reopen opens the catalog in fs without any Close before, as after a kill.
func reopen(t *testing.T, fs vfs.FS, o Options) *Catalog {
	t.Helper()
	c, err := Open(openStore(t, fs), o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCreateDeleteReopen(t *testing.T) {
	fs := vfs.Memory()
	c := reopen(t, fs, Options{NodeID: 7})
	res := c.CreateTopics([]NewTopic{
		{Name: "orders", Partitions: 3, Configs: map[string]string{"retention.ms": "1"}},
		{Name: "gone", Partitions: 1},
		{Name: "orders", Partitions: 1},
		{Name: "none", Partitions: 0},
		{Name: "..", Partitions: 1},
		{Name: "__internal", Partitions: 2, Internal: true},
	})
	for i, want := range []error{nil, nil, ErrTopicExists, ErrPartitionCount, ErrInvalidName, nil} {
		if !errors.Is(res[i].Err, want) || (res[i].Topic != nil) != (want == nil) {
			t.Errorf("topic %d: %+v, want error %v", i, res[i], want)
		}
	}
	if errs := c.DeleteTopics([]*Topic{res[1].Topic, res[1].Topic}); errs[0] != nil || errs[1] != ErrUnknownTopic {
		t.Errorf("delete: %v", errs)
	}
	c2 := reopen(t, fs, Options{NodeID: 7})
	s := c2.Snapshot()
	o := s.Topic("orders")
	if o == nil || o.ID != res[0].Topic.ID || o.Partitions != 3 || o.Configs["retention.ms"] != "1" || o.Internal || o.LeaderEpoch != 2 {
		t.Errorf("orders after reopen: %+v", o)
	}
	if s.TopicByID(o.ID) != o || s.Topic("gone") != nil || s.Len() != 2 || s.Partitions() != 5 || !s.Topic("__internal").Internal {
		t.Errorf("after reopen: %d topics, %d partitions, gone: %v", s.Len(), s.Partitions(), s.Topic("gone"))
	}
	if c2.ClusterID() != c.ClusterID() || len(c2.ClusterID()) != 22 || c2.Starts() != 2 {
		t.Errorf("cluster id %q then %q, starts %d", c.ClusterID(), c2.ClusterID(), c2.Starts())
	}
}
