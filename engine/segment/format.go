// Package segment is one segment of a log: a file of record batches, its sparse offset and time indexes, and the verified
// scan that finds where the good data ends. Names and layouts are Kafka's own (see ../FORMAT.md).
//
// It is not a log: it knows nothing of high watermarks, producers, retention or other segments, and of a batch only what
// the Format says. One writer at a time appends (the log's mutex sees to it); readers run beside it without locks that are
// held over a write.
//
// Invariants: bytes [0, Size) are whole batches in offset order, whatever the length of the file; an index entry names the
// last offset and the position of a batch inside that range; an index is a hint that is verified when used and rebuilt when
// it does not fit, so a lost or damaged index never loses data.
package segment

import (
	"errors"
	"fmt"
)

// HeaderSize is the length of a record batch without its records: what Format.Peek needs.
const HeaderSize = 61

// ErrShort is what Format.Next returns for a batch that ends after the bytes given.
var ErrShort = errors.New("segment: batch goes on after the data")

// BatchInfo are the facts of one record batch, as its header states them.
type BatchInfo struct {
	BaseOffset                                        int64 // as stored
	Size                                              int   // in bytes, with the offset and length fields
	LastOffsetDelta                                   int32
	LeaderEpoch                                       int32
	BaseTimestamp, MaxTimestamp                       int64 // milliseconds since 1970
	ProducerID                                        int64 // -1: none
	ProducerEpoch                                     int16
	BaseSequence                                      int32
	Count                                             int32
	Transactional, Control, Compressed, LogAppendTime bool
	// DeleteHorizon: BaseTimestamp is the time from which tombstones and markers in the batch may go (KIP-534).
	DeleteHorizon bool
	// Internal: the broker made the batch; its producer's epoch is checked and its sequence is not. Only the caller of Append knows.
	Internal bool
}

// LastOffset is the offset of the last record of a stored batch.
func (b *BatchInfo) LastOffset() int64 { return b.BaseOffset + int64(b.LastOffsetDelta) }

// Format is what the engine needs to know of a batch. Implementations are stateless, safe for concurrent use, allocate
// nothing except in FirstAtOrAfter, and never panic on bad input.
type Format interface {
	// Next reads and verifies (CRC) the batch at the start of b. ErrShort: it ends after b. Any other error: corrupt.
	Next(b []byte) (size int, info BatchInfo, err error)
	// Peek reads the header, the first HeaderSize bytes, and verifies no CRC. A size below HeaderSize is an error.
	Peek(header []byte) (size int, info BatchInfo, err error)
	// Stamp sets base offset and leader epoch in place; neither is covered by the CRC.
	Stamp(batch []byte, baseOffset int64, leaderEpoch int32)
	// FirstAtOrAfter finds the first record of a batch with timestamp ts or later, at offset from or later. It may decompress.
	FirstAtOrAfter(batch []byte, ts, from int64) (offset, timestamp int64, found bool, err error)
	// ControlType reads the first record of a control batch, and the epoch of the transaction coordinator that wrote it: ok is false if it is
	// not the end of a transaction.
	ControlType(batch []byte) (commit bool, coordinatorEpoch int32, ok bool)
}

// CorruptError says which file is damaged and where.
type CorruptError struct {
	File   string
	Offset int64 // position in the file, in bytes
	Err    error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s: corrupt at byte %d: %v", e.File, e.Offset, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }
