package api

import "strconv"

// ErrorCode is an error code on the wire. The zero value is success. Codes that the table does not know are kept as they are.
type ErrorCode int16

type errorFact struct {
	name      string
	meaning   string
	retriable bool
}

func (c ErrorCode) fact() (errorFact, bool) {
	i := int(c) + 1
	if i < 0 || i >= len(errorFacts) {
		return errorFact{}, false
	}
	return errorFacts[i], true
}

// String is Apache Kafka's name, "UNKNOWN_TOPIC_OR_PARTITION", or the number of an unknown code.
func (c ErrorCode) String() string {
	if f, ok := c.fact(); ok {
		return f.name
	}
	return strconv.Itoa(int(c))
}

// Message says in words what the code means; "" for an unknown code.
func (c ErrorCode) Message() string {
	f, _ := c.fact()
	return f.meaning
}

// Retriable says whether a client may try again.
func (c ErrorCode) Retriable() bool {
	f, _ := c.fact()
	return f.retriable
}
