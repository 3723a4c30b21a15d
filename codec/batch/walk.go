package batch

import (
	"encoding/binary"
	"math"
)

// walked is what one pass over the record frames of a batch finds.
type walked struct {
	fault        fault
	maxTimestamp int64 // -1 if no record is later
	noKey        bool  // some record has no key
	outOfRange   bool  // some timestamp is outside the window
	disordered   bool  // some offset delta is not the record's index
}

// window bounds record timestamps: now-t above before, or t-now above after, is out of range. The differences wrap
// as Java's do.
type window struct{ now, before, after int64 }

func (w *window) excludes(t int64) bool {
	d := w.now - t
	return t != NoTimestamp && (d > w.before || -d > w.after)
}

// demands are what a walk has to find out besides the structure and the maximum timestamp.
type demands struct {
	window *window // nil: every timestamp will do
	order  bool    // whether offset deltas are 0, 1, 2...
}

// walkFrames checks count record frames, which must fill b exactly.
//
// It runs for every uncompressed batch of a produce request. Frames of the common shape are taken apart by
// shortFrame, runs of frames that are shaped alike are checked by uniformRun, and everything else, right or wrong,
// goes through parseFrame.
func walkFrames(b []byte, count int32, baseTimestamp int64, want demands) walked {
	w := walked{maxTimestamp: NoTimestamp}
	// A run needs deltas (at most six bytes of them) that cannot wrap, and looks at neither offsets nor single timestamps.
	runs := want.window == nil && !want.order && baseTimestamp < math.MaxInt64-1<<48
	var f frame
	for i := int32(0); i < count; i++ {
		p := f.end
		if !shortFrame(b, p, &f) {
			if w.fault = parseFrame(b, p, &f); w.fault != faultNone {
				return w
			}
		}
		t := baseTimestamp + f.timestampDelta
		w.maxTimestamp = max(w.maxTimestamp, t)
		w.noKey = w.noKey || f.keyLen < 0
		w.disordered = w.disordered || f.offsetDelta != i
		if want.window != nil && want.window.excludes(t) {
			w.outOfRange = true
		}
		if runs && len(b)-f.end >= 2 && b[f.end] == b[p] && b[f.end+1] == b[p+1] {
			if n, maxDelta := uniformRun(b[p:], f.end-p, int(count-i)-1); n > 0 {
				f.end += n * (f.end - p)
				i += int32(n)
				w.maxTimestamp = max(w.maxTimestamp, baseTimestamp+maxDelta)
			}
		}
	}
	if f.end != len(b) {
		w.fault = faultInvalid
	}
	return w
}

// shortFrame is parseFrame for the common shape: length and offset delta below 8 KiB, timestamp delta below 2^13 ms,
// key below 64 and value below 8 KiB, no headers. Two loads of eight bytes then hold all but the value length. It
// reports false for every other frame, right or wrong; of f it fills what walkFrames uses.
func shortFrame(b []byte, at int, f *frame) bool {
	p := uint(at)
	if p+18 > uint(len(b)) {
		return false
	}
	x := binary.LittleEndian.Uint64(b[p:])
	size := x & 0x7f
	p++
	if x&0x80 != 0 {
		size |= x >> 1 & 0x3f80
		p++
	}
	bad := size&1 != 0 || x&0x8080 == 0x8080
	end := p + uint(size>>1)
	x = binary.LittleEndian.Uint64(b[p:]) >> 8 // the attributes of a record are unused
	p += 4
	t := x & 0x7f
	if x&0x80 != 0 {
		t |= x >> 1 & 0x3f80
		x >>= 8
		p++
	}
	bad = bad || x&0x80 != 0
	o := x >> 8 & 0x7f
	if x&0x8000 != 0 {
		o |= x >> 9 & 0x3f80
		x >>= 8
		p++
	}
	k := x >> 16 & 0xff
	keyLen := int(k>>1) ^ -int(k&1)
	p += uint(max(keyLen, 0))
	if bad || x&0x8000 != 0 || k >= 0x80 || p+2 > uint(len(b)) || end > uint(len(b)) {
		return false
	}
	v := uint(b[p])
	if v >= 0x80 {
		p++
		v = v&0x7f | uint(b[p])<<7
	}
	p += v >> 1 &^ -(v & 1) // an odd length is negative: null
	if v >= 0x4000 || p+2 != end || b[p+1] != 0 {
		return false
	}
	f.timestampDelta, f.offsetDelta = int64(t>>1)^-int64(t&1), int32(o>>1)^-int32(o&1)
	f.keyLen, f.end = keyLen, int(end)
	return true
}

// uniformRun counts the frames, at most limit, that follow the one in b[:size] and are shaped like it: the same
// lengths of frame, key and value, deltas of the same number of bytes, none negative, no headers. Such frames differ
// only in bits that cannot make them wrong, so one masked comparison checks them; records of a load test, a sensor or
// a counter are like that. maxDelta is their largest timestamp delta, if there are any.
//
// The bytes of two varints of the same length, taken as little-endian numbers, compare as their values do.
func uniformRun(b []byte, size, limit int) (n int, maxDelta int64) {
	head, ok := uniformHead(b[:size])
	if !ok {
		return 0, 0
	}
	limit = min(limit, (len(b)-size-8)/size)
	maxRaw := uint64(0)
	rest := b
	for n < limit {
		rest = rest[size:]
		x := binary.LittleEndian.Uint64(rest)
		v := binary.LittleEndian.Uint32(rest[head.valuePos:])
		if x&head.mask != head.bits || v&head.valueMask != head.valueBits || rest[size-1] != 0 {
			break
		}
		maxRaw = max(maxRaw, x>>head.timeShift&head.timeMask)
		n++
	}
	if n == 0 {
		return 0, 0
	}
	var raw [8]byte
	binary.LittleEndian.PutUint64(raw[:], maxRaw)
	maxDelta, _ = varlong(raw[:], 0)
	return n, maxDelta
}

// head is what all frames of a uniform run have in common.
type head struct {
	mask, bits           uint64 // of the first eight bytes: lengths, continuation bits, signs
	timeShift            uint8
	timeMask             uint64 // of the timestamp delta, shifted down
	valuePos             int
	valueMask, valueBits uint32 // of the value length
}

// uniformHead describes the frame b, which is known to be sound; ok is false where a run does not pay or the frame
// does not fit: its lengths and deltas beyond eight bytes, a negative delta, headers.
func uniformHead(b []byte) (h head, ok bool) {
	if len(b) < 8 || b[len(b)-1] != 0 {
		return h, false
	}
	_, p := varint(b, 0)
	h.mask = 1<<(8*p) - 1
	p++ // attributes
	time := p
	h.timeShift = uint8(8 * p)
	delta, p := varlong(b, p)
	offset := p
	_, p = varint(b, p)
	key := p
	_, keyLen, p := field(b, p)
	value := p - max(keyLen, 0) - key // bytes of the key length
	if key+value > 8 || delta < 0 {
		return h, false
	}
	h.timeMask = 1<<(8*(offset-time)) - 1
	for i := time; i < key; i++ {
		h.mask |= 0x80 << (8 * i)
	}
	h.mask |= 1 << h.timeShift // the sign
	h.mask |= (1<<(8*value) - 1) << (8 * key)
	h.bits = binary.LittleEndian.Uint64(b) & h.mask
	h.valuePos = p
	start, _, end := field(b, p)
	if start-p > 3 || end+1 != len(b) {
		return h, false
	}
	h.valueMask = 1<<(8*(start-p)) - 1
	for i := p; i < start; i++ {
		h.valueBits |= uint32(b[i]) << (8 * (i - p))
	}
	return h, true
}
