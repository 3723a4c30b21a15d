package api

import (
	"math"

	"kaas/codec/wire"
)

// Message is any message of the tables. Version numbers are those of the message, not of a header.
type Message interface {
	// Decode reads the message from r. A version outside the valid ones fails with wire.ErrVersion.
	Decode(r *wire.Reader, version int16)
	// Encode appends the message to w. A version outside the valid ones fails with wire.ErrVersion.
	Encode(w *wire.Writer, version int16)
	// Default sets every field to its default and keeps the memory of slices.
	Default()
}

// Never is the FlexibleFrom of an API that has no flexible version.
const Never int16 = math.MaxInt16

// Listeners says on which listeners of Apache Kafka 3.7 an API is served.
type Listeners uint8

// The kinds of listener.
const (
	OnZkBroker Listeners = 1 << iota
	OnBroker
	OnController
)

// Fact is what the tables know of an API key.
type Fact struct {
	Key          int16
	Name         string // "Produce"
	Min, Max     int16  // valid versions of request and response
	FlexibleFrom int16  // first flexible version, or Never
	DeprecatedTo int16  // requests up to this version are deprecated; -1: none
	Unstable     bool   // Max is unfinished: offered only with unstable.api.versions.enable=true
	Listeners    Listeners
}

// Lookup finds the facts of a key.
func Lookup(key int16) (Fact, bool) {
	if key < 0 || int(key) >= len(Facts) {
		return Fact{}, false
	}
	return Facts[key], true
}

// Flexible says whether version of the API has compact lengths and tagged fields.
func (f *Fact) Flexible(version int16) bool { return version >= f.FlexibleFrom }

// RequestHeader is the version of the header before a request of version.
func (f *Fact) RequestHeader(version int16) int16 {
	switch {
	case f.Flexible(version):
		return 2
	case f.Key == KeyControlledShutdown && version == 0:
		return 0
	}
	return 1
}

// ResponseHeader is the version of the header before a response of version. That of ApiVersions never has a tagged
// section, for a client reads it before it knows what the broker speaks (KIP-511).
func (f *Fact) ResponseHeader(version int16) int16 {
	if f.Flexible(version) && f.Key != KeyApiVersions {
		return 1
	}
	return 0
}

// Next lengthens an array of structs by one element at its defaults and gives the element, whose own slices keep their
// memory: responses built this way in a message that is used again cost no allocation. The pointer is good until the
// array is lengthened again.
func Next[T any, P interface {
	*T
	Default()
}](array *[]T) *T {
	s := *array
	if len(s) < cap(s) {
		s = s[:len(s)+1]
	} else {
		var zero T
		s = append(s, zero)
	}
	*array = s
	e := &s[len(s)-1]
	P(e).Default()
	return e
}
