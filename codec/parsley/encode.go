package parsley

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/google/uuid"
)

// ClockVersion is the version byte of a clock.
const ClockVersion = 1

// Sizes of a clock in bytes: without entries, of an offset entry, of a sequence entry.
const clockWhat = "clock"

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
	at := len(dst)
	dst = slices.Grow(dst, c.Size())[:at+c.Size()]
	b := dst[at:]
	b[0] = ClockVersion
	binary.BigEndian.PutUint32(b[1:], uint32(len(c.offsets)))
	b = b[5:]
	for i := range c.offsets {
		e := &c.offsets[i]
		copy(b[:16], e.Key.Topic[:])
		binary.BigEndian.PutUint32(b[16:], uint32(e.Key.Partition))
		binary.BigEndian.PutUint64(b[20:], uint64(e.N))
		b = b[offsetSize:]
	}
	binary.BigEndian.PutUint32(b, uint32(len(c.sequences)))
	b = b[4:]
	for i := range c.sequences {
		e := &c.sequences[i]
		copy(b[:16], e.Key.Topic[:])
		binary.BigEndian.PutUint32(b[16:], uint32(e.Key.Partition))
		copy(b[20:36], e.Key.Sender[:])
		binary.BigEndian.PutUint64(b[36:], uint64(e.N))
		b = b[sequenceSize:]
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
		return corrupt(clockWhat, 0, ErrTruncated)
	}
	if b[0] != ClockVersion {
		return corrupt(clockWhat, 0, ErrVersion)
	}
	n, end, err := section(clockWhat, b, 1, offsetSize)
	if err != nil {
		return err
	}
	m, last, err := section(clockWhat, b, end, sequenceSize)
	if err != nil {
		return err
	}
	if last != len(b) {
		return corrupt(clockWhat, last, ErrTrailing)
	}
	c.offsets = slices.Grow(c.offsets, n)[:n]
	c.sequences = slices.Grow(c.sequences, m)[:m]
	i, why := readOffsets(c.offsets, b[5:end])
	if why != nil && (rules == Strict || why == ErrNegative) {
		return corrupt(clockWhat, 5+i*offsetSize, why)
	}
	j, whySequence := readSequences(c.sequences, b[end+4:])
	if whySequence != nil && (rules == Strict || whySequence == ErrNegative) {
		return corrupt(clockWhat, end+4+j*sequenceSize, whySequence)
	}
	if why != nil {
		c.offsets = sorted(c.offsets)
	}
	if whySequence != nil {
		c.sequences = sorted(c.sequences)
	}
	return nil
}

// readOffsets fills dst from b, which has just its size. A negative number ends it; that entries do not ascend is told
// after all are read, with the first entry that does not. All this on registers: calling Compare doubles the time.
func readOffsets(dst []OffsetClaim, b []byte) (at int, why error) {
	high, low, partition := int64(math.MinInt64), int64(math.MinInt64), int32(-1)
	for i := range dst {
		e, s := &dst[i], b[i*offsetSize:][:offsetSize]
		h, l, p := int64(binary.BigEndian.Uint64(s)), int64(binary.BigEndian.Uint64(s[8:])), int32(binary.BigEndian.Uint32(s[16:]))
		e.Key.Topic, e.Key.Partition, e.N = uuid.UUID(s[:16]), p, int64(binary.BigEndian.Uint64(s[20:]))
		if p < 0 || e.N < 0 {
			return i, ErrNegative
		}
		if h < high || h == high && (l < low || l == low && p <= partition) {
			if why == nil {
				at, why = i, ErrOrder
				if h == high && l == low && p == partition {
					why = ErrDuplicate
				}
			}
		}
		high, low, partition = h, l, p
	}
	return at, why
}

// readSequences is readOffsets for sequence claims. As their order goes by channel first and channels differ as a rule, the
// sender is compared only where they do not.
func readSequences(dst []SequenceClaim, b []byte) (at int, why error) {
	high, low, partition := int64(math.MinInt64), int64(math.MinInt64), int32(-1)
	for i := range dst {
		e, s := &dst[i], b[i*sequenceSize:][:sequenceSize]
		h, l, p := int64(binary.BigEndian.Uint64(s)), int64(binary.BigEndian.Uint64(s[8:])), int32(binary.BigEndian.Uint32(s[16:]))
		e.Key.Topic, e.Key.Partition = uuid.UUID(s[:16]), p
		e.Key.Sender, e.N = uuid.UUID(s[20:36]), int64(binary.BigEndian.Uint64(s[36:]))
		if p < 0 || e.N < 0 {
			return i, ErrNegative
		}
		if h < high || h == high && (l < low || l == low && p <= partition) {
			o := 1
			if h == high && l == low && p == partition {
				o = compareUUIDs(&dst[i-1].Key.Sender, &e.Key.Sender)
			}
			if o >= 0 && why == nil {
				at, why = i, ErrOrder
				if o == 0 {
					why = ErrDuplicate
				}
			}
		}
		high, low, partition = h, l, p
	}
	return at, why
}

// sorted sorts stably; of entries with the same key the last one stays.
func sorted[K Channel | SequenceKey](s []Claim[K]) []Claim[K] {
	slices.SortStableFunc(s, func(a, b Claim[K]) int { return compareKeys(&a.Key, &b.Key) })
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
