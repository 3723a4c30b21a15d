// Package regress holds a test for each way in which brokers that speak Kafka's protocol are known to go wrong, as far as no package of
// its own tests it: docs/regressions.md lists the faults by number, each with the tests that would catch it, and a test here keeps that
// page honest.
//
// The package has no code of its own. It looks at a whole broker from its ports and its data directory, with the messages of franz-go
// (kmsg) instead of this module's, so that an error in the codec does not cancel out. A kill is a copy of the data directory of a
// running broker: the page cache is what a killed process leaves behind.
//
// Nothing is measured by a clock: waits end with what they wait for, or fail after a deadline that no healthy run comes near.
package regress
