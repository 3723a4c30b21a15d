package catalog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"kaas/engine/state"
	"kaas/engine/vfs"
)

const logFile = "/data/__kaas/0000000001.log"

func size(t *testing.T, fs vfs.FS) int64 {
	t.Helper()
	n, err := fs.Size(logFile)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// cut returns a copy of the store in fs with only the first n bytes of its log.
func cut(t *testing.T, fs vfs.FS, n int64) vfs.FS {
	t.Helper()
	b, err := vfs.ReadFile(fs, logFile, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	c := vfs.Memory()
	if err := c.MkdirAll("/data/__kaas"); err != nil {
		t.Fatal(err)
	}
	f, err := c.Open(logFile, vfs.CreateNew)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b[:n], 0); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestTornTail cuts the log at every byte of a history of creations, deletions and recreations: what was acknowledged by
// then is there, what was not is there whole or not at all, and nothing deleted comes back.
func TestTornTail(t *testing.T) {
	fs := vfs.Memory()
	c := reopen(t, fs, Options{})
	type step struct {
		end  int64    // size of the log when the step was acknowledged
		want []string // topics then
	}
	state := func() (out []string) {
		for _, topic := range c.Snapshot().Topics() {
			out = append(out, fmt.Sprintf("%s %x %d %v", topic.Name, topic.ID, topic.Partitions, topic.Configs))
		}
		return out
	}
	steps := []step{{size(t, fs), nil}}
	for _, do := range []func(){
		func() { create(t, c, "a", 1) },
		func() { c.CreateTopics([]NewTopic{{Name: "b", Partitions: 2}, {Name: "c", Partitions: 3}}) },
		func() { c.DeleteTopics([]*Topic{c.Snapshot().Topic("a"), c.Snapshot().Topic("c")}) },
		func() { create(t, c, "a", 4) },
		func() { c.AddPartitions([]NewPartitions{{"a", 5}}) },
		func() { c.SetTopicConfigs("b", map[string]string{"k": "v"}) },
		func() { c.DeleteTopics([]*Topic{c.Snapshot().Topic("b")}) },
	} {
		do()
		steps = append(steps, step{size(t, fs), state()})
	}
	for i, at := 0, steps[0].end; at <= steps[len(steps)-1].end; at++ {
		if i+1 < len(steps) && at == steps[i+1].end {
			i++
		}
		old := c
		torn := cut(t, fs, at)
		c = reopen(t, torn, Options{})
		if got := state(); !slices.Equal(got, steps[i].want) {
			t.Fatalf("cut at %d: %v, want %v", at, got, steps[i].want)
		}
		create(t, c, "later", 1)
		if again := reopen(t, torn, Options{}).Snapshot(); again.Topic("later") == nil || again.Len() != len(steps[i].want)+1 {
			t.Fatalf("cut at %d, then written: %v", at, names(again.Topics()))
		}
		c = old
	}
}

// TestDamagedRecords: a value that makes no sense stops the start and names the key.
func TestDamagedRecords(t *testing.T) {
	good := (&Topic{ID: [16]byte{1}, Partitions: 3, created: 2, Configs: map[string]string{"a": "b"}}).append(nil)
	for n := range good {
		if _, err := decodeTopic("t", good[:n]); err != errRecord {
			t.Errorf("%d of %d bytes: %v", n, len(good), err)
		}
	}
	long := append(slices.Clone(good), 0)
	future := append([]byte{9}, good[1:]...)
	huge := append(slices.Clone(good[:20]), 0xff, 0xff, 0xff, 0xff, 0x7f) // two billion settings in no bytes
	for _, c := range []struct {
		key   string
		value []byte
		err   error
	}{
		{"Tt", good, nil}, {"Tt", long, errRecord}, {"Tt", future, errRecordVersion}, {"Tt", huge, errRecord}, {"T..", good, errRecord},
		{"T", good, errRecord}, {"S", []byte{1}, errRecord}, {"P", []byte{1, 5, 6}, errRecord}, {"I", []byte{}, errRecord},
		{"B7", []byte{1, 1, 1}, errRecord}, {"Zunknown", []byte{200}, nil},
	} {
		s := openStore(t, vfs.Memory())
		var b state.Batch
		b.Put([]byte(c.key), c.value)
		if err := s.Apply(&b, true); err != nil {
			t.Fatal(err)
		}
		_, err := Open(s, Options{})
		if !errors.Is(err, c.err) || err != nil && !strings.Contains(err.Error(), fmt.Sprintf("%q", c.key)) {
			t.Errorf("%s %x: %v, want %v", c.key, c.value, err, c.err)
		}
	}
}

func TestLegalName(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "A.b_c-9": true, "...": true, strings.Repeat("x", 249): true,
		"": false, ".": false, "..": false, strings.Repeat("x", 250): false, "a b": false, "a/b": false, "é": false, "a\x00": false,
	} {
		if LegalName(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

// TestTrieCollisions gives all keys the same hash: everything ends in the last node.
func TestTrieCollisions(t *testing.T) {
	x := index[string]{hash: func(string) uint64 { return 42 }}
	keys := []string{"a", "b", "c", "d"}
	var versions []index[string]
	for _, k := range keys {
		versions = append(versions, x)
		x = x.with(&edit{}, k, &Topic{Name: k})
	}
	for i, v := range versions {
		for j, k := range keys {
			if got := v.get(k); (got != nil) != (j < i) {
				t.Errorf("version %d, %s: %v", i, k, got)
			}
		}
	}
	for _, k := range []string{"b", "d", "a", "c"} {
		before := x
		if x = x.without(&edit{}, k); x.get(k) != nil || before.get(k).Name != k {
			t.Errorf("%s: after removal %v, before %v", k, x.get(k), before.get(k))
		}
	}
	if x.root != nil {
		t.Errorf("not empty: %+v", x.root)
	}
}
