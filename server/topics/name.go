package topics

import (
	"fmt"

	"kaas/codec/api"
	"kaas/server/catalog"
)

// Internal topics: written by the broker alone.
const (
	OffsetsTopic      = "__consumer_offsets"
	TransactionsTopic = "__transaction_state"
)

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
	why := fmt.Sprintf("'%s' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'", name)
	switch {
	case catalog.LegalName(name):
		return nil
	case name == "":
		why = "the empty string is not allowed"
	case name == "." || name == "..":
		why = "'.' or '..' is not allowed"
	case len(name) > catalog.MaxNameBytes:
		why = fmt.Sprintf("the length of '%.40s…' is longer than the max allowed length %d", name, catalog.MaxNameBytes)
	}
	return &Error{Code: api.ErrInvalidTopicException, Message: "Topic name is invalid: " + why}
}
