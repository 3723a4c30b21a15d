// Package metrics shows what a broker does and whether it is well, over HTTP on a listener of its own: /metrics in Prometheus' text
// format, /healthz, /readyz, and Go's profiles where they are wanted.
//
// What it is not: it counts nothing (server/metrics/counters does, and the packages that have numbers of their own), and it is never on
// the way of a request.
//
// Invariants:
//   - The table in table.go is the only place that says what is exposed; docs/metrics.md comes from it.
//   - Nothing here waits for a lock that is held over I/O, nor for a disk: what is read is atomic, or guarded for moments, or read by a
//     goroutine that a scrape does not wait for (regression 80).
//   - Without a listener nothing is made and nothing counts; with one, the registry is made at the first scrape.
//   - The number of series is bounded by the code: no label holds a name that a client chose.
package metrics
