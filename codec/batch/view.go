package batch

import (
	"encoding/binary"

	"github.com/klauspost/crc32"
)

// HeaderSize is the length of a batch header: what precedes the record frames.
const HeaderSize = 61

// logOverhead is the base offset and the length field, which the length field does not count.
const logOverhead = 12

// Where the fields stand. The CRC covers everything from the attributes on, so base offset and leader epoch are
// stamped without touching it.
const (
	posLength          = 8
	posLeaderEpoch     = 12
	posMagic           = 16
	posCRC             = 17
	posAttributes      = 21
	posLastOffsetDelta = 23
	posBaseTimestamp   = 27
	posMaxTimestamp    = 35
	posProducerID      = 43
	posProducerEpoch   = 51
	posBaseSequence    = 53
	posCount           = 57
)

// The bits of the attributes.
const (
	attrCodec         = 0x07
	attrLogAppendTime = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
	attrDeleteHorizon = 0x40
	attrKnown         = 0x7f
)

// Values that mean "none" in a header and in a record.
const (
	NoTimestamp   int64 = -1
	NoProducerID  int64 = -1
	NoEpoch       int16 = -1
	NoSequence    int32 = -1
	NoLeaderEpoch int32 = -1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Codec is the compression of a batch: the low three bits of its attributes.
type Codec uint8

// The codecs that Kafka knows. Ids 5 to 7 fit the header but mean nothing.
const (
	CodecNone Codec = iota
	CodecGzip
	CodecSnappy
	CodecLZ4
	CodecZstd
)

var codecNames = [...]string{"none", "gzip", "snappy", "lz4", "zstd", "unknown-5", "unknown-6", "unknown-7"}

// String returns the name that kafka-dump-log prints.
func (c Codec) String() string { return codecNames[c&attrCodec] }

// Known reports whether c is a codec that can be read.
func (c Codec) Known() bool { return c <= CodecZstd }

// View is the bytes of one whole batch, header first, seen in place. It does not own them.
type View []byte

// BaseOffset is the offset of the first record as it was produced (compaction may have removed that record).
func (v View) BaseOffset() int64 { return int64(binary.BigEndian.Uint64(v)) }

// Length is the length field: the bytes after it.
func (v View) Length() int32 { return int32(binary.BigEndian.Uint32(v[posLength:])) }

// Size is how many bytes the batch takes, header included, by its own length field.
func (v View) Size() int { return logOverhead + int(v.Length()) }

// PartitionLeaderEpoch is the epoch of the leader that appended the batch, -1 from a client.
func (v View) PartitionLeaderEpoch() int32 {
	return int32(binary.BigEndian.Uint32(v[posLeaderEpoch:]))
}

// Magic is the message format.
func (v View) Magic() int8 { return int8(v[posMagic]) }

// CRC is the stored CRC-32C of everything from the attributes on.
func (v View) CRC() uint32 { return binary.BigEndian.Uint32(v[posCRC:]) }

// Attributes are all sixteen attribute bits.
func (v View) Attributes() uint16 { return binary.BigEndian.Uint16(v[posAttributes:]) }

// LastOffsetDelta is the last offset minus the base offset; compaction keeps it.
func (v View) LastOffsetDelta() int32 { return int32(binary.BigEndian.Uint32(v[posLastOffsetDelta:])) }

// LastOffset is the offset of the last record as it was produced.
func (v View) LastOffset() int64 { return v.BaseOffset() + int64(v.LastOffsetDelta()) }

// BaseTimestamp is what the timestamp deltas of the records add to, in ms. With HasDeleteHorizon it is the time from
// which tombstones and markers in the batch may be dropped (KIP-534).
func (v View) BaseTimestamp() int64 { return int64(binary.BigEndian.Uint64(v[posBaseTimestamp:])) }

// MaxTimestamp is the largest record timestamp, or the append time of a LogAppendTime batch, in ms.
func (v View) MaxTimestamp() int64 { return int64(binary.BigEndian.Uint64(v[posMaxTimestamp:])) }

// ProducerID is -1 for a producer without idempotence.
func (v View) ProducerID() int64 { return int64(binary.BigEndian.Uint64(v[posProducerID:])) }

// ProducerEpoch is -1 for a producer without idempotence.
func (v View) ProducerEpoch() int16 { return int16(binary.BigEndian.Uint16(v[posProducerEpoch:])) }

// BaseSequence is the sequence number of the first record, -1 without one.
func (v View) BaseSequence() int32 { return int32(binary.BigEndian.Uint32(v[posBaseSequence:])) }

// Count is the number of record frames.
func (v View) Count() int32 { return int32(binary.BigEndian.Uint32(v[posCount:])) }

// Codec is how the record frames are compressed.
func (v View) Codec() Codec { return Codec(v[posAttributes+1] & attrCodec) }

// IsLogAppendTime reports whether MaxTimestamp stands for the timestamp of every record.
func (v View) IsLogAppendTime() bool { return v[posAttributes+1]&attrLogAppendTime != 0 }

// IsTransactional reports whether the batch belongs to a transaction.
func (v View) IsTransactional() bool { return v[posAttributes+1]&attrTransactional != 0 }

// IsControl reports whether the batch holds control records, made by a broker.
func (v View) IsControl() bool { return v[posAttributes+1]&attrControl != 0 }

// HasDeleteHorizon reports whether the base timestamp is a delete horizon.
func (v View) HasDeleteHorizon() bool { return v[posAttributes+1]&attrDeleteHorizon != 0 }

// HasProducerID reports whether sequence numbers of the batch count.
func (v View) HasProducerID() bool { return v.ProducerID() > NoProducerID }

// Payload is what follows the header: record frames, perhaps compressed.
func (v View) Payload() []byte { return v[HeaderSize:] }

// SetBaseOffset stamps the base offset. The CRC does not cover it.
func (v View) SetBaseOffset(offset int64) { binary.BigEndian.PutUint64(v, uint64(offset)) }

// SetPartitionLeaderEpoch stamps the leader epoch. The CRC does not cover it.
func (v View) SetPartitionLeaderEpoch(epoch int32) {
	binary.BigEndian.PutUint32(v[posLeaderEpoch:], uint32(epoch))
}

// SetMaxTimestamp makes the batch CreateTime with the given maximum timestamp.
func (v View) SetMaxTimestamp(ms int64) { v.setTimestamp(0, ms) }

// SetLogAppendTime makes the batch LogAppendTime with the given append time.
func (v View) SetLogAppendTime(ms int64) { v.setTimestamp(attrLogAppendTime, ms) }

// setTimestamp rewrites timestamp type and maximum and computes a new CRC; with nothing to change it does nothing.
// Like Apache it then drops the attribute bits without a meaning, and only then.
func (v View) setTimestamp(typeBit uint16, ms int64) {
	a := v.Attributes()
	if a&attrLogAppendTime == typeBit && v.MaxTimestamp() == ms {
		return
	}
	a = a&attrKnown&^attrLogAppendTime | typeBit
	binary.BigEndian.PutUint16(v[posAttributes:], a)
	binary.BigEndian.PutUint64(v[posMaxTimestamp:], uint64(ms))
	v.setCRC()
}

// setCRC stores the CRC that fits the bytes.
func (v View) setCRC() { binary.BigEndian.PutUint32(v[posCRC:], v.computeCRC()) }

// computeCRC returns the CRC-32C of the bytes it covers.
func (v View) computeCRC() uint32 { return crc32.Checksum(v[posAttributes:], castagnoli) }

// CheckCRC reports whether the stored CRC fits the bytes of v, which must be exactly one batch.
func (v View) CheckCRC() bool { return v.CRC() == v.computeCRC() }
