package engine

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// testFormat is Kafka's record batch, version 2, as far as the engine looks at one; records are filler.
type testFormat struct{}

var errBad = errors.New("bad batch")

var crcTable = crc32.MakeTable(crc32.Castagnoli)

func (testFormat) Peek(b []byte) (int, BatchInfo, error) {
	be := binary.BigEndian
	if len(b) < 61 {
		return 0, BatchInfo{}, ErrShort
	}
	size := int(int32(be.Uint32(b[8:]))) + 12
	if size < 61 || b[16] != 2 {
		return 0, BatchInfo{}, errBad
	}
	attr := be.Uint16(b[21:])
	return size, BatchInfo{
		BaseOffset: int64(be.Uint64(b)), Size: size, LeaderEpoch: int32(be.Uint32(b[12:])),
		LastOffsetDelta: int32(be.Uint32(b[23:])), BaseTimestamp: int64(be.Uint64(b[27:])), MaxTimestamp: int64(be.Uint64(b[35:])),
		ProducerID: int64(be.Uint64(b[43:])), ProducerEpoch: int16(be.Uint16(b[51:])), BaseSequence: int32(be.Uint32(b[53:])),
		Count: int32(be.Uint32(b[57:])), Compressed: attr&7 != 0, LogAppendTime: attr&8 != 0, Transactional: attr&16 != 0, Control: attr&32 != 0,
		DeleteHorizon: attr&64 != 0,
	}, nil
}

func (f testFormat) Next(b []byte) (int, BatchInfo, error) {
	size, info, err := f.Peek(b)
	if err != nil {
		return 0, info, err
	}
	if size > len(b) {
		return size, info, ErrShort
	}
	if crc32.Checksum(b[21:size], crcTable) != binary.BigEndian.Uint32(b[17:]) {
		return 0, info, errBad
	}
	return size, info, nil
}

func (testFormat) Stamp(b []byte, base int64, epoch int32) {
	binary.BigEndian.PutUint64(b, uint64(base))
	binary.BigEndian.PutUint32(b[12:], uint32(epoch))
}

// FirstAtOrAfter takes record i of n to have the base timestamp plus i, and the last one the max timestamp.
func (f testFormat) FirstAtOrAfter(b []byte, ts, from int64) (int64, int64, bool, error) {
	_, info, err := f.Next(b)
	if err != nil {
		return 0, 0, false, err
	}
	for i := range int64(info.Count) {
		t := info.BaseTimestamp + i
		if i == int64(info.Count)-1 {
			t = info.MaxTimestamp
		}
		if t >= ts && info.BaseOffset+i >= from {
			return info.BaseOffset + i, t, true, nil
		}
	}
	return 0, 0, false, nil
}

// ControlType reads the key of the first record, int16 version, int16 type, and the value if it is one, int16 version, int32 epoch.
func (testFormat) ControlType(b []byte) (bool, int32, bool) {
	r := b[61:]
	for i := 0; len(r) > 0 && i < 5; i++ { // length, attributes, two deltas, key length: one byte each unless the batch is long
		for i != 1 && len(r) > 1 && r[0] >= 0x80 {
			r = r[1:]
		}
		r = r[1:]
	}
	if len(r) < 4 || r[2] != 0 || r[3] > 1 {
		return false, -1, false
	}
	epoch := int32(-1)
	if len(r) >= 11 && r[4] == 2*6 {
		epoch = int32(binary.BigEndian.Uint32(r[7:]))
	}
	return r[3] == 1, epoch, true
}

// spec describes a test batch.
type spec struct {
	n       int // records, default 1
	size    int // bytes of records, default 40
	ts      int64
	pid     int64 // 0: none
	epoch   int16
	seq     int32
	txn     bool
	control bool
	commit  bool
	tag     byte    // content
	keys    []keyed // the records, if set
}

func batch(s spec) Entry {
	body := appendKeyed(nil, s.keys)
	switch {
	case s.keys != nil:
		s.n, s.size = len(s.keys), len(body)
	case s.size == 0:
		s.size = 40
	}
	s.n = max(s.n, 1)
	b := make([]byte, 61+s.size)
	be := binary.BigEndian
	be.PutUint32(b[8:], uint32(len(b)-12))
	b[16] = 2
	var attr uint16
	if s.txn {
		attr |= 16
	}
	if s.control {
		attr |= 16 | 32
	}
	be.PutUint16(b[21:], attr)
	be.PutUint32(b[23:], uint32(s.n-1))
	be.PutUint64(b[27:], uint64(s.ts))
	be.PutUint64(b[35:], uint64(s.ts+int64(s.n)-1))
	pid := s.pid
	if pid == 0 {
		pid = -1
	}
	be.PutUint64(b[43:], uint64(pid))
	be.PutUint16(b[51:], uint16(s.epoch))
	be.PutUint32(b[53:], uint32(s.seq))
	be.PutUint32(b[57:], uint32(s.n))
	for i := range b[61:] {
		b[61+i] = s.tag + byte(i)
	}
	copy(b[61:], body)
	if s.control {
		b = append(b[:61], 32, 0, 0, 0, 8, 0, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0)
		if s.commit {
			b[61+8] = 1
		}
		be.PutUint32(b[8:], uint32(len(b)-12))
	}
	be.PutUint32(b[17:], crc32.Checksum(b[21:], crcTable))
	_, info, err := testFormat{}.Next(b)
	if err != nil {
		panic(err)
	}
	return Entry{Data: b, Info: info}
}
