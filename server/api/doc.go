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
package api
