package state

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// verify compares a tree with a model: size, order, every place, and every way to start in the middle.
func verify(t *testing.T, tr *tree, model map[string]place, rng *rand.Rand) {
	t.Helper()
	keys := slices.Sorted(maps.Keys(model))
	from := ""
	if len(keys) > 0 && rng.IntN(2) == 0 {
		i := rng.IntN(len(keys))
		from = keys[i]
		if keys = keys[i:]; rng.IntN(2) == 0 {
			from += "\x00"
			keys = keys[1:]
		}
	}
	var got []string
	tr.ascend([]byte(from), func(k []byte, p place) bool {
		if model[string(k)] != p {
			t.Fatalf("%q at %v, want %v", k, p, model[string(k)])
		}
		got = append(got, string(k))
		return true
	})
	if !slices.Equal(got, keys) || tr.n != len(model) {
		t.Fatalf("from %q: %d keys of %d, want %d of %d", from, len(got), tr.n, len(keys), len(model))
	}
}

func TestTree(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 1))
		tr, model := &tree{}, map[string]place{}
		space := []int{10, 300, 20000}[rng.IntN(3)]
		if seed%3 == 0 {
			tr, model = bulk(rng.IntN(5000))
		}
		for i := range 9000 {
			k := fmt.Sprintf("%0*d", 1+rng.IntN(3)*20, rng.IntN(space))
			if rng.IntN(3000) == 0 {
				verify(t, tr, model, rng)
			}
			// Seasons of growth and of decline.
			if rng.IntN(100) < []int{20, 80}[i/2000%2] {
				old, had := tr.remove([]byte(k))
				if want, ok := model[k]; had != ok || old != want {
					t.Fatalf("remove %q: %v %v, want %v %v", k, old, had, want, ok)
				}
				delete(model, k)
			} else {
				p := place{rng.Uint32(), rng.Uint32(), rng.Uint32()}
				old, had := tr.put([]byte(k), p)
				if want, ok := model[k]; had != ok || old != want {
					t.Fatalf("put %q: %v %v, want %v %v", k, old, had, want, ok)
				}
				model[k] = p
			}
			k = fmt.Sprintf("%0*d", 1+rng.IntN(3)*20, rng.IntN(space))
			if p, ok := tr.get([]byte(k)); p != model[k] || ok != (p != place{}) {
				t.Fatalf("get %q: %v %v, want %v", k, p, ok, model[k])
			}
		}
		verify(t, tr, model, rng)
		for k := range model {
			tr.remove([]byte(k))
		}
		if tr.n != 0 || tr.root != nil {
			t.Fatalf("%d keys after all were removed, root %v", tr.n, tr.root)
		}
	}
}

func bulk(n int) (*tree, map[string]place) {
	var b builder
	model := map[string]place{}
	for i := range n {
		k, p := fmt.Sprintf("%020d", i), place{1, uint32(i), 2}
		b.add([]byte(k), p)
		model[k] = p
	}
	return b.tree(), model
}

func TestBuilderOrder(t *testing.T) {
	var b builder
	for _, c := range []struct {
		key string
		ok  bool
	}{{"a", true}, {"b", true}, {"b", false}, {"a", false}, {"c", true}} {
		if ok := b.add([]byte(c.key), place{}); ok != c.ok {
			t.Errorf("add %q: %v", c.key, ok)
		}
	}
}

// TestTreeMemory holds the index to its budget: keys in random order, 60 bytes each.
func TestTreeMemory(t *testing.T) {
	tr := &tree{}
	const n = 20_000
	rng := rand.New(rand.NewPCG(1, 1))
	before := heap()
	for range n {
		tr.put(fmt.Appendf(nil, "parsley/store/0123456789/partition-000/%020dk", rng.Uint64()), place{1, 2, 3})
	}
	if per := float64(heap()-before) / n; per > 160 {
		t.Errorf("%.0f bytes for a key of 60", per)
	}
	if !bytes.HasPrefix(tr.root.firstKey(), []byte("parsley")) {
		t.Errorf("first key %q", tr.root.firstKey())
	}
}

func (in *inner) firstKey() []byte {
	for in.kids != nil {
		in = in.kids[0]
	}
	return in.leaves[0].key(0)
}
