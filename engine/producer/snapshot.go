package producer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sort"
)

// The snapshot is Kafka's ProducerSnapshot, version 1: int16 version, uint32 CRC-32C of all that follows, int32 count,
// then 46 bytes for each producer: its last batch only.
const (
	snapshotVersion = 1
	snapshotHead    = 10
	snapshotEntry   = 46
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrSnapshot is the reason of a snapshot that cannot be used.
var ErrSnapshot = errors.New("producer: bad snapshot")

// Snapshot returns the content of a snapshot file, producers in order of their ids.
func (s *State) Snapshot() []byte {
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
	if n*snapshotEntry != int64(len(b)-snapshotHead) {
		return fmt.Errorf("%w: %d producers in %d bytes", ErrSnapshot, n, len(b))
	}
	m := make(map[int64]*Entry, n)
	for b = b[snapshotHead:]; len(b) > 0; b = b[snapshotEntry:] {
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
		m[int64(be.Uint64(b))] = e
	}
	s.m, s.most = m, len(m)
	return nil
}
