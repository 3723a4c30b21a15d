package parsley

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Murmur2 is the hash by which Kafka's producers choose partitions.
func Murmur2(b []byte) uint32 {
	const m, seed = 0x5bd1e995, 0x9747b28c
	h := uint32(seed) ^ uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		k := binary.LittleEndian.Uint32(b) * m
		h = h*m ^ (k^k>>24)*m
	}
	switch len(b) {
	case 3:
		h ^= uint32(b[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(b[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(b[0])) * m
	}
	h = (h ^ h>>13) * m
	return h ^ h>>15
}

// PartitionOf is the partition that a record key belongs to; a nil key belongs to partition 0. What is stamped for one
// partition must be sent to it. partitions must be > 0.
func PartitionOf(key []byte, partitions int32) int32 {
	if partitions <= 0 {
		panic(fmt.Sprintf("BUG: partition of a topic with %d partitions", partitions))
	}
	if key == nil {
		return 0
	}
	return int32(Murmur2(key)&math.MaxInt32) % partitions
}
