package parsley

import (
	"encoding/binary"
	"slices"
)

// ClockVersion is the version byte of a clock.
const ClockVersion = 1

// Sizes of a clock in bytes: without entries, of an offset entry, of a sequence entry.
const (
	clockSize    = 9
	offsetSize   = 28
	sequenceSize = 44
)

// Size is the number of bytes of the encoded clock.
func (c *Clock) Size() int {
	return clockSize + offsetSize*len(c.offsets) + sequenceSize*len(c.sequences)
}

// Append writes the clock, the value of the header vc.
func (c *Clock) Append(dst []byte) []byte {
	dst = slices.Grow(dst, c.Size())
	dst = append(dst, ClockVersion)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(c.offsets)))
	for i := range c.offsets {
		e := &c.offsets[i]
		dst = appendChannel(dst, e.Key)
		dst = binary.BigEndian.AppendUint64(dst, uint64(e.N))
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(c.sequences)))
	for i := range c.sequences {
		e := &c.sequences[i]
		dst = appendChannel(dst, e.Key.Channel)
		dst = append(dst, e.Key.Sender[:]...)
		dst = binary.BigEndian.AppendUint64(dst, uint64(e.N))
	}
	return dst
}

func appendChannel(dst []byte, ch Channel) []byte {
	dst = append(dst, ch.Topic[:]...)
	return binary.BigEndian.AppendUint32(dst, uint32(ch.Partition))
}

// Decode reads a clock that takes all of b, into c's memory. After an error c is empty.
func (c *Clock) Decode(b []byte, rules Rules) error {
	c.Reset()
	err := c.decode(b, rules)
	if err != nil {
		c.Reset()
	}
	return err
}

func (c *Clock) decode(b []byte, rules Rules) error {
	if len(b) == 0 {
		return corrupt("clock", 0, ErrTruncated)
	}
	if b[0] != ClockVersion {
		return corrupt("clock", 0, ErrVersion)
	}
	n, end, err := section("clock", b, 1, offsetSize)
	if err != nil {
		return err
	}
	c.offsets = slices.Grow(c.offsets, n)[:n]
	for i := range c.offsets {
		if err := readOffset(&c.offsets[i], b, end-(n-i)*offsetSize); err != nil {
			return err
		}
	}
	m, last, err := section("clock", b, end, sequenceSize)
	if err != nil {
		return err
	}
	if last != len(b) {
		return corrupt("clock", last, ErrTrailing)
	}
	c.sequences = slices.Grow(c.sequences, m)[:m]
	for i := range c.sequences {
		if err := readSequence(&c.sequences[i], b, last-(m-i)*sequenceSize); err != nil {
			return err
		}
	}
	if c.offsets, err = ordered(c.offsets, 5, offsetSize, rules); err != nil {
		return err
	}
	c.sequences, err = ordered(c.sequences, end+4, sequenceSize, rules)
	return err
}

func readChannel(ch *Channel, b []byte) {
	copy(ch.Topic[:], b)
	ch.Partition = int32(binary.BigEndian.Uint32(b[16:]))
}

func readOffset(e *OffsetClaim, b []byte, at int) error {
	b = b[at : at+offsetSize]
	readChannel(&e.Key, b)
	e.N = int64(binary.BigEndian.Uint64(b[20:]))
	if e.Key.Partition < 0 || e.N < 0 {
		return corrupt("clock", at, ErrNegative)
	}
	return nil
}

func readSequence(e *SequenceClaim, b []byte, at int) error {
	b = b[at : at+sequenceSize]
	readChannel(&e.Key.Channel, b)
	copy(e.Key.Sender[:], b[20:])
	e.N = int64(binary.BigEndian.Uint64(b[36:]))
	if e.Key.Partition < 0 || e.N < 0 {
		return corrupt("clock", at, ErrNegative)
	}
	return nil
}

// ordered checks that the entries ascend; Parity sorts them, and of entries with the same key the last one stays.
func ordered[K claimKey[K]](s []Claim[K], at, size int, rules Rules) ([]Claim[K], error) {
	err := ascending("clock", s, at, size, func(a, b Claim[K]) int { return a.Key.Compare(b.Key) })
	if err != nil && rules == Parity {
		return sorted(s), nil
	}
	return s, err
}

func sorted[K claimKey[K]](s []Claim[K]) []Claim[K] {
	slices.SortStableFunc(s, func(a, b Claim[K]) int { return a.Key.Compare(b.Key) })
	kept := s[:0]
	for _, e := range s {
		if n := len(kept); n > 0 && kept[n-1].Key == e.Key {
			kept[n-1] = e
		} else {
			kept = append(kept, e)
		}
	}
	return kept
}
