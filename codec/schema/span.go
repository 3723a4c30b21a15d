package schema

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Span is a range of versions, both ends included. Lo > Hi: no version at all.
type Span struct{ Lo, Hi int16 }

// noVersion is what "none" means.
var noVersion = Span{1, 0}

// open is the upper end of "N+".
const open = math.MaxInt16

// parseSpan reads "none", "N", "N-M" or "N+".
func parseSpan(s string) (Span, error) {
	if s == "none" {
		return noVersion, nil
	}
	lo, hi, ranged := strings.Cut(s, "-")
	if from, isOpen := strings.CutSuffix(s, "+"); isOpen {
		lo, hi, ranged = from, strconv.Itoa(open), true
	}
	if !ranged {
		hi = lo
	}
	a, err := strconv.ParseUint(lo, 10, 15)
	if err != nil {
		return noVersion, fmt.Errorf("bad versions %q", s)
	}
	b, err := strconv.ParseUint(hi, 10, 15)
	if err != nil || b < a {
		return noVersion, fmt.Errorf("bad versions %q", s)
	}
	return Span{int16(a), int16(b)}, nil
}

// Empty says whether no version belongs to s.
func (s Span) Empty() bool { return s.Lo > s.Hi }

// Has says whether version belongs to s.
func (s Span) Has(version int16) bool { return s.Lo <= version && version <= s.Hi }

// And is what belongs to both.
func (s Span) And(t Span) Span {
	u := Span{max(s.Lo, t.Lo), min(s.Hi, t.Hi)}
	if u.Empty() {
		return noVersion
	}
	return u
}

// hull is the smallest span around both.
func (s Span) hull(t Span) Span {
	switch {
	case s.Empty():
		return t
	case t.Empty():
		return s
	}
	return Span{min(s.Lo, t.Lo), max(s.Hi, t.Hi)}
}

// String is the form of the tables.
func (s Span) String() string {
	switch {
	case s.Empty():
		return "none"
	case s.Hi == open:
		return fmt.Sprintf("%d+", s.Lo)
	case s.Lo == s.Hi:
		return strconv.Itoa(int(s.Lo))
	}
	return fmt.Sprintf("%d-%d", s.Lo, s.Hi)
}

// condition is the Go expression that says whether version is in s, given that it is in within: "" if always, "false" if never.
func (s Span) condition(within Span) string {
	t := s.And(within)
	var parts []string
	if t.Empty() {
		return "false"
	}
	if t.Lo > within.Lo {
		parts = append(parts, fmt.Sprintf("version >= %d", t.Lo))
	}
	if t.Hi < within.Hi {
		parts = append(parts, fmt.Sprintf("version <= %d", t.Hi))
	}
	return strings.Join(parts, " && ")
}

// expression is condition with "true" for always.
func (s Span) expression(within Span) string {
	if c := s.condition(within); c != "" {
		return c
	}
	return "true"
}

// outside is the opposite of condition: "" if never, "true" if always.
func (s Span) outside(within Span) string {
	t := s.And(within)
	below, above := fmt.Sprintf("version < %d", t.Lo), fmt.Sprintf("version > %d", t.Hi)
	switch {
	case t.Empty():
		return "true"
	case t == within:
		return ""
	case t.Hi == within.Hi:
		return below
	case t.Lo == within.Lo:
		return above
	}
	return "(" + below + " || " + above + ")"
}
