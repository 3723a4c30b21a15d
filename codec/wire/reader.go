package wire

import (
	"encoding/binary"
	"errors"
	"math"
	"unsafe"
)

// What a Reader or Writer stops with. A broker closes the connection for each of them.
var (
	// ErrShort: fewer bytes remain than the next value needs.
	ErrShort = errors.New("wire: message ends inside a value")
	// ErrNull: null where the version allows none.
	ErrNull = errors.New("wire: null in a field that may not be null")
	// ErrLength: a string longer than 32767 bytes.
	ErrLength = errors.New("wire: string longer than 32767 bytes")
	// ErrVarint: a varint of more than five bytes.
	ErrVarint = errors.New("wire: varint longer than five bytes")
	// ErrTags: tags not strictly ascending, or a tagged value of another size than it says.
	ErrTags = errors.New("wire: bad tagged fields")
	// ErrVersion: a version outside the valid ones of the message.
	ErrVersion = errors.New("wire: version outside the valid range of the message")
	// ErrSize: a frame of more than 2 GiB.
	ErrSize = errors.New("wire: frame larger than 2 GiB")
	// ErrUnsupported: a field holds a value, but the version has no such field and it must not be dropped.
	ErrUnsupported = errors.New("wire: field set that the version does not have")
)

const maxString = math.MaxInt16

// Reader takes values off the front of a byte slice. After the first error every read gives the zero value.
// A Reader passed to a message through an interface escapes: keep one per connection and Reset it.
type Reader struct {
	b   []byte
	off int // <= len(b); len(b) after an error, so that every later read fails without a check of err
	err error
}

// NewReader reads b, which must stay unchanged as long as anything read from it is in use.
func NewReader(b []byte) Reader { return Reader{b: b} }

// Reset begins anew with b.
func (r *Reader) Reset(b []byte) { *r = Reader{b: b} }

// Err is the first error, nil if there was none.
func (r *Reader) Err() error { return r.err }

// Failed says whether there was an error.
func (r *Reader) Failed() bool { return r.err != nil }

// Rest is how many bytes are left; 0 after an error.
func (r *Reader) Rest() int { return len(r.b) - r.off }

// Offset is how many bytes have been read; the length of the input after an error.
func (r *Reader) Offset() int { return r.off }

// Fail sets err unless there already is an error, and gives up the rest of the input.
func (r *Reader) Fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.off = len(r.b)
}

func (r *Reader) short() { r.Fail(ErrShort) }

// Bool reads one byte; all but 0 is true.
func (r *Reader) Bool() bool { return r.Int8() != 0 }

// Int8 reads one byte.
func (r *Reader) Int8() int8 {
	if r.off >= len(r.b) {
		r.short()
		return 0
	}
	v := r.b[r.off]
	r.off++
	return int8(v)
}

// Int16 reads two bytes.
func (r *Reader) Int16() int16 { return int16(r.Uint16()) }

// Uint16 reads two bytes.
func (r *Reader) Uint16() uint16 {
	b := r.b[r.off:]
	if len(b) < 2 {
		r.short()
		return 0
	}
	r.off += 2
	return binary.BigEndian.Uint16(b)
}

// Int32 reads four bytes.
func (r *Reader) Int32() int32 {
	b := r.b[r.off:]
	if len(b) < 4 {
		r.short()
		return 0
	}
	r.off += 4
	return int32(binary.BigEndian.Uint32(b))
}

// Int64 reads eight bytes.
func (r *Reader) Int64() int64 {
	b := r.b[r.off:]
	if len(b) < 8 {
		r.short()
		return 0
	}
	r.off += 8
	return int64(binary.BigEndian.Uint64(b))
}

// Float64 reads the eight bytes of an IEEE 754 number.
func (r *Reader) Float64() float64 { return math.Float64frombits(uint64(r.Int64())) }

// UUID reads sixteen bytes.
func (r *Reader) UUID() UUID {
	b := r.b[r.off:]
	if len(b) < 16 {
		r.short()
		return UUID{}
	}
	r.off += 16
	return UUID(b[:16])
}

// Uvarint reads an unsigned varint of at most five bytes. As in Apache Kafka, bits above the 32nd are dropped.
func (r *Reader) Uvarint() uint32 {
	b := r.b[r.off:]
	if len(b) > 0 && b[0] < 0x80 {
		r.off++
		return uint32(b[0])
	}
	return r.uvarintLong()
}

func (r *Reader) uvarintLong() uint32 {
	b := r.b[r.off:]
	var v uint32
	for i := 0; i < 5; i++ {
		if i >= len(b) {
			r.short()
			return 0
		}
		v |= uint32(b[i]&0x7f) << (7 * i)
		if b[i] < 0x80 {
			r.off += i + 1
			return v
		}
	}
	r.Fail(ErrVarint)
	return 0
}

// compactLen reads a length as flexible versions write it; negative is null.
func (r *Reader) compactLen() int { return int(int32(r.Uvarint() - 1)) }

// stringLen reads the length of a string; negative is null, as in Apache Kafka any negative number.
func (r *Reader) stringLen(flexible bool) int {
	if flexible {
		return r.compactLen()
	}
	return int(r.Int16())
}

// bytesLen reads the length of bytes or records, or the count of an array; negative is null.
func (r *Reader) bytesLen(flexible bool) int {
	if flexible {
		return r.compactLen()
	}
	return int(r.Int32())
}

// take gives the next n bytes; its capacity ends with them, so that an append does not write into the input.
func (r *Reader) take(n int) []byte {
	if n > len(r.b)-r.off {
		r.short()
		return nil
	}
	b := r.b[r.off : r.off+n : r.off+n]
	r.off += n
	return b
}

func (r *Reader) takeString(n int) string {
	if n > maxString {
		r.Fail(ErrLength)
		return ""
	}
	b := r.take(n)
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// String reads a string; null is an error.
func (r *Reader) String(flexible bool) string {
	n := r.stringLen(flexible)
	if n < 0 {
		r.Fail(ErrNull)
		return ""
	}
	return r.takeString(n)
}

// NullString reads a string that may be null if nullable says so.
func (r *Reader) NullString(flexible, nullable bool) NullString {
	n := r.stringLen(flexible)
	if n < 0 {
		if !nullable {
			r.Fail(ErrNull)
		}
		return NullString{}
	}
	return NullString{String: r.takeString(n), Valid: true}
}

// Bytes reads bytes; null is nil, and an error unless nullable.
func (r *Reader) Bytes(flexible, nullable bool) []byte {
	n := r.bytesLen(flexible)
	if n < 0 {
		if !nullable {
			r.Fail(ErrNull)
		}
		return nil
	}
	return r.take(n)
}

// Records reads record batches, which stay opaque.
func (r *Reader) Records(flexible, nullable bool) Records {
	return Records{Bytes: r.Bytes(flexible, nullable)}
}

// ArrayLen reads the count of an array of which each element takes at least minSize bytes; null is an error.
func (r *Reader) ArrayLen(flexible bool, minSize int) int {
	n := r.NullArrayLen(flexible, minSize, false)
	if n < 0 {
		return 0
	}
	return n
}

// NullArrayLen is ArrayLen where null, given as -1, is allowed if nullable says so.
func (r *Reader) NullArrayLen(flexible bool, minSize int, nullable bool) int {
	n := r.bytesLen(flexible)
	if n < 0 {
		if !nullable {
			r.Fail(ErrNull)
		}
		return -1
	}
	if n > (len(r.b)-r.off)/minSize {
		r.short()
		return 0
	}
	return n
}

// Resize gives s the length n, -1 meaning nil. Elements within the capacity of s keep what they hold, so that the slices
// inside them are used again.
func Resize[T any](s []T, n int) []T {
	switch {
	case n < 0:
		return nil
	case n > cap(s) || s == nil:
		t := make([]T, n)
		copy(t, s[:cap(s)])
		return t
	}
	return s[:n]
}

// Int8Array reads an array of int8 into dst's memory; null gives nil.
func (r *Reader) Int8Array(dst []int8, flexible, nullable bool) []int8 {
	dst = Resize(dst, r.NullArrayLen(flexible, 1, nullable))
	for i := range dst {
		dst[i] = r.Int8()
	}
	return dst
}

// Int32Array reads an array of int32 into dst's memory; null gives nil.
func (r *Reader) Int32Array(dst []int32, flexible, nullable bool) []int32 {
	dst = Resize(dst, r.NullArrayLen(flexible, 4, nullable))
	for i := range dst {
		dst[i] = r.Int32()
	}
	return dst
}

// Int64Array reads an array of int64 into dst's memory; null gives nil.
func (r *Reader) Int64Array(dst []int64, flexible, nullable bool) []int64 {
	dst = Resize(dst, r.NullArrayLen(flexible, 8, nullable))
	for i := range dst {
		dst[i] = r.Int64()
	}
	return dst
}

// UUIDArray reads an array of uuids into dst's memory; null gives nil.
func (r *Reader) UUIDArray(dst []UUID, flexible, nullable bool) []UUID {
	dst = Resize(dst, r.NullArrayLen(flexible, 16, nullable))
	for i := range dst {
		dst[i] = r.UUID()
	}
	return dst
}

// StringArray reads an array of strings, none of them null, into dst's memory; a null array gives nil.
func (r *Reader) StringArray(dst []string, flexible, nullable bool) []string {
	minSize := 2
	if flexible {
		minSize = 1
	}
	dst = Resize(dst, r.NullArrayLen(flexible, minSize, nullable))
	for i := range dst {
		dst[i] = r.String(flexible)
		if r.err != nil {
			break
		}
	}
	return dst
}
