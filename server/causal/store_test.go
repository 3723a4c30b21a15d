package causal

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"kaas/codec/parsley"
	"kaas/engine/state"
	"kaas/engine/vfs/crashfs"
)

// TestStores: both kinds of store do the same, and two nodes in one engine store do not see each other.
func TestStores(t *testing.T) {
	s, err := state.Open(crashfs.New(), "/s", state.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for name, store := range map[string]Store{"memory": &Memory{}, "engine": &Engine{Store: s, Prefix: "a/"}, "neighbour": &Engine{Store: s, Prefix: "b/", Durable: true}} {
		err := store.Write(func(w Writer) {
			w.Put([]byte("k/2"), []byte("two "+name))
			w.Put([]byte("k/1"), nil)
			w.Put([]byte("k/3"), []byte("gone"))
			w.Delete([]byte("k/3"))
			w.Put([]byte("l"), []byte("other"))
		})
		if err != nil {
			t.Fatal(name, err)
		}
		var got []string
		err = store.Scan([]byte("k/"), func(k, v []byte) error {
			if w, ok, err := store.Get(k); err != nil || !ok || string(w) != string(v) {
				t.Errorf("%s: get during a scan: %q %v %v", name, w, ok, err)
			}
			got = append(got, fmt.Sprintf("%s=%s", k, v))
			return nil
		})
		if want := []string{"k/1=", "k/2=two " + name}; err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: scanned %q, %v", name, got, err)
		}
		if v, ok, err := store.Get([]byte("k/1")); err != nil || !ok || v == nil || len(v) != 0 {
			t.Errorf("%s: empty value %v %v %v", name, v, ok, err)
		}
		if _, ok, err := store.Get([]byte("k/3")); err != nil || ok {
			t.Errorf("%s: deleted key is there, %v", name, err)
		}
		stop := errors.New("stop")
		if err := store.Scan(nil, func(_, _ []byte) error { return stop }); err != stop {
			t.Errorf("%s: scan gave %v", name, err)
		}
	}
}

// broken is a store that fails.
type broken struct {
	Memory
	get, scan, write error
}

func (b *broken) Get(key []byte) ([]byte, bool, error) {
	if b.get != nil {
		return nil, false, b.get
	}
	return b.Memory.Get(key)
}

func (b *broken) Scan(prefix []byte, fn func(key, value []byte) error) error {
	return errors.Join(b.scan, b.Memory.Scan(prefix, fn))
}

func (b *broken) Write(fill func(Writer)) error { return errors.Join(b.Memory.Write(fill), b.write) }

// TestBrokenStore: an error of the store stops the node, wherever it comes.
func TestBrokenStore(t *testing.T) {
	eio := errors.New("input/output error")
	cfg := Config{Sender: me, Consumed: []parsley.Channel{a, b}, HeldBytes: -1}
	for name, s := range map[string]*broken{"get": {get: eio}, "scan": {scan: eio}} {
		if _, err := Open(cfg, s); !errors.Is(err, eio) {
			t.Errorf("%s: opened: %v", name, err)
		}
	}
	s := &broken{}
	n, err := Open(cfg, s)
	if err == nil {
		err = n.Start(Facts{})
	}
	for i := range int64(2) {
		if err == nil {
			_, err = n.Receive(a, rec(i, off(b, 0)), nil)
		}
	}
	if err == nil {
		err = n.Commit(nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.get = eio // the second held record is not in memory
	if out, err := n.Receive(b, rec(0), nil); !errors.Is(err, eio) || n.Err() != err || n.More() {
		t.Errorf("delivered %v, %v", names(out), err)
	}
	s.get = nil
	if n, err = Open(cfg, s); err == nil {
		err = n.Start(Facts{})
	}
	if err != nil {
		t.Fatal(err)
	}
	s.Memory.Delete(parsley.Key{Kind: parsley.KeyHeld, Channel: a, Index: 1}.Append(nil))
	n.channels[0].queue.pages = deque{items: n.channels[0].queue.pages.items[:1]} // as if only the first had been read
	if _, err := n.Receive(b, rec(0), nil); !errors.Is(err, ErrState) {
		t.Errorf("a held record is gone: %v", err)
	}
	s = &broken{write: eio}
	if n, err = Open(cfg, s); err == nil {
		err = n.Start(Facts{})
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Commit(nil); !errors.Is(err, eio) || n.Err() != err {
		t.Errorf("committed: %v", err)
	}
}

// TestMemoryKeeps: what Get gave, and what a clone has, stays as it is, whatever is put later; a value shrinks with its memory.
func TestMemoryKeeps(t *testing.T) {
	var m Memory
	put := func(k, v string) { m.Put([]byte(k), []byte(v)) }
	put("a", "one")
	put("b", "two")
	got, _, _ := m.Get([]byte("a"))
	put("a", "1st")
	if string(got) != "one" {
		t.Errorf("what Get gave became %q", got)
	}
	clone := m.Clone()
	put("a", "123")
	put("b", "456")
	put("b", "789")
	clone.Put([]byte("b"), []byte("abc"))
	other, _, _ := clone.Get([]byte("a"))
	if string(other) != "1st" {
		t.Errorf("the clone has %q", other)
	}
	for k, want := range map[string]string{"a": "123", "b": "789"} {
		if v, _, _ := m.Get([]byte(k)); string(v) != want {
			t.Errorf("%s is %q, want %q", k, v, want)
		}
	}
	if v, _, _ := clone.Get([]byte("b")); string(v) != "abc" || clone.Len() != 2 {
		t.Errorf("the clone has %q", v)
	}
	m.Put([]byte("c"), make([]byte, 1<<20))
	put("c", "small")
	if v := m.values["c"]; string(v.bytes) != "small" || cap(v.bytes) > 2000 {
		t.Errorf("%q in %d bytes", v.bytes, cap(v.bytes))
	}
	if n := testing.AllocsPerRun(20, func() { put("d", "same size") }); n != 0 {
		t.Errorf("%v allocations for a value that is put again", n)
	}
}
