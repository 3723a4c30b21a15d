package wire

import (
	"encoding/binary"
	"math"
)

// Cut is a place in a Writer's bytes where Len bytes that are not in memory belong: before B[At].
type Cut struct {
	At  int
	Len int
}

// Writer appends values to B. It allocates only where the capacity of B or Cuts does not suffice. The first error sticks in
// Err; what is in B then is no message.
type Writer struct {
	B    []byte
	Cuts []Cut // ascending by At
	Err  error
}

// Reset drops all content and keeps the memory.
func (w *Writer) Reset() {
	w.B = w.B[:0]
	w.Cuts = w.Cuts[:0]
	w.Err = nil
}

// Fail sets Err unless there already is one.
func (w *Writer) Fail(err error) {
	if w.Err == nil {
		w.Err = err
	}
}

// Unsupported fails because field holds a value that version cannot carry and that must not be dropped.
func (w *Writer) Unsupported(field string, version int16) {
	w.Fail(&FieldError{Field: field, Version: version, Err: ErrUnsupported})
}

// Null fails because field is null and version has no null there.
func (w *Writer) Null(field string, version int16) {
	w.Fail(&FieldError{Field: field, Version: version, Err: ErrNull})
}

// Bool writes one byte, 1 for true.
func (w *Writer) Bool(v bool) {
	var c byte
	if v {
		c = 1
	}
	w.B = append(w.B, c)
}

// Int8 writes one byte.
func (w *Writer) Int8(v int8) { w.B = append(w.B, byte(v)) }

// Int16 writes two bytes.
func (w *Writer) Int16(v int16) { w.B = binary.BigEndian.AppendUint16(w.B, uint16(v)) }

// Uint16 writes two bytes.
func (w *Writer) Uint16(v uint16) { w.B = binary.BigEndian.AppendUint16(w.B, v) }

// Int32 writes four bytes.
func (w *Writer) Int32(v int32) { w.B = binary.BigEndian.AppendUint32(w.B, uint32(v)) }

// Int64 writes eight bytes.
func (w *Writer) Int64(v int64) { w.B = binary.BigEndian.AppendUint64(w.B, uint64(v)) }

// Float64 writes the eight bytes of an IEEE 754 number.
func (w *Writer) Float64(v float64) { w.Int64(int64(math.Float64bits(v))) }

// UUID writes sixteen bytes.
func (w *Writer) UUID(v UUID) { w.B = append(w.B, v[:]...) }

// Uvarint writes an unsigned varint.
func (w *Writer) Uvarint(v uint32) {
	if v < 0x80 {
		w.B = append(w.B, byte(v))
		return
	}
	w.uvarintLong(v)
}

func (w *Writer) uvarintLong(v uint32) { w.B = binary.AppendUvarint(w.B, uint64(v)) }

// String writes a string that is not null.
func (w *Writer) String(s string, flexible bool) {
	if len(s) > maxString {
		w.Fail(ErrLength)
		return
	}
	if flexible {
		w.Uvarint(uint32(len(s) + 1))
	} else {
		w.Int16(int16(len(s)))
	}
	w.B = append(w.B, s...)
}

// NullString writes a string or null.
func (w *Writer) NullString(s NullString, flexible bool) {
	if s.Valid {
		w.String(s.String, flexible)
		return
	}
	if flexible {
		w.B = append(w.B, 0)
	} else {
		w.Int16(-1)
	}
}

// Bytes writes bytes that are not null; nil is empty.
func (w *Writer) Bytes(b []byte, flexible bool) {
	w.ArrayLen(len(b), flexible)
	w.B = append(w.B, b...)
}

// NullBytes writes bytes; nil is null.
func (w *Writer) NullBytes(b []byte, flexible bool) {
	if b == nil {
		w.NullArray(flexible)
		return
	}
	w.Bytes(b, flexible)
}

// Records writes records that are not null; null is written as empty.
func (w *Writer) Records(r Records, flexible bool) {
	w.ArrayLen(r.Len(), flexible)
	w.B = append(w.B, r.Bytes...)
	if r.External > 0 {
		w.Cuts = append(w.Cuts, Cut{At: len(w.B), Len: r.External})
	}
}

// NullRecords writes records or null.
func (w *Writer) NullRecords(r Records, flexible bool) {
	if r.Null() {
		w.NullArray(flexible)
		return
	}
	w.Records(r, flexible)
}

// ArrayLen writes the count of an array that is not null, or the length of bytes.
func (w *Writer) ArrayLen(n int, flexible bool) {
	if flexible {
		w.Uvarint(uint32(n + 1))
	} else {
		w.Int32(int32(n))
	}
}

// NullArray writes a null array, null bytes or null records.
func (w *Writer) NullArray(flexible bool) {
	if flexible {
		w.B = append(w.B, 0)
	} else {
		w.Int32(-1)
	}
}

// Int8Array writes an array of int8; nil is empty.
func (w *Writer) Int8Array(s []int8, flexible bool) {
	w.ArrayLen(len(s), flexible)
	for _, v := range s {
		w.Int8(v)
	}
}

// Int32Array writes an array of int32; nil is empty.
func (w *Writer) Int32Array(s []int32, flexible bool) {
	w.ArrayLen(len(s), flexible)
	for _, v := range s {
		w.Int32(v)
	}
}

// Int64Array writes an array of int64; nil is empty.
func (w *Writer) Int64Array(s []int64, flexible bool) {
	w.ArrayLen(len(s), flexible)
	for _, v := range s {
		w.Int64(v)
	}
}

// UUIDArray writes an array of uuids; nil is empty.
func (w *Writer) UUIDArray(s []UUID, flexible bool) {
	w.ArrayLen(len(s), flexible)
	for i := range s {
		w.UUID(s[i])
	}
}

// StringArray writes an array of strings; nil is empty.
func (w *Writer) StringArray(s []string, flexible bool) {
	w.ArrayLen(len(s), flexible)
	for i := range s {
		w.String(s[i], flexible)
	}
}
