package catalog

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"kaas/engine/state"
	"kaas/engine/vfs"
)

// spyStore counts durable batches, and refuses them with err if it is set.
type spyStore struct {
	Store
	applied int
	err     error
}

func (s *spyStore) Apply(b *state.Batch, durable bool) error {
	if s.err != nil {
		return s.err
	}
	if durable {
		s.applied++
	}
	return s.Store.Apply(b, durable)
}

func spied(t *testing.T, fs vfs.FS, h Hooks) (*Catalog, *spyStore) {
	t.Helper()
	spy := &spyStore{Store: openStore(t, fs)}
	c, err := Open(spy, Options{Hooks: h})
	if err != nil {
		t.Fatal(err)
	}
	return c, spy
}

func create(t *testing.T, c *Catalog, name string, partitions int32) *Topic {
	t.Helper()
	r := c.CreateTopics([]NewTopic{{Name: name, Partitions: partitions}})[0]
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	return r.Topic
}

func names(ts []*Topic) (out []string) {
	for _, t := range ts {
		out = append(out, t.Name)
	}
	return out
}

func TestIdentity(t *testing.T) {
	fs := vfs.Memory()
	c := reopen(t, fs, Options{NodeID: 3, ClusterID: "abcdefghijklmnopqrstuv"})
	if c.ClusterID() != "abcdefghijklmnopqrstuv" || c.NodeID() != 3 {
		t.Errorf("identity %q %d", c.ClusterID(), c.NodeID())
	}
	if _, err := Open(openStore(t, fs), Options{NodeID: 4}); !errors.Is(err, ErrNodeID) {
		t.Errorf("other node id: %v", err)
	}
	if _, err := Open(openStore(t, fs), Options{NodeID: 3, ClusterID: "other"}); !errors.Is(err, ErrClusterID) {
		t.Errorf("other cluster id: %v", err)
	}
	if c := reopen(t, fs, Options{NodeID: 3}); c.Starts() != 2 || c.ClusterID() != "abcdefghijklmnopqrstuv" {
		t.Errorf("refused starts counted: %d, cluster %q", c.Starts(), c.ClusterID())
	}
	for range 200 {
		if id := NewClusterID(); len(id) != 22 || id[0] == '-' {
			t.Fatalf("cluster id %q", id)
		}
	}
}

// TestLeaderEpoch: 0 in the life of creation, two more for each start, nothing written for it.
func TestLeaderEpoch(t *testing.T) {
	fs := vfs.Memory()
	for life := range int32(4) {
		var seen []string
		c, spy := spied(t, fs, Hooks{TopicAdded: func(t *Topic) { seen = append(seen, fmt.Sprint(t.Name, t.LeaderEpoch)) }})
		create(t, c, fmt.Sprintf("t%d", life), 1)
		var want []string
		for i, topic := range c.Snapshot().Topics() {
			if topic.LeaderEpoch != 2*(life-int32(i)) {
				t.Errorf("life %d: %s has epoch %d", life, topic.Name, topic.LeaderEpoch)
			}
			want = append(want, fmt.Sprint(topic.Name, 2*(life-int32(i))))
		}
		if !slices.Equal(seen, want) || len(want) != int(life)+1 {
			t.Errorf("life %d: hook saw %v, want %v", life, seen, want)
		}
		if spy.applied != 2 {
			t.Errorf("life %d: %d syncs for a start and a topic", life, spy.applied)
		}
	}
}

func TestAddPartitionsAndConfigs(t *testing.T) {
	fs := vfs.Memory()
	var log []string
	note := func(format string, args ...any) { log = append(log, fmt.Sprintf(format, args...)) }
	var c *Catalog
	c, spy := spied(t, fs, Hooks{
		TopicAdded: func(t *Topic) { note("added %s", t.Name); t.Handle = []int32{t.Partitions} },
		PartitionsAdded: func(t *Topic, from int32) {
			note("partitions %s %d-%d, published %d", t.Name, from, t.Partitions, c.Snapshot().Topic(t.Name).Partitions)
			t.Handle = append(slices.Clone(t.Handle.([]int32)), t.Partitions)
		},
		ConfigChanged: func(t *Topic) { note("config %s %v %v", t.Name, t.Configs, t.Handle) },
		TopicRemoved: func(t *Topic) {
			note("removed %s %v, published %v", t.Name, t.Handle, c.Snapshot().Topic(t.Name) != nil)
		},
		BrokerConfigChanged: func(node string, m map[string]string) {
			note("broker %q %v", node, m)
		},
	})
	old := create(t, c, "a", 1)
	res := c.AddPartitions([]NewPartitions{{"a", 3}, {"a", 4}, {"a", 4}, {"b", 2}})
	for i, want := range []error{nil, nil, ErrPartitionCount, ErrUnknownTopic} {
		if res[i].Err != want {
			t.Errorf("partitions %d: %v, want %v", i, res[i].Err, want)
		}
	}
	if err := c.SetTopicConfigs("a", map[string]string{"x": "1"}); err != nil {
		t.Error(err)
	}
	if err := c.SetTopicConfigs("b", nil); err != ErrUnknownTopic {
		t.Errorf("configs of no topic: %v", err)
	}
	unchanged(t, c, spy)
	err := c.AlterTopicConfigs("a", func(m map[string]string) (map[string]string, error) { m["y"] = m["x"]; return m, nil })
	if err != nil {
		t.Error(err)
	}
	now := c.Snapshot().Topic("a")
	if old.Partitions != 1 || old.Configs != nil || !maps.Equal(now.Configs, map[string]string{"x": "1", "y": "1"}) || now.ID != old.ID {
		t.Errorf("old %+v, now %+v", old, now)
	}
	for _, m := range []map[string]string{{"k": "v"}, nil} {
		if err := c.SetBrokerConfigs("7", m); err != nil || !maps.Equal(c.Snapshot().BrokerConfigs("7"), m) {
			t.Errorf("broker configs %v: %v %v", m, err, c.Snapshot().BrokerConfigs("7"))
		}
	}
	if err := c.SetBrokerConfigs("", map[string]string{"all": "1"}); err != nil {
		t.Error(err)
	}
	again := reopen(t, fs, Options{}).Snapshot()
	if a := again.Topic("a"); a.Partitions != 4 || a.ID != old.ID || !maps.Equal(a.Configs, now.Configs) {
		t.Errorf("after reopen: %+v", a)
	}
	if again.BrokerConfigs("")["all"] != "1" || again.BrokerConfigs("7") != nil {
		t.Errorf("broker configs after reopen: %v %v", again.BrokerConfigs(""), again.BrokerConfigs("7"))
	}
	c.DeleteTopics([]*Topic{old})
	want := []string{"added a", "partitions a 1-3, published 1", "partitions a 3-4, published 1", "config a map[x:1] [1 3 4]",
		"config a map[x:1 y:1] [1 3 4]", `broker "7" map[k:v]`, `broker "7" map[]`, `broker "" map[all:1]`,
		"removed a [1 3 4], published true"}
	if !slices.Equal(log, want) {
		t.Errorf("hooks:\n%s\nwant\n%s", strings.Join(log, "\n"), strings.Join(want, "\n"))
	}
}

// unchanged makes calls that change nothing of topic a: they cost no sync and no hook.
func unchanged(t *testing.T, c *Catalog, spy *spyStore) {
	t.Helper()
	before := spy.applied
	if err := c.SetTopicConfigs("a", map[string]string{"x": "1"}); err != nil || spy.applied != before {
		t.Errorf("same configs: %v, %d syncs", err, spy.applied-before)
	}
	no := errors.New("no")
	if err := c.AlterTopicConfigs("a", func(m map[string]string) (map[string]string, error) { m["x"] = "2"; return m, no }); err != no {
		t.Errorf("alter that fails: %v", err)
	}
}

// TestRecreate: a recreated topic has a new id, and a handle on the old one does not delete it.
func TestRecreate(t *testing.T) {
	fs := vfs.Memory()
	c := reopen(t, fs, Options{})
	old := create(t, c, "t", 5)
	held := c.Snapshot()
	c.DeleteTopics([]*Topic{old})
	now := create(t, c, "t", 2)
	if now.ID == old.ID || now.ID == ([16]byte{}) {
		t.Errorf("ids %x and %x", old.ID, now.ID)
	}
	if errs := c.DeleteTopics([]*Topic{old}); errs[0] != ErrUnknownTopic {
		t.Errorf("delete by the old id: %v", errs)
	}
	if held.Topic("t") != old || held.TopicByID(old.ID) != old || held.TopicByID(now.ID) != nil || held.Len() != 1 {
		t.Error("an old snapshot has changed")
	}
	s := reopen(t, fs, Options{}).Snapshot()
	if got := s.Topic("t"); got.ID != now.ID || got.Partitions != 2 || s.TopicByID(old.ID) != nil || s.Partitions() != 2 {
		t.Errorf("after reopen: %+v", got)
	}
}

func TestCollides(t *testing.T) {
	c := reopen(t, vfs.Memory(), Options{})
	create(t, c, "a.b_c", 1)
	create(t, c, "plain", 1)
	for name, want := range map[string]string{"a_b_c": "a.b_c", "a.b.c": "a.b_c", "a.b_c": "", "a.b-c": "", "plain": "", "pla.n": ""} {
		if other, ok := c.Snapshot().Collides(name); other != want || ok != (want != "") {
			t.Errorf("%q collides with %q, want %q", name, other, want)
		}
	}
	var coll *CollisionError
	r := c.CreateTopics([]NewTopic{{Name: "a_b.c", Partitions: 1}, {Name: "x.y", Partitions: 1}, {Name: "x_y", Partitions: 1}})
	if !errors.As(r[0].Err, &coll) || coll.Other != "a.b_c" || r[1].Err != nil || !errors.As(r[2].Err, &coll) || coll.Other != "x.y" {
		t.Errorf("create: %v %v %v", r[0].Err, r[1].Err, r[2].Err)
	}
	c.DeleteTopics([]*Topic{c.Snapshot().Topic("a.b_c")})
	create(t, c, "a_b_c", 1)
}

// TestProducerIDs: never twice, whatever happens.
func TestProducerIDs(t *testing.T) {
	fs := vfs.Memory()
	seen := map[int64]bool{}
	for range 3 {
		c, spy := spied(t, fs, Hooks{})
		for range 2 {
			first, err := c.NextProducerIDs()
			if err != nil || first%ProducerIDBlock != 0 || seen[first] {
				t.Errorf("block at %d: %v, seen %v", first, err, seen[first])
			}
			seen[first] = true
		}
		spy.err = errors.New("disk")
		if _, err := c.NextProducerIDs(); err != spy.err {
			t.Errorf("block that could not be made durable: %v", err)
		}
	}
	if len(seen) != 6 || !seen[0] || !seen[5000] {
		t.Errorf("blocks %v", seen)
	}
	c := reopen(t, fs, Options{})
	c.producer = 1<<63 - 1000
	if _, err := c.NextProducerIDs(); err != ErrProducerIDs {
		t.Errorf("after the last block: %v", err)
	}
}

// TestStoreFails: what is not durable is not shown, by any mutation.
func TestStoreFails(t *testing.T) {
	c, spy := spied(t, vfs.Memory(), Hooks{})
	topic := create(t, c, "t", 1)
	before := c.Snapshot()
	spy.err = errors.New("disk")
	r := c.CreateTopics([]NewTopic{{Name: "u", Partitions: 1}, {Name: "t", Partitions: 1}})
	if r[0].Err != spy.err || r[0].Topic != nil || r[1].Err != ErrTopicExists {
		t.Errorf("create: %+v", r)
	}
	if errs := c.DeleteTopics([]*Topic{topic}); errs[0] != spy.err {
		t.Errorf("delete: %v", errs)
	}
	if r := c.AddPartitions([]NewPartitions{{"t", 9}}); r[0].Err != spy.err || r[0].Topic != nil {
		t.Errorf("partitions: %+v", r)
	}
	if err := c.SetTopicConfigs("t", map[string]string{"a": "b"}); err != spy.err {
		t.Errorf("configs: %v", err)
	}
	if err := c.SetBrokerConfigs("", map[string]string{"a": "b"}); err != spy.err {
		t.Errorf("broker configs: %v", err)
	}
	s := c.Snapshot()
	if s != before || s.Len() != 1 || s.Topic("u") != nil || s.Topic("t") != topic || topic.Partitions != 1 {
		t.Errorf("published: %v", names(s.Topics()))
	}
	spy.err = nil
	create(t, c, "v", 1)
	if got := names(c.Snapshot().Topics()); !slices.Equal(got, []string{"t", "v"}) {
		t.Errorf("after the disk is well again: %v", got)
	}
}

// TestRandom compares the catalog with a map over random changes, with a snapshot kept from each hundredth.
func TestRandom(t *testing.T) {
	fs := vfs.Memory()
	c := reopen(t, fs, Options{})
	rng := rand.New(rand.NewPCG(1, 2))
	model := map[string]*Topic{}
	type kept struct {
		s    *Snapshot
		want []string
	}
	var old []kept
	for i := range 4000 {
		name := fmt.Sprintf("t.%d", rng.IntN(1500))
		switch topic := model[name]; {
		case topic == nil:
			model[name] = create(t, c, name, 1+rng.Int32N(5))
		case rng.IntN(2) == 0:
			c.DeleteTopics([]*Topic{topic})
			delete(model, name)
		default:
			model[name] = c.AddPartitions([]NewPartitions{{name, topic.Partitions + 1}})[0].Topic
		}
		s := c.Snapshot()
		if s.Len() != len(model) || s.Topic(name) != model[name] {
			t.Fatalf("%d topics, %d in the model; %s: %v", s.Len(), len(model), name, s.Topic(name))
		}
		if rng.IntN(100) == 0 || i == 3999 {
			old = append(old, kept{s, slices.Sorted(maps.Keys(model))})
		}
	}
	partitions := 0
	for _, topic := range model {
		partitions += int(topic.Partitions)
		if c.Snapshot().TopicByID(topic.ID) != topic {
			t.Errorf("%s not found by its id", topic.Name)
		}
	}
	old = append(old, kept{reopen(t, fs, Options{}).Snapshot(), slices.Sorted(maps.Keys(model))})
	for i, k := range old {
		if got := names(k.s.Topics()); !slices.Equal(got, k.want) {
			t.Fatalf("snapshot %d lists %d topics, want %d", i, len(got), len(k.want))
		}
	}
	if last := old[len(old)-1].s; last.Partitions() != partitions || c.Snapshot().Partitions() != partitions {
		t.Errorf("%d partitions after reopen, %d before, want %d", last.Partitions(), c.Snapshot().Partitions(), partitions)
	}
}

// TestConcurrent: twenty creators, each sees its topic at once, while readers walk the lists.
func TestConcurrent(t *testing.T) {
	c := reopen(t, vfs.Memory(), Options{})
	var wg sync.WaitGroup
	for w := range 20 {
		wg.Go(func() {
			for i := range 20 {
				name := fmt.Sprintf("topic-%d-%d", w, i)
				if r := c.CreateTopics([]NewTopic{{Name: name, Partitions: 1}})[0]; r.Err != nil || c.Snapshot().Topic(name) != r.Topic {
					t.Errorf("%s: %v", name, r.Err)
				}
				if s := c.Snapshot(); len(s.Topics()) != s.Len() {
					t.Errorf("list of %d, %d topics", len(s.Topics()), s.Len())
				}
			}
		})
	}
	wg.Wait()
	if n := c.Snapshot().Len(); n != 400 {
		t.Errorf("%d topics", n)
	}
}
