// Package load drives a Kafka-compatible broker over the real wire as cheaply as it can, so that on a machine shared with
// the broker the broker gets the processor.
//
// One goroutine runs an edge-triggered epoll loop over all connections. Request frames are made once (package frames) and
// sent again and again by writev; the answers are not decoded but checked at fixed places: length, correlation id, error code.
// The first wrong answer ends the run with an error. In steady state the loop allocates nothing.
//
// Latency. A closed loop (a connection sends as soon as its window allows) measures from sending to answer. With a rate the
// loop is open: request i is due at start + i/rate whatever the broker does, and its latency counts from then, so that
// a broker that stalls is charged for every request that should have been sent meanwhile (no coordinated omission). Late says how
// much of that is the generator's own: how long after its time a request was handed to its connection.
//
// It is no client library: no retries, no leader changes, no compression, no security.
package load
