package parsley

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// vectors are worked examples of bytes; they are those of the existing implementation.
type vectors struct {
	Topic     uuid.UUID
	Partition int32
	Sender    uuid.UUID
	Clocks    []struct {
		Name      string
		Offsets   [][]any
		Sequences [][]any
		Hex       string
	}
	Scope []struct {
		Channels [][]any
		Sinks    []uuid.UUID
		Hex      string
	}
	Held []struct {
		Offset, Timestamp int64
		Sender            *uuid.UUID
		Seq               int64
		Clock             string
		Key, Value        *string
		Hex               string
	}
	QueueMeta []struct {
		Head, Tail int64
		Hex        string
	}
	Frontier []struct {
		Offset int64
		Hex    string
	}
	SendSequence []struct {
		Seq int64
		Hex string
	}
	DeliveredMark []struct {
		Seq, Offset int64
		Hex         string
	}
	Headers struct {
		Sender   string `json:"vc-sender"`
		Sequence struct {
			Seq int64
			Hex string
		} `json:"vc-seq"`
	}
	TickKey []struct {
		Partition int32
		Hex       string
	}
	FoldKeys []struct {
		Key  *string
		Tick bool
		Hex  string
	}
	SenderID []struct {
		Name string
		UUID uuid.UUID
	}
	PartitionOf4 map[string]int32
	Node         struct {
		T1 struct {
			Note  string // for people
			Stamp string
			VcSeq int64
			Store map[string]string
		}
		T10 struct{ Note, SecondStamp string }
	}
}

func loadVectors(t testing.TB) *vectors {
	t.Helper()
	b, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	v, d := new(vectors), json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields() // every example is of a kind that a test knows
	if err := d.Decode(v); err != nil {
		t.Fatal(err)
	}
	return v
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func channelOf(e []any) Channel {
	return Channel{uuid.MustParse(e[0].(string)), int32(e[1].(float64))}
}

func wantHex(t *testing.T, what string, got []byte, want string) {
	t.Helper()
	if hex.EncodeToString(got) != want {
		t.Errorf("%s: %x\nwant %s", what, got, want)
	}
}

func TestVectorClocks(t *testing.T) {
	for _, v := range loadVectors(t).Clocks {
		var c Clock
		// the other way round, so that the order of the bytes is the clock's own
		for _, e := range slices.Backward(v.Offsets) {
			c.RaiseOffset(channelOf(e), int64(e[2].(float64)))
		}
		for _, e := range v.Sequences {
			c.RaiseSequence(SequenceKey{channelOf(e), uuid.MustParse(e[2].(string))}, int64(e[3].(float64)))
		}
		b := c.Append(nil)
		wantHex(t, v.Name, b, v.Hex)
		var d Clock
		if err := d.Decode(b, Strict); err != nil || !d.Equal(&c) || d.Size() != len(b) {
			t.Errorf("%s: %v %v", v.Name, d, err)
		}
	}
}

func TestVectorScopes(t *testing.T) {
	for i, v := range loadVectors(t).Scope {
		s := Scope{Sinks: v.Sinks}
		for _, e := range v.Channels {
			s.Channels = append(s.Channels, channelOf(e))
		}
		b := s.Append(nil)
		wantHex(t, "scope", b, v.Hex)
		var d Scope
		if err := d.Decode(b, Strict); err != nil || !slices.Equal(d.Channels, s.Channels) || !slices.Equal(d.Sinks, s.Sinks) {
			t.Errorf("%d: %v %v", i, d, err)
		}
	}
}

func TestVectorHeld(t *testing.T) {
	for i, v := range loadVectors(t).Held {
		h := Held{Offset: v.Offset, Timestamp: v.Timestamp, Sequence: v.Seq}
		if v.Sender != nil {
			h.Tagged, h.Sender = true, *v.Sender
		}
		if err := h.Clock.Decode(unhex(t, v.Clock), Strict); err != nil {
			t.Fatal(err)
		}
		if v.Key != nil {
			h.Key = append([]byte{}, unhex(t, *v.Key)...)
		}
		if v.Value != nil {
			h.Value = append([]byte{}, unhex(t, *v.Value)...)
		}
		b := h.Append(nil)
		wantHex(t, "held", b, v.Hex)
		for _, rules := range []Rules{Strict, Parity} {
			var d Held
			if err := d.Decode(b, rules); err != nil || !sameHeld(&d, &h) {
				t.Errorf("%d: %+v %v", i, d, err)
			}
		}
	}
}

// sameHeld tells null from empty.
func sameHeld(a, b *Held) bool {
	same := func(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }
	return a.Offset == b.Offset && a.Timestamp == b.Timestamp && a.Tagged == b.Tagged && a.Sender == b.Sender &&
		a.Sequence == b.Sequence && a.Clock.Equal(&b.Clock) && same(a.Key, b.Key) && same(a.Value, b.Value) &&
		slices.EqualFunc(a.Headers, b.Headers, func(x, y Header) bool { return x.Key == y.Key && same(x.Value, y.Value) })
}

func TestVectorValues(t *testing.T) {
	v := loadVectors(t)
	for _, e := range v.QueueMeta {
		wantHex(t, "queue", Queue{e.Head, e.Tail}.Append(nil), e.Hex)
		if q, err := DecodeQueue(unhex(t, e.Hex), Strict); err != nil || q != (Queue{e.Head, e.Tail}) {
			t.Error(q, err)
		}
	}
	for _, e := range v.Frontier {
		wantHex(t, "frontier", AppendNumber(nil, e.Offset), e.Hex)
		if n, err := DecodeFrontier(unhex(t, e.Hex), Strict); err != nil || n != e.Offset {
			t.Error(n, err)
		}
	}
	for _, e := range v.SendSequence {
		wantHex(t, "send sequence", AppendNumber(nil, e.Seq), e.Hex)
		if n, err := DecodeSent(unhex(t, e.Hex), Strict); err != nil || n != e.Seq {
			t.Error(n, err)
		}
	}
	for _, e := range v.DeliveredMark {
		wantHex(t, "mark", Mark{e.Seq, e.Offset}.Append(nil), e.Hex)
		if m, err := DecodeMark(unhex(t, e.Hex), Strict); err != nil || m != (Mark{e.Seq, e.Offset}) {
			t.Error(m, err)
		}
	}
	for _, e := range v.TickKey {
		wantHex(t, "tick key", AppendTickKey(nil, e.Partition), e.Hex)
		if p, err := ParseTickKey(unhex(t, e.Hex)); err != nil || p != e.Partition {
			t.Error(p, err)
		}
	}
	for _, e := range v.FoldKeys {
		var key []byte
		if e.Key != nil {
			key = append([]byte{}, unhex(t, *e.Key)...)
		}
		b := AppendFoldKey(nil, key)
		if e.Tick {
			b = AppendFoldTickKey(nil)
		}
		wantHex(t, "fold key", b, e.Hex)
		if k, tick, err := ParseFoldKey(b); err != nil || tick != e.Tick || !bytes.Equal(k, key) || (k == nil) != (key == nil) {
			t.Error(k, tick, err)
		}
	}
}

func TestVectorHeaders(t *testing.T) {
	v := loadVectors(t)
	s := Stamp{Tagged: true, Sender: v.Sender, Sequence: v.Headers.Sequence.Seq}
	hs, _ := s.AppendHeaders(nil, nil)
	if len(hs) != 3 || hs[0].Key != "vc" || hs[1].Key != "vc-sender" || hs[2].Key != "vc-seq" {
		t.Fatalf("%v", hs)
	}
	wantHex(t, "vc", hs[0].Value, v.Clocks[0].Hex)
	wantHex(t, "vc-sender", hs[1].Value, v.Headers.Sender)
	wantHex(t, "vc-seq", hs[2].Value, v.Headers.Sequence.Hex)
}

func TestVectorNames(t *testing.T) {
	v := loadVectors(t)
	for _, e := range v.SenderID {
		var partition int32
		parts := strings.Split(e.Name, "/")
		if _, err := fmt.Sscan(parts[2], &partition); err != nil {
			t.Fatal(err)
		}
		if id := SenderID(parts[0], parts[1], partition); id != e.UUID {
			t.Errorf("%s: %s, want %s", e.Name, id, e.UUID)
		}
	}
	for key, want := range v.PartitionOf4 {
		b := []byte(key)
		if key == "null" {
			b = nil
		}
		if p := PartitionOf(b, 4); p != want {
			t.Errorf("%s: partition %d, want %d", key, p, want)
		}
	}
}

// The whole store of a node: every key and value is read, and written again with the same bytes.
func TestVectorStore(t *testing.T) {
	v := loadVectors(t)
	kinds := map[Kind]int{}
	for name, value := range v.Node.T1.Store {
		k, err := ParseKey([]byte(name))
		if err != nil || k.String() != name {
			t.Errorf("%s: %v %v", name, k, err)
			continue
		}
		kinds[k.Kind]++
		again, err := rewrite(k.Kind, unhex(t, value), Strict)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		wantHex(t, name, again, value)
	}
	for k := KeyScope; k <= KeyMark; k++ {
		if kinds[k] != 1 {
			t.Errorf("kind %d: %d keys", k, kinds[k])
		}
	}
	for _, s := range []string{v.Node.T1.Stamp, v.Node.T10.SecondStamp} {
		again, err := rewrite(KeyCarried, unhex(t, s), Strict)
		if err != nil {
			t.Error(err)
		}
		wantHex(t, "stamp", again, s)
	}
}

// rewrite reads the value of a key of that kind and writes it again.
func rewrite(kind Kind, b []byte, rules Rules) ([]byte, error) {
	switch kind {
	case KeyScope:
		var s Scope
		err := s.Decode(b, rules)
		return s.Append(nil), err
	case KeyFrontier:
		n, err := DecodeFrontier(b, rules)
		return AppendNumber(nil, n), err
	case KeySent:
		n, err := DecodeSent(b, rules)
		return AppendNumber(nil, n), err
	case KeyQueue:
		q, err := DecodeQueue(b, rules)
		return q.Append(nil), err
	case KeyMark:
		m, err := DecodeMark(b, rules)
		return m.Append(nil), err
	case KeyHeld:
		var h Held
		err := h.Decode(b, rules)
		return h.Append(nil), err
	default:
		var c Clock
		err := c.Decode(b, rules)
		return c.Append(nil), err
	}
}
