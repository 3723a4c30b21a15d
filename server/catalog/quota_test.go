package catalog

import (
	"errors"
	"maps"
	"testing"

	"kaas/engine/state"
	"kaas/engine/vfs"
)

// shown is the quotas of a snapshot as text of entities and values.
func shown(s *Snapshot) map[string]map[string]float64 {
	out := map[string]map[string]float64{}
	for _, q := range s.Quotas() {
		name := ""
		for _, e := range q.Entity {
			if name += e.Type + "="; e.Default {
				name += "*"
			}
			name += e.Name + ";"
		}
		out[name] = q.Values
	}
	return out
}

// TestQuotasAreKept: changes are published and told, in one write, and are there after the store was opened again.
func TestQuotasAreKept(t *testing.T) {
	files := vfs.Memory()
	store, err := state.Open(files, "/q", state.Options{})
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	c, err := Open(store, Options{NodeID: 1, Hooks: Hooks{QuotasChanged: func(all []*Quota) { told = len(all) }}})
	if err != nil {
		t.Fatal(err)
	}
	user := []QuotaEntity{{Type: "user", Name: "u"}}
	both := []QuotaEntity{{Type: "user", Default: true}, {Type: "client-id", Name: "c"}}
	if err := c.AlterQuotas([]QuotaChange{
		{Entity: user, Set: map[string]float64{"a": 1, "b": 2.5}},
		{Entity: both, Set: map[string]float64{"a": 3}},
		{Entity: []QuotaEntity{{Type: "ip", Default: true}}, Remove: []string{"a"}},
	}); err != nil || told != 2 {
		t.Fatalf("%v, told of %d entities", err, told)
	}
	before := c.Snapshot()
	if err := c.AlterQuotas([]QuotaChange{{Entity: user, Set: map[string]float64{"b": 7}, Remove: []string{"a"}}, {Entity: both, Remove: []string{"a"}}}); err != nil {
		t.Fatal(err)
	}
	old := map[string]map[string]float64{"client-id=c;user=*;": {"a": 3}, "user=u;": {"a": 1, "b": 2.5}}
	if got := shown(before); !maps.EqualFunc(got, old, maps.Equal[map[string]float64, map[string]float64]) {
		t.Errorf("a snapshot changed: %v", got)
	}
	want := map[string]map[string]float64{"user=u;": {"b": 7}}
	for range 2 {
		if got := shown(c.Snapshot()); !maps.EqualFunc(got, want, maps.Equal[map[string]float64, map[string]float64]) || told != 1 {
			t.Fatalf("quotas %v, told of %d", got, told)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if store, err = state.Open(files, "/q", state.Options{}); err != nil {
			t.Fatal(err)
		}
		if c, err = Open(store, Options{NodeID: 1}); err != nil {
			t.Fatal(err)
		}
	}
	store.Close()
	failed := c.Snapshot()
	if err := c.AlterQuotas([]QuotaChange{{Entity: both, Set: map[string]float64{"a": 3}}}); err == nil || c.Snapshot() != failed {
		t.Errorf("a change that the store refused: %v, published %v", err, c.Snapshot() != failed)
	}
}

// TestDamagedQuota: a value cut short is refused at Open.
func TestDamagedQuota(t *testing.T) {
	store, err := state.Open(vfs.Memory(), "/q", state.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var b state.Batch
	b.Put(quotaKey([]QuotaEntity{{Type: "user", Name: "u"}}), []byte{recordVersion, 1, 1, 'a', 0})
	if err := store.Apply(&b, true); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(store, Options{NodeID: 1}); !errors.Is(err, errRecord) {
		t.Errorf("opened over a damaged quota: %v", err)
	}
}
