package wire

import (
	"encoding/base64"
	"fmt"
)

// NullString is a string that may be null. The zero value is null.
type NullString struct {
	String string
	Valid  bool // false: null, and String is empty
}

// Some is s, not null.
func Some(s string) NullString { return NullString{String: s, Valid: true} }

// UUID is a topic or directory id. The zero value stands for "none" in Kafka.
type UUID [16]byte

// String is Kafka's text form: base64url without padding, 22 characters.
func (u UUID) String() string { return base64.RawURLEncoding.EncodeToString(u[:]) }

// ParseUUID reads the text form.
func ParseUUID(s string) (UUID, error) {
	var u UUID
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != len(u) {
		return UUID{}, fmt.Errorf("wire: %q is no uuid (22 characters of base64url)", s)
	}
	copy(u[:], b)
	return u, nil
}

// Records is a run of record batches, opaque here. Three states:
//   - null: Bytes is nil and External is 0 (the zero value);
//   - bytes: Bytes is not nil, possibly empty;
//   - external: External > 0 bytes that are not in memory follow Bytes (which is nil as a rule). Only a Writer knows this
//     state: it writes the length of both together, then Bytes, and leaves a Cut where the external bytes belong.
type Records struct {
	Bytes    []byte
	External int
}

// Null says whether r is null.
func (r Records) Null() bool { return r.Bytes == nil && r.External == 0 }

// Len is the size in bytes, external ones included.
func (r Records) Len() int { return len(r.Bytes) + r.External }

// Tag is a tagged field that the schema does not name (KIP-482). Messages keep them in ascending order and write them back.
type Tag struct {
	ID   uint32
	Data []byte
}

// FieldError is what a Writer stops with when a message does not fit the version it is written in.
type FieldError struct {
	Field   string // "ProduceRequest.TransactionalId"
	Version int16
	Err     error // ErrUnsupported or ErrNull
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("%v: %s, version %d", e.Err, e.Field, e.Version)
}

func (e *FieldError) Unwrap() error { return e.Err }
