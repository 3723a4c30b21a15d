// Package api holds Kafka's messages of all versions (API requests and responses, headers, consumer protocol, records of the
// internal topics and of the metadata log), the registry of facts about every API key, and the error codes. All but a few
// lines is generated from the tables in codec/schema/defs. It does not know how a message travels (codec/wire) or what
// is answered (server).
//
// Invariants of every message:
//   - Decode sets every field: those that the version lacks get their defaults. It uses the memory of the message's slices
//     again, recursively: a message that one connection decodes into over and over costs no allocation. What was read
//     before is overwritten, and strings and bytes alias the input (package wire).
//   - Decode leaves bytes that follow the message in the Reader; whether those are an error is the caller's business.
//   - Null and empty are distinct. A slice of a nullable field is null when nil; where null is not allowed nil is written as
//     empty. A nullable string is a wire.NullString, a nullable struct a pointer.
//   - Encode refuses (Writer.Err) a value that the version cannot carry unless the table calls the field ignorable.
//   - The zero value of a message is not its default (many fields default to -1): call Default, or Next for array elements.
package api
