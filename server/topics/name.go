package topics

import (
	"fmt"

	"kaas/codec/api"
)

// Internal topics: written by the broker alone.
const (
	OffsetsTopic      = "__consumer_offsets"
	TransactionsTopic = "__transaction_state"
)

// maxNameBytes is the longest name of a topic: its directory's name must fit a file system's 255.
const maxNameBytes = 249

// IsInternal tells whether a topic belongs to the broker.
func IsInternal(name string) bool { return name == OffsetsTopic || name == TransactionsTopic }

// Error is a refusal in Kafka's terms.
type Error struct {
	Code    api.ErrorCode
	Message string
}

// Error makes a refusal an error.
func (e *Error) Error() string { return fmt.Sprintf("%v: %s", e.Code, e.Message) }

// CheckName refuses names that no topic can have (regression 14).
func CheckName(name string) *Error {
	bad := func(why string) *Error {
		return &Error{Code: api.ErrInvalidTopicException, Message: "Topic name is invalid: " + why}
	}
	switch {
	case name == "":
		return bad("the empty string is not allowed")
	case name == "." || name == "..":
		return bad("'.' or '..' is not allowed")
	case len(name) > maxNameBytes:
		return bad(fmt.Sprintf("the length of '%.40s…' is longer than the max allowed length %d", name, maxNameBytes))
	}
	for i := 0; i < len(name); i++ {
		ch := name[i]
		if !(ch >= 'a' && ch <= 'z' || ch >= 'A' && ch <= 'Z' || ch >= '0' && ch <= '9' || ch == '.' || ch == '_' || ch == '-') {
			return bad(fmt.Sprintf("'%s' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'", name))
		}
	}
	return nil
}
