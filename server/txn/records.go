package txn

import (
	"errors"
	"fmt"
	"time"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/coordinator"
)

// Versions of what is written, as Apache 3.7 does. Version 1 of the value is read.
const (
	keyVersion   int16 = 0
	valueVersion int16 = 0
)

// ErrRecord is a record of __transaction_state that cannot be read.
var ErrRecord = errors.New("txn: unreadable record")

// logRecord is memory for one record that is encoded or decoded.
type logRecord struct {
	key   api.TransactionLogKey
	value api.TransactionLogValue
}

// appendTo encodes a version and a message, and returns their bytes.
func appendTo(w *wire.Writer, version int16, m api.Message) []byte {
	from := len(w.B)
	w.Int16(version)
	m.Encode(w, version)
	if w.Err != nil {
		panic(fmt.Sprintf("BUG: %T v%d: %v", m, version, w.Err))
	}
	return w.B[from:len(w.B):len(w.B)]
}

// tombstone removes a transactional id.
func tombstone(id string) coordinator.Entry {
	return coordinator.Entry{Key: appendTo(new(wire.Writer), keyVersion, &api.TransactionLogKey{TransactionalId: id})}
}

// fixedSize is what a record takes besides the transactional id and the partitions.
const fixedSize = 4 + 41

// record is a transactional id as it is to become, t. Empty is written without a list of partitions, every other state with one, empty if it has
// none.
func (s *Shard) record(t *txn, now time.Time, partitions []Partition) coordinator.Entry {
	k, v := &s.writes.key, &s.writes.value
	k.TransactionalId = t.id
	v.ProducerId, v.ProducerEpoch, v.TransactionTimeoutMs, v.TransactionStatus = t.producerID, t.epoch, t.timeoutMs, int8(t.status)
	v.TransactionLastUpdateTimestampMs, v.TransactionStartTimestampMs = now.UnixMilli(), t.started
	switch v.TransactionPartitions = v.TransactionPartitions[:0]; {
	case t.status == Empty:
		v.TransactionPartitions = nil
	case v.TransactionPartitions == nil:
		v.TransactionPartitions = []api.TransactionLogValuePartitionsSchema{}
	}
	for i, p := range partitions { // in order: those of a topic are together
		if i == 0 || p.Topic != partitions[i-1].Topic {
			to := api.Next(&v.TransactionPartitions)
			to.Topic, to.PartitionIds = p.Topic, to.PartitionIds[:0]
		}
		last := &v.TransactionPartitions[len(v.TransactionPartitions)-1]
		last.PartitionIds = append(last.PartitionIds, p.Index)
	}
	w := wire.Writer{B: make([]byte, 0, fixedSize+len(t.id)+sizeOf(partitions))}
	return coordinator.Entry{Key: appendTo(&w, keyVersion, k), Value: appendTo(&w, valueVersion, v)}
}

// sizeOf is what partitions take in a record.
func sizeOf(partitions []Partition) int {
	n := 0
	for i, p := range partitions {
		if n += 4; i == 0 || p.Topic != partitions[i-1].Topic {
			n += 6 + len(p.Topic)
		}
	}
	return n
}

// read decodes a key or a value that begins with its version.
func read(b []byte, m api.Message) error {
	r := wire.NewReader(b)
	version := r.Int16()
	m.Decode(&r, version)
	if err := r.Err(); err != nil {
		return fmt.Errorf("%w: %T v%d: %w", ErrRecord, m, version, err)
	}
	return nil
}
