package batch

import (
	"encoding/binary"
	"fmt"
)

// Spec is the header of a batch that the broker makes itself. Start from NewSpec: zero is a producer id.
type Spec struct {
	BaseOffset      int64
	LeaderEpoch     int32
	ProducerID      int64
	ProducerEpoch   int16
	BaseSequence    int32
	Codec           Codec
	LogAppendTimeMs int64 // NoTimestamp: the batch is CreateTime
	Transactional   bool
	Control         bool
}

// NewSpec returns a Spec without producer, transaction or compression.
func NewSpec() Spec {
	return Spec{LeaderEpoch: NoLeaderEpoch, ProducerID: NoProducerID, ProducerEpoch: NoEpoch, BaseSequence: NoSequence,
		LogAppendTimeMs: NoTimestamp}
}

func (s *Spec) attributes() uint16 {
	a := uint16(s.Codec)
	if s.LogAppendTimeMs != NoTimestamp {
		a |= attrLogAppendTime
	}
	if s.Transactional {
		a |= attrTransactional
	}
	if s.Control {
		a |= attrControl
	}
	return a
}

// Header is a record header; a nil Value is null.
type Header struct {
	Key   string
	Value []byte
}

// Builder makes one batch after another, record by record, onto the end of a slice. It serves the broker's own topics
// and load generators, not the produce path. The zero value is ready for Begin.
type Builder struct {
	spec          Spec
	dst           []byte
	start         int
	count         int32
	baseTimestamp int64
	maxTimestamp  int64
}

// Begin starts a batch behind dst.
func (b *Builder) Begin(dst []byte, spec Spec) {
	if !spec.Codec.Known() {
		panic(fmt.Sprintf("BUG: a batch with codec %d", spec.Codec))
	}
	start := len(dst)
	*b = Builder{spec: spec, start: start, maxTimestamp: NoTimestamp}
	b.dst = append(dst, make([]byte, HeaderSize)...)
}

// Append adds a record at the next offset. A nil key or value is null.
func (b *Builder) Append(timestampMs int64, key, value []byte, headers ...Header) {
	if b.count == 0 {
		b.baseTimestamp = timestampMs
	}
	tail := sizeField(key) + sizeField(value) + sizeVarint(int64(len(headers)))
	for i := range headers {
		tail += sizeVarint(int64(len(headers[i].Key))) + len(headers[i].Key) + sizeField(headers[i].Value)
	}
	delta := timestampMs - b.baseTimestamp
	d := appendVarint(b.dst, int64(1+sizeVarint(delta)+sizeVarint(int64(b.count))+tail))
	d = append(d, 0)
	d = appendVarint(d, delta)
	d = appendVarint(d, int64(b.count))
	d = appendField(d, key)
	d = appendField(d, value)
	d = appendVarint(d, int64(len(headers)))
	for i := range headers {
		d = appendVarint(d, int64(len(headers[i].Key)))
		d = append(d, headers[i].Key...)
		d = appendField(d, headers[i].Value)
	}
	b.dst = d
	b.count++
	b.maxTimestamp = max(b.maxTimestamp, timestampMs)
}

func sizeField(f []byte) int {
	if f == nil {
		return 1
	}
	return sizeVarint(int64(len(f))) + len(f)
}

func appendField(dst, f []byte) []byte {
	if f == nil {
		return append(dst, 1) // length -1
	}
	return append(appendVarint(dst, int64(len(f))), f...)
}

// Count is the number of records appended since Begin.
func (b *Builder) Count() int { return int(b.count) }

// Size is how large the batch would be uncompressed.
func (b *Builder) Size() int { return len(b.dst) - b.start }

// End finishes the batch and returns the slice that Begin got, longer by the batch; without records it is not longer.
// def may be nil if the batch is not compressed.
func (b *Builder) End(def *Deflater) []byte {
	dst := b.dst
	b.dst = nil
	if b.count == 0 {
		return dst[:b.start]
	}
	if b.spec.Codec != CodecNone {
		frames := append(def.frames[:0], dst[b.start+HeaderSize:]...)
		def.keep(frames)
		dst = def.deflate(dst[:b.start+HeaderSize], b.spec.Codec, frames)
	}
	if b.spec.LogAppendTimeMs != NoTimestamp {
		b.maxTimestamp = b.spec.LogAppendTimeMs
	}
	h := header{
		baseOffset: b.spec.BaseOffset, leaderEpoch: b.spec.LeaderEpoch, attributes: b.spec.attributes(),
		lastOffsetDelta: b.count - 1, baseTimestamp: b.baseTimestamp, maxTimestamp: b.maxTimestamp,
		producerID: b.spec.ProducerID, producerEpoch: b.spec.ProducerEpoch, baseSequence: b.spec.BaseSequence, count: b.count,
	}
	h.write(View(dst[b.start:]))
	return dst
}

// header is what write puts into the first 61 bytes of a batch.
type header struct {
	baseOffset      int64
	leaderEpoch     int32
	attributes      uint16
	lastOffsetDelta int32
	baseTimestamp   int64
	maxTimestamp    int64
	producerID      int64
	producerEpoch   int16
	baseSequence    int32
	count           int32
}

// headerOf reads the header of v.
func headerOf(v View) header {
	return header{
		baseOffset: v.BaseOffset(), leaderEpoch: v.PartitionLeaderEpoch(), attributes: v.Attributes(),
		lastOffsetDelta: v.LastOffsetDelta(), baseTimestamp: v.BaseTimestamp(), maxTimestamp: v.MaxTimestamp(),
		producerID: v.ProducerID(), producerEpoch: v.ProducerEpoch(), baseSequence: v.BaseSequence(), count: v.Count(),
	}
}

// write fills in the header of v, whose length and payload are final, CRC included.
func (h *header) write(v View) {
	be := binary.BigEndian
	be.PutUint64(v, uint64(h.baseOffset))
	be.PutUint32(v[posLength:], uint32(len(v)-logOverhead))
	be.PutUint32(v[posLeaderEpoch:], uint32(h.leaderEpoch))
	v[posMagic] = 2
	be.PutUint16(v[posAttributes:], h.attributes)
	be.PutUint32(v[posLastOffsetDelta:], uint32(h.lastOffsetDelta))
	be.PutUint64(v[posBaseTimestamp:], uint64(h.baseTimestamp))
	be.PutUint64(v[posMaxTimestamp:], uint64(h.maxTimestamp))
	be.PutUint64(v[posProducerID:], uint64(h.producerID))
	be.PutUint16(v[posProducerEpoch:], uint16(h.producerEpoch))
	be.PutUint32(v[posBaseSequence:], uint32(h.baseSequence))
	be.PutUint32(v[posCount:], uint32(h.count))
	v.setCRC()
}
