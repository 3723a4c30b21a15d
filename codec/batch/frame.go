package batch

import "math/bits"

// frame says where the parts of one record stand in the bytes it was parsed from.
type frame struct {
	start, end          int
	timestampDelta      int64
	offsetDelta         int32
	key, keyLen         int // keyLen < 0: null
	value, valueLen     int // valueLen < 0: null
	tail                int // where the key length stands: from there to end no byte depends on the batch around it
	headers, numHeaders int // where the first header begins
}

// fault is what can be wrong with record frames. Apache answers the two kinds with different errors.
type fault uint8

const (
	faultNone     fault = iota
	faultInvalid        // the frame does not hold together, or the bytes end too early
	faultOverlong       // the length of a frame is a varint of more than five bytes
)

// Positions that the varint readers return for bytes that are no varint.
const (
	varintShort    = -1
	varintOverlong = -2
)

// varint reads a zigzag varint of at most five bytes. It returns the position after it, or one of the above. As in
// Apache's reader, surplus bits of the last byte are dropped.
func varint(b []byte, p int) (int32, int) {
	var u uint32
	for shift := 0; shift < 35; shift += 7 {
		if p >= len(b) {
			return 0, varintShort
		}
		c := b[p]
		p++
		u |= uint32(c&0x7f) << shift
		if c < 0x80 {
			return int32(u>>1) ^ -int32(u&1), p
		}
	}
	return 0, varintOverlong
}

// varlong is varint for 64 bits and ten bytes.
func varlong(b []byte, p int) (int64, int) {
	var u uint64
	for shift := 0; shift < 70; shift += 7 {
		if p >= len(b) {
			return 0, varintShort
		}
		c := b[p]
		p++
		u |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return int64(u>>1) ^ -int64(u&1), p
		}
	}
	return 0, varintOverlong
}

// appendVarint appends v as the shortest zigzag varint; it serves int32 values as well.
func appendVarint(dst []byte, v int64) []byte {
	u := uint64(v)<<1 ^ uint64(v>>63)
	for u >= 0x80 {
		dst = append(dst, byte(u)|0x80)
		u >>= 7
	}
	return append(dst, byte(u))
}

// sizeVarint is how many bytes appendVarint adds.
func sizeVarint(v int64) int {
	u := uint64(v)<<1 ^ uint64(v>>63)
	return (bits.Len64(u|1) + 6) / 7
}

// appendFrame appends a frame made of its deltas and a tail.
func appendFrame(dst []byte, timestampDelta, offsetDelta int64, tail []byte) []byte {
	dst = appendVarint(dst, int64(1+sizeVarint(timestampDelta)+sizeVarint(offsetDelta)+len(tail)))
	dst = append(dst, 0)
	dst = appendVarint(dst, timestampDelta)
	dst = appendVarint(dst, offsetDelta)
	return append(dst, tail...)
}

// parseFrame reads the record frame at p and checks that its parts fill it exactly. Negative lengths of key, value
// and header value are null, as in Apache. On a fault f is unspecified.
func parseFrame(b []byte, p int, f *frame) fault {
	f.start = p
	size, p := varint(b, p)
	if p < 0 {
		if p == varintOverlong {
			return faultOverlong
		}
		return faultInvalid
	}
	if size < 1 || int(size) > len(b)-p {
		return faultInvalid
	}
	f.end = p + int(size)
	b = b[:f.end]
	p++ // the attributes of a record, unused
	if f.timestampDelta, p = varlong(b, p); p < 0 {
		return faultInvalid
	}
	if f.offsetDelta, p = varint(b, p); p < 0 {
		return faultInvalid
	}
	f.tail = p
	if f.key, f.keyLen, p = field(b, p); p < 0 {
		return faultInvalid
	}
	if f.value, f.valueLen, p = field(b, p); p < 0 {
		return faultInvalid
	}
	n, p := varint(b, p)
	if p < 0 || n < 0 {
		return faultInvalid
	}
	f.headers, f.numHeaders = p, int(n)
	for ; n > 0; n-- {
		keyLen := 0
		if _, keyLen, p = field(b, p); p < 0 || keyLen < 0 {
			return faultInvalid
		}
		if _, _, p = field(b, p); p < 0 {
			return faultInvalid
		}
	}
	if p != f.end {
		return faultInvalid
	}
	return faultNone
}

// field reads a length and steps over that many bytes. It returns where they begin, how many they are (negative:
// null), and the position after them, negative if they do not fit.
func field(b []byte, p int) (start, size, next int) {
	n, p := varint(b, p)
	if p < 0 {
		return 0, 0, p
	}
	if n < 0 {
		return p, int(n), p
	}
	if int(n) > len(b)-p {
		return 0, 0, varintShort
	}
	return p, int(n), p + int(n)
}
