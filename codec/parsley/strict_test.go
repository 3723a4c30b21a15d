package parsley

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
)

var (
	topicA  = uuid.MustParse("01020304-0506-0708-090a-0b0c0d0e0f10")
	topicB  = uuid.MustParse("21222324-2526-2728-292a-2b2c2d2e2f30")
	senderS = uuid.MustParse("11121314-1516-1718-191a-1b1c1d1e1f20")
)

const (
	hexA     = "0102030405060708090a0b0c0d0e0f10"
	hexB     = "2122232425262728292a2b2c2d2e2f30"
	hexS     = "1112131415161718191a1b1c1d1e1f20"
	hexT     = "3132333435363738393a3b3c3d3e3f40"
	hexEmpty = "010000000000000000"
)

// spaced takes the spaces out of hexadecimal digits.
func spaced(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// wantCorrupt checks the whole of a CorruptError.
func wantCorrupt(t *testing.T, name string, err error, what string, at int, why error) {
	t.Helper()
	var c *CorruptError
	if !errors.As(err, &c) || c.What != what || c.At != at || c.Err != why || !errors.Is(err, ErrCorrupt) || !errors.Is(err, why) {
		t.Errorf("%s: %v, want corrupt %s: %v at byte %d", name, err, what, why, at)
	}
}

// clockCases are clocks that Strict refuses. parity is the clock that Parity reads, as bytes; "": it refuses too, for the
// same reason.
var clockCases = []struct {
	name, hex string
	at        int
	why       error
	parity    string
}{
	{"no bytes", "", 0, ErrTruncated, ""},
	{"version 0", "00 00000000 00000000", 0, ErrVersion, ""},
	{"version 2", "02 00000000 00000000", 0, ErrVersion, ""},
	{"version only", "01", 1, ErrTruncated, ""},
	{"half a count", "01 0000", 1, ErrTruncated, ""},
	{"no second count", "01 00000000", 5, ErrTruncated, ""},
	{"half a second count", "01 00000000 000000", 5, ErrTruncated, ""},
	{"one byte too many", hexEmpty + "00", 9, ErrTrailing, ""},
	{"two clocks", hexEmpty + hexEmpty, 9, ErrTrailing, ""},
	{"negative count", "01 ffffffff 00000000", 1, ErrNegative, ""},
	{"negative second count", "01 00000000 80000000", 5, ErrNegative, ""},
	{"count without entries", "01 00000001 00000000", 1, ErrTruncated, ""},
	{"largest count", "01 7fffffff 00000000", 1, ErrTruncated, ""},
	{"largest second count", "01 00000000 7fffffff", 5, ErrTruncated, ""},
	{"cut in an entry", "01 00000001" + hexA + "00000007 00000000000000", 1, ErrTruncated, ""},
	{"cut after the entries", "01 00000001" + hexA + "00000007 000000000000002a", 33, ErrTruncated, ""},
	{"cut in a second entry", "01 00000000 00000001" + hexA + "00000007" + hexS + "00000000000000", 5, ErrTruncated, ""},
	{"entry without count", "01 00000000 00000000" + hexA + "00000007" + hexS + "0000000000000009", 9, ErrTrailing, ""},
	{"negative partition", "01 00000001" + hexA + "ffffffff 000000000000002a 00000000", 5, ErrNegative, ""},
	{"negative offset", "01 00000001" + hexA + "00000007 ffffffffffffffff 00000000", 5, ErrNegative, ""},
	{"negative second partition", "01 00000000 00000001" + hexA + "80000000" + hexS + "0000000000000009", 9, ErrNegative, ""},
	{"negative sequence", "01 00000000 00000001" + hexA + "00000007" + hexS + "8000000000000000", 9, ErrNegative, ""},
	{"negative after disorder", "01 00000003" + hexB + "00000000 0000000000000000" + hexA + "00000000 0000000000000000" + hexB + "00000000 ffffffffffffffff" + "00000000", 61, ErrNegative, ""},
	{"topics out of order", "01 00000002" + hexB + "00000000 0000000000000001" + hexA + "00000000 0000000000000002 00000000", 33, ErrOrder,
		"01 00000002" + hexA + "00000000 0000000000000002" + hexB + "00000000 0000000000000001 00000000"},
	{"second halves out of order", "01 00000002 0000000000000001 0000000000000000 00000000 0000000000000001 0000000000000001 8000000000000000 00000000 0000000000000003 00000000", 33, ErrOrder,
		"01 00000002 0000000000000001 8000000000000000 00000000 0000000000000003 0000000000000001 0000000000000000 00000000 0000000000000001 00000000"},
	{"ordered as bytes", "01 00000002" + hexA + "00000000 0000000000000001 ff020304050607080000000000000000 00000000 0000000000000002 00000000", 33, ErrOrder,
		"01 00000002 ff020304050607080000000000000000 00000000 0000000000000002" + hexA + "00000000 0000000000000001 00000000"},
	{"partitions out of order", "01 00000002" + hexA + "00000001 0000000000000001" + hexA + "00000000 0000000000000002 00000000", 33, ErrOrder,
		"01 00000002" + hexA + "00000000 0000000000000002" + hexA + "00000001 0000000000000001 00000000"},
	{"duplicate", "01 00000002" + hexA + "00000007 0000000000000009" + hexA + "00000007 0000000000000005 00000000", 33, ErrDuplicate,
		"01 00000001" + hexA + "00000007 0000000000000005 00000000"},
	{"duplicate apart", "01 00000003" + hexA + "00000000 0000000000000009" + hexB + "00000000 0000000000000001" + hexA + "00000000 0000000000000005 00000000", 61, ErrOrder,
		"01 00000002" + hexA + "00000000 0000000000000005" + hexB + "00000000 0000000000000001 00000000"},
	{"second topics out of order", "01 00000000 00000002" + hexB + "00000000" + hexS + "0000000000000001" + hexA + "00000000" + hexS + "0000000000000002", 53, ErrOrder,
		"01 00000000 00000002" + hexA + "00000000" + hexS + "0000000000000002" + hexB + "00000000" + hexS + "0000000000000001"},
	{"second partitions out of order", "01 00000000 00000002" + hexA + "00000001" + hexS + "0000000000000001" + hexA + "00000000" + hexS + "0000000000000002", 53, ErrOrder,
		"01 00000000 00000002" + hexA + "00000000" + hexS + "0000000000000002" + hexA + "00000001" + hexS + "0000000000000001"},
	{"senders out of order", "01 00000000 00000002" + hexA + "00000000" + hexT + "0000000000000001" + hexA + "00000000" + hexS + "0000000000000002", 53, ErrOrder,
		"01 00000000 00000002" + hexA + "00000000" + hexS + "0000000000000002" + hexA + "00000000" + hexT + "0000000000000001"},
	{"senders ordered as bytes", "01 00000000 00000002" + hexA + "00000000" + hexS + "0000000000000001" + hexA + "00000000 80000000000000000000000000000000 0000000000000002", 53, ErrOrder,
		"01 00000000 00000002" + hexA + "00000000 80000000000000000000000000000000 0000000000000002" + hexA + "00000000" + hexS + "0000000000000001"},
	{"duplicate sequence", "01 00000000 00000002" + hexA + "00000000" + hexS + "0000000000000009" + hexA + "00000000" + hexS + "0000000000000005", 53, ErrDuplicate,
		"01 00000000 00000001" + hexA + "00000000" + hexS + "0000000000000005"},
	{"second halves of sequences out of order", "01 00000000 00000002 0000000000000001 0000000000000000 00000000" + hexS + "0000000000000001 0000000000000001 8000000000000000 00000000" + hexS + "0000000000000003", 53, ErrOrder,
		"01 00000000 00000002 0000000000000001 8000000000000000 00000000" + hexS + "0000000000000003 0000000000000001 0000000000000000 00000000" + hexS + "0000000000000001"},
	{"first fault of two sequences", "01 00000000 00000003" + hexB + "00000000" + hexS + "0000000000000001" + hexA + "00000000" + hexS + "0000000000000002" + hexA + "00000000" + hexS + "0000000000000003", 53, ErrOrder,
		"01 00000000 00000002" + hexA + "00000000" + hexS + "0000000000000003" + hexB + "00000000" + hexS + "0000000000000001"},
	{"first fault of two", "01 00000003" + hexB + "00000000 0000000000000001" + hexA + "00000000 0000000000000002" + hexA + "00000000 0000000000000003 00000000", 33, ErrOrder,
		"01 00000002" + hexA + "00000000 0000000000000003" + hexB + "00000000 0000000000000001 00000000"},
}

func TestClockStrict(t *testing.T) {
	for _, c := range clockCases {
		b := spaced(t, c.hex)
		var clock Clock
		clock.RaiseOffset(Channel{topicA, 0}, 1) // an error must not leave what was there before either
		wantCorrupt(t, c.name, clock.Decode(b, Strict), "clock", c.at, c.why)
		if !clock.Empty() {
			t.Errorf("%s: %v after an error", c.name, clock)
		}
		err := clock.Decode(b, Parity)
		if c.parity == "" {
			wantCorrupt(t, c.name+", parity", err, "clock", c.at, c.why)
			continue
		}
		if got := clock.Append(nil); err != nil || !bytes.Equal(got, spaced(t, c.parity)) {
			t.Errorf("%s, parity: %v\n%x\nwant %s", c.name, err, got, c.parity)
		}
	}
}

// Whatever stands alone is corrupt when it ends one byte or more too early, or goes on for a byte, wherever that is.
func TestEveryCut(t *testing.T) {
	v := loadVectors(t)
	check := func(name string, b []byte, read func([]byte) error) {
		t.Helper()
		if err := read(b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for i := range b {
			if err := read(b[:i:i]); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s, the first %d bytes of %d: %v", name, i, len(b), err)
			}
		}
		for _, more := range []byte{0, 1, 0xff} {
			if err := read(append(bytes.Clone(b), more)); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s, with a byte %d more: %v", name, more, err)
			}
		}
	}
	for i, c := range append(v.Clocks, v.Clocks[0]) {
		b := unhex(t, c.Hex)
		if i == len(v.Clocks) {
			b = wideClock(9, true, 5).Append(nil)
		}
		for _, rules := range []Rules{Strict, Parity} {
			check("clock "+c.Name, b, func(b []byte) error { return new(Clock).Decode(b, rules) })
		}
	}
	for name, value := range v.Node.T1.Store {
		k, err := ParseKey([]byte(name))
		if err != nil {
			t.Fatal(err)
		}
		check("value of "+name, unhex(t, value), func(b []byte) error { _, err := rewrite(k.Kind, b, Strict); return err })
	}
	for _, h := range v.Held {
		check("held record", unhex(t, h.Hex), func(b []byte) error { return new(Held).Decode(b, Strict) })
	}
}

// What looks odd and is allowed.
func TestClockAllowed(t *testing.T) {
	for name, s := range map[string]string{
		"zero id":              "01 00000001 00000000000000000000000000000000 00000000 0000000000000000 00000000",
		"largest numbers":      "01 00000001" + hexA + "7fffffff 7fffffffffffffff 00000001" + hexA + "7fffffff" + hexS + "7fffffffffffffff",
		"least id first":       "01 00000002 80000000000000008000000000000000 00000000 0000000000000000 7fffffffffffffff7fffffffffffffff 00000000 0000000000000000 00000000",
		"sequences unclaimed":  "01 00000000 00000001" + hexA + "00000000" + hexS + "0000000000000000",
		"senders of a channel": "01 00000000 00000002" + hexA + "00000000 80000000000000000000000000000000 0000000000000002" + hexA + "00000000" + hexS + "0000000000000001",
	} {
		var c Clock
		b := spaced(t, s)
		if err := c.Decode(b, Strict); err != nil || !bytes.Equal(c.Append(nil), b) {
			t.Errorf("%s: %v, %x", name, err, c.Append(nil))
		}
	}
}

func TestOrder(t *testing.T) {
	ids := []uuid.UUID{
		uuid.MustParse("80000000-0000-0000-0000-000000000001"),
		uuid.MustParse("ffffffff-ffff-ffff-ffff-ffffffffffff"),
		uuid.MustParse("00000000-0000-0001-8000-000000000000"),
		uuid.MustParse("00000000-0000-0001-0000-000000000000"),
		uuid.MustParse("7fffffff-ffff-ffff-0000-000000000000"),
	}
	var keys []SequenceKey
	for _, topic := range ids {
		for _, p := range []int32{0, 1, 256, math.MaxInt32} {
			for _, s := range ids {
				keys = append(keys, SequenceKey{Channel{topic, p}, s})
			}
		}
	}
	sign := func(i, j int) int {
		switch {
		case i < j:
			return -1
		case i > j:
			return 1
		}
		return 0
	}
	for i, a := range keys {
		for j, b := range keys {
			want := sign(i/len(ids), j/len(ids))
			if a.Channel.Compare(b.Channel) != want {
				t.Fatalf("%v %v: %d", a.Channel, b.Channel, a.Channel.Compare(b.Channel))
			}
			if a.Compare(b) != sign(i, j) {
				t.Fatalf("%v %v: %d", a, b, a.Compare(b))
			}
			if s := CompareUUIDs(a.Sender, b.Sender); s != sign(i%len(ids), j%len(ids)) {
				t.Fatalf("%v %v: %d", a.Sender, b.Sender, s)
			}
		}
	}
}

// null stands for a header that is there with a null value, absent for one that is not there.
const (
	null   = "null"
	absent = "absent"
)

func TestHeaders(t *testing.T) {
	clock := "01 00000001" + hexA + "00000007 000000000000002a 00000000"
	nine, minus := "0000000000000009", "ffffffffffffffff"
	none := Stamp{Sequence: -1}
	tagged := Stamp{Tagged: true, Sender: senderS, Sequence: 9}
	half := Stamp{Tagged: true, Sender: senderS, Sequence: -1}
	for _, c := range []struct {
		name, vc, sender, seq string
		what                  string // what Strict finds corrupt; "": nothing
		why                   error
		both                  bool // Parity finds it corrupt, too
		want                  Stamp
	}{
		{"nothing", absent, absent, absent, "", nil, false, none},
		{"nulls", null, null, null, "", nil, false, none},
		{"edge", clock, absent, absent, "", nil, false, Stamp{HasClock: true, Sequence: -1}},
		{"empty clock", hexEmpty, absent, absent, "", nil, false, Stamp{HasClock: true, Sequence: -1}},
		{"node", clock, hexS, nine, "", nil, false, Stamp{HasClock: true, Tagged: true, Sender: senderS, Sequence: 9}},
		{"tag without clock", absent, hexS, nine, "", nil, false, tagged},
		{"clock of no bytes", "", hexS, nine, "clock", ErrTruncated, true, none},
		{"bad clock", "01", absent, absent, "clock", ErrTruncated, true, none},
		{"no sender", clock, absent, nine, HeaderSequence, ErrHalfTag, false, Stamp{HasClock: true, Sequence: -1}},
		{"null sender", clock, null, nine, HeaderSequence, ErrHalfTag, false, Stamp{HasClock: true, Sequence: -1}},
		{"no sequence", absent, hexS, absent, HeaderSequence, ErrHalfTag, false, half},
		{"null sequence", absent, hexS, null, HeaderSequence, ErrHalfTag, false, half},
		{"negative sequence", absent, hexS, minus, HeaderSequence, ErrNegative, false, half},
		{"sender of no bytes", absent, "", nine, HeaderSender, ErrLength, true, none},
		{"short sender", absent, hexS[:30], nine, HeaderSender, ErrLength, true, none},
		{"long sender", absent, hexS + "00", nine, HeaderSender, ErrLength, true, none},
		{"sequence of no bytes", absent, hexS, "", HeaderSequence, ErrLength, true, none},
		{"short sequence", absent, hexS, nine[2:], HeaderSequence, ErrLength, true, none},
		{"long sequence", absent, hexS, nine + "00", HeaderSequence, ErrLength, true, none},
		{"short sequence alone", absent, absent, "09", HeaderSequence, ErrLength, true, none},
	} {
		var h Headers
		for _, e := range []struct{ key, value string }{{"other", "00"}, {HeaderClock, c.vc}, {HeaderSender, c.sender}, {HeaderSequence, c.seq}} {
			if e.value == absent {
				continue
			}
			var value []byte
			if e.value != null {
				value = append([]byte{}, spaced(t, e.value)...)
			}
			if ours := h.Add(e.key, value); ours != (e.key != "other") || ours != IsProtocolHeader(e.key) {
				t.Errorf("%s: %v", e.key, ours)
			}
		}
		for _, rules := range []Rules{Strict, Parity} {
			var s Stamp
			s.Clock.RaiseOffset(Channel{topicB, 1}, 1)
			s.Tagged, s.Sender = true, senderS
			err := s.Decode(&h, rules)
			if c.what != "" && (rules == Strict || c.both) {
				wantCorrupt(t, c.name, err, c.what, corruptAt(err), c.why)
				if s.Tagged {
					t.Errorf("%s: tagged after an error", c.name)
				}
				continue
			}
			width := 0
			if c.vc == clock {
				width = 1
			}
			if err != nil || s.HasClock != c.want.HasClock || s.Tagged != c.want.Tagged || s.Sender != c.want.Sender || s.Sequence != c.want.Sequence || s.Clock.Width() != width {
				t.Errorf("%s, rules %d: %+v, %v", c.name, rules, s, err)
			}
		}
	}
}

func corruptAt(err error) int {
	var c *CorruptError
	if errors.As(err, &c) {
		return c.At
	}
	return -1
}

// Of several headers with one name the last one counts.
func TestLastHeaderCounts(t *testing.T) {
	var h Headers
	h.Add(HeaderClock, []byte{})
	h.Add(HeaderClock, spaced(t, hexEmpty))
	h.Add(HeaderSender, []byte{1})
	h.Add(HeaderSender, nil)
	var s Stamp
	if err := s.Decode(&h, Strict); err != nil || !s.HasClock || s.Tagged {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestAppendHeaders(t *testing.T) {
	s := Stamp{Tagged: true, Sender: senderS, Sequence: 9}
	in := func() []Header {
		return []Header{{"vc-seq", nil}, {"a", nil}, {"vc", []byte{1}}, {"vc-sender", nil}, {"b", []byte{}}, {"vc", nil}, {"VC", nil}}
	}
	names := func(hs []Header) (all string) {
		for _, h := range hs {
			all += h.Key + " "
		}
		return all
	}
	hs, buf := s.AppendHeaders(in(), make([]byte, 3, 200))
	if names(hs) != "a b VC vc vc-sender vc-seq " || len(buf) != 3+9+16+8 {
		t.Errorf("%s, %d bytes", names(hs), len(buf))
	}
	var h Headers
	for _, x := range hs {
		h.Add(x.Key, x.Value)
	}
	var d Stamp
	if err := d.Decode(&h, Strict); err != nil || !d.HasClock || !d.Tagged || d.Sender != senderS || d.Sequence != 9 {
		t.Errorf("%+v, %v", d, err)
	}
	for i, next := range []byte{senderS[0], 0} {
		if hs[3+i].Value = append(hs[3+i].Value, 0xff); hs[4+i].Value[0] != next {
			t.Error("an append to one value wrote into the next")
		}
	}
	s.Tagged = false
	if hs, _ = s.AppendHeaders(in(), nil); names(hs) != "vc-seq a vc-sender b VC vc " {
		t.Error(names(hs))
	}
}

func TestValuesStrict(t *testing.T) {
	n := func(numbers ...int64) (b []byte) {
		for _, v := range numbers {
			b = AppendNumber(b, v)
		}
		return b
	}
	for _, c := range []struct {
		name  string
		kind  Kind
		bytes []byte
		what  string
		at    int
		why   error
		both  bool
	}{
		{"frontier of no bytes", KeyFrontier, nil, "frontier", 0, ErrLength, true},
		{"short frontier", KeyFrontier, n(1)[1:], "frontier", 0, ErrLength, true},
		{"long frontier", KeyFrontier, append(n(1), 0), "frontier", 0, ErrLength, false},
		{"negative frontier", KeyFrontier, n(-1), "frontier", 0, ErrNegative, false},
		{"short sent", KeySent, n(1)[1:], "send sequence", 0, ErrLength, true},
		{"long sent", KeySent, n(1, 1), "send sequence", 0, ErrLength, false},
		{"negative sent", KeySent, n(-1), "send sequence", 0, ErrNegative, false},
		{"short queue", KeyQueue, n(1), "queue", 0, ErrLength, true},
		{"long queue", KeyQueue, n(1, 1, 1), "queue", 0, ErrLength, false},
		{"negative head", KeyQueue, n(-1, 1), "queue", 0, ErrNegative, false},
		{"negative tail", KeyQueue, n(0, -1), "queue", 8, ErrNegative, false},
		{"head behind tail", KeyQueue, n(2, 1), "queue", 0, ErrQueue, false},
		{"short mark", KeyMark, n(1, 1)[:15], "delivered mark", 0, ErrLength, true},
		{"long mark", KeyMark, append(n(1, 1), 0), "delivered mark", 0, ErrLength, false},
		{"negative mark", KeyMark, n(-1, 1), "delivered mark", 0, ErrNegative, false},
		{"mark at negative offset", KeyMark, n(1, -1), "delivered mark", 8, ErrNegative, false},
		{"scope of no bytes", KeyScope, nil, "scope", 0, ErrTruncated, true},
		{"scope of one list", KeyScope, spaced(t, "00000000"), "scope", 4, ErrTruncated, true},
		{"negative channels", KeyScope, spaced(t, "ffffffff 00000000"), "scope", 0, ErrNegative, true},
		{"negative sinks", KeyScope, spaced(t, "00000000 ffffffff"), "scope", 4, ErrNegative, true},
		{"too many channels", KeyScope, spaced(t, "7fffffff 00000000"), "scope", 0, ErrTruncated, true},
		{"too many sinks", KeyScope, spaced(t, "00000000 00000001"+hexA[2:]), "scope", 4, ErrTruncated, true},
		{"cut channel", KeyScope, spaced(t, "00000001"+hexA+"000000"), "scope", 0, ErrTruncated, true},
		{"trailing", KeyScope, spaced(t, "00000000 00000000 00"), "scope", 8, ErrTrailing, false},
		{"negative partition", KeyScope, spaced(t, "00000001"+hexA+"ffffffff 00000000"), "scope", 20, ErrNegative, false},
		{"channels out of order", KeyScope, spaced(t, "00000002"+hexB+"00000000"+hexA+"00000000 00000000"), "scope", 24, ErrOrder, false},
		{"same channel", KeyScope, spaced(t, "00000002"+hexA+"00000000"+hexA+"00000000 00000000"), "scope", 24, ErrDuplicate, false},
		{"sinks out of order", KeyScope, spaced(t, "00000000 00000002"+hexA+"80000000000000000000000000000000"), "scope", 24, ErrOrder, false},
		{"same sink", KeyScope, spaced(t, "00000000 00000002"+hexA+hexA), "scope", 24, ErrDuplicate, false},
	} {
		_, err := rewrite(c.kind, c.bytes, Strict)
		wantCorrupt(t, c.name, err, c.what, c.at, c.why)
		if _, err = rewrite(c.kind, c.bytes, Parity); c.both {
			wantCorrupt(t, c.name+", parity", err, c.what, c.at, c.why)
		} else if err != nil {
			t.Errorf("%s, parity: %v", c.name, err)
		}
	}
}

// An error leaves nothing of the value, and the borders are allowed.
func TestValuesAfterErrors(t *testing.T) {
	pair := func(a, b int64) []byte { return AppendNumber(AppendNumber(nil, a), b) }
	var s Scope
	if err := s.Decode(spaced(t, "00000001"+hexA+"00000000 00000000"), Strict); err != nil || len(s.Channels) != 1 {
		t.Fatal(err)
	}
	if err := s.Decode(spaced(t, "00000001"+hexA+"00000000 00000000 00"), Strict); err == nil || len(s.Channels)+len(s.Sinks) != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if q, err := DecodeQueue(pair(2, 1), Strict); err == nil || q != (Queue{}) {
		t.Error(q, err)
	}
	if m, err := DecodeMark(pair(2, -1), Strict); err == nil || m != (Mark{}) {
		t.Error(m, err)
	}
	if v, err := DecodeFrontier(AppendNumber(nil, -1), Strict); err == nil || v != 0 {
		t.Error(v, err)
	}
	if q, err := DecodeQueue(pair(3, 3), Strict); err != nil || q != (Queue{3, 3}) {
		t.Error(q, err)
	}
}

// A scope is written sorted and once each, in whatever order it is given.
func TestScopeIsSorted(t *testing.T) {
	s := Scope{Channels: []Channel{{topicB, 0}, {topicA, 1}, {topicA, 0}, {topicA, 1}}, Sinks: []uuid.UUID{topicB, topicA, topicB}}
	want := "00000003" + hexA + "00000000" + hexA + "00000001" + hexB + "00000000 00000002" + hexA + hexB
	if b := s.Append(nil); !bytes.Equal(b, spaced(t, want)) {
		t.Errorf("%x", b)
	}
}

func TestKeysStrict(t *testing.T) {
	const a, s = "01020304-0506-0708-090a-0b0c0d0e0f10", "11121314-1516-1718-191a-1b1c1d1e1f20"
	ch := Channel{topicA, 7}
	for text, want := range map[string]Key{
		"scope":                            {Kind: KeyScope},
		"ca":                               {Kind: KeyCarried},
		"f/" + a + ":7":                    {Kind: KeyFrontier, Channel: ch},
		"cc/" + a + ":7":                   {Kind: KeyAdvertised, Channel: ch},
		"sq/" + a + ":7":                   {Kind: KeySent, Channel: ch},
		"q/" + a + ":7/m":                  {Kind: KeyQueue, Channel: ch},
		"ds/" + a + ":7/" + s:              {Kind: KeyMark, Channel: ch, Sender: senderS},
		"q/" + a + ":7/e/0000000000000001": {Kind: KeyHeld, Channel: ch, Index: 1},
		"q/" + a + ":7/e/7fffffffffffffff": {Kind: KeyHeld, Channel: ch, Index: math.MaxInt64},
		"q/" + a + ":7/e/00000000deadbeef": {Kind: KeyHeld, Channel: ch, Index: 0xdeadbeef},
		"f/" + a + ":0":                    {Kind: KeyFrontier, Channel: Channel{topicA, 0}},
		"f/" + a + ":2147483647":           {Kind: KeyFrontier, Channel: Channel{topicA, math.MaxInt32}},
		"f/ffffffff-ffff-ffff-ffff-ffffffffffff:10":      {Kind: KeyFrontier, Channel: Channel{uuid.Max, 10}},
		"ds/00000000-0000-0000-0000-000000000000:7/" + s: {Kind: KeyMark, Channel: Channel{uuid.Nil, 7}, Sender: senderS},
	} {
		if k, err := ParseKey([]byte(text)); err != nil || k != want || k.String() != text {
			t.Errorf("%s: %+v, %v", text, k, err)
		}
	}
	for _, c := range []struct {
		text string
		at   int
	}{
		{"", 0}, {"scop", 0}, {"scope ", 0}, {"Scope", 0}, {"ca/", 0}, {"c", 0}, {"x/" + a + ":7", 0},
		{"f/", 2}, {"f/" + a, 38}, {"f/" + a + ":", 39}, {"f/" + a + ":7 ", 40}, {"f/" + a + ":7/", 40},
		{"f/" + a + ":-1", 39}, {"f/" + a + ":+1", 39}, {"f/" + a + ":07", 41}, {"f/" + a + ":00", 41}, {"f/" + a + ":2147483648", 48},
		{"f/" + a + ":99999999999999999999", 48}, {"f/" + a + ":x", 39},
		{"f/" + strings.ToUpper(a) + ":7", 24}, {"f/0102030405060708090a0b0c0d0e0f10:7777", 10}, {"f/{" + a + "}:7", 2},
		{"f/01020304-0506-0708-090a-0b0c0d0e0f1g:7", 37}, {"f/01020304-0506-0708-090a_0b0c0d0e0f10:7", 25},
		{"q/" + a + ":7", 40}, {"q/" + a + ":7/", 40}, {"q/" + a + ":7/x", 40}, {"q/" + a + ":7/mm", 42},
		{"q/" + a + ":7/e/", 43}, {"q/" + a + ":7/e/000000000000001", 58}, {"q/" + a + ":7/e/00000000000000010", 59},
		{"q/" + a + ":7/e/000000000000000A", 58}, {"q/" + a + ":7/e/8000000000000000", 59},
		{"ds/" + a + ":7", 41}, {"ds/" + a + ":7/", 42}, {"ds/" + a + ":7/" + s[1:], 42}, {"ds/" + a + ":7/" + s + "0", 78}, {"ds/" + a + ":7-" + s, 41}, {"ds/" + a + ":7" + uuid.Max.String(), 41},
	} {
		k, err := ParseKey([]byte(c.text))
		wantCorrupt(t, c.text, err, "store key", c.at, ErrKey)
		if k != (Key{}) {
			t.Errorf("%s: %+v after an error", c.text, k)
		}
	}
}

func TestPrefixes(t *testing.T) {
	ch := Channel{topicA, 7}
	under := func(k Key, prefix []byte) bool { return bytes.HasPrefix(k.Append(nil), prefix) }
	queue, held, mark := AppendQueuePrefix(nil, ch), AppendHeldPrefix(nil, ch), AppendMarkPrefix(nil, ch)
	for _, c := range []struct {
		k                 Key
		queue, held, mark bool
		prefix            string
	}{
		{Key{Kind: KeyQueue, Channel: ch}, true, false, false, PrefixQueue},
		{Key{Kind: KeyHeld, Channel: ch, Index: 5}, true, true, false, PrefixQueue},
		{Key{Kind: KeyHeld, Channel: Channel{topicA, 70}, Index: 5}, false, false, false, PrefixQueue},
		{Key{Kind: KeyMark, Channel: ch, Sender: senderS}, false, false, true, PrefixMark},
		{Key{Kind: KeyMark, Channel: Channel{topicA, 70}, Sender: senderS}, false, false, false, PrefixMark},
		{Key{Kind: KeyFrontier, Channel: ch}, false, false, false, PrefixFrontier},
		{Key{Kind: KeyAdvertised, Channel: ch}, false, false, false, PrefixAdvertised},
		{Key{Kind: KeySent, Channel: ch}, false, false, false, PrefixSent},
	} {
		if under(c.k, queue) != c.queue || under(c.k, held) != c.held || under(c.k, mark) != c.mark || !under(c.k, []byte(c.prefix)) {
			t.Error(c.k)
		}
	}
	// records are scanned in the order in which they came
	var keys []string
	for _, i := range []int64{0, 1, 9, 10, 255, 256, 1 << 40, math.MaxInt64} {
		keys = append(keys, Key{Kind: KeyHeld, Channel: ch, Index: i}.String())
	}
	if !slices.IsSorted(keys) {
		t.Error(keys)
	}
	defer func() {
		if r := recover(); r != "BUG: store key of kind 0" {
			t.Error(r)
		}
	}()
	Key{}.Append(nil)
}

func TestTickAndFoldKeys(t *testing.T) {
	for _, c := range []struct {
		hex string
		why error
	}{{"", ErrLength}, {"000001", ErrLength}, {"0000000001", ErrLength}, {"ffffffff", ErrNegative}} {
		_, err := ParseTickKey(spaced(t, c.hex))
		wantCorrupt(t, c.hex, err, "tick key", 0, c.why)
	}
	for _, p := range []int32{0, 1, 0x01020304, math.MaxInt32} {
		if got, err := ParseTickKey(AppendTickKey(nil, p)); got != p || err != nil {
			t.Error(got, err)
		}
	}
	for _, s := range []string{"", "0000", "0200", "03", "ff"} {
		_, _, err := ParseFoldKey(spaced(t, s))
		wantCorrupt(t, s, err, "fold key", 0, ErrKey)
	}
}
