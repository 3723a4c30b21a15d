package parsley

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"unsafe"

	"kaas/codec/wire"

	"github.com/google/uuid"
)

// Held is a record that was received and not yet delivered, as a store keeps it.
type Held struct {
	Offset    int64
	Timestamp int64 // milliseconds since 1970
	Tagged    bool
	Sender    uuid.UUID // zero unless tagged
	Sequence  int64     // −1 unless tagged
	Clock     Clock
	Key       []byte // nil: null
	Value     []byte // nil: null
	// Headers are those that are not of the protocol. They lie behind the layout of the existing implementation, which does
	// not read that far and delivers without headers; without any the bytes are the same as there.
	Headers []Header
}

const (
	heldWhat   = "held record"
	heldPrefix = 45 // bytes before the clock: offset, timestamp, tag, sender, sequence, length of the clock
	headerMin  = 8  // bytes of an other header without key and value
)

// Append writes the record; protocol headers among Headers are left out.
func (h *Held) Append(dst []byte) []byte {
	dst = slices.Grow(dst, heldPrefix+h.Clock.Size()+len(h.Key)+len(h.Value)+8)
	dst = AppendNumber(AppendNumber(dst, h.Offset), h.Timestamp)
	if h.Tagged {
		dst = append(append(dst, 1), h.Sender[:]...)
		dst = AppendNumber(dst, h.Sequence)
	} else {
		dst = append(append(dst, 0), make([]byte, 16)...)
		dst = AppendNumber(dst, -1)
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.Clock.Size()))
	dst = h.Clock.Append(dst)
	dst = appendBytes(appendBytes(dst, h.Key), h.Value)
	count := 0
	for i := range h.Headers {
		if !IsProtocolHeader(h.Headers[i].Key) {
			count++
		}
	}
	if count == 0 {
		return dst
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(count))
	for i := range h.Headers {
		o := &h.Headers[i]
		if IsProtocolHeader(o.Key) {
			continue
		}
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(o.Key)))
		dst = appendBytes(append(dst, o.Key...), o.Value)
	}
	return dst
}

// appendBytes writes a length and bytes; nil has the length −1.
func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return binary.BigEndian.AppendUint32(dst, math.MaxUint32)
	}
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(b))), b...)
}

// Decode reads a record that takes all of b, into h's memory. Key, Value and Headers alias b. After an error h must not be
// used. Parity reads no headers.
func (h *Held) Decode(b []byte, rules Rules) error {
	r := heldReader{Reader: wire.NewReader(b), b: b, rules: rules}
	h.Offset, h.Timestamp = r.Int64(), r.Int64()
	tag := uint8(r.Int8())
	h.Tagged, h.Sender, h.Sequence = tag != 0, uuid.UUID(r.UUID()), r.Int64()
	clock := r.bytes()
	h.Key, h.Value = r.bytes(), r.bytes()
	h.Headers = h.Headers[:0]
	if rules == Strict && r.Rest() > 0 {
		h.Headers = r.headers(h.Headers)
	}
	if err := r.Err(); err != nil {
		h.Clock.Reset()
		return r.corrupt(err)
	}
	if rules == Parity {
		if !h.Tagged {
			h.Sender, h.Sequence = uuid.UUID{}, -1
		}
	} else if err := h.check(tag, r.Rest(), len(b)); err != nil {
		h.Clock.Reset()
		return err
	}
	return h.Clock.Decode(clock, rules)
}

// check is what only Strict refuses.
func (h *Held) check(tag uint8, rest, size int) error {
	switch {
	case h.Offset < 0:
		return corrupt(heldWhat, 0, ErrNegative)
	case tag > 1, tag == 0 && (h.Sender != uuid.UUID{} || h.Sequence != -1):
		return corrupt(heldWhat, 16, ErrTag)
	case tag == 1 && h.Sequence < 0:
		return corrupt(heldWhat, 33, ErrNegative)
	case rest != 0:
		return corrupt(heldWhat, size-rest, ErrTrailing)
	}
	return nil
}

// heldReader is a wire.Reader that knows where it began.
type heldReader struct {
	wire.Reader
	b     []byte
	rules Rules
}

// bytes reads a length and bytes; −1 is null, lengths below are corrupt unless Parity, where they are null.
func (r *heldReader) bytes() []byte {
	if r.rules == Strict && r.Rest() >= 4 && int32(binary.BigEndian.Uint32(r.b[r.Offset():])) < -1 {
		r.Fail(corrupt(heldWhat, r.Offset(), ErrLength))
	}
	return r.Bytes(false, true)
}

func (r *heldReader) headers(dst []Header) []Header {
	at := r.Offset()
	count := r.Int32()
	if count <= 0 {
		r.Fail(corrupt(heldWhat, at, ErrHeaders))
		return dst
	}
	if int(count) > r.Rest()/headerMin {
		r.Fail(wire.ErrShort)
		return dst
	}
	dst = slices.Grow(dst, int(count))
	for range count {
		at = r.Offset()
		key := r.Bytes(false, false)
		value := r.bytes()
		if r.Failed() {
			break
		}
		name := unsafe.String(unsafe.SliceData(key), len(key))
		if IsProtocolHeader(name) {
			r.Fail(corrupt(heldWhat, at, ErrHeaders))
			break
		}
		dst = append(dst, Header{name, value})
	}
	return dst
}

// corrupt gives the reasons of wire the names of this package.
func (r *heldReader) corrupt(err error) error {
	switch {
	case errors.Is(err, wire.ErrShort):
		return corrupt(heldWhat, len(r.b), ErrTruncated)
	case errors.Is(err, wire.ErrNull):
		return corrupt(heldWhat, len(r.b), ErrLength)
	}
	return err
}
