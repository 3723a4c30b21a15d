// Package schema holds the message tables of Kafka's protocol (defs, whose language defs/FORMAT.md describes) and the
// generator that turns them into codec/api. Nothing of it is part of the broker: the tables are read at generation time
// and by tests.
//
// Run `go generate ./codec/schema` after a change; a test fails when codec/api is not what the tables say.
package schema

//go:generate go run ./schemagen -out ../api
