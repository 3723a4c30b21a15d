package api

import (
	"reflect"
	"runtime"
	"slices"
	"testing"

	"kaas/codec/wire"
)

// What decoding may allocate: bytesPerByte for every byte of input and one element more than fits for each level of
// nesting. 32 is the highest ratio of a struct's size in memory to its least size on the wire (TestAmplification), and
// arrays are nested up to four deep; tags cost 16, doubled as the slice grows.
const (
	bytesPerByte = 100
	bytesAtLeast = 4096
)

// footprint is how much memory the slices and pointers of a message hold. Bytes and strings alias the input.
func footprint(v reflect.Value) int {
	size := 0
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			size = int(v.Elem().Type().Size()) + footprint(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			size += footprint(v.Field(i))
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return 0
		}
		size = v.Cap() * int(v.Type().Elem().Size())
		for i := range v.Len() {
			size += footprint(v.Index(i))
		}
	}
	return size
}

func held(m Message) int { return footprint(reflect.ValueOf(m).Elem()) }

// sample gives every number below n if n is small, else the ends and a part of the middle.
func sample(n int) []int {
	var at []int
	for i := 0; i < n; i++ {
		if n < 200 || i < 100 || i >= n-20 || i%97 == 0 {
			at = append(at, i)
		}
	}
	return at
}

// TestPrefixes: a message that is cut off anywhere is an error, and costs no more memory than its bytes allow.
func TestPrefixes(t *testing.T) {
	eachFixture(t, func(t testing.TB, f *fixture) {
		name := f.message()
		m := newMessage[name]()
		for _, n := range sample(len(f.BodyHex)) {
			r := wire.NewReader(f.BodyHex[:n:n])
			m.Decode(&r, f.Version)
			if r.Err() == nil {
				t.Fatalf("%s v%d %s: %d of %d bytes decode", name, f.Version, f.Case, n, len(f.BodyHex))
			}
		}
	})
}

// TestDamage: no single wrong byte makes a panic or takes more memory than the input allows.
func TestDamage(t *testing.T) {
	tables := tablesByName(t)
	eachFixture(t, func(t testing.TB, f *fixture) {
		name := f.message()
		if f.Case != "full" && f.Case != "unknown-tags" || f.Version != tables[name].Versions.Hi {
			return // the fuzz targets see the others
		}
		body := slices.Clone(f.BodyHex)
		for _, at := range sample(len(body)) {
			old := body[at]
			for _, c := range []byte{0, 0x7f, 0x80, 0xff} {
				body[at] = c
				m := newMessage[name]()
				r := wire.NewReader(body)
				m.Decode(&r, f.Version)
				if n := held(m); n > bytesPerByte*len(body)+bytesAtLeast {
					t.Fatalf("%s v%d %s: byte %d = %#x holds %d bytes of memory, input has %d", name, f.Version, f.Case, at, c, n, len(body))
				}
			}
			body[at] = old
		}
	})
}

// TestAmplification fills each array in turn with the smallest elements there are, and checks what a byte of input costs.
func TestAmplification(t *testing.T) {
	worst, worstAt := 0.0, ""
	for name, create := range newMessage {
		for version := range int16(17) {
			eachArray(create, func(m Message, path string) {
				var w wire.Writer
				m.Encode(&w, version)
				if w.Err != nil { // the version does not have the message or the array
					return
				}
				fresh := create()
				r := wire.NewReader(w.B)
				fresh.Decode(&r, version)
				if r.Err() != nil {
					t.Fatalf("%s v%d %s: %v", name, version, path, r.Err())
				}
				if ratio := float64(held(fresh)) / float64(len(w.B)); ratio > worst {
					worst, worstAt = ratio, path
				}
			})
		}
	}
	if worst > 32 || worst < 30 {
		t.Errorf("a byte of input costs up to %.1f bytes of memory, in %s; bytesPerByte supposes 32", worst, worstAt)
	}
}

// eachArray calls fn once for every array of structs in the message, with 500 default elements in that array, and one
// element in each array around it.
func eachArray(create func() Message, fn func(m Message, path string)) {
	var visit func(t reflect.Type, path []int, text string)
	visit = func(typ reflect.Type, path []int, text string) {
		for i := range typ.NumField() {
			field := typ.Field(i)
			if field.Type.Kind() != reflect.Slice || field.Type.Elem().Kind() != reflect.Struct || field.Name == "UnknownTags" {
				continue
			}
			here := append(slices.Clone(path), i)
			m := create()
			m.Default()
			v := reflect.ValueOf(m).Elem()
			for depth, index := range here {
				n := 1
				if depth == len(here)-1 {
					n = 500
				}
				s := reflect.MakeSlice(v.Field(index).Type(), n, n)
				for j := range n {
					s.Index(j).Addr().Interface().(interface{ Default() }).Default()
				}
				v.Field(index).Set(s)
				v = s.Index(0)
			}
			fn(m, text+"."+field.Name)
			visit(field.Type.Elem(), here, text+"."+field.Name)
		}
	}
	typ := reflect.TypeOf(create()).Elem()
	visit(typ, nil, typ.Name())
}

// TestFootprintIsHonest compares footprint with what the runtime says for a hostile message: counts that promise the most.
func TestFootprintIsHonest(t *testing.T) {
	body := make([]byte, 1<<16)
	copy(body, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0x01}) // v9: null id, acks, timeout, 32767 topics
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m := new(ProduceRequest)
	r := wire.NewReader(body[2:])
	m.Decode(&r, 9)
	runtime.ReadMemStats(&after)
	real, said := int(after.TotalAlloc-before.TotalAlloc), held(m)
	if real > said*2+bytesAtLeast || real > bytesPerByte*len(body) {
		t.Errorf("decoding %d bytes allocated %d, footprint says %d", len(body), real, said)
	}
}
