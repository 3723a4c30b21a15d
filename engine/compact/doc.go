// Package compact is key compaction of sealed segments: what Apache Kafka's log cleaner does with the records.
//
// A clean has two passes. Index reads the dirty part of a log and remembers the last offset of each key, as many as the Map
// has room for. Clean then copies a group of segments into one, without the records that a later one of the same key
// replaces. Both read whole batches with their CRC verified; a record that stays keeps its bytes, its offset and its codec.
//
// It is not the cleaner: which log is cleaned and when, and how a cleaned segment takes the place of others, is the engine's. It
// knows no files but those of the segments given to it, and of a batch only what the Format says.
//
// Invariants (KIP-58, KIP-354, KIP-534): of each key the record with the greatest offset stays; what is not below the indexed end
// stays as it is. A tombstone or transaction marker goes only after a delete horizon that an earlier clean wrote into its batch. The
// data of aborted transactions goes; a marker stays until nothing of its transaction is left. The last batch of a producer stays, if
// only as an empty one, so that its sequence numbers are not lost.
package compact
