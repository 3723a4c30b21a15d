package batch

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
)

// slowWalk is what walkFrames must find, frame by frame.
func slowWalk(b []byte, count int32, base int64, win *window) walked {
	w := walked{maxTimestamp: NoTimestamp}
	var f frame
	for i := range count {
		if w.fault = parseFrame(b, f.end, &f); w.fault != faultNone {
			return w
		}
		ts := base + f.timestampDelta
		w.maxTimestamp = max(w.maxTimestamp, ts)
		w.noKey = w.noKey || f.keyLen < 0
		w.disordered = w.disordered || f.offsetDelta != i
		w.outOfRange = w.outOfRange || win != nil && win.excludes(ts)
	}
	if f.end != len(b) {
		w.fault = faultInvalid
	}
	return w
}

// sameWalk compares all forms of walkFrames with slowWalk.
func sameWalk(t testing.TB, b []byte, count int32, base int64) {
	t.Helper()
	win := &window{now: base + 100, before: 120, after: 1 << 14}
	for _, d := range []demands{{}, {order: true}, {window: win}, {window: win, order: true}} {
		got, want := walkFrames(b, count, base, d), slowWalk(b, count, base, d.window)
		if got.fault != want.fault {
			t.Fatalf("%+v: fault %d, want %d: base %d %x", d, got.fault, want.fault, base, b)
		}
		if !d.order {
			got.disordered, want.disordered = false, false
		}
		if want.fault == faultNone && got != want {
			t.Fatalf("%+v:\n got %+v\nwant %+v: base %d %x", d, got, want, base, b)
		}
	}
}

// someFrames makes runs of like records with odd ones between.
func someFrames(r *rand.Rand, count int) []byte {
	var b []byte
	var tail []byte
	for i := range count {
		if i == 0 || r.IntN(8) == 0 {
			sizes := []int{-2, -1, 0, 1, 5, 63, 64, 100, 200, 9000}
			tail = nil
			for range 2 {
				n := sizes[r.IntN(len(sizes))]
				tail = appendVarint(tail, int64(n))
				tail = append(tail, bytes.Repeat([]byte{0}, max(n, 0))...)
			}
			if r.IntN(4) == 0 {
				tail = append(tail, 4, 2, 'h', 1, 0, 3)
			} else {
				tail = append(tail, 0)
			}
		}
		deltas := []int64{0, 1, int64(i), -1 - int64(i), 63, 64, 8191, 8192, 1 << 21, 1 << 34, math.MaxInt64, math.MinInt64}
		delta := deltas[r.IntN(4)]
		if r.IntN(10) == 0 {
			delta = deltas[r.IntN(len(deltas))]
		}
		offset := int64(i)
		if r.IntN(30) == 0 {
			offset = int64(r.Int32()) - 1<<30
		}
		b = appendFrame(b, delta, offset, tail)
	}
	return b
}

func TestWalkAgreesWithFrames(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	bases := []int64{0, 1_700_000_000_000, math.MaxInt64, math.MaxInt64 - 1<<49, math.MinInt64}
	for range 40 {
		count := 1 + r.IntN(150)
		b := someFrames(r, count)
		base := bases[r.IntN(len(bases))]
		sameWalk(t, b, int32(count), base)
		sameWalk(t, b, int32(count)+1, base)
		sameWalk(t, b, int32(count)-1, base)
		for range 10 {
			bad := bytes.Clone(b)
			bad[r.IntN(len(bad))] ^= 1 << r.IntN(8)
			sameWalk(t, bad[:len(bad)-r.IntN(2)], int32(count), base)
		}
	}
}

// TestWalkAllBelowBase: a run that is not begun, as no delta is positive, says nothing about the maximum.
func TestWalkAllBelowBase(t *testing.T) {
	var b []byte
	for i := range int64(6) {
		b = appendFrame(b, -3-i, i, []byte{1, 10, 1, 2, 3, 4, 5, 0})
	}
	sameWalk(t, b, 6, 1_700_000_000_000)
}

// TestUniformRunMissesNothing flips every bit of a batch of like records.
func TestUniformRunMissesNothing(t *testing.T) {
	for _, key := range [][]byte{nil, []byte("k")} {
		v := plainBatch(24, 5, key)
		sameWalk(t, v.Payload(), v.Count(), v.BaseTimestamp())
		if n, _ := uniformRun(v.Payload(), len(v.Payload())/24, 23); n != 22 { // the last one has no eight bytes behind it
			t.Errorf("a run of %d", n)
		}
		for i := range v.Payload() {
			for bit := range 8 {
				v.Payload()[i] ^= 1 << bit
				sameWalk(t, v.Payload(), v.Count(), v.BaseTimestamp())
				v.Payload()[i] ^= 1 << bit
			}
		}
	}
}

func TestVarints(t *testing.T) {
	for _, v := range []int64{0, -1, 1, 63, -64, 64, 8191, 8192, 1 << 20, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64} {
		b := appendVarint(nil, v)
		if got, p := varlong(b, 0); got != v || p != len(b) || sizeVarint(v) != len(b) {
			t.Errorf("%d: %d of %d bytes, size %d", v, got, p, sizeVarint(v))
		}
		if got, p := varint(b, 0); int64(int32(v)) == v && (got != int32(v) || p != len(b)) {
			t.Errorf("%d: %d of %d bytes", v, got, p)
		}
		if _, p := varlong(b[:len(b)-1], 0); p != varintShort {
			t.Errorf("%d cut: %d", v, p)
		}
	}
	long := bytes.Repeat([]byte{0x80}, 11)
	if _, p := varint(long, 0); p != varintOverlong {
		t.Errorf("varint: %d", p)
	}
	if _, p := varlong(long, 0); p != varintOverlong {
		t.Errorf("varlong: %d", p)
	}
	if v, p := varint([]byte{0xfe, 0xff, 0xff, 0xff, 0x7f}, 0); v != math.MaxInt32 || p != 5 {
		t.Errorf("surplus bits: %d %d", v, p) // as Apache reads it
	}
}
