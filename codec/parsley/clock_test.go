package parsley

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"
)

// model is a clock as two maps.
type model struct {
	offsets   map[Channel]int64
	sequences map[SequenceKey]int64
}

func (m model) clock() *Clock {
	c := new(Clock)
	for k, n := range m.offsets { // in any order
		c.RaiseOffset(k, n)
	}
	for k, n := range m.sequences {
		c.RaiseSequence(k, n)
	}
	return c
}

func modelOf(c *Clock) model {
	m := model{map[Channel]int64{}, map[SequenceKey]int64{}}
	for _, e := range c.Offsets() {
		m.offsets[e.Key] = e.N
	}
	for _, e := range c.Sequences() {
		m.sequences[e.Key] = e.N
	}
	return m
}

func (m model) equal(o model) bool {
	return maps.Equal(m.offsets, o.offsets) && maps.Equal(m.sequences, o.sequences)
}

// small is a channel or key out of few, so that clocks have some in common; every second topic has a top bit set.
func small(r *rand.Rand) SequenceKey {
	var k SequenceKey
	k.Topic = topicOf(r.IntN(6))
	k.Partition = r.Int32N(2)
	k.Sender = topicOf(r.IntN(3))
	return k
}

func randomModel(r *rand.Rand) model {
	m := model{map[Channel]int64{}, map[SequenceKey]int64{}}
	for range r.IntN(10) {
		m.offsets[small(r).Channel] = r.Int64N(4)
	}
	for range r.IntN(10) {
		m.sequences[small(r)] = r.Int64N(4)
	}
	return m
}

func join[K comparable](a, b map[K]int64) map[K]int64 {
	out := maps.Clone(a)
	for k, n := range b {
		if have, ok := out[k]; !ok || have < n {
			out[k] = n
		}
	}
	return out
}

// covered says whether a has all of b.
func covered[K comparable](a, b map[K]int64) bool {
	return maps.Equal(join(a, b), a)
}

// sound checks what holds for every clock: ascending, no duplicates, no negative numbers, and its bytes.
func sound(t *testing.T, c *Clock) {
	t.Helper()
	for i, e := range c.Offsets() {
		if e.N < 0 || i > 0 && c.Offsets()[i-1].Key.Compare(e.Key) >= 0 {
			t.Fatalf("offset claims %v", c.Offsets())
		}
	}
	for i, e := range c.Sequences() {
		if e.N < 0 || i > 0 && c.Sequences()[i-1].Key.Compare(e.Key) >= 0 {
			t.Fatalf("sequence claims %v", c.Sequences())
		}
	}
	var d Clock
	if err := d.Decode(c.Append(nil), Strict); err != nil || !d.Equal(c) || d.Width() != c.Width() || d.Empty() != (c.Width() == 0) {
		t.Fatalf("%v: %v, %v", c, d, err)
	}
}

func TestClockAgainstModel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	dominated, changed := 0, 0
	var reused Clock
	for range 8000 {
		a, b := randomModel(r), randomModel(r)
		if r.IntN(4) == 0 { // b below a, for once
			b = model{maps.Clone(a.offsets), maps.Clone(a.sequences)}
			for k := range b.offsets {
				b.offsets[k] = max(b.offsets[k]-r.Int64N(2), 0)
			}
			k := small(r)
			delete(b.offsets, k.Channel)
			delete(b.sequences, k)
		}
		c, d := a.clock(), b.clock()
		sound(t, c)
		if !modelOf(c).equal(a) {
			t.Fatalf("%v from %v", c, a)
		}
		want := covered(a.offsets, b.offsets) && covered(a.sequences, b.sequences)
		if c.Dominates(d) != want {
			t.Fatalf("%v dominates %v: %v", c, d, !want)
		}
		if c.Equal(d) != a.equal(b) {
			t.Fatalf("%v equals %v: %v", c, d, c.Equal(d))
		}
		reused.CopyFrom(c)
		if got := reused.Merge(d); got == want {
			t.Fatalf("merge of %v into %v changed it: %v", d, c, got)
		}
		sound(t, &reused)
		if m := modelOf(&reused); !m.equal(model{join(a.offsets, b.offsets), join(a.sequences, b.sequences)}) {
			t.Fatalf("%v and %v merged: %v", c, d, &reused)
		}
		if !modelOf(d).equal(b) || !modelOf(c).equal(a) {
			t.Fatal("an argument was changed")
		}
		if want {
			dominated++
		} else {
			changed++
		}
		steps(t, r, c, a)
	}
	if dominated < 400 || changed < 400 {
		t.Errorf("%d dominated, %d not: too few of one kind", dominated, changed)
	}
}

// steps changes c and its model alike.
func steps(t *testing.T, r *rand.Rand, c *Clock, m model) {
	t.Helper()
	for range 4 {
		k, n := small(r), r.Int64N(6)-1
		have, ok := m.offsets[k.Channel]
		if got, found := c.Offset(k.Channel); got != have || found != ok {
			t.Fatalf("%v: %d %v, want %d %v", k.Channel, got, found, have, ok)
		}
		seq, tagged := m.sequences[k]
		if got, found := c.Sequence(k); got != seq || found != tagged {
			t.Fatalf("%v: %d %v, want %d %v", k, got, found, seq, tagged)
		}
		var changed, want bool
		switch r.IntN(4) {
		case 0:
			if want = n >= 0 && (!ok || have < n); want {
				m.offsets[k.Channel] = n
			}
			changed = c.RaiseOffset(k.Channel, n)
		case 1:
			if want = n >= 0 && (!tagged || seq < n); want {
				m.sequences[k] = n
			}
			changed = c.RaiseSequence(k, n)
		case 2:
			delete(m.offsets, k.Channel)
			changed, want = c.RemoveOffset(k.Channel), ok
		case 3:
			delete(m.sequences, k)
			changed, want = c.RemoveSequence(k), tagged
		}
		if changed != want || !modelOf(c).equal(m) {
			t.Fatalf("changed %v, want %v: %v, want %v", changed, want, c, m)
		}
		sound(t, c)
	}
}

func TestFilter(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		m := randomModel(r)
		c, before := m.clock(), m.clock()
		var seen []OffsetClaim
		changed := c.FilterOffsets(func(e OffsetClaim) bool {
			seen = append(seen, e)
			return e.N%2 == 0
		})
		if !slices.Equal(seen, before.Offsets()) {
			t.Fatalf("asked about %v of %v", seen, before.Offsets())
		}
		n := len(m.offsets)
		maps.DeleteFunc(m.offsets, func(_ Channel, n int64) bool { return n%2 != 0 })
		if changed != (len(m.offsets) != n) || !modelOf(c).equal(m) {
			t.Fatalf("%v, want %v", c, m)
		}
		// a sequence claim becomes an offset claim, as a node does it
		changed = c.FilterSequences(func(e SequenceClaim) bool {
			if e.N%2 == 0 {
				return true
			}
			c.RaiseOffset(e.Key.Channel, e.N)
			return false
		})
		n = len(m.sequences)
		for k, v := range m.sequences {
			if v%2 != 0 {
				m.offsets = join(m.offsets, map[Channel]int64{k.Channel: v})
				delete(m.sequences, k)
			}
		}
		if changed != (len(m.sequences) != n) || !modelOf(c).equal(m) {
			t.Fatalf("%v, want %v", c, m)
		}
		sound(t, c)
		c.Reset()
		if !c.Empty() || c.Width() != 0 {
			t.Fatal(c)
		}
	}
}

func TestCopyIsIndependent(t *testing.T) {
	k := SequenceKey{Channel{topicA, 0}, senderS}
	var a, b Clock
	a.RaiseOffset(k.Channel, 1)
	a.RaiseSequence(k, 1)
	b.CopyFrom(&a)
	a.RaiseOffset(k.Channel, 2)
	a.RaiseSequence(k, 2)
	if n, _ := b.Offset(k.Channel); n != 1 {
		t.Error(n)
	}
	if n, _ := b.Sequence(k); n != 1 {
		t.Error(n)
	}
}

func TestNothingIsAllocated(t *testing.T) {
	for _, width := range widths {
		source, target := wideClock(width, true, 7), wideClock(width, true, 3)
		encoded := source.Append(nil)
		held := Held{Tagged: true, Sender: senderS, Key: []byte("k"), Value: []byte("v"), Clock: *source, Headers: []Header{{"a", []byte("b")}}}
		record := held.Append(nil)
		stamp := Stamp{Tagged: true, Sender: senderS, Clock: *source}
		var c Clock
		var d Held
		var s Stamp
		var h Headers
		h.Add(HeaderClock, encoded)
		h.Add(HeaderSender, senderS[:])
		h.Add(HeaderSequence, AppendNumber(nil, 4))
		scope, scopeBytes := Scope{Channels: []Channel{{topicA, 0}, {topicB, 1}}, Sinks: []uuid.UUID{topicA}}, []byte(nil)
		scopeBytes = scope.Append(nil)
		key := Key{Kind: KeyMark, Channel: Channel{topicA, 12}, Sender: senderS}.Append(nil)
		buf, hs := make([]byte, 0, len(record)+100), make([]Header, 0, 3)
		for name, f := range map[string]func() error{
			"decode":       func() error { return c.Decode(encoded, Strict) },
			"merge":        func() error { target.Merge(source); return nil },
			"copy":         func() error { c.CopyFrom(source); return nil },
			"append":       func() error { buf = source.Append(buf[:0]); return nil },
			"dominates":    func() error { source.Dominates(target); return nil },
			"stamp":        func() error { return s.Decode(&h, Strict) },
			"headers":      func() error { hs, buf = stamp.AppendHeaders(hs[:0], buf[:0]); return nil },
			"held":         func() error { return d.Decode(record, Strict) },
			"append held":  func() error { buf = held.Append(buf[:0]); return nil },
			"scope":        func() error { return scope.Decode(scopeBytes, Strict) },
			"append scope": func() error { buf = scope.Append(buf[:0]); return nil },
			"key":          func() error { _, err := ParseKey(key); return err },
			"append key": func() error {
				buf = Key{Kind: KeyHeld, Channel: Channel{topicB, 9}, Index: 4}.Append(buf[:0])
				return nil
			},
			"queue":         func() error { _, err := DecodeQueue(scopeBytes[:16], Parity); return err },
			"raise":         func() error { target.RaiseOffset(Channel{topicOf(0), 0}, 1); return nil },
			"murmur2":       func() error { PartitionOf(record, 12); return nil },
			"merge of less": func() error { c.CopyFrom(source); c.RemoveOffset(c.offsets[0].Key); c.Merge(source); return nil },
		} {
			var err error
			if n := testing.AllocsPerRun(20, func() { err = f() }); n != 0 || err != nil {
				t.Errorf("%s of width %d: %v allocations, %v", name, width, n, err)
			}
		}
	}
}

func TestEdge(t *testing.T) {
	a, b := Channel{topicA, 0}, Channel{topicB, 3}
	k := SequenceKey{b, senderS}
	var carried Clock
	carried.RaiseOffset(b, 7)
	carried.RaiseSequence(k, 2)
	var e Edge
	want := func(what string, offsetA, offsetB, sequence int64) {
		t.Helper()
		var c Clock
		c.RaiseOffset(a, offsetA)
		c.RaiseOffset(b, offsetB)
		c.RaiseSequence(k, sequence)
		if !e.Clock().Equal(&c) {
			t.Errorf("%s: %v, want %v", what, e.Clock(), c)
		}
	}
	want("new", -1, -1, -1)
	if err := e.Observe(a, 5, nil, Strict); err != nil {
		t.Fatal(err)
	}
	want("a record without clock", 5, -1, -1)
	if err := e.Observe(a, 4, carried.Append(nil), Strict); err != nil {
		t.Fatal(err)
	}
	want("an older record with a clock", 5, 7, 2)
	for _, bad := range []struct {
		hex string
		at  int
		why error
	}{{"", 0, ErrTruncated}, {"01", 1, ErrTruncated}, {hexEmpty + "00", 9, ErrTrailing}} {
		wantCorrupt(t, bad.hex, e.Observe(a, 9, append([]byte{}, spaced(t, bad.hex)...), Strict), "clock", bad.at, bad.why)
	}
	want("corrupt clocks", 5, 7, 2)
	wantCorrupt(t, "offset -1", e.Observe(a, -1, carried.Append(nil), Strict), "position", 0, ErrNegative)
	wantCorrupt(t, "partition -1", e.Observe(Channel{topicA, -1}, 1, nil, Strict), "position", 0, ErrNegative)
	e.Produced(b, -1)
	want("an acknowledgement without offset", 5, 7, 2)
	e.Produced(b, 8)
	want("an acknowledgement", 5, 8, 2)
	hs, _ := e.Stamp([]Header{{"vc", nil}, {"x", nil}}, nil)
	if len(hs) != 2 || hs[0].Key != "x" || hs[1].Key != "vc" || string(hs[1].Value) != string(e.Clock().Append(nil)) {
		t.Errorf("%v", hs)
	}
	e.Produced(b, 9)
	var c Clock
	if err := c.Decode(hs[1].Value, Strict); err != nil {
		t.Fatal(err)
	}
	if n, _ := c.Offset(b); n != 8 {
		t.Errorf("the stamp changed after it was made: %d", n)
	}
}

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		StateStore("bal"):            "bal-state",
		FoldStore("bal"):             "bal-fold",
		StateChangelog("pay", "bal"): "pay-bal-state-changelog",
		FoldChangelog("pay", "bal"):  "pay-bal-fold-changelog",
		TickTopic("pay", "bal"):      "pay-bal-ticks",
		SourceName("bal"):            "vc-bal-source",
		ProcessorName("bal"):         "vc-bal-processor",
		SinkName("bal", "out.1"):     "vc-bal-sink-out.1",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for _, c := range []struct {
		name               string
		stage, topic, appl bool
	}{
		{"", false, false, false}, {"Aa0-", true, true, true}, {"azAZ09", true, true, true}, {"a.b", false, true, true}, {"a_b", false, true, true},
		{"a/b", false, false, false}, {"a b", false, false, false}, {"é", false, false, false}, {"a:", false, false, false}, {"a@", false, false, false},
		{"a[", false, false, false}, {"a`", false, false, false}, {"a{", false, false, false},
	} {
		for what, check := range map[string]struct {
			err  error
			want bool
		}{"stage": {CheckStage(c.name), c.stage}, "topic": {CheckTopic(c.name), c.topic}, "application": {CheckApplication(c.name), c.appl}} {
			if (check.err == nil) != check.want {
				t.Errorf("%s %q: %v", what, c.name, check.err)
			}
		}
	}
	if id := SenderID("payments", "balances", 1); id == SenderID("payments", "balances", 0) || id.Version() != 3 || id.Variant() != uuid.RFC4122 {
		t.Error(id)
	}
}

// The client library's own partitioner is the second opinion.
func TestPartitionOf(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	theirs := kgo.StickyKeyPartitioner(nil).ForTopic("t")
	for size := range 70 {
		for range 20 {
			key := make([]byte, size)
			for i := range key {
				key[i] = byte(r.IntN(256))
			}
			n := 1 + r.IntN(50)
			if got, want := PartitionOf(key, int32(n)), theirs.Partition(&kgo.Record{Key: key}, n); int(got) != want {
				t.Fatalf("%x of %d: %d, want %d", key, n, got, want)
			}
		}
	}
	if p := PartitionOf([]byte{}, 1000); p != int32(Murmur2(nil)&0x7fffffff)%1000 || p == 0 {
		t.Errorf("an empty key is not a null key: %d", p)
	}
	for _, n := range []int32{0, -1} {
		func() {
			defer func() {
				if r := recover(); r != fmt.Sprintf("BUG: partition of a topic with %d partitions", n) {
					t.Error(r)
				}
			}()
			PartitionOf(nil, n)
		}()
	}
}
