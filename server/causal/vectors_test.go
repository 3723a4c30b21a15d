package causal

import (
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"testing"

	"github.com/google/uuid"

	"kaas/codec/parsley"
	"kaas/engine/state"
	"kaas/engine/vfs/crashfs"
)

// vectors are the worked examples of the node.
func vectors(t *testing.T) (v struct {
	Sender uuid.UUID
	Node   struct {
		T1 struct {
			Stamp string
			VcSeq int64
			Store map[string]string
		}
		T10 struct{ SecondStamp string }
	}
}) {
	t.Helper()
	b, err := os.ReadFile("../../codec/parsley/testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Node.T1.Store) != 8 || v.Node.T1.Stamp == "" || v.Node.T10.SecondStamp == "" {
		t.Fatal("vectors are incomplete")
	}
	return v
}

func id(s string) parsley.Channel {
	return parsley.Channel{Topic: uuid.MustParse(s)}
}

// TestVectorT1 makes the whole store of the vector, byte for byte, in both kinds of store, with a commit after each step and
// with one for all.
func TestVectorT1(t *testing.T) {
	v := vectors(t)
	topic := id("01020304-0506-0708-090a-0b0c0d0e0f10")
	topic.Partition = 7
	second, sink, far := id("21222324-2526-2728-292a-2b2c2d2e2f30"), id("31323334-3536-3738-393a-3b3c3d3e3f40"), id("41424344-4546-4748-494a-4b4c4d4e4f50")
	second.Partition, far.Partition = 1, 3
	engine, err := state.Open(crashfs.New(), "/s", state.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	stores := map[string]Store{"memory, one commit": &Memory{}, "memory": &Memory{}, "engine": &Engine{Store: engine, Prefix: "node/0/"}}
	for name, store := range stores {
		n, err := Open(Config{Sender: v.Sender, Consumed: []parsley.Channel{second, topic}, Sinks: []uuid.UUID{sink.Topic}, Parity: true}, store)
		commit := func(err error) {
			t.Helper()
			if err == nil && name != "memory, one commit" {
				err = n.Commit(nil)
			}
			if err != nil {
				t.Fatal(name, err)
			}
		}
		commit(err)
		commit(n.Start(Facts{Ends: []End{{sink, 0}}, SequenceBase: 5}))
		out, err := n.Receive(topic, &parsley.Held{Offset: 0, Timestamp: 100, Tagged: true, Sender: v.Sender, Sequence: 9, Clock: clock(off(far, 4)), Key: []byte{1}, Value: []byte{2}}, nil)
		commit(err)
		if len(out) != 1 || out[0].Offset != 0 || out[0].Timestamp != 100 || out[0].Key[0] != 1 || out[0].Value[0] != 2 {
			t.Fatalf("%s: delivered %v", name, out)
		}
		out, err = n.Receive(topic, &parsley.Held{Offset: 1, Timestamp: 0x1122334455667788, Tagged: true, Sender: v.Sender, Sequence: 10, Clock: clock(off(second, 5)), Key: []byte{10, 11}, Value: []byte{12}}, nil)
		commit(err)
		if len(out) != 0 {
			t.Fatalf("%s: delivered %v", name, out)
		}
		var stamp parsley.Stamp
		commit(n.Stamp(sink, &stamp))
		if got := hex.EncodeToString(stamp.Clock.Append(nil)); got != v.Node.T1.Stamp || stamp.Sequence != v.Node.T1.VcSeq {
			t.Errorf("%s: stamp %s %d, want %s %d", name, got, stamp.Sequence, v.Node.T1.Stamp, v.Node.T1.VcSeq)
		}
		commit(n.Truncate(&parsley.Clock{}))
		if err := n.Commit(nil); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		if err := store.Scan(nil, func(k, v []byte) error { got[string(k)] = hex.EncodeToString(v); return nil }); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(got, v.Node.T1.Store) {
			t.Errorf("%s: store\n%v\nwant\n%v", name, got, v.Node.T1.Store)
		}
	}
}

// TestVectorT10 sends twice from a fresh node.
func TestVectorT10(t *testing.T) {
	v := vectors(t)
	sink := id("31323334-3536-3738-393a-3b3c3d3e3f40")
	n, err := Open(Config{Sender: v.Sender, Sinks: []uuid.UUID{sink.Topic}, Parity: true}, &Memory{})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(Facts{Ends: []End{{sink, 0}}}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"010000000000000000", v.Node.T10.SecondStamp} {
		var stamp parsley.Stamp
		if err := n.Stamp(sink, &stamp); err != nil {
			t.Fatal(err)
		}
		if got := hex.EncodeToString(stamp.Clock.Append(nil)); got != want || stamp.Sequence != int64(i) {
			t.Errorf("stamp %d: %s %d, want %s", i, got, stamp.Sequence, want)
		}
	}
}
