// Package parsley is the byte contract of causal delivery: clocks, the three record headers that carry them, the keys and
// values of a node's state store, held records, tick and fold keys, and the names and identities that nodes derive.
//
// It is not a node: it decides nothing, keeps no state store, and knows no broker, no transaction and no time. All that moves
// in it is the running clock of a plain client (Edge).
//
// Invariants:
//   - A Clock is always sorted, without duplicates, without negative numbers. Equal clocks encode to equal bytes.
//   - UUIDs sort by their halves as signed integers, not as bytes: Compare, never bytes.Compare.
//   - What does not follow the layout exactly is corrupt: an error that errors.Is(err, ErrCorrupt) recognises, never an
//     empty clock or a record without a tag. Counts and lengths are checked against the bytes that are there before
//     anything is allocated. Bad bytes never panic.
//   - Rules of Parity read what the existing implementation reads, no less and no more. Writing knows one form only.
//   - Decoding into a value that was used before, merging clocks that know the same channels and every Append
//     into a buffer that is large enough allocate nothing.
//   - Integers are big-endian. A nil slice is null, an empty one is empty.
package parsley
