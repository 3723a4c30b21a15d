// Package wire is the lowest layer of Kafka's protocol: big-endian primitives, compact lengths, tagged fields, request and
// response headers, frame sizes. It knows no message (codec/api does) and no socket (netio does).
//
// Invariants:
//   - Bad input never panics. The first fault of a Reader sticks: later reads give zero values, and Err tells what went wrong.
//   - Every length and count is checked against the bytes that remain before anything of that size is allocated.
//   - Strings and byte slices that a Reader gives alias its input: they are valid as long as the input is (design.md,
//     Seams 2). Whoever keeps one longer clones it. Bytes of strings are kept as they are; UTF-8 is not checked.
//   - Null and empty are distinct: NullString, nil slices, Records.
package wire
