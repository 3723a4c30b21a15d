// Package catalog is the truth about what exists: the broker's identity, the count of its starts, topics with their ids and
// settings, dynamic broker settings, client quotas, and producer-id blocks. It is kept in an engine/state store.
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
//     it was made, two more after each start, as in Apache (design, Seams 8). That of an imported topic goes on from the
//     highest that the other broker gave.
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
//	'T' name     topic: 16 bytes id, uvarint partitions, uvarint starts at creation, 1 byte flags (1: internal, 2: with epoch
//	             base), map settings; with epoch base: uvarint to add to the leader epoch
//	'B' node     dynamic broker settings: map; node is the id in decimal, or empty for the cluster-wide default
//	'Q' entity   quotas; entity is, for each of its parts in order of type: string type, 1 byte (1: named, 0: the default),
//	             string name: uvarint number, then string key and 8 bytes (float64, big-endian) each, in key order
//
// A data directory that was imported (Plant) has also what follows. Nothing here uses it yet; it is kept so that nothing is
// lost. Enumerations (resource types, operations, mechanisms…) are Kafka's numbers, 1 byte each.
//
//	'O'          origin: string kind ("kraft"), uvarint offset up to which the metadata log was read
//	'A' id       ACL; id is 16 bytes: resource type, pattern type, operation, permission; strings resource, principal, host
//	'U' m user   SCRAM credential; m is the mechanism, 1 byte: strings salt, stored key, server key; uvarint iterations
//	'F' name     finalized feature: uvarint level
//	'D' id       delegation token: strings owner, requester; uvarint number and strings of renewers; uvarint issued, max,
//	             expires (milliseconds since 1970)
//	'C' name     client metrics subscription: map
//
// Keys of unknown kinds are left alone.
package catalog
