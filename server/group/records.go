package group

import (
	"errors"
	"fmt"
	"slices"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/coordinator"
)

// Versions of what is written, as Apache 3.7 does at its metadata version. Keys: 0 and 1 are offsets, 2 groups; higher ones belong to
// groups of the consumer protocol (KIP-848) and are left alone.
const (
	offsetKeyVersion      int16 = 1
	groupKeyVersion       int16 = 2
	offsetValueVersion    int16 = 3
	offsetExpiringVersion int16 = 1 // the only one with an expire timestamp; it has no leader epoch
	groupValueVersion     int16 = 3
)

// ErrRecord is a record of __consumer_offsets that cannot be read. A shard that holds one is not loaded.
var ErrRecord = errors.New("group: unreadable record")

// arena is memory for the keys and values of one operation, and for the messages that they are made of.
type arena struct {
	w     wire.Writer
	key   api.OffsetCommitKey
	value api.OffsetCommitValue
}

// offsetSize bounds the record of an offset, but for its strings.
const offsetSize = 64

// put appends a version and a message, and returns their bytes.
func (a *arena) put(version int16, m api.Message) []byte {
	from := len(a.w.B)
	a.w.Int16(version)
	m.Encode(&a.w, version)
	if err := a.w.Err; err != nil {
		panic(fmt.Sprintf("BUG: %T v%d: %v", m, version, err))
	}
	return a.w.B[from:len(a.w.B):len(a.w.B)]
}

// offsetKey is the key of an offset.
func (a *arena) offsetKey(group string, k topicPartition) []byte {
	a.key = api.OffsetCommitKey{Group: group, Topic: k.topic.Value(), Partition: k.partition}
	return a.put(offsetKeyVersion, &a.key)
}

// offset is the record of a commit.
func (a *arena) offset(group string, k topicPartition, o *offset) coordinator.Entry {
	a.w.B = slices.Grow(a.w.B, offsetSize+len(group)+len(k.topic.Value())+len(o.metadata))
	a.value = api.OffsetCommitValue{Offset: o.offset, LeaderEpoch: o.epoch, Metadata: o.metadata, CommitTimestamp: o.commit, ExpireTimestamp: o.expire}
	version := offsetValueVersion
	if o.expire >= 0 {
		version = offsetExpiringVersion
	}
	return coordinator.Entry{Key: a.offsetKey(group, k), Value: a.put(version, &a.value)}
}

// groupKey is the key of a group.
func (a *arena) groupKey(id string) []byte {
	return a.put(groupKeyVersion, &api.GroupMetadataKey{Group: id})
}

// metadataEntry is the record of a group as it stands, with the assignments in parts, or those that its members have when that is nil.
func metadataEntry(c *classic, parts map[string][]byte) coordinator.Entry {
	v := api.GroupMetadataValue{
		ProtocolType: c.protocolType, Generation: c.generation, Protocol: c.protocol,
		Leader: wire.NullString{String: c.leader, Valid: c.leader != ""}, CurrentStateTimestamp: c.since,
		Members: make([]api.GroupMetadataValueMemberMetadata, len(c.order)),
	}
	for i, m := range c.order {
		part := m.assignment
		if parts != nil {
			part = parts[m.id]
		}
		v.Members[i] = api.GroupMetadataValueMemberMetadata{
			MemberId: m.id, GroupInstanceId: m.instance, ClientId: m.clientID.Value(), ClientHost: m.clientHost.Value(),
			RebalanceTimeout: int32(m.rebalance.Milliseconds()), SessionTimeout: int32(m.session.Milliseconds()),
			Subscription: m.metadata(c.protocol.String), Assignment: part,
		}
	}
	var a arena
	return coordinator.Entry{Key: a.groupKey(c.g.id), Value: a.put(groupValueVersion, &v)}
}

// decoded is memory for the record that is replayed: what is kept of it is cloned.
type decoded struct {
	r     wire.Reader
	key   api.OffsetCommitKey
	value api.OffsetCommitValue
}

// read decodes a value or a key that begins with its version.
func read(b []byte, m api.Message) (version int16, err error) { return new(decoded).read(b, m) }

// read is the same with a reader that is there.
func (d *decoded) read(b []byte, m api.Message) (version int16, err error) {
	r := &d.r
	r.Reset(b)
	version = r.Int16()
	m.Decode(r, version)
	if err := r.Err(); err != nil {
		return version, fmt.Errorf("%w: %T v%d: %w", ErrRecord, m, version, err)
	}
	return version, nil
}
