package transcripts

// Values to bytes. Scripts may say wrong things on purpose; what they say is written.

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
)

type encoder struct {
	b    []byte
	ver  int
	flex bool
	s    *session // for record descriptions
}

func (e *encoder) i8(v int64)  { e.b = append(e.b, byte(v)) }
func (e *encoder) i16(v int64) { e.b = binary.BigEndian.AppendUint16(e.b, uint16(v)) }
func (e *encoder) i32(v int64) { e.b = binary.BigEndian.AppendUint32(e.b, uint32(v)) }
func (e *encoder) i64(v int64) { e.b = binary.BigEndian.AppendUint64(e.b, uint64(v)) }
func (e *encoder) uv(v uint64) { e.b = binary.AppendUvarint(e.b, v) }

func (e *encoder) length(n int, short bool) {
	switch {
	case e.flex:
		e.uv(uint64(n + 1))
	case short:
		e.i16(int64(n))
	default:
		e.i32(int64(n))
	}
}

func encodeMessage(m *message, ver int, v any, s *session) (out []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("encode %s v%d: %v", m.Name, ver, r)
		}
	}()
	e := &encoder{ver: ver, flex: m.Flex.has(ver), s: s}
	e.fields(m.Fields, v, m.Name)
	return e.b, nil
}

func (e *encoder) fields(fs []*field, v any, path string) {
	o, ok := v.(*object)
	if !ok {
		if v == nil {
			o = newObject()
		} else {
			panic(fmt.Sprintf("%s: want an object, have %T", path, v))
		}
	}
	known := map[string]bool{}
	type tagged struct {
		tag int
		b   []byte
	}
	var tags []tagged
	for _, f := range fs {
		known[f.Name] = true
		if f.Tag != nil && f.TagVers.has(e.ver) && e.flex {
			if x, ok := o.V[f.Name]; ok {
				sub := &encoder{ver: e.ver, flex: true, s: e.s}
				sub.value(f, f.Type, x, path+"."+f.Name)
				tags = append(tags, tagged{*f.Tag, sub.b})
			}
			continue
		}
		if !f.Vers.has(e.ver) {
			if _, ok := o.V[f.Name]; ok {
				panic(fmt.Sprintf("%s.%s does not exist in version %d", path, f.Name, e.ver))
			}
			continue
		}
		x, ok := o.V[f.Name]
		if !ok {
			x = f.zero()
		}
		e.value(f, f.Type, x, path+"."+f.Name)
	}
	for _, k := range o.K {
		if !known[k] {
			panic(fmt.Sprintf("%s: no field %q", path, k))
		}
	}
	if e.flex {
		e.uv(uint64(len(tags)))
		for _, t := range tags {
			e.uv(uint64(t.tag))
			e.uv(uint64(len(t.b)))
			e.b = append(e.b, t.b...)
		}
	}
}

func (e *encoder) value(f *field, t string, v any, path string) {
	if strings.HasPrefix(t, "[]") {
		e.array(f, t[2:], v, path)
		return
	}
	switch t {
	case "bool", "int8":
		e.i8(toInt(v, path))
	case "int16", "uint16":
		e.i16(toInt(v, path))
	case "int32", "uint32":
		e.i32(toInt(v, path))
	case "int64":
		e.i64(toInt(v, path))
	case "float64":
		x, err := strconv.ParseFloat(fmt.Sprint(v), 64)
		if err != nil {
			panic(path + ": " + err.Error())
		}
		e.i64(int64(math.Float64bits(x)))
	case "uuid":
		b, err := base64.RawURLEncoding.DecodeString(v.(string))
		if err != nil || len(b) != 16 {
			panic(fmt.Sprintf("%s: bad uuid %v", path, v))
		}
		e.b = append(e.b, b...)
	case "string":
		e.text(v, path)
	case "bytes", "records":
		e.blob(v, path)
	default: // struct
		if f.Nullable.has(e.ver) {
			if v == nil {
				e.i8(-1)
				return
			}
			e.i8(1)
		}
		e.fields(f.Fields, v, path)
	}
}

// null writes an absent value; scripts may want that even where the schema forbids it.
func (e *encoder) null(short bool) {
	switch {
	case e.flex:
		e.uv(0)
	case short:
		e.i16(-1)
	default:
		e.i32(-1)
	}
}

func (e *encoder) array(f *field, elem string, v any, path string) {
	if v == nil {
		e.null(false)
		return
	}
	a, ok := v.([]any)
	if !ok {
		panic(fmt.Sprintf("%s: want an array, have %T", path, v))
	}
	e.length(len(a), false)
	for i, x := range a {
		e.value(&field{Fields: f.Fields, Type: elem}, elem, x, fmt.Sprintf("%s[%d]", path, i))
	}
}

func (e *encoder) text(v any, path string) {
	if v == nil {
		e.null(true)
		return
	}
	s, ok := v.(string)
	if !ok {
		panic(fmt.Sprintf("%s: want a string, have %T %v", path, v, v))
	}
	e.length(len(s), true)
	e.b = append(e.b, s...)
}

func (e *encoder) blob(v any, path string) {
	var b []byte
	switch x := v.(type) {
	case nil:
		e.null(false)
		return
	case *object:
		var err error
		if b, err = describeToBytes(x, e.s); err != nil {
			panic(path + ": " + err.Error())
		}
	default:
		b = toBytes(v, path)
	}
	e.length(len(b), false)
	e.b = append(e.b, b...)
}
