// Package server puts a broker together: settings, data directory, catalog, topics, APIs and event loops; it starts them in the order
// in which they depend on each other, and stops them in the other.
//
// What it is not: it handles no request and stores no record.
//
// Invariants: the port opens after recovery, so nobody sees a log that is not whole; the data directory is locked before anything in
// it is touched; on a clean stop everything accepted is synced, whatever the durability.
package server
