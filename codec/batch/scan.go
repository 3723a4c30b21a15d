package batch

import (
	"encoding/binary"
	"errors"
)

// What Peek, PeekHeader and Next find wrong. A recovery ends the log at the first of them; they differ in what they say about it.
var (
	// ErrTorn: the bytes end before the batch does, as after a write that was cut off.
	ErrTorn = errors.New("batch: bytes end inside a batch")
	// ErrInvalid: these bytes cannot begin a batch of format 2 (length below a header, other magic, zeros,
	// a range of offsets that runs backwards).
	ErrInvalid = errors.New("batch: not a record batch of format 2")
	// ErrCorrupt: a whole batch by its length, but its CRC does not match.
	ErrCorrupt = errors.New("batch: CRC does not match")
)

// PeekHeader returns the header at the start of b; the rest of the batch need not be there. Size of the result is
// at least HeaderSize. Errors: ErrTorn for fewer than 61 bytes, ErrInvalid.
func PeekHeader(b []byte) (View, error) {
	if len(b) > posMagic {
		if int8(b[posMagic]) != 2 || int32(binary.BigEndian.Uint32(b[posLength:])) < HeaderSize-logOverhead {
			return nil, ErrInvalid
		}
	}
	if len(b) < HeaderSize {
		return nil, ErrTorn
	}
	v := View(b[:HeaderSize:HeaderSize])
	if v.LastOffsetDelta() < 0 || v.Count() < 0 {
		return nil, ErrInvalid // no log may step backwards, whatever the CRC says
	}
	return v, nil
}

// Peek returns the batch at the start of b without verifying its CRC. Errors: ErrTorn, ErrInvalid.
func Peek(b []byte) (View, error) {
	v, err := PeekHeader(b)
	if err != nil {
		return nil, err
	}
	if int64(v.Length()) > int64(len(b)-logOverhead) {
		return nil, ErrTorn
	}
	size := v.Size()
	return View(b[:size:size]), nil
}

// Next returns the batch at the start of b once its CRC is verified; its length is where the following one begins.
// Errors: ErrTorn, ErrInvalid, ErrCorrupt. No bytes at all are ErrTorn: ask only while there are some.
func Next(b []byte) (View, error) {
	v, err := Peek(b)
	if err != nil {
		return nil, err
	}
	if !v.CheckCRC() {
		return nil, ErrCorrupt
	}
	return v, nil
}
