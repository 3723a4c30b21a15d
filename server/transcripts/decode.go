package transcripts

// Bytes to values. A broker's answer must be canonical: nothing left over, no null where none may be.

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

type decoder struct {
	b    []byte
	off  int
	ver  int
	flex bool
}

func (d *decoder) take(n int) []byte {
	if n < 0 || d.off+n > len(d.b) {
		panic(fmt.Sprintf("want %d bytes at %d, message has %d", n, d.off, len(d.b)))
	}
	x := d.b[d.off : d.off+n]
	d.off += n
	return x
}

func (d *decoder) uv() uint64 {
	v, n := binary.Uvarint(d.b[d.off:])
	if n <= 0 {
		panic(fmt.Sprintf("bad varint at %d", d.off))
	}
	d.off += n
	return v
}
func (d *decoder) i8() int64  { return int64(int8(d.take(1)[0])) }
func (d *decoder) i16() int64 { return int64(int16(binary.BigEndian.Uint16(d.take(2)))) }
func (d *decoder) i32() int64 { return int64(int32(binary.BigEndian.Uint32(d.take(4)))) }
func (d *decoder) i64() int64 { return int64(binary.BigEndian.Uint64(d.take(8))) }

func (d *decoder) length(short bool) int {
	switch {
	case d.flex:
		return int(d.uv()) - 1
	case short:
		return int(d.i16())
	}
	return int(d.i32())
}

// decodeMessage reads a whole body; bytes left over are an error.
func decodeMessage(m *message, ver int, b []byte) (o *object, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("decode %s v%d: %v", m.Name, ver, r)
		}
	}()
	d := &decoder{b: b, ver: ver, flex: m.Flex.has(ver)}
	o = d.fields(m.Fields)
	if d.off != len(b) {
		return o, fmt.Errorf("decode %s v%d: %d bytes left over", m.Name, ver, len(b)-d.off)
	}
	return o, nil
}

func (d *decoder) fields(fs []*field) *object {
	o := newObject()
	for _, f := range fs {
		if f.Tag != nil && f.TagVers.has(d.ver) && d.flex {
			continue
		}
		if f.Vers.has(d.ver) {
			o.set(f.Name, d.value(f, f.Type))
		}
	}
	if d.flex {
		n := int(d.uv())
	next:
		for i := 0; i < n; i++ {
			tag, size := int(d.uv()), int(d.uv())
			raw := d.take(size)
			for _, f := range fs {
				if f.Tag != nil && *f.Tag == tag && f.TagVers.has(d.ver) {
					sub := &decoder{b: raw, ver: d.ver, flex: true}
					v := sub.value(f, f.Type)
					if sub.off != len(raw) {
						panic(fmt.Sprintf("tagged field %s: %d bytes left over", f.Name, len(raw)-sub.off))
					}
					// A tagged field that is sent with its default means the same as one left out.
					if zv, _ := marshal(f.zero()); string(zv) != mustText(v) {
						o.set(f.Name, v)
					}
					continue next
				}
			}
			o.set(fmt.Sprintf("_unknownTag%d", tag), "hex:"+hex.EncodeToString(raw))
		}
	}
	return o
}

func (d *decoder) value(f *field, t string) any {
	if strings.HasPrefix(t, "[]") {
		return d.array(f, t[2:])
	}
	switch t {
	case "bool":
		return d.i8() != 0
	case "int8":
		return num(d.i8())
	case "int16":
		return num(d.i16())
	case "uint16":
		return num(d.i16() & 0xffff)
	case "int32":
		return num(d.i32())
	case "uint32":
		return num(d.i32() & 0xffffffff)
	case "int64":
		return num(d.i64())
	case "float64":
		return json.Number(strconv.FormatFloat(math.Float64frombits(uint64(d.i64())), 'f', -1, 64))
	case "uuid":
		return base64.RawURLEncoding.EncodeToString(d.take(16))
	case "string":
		n := d.length(true)
		if n < 0 {
			if !f.Nullable.has(d.ver) {
				panic("null in string " + f.Name + " that may not be null")
			}
			return nil
		}
		return string(d.take(n))
	case "bytes", "records":
		n := d.length(false)
		if n < 0 {
			return nil
		}
		if t == "records" {
			return decodeRecords(d.take(n))
		}
		return bytesText(d.take(n))
	}
	if f.Nullable.has(d.ver) && d.i8() < 0 {
		return nil
	}
	return d.fields(f.Fields)
}

func (d *decoder) array(f *field, elem string) any {
	n := d.length(false)
	if n < 0 {
		if !f.Nullable.has(d.ver) {
			panic("null in array " + f.Name + " that may not be null")
		}
		return nil
	}
	if n > len(d.b)-d.off {
		panic(fmt.Sprintf("array %s of %d elements does not fit", f.Name, n))
	}
	a := make([]any, 0, n)
	for range n {
		a = append(a, d.value(&field{Name: f.Name, Fields: f.Fields, Type: elem}, elem))
	}
	return a
}
