package parsley

import (
	"cmp"
	"encoding/binary"
	"strconv"

	"github.com/google/uuid"
)

// CompareUUIDs orders ids as all sorted lists of this wire do: by the first half as a signed integer, then the second.
func CompareUUIDs(a, b uuid.UUID) int { return compareUUIDs(&a, &b) }

func compareUUIDs(a, b *uuid.UUID) int {
	if x, y := half(a[:8]), half(b[:8]); x != y {
		return sign(x < y)
	}
	x, y := half(a[8:]), half(b[8:])
	if x == y {
		return 0
	}
	return sign(x < y)
}

func half(b []byte) int64 { return int64(binary.BigEndian.Uint64(b)) }

func sign(below bool) int {
	if below {
		return -1
	}
	return 1
}

// Channel is one partition of one topic. The id, never the name, says which topic: a topic that was deleted and created
// again under its name is another one. The id has the same 16 bytes as a wire.UUID.
type Channel struct {
	Topic     uuid.UUID
	Partition int32 // >= 0
}

// Compare orders channels by topic and partition.
func (c Channel) Compare(d Channel) int { return compareChannels(&c, &d) }

func compareChannels(a, b *Channel) int {
	if x, y := half(a.Topic[:8]), half(b.Topic[:8]); x != y { // nearly always: ids are random
		return sign(x < y)
	}
	if x, y := half(a.Topic[8:]), half(b.Topic[8:]); x != y {
		return sign(x < y)
	}
	return cmp.Compare(a.Partition, b.Partition)
}

// Append writes the form that store keys use: lower-case id with dashes, a colon, the partition.
func (c Channel) Append(dst []byte) []byte {
	dst = appendUUID(dst, c.Topic)
	dst = append(dst, ':')
	return strconv.AppendInt(dst, int64(c.Partition), 10)
}

// String is the form that store keys use.
func (c Channel) String() string { return string(c.Append(nil)) }

// SequenceKey is what a sequence claim is about: the records that one sender sent to one channel.
type SequenceKey struct {
	Channel
	Sender uuid.UUID
}

// Compare orders by channel, then sender.
func (k SequenceKey) Compare(l SequenceKey) int { return compareSequenceKeys(&k, &l) }

func compareSequenceKeys(a, b *SequenceKey) int {
	if o := compareChannels(&a.Channel, &b.Channel); o != 0 {
		return o
	}
	return compareUUIDs(&a.Sender, &b.Sender)
}

const hexDigits = "0123456789abcdef"

func appendUUID(dst []byte, id uuid.UUID) []byte {

	for i, b := range id {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		dst = append(dst, hexDigits[b>>4], hexDigits[b&15])
	}
	return dst
}
