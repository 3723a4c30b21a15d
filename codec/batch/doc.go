// Package batch reads, checks, stamps and makes Kafka record batches of message format 2 (KIP-98).
//
// It is the only place that knows the layout of a batch. A batch stays a slice of bytes: View peeks at and stamps
// its 61 byte header, Validate does what a produce request does with the records of one partition, Cursor walks
// record frames, and a few writers make new batches (Builder, AppendControl, Rebuild, Recompress).
//
// It is not a codec for record structures: there is none. It knows no offsets of a log, no producer state, no topics,
// and no message formats 0 and 1.
//
// Invariants:
//   - Accepting a batch allocates nothing. Only the base offset, the leader epoch and, where Apache Kafka does it,
//     the timestamp type and maximum timestamp (with a new CRC) are changed; every other byte stays as it was sent.
//   - Nothing panics on bad bytes, and no size read from a batch is trusted before it is checked against the bytes
//     that are there. What decompression may produce is bounded by the Inflater's limit.
//   - A View comes from Peek, Next or Validate, or from bytes that one of them accepted. Its accessors need 61 bytes.
package batch
