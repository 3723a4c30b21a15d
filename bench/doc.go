// Package bench is `kaas bench`: it measures Kafka-compatible brokers from outside, over the wire and from /proc.
//
// produce, consume, e2e, mixed, connections, topics and run put loads on any broker (packages work, load, franz), and write what they saw as text, JSON or a
// page (package report); diff compares two of those. compare runs this program's own broker and the floor (package floor: the
// least work the hardware allows) in turn and judges the result (package compare); rivals does so with other brokers and their clients (package
// rivals); report writes stored results into BENCHMARKS.md. This package itself only turns flags into calls and results into text.
package bench
