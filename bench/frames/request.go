package frames

import "encoding/binary"

var be = binary.BigEndian

func begin(key, version int16) []byte {
	b := make([]byte, 4, 128)
	b = be.AppendUint16(b, uint16(key))
	b = be.AppendUint16(b, uint16(version))
	b = be.AppendUint32(b, 0)
	return appendString(b, ClientID)
}

func end(b []byte, more int) []byte {
	be.PutUint32(b, uint32(len(b)-4+more))
	return b
}

func appendString(b []byte, s string) []byte {
	b = be.AppendUint16(b, uint16(len(s)))
	return append(b, s...)
}

// SetCorrelation writes the correlation id into a request frame.
func SetCorrelation(frame []byte, id int32) { be.PutUint32(frame[CorrelationAt:], uint32(id)) }

// ProduceHead is a Produce request for one partition up to the record set; batchBytes bytes of batches must follow it.
func ProduceHead(topic string, partition int32, acks int16, timeoutMs int32, batchBytes int) []byte {
	b := begin(KeyProduce, VersionProduce)
	b = be.AppendUint16(b, 0xffff) // no transactional id
	b = be.AppendUint16(b, uint16(acks))
	b = be.AppendUint32(b, uint32(timeoutMs))
	b = be.AppendUint32(b, 1)
	b = appendString(b, topic)
	b = be.AppendUint32(b, 1)
	b = be.AppendUint32(b, uint32(partition))
	b = be.AppendUint32(b, uint32(batchBytes))
	return end(b, batchBytes)
}

// ProduceHeadBytes is the length of ProduceHead for a topic name of n bytes.
func ProduceHeadBytes(n int) int { return RequestHead + 2 + 2 + 4 + 4 + 2 + n + 4 + 4 + 4 }

// Fetch is a Fetch request for one partition, without a session. offsetAt is where its 8-byte fetch offset is.
func Fetch(topic string, partition, maxWaitMs, minBytes, maxBytes int32) (frame []byte, offsetAt int) {
	b := begin(KeyFetch, VersionFetch)
	b = be.AppendUint32(b, ^uint32(0)) // a consumer
	b = be.AppendUint32(b, uint32(maxWaitMs))
	b = be.AppendUint32(b, uint32(minBytes))
	b = be.AppendUint32(b, uint32(maxBytes))
	b = append(b, 0)                   // read uncommitted
	b = be.AppendUint32(b, 0)          // session id
	b = be.AppendUint32(b, ^uint32(0)) // session epoch -1: none
	b = be.AppendUint32(b, 1)
	b = appendString(b, topic)
	b = be.AppendUint32(b, 1)
	b = be.AppendUint32(b, uint32(partition))
	b = be.AppendUint32(b, ^uint32(0)) // current leader epoch: unknown
	offsetAt = len(b)
	b = be.AppendUint64(b, 0)
	b = be.AppendUint64(b, ^uint64(0)) // log start, of followers only
	b = be.AppendUint32(b, uint32(maxBytes))
	b = be.AppendUint32(b, 0) // no forgotten topics
	b = appendString(b, "")   // no rack
	return end(b, 0), offsetAt
}

// ListOffsets asks for one offset of one partition: timestamp -1 is the end, -2 the beginning.
func ListOffsets(topic string, partition int32, timestamp int64) []byte {
	b := begin(KeyListOffsets, VersionListOffsets)
	b = be.AppendUint32(b, ^uint32(0))
	b = be.AppendUint32(b, 1)
	b = appendString(b, topic)
	b = be.AppendUint32(b, 1)
	b = be.AppendUint32(b, uint32(partition))
	b = be.AppendUint64(b, uint64(timestamp))
	return end(b, 0)
}

// Metadata asks for the given topics, and wants none of them created (none: an empty list, so only the brokers).
func Metadata(topics ...string) []byte {
	b := begin(KeyMetadata, VersionMetadata)
	b = be.AppendUint32(b, uint32(len(topics)))
	for _, t := range topics {
		b = appendString(b, t)
	}
	b = append(b, 0)
	return end(b, 0)
}

// APIVersions asks for the served versions.
func APIVersions() []byte { return end(begin(KeyAPIVersions, VersionAPIVersions), 0) }

// CreateTopics asks for topics of the given number of partitions, one replica each.
func CreateTopics(partitions, timeoutMs int32, topics ...string) []byte {
	b := begin(KeyCreateTopics, VersionCreateTopics)
	b = be.AppendUint32(b, uint32(len(topics)))
	for _, t := range topics {
		b = appendString(b, t)
		b = be.AppendUint32(b, uint32(partitions))
		b = be.AppendUint16(b, 1)
		b = be.AppendUint32(b, 0) // no assignments
		b = be.AppendUint32(b, 0) // no settings
	}
	b = be.AppendUint32(b, uint32(timeoutMs))
	b = append(b, 0) // not only validated
	return end(b, 0)
}

// DeleteTopics asks for topics to be deleted.
func DeleteTopics(timeoutMs int32, topics ...string) []byte {
	b := begin(KeyDeleteTopics, VersionDeleteTopics)
	b = be.AppendUint32(b, uint32(len(topics)))
	for _, t := range topics {
		b = appendString(b, t)
	}
	b = be.AppendUint32(b, uint32(timeoutMs))
	return end(b, 0)
}
