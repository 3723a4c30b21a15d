// Package config holds the settings of the broker and of topics: one table of
// keys, and everything that follows from it.
//
// The table is defs/keys.tsv (with the reasons of classes in defs/reasons.tsv).
// The generator in gen turns it into keys_gen.go and docs/configuration.md, so
// parsing, validation, DescribeConfigs and the documentation cannot disagree.
// Names, types, defaults and validators are Apache Kafka's; names that begin
// with "kaas." are our own.
//
// The package reads the properties file and the host name and nothing else. It
// stores nothing: dynamic broker settings and topic settings are maps that the
// catalog keeps and hands in. It knows no wire format: handlers turn Entry into
// messages.
//
// Invariants: a *Broker never changes after it was made, so it is read without
// locks and replaced as a whole; every value in it has passed its validator; a
// security setting is never ignored (design, Seams 11).
package config

//go:generate go run ./gen
