package batch

import "encoding/binary"

// ControlType is the type in the key of a control record.
type ControlType int16

// The markers that end a transaction. Other types (leader change, snapshots) stand in KRaft's own log only.
const (
	ControlAbort  ControlType = 0
	ControlCommit ControlType = 1
)

// String returns the name that kafka-dump-log prints.
func (t ControlType) String() string {
	switch t {
	case ControlAbort:
		return "ABORT"
	case ControlCommit:
		return "COMMIT"
	}
	return "UNKNOWN"
}

// Marker is the end of a transaction in one partition.
type Marker struct {
	BaseOffset       int64
	LeaderEpoch      int32
	TimestampMs      int64
	ProducerID       int64
	ProducerEpoch    int16
	Type             ControlType
	CoordinatorEpoch int32
}

// AppendMarker appends the control batch of m: one record with key {int16 0, int16 type} and value {int16 0, int32
// coordinator epoch}.
func AppendMarker(dst []byte, m Marker) []byte {
	spec := NewSpec()
	spec.BaseOffset, spec.LeaderEpoch = m.BaseOffset, m.LeaderEpoch
	spec.ProducerID, spec.ProducerEpoch = m.ProducerID, m.ProducerEpoch
	spec.Transactional, spec.Control = true, true
	var key [4]byte
	var value [6]byte
	binary.BigEndian.PutUint16(key[2:], uint16(m.Type))
	binary.BigEndian.PutUint32(value[2:], uint32(m.CoordinatorEpoch))
	var b Builder
	b.Begin(dst, spec)
	b.Append(m.TimestampMs, key[:], value[:])
	return b.End(nil)
}

// ReadMarker reads the marker in v. ok is false if v is no control batch, has lost its record to compaction, or
// holds another type of control record (then m.Type says which). It reads versions above 0 by their first fields.
func ReadMarker(v View) (m Marker, ok bool) {
	if !v.IsControl() || v.Codec() != CodecNone {
		return m, false
	}
	m = Marker{BaseOffset: v.BaseOffset(), LeaderEpoch: v.PartitionLeaderEpoch(), ProducerID: v.ProducerID(),
		ProducerEpoch: v.ProducerEpoch()}
	var c Cursor
	if c.Open(v, nil) != nil || !c.Next() || len(c.Key()) < 4 {
		return m, false
	}
	m.TimestampMs = c.Timestamp()
	m.Type = ControlType(binary.BigEndian.Uint16(c.Key()[2:]))
	if m.Type != ControlAbort && m.Type != ControlCommit || len(c.Value()) < 6 {
		return m, false
	}
	m.CoordinatorEpoch = int32(binary.BigEndian.Uint32(c.Value()[2:]))
	return m, true
}
