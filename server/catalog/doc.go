// Package catalog is the truth about what exists: the broker's identity, the count of its starts, topics with their ids and
// settings, dynamic broker settings, and producer-id blocks. It is kept in an engine/state store.
//
// It does not hold logs or offsets, does not validate settings, and knows no protocol. The server ties its own things (the
// logs of a topic) to a topic by Hooks and Topic.Handle.
//
// Invariants:
//   - a change is durable before it is published, and published before the call returns; if it could not be made durable,
//     no snapshot shows it;
//   - a Snapshot and everything reached from it never changes; reading takes no lock;
//   - a topic id is never given twice, a producer id never handed out twice, over restarts and crashes too;
//   - no two topics have names that differ only in '.' and '_';
//   - the leader epoch of a topic's partitions follows from the number of starts since its creation: 0 in the life in which
//     it was made, two more after each start, as in Apache (design, Seams 8).
//
// # FORMAT
//
// One key for each thing; the first byte of the key is its kind. All values begin with a version byte, 1 now; a value of
// another version, or with bytes missing or left over, is refused. uvarint as in encoding/binary; string = uvarint length
// and bytes; map = uvarint number of pairs, then key string and value string each, in key order.
//
//	'I'          identity: uvarint node id, string cluster id
//	'S'          starts: uvarint
//	'P'          producer ids: uvarint first id that no block holds yet
//	'T' name     topic: 16 bytes id, uvarint partitions, uvarint starts at creation, 1 byte flags (1: internal), map settings
//	'B' node     dynamic broker settings: map; node is the id in decimal, or empty for the cluster-wide default
//
// Kept free for what comes: 'A' ACLs, 'U' SCRAM credentials, 'Q' quotas, 'F' finalized features. Keys of unknown kinds are
// left alone.
package catalog
