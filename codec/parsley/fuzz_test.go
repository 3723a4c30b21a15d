package parsley

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/google/uuid"
)

// Bytes first: what Strict reads is written again with the same bytes; what it does not read is ErrCorrupt. What Parity
// reads, Strict reads after it was written. Nothing panics, and an error leaves nothing behind.

func FuzzClockBytes(f *testing.F) {
	for _, c := range clockCases {
		f.Add(spaced(f, c.hex))
	}
	for _, c := range loadVectors(f).Clocks {
		f.Add(unhex(f, c.Hex))
	}
	for _, mixed := range []bool{false, true} {
		f.Add(wideClock(17, mixed, 5).Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var strict, parity Clock
		if err := strict.Decode(b, Strict); err == nil {
			if !bytes.Equal(strict.Append(nil), b) || strict.Size() != len(b) {
				t.Fatalf("%x is written as %x", b, strict.Append(nil))
			}
			sound(t, &strict)
		} else if !errors.Is(err, ErrCorrupt) || !strict.Empty() {
			t.Fatalf("%v, %v", err, strict)
		}
		if err := parity.Decode(b, Parity); err == nil {
			sound(t, &parity)
			if !strict.Empty() && !parity.Equal(&strict) {
				t.Fatalf("%v, and by parity %v", strict, parity)
			}
		} else if !errors.Is(err, ErrCorrupt) || !parity.Empty() || !strict.Empty() {
			t.Fatalf("%v, %v, %v", err, parity, strict)
		}
	})
}

func FuzzHeldBytes(f *testing.F) {
	for _, h := range loadVectors(f).Held {
		f.Add(unhex(f, h.Hex))
	}
	f.Add(spaced(f, heldWhole+"00000002 00000001 61 00000001 31 00000000 ffffffff"))
	f.Add(spaced(f, heldWhole+"00000001 00000002 7663 00000000"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var strict, parity Held
		errStrict, errParity := strict.Decode(b, Strict), parity.Decode(b, Parity)
		for _, err := range []error{errStrict, errParity} {
			if err != nil && !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
		}
		if errStrict == nil {
			if !bytes.Equal(strict.Append(nil), b) {
				t.Fatalf("%x is written as %x", b, strict.Append(nil))
			}
			strict.Headers = nil
			if errParity != nil || !sameHeld(&strict, &parity) {
				t.Fatalf("%+v, and by parity %+v, %v", strict, parity, errParity)
			}
		}
		if errParity == nil {
			if parity.Offset < 0 || parity.Tagged && parity.Sequence < 0 {
				return // Strict never writes these
			}
			var again Held
			if err := again.Decode(parity.Append(nil), Strict); err != nil || !sameHeld(&again, &parity) {
				t.Fatalf("%+v, written and read %+v, %v", parity, again, err)
			}
		}
	})
}

func FuzzKeyBytes(f *testing.F) {
	for name := range loadVectors(f).Node.T1.Store {
		f.Add([]byte(name))
	}
	f.Add([]byte("f/01020304-0506-0708-090a-0b0c0d0e0f10:2147483648"))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := ParseKey(b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) || k != (Key{}) {
				t.Fatalf("%+v, %v", k, err)
			}
			return
		}
		if got := k.Append(nil); !bytes.Equal(got, b) {
			t.Fatalf("%q is written as %q", b, got)
		}
	})
}

func FuzzValueBytes(f *testing.F) {
	for name, value := range loadVectors(f).Node.T1.Store {
		k, err := ParseKey([]byte(name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(k.Kind), unhex(f, value))
	}
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		again, err := rewrite(Kind(kind), b, Strict)
		if err == nil && !bytes.Equal(again, b) {
			t.Fatalf("%x is written as %x", b, again)
		}
		if err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
		if _, errParity := rewrite(Kind(kind), b, Parity); errParity != nil && (err == nil || !errors.Is(errParity, ErrCorrupt)) {
			t.Fatal(errParity)
		}
	})
}

func FuzzHeaderBytes(f *testing.F) {
	f.Add(spaced(f, hexEmpty), spaced(f, hexS), spaced(f, "0000000000000009"), uint8(7))
	f.Add(spaced(f, hexEmpty), spaced(f, hexS), spaced(f, "ffffffffffffffff"), uint8(6))
	f.Fuzz(func(t *testing.T, clock, sender, sequence []byte, present uint8) {
		var h Headers
		for i, e := range []Header{{HeaderClock, clock}, {HeaderSender, sender}, {HeaderSequence, sequence}} {
			if present>>i&1 == 1 && e.Value != nil {
				h.Add(e.Key, e.Value)
			}
		}
		var s, p Stamp
		err, errParity := s.Decode(&h, Strict), p.Decode(&h, Parity)
		if err != nil && !errors.Is(err, ErrCorrupt) || errParity != nil && (err == nil || !errors.Is(errParity, ErrCorrupt)) {
			t.Fatal(err, errParity)
		}
		if err != nil {
			return
		}
		if s.Tagged != p.Tagged || s.Sender != p.Sender || s.Sequence != p.Sequence || !s.Clock.Equal(&p.Clock) || s.Tagged != (s.Sequence >= 0) {
			t.Fatalf("%+v, and by parity %+v", s, p)
		}
		hs, _ := s.AppendHeaders(nil, nil)
		var again Headers
		for _, e := range hs {
			again.Add(e.Key, e.Value)
		}
		if s.HasClock && !bytes.Equal(again.clock, h.clock) || !bytes.Equal(again.sender, h.sender) || !bytes.Equal(again.sequence, h.sequence) {
			t.Fatalf("%x is written as %x", h, again)
		}
	})
}

// Values first: whatever is made of arbitrary parts is read back as it was.

// script makes claims out of bytes; keys are few, so that there are duplicates.
func script(b []byte) model {
	m := model{map[Channel]int64{}, map[SequenceKey]int64{}}
	for ; len(b) >= 4; b = b[4:] {
		k := SequenceKey{Channel{topicOf(int(b[0] >> 3)), int32(b[0] & 7)}, topicOf(int(b[1] >> 1))}
		n := int64(binary.LittleEndian.Uint16(b[2:]))
		if b[1]&1 == 0 {
			m.offsets = join(m.offsets, map[Channel]int64{k.Channel: n})
		} else {
			m.sequences = join(m.sequences, map[SequenceKey]int64{k: n})
		}
	}
	return m
}

func FuzzClockValues(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 0, 0}, []byte{200, 1, 2, 3, 9, 9, 9, 9})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		m, n := script(a), script(b)
		c, d := m.clock(), n.clock()
		sound(t, c)
		if !modelOf(c).equal(m) {
			t.Fatalf("%v, want %v", c, m)
		}
		want := covered(m.offsets, n.offsets) && covered(m.sequences, n.sequences)
		if c.Dominates(d) != want {
			t.Fatalf("%v dominates %v: %v", c, d, !want)
		}
		if changed := c.Merge(d); changed == want {
			t.Fatalf("merge changed: %v", changed)
		}
		sound(t, c)
		if !modelOf(c).equal(model{join(m.offsets, n.offsets), join(m.sequences, n.sequences)}) || !c.Dominates(d) {
			t.Fatalf("%v merged with %v: %v", m, n, c)
		}
	})
}

func FuzzHeldValues(f *testing.F) {
	f.Add(int64(5), int64(-1), true, int64(9), []byte{1, 2, 3, 4}, []byte("k"), []byte{}, uint8(3), "name", []byte("v"))
	f.Add(int64(0), int64(0), false, int64(0), []byte{}, []byte{}, []byte{}, uint8(4), "vc", []byte{})
	f.Fuzz(func(t *testing.T, offset, timestamp int64, tagged bool, sequence int64, claims, key, value []byte, nulls uint8, name string, header []byte) {
		orNull := func(b []byte, bit uint8) []byte {
			if nulls>>bit&1 == 1 {
				return nil
			}
			return append([]byte{}, b...)
		}
		h := Held{Offset: max(offset, 0), Timestamp: timestamp, Sequence: -1, Clock: *script(claims).clock(), Key: orNull(key, 0), Value: orNull(value, 1)}
		if tagged {
			h.Tagged, h.Sender, h.Sequence = true, uuid.NewSHA1(uuid.Nil, claims), max(sequence, 0)
		}
		if nulls>>3&1 == 1 {
			h.Headers = []Header{{name, orNull(header, 2)}, {"vc", nil}, {"", header}}
		}
		var d Held
		if err := d.Decode(h.Append(nil), Strict); err != nil {
			t.Fatal(err)
		}
		if h.Headers != nil {
			h.Headers = []Header{{name, orNull(header, 2)}, {"", append([]byte{}, header...)}}
			if header == nil {
				h.Headers[1].Value = nil
			}
			if IsProtocolHeader(name) {
				h.Headers = h.Headers[1:]
			}
		}
		if !sameHeld(&d, &h) {
			t.Fatalf("%+v, want %+v", d, h)
		}
	})
}

func FuzzScopeValues(f *testing.F) {
	f.Add([]byte{1, 2, 3, 1, 2, 200}, []byte{3, 3, 130})
	f.Fuzz(func(t *testing.T, channels, sinks []byte) {
		var s, d Scope
		for ; len(channels) >= 2; channels = channels[2:] {
			s.Channels = append(s.Channels, Channel{topicOf(int(channels[0])), int32(channels[1])})
		}
		for _, b := range sinks {
			s.Sinks = append(s.Sinks, topicOf(int(b)))
		}
		want := Scope{Channels: slices.Clone(s.Channels), Sinks: slices.Clone(s.Sinks)}
		slices.SortFunc(want.Channels, Channel.Compare)
		slices.SortFunc(want.Sinks, CompareUUIDs)
		want.Channels, want.Sinks = slices.Compact(want.Channels), slices.Compact(want.Sinks)
		if err := d.Decode(s.Append(nil), Strict); err != nil || !slices.Equal(d.Channels, want.Channels) || !slices.Equal(d.Sinks, want.Sinks) {
			t.Fatalf("%+v, want %+v, %v", d, want, err)
		}
	})
}

func FuzzKeyValues(f *testing.F) {
	f.Add(uint8(6), []byte("topic"), []byte("sender"), int32(7), int64(1))
	f.Fuzz(func(t *testing.T, kind uint8, topic, sender []byte, partition int32, index int64) {
		k := Key{Kind: KeyScope + Kind(kind)%KeyMark}
		if k.Kind != KeyScope && k.Kind != KeyCarried {
			k.Channel = Channel{uuid.NewSHA1(uuid.Nil, topic), partition & 0x7fffffff}
		}
		if k.Kind == KeyHeld {
			k.Index = index & 0x7fffffffffffffff
		}
		if k.Kind == KeyMark {
			k.Sender = uuid.NewSHA1(uuid.Nil, sender)
		}
		if got, err := ParseKey(k.Append(nil)); err != nil || got != k {
			t.Fatalf("%+v, want %+v, %v", got, k, err)
		}
	})
}
