package catalog

import (
	"errors"
	"reflect"
	"testing"

	"kaas/engine/state"
	"kaas/engine/vfs"
)

func testSeed() *Seed {
	return &Seed{
		Origin: Origin{Kind: OriginKRaft, MetadataOffset: 175}, NodeID: 7, ClusterID: "QmBc4yIcR4SsLRAsROTFSA", NextProducerID: 3000,
		Topics: []SeedTopic{
			{NewTopic: NewTopic{Name: "orders", ID: [16]byte{1}, Partitions: 2, Configs: map[string]string{"retention.ms": "-1"}}, LastEpoch: 5},
			{NewTopic: NewTopic{Name: "__consumer_offsets", ID: [16]byte{2}, Partitions: 50, Internal: true}},
		},
		BrokerConfigs: map[string]map[string]string{"": {"log.retention.ms": "5"}, "7": {"a": "b", "c": ""}},
		Kept: Kept{
			ACLs: []ACL{{ID: [16]byte{3}, ResourceType: 2, PatternType: 4, Operation: 3, Permission: -1, Resource: "orders", Principal: "User:alice", Host: "*"}},
			Users: []ScramUser{
				{Name: "bob", Mechanism: 1, Salt: []byte{0, 1}, StoredKey: []byte("stored"), ServerKey: []byte("server"), Iterations: 8192},
				{Name: "bob", Mechanism: 2, Salt: []byte{2}, StoredKey: []byte{}, ServerKey: []byte("s"), Iterations: 4096},
			},
			Quotas: []Quota{
				{Entity: []QuotaEntity{{Type: "user", Name: "älice"}}, Values: map[string]float64{}},
				{Entity: []QuotaEntity{{Type: "client-id", Default: true}, {Type: "user", Name: ""}}, Values: map[string]float64{"producer_byte_rate": 1048576, "x": -0.5}},
			},
			Features: map[string]int16{"metadata.version": 19},
			Tokens:   []Token{{ID: "id/+", Owner: "User:a", Requester: "User:b", Renewers: []string{"User:c", ""}, IssuedMs: 1, MaxMs: 2, ExpiresMs: 1 << 50}},
			ClientMetrics: map[string]map[string]string{
				"m": {"interval.ms": "5000"},
			},
		},
	}
}

func TestPlant(t *testing.T) {
	fs := vfs.Memory()
	store := openStore(t, fs)
	seed := testSeed()
	if err := Plant(store, seed); err != nil {
		t.Fatal(err)
	}
	if err := Plant(store, seed); err != ErrNotEmpty {
		t.Errorf("second time: %v", err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	store = openStore(t, fs)
	if o, ok, err := ReadOrigin(store); o != seed.Origin || !ok || err != nil {
		t.Errorf("origin %+v %v %v", o, ok, err)
	}
	kept, err := ReadKept(store)
	if err != nil || !reflect.DeepEqual(*kept, seed.Kept) {
		t.Errorf("kept %+v (%v), want\n%+v", kept, err, seed.Kept)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	// The leader epoch is above the other broker's from the first start, and grows by two with each.
	for start, epochs := range [][2]int32{{7, 2}, {9, 4}, {11, 6}} {
		c := reopen(t, fs, Options{NodeID: 7})
		s := c.Snapshot()
		orders, offsets := s.Topic("orders"), s.Topic("__consumer_offsets")
		if orders.LeaderEpoch != epochs[0] || offsets.LeaderEpoch != epochs[1] {
			t.Errorf("start %d: epochs %d and %d, want %v", start, orders.LeaderEpoch, offsets.LeaderEpoch, epochs)
		}
		if orders.ID != [16]byte{1} || offsets.Partitions != 50 || !offsets.Internal || orders.Internal || s.Len() != 2 {
			t.Errorf("start %d: %+v %+v", start, orders, offsets)
		}
		if s.BrokerConfigs("")["log.retention.ms"] != "5" || len(s.BrokerConfigs("7")) != 2 || c.ClusterID() != seed.ClusterID {
			t.Errorf("start %d: %v %v %s", start, s.BrokerConfigs(""), s.BrokerConfigs("7"), c.ClusterID())
		}
		if first, err := c.NextProducerIDs(); err != nil || first != int64(3000+start*ProducerIDBlock) {
			t.Errorf("start %d: producer ids from %d, %v", start, first, err)
		}
		// A change of the topic keeps its epoch base.
		if err := c.SetTopicConfigs("orders", map[string]string{"retention.ms": string(rune('1' + start))}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(openStore(t, fs), Options{NodeID: 1}); !errors.Is(err, ErrNodeID) {
		t.Errorf("another node id: %v", err)
	}
}

func TestPlantRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *Seed)
		want   error
	}{
		"same name":     {func(s *Seed) { s.Topics[1].Name = "orders" }, ErrTopicExists},
		"illegal name":  {func(s *Seed) { s.Topics[1].Name = "a/b" }, ErrInvalidName},
		"no partitions": {func(s *Seed) { s.Topics[0].Partitions = 0 }, ErrPartitionCount},
		"same id":       {func(s *Seed) { s.Topics[1].ID = s.Topics[0].ID }, errRecord},
		"no id":         {func(s *Seed) { s.Topics[1].ID = [16]byte{} }, errRecord},
		"no node":       {func(s *Seed) { s.NodeID = -1 }, errRecord},
	} {
		store := openStore(t, vfs.Memory())
		seed := testSeed()
		c.change(seed)
		if err := Plant(store, seed); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if _, ok, err := ReadOrigin(store); ok || err != nil {
			t.Errorf("%s: something was written (%v)", name, err)
		}
	}
}

// TestDamagedKept: every prefix of a value, and a value with a byte too many, is refused.
func TestDamagedKept(t *testing.T) {
	whole := openStore(t, vfs.Memory())
	if err := Plant(whole, testSeed()); err != nil {
		t.Fatal(err)
	}
	for _, kind := range "AUQFDC" {
		var key, value []byte
		err := whole.Scan([]byte{byte(kind)}, func(k, v []byte) error {
			key, value = append([]byte(nil), k...), append([]byte(nil), v...)
			return nil
		})
		if err != nil || key == nil {
			t.Fatalf("%c: %v, key %q", kind, err, key)
		}
		for n := range len(value) + 1 {
			bad := value[:n:n]
			if n == len(value) {
				bad = append(bad, 0)
			}
			store := openStore(t, vfs.Memory())
			var b state.Batch
			b.Put(key, bad)
			if err := store.Apply(&b, false); err != nil {
				t.Fatal(err)
			}
			if _, err := ReadKept(store); err == nil {
				t.Errorf("%c: %d of %d bytes were taken", kind, n, len(value))
			}
		}
	}
}
