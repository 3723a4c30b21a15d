package wire

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
)

func TestPrimitives(t *testing.T) {
	id := UUID{1, 2, 3, 15: 16}
	var w Writer
	w.Bool(true)
	w.Bool(false)
	w.Int8(-2)
	w.Int16(-3)
	w.Uint16(65535)
	w.Int32(-4)
	w.Int64(math.MinInt64)
	w.Float64(-1.5)
	w.UUID(id)
	want := "\x01\x00\xfe\xff\xfd\xff\xff\xff\xff\xff\xfc\x80\x00\x00\x00\x00\x00\x00\x00\xbf\xf8\x00\x00\x00\x00\x00\x00" +
		"\x01\x02\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x10"
	if string(w.B) != want {
		t.Fatalf("wrote %x, want %x", w.B, want)
	}
	r := NewReader(append(w.B, 7))
	if !r.Bool() || r.Bool() || r.Int8() != -2 || r.Int16() != -3 || r.Uint16() != 65535 || r.Int32() != -4 ||
		r.Int64() != math.MinInt64 || r.Float64() != -1.5 || r.UUID() != id {
		t.Error("values read differ from those written")
	}
	if r.Err() != nil || r.Rest() != 1 || r.Offset() != len(w.B) || !r.Bool() {
		t.Errorf("%v, %d left at %d; and any byte but 0 is true", r.Err(), r.Rest(), r.Offset())
	}
}

func TestErrorSticks(t *testing.T) {
	r := NewReader([]byte{1, 2, 3})
	if v := r.Int32(); v != 0 || r.Err() != ErrShort || r.Rest() != 0 {
		t.Errorf("%d %v, %d left", v, r.Err(), r.Rest())
	}
	r.Fail(ErrNull)
	if r.Err() != ErrShort {
		t.Errorf("the second error replaced the first: %v", r.Err())
	}
	if r.Int8() != 0 || r.Int16() != 0 || r.Int64() != 0 || r.Uvarint() != 0 || r.String(true) != "" || r.UUID() != (UUID{}) ||
		r.ArrayLen(false, 1) != 0 || len(r.Int32Array(nil, true, false)) != 0 || r.UnknownTags(nil) != nil {
		t.Error("a failed reader gives values")
	}
	r.Reset([]byte{5})
	if r.Err() != nil || r.Int8() != 5 {
		t.Error("Reset does not begin anew")
	}
}

func TestUvarint(t *testing.T) {
	for v, text := range map[uint32]string{
		0: "\x00", 127: "\x7f", 128: "\x80\x01", 16383: "\xff\x7f", 16384: "\x80\x80\x01", math.MaxUint32: "\xff\xff\xff\xff\x0f",
	} {
		var w Writer
		w.Uvarint(v)
		r := NewReader([]byte(text))
		if got := r.Uvarint(); string(w.B) != text || got != v || r.Err() != nil || r.Rest() != 0 {
			t.Errorf("%d: wrote %x, read %d (%v)", v, w.B, got, r.Err())
		}
	}
	for text, want := range map[string]error{"": ErrShort, "\x80": ErrShort, "\xff\xff\xff\xff": ErrShort, "\x80\x80\x80\x80\x80\x00": ErrVarint} {
		r := NewReader([]byte(text))
		if v := r.Uvarint(); v != 0 || r.Err() != want {
			t.Errorf("%x: %d %v, want %v", text, v, r.Err(), want)
		}
	}
	// As Apache Kafka: bits above the 32nd are dropped.
	r := NewReader([]byte("\x81\x80\x80\x80\x70"))
	if v := r.Uvarint(); v != 1 || r.Err() != nil {
		t.Errorf("%d %v", v, r.Err())
	}
}

func TestStrings(t *testing.T) {
	long := strings.Repeat("x", 32767)
	for _, flexible := range []bool{false, true} {
		var w Writer
		w.String("é\xff", flexible)
		w.NullString(Some(""), flexible)
		w.NullString(NullString{}, flexible)
		w.String(long, flexible)
		w.Bytes(nil, flexible)
		w.NullBytes(nil, flexible)
		w.NullBytes([]byte{}, flexible)
		r := NewReader(w.B)
		if s := r.String(flexible); s != "é\xff" {
			t.Errorf("%q", s)
		}
		if s := r.NullString(flexible, true); s != Some("") {
			t.Errorf("%+v", s)
		}
		if s := r.NullString(flexible, true); s.Valid {
			t.Errorf("%+v", s)
		}
		if s := r.String(flexible); s != long {
			t.Errorf("%d bytes", len(s))
		}
		if b := r.Bytes(flexible, false); b == nil || len(b) != 0 {
			t.Errorf("%v", b)
		}
		if b := r.Bytes(flexible, true); b != nil {
			t.Errorf("%v", b)
		}
		if b := r.Bytes(flexible, true); b == nil || len(b) != 0 || r.Err() != nil || r.Rest() != 0 {
			t.Errorf("%v %v", b, r.Err())
		}
		w.Reset()
		w.String(long+"x", flexible)
		if w.Err != ErrLength {
			t.Errorf("a string of 32768 bytes: %v", w.Err)
		}
	}
	r := NewReader(append([]byte{0x81, 0x80, 0x02}, make([]byte, 40000)...)) // 32769-1 bytes
	if s := r.String(true); s != "" || r.Err() != ErrLength {
		t.Errorf("read a string of %d bytes: %v", len(s), r.Err())
	}
}

// TestNullIsRefused: null where it may not be, in each form.
func TestNullIsRefused(t *testing.T) {
	for name, read := range map[string]func(r *Reader, flexible bool){
		"string":      func(r *Reader, flexible bool) { r.String(flexible) },
		"null string": func(r *Reader, flexible bool) { r.NullString(flexible, false) },
		"bytes":       func(r *Reader, flexible bool) { r.Bytes(flexible, false) },
		"records":     func(r *Reader, flexible bool) { r.Records(flexible, false) },
		"array":       func(r *Reader, flexible bool) { r.ArrayLen(flexible, 1) },
		"strings":     func(r *Reader, flexible bool) { r.StringArray(nil, flexible, false) },
	} {
		r := NewReader([]byte{0xff, 0xff, 0xff, 0xff})
		read(&r, false)
		if r.Err() != ErrNull {
			t.Errorf("%s: %v", name, r.Err())
		}
		r = NewReader([]byte{0})
		read(&r, true)
		if r.Err() != ErrNull {
			t.Errorf("compact %s: %v", name, r.Err())
		}
	}
}

// TestCountsAreChecked: a count that the bytes cannot hold costs nothing.
func TestCountsAreChecked(t *testing.T) {
	huge := []byte{0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0}
	compact := []byte{0xff, 0xff, 0xff, 0xff, 0x07, 0, 0, 0}
	n := testing.AllocsPerRun(10, func() {
		for _, c := range []struct {
			b        []byte
			flexible bool
		}{{huge, false}, {compact, true}} {
			r := NewReader(c.b)
			if a := r.Int64Array(nil, c.flexible, true); len(a) != 0 || r.Err() != ErrShort {
				t.Errorf("%d elements, %v", len(a), r.Err())
			}
			r = NewReader(c.b)
			if a := r.StringArray(nil, c.flexible, true); len(a) != 0 || r.Err() != ErrShort {
				t.Errorf("%d elements, %v", len(a), r.Err())
			}
			r = NewReader(c.b)
			if b := r.Bytes(c.flexible, true); b != nil || r.Err() != ErrShort {
				t.Errorf("%d bytes, %v", len(b), r.Err())
			}
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
	r := NewReader([]byte{0, 0, 0, 2, 1, 2, 3, 4, 5, 6, 7})
	if n := r.ArrayLen(false, 4); n != 0 || r.Err() != ErrShort {
		t.Errorf("two elements of four bytes in seven: %d %v", n, r.Err())
	}
}

// TestAliasing: what is read is in the input, and appending to it does not write there.
func TestAliasing(t *testing.T) {
	b := []byte{3, 'a', 'b', 3, 'c', 'd', 9}
	r := NewReader(b)
	s, p := r.String(true), r.Bytes(true, false)
	b[1], b[4] = 'x', 'y'
	if s != "xb" || string(p) != "yd" {
		t.Errorf("%q %q", s, p)
	}
	if _ = append(p, 'z'); b[6] != 9 {
		t.Error("append overwrote the input")
	}
}

func TestResize(t *testing.T) {
	s := [][]int{{1}, {2}, {3}}
	if got := Resize(s[:1], 3); len(got) != 3 || got[2][0] != 3 {
		t.Errorf("%v", got)
	}
	if got := Resize(s, 5); len(got) != 5 || got[2][0] != 3 || got[4] != nil {
		t.Errorf("%v", got)
	}
	if got := Resize(s, -1); got != nil {
		t.Errorf("%v", got)
	}
	if got := Resize([][]int(nil), 0); got == nil {
		t.Error("an empty array became null")
	}
}

func TestTags(t *testing.T) {
	read := func(b ...byte) ([]Tag, error) {
		r := NewReader(b)
		tags := r.UnknownTags(nil)
		if r.Err() == nil && r.Rest() != 0 {
			t.Errorf("%x: %d bytes left", b, r.Rest())
		}
		return tags, r.Err()
	}
	tags, err := read(2, 1, 2, 'a', 'b', 0x80, 1, 0)
	if err != nil || len(tags) != 2 || tags[0].ID != 1 || string(tags[0].Data) != "ab" || tags[1].ID != 128 || len(tags[1].Data) != 0 {
		t.Errorf("%v %v", tags, err)
	}
	for want, inputs := range map[error][][]byte{
		ErrTags:  {{2, 1, 0, 1, 0}, {2, 2, 0, 1, 0}},
		ErrShort: {{}, {1}, {1, 1}, {1, 1, 1}, {2, 1, 0}, {0xff, 0xff, 0xff, 0xff, 0x0f, 1, 0}},
	} {
		for _, b := range inputs {
			if tags, err := read(b...); err != want {
				t.Errorf("%x: %v %v, want %v", b, tags, err, want)
			}
		}
	}
	for _, b := range [][]byte{{1, 0, 3, 0, 0, 0, 5}, {1, 0, 5, 0, 0, 0, 0, 5}} { // an int32 that claims 3 or 5 bytes
		r := NewReader(b)
		for tr := r.Tags(); tr.Next(&r); {
			r.Int32()
		}
		if r.Err() != ErrTags {
			t.Errorf("%x: %v", b, r.Err())
		}
	}
}

// TestTagSizes: the size is put in afterwards, in as many bytes as it takes.
func TestTagSizes(t *testing.T) {
	for _, size := range []int{0, 1, 127, 128, 16383, 16384, 2097151, 2097152} {
		value := bytes.Repeat([]byte{'v'}, size)
		var w, want Writer
		mark := w.BeginTag(300)
		w.B = append(w.B, value...)
		w.EndTag(mark)
		w.Int8(7)
		want.RestOfTags([]Tag{{ID: 300, Data: value}})
		want.Int8(7)
		if w.Err != nil || !bytes.Equal(w.B, want.B) {
			t.Errorf("size %d: %x…, want %x…", size, w.B[:6], want.B[:6])
		}
	}
}

func TestFrame(t *testing.T) {
	var w Writer
	for range 2 { // the second has other bytes and cuts before it
		at := len(w.B)
		f := w.BeginFrame()
		h := ResponseHeader{CorrelationID: 0x01020304, UnknownTags: []Tag{{ID: 1, Data: []byte{9}}}}
		h.Encode(&w, 1)
		w.NullRecords(Records{Bytes: []byte("ab"), External: 1000}, true)
		w.NullRecords(Records{}, false)
		w.Records(Records{}, false)
		w.NullRecords(Records{Bytes: []byte{}}, false)
		size := w.EndFrame(f)
		want := "\x00\x00\x04\x00\x01\x02\x03\x04\x01\x01\x01\x09\xeb\x07ab\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00"
		if size != 1000+len(want)-4 || string(w.B[at:]) != want || w.Err != nil {
			t.Errorf("frame of %d (%v):\n%x, want\n%x", size, w.Err, w.B[at:], want)
		}
		if cut := w.Cuts[len(w.Cuts)-1]; cut != (Cut{At: at + 16, Len: 1000}) {
			t.Errorf("cut %+v", cut)
		}
	}
	f := w.BeginFrame()
	w.Records(Records{External: math.MaxInt32 - 1}, false)
	if n := w.EndFrame(f); n != 0 || w.Err != ErrSize {
		t.Errorf("%d %v", n, w.Err)
	}
}

func TestHeaders(t *testing.T) {
	full := RequestHeader{Key: 1, Version: 2, CorrelationID: 3, ClientID: Some("me"), UnknownTags: []Tag{{ID: 4, Data: []byte{5}}}}
	for version, want := range []string{
		"\x00\x01\x00\x02\x00\x00\x00\x03",
		"\x00\x01\x00\x02\x00\x00\x00\x03\x00\x02me",
		"\x00\x01\x00\x02\x00\x00\x00\x03\x00\x02me\x01\x04\x01\x05",
	} {
		var w Writer
		full.Encode(&w, int16(version))
		if string(w.B) != want {
			t.Errorf("v%d: %x, want %x", version, w.B, want)
		}
		got := full // what an earlier request left must go
		r := NewReader(w.B)
		got.Decode(&r, int16(version))
		if r.Err() != nil || r.Rest() != 0 || got.ClientID.Valid != (version > 0) || (len(got.UnknownTags) == 1) != (version == 2) {
			t.Errorf("v%d: %+v %v", version, got, r.Err())
		}
		for n := range len(w.B) {
			r := NewReader(w.B[:n])
			got.Decode(&r, int16(version))
			if r.Err() == nil {
				t.Errorf("v%d: %d bytes decode", version, n)
			}
		}
	}
	var w Writer
	full.Encode(&w, 3)
	(&ResponseHeader{}).Encode(&w, 2)
	r := NewReader(make([]byte, 50))
	full.Decode(&r, -1)
	if w.Err != ErrVersion || r.Err() != ErrVersion || len(w.B) != 0 {
		t.Errorf("%v %v", w.Err, r.Err())
	}
	if _, _, ok := PeekRequest([]byte{0, 1, 0}); ok {
		t.Error("three bytes give key and version")
	}
	if k, v, ok := PeekRequest([]byte{0, 18, 0, 3}); k != 18 || v != 3 || !ok {
		t.Errorf("%d %d %t", k, v, ok)
	}
}

func TestUUID(t *testing.T) {
	u := UUID{0xfb, 0xff, 15: 1}
	text := "-_8AAAAAAAAAAAAAAAAAAQ"
	if got, err := ParseUUID(text); u.String() != text || got != u || err != nil {
		t.Errorf("%s, back %v (%v)", u, got, err)
	}
	for _, bad := range []string{"", "AAAA", text + "==", text + "A", strings.Repeat("+", 22)} {
		if u, err := ParseUUID(bad); err == nil || u != (UUID{}) {
			t.Errorf("%q is %v", bad, u)
		}
	}
}

func TestFieldError(t *testing.T) {
	var w Writer
	w.Unsupported("A.B", 3)
	w.Null("A.C", 4)
	var fe *FieldError
	if !errors.As(w.Err, &fe) || *fe != (FieldError{"A.B", 3, ErrUnsupported}) || !errors.Is(w.Err, ErrUnsupported) {
		t.Errorf("%v", w.Err)
	}
	if got := w.Err.Error(); got != "wire: field set that the version does not have: A.B, version 3" {
		t.Error(got)
	}
}
