// Package api is the broker's side of every Kafka API it serves: it takes frames from the event loops, finds the handler,
// and answers. One file per API key (000_produce.go, 001_fetch.go, …) opens with the versions served and what each changed.
//
// What it is not: it knows no sockets (netio does), no files (engine does) and no encoding (codec does); it joins them.
//
// Invariants:
//   - The table in handlers.go, joined with the registry of codec/api, is the only place that says what is served. ApiVersions and
//     docs/api-matrix.md come from that join; nothing is advertised that has no handler.
//   - Requests of one connection are in effect handled one at a time, in order: a handler that has to wait for anything but durability
//     holds the connection.
//   - Nothing here blocks an event loop. Work that may block runs on the engine's worker pool with its frame copied.
//   - The produce and fetch paths allocate nothing per request in steady state.
//
// What concerns every API, for docs/api-reference.md (which is made of the comments that open the handlers' files; a line that begins
// with the word below begins a point):
//
// Deviation: clients are not authorized, and only a TLS listener that asks for certificates knows who they are: whoever reaches a port may
// do everything, and authorized operations, where a client asks for them, are all there are. SASL and ACLs are not served yet; their
// settings stop the start.
// Deviation: a partition has one replica, this broker. Nothing is replicated, elected or moved, and a larger replication factor is
// refused, as Apache does with one broker.
// Deviation: under kaas.durability=group-commit the high watermark is the durable end of the log, not its end, so no client sees a record that a
// power cut could take back. Under page-cache it is the end, as with Apache's defaults.
// Deviation: a log whose sync failed takes no more writes until the next start, and the others go on; a full disk fails the appends that
// need room and nothing else, until there is room again. Apache takes its whole log directory offline in either case, and stops when that
// was the last.
package api
