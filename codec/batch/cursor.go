package batch

import (
	"errors"
	"math"
)

// ErrRecords: the record frames of a batch do not hold together, or are not as many as its header says.
var ErrRecords = errors.New("batch: bad record frames")

// Cursor walks the record frames of a batch, one at a time, without making records of them. Its slices are parts of
// the batch, or of the Inflater's buffer: valid until the Inflater is used again. The zero Cursor is ready for Open
// and may be opened again.
type Cursor struct {
	v      View
	frames []byte
	f      frame
	read   int32
	err    error
}

// Open puts the cursor before the first record of v, whose header has been checked (Peek, Next). The payload is
// decompressed here; without an Inflater it makes one. Errors: ErrInflate, ErrInflateLimit,
// ErrRecords for a negative count.
func (c *Cursor) Open(v View, inf *Inflater) error {
	*c = Cursor{v: v}
	if v.Count() < 0 {
		c.err = ErrRecords
		return c.err
	}
	codec := v.Codec()
	if codec == CodecNone {
		c.frames = v.Payload()
		return nil
	}
	if inf == nil {
		inf = NewInflater(DefaultInflateLimit)
	}
	c.frames, c.err = inf.inflate(codec, v.Payload())
	return c.err
}

// Next moves to the next record and reports whether there is one. After the last, or when frames are bad, it is
// false: Err tells which.
func (c *Cursor) Next() bool {
	if c.err != nil {
		return false
	}
	if c.read >= c.v.Count() {
		if c.read > 0 && c.f.end != len(c.frames) { // Apache asks after a last record only
			c.err = ErrRecords
		}
		return false
	}
	if parseFrame(c.frames, c.f.end, &c.f) != faultNone {
		c.err = ErrRecords
		return false
	}
	c.read++
	return true
}

// Err is what ended the walk: nil at the end of a sound batch, ErrRecords, or what Open returned.
func (c *Cursor) Err() error { return c.err }

// Index is the place of the present record in the batch, from 0.
func (c *Cursor) Index() int32 { return c.read - 1 }

// Frame is the whole frame of the present record, its length included.
func (c *Cursor) Frame() []byte { return c.frames[c.f.start:c.f.end:c.f.end] }

// OffsetDelta is what the record adds to the base offset.
func (c *Cursor) OffsetDelta() int32 { return c.f.offsetDelta }

// Offset is the record's offset.
func (c *Cursor) Offset() int64 { return c.v.BaseOffset() + int64(c.f.offsetDelta) }

// TimestampDelta is what the record adds to the base timestamp, in ms.
func (c *Cursor) TimestampDelta() int64 { return c.f.timestampDelta }

// Timestamp is the record's timestamp in ms: that of the batch if it is LogAppendTime.
func (c *Cursor) Timestamp() int64 {
	if c.v.IsLogAppendTime() {
		return c.v.MaxTimestamp()
	}
	return c.v.BaseTimestamp() + c.f.timestampDelta
}

// Key is nil for the null key, not nil for the empty one.
func (c *Cursor) Key() []byte { return part(c.frames, c.f.key, c.f.keyLen) }

// Value is nil for the null value (a tombstone), not nil for the empty one.
func (c *Cursor) Value() []byte { return part(c.frames, c.f.value, c.f.valueLen) }

// Headers returns a cursor over the record's headers.
func (c *Cursor) Headers() Headers {
	return Headers{b: c.frames[c.f.headers:c.f.end], left: c.f.numHeaders}
}

func part(b []byte, p, n int) []byte {
	if n < 0 {
		return nil
	}
	return b[p : p+n : p+n]
}

// Headers walks the headers of one record.
type Headers struct {
	b    []byte
	left int
}

// Len is how many headers are still to come.
func (h *Headers) Len() int { return h.left }

// Next returns the next header; value is nil for null. ok is false after the last.
func (h *Headers) Next() (key, value []byte, ok bool) {
	if h.left == 0 {
		return nil, nil, false
	}
	h.left--
	k, keyLen, p := field(h.b, 0)
	v, valueLen, next := field(h.b, p)
	key, value = part(h.b, k, keyLen), part(h.b, v, valueLen)
	h.b = h.b[next:]
	return key, value, true
}

// FirstAtOrAfter finds the first record of v with a timestamp of at least ms and an offset of at least minOffset: what
// ListOffsets by time answers. inf as in Cursor.Open. Errors: those of a Cursor.
func FirstAtOrAfter(v View, inf *Inflater, ms, minOffset int64) (offset, timestamp int64, found bool, err error) {
	var c Cursor
	if err := c.Open(v, inf); err != nil {
		return 0, 0, false, err
	}
	for c.Next() {
		if c.Timestamp() >= ms && c.Offset() >= minOffset {
			return c.Offset(), c.Timestamp(), true, nil
		}
	}
	return 0, 0, false, c.Err()
}

// MaxTimestampRecord finds the first record of v with the largest timestamp. found is false for a batch that
// compaction has emptied. (Apache Kafka 3.7 answers ListOffsets -3 with the batch's last offset instead.)
func MaxTimestampRecord(v View, inf *Inflater) (offset, timestamp int64, found bool, err error) {
	var c Cursor
	if err := c.Open(v, inf); err != nil {
		return 0, 0, false, err
	}
	timestamp = math.MinInt64
	for c.Next() {
		if t := c.Timestamp(); !found || t > timestamp {
			offset, timestamp, found = c.Offset(), t, true
		}
	}
	if c.Err() != nil || !found {
		return 0, 0, false, c.Err()
	}
	return offset, timestamp, true, nil
}
