package producer

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"math"
	"testing"
)

// snapshotHex is a snapshot as Apache Kafka 3.7.2 wrote it (one transactional producer, nothing open).
const snapshotHex = "00013261aa9f00000001000000000000000500000000000200000000000000020000000000000191ad74e1a0ffffffff0000000000000000"

func TestApacheSnapshot(t *testing.T) {
	b, err := hex.DecodeString(snapshotHex)
	if err != nil {
		t.Fatal(err)
	}
	var s State
	if err := s.Load(b, 5); err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(s.Snapshot(true)); got != snapshotHex {
		t.Errorf("written again:\n%s, want\n%s", got, snapshotHex)
	}
	for i := range b {
		c := append([]byte(nil), b...)
		c[i] ^= 0x40
		if err := s.Load(c, 5); !errors.Is(err, ErrSnapshot) || s.Len() != 0 {
			t.Fatalf("byte %d changed: %v, %d producers", i, err, s.Len())
		}
		if err := s.Load(b[:i], 5); !errors.Is(err, ErrSnapshot) {
			t.Fatalf("first %d bytes: %v", i, err)
		}
	}
}

func TestSequences(t *testing.T) {
	for _, c := range []struct{ last, delta, first int32 }{
		{9, 0, 9}, {9, 9, 0}, {0, 1, math.MaxInt32}, {2, 5, math.MaxInt32 - 2}, {math.MaxInt32, 3, math.MaxInt32 - 3},
	} {
		b := Batch{LastSequence: c.last, Delta: c.delta}
		if got := b.firstSequence(); got != c.first {
			t.Errorf("first of %+v: %d", c, got)
		}
		if got := lastSequence(c.first, c.delta); got != c.last {
			t.Errorf("last of %+v: %d", c, got)
		}
	}
}

// TestUndo: an entry copied before an append and put back leaves no trace of it.
func TestUndo(t *testing.T) {
	var s State
	var old Saved
	known := s.Save(7, &old)
	s.Append(7, 0, 0, 4, 104, 1, 1, true)
	s.Restore(7, &old, known)
	if s.Len() != 0 {
		t.Error("a producer that was unknown stays")
	}
	s.Append(7, 0, 0, 4, 104, 1, 1, false)
	known = s.Save(7, &old)
	for i := range int32(6) {
		s.Append(7, 1, 5*i, 4, 200+int64(i), 1, 1, true)
	}
	s.Restore(7, &old, known)
	if dup, base, last, err := s.Check(7, 0, 0, 4, false); !dup || base != 100 || last != 104 || err != nil {
		t.Errorf("repeat after undo: %v %d %d %v", dup, base, last, err)
	}
	if e, _ := s.Get(7); e.Epoch != 0 || e.TxnFirst != -1 {
		t.Errorf("%+v", e)
	}
	for i := range int32(Kept) {
		s.Append(7, 0, 5+5*i, 4, 109+5*int64(i), 1, 1, false)
	}
	known = s.Save(7, &old)
	for i := range int32(3) {
		s.Append(7, 0, 30+5*i, 4, 200+5*int64(i), 1, 1, false)
	}
	s.Restore(7, &old, known)
	for i := range int32(9) { // batches 1 to 5 are remembered, 6 to 8 were undone
		first := 5 * i
		if dup, base, _, _ := s.Check(7, 0, first, 4, false); dup != (i >= 1 && i <= Kept) || dup && base != 100+int64(first) {
			t.Errorf("batch %d after undo: repeat %v of %d", i, dup, base)
		}
	}
}

func TestMarkers(t *testing.T) {
	var s State
	if first := s.Marker(1, 3, 9, 1, 1); first != -1 {
		t.Errorf("marker of an unknown producer: %d", first)
	}
	if err := s.CheckMarker(1, 2, 9); err != ErrInvalidEpoch {
		t.Errorf("older marker: %v", err)
	}
	if err := s.CheckMarker(1, 3, 8); err != ErrCoordinatorFenced {
		t.Errorf("marker of an older coordinator: %v", err)
	}
	if err := s.CheckMarker(1, 3, 9); err != nil {
		t.Errorf("marker again: %v", err)
	}
	if err := s.CheckMarker(2, 0, 0); err != nil {
		t.Errorf("marker of an unknown producer: %v", err)
	}
	// After a marker alone the epoch is known, and a producer begins at 0.
	if _, _, _, err := s.Check(1, 3, 5, 0, true); err != ErrOutOfOrderSequence {
		t.Errorf("sequence 5 after a marker: %v", err)
	}
	if began := s.Append(1, 3, 0, 0, 50, 1, 1, true); !began {
		t.Error("transaction did not begin")
	}
	if began := s.Append(1, 3, 1, 0, 51, 1, 1, true); began {
		t.Error("transaction began twice")
	}
	s.Expire(1<<40, 1)
	if first := s.Marker(1, 4, -1, 1, 1); first != 50 {
		t.Errorf("first offset %d", first)
	}
	if e, _ := s.Get(1); e.Epoch != 4 || e.CoordinatorEpoch != 9 || e.last() != nil {
		t.Errorf("%+v", e)
	}
	s.Expire(1<<40, 1)
	if s.Len() != 0 {
		t.Error("not expired")
	}
}

// A snapshot with older batches answers repeats of them, and is one without to who reads Kafka's format; anything added to or cut from it is an error.
func TestOlderBatches(t *testing.T) {
	var s State
	for i := range int32(Kept + 2) {
		s.Append(7, 1, 10*i, 9, 109+10*int64(i), int64(i), 1, false)
	}
	s.Append(8, 0, 0, 0, 500, 1, 1, false)
	plain, whole := s.Snapshot(false), s.Snapshot(true)
	if got, want := len(plain), snapshotHead+2*snapshotEntry; got != want {
		t.Errorf("%d bytes without older batches, want %d", got, want)
	}
	if got, want := len(whole), len(plain)+olderHead+(Kept-1)*olderBatch; got != want {
		t.Errorf("%d bytes with older batches, want %d", got, want)
	}
	if !bytes.Equal(plain[6:], whole[6:len(plain)]) {
		t.Error("the entries differ")
	}
	for _, c := range []struct {
		snapshot []byte
		from     int32 // the first batch that is known
	}{{whole, 2}, {plain, Kept + 1}} {
		var l State
		if err := l.Load(c.snapshot, 1); err != nil {
			t.Fatal(err)
		}
		for i := range int32(Kept + 2) {
			dup, base, last, err := l.Check(7, 1, 10*i, 9, false)
			if known := i >= c.from; dup != known || known && (base != 100+10*int64(i) || last != base+9) || !known && err != ErrOutOfOrderSequence {
				t.Errorf("batch %d: repeat %v, offsets %d-%d, %v", i, dup, base, last, err)
			}
		}
		if got := l.Snapshot(true); !bytes.Equal(got, c.snapshot) {
			t.Errorf("written again:\n%x, want\n%x", got, c.snapshot)
		}
	}
	be := binary.BigEndian
	at := len(plain)
	for name, damage := range map[string]func(b []byte) []byte{
		"a byte more":             func(b []byte) []byte { return append(b, 0) },
		"a byte less":             func(b []byte) []byte { return b[:len(b)-1] },
		"a head alone":            func(b []byte) []byte { return append(b, make([]byte, olderHead)...) },
		"an unknown producer":     func(b []byte) []byte { be.PutUint64(b[at:], 9); return b },
		"more than are kept":      func(b []byte) []byte { b[at+8] = Kept; return b },
		"none":                    func(b []byte) []byte { b[at+8] = 0; return b },
		"the same producer again": func(b []byte) []byte { return append(b, b[at:]...) },
		"an entry twice": func(b []byte) []byte {
			copy(b[snapshotHead+snapshotEntry:], b[snapshotHead:snapshotHead+snapshotEntry])
			return b
		},
		"more producers than stated": func(b []byte) []byte { be.PutUint32(b[6:], 1); return b },
	} {
		b := damage(bytes.Clone(whole))
		be.PutUint32(b[2:], crc32.Checksum(b[6:], castagnoli))
		var l State
		if err := l.Load(b, 1); !errors.Is(err, ErrSnapshot) || l.Len() != 0 {
			t.Errorf("%s: %v, %d producers", name, err, l.Len())
		}
	}
}
