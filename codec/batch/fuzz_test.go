package batch

import (
	"bytes"
	"runtime/metrics"
	"testing"
)

const fuzzLimit = 1 << 20

// fuzzAlloc is what one input may allocate: a few times the limit while a buffer doubles, the least bound of the zstd
// decoder, decoders made anew, and some bytes per input byte for the list of record errors.
func fuzzAlloc(input int) uint64 { return 4*fuzzLimit + 2*zstdLeast + 4<<20 + 200*uint64(input) }

// allocated runs f and returns how many bytes it allocated.
func allocated(f func()) uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	before := s[0].Value.Uint64()
	f()
	metrics.Read(s)
	return s[0].Value.Uint64() - before
}

// seed gives f every fixture, with its CRC as it is (a fuzzer would hardly find another).
func seed(f *testing.F) {
	for _, file := range []string{"valid.jsonl", "corrupt.jsonl"} {
		for i, x := range fixtures(f, file) {
			f.Add(x.bytes(f), uint8(i))
		}
	}
	f.Add([]byte(plainBatch(40, 20, nil)), uint8(0))
}

// repair makes the CRC of the first batch fit, so that inputs get past it.
func repair(b []byte) {
	if v, err := Peek(b); err == nil {
		v.setCRC()
	}
}

func FuzzValidate(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, input []byte, bits uint8) {
		set := bytes.Clone(input) // the fuzzer's own bytes must not change
		if bits&0x80 == 0 {
			repair(set)
		}
		rules := DefaultRules()
		rules.FullCompressed = bits&1 != 0
		rules.NeedKeys = bits&2 != 0
		rules.LogAppendTime = bits&4 != 0
		if bits&8 != 0 {
			rules.BeforeMaxMs, rules.AfterMaxMs = 1<<40, 1<<20
		}
		if bits&16 != 0 {
			rules.Compression = TargetOf(Codec(bits >> 5 & 3))
		}
		e := env(NewInflater(fuzzLimit))
		sent := bytes.Clone(set)
		var info Info
		var rej *Rejection
		if n := allocated(func() { info, rej = Validate(set, &rules, e) }); n > fuzzAlloc(len(set)) {
			t.Fatalf("%d bytes allocated for %d", n, len(set))
		}
		if rej != nil {
			if !bytes.Equal(set, sent) || rej.Code == 0 {
				t.Fatalf("refused with %d and changed: %x", rej.Code, sent)
			}
			return
		}
		checkAccepted(t, set, sent, info, &rules, e)
	})
}

// checkAccepted checks what must hold of every batch that Validate accepts.
func checkAccepted(t *testing.T, set, sent []byte, info Info, rules *Rules, e *Env) {
	v, err := Next(set)
	if err != nil || len(v) != int(info.Size) {
		t.Fatalf("accepted but %v: %x", err, sent)
	}
	if !bytes.Equal(v.Payload(), sent[HeaderSize:info.Size]) || !bytes.Equal(set[info.Size:], sent[info.Size:]) {
		t.Fatalf("payload changed: %x", sent)
	}
	if v.Codec() == CodecNone || rules.FullCompressed {
		rs, err := records(t, v)
		if err != nil || int32(len(rs)) != info.Count {
			t.Fatalf("accepted but unreadable: %v: %x", err, sent)
		}
		// As in Apache, the append time that a client claims stays the maximum, whatever the records say.
		if View(sent).IsLogAppendTime() {
			return
		}
		latest := NoTimestamp
		for _, r := range rs {
			latest = max(latest, r.Timestamp)
		}
		if !info.Recompress && (latest != v.MaxTimestamp() || info.MaxTimestamp != latest) && !rules.LogAppendTime {
			t.Fatalf("latest %d, info %+v: %x", latest, info, sent)
		}
	}
	if info.Recompress {
		made, rej := Recompress(nil, v, rules, e, new(Deflater))
		if rej == nil {
			if v, err := Next(made); err != nil || v.Codec() != rules.Compression.Codec(info.Codec) || v.Count() != info.Count {
				t.Fatalf("recompressed: %v %+v: %x", err, InfoOf(made), sent)
			}
		}
		return
	}
	if View(sent).IsLogAppendTime() {
		return
	}
	if again, rej := Validate(set, rules, e); !rules.LogAppendTime && (rej != nil || again != info) {
		t.Fatalf("second time %v %+v, first %+v: %x", rej, again, info, sent)
	}
}

func FuzzCursor(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte, bits uint8) {
		v, err := Peek(b)
		if err != nil {
			return
		}
		n := allocated(func() {
			var c Cursor
			_ = c.Open(v, NewInflater(fuzzLimit))
			for c.Next() {
				h := c.Headers()
				for _, _, ok := h.Next(); ok; _, _, ok = h.Next() {
				}
				if len(c.Key())+len(c.Value()) > len(c.Frame()) {
					t.Fatal("more than the frame")
				}
			}
			_, _ = ReadMarker(v)
		})
		if n > fuzzAlloc(len(b)) {
			t.Fatalf("%d bytes allocated for %d", n, len(b))
		}
		keep := Retention{func(i int32) bool { return bits>>(i&7)&1 != 0 }, NoTimestamp}
		if bits&1 != 0 {
			keep.DeleteHorizonMs = 1 << 41
		}
		made, kept, err := Rebuild(nil, v, keep, NewInflater(fuzzLimit), nil)
		if err != nil {
			return
		}
		w, err := Next(made)
		if int32(kept) == v.Count() && kept > 0 && keep.DeleteHorizonMs == NoTimestamp || v.HasDeleteHorizon() && int32(kept) == v.Count() {
			return // copied as it is, CRC and all
		}
		if err != nil || w.LastOffset() != v.LastOffset() || int(w.Count()) != kept {
			t.Fatalf("rebuilt: %v: %x", err, b)
		}
		if rs, err := records(t, w); err != nil || len(rs) != kept {
			t.Fatalf("rebuilt: %v: %x", err, b)
		}
	})
}
