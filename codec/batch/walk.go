package batch

import "encoding/binary"

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

// walkFrames checks count record frames, which must fill b exactly. A nil window accepts every timestamp.
//
// It runs for every uncompressed batch of a produce request, so the common shape (lengths below 8 KiB, no headers, a
// timestamp delta up to 2^20 ms) is taken apart from two 8-byte loads; everything else goes through parseFrame.
func walkFrames(b []byte, count int32, baseTimestamp int64, win *window) walked {
	w := walked{maxTimestamp: NoTimestamp}
	p := 0
	for i := int32(0); i < count; i++ {
		delta, offset, keyLen, next := shortFrame(b, p)
		if next < 0 {
			var f frame
			if w.fault = parseFrame(b, p, &f); w.fault != faultNone {
				return w
			}
			delta, offset, keyLen, next = f.timestampDelta, f.offsetDelta, f.keyLen, f.end
		}
		p = next
		t := baseTimestamp + delta
		w.maxTimestamp = max(w.maxTimestamp, t)
		w.noKey = w.noKey || keyLen < 0
		w.disordered = w.disordered || offset != i
		if win != nil && win.excludes(t) {
			w.outOfRange = true
		}
	}
	if p != len(b) {
		w.fault = faultInvalid
	}
	return w
}

// shortFrame reads a frame of the common shape at p; next is -1 for every other, right or wrong.
func shortFrame(b []byte, p int) (timestampDelta int64, offsetDelta int32, keyLen, next int) {
	if p+18 > len(b) {
		return 0, 0, 0, -1
	}
	x := binary.LittleEndian.Uint64(b[p:])
	size := x & 0x7f
	p++
	if x&0x80 != 0 {
		if x&0x8000 != 0 {
			return 0, 0, 0, -1
		}
		size |= x >> 1 & 0x3f80
		p++
	}
	end := p + int(size>>1)
	if size&1 != 0 || end > len(b) {
		return 0, 0, 0, -1
	}
	x = binary.LittleEndian.Uint64(b[p:]) >> 8 // attributes, unused
	p++
	u := x & 0x7f
	if x&0x80 == 0 {
		x >>= 8
		p++
	} else if u |= x >> 1 & 0x3f80; x&0x8000 == 0 {
		x >>= 16
		p += 2
	} else if u |= x >> 2 & 0x1fc000; x&0x800000 == 0 {
		x >>= 24
		p += 3
	} else {
		return 0, 0, 0, -1
	}
	timestampDelta = int64(u>>1) ^ -int64(u&1)
	u = x & 0x7f
	if x&0x80 == 0 {
		x >>= 8
		p++
	} else if u |= x >> 1 & 0x3f80; x&0x8000 == 0 {
		x >>= 16
		p += 2
	} else {
		return 0, 0, 0, -1
	}
	offsetDelta = int32(u>>1) ^ -int32(u&1)
	// At least three bytes of x are left: 7 after the attributes, at most 5 taken... one or two of a key length.
	if x&0x80 != 0 {
		return 0, 0, 0, -1
	}
	keyLen = int(x&0x7f>>1) ^ -int(x&1)
	p++
	if keyLen > 0 {
		p += keyLen
	}
	if p+2 > len(b) {
		return 0, 0, 0, -1
	}
	c := uint(b[p])
	v := c & 0x7f
	if c >= 0x80 {
		p++
		c = uint(b[p])
		if c >= 0x80 {
			return 0, 0, 0, -1
		}
		v |= c << 7
	}
	p++
	if v&1 == 0 {
		p += int(v >> 1)
	} else if v != 1 {
		return 0, 0, 0, -1
	}
	if p+1 != end || p >= len(b) || b[p] != 0 {
		return 0, 0, 0, -1
	}
	return timestampDelta, offsetDelta, keyLen, end
}
