package state

import (
	"encoding/binary"
	"fmt"

	"github.com/klauspost/crc32"
)

const (
	frameHeader = 20
	opPut       = 1
	opDelete    = 2

	// MaxKeyBytes and MaxBatchBytes bound a key and a batch (keys, values and a few bytes for each operation).
	MaxKeyBytes   = 32 << 10
	MaxBatchBytes = 64 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Batch is a list of operations that are applied together, in order: the last one on a key wins. The zero Batch is empty.
// It is already the frame that goes to the file. A Batch is used by one goroutine at a time, and may be used again after
// Reset.
type Batch struct {
	buf []byte // room for the frame header, then the operations
	n   int
	err error
}

// Put adds the setting of key to value; both are copied.
func (b *Batch) Put(key, value []byte) {
	b.check(key, len(value))
	b.buf = append(b.buf, opPut)
	b.buf = binary.AppendUvarint(b.buf, uint64(len(key)))
	b.buf = binary.AppendUvarint(b.buf, uint64(len(value)))
	from := len(b.buf)
	b.buf = append(append(b.buf, key...), value...)
	b.buf = binary.LittleEndian.AppendUint32(b.buf, crc32.Checksum(b.buf[from:], castagnoli))
}

// Delete adds the removal of key, which need not be there.
func (b *Batch) Delete(key []byte) {
	b.check(key, 0)
	b.buf = append(b.buf, opDelete)
	b.buf = binary.AppendUvarint(b.buf, uint64(len(key)))
	b.buf = append(b.buf, key...)
}

func (b *Batch) check(key []byte, value int) {
	if len(b.buf) == 0 {
		b.buf = append(b.buf, make([]byte, frameHeader)...)
	}
	b.n++
	if len(key) > MaxKeyBytes || len(b.buf)+len(key)+value+16 > MaxBatchBytes {
		b.err = fmt.Errorf("%w: key of %d, value of %d, batch of %d bytes", ErrTooLarge, len(key), value, len(b.buf))
		b.buf = b.buf[:frameHeader]
	}
}

// Len is the number of operations.
func (b *Batch) Len() int { return b.n }

// Bytes is the size of the batch in the file.
func (b *Batch) Bytes() int { return len(b.buf) }

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() { b.buf, b.n, b.err = b.buf[:0], 0, nil }

// seal writes the frame header.
func (b *Batch) seal(seq, durable uint64) {
	le := binary.LittleEndian
	le.PutUint32(b.buf, uint32(len(b.buf)-frameHeader))
	le.PutUint64(b.buf[8:], seq)
	le.PutUint32(b.buf[16:], uint32(min(seq-durable, 0xffffffff)))
	le.PutUint32(b.buf[4:], frameCRC(b.buf))
}

func frameCRC(frame []byte) uint32 {
	return crc32.Update(crc32.Checksum(frame[:4], castagnoli), castagnoli, frame[8:])
}

// op is one decoded operation. Key and Value alias the frame; off is where the value begins in the frame.
type op struct {
	kind       byte
	key, value []byte
	off        int
	size       int // of the whole operation
}

// nextOp decodes the operation at off of a frame whose CRC was right; ok is false if it makes no sense.
func nextOp(frame []byte, off int) (o op, ok bool) {
	b := frame[off:]
	if len(b) == 0 || b[0] != opPut && b[0] != opDelete {
		return o, false
	}
	o.kind = b[0]
	at := 1
	klen, n := binary.Uvarint(b[at:])
	if n <= 0 || klen > MaxKeyBytes {
		return o, false
	}
	at += n
	if o.kind == opDelete {
		if uint64(len(b)-at) < klen {
			return o, false
		}
		o.key, o.size = b[at:at+int(klen)], at+int(klen)
		return o, true
	}
	vlen, n := binary.Uvarint(b[at:])
	if n <= 0 || vlen > MaxBatchBytes {
		return o, false
	}
	at += n
	if uint64(len(b)-at) < klen+vlen+4 {
		return o, false
	}
	v := at + int(klen)
	o.key, o.value = b[at:v], b[v:v+int(vlen)]
	o.off, o.size = off+v, v+int(vlen)+4
	return o, true
}

// putSize is the size of a put operation.
func putSize(key, value int) int64 {
	return int64(1 + uvarintLen(key) + uvarintLen(value) + key + value + 4)
}

func uvarintLen(n int) int {
	l := 1
	for ; n >= 0x80; n >>= 7 {
		l++
	}
	return l
}
