package api

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"kaas/codec/schema"
	"kaas/codec/wire"
)

// messageNames lists all messages in a fixed order: fuzz inputs name one by its index.
func messageNames() []string {
	var names []string
	for name := range newMessage {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// checkDecode: whatever the bytes are, decoding keeps its bounds, and what decodes encodes to bytes that mean the same.
func checkDecode(t *testing.T, name string, version int16, body []byte) {
	m := newMessage[name]()
	r := wire.NewReader(body)
	m.Decode(&r, version)
	if n := held(m); n > bytesPerByte*len(body)+bytesAtLeast {
		t.Fatalf("%s v%d: %d bytes of input hold %d of memory", name, version, len(body), n)
	}
	if r.Err() != nil {
		return
	}
	var w wire.Writer
	m.Encode(&w, version)
	// Fields that are tagged at their default, varints longer than need be and bools above 1 come out shorter.
	if w.Err != nil || len(w.B) > len(body)-r.Rest() {
		t.Fatalf("%s v%d: decodes, but encodes to %d bytes of %d: %v", name, version, len(w.B), len(body)-r.Rest(), w.Err)
	}
	checkEncode(t, name, version, m)
}

// checkEncode: what is encoded decodes, with nothing left, to what encodes to the same bytes.
func checkEncode(t *testing.T, name string, version int16, m Message) int {
	var w, again wire.Writer
	m.Encode(&w, version)
	if w.Err != nil {
		t.Fatalf("%s v%d: %v", name, version, w.Err)
	}
	back := newMessage[name]()
	r := wire.NewReader(w.B)
	back.Decode(&r, version)
	if r.Err() != nil || r.Rest() != 0 {
		t.Fatalf("%s v%d: what was encoded: %v, %d left\n%x", name, version, r.Err(), r.Rest(), w.B)
	}
	back.Encode(&again, version)
	if again.Err != nil || !bytes.Equal(again.B, w.B) {
		t.Fatalf("%s v%d: encoded again (%v)\n%x, was\n%x", name, version, again.Err, again.B, w.B)
	}
	return len(w.B)
}

func FuzzDecode(f *testing.F) {
	names := messageNames()
	eachFixture(f, func(_ testing.TB, x *fixture) {
		if i := slices.Index(names, x.message()); x.Case == "unknown-tags" || x.Case == "full" || x.Case == "null" {
			f.Add(uint8(i), uint8(x.Version), []byte(x.BodyHex))
		}
	})
	f.Fuzz(func(t *testing.T, message, version uint8, body []byte) {
		checkDecode(t, names[int(message)%len(names)], int16(version%20), body)
	})
}

func FuzzEncode(f *testing.F) {
	names := messageNames()
	tables := tablesByName(f)
	for i, name := range names {
		f.Add(uint8(i), uint8(tables[name].Versions.Hi), bytes.Repeat([]byte{2, 1, 0, 3, 255, 128, 7}, 20))
	}
	f.Fuzz(func(t *testing.T, message, version uint8, data []byte) {
		name := names[int(message)%len(names)]
		v := tables[name].Versions
		fill := &filler{data: data, version: v.Lo + int16(version)%(v.Hi-v.Lo+1)}
		m := newMessage[name]()
		fill.message(tables[name], m)
		if n := checkEncode(t, name, fill.version, m); n > bytesPerByte*len(data)+bytesAtLeast {
			t.Fatalf("%s v%d: %d bytes of values make %d on the wire", name, fill.version, len(data), n)
		}
	})
}

// TestRoundTrip does what FuzzEncode does with random values, for every version of every message: the metadata records and
// control records, of which there are no fixtures, as well.
func TestRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	tables := tablesByName(t)
	for _, name := range messageNames() {
		for v := tables[name].Versions.Lo; v <= tables[name].Versions.Hi; v++ {
			for range 20 {
				data := make([]byte, rng.IntN(400))
				for i := range data {
					data[i] = byte(rng.Uint32())
				}
				m := newMessage[name]()
				(&filler{data: data, version: v}).message(tables[name], m)
				checkEncode(t, name, v, m)
			}
		}
	}
}

func tablesByName(t testing.TB) map[string]*schema.Message { return newWalker(t).messages }

// filler makes a message's values out of bytes: those fields that the version has, the others stay at their default.
type filler struct {
	data    []byte
	version int16
}

func (f *filler) byte() byte {
	if len(f.data) == 0 {
		return 0
	}
	b := f.data[0]
	f.data = f.data[1:]
	return b
}

// bytes gives up to seven bytes, now and then 200.
func (f *filler) bytes() []byte {
	n := int(f.byte())
	if n == 255 {
		return bytes.Repeat([]byte{'x'}, 200)
	}
	n = min(n%8, len(f.data))
	b := f.data[:n:n]
	f.data = f.data[n:]
	return b
}

func (f *filler) message(table *schema.Message, m Message) {
	m.Default()
	f.fields(table, table.Root, reflect.ValueOf(m).Elem())
}

func (f *filler) fields(table *schema.Message, s *schema.Struct, v reflect.Value) {
	known := map[int]bool{}
	for _, field := range s.Fields {
		if field.IsTagged() {
			known[field.Tag] = true
		}
		if !field.Versions.Has(f.version) {
			continue
		}
		x := v.FieldByName(field.Go())
		if field.Nullable.Has(f.version) && f.byte()%4 == 3 {
			x.SetZero()
			continue
		}
		if !field.Array {
			f.value(table, field, x)
			continue
		}
		n := min(int(f.byte()%4), len(f.data))
		x.Set(reflect.MakeSlice(x.Type(), n, n))
		for i := range n {
			f.value(table, field, x.Index(i))
		}
	}
	if table.Flexible.Has(f.version) && f.byte()%4 == 1 {
		var tags []wire.Tag
		for id := range 10 {
			if !known[id] && f.byte()%4 == 1 {
				tags = append(tags, wire.Tag{ID: uint32(id), Data: f.bytes()})
			}
		}
		v.FieldByName("UnknownTags").Set(reflect.ValueOf(tags))
	}
}

func (f *filler) value(table *schema.Message, field *schema.Field, x reflect.Value) {
	if field.Struct != nil {
		if x.Kind() == reflect.Pointer {
			x.Set(reflect.New(x.Type().Elem()))
			x = x.Elem()
		}
		x.Addr().Interface().(interface{ Default() }).Default()
		f.fields(table, field.Struct, x)
		return
	}
	switch p := x.Addr().Interface().(type) {
	case *wire.NullString:
		*p = wire.Some(string(f.bytes()))
	case *string:
		*p = string(f.bytes())
	case *[]byte:
		*p = f.bytes()
	case *wire.Records:
		*p = wire.Records{Bytes: f.bytes()}
	case *wire.UUID:
		copy(p[:], f.bytes())
	case *bool:
		*p = f.byte()%2 == 1
	case *float64:
		*p = float64(int8(f.byte())) / 4
	case *uint16:
		*p = uint16(f.byte()) * 257
	default:
		x.SetInt(int64(int8(f.byte())))
	}
}
