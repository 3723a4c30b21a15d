package producer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sort"
)

// The snapshot is Kafka's ProducerSnapshot, version 1: int16 version, uint32 CRC-32C of all that follows, int32 count,
// then 46 bytes for each producer: its last batch only. What may follow is our own, and passed over by Apache, whose CRC covers the whole file
// too: for each producer with older batches int64 id, int8 count, and 24 bytes for each of them, oldest first.
const (
	snapshotVersion = 1
	snapshotHead    = 10
	snapshotEntry   = 46
	olderHead       = 9
	olderBatch      = 24
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrSnapshot is the reason of a snapshot that cannot be used.
var ErrSnapshot = errors.New("producer: bad snapshot")

// Snapshot returns the content of a snapshot file, producers in order of their ids; with the batches before the last one of each if older is set.
func (s *State) Snapshot(older bool) []byte {
	ids := make([]int64, 0, len(s.m))
	for id := range s.m {
		ids = append(ids, id)
	}
	sort.Slice(ids, func(i, j int) bool { return ids[i] < ids[j] })
	be := binary.BigEndian
	b := make([]byte, 0, snapshotHead+len(ids)*snapshotEntry)
	b = be.AppendUint16(b, snapshotVersion)
	b = be.AppendUint32(b, 0)
	b = be.AppendUint32(b, uint32(len(ids)))
	for _, id := range ids {
		e := s.m[id]
		last := e.newest
		b = be.AppendUint64(b, uint64(id))
		b = be.AppendUint16(b, uint16(e.Epoch))
		b = be.AppendUint32(b, uint32(last.LastSequence))
		b = be.AppendUint64(b, uint64(last.LastOffset))
		b = be.AppendUint32(b, uint32(last.Delta))
		b = be.AppendUint64(b, uint64(e.LastTimestamp))
		b = be.AppendUint32(b, uint32(e.CoordinatorEpoch))
		b = be.AppendUint64(b, uint64(e.TxnFirst))
	}
	for _, id := range ids {
		if e := s.m[id]; older && e.older > 0 {
			b = append(be.AppendUint64(b, uint64(id)), byte(e.older))
			for _, o := range e.before[:e.older] {
				b = be.AppendUint32(b, uint32(o.LastSequence))
				b = be.AppendUint32(b, uint32(o.Delta))
				b = be.AppendUint64(b, uint64(o.LastOffset))
				b = be.AppendUint64(b, uint64(o.Timestamp))
			}
		}
	}
	be.PutUint32(b[2:], crc32.Checksum(b[6:], castagnoli))
	return b
}

// Load replaces the state by a snapshot's. Producers count as seen now: expiry by the stored timestamps would forget those
// of batches with old record times. On ErrSnapshot the state is empty.
func (s *State) Load(b []byte, now int64) error {
	s.m, s.most, s.guards = nil, 0, nil
	be := binary.BigEndian
	if len(b) < snapshotHead || be.Uint16(b) != snapshotVersion {
		return fmt.Errorf("%w: not version %d", ErrSnapshot, snapshotVersion)
	}
	if crc32.Checksum(b[6:], castagnoli) != be.Uint32(b[2:]) {
		return fmt.Errorf("%w: CRC does not match", ErrSnapshot)
	}
	n := int64(be.Uint32(b[6:]))
	if n*snapshotEntry > int64(len(b)-snapshotHead) {
		return fmt.Errorf("%w: %d producers in %d bytes", ErrSnapshot, n, len(b))
	}
	m := make(map[int64]*Entry, n)
	for b = b[snapshotHead:]; int64(len(m)) < n; b = b[snapshotEntry:] {
		e := &Entry{
			Epoch:            int16(be.Uint16(b[8:])),
			LastTimestamp:    int64(be.Uint64(b[26:])),
			CoordinatorEpoch: int32(be.Uint32(b[34:])),
			TxnFirst:         int64(be.Uint64(b[38:])),
			seen:             now,
			newest:           noBatch,
		}
		if seq := int32(be.Uint32(b[10:])); seq >= 0 {
			e.push(Batch{LastSequence: seq, LastOffset: int64(be.Uint64(b[14:])), Delta: int32(be.Uint32(b[22:])), Timestamp: e.LastTimestamp})
		}
		id := int64(be.Uint64(b))
		if m[id] != nil {
			return fmt.Errorf("%w: producer %d twice", ErrSnapshot, id)
		}
		m[id] = e
	}
	if err := loadOlder(m, b); err != nil {
		return err
	}
	s.m, s.most = m, len(m)
	return nil
}

// loadOlder gives the producers of m the batches that b, the end of a snapshot, has of them.
func loadOlder(m map[int64]*Entry, b []byte) error {
	be := binary.BigEndian
	for len(b) > 0 {
		if len(b) < olderHead {
			return fmt.Errorf("%w: %d bytes too many", ErrSnapshot, len(b))
		}
		id, n := int64(be.Uint64(b)), int(b[8])
		e := m[id]
		if b = b[olderHead:]; e == nil || e.last() == nil || e.older > 0 || n == 0 || n > Kept-1 || len(b) < n*olderBatch {
			return fmt.Errorf("%w: %d older batches of producer %d", ErrSnapshot, n, id)
		}
		e.before, e.older = new([Kept - 1]Batch), int8(n)
		for i := range n {
			e.before[i] = Batch{LastSequence: int32(be.Uint32(b)), Delta: int32(be.Uint32(b[4:])), LastOffset: int64(be.Uint64(b[8:])),
				Timestamp: int64(be.Uint64(b[16:]))}
			b = b[olderBatch:]
		}
	}
	return nil
}
