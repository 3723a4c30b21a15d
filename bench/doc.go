// Package bench is `kaas bench`: it measures Kafka-compatible brokers from outside, over the wire and from /proc.
//
// produce, fetch and connections put a load on any broker (package load). compare runs this program's own broker and the
// floor (package floor: the least work the hardware allows) in turn and judges the result (package compare); report
// writes stored results into BENCHMARKS.md. This package itself only turns flags into calls and results into text.
package bench
