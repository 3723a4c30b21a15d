package parsley

import (
	"errors"
	"fmt"
)

// ErrCorrupt is matched by every error for bytes that do not follow the layout. A task that meets one must stop.
var ErrCorrupt = errors.New("parsley: corrupt")

// Why bytes are corrupt: the Err of a CorruptError.
var (
	// ErrTruncated: the bytes end inside a value, or there are none where a value must be.
	ErrTruncated = errors.New("ends too early")
	// ErrTrailing: bytes follow the value.
	ErrTrailing = errors.New("bytes after the end")
	// ErrLength: a value of fixed size has another size, or a length is below −1.
	ErrLength = errors.New("wrong length")
	// ErrVersion: a clock of another version than 1.
	ErrVersion = errors.New("unknown version")
	// ErrNegative: a count, partition, offset, sequence or index below the smallest that is allowed.
	ErrNegative = errors.New("negative number")
	// ErrOrder: entries that are not in ascending order.
	ErrOrder = errors.New("entries out of order")
	// ErrDuplicate: two entries with the same key.
	ErrDuplicate = errors.New("duplicate entry")
	// ErrHalfTag: one of vc-sender and vc-seq without the other.
	ErrHalfTag = errors.New("sender and sequence must come together")
	// ErrTag: a tag byte that is neither 0 nor 1, or an untagged record that names a sender or a sequence.
	ErrTag = errors.New("bad tag")
	// ErrHeaders: a list of other headers that is empty or holds a protocol header.
	ErrHeaders = errors.New("bad list of headers")
	// ErrKey: a store, tick or fold key of none of the known forms.
	ErrKey = errors.New("not a known form")
	// ErrQueue: a queue whose head lies behind its tail.
	ErrQueue = errors.New("head behind tail")
)

// CorruptError says what was corrupt, where, and why.
type CorruptError struct {
	What string // "clock", "vc-seq", "held record", …
	At   int    // byte offset in What of the value that is wrong
	Err  error  // one of the reasons above
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("parsley: corrupt %s: %v at byte %d", e.What, e.Err, e.At)
}

// Unwrap gives the reason.
func (e *CorruptError) Unwrap() error { return e.Err }

// Is makes errors.Is(err, ErrCorrupt) hold.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

func corrupt(what string, at int, err error) error {
	return &CorruptError{What: what, At: at, Err: err}
}

// Rules says how strictly bytes are read.
type Rules uint8

const (
	// Strict refuses everything that no writer of this wire produces.
	Strict Rules = iota
	// Parity reads as the existing implementation does. Clock entries may be unsorted, and of duplicates the last one
	// counts, which can claim too little; one half of a tag is no tag or sequence −1; negative lengths are null; bytes
	// after a value are ignored. Only for comparing with that implementation and for taking over its stores.
	Parity
)
