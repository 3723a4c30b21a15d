package frames

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/klauspost/crc32"
)

// Places of the fields of a record batch (magic 2) that are looked at here.
const (
	BatchOffsetAt    = 0
	BatchLengthAt    = 8 // counts from BatchLengthEnd
	BatchLengthEnd   = 12
	BatchMagicAt     = 16
	BatchCRCAt       = 17
	BatchCRCFrom     = 21 // the checksum covers all from here on
	BatchLastDeltaAt = 23
	BatchHeader      = 61
)

// Castagnoli is the polynomial of the batch checksum.
var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Batch makes an uncompressed record batch of at most size bytes: as many records as fit, at least one, each with a
// value of recordBytes pseudo-random bytes and no key, all with the given timestamp. It returns the batch and the number of
// its records.
func Batch(size, recordBytes int, timestampMs int64) (batch []byte, records int, err error) {
	return makeBatch(size, recordBytes, timestampMs, Compressions[0], 256)
}

// lettersCompressed is the number of different bytes in values that will be compressed: four bits in eight, so that a good codec
// halves them, about what it does to real events.
const lettersCompressed = 16

// CompressedBatch is Batch with a codec, one of Compressions. size bounds the batch before it is compressed.
func CompressedBatch(size, recordBytes int, timestampMs int64, compression string) (batch []byte, records int, err error) {
	if compression == "" || compression == Compressions[0] {
		return Batch(size, recordBytes, timestampMs)
	}
	return makeBatch(size, recordBytes, timestampMs, compression, lettersCompressed)
}

func makeBatch(size, recordBytes int, timestampMs int64, compression string, letters uint32) (batch []byte, records int, err error) {
	if recordBytes < 0 || recordBytes > 1<<30 || size > 1<<30 {
		return nil, 0, fmt.Errorf("batch of %d bytes with records of %d: out of range", size, recordBytes)
	}
	value := make([]byte, recordBytes)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range value {
		value[i] = byte(random.Uint32() % letters)
	}
	b := make([]byte, BatchHeader, max(size, BatchHeader+recordBytes+32))
	for {
		record := appendRecord(nil, records, value)
		if records > 0 && len(b)+len(record) > size {
			break
		}
		b = append(b, record...)
		records++
	}
	codec, body, err := compress(compression, b[BatchHeader:])
	if err != nil {
		return nil, 0, err
	}
	b = append(b[:BatchHeader], body...)
	be := binary.BigEndian
	be.PutUint16(b[21:], codec) // attributes
	be.PutUint32(b[BatchLengthAt:], uint32(len(b)-BatchLengthEnd))
	be.PutUint32(b[12:], ^uint32(0)) // partition leader epoch: unknown
	b[BatchMagicAt] = 2
	be.PutUint32(b[BatchLastDeltaAt:], uint32(records-1))
	be.PutUint64(b[27:], uint64(timestampMs))
	be.PutUint64(b[35:], uint64(timestampMs))
	be.PutUint64(b[43:], ^uint64(0)) // producer id
	be.PutUint16(b[51:], ^uint16(0)) // producer epoch
	be.PutUint32(b[53:], ^uint32(0)) // base sequence
	be.PutUint32(b[57:], uint32(records))
	be.PutUint32(b[BatchCRCAt:], crc32.Checksum(b[BatchCRCFrom:], Castagnoli))
	return b, records, nil
}

// appendRecord appends one record frame: length, attributes, timestamp delta 0, offset delta, null key, value, no headers.
func appendRecord(b []byte, delta int, value []byte) []byte {
	body := append([]byte(nil), 0)
	body = binary.AppendVarint(body, 0)
	body = binary.AppendVarint(body, int64(delta))
	body = binary.AppendVarint(body, -1)
	body = binary.AppendVarint(body, int64(len(value)))
	body = append(body, value...)
	body = binary.AppendVarint(body, 0)
	b = binary.AppendVarint(b, int64(len(body)))
	return append(b, body...)
}
