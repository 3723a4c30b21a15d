package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Kafka error codes that this package chooses between.
const (
	CodeInvalidRequest = 42
	CodeInvalidConfig  = 40
)

// Error is a refused setting as a client sees it: a Kafka error code and a text
// in Apache Kafka's words.
type Error struct {
	Code    int16  // CodeInvalidConfig or CodeInvalidRequest
	Key     string // the key at fault, "" when several are
	Message string
}

func (e *Error) Error() string { return e.Message }

// value is a setting in its parsed form.
type value struct {
	text string // as DescribeConfigs shows it
	num  int64  // BOOLEAN (0 or 1), SHORT, INT, LONG
	real float64
	list []string
}

// javaTrim cuts what Java's String.trim cuts.
func javaTrim(s string) string {
	return strings.TrimFunc(s, func(r rune) bool { return r <= ' ' })
}

// parse reads raw as a value of the key and applies the key's validator.
func (k *Key) parse(raw string) (value, *Error) {
	v, why := k.read(javaTrim(raw))
	if why == "" {
		if raw, why = k.check(v); why == "" {
			return v, nil
		}
	}
	// A PASSWORD has no validator, so no secret gets into this message.
	return value{}, &Error{CodeInvalidConfig, k.Name, fmt.Sprintf("Invalid value %s for configuration %s: %s", raw, k.Name, why)}
}

// read converts s by type; why is the complaint, "" for none.
func (k *Key) read(s string) (v value, why string) {
	v.text = s
	switch k.Type {
	case TypeBoolean:
		v.text = strings.ToLower(s)
		switch v.text {
		case "true":
			v.num = 1
		case "false":
		default:
			return v, "Expected value to be either true or false"
		}
	case TypeShort, TypeInt, TypeLong:
		bits := map[Type]int{TypeShort: 16, TypeInt: 32, TypeLong: 64}[k.Type]
		n, err := strconv.ParseInt(s, 10, bits)
		if err != nil {
			return v, "Not a number of type " + k.Type.String()
		}
		v.num, v.text = n, strconv.FormatInt(n, 10)
	case TypeDouble:
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || strings.Trim(s, "0123456789+-.eE") != "" {
			// Go's other forms (1_0, inf, nan) are not Java's.
			return v, "Not a number of type DOUBLE"
		}
		v.real, v.text = f, javaDouble(f)
	case TypeList:
		if s != "" {
			v.list = strings.Split(s, ",")
			for i := range v.list {
				v.list[i] = javaTrim(v.list[i])
			}
			v.text = strings.Join(v.list, ",")
		}
	}
	return v, ""
}

// check applies range, choice and rule. culprit is the part of the value that
// the complaint names.
func (k *Key) check(v value) (culprit, why string) {
	if k.Low != "" && k.compare(v, k.Low) < 0 {
		return v.text, "Value must be at least " + k.Low
	}
	if k.High != "" && k.compare(v, k.High) > 0 {
		return v.text, "Value must be no more than " + k.High
	}
	if k.Choice != nil {
		parts := v.list
		if k.Type != TypeList {
			parts = []string{v.text}
		}
		for _, p := range parts {
			if !slices.Contains(k.Choice, p) {
				return p, "String must be one of: " + strings.Join(k.Choice, ", ")
			}
		}
	}
	switch k.rule {
	case ruleNotEmpty:
		if v.text == "" {
			return "", "String must be non-empty"
		}
	case ruleMetadataVersion:
		if !knownVersion(v.text) {
			return v.text, "Version " + v.text + " is not a valid version"
		}
	case ruleThrottledReplicas:
		if !throttledReplicas(v.list) {
			return "[" + strings.Join(v.list, ", ") + "]", k.Name + " must be the literal '*' or a list of replicas in the following format: " +
				"[partitionId]:[brokerId],[partitionId]:[brokerId],..."
		}
	}
	return "", ""
}

// compare orders v against a bound of the table.
func (k *Key) compare(v value, bound string) int {
	b, why := (&Key{Type: k.Type}).read(bound)
	if why != "" {
		panic(fmt.Sprintf("BUG: bound %q of %s: %s", bound, k.Name, why))
	}
	a, c := v.real-b.real, v.num
	switch {
	case a < 0 || c < b.num:
		return -1
	case a > 0 || c > b.num:
		return 1
	}
	return 0
}

// AllowedText says which values the key takes, for error messages and help.
func (k *Key) AllowedText() string {
	t := strings.ToLower(k.Type.String())
	switch {
	case k.Choice != nil && k.Type == TypeList:
		return "a list of " + strings.Join(k.Choice, ", ")
	case k.Choice != nil:
		return "one of " + strings.Join(k.Choice, ", ")
	case k.High != "":
		return t + " from " + k.Low + " to " + k.High
	case k.Low != "":
		return t + " of at least " + k.Low
	case k.Type == TypeBoolean:
		return "true or false"
	case k.rule == ruleMetadataVersion:
		return "a release such as 3.7 or 3.7-IV4"
	case k.rule == ruleThrottledReplicas:
		return "* or partition:broker, separated by commas"
	}
	return t
}

// javaDouble writes f as Java's Double.toString does.
func javaDouble(f float64) string {
	if math.IsInf(f, 0) {
		return strings.TrimPrefix(strings.Replace(strconv.FormatFloat(f, 'f', -1, 64), "Inf", "Infinity", 1), "+")
	}
	if a := math.Abs(f); f == 0 || a >= 1e-3 && a < 1e7 {
		s := strconv.FormatFloat(f, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	}
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'E', -1, 64), "E")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	e, _ := strconv.Atoi(exponent)
	return mantissa + "E" + strconv.Itoa(e)
}

func throttledReplicas(list []string) bool {
	if len(list) == 1 && list[0] == "*" {
		return true
	}
	for _, pair := range list {
		partition, broker, ok := strings.Cut(pair, ":")
		if pair != "" && (!ok || !digits(partition) || !digits(broker)) {
			return false
		}
	}
	return true
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// metadataVersions counts the -IVn of each release that a version setting may
// name; 0 for releases named without.
var metadataVersions = [...]struct {
	release string
	steps   int
}{
	{"0.8.0", 0}, {"0.8.1", 0}, {"0.8.2", 0}, {"0.9.0", 0}, {"0.10.0", 2}, {"0.10.1", 3}, {"0.10.2", 1}, {"0.11.0", 3},
	{"1.0", 1}, {"1.1", 1}, {"2.0", 2}, {"2.1", 3}, {"2.2", 2}, {"2.3", 2}, {"2.4", 2}, {"2.5", 1}, {"2.6", 1}, {"2.7", 3}, {"2.8", 2},
	{"3.0", 2}, {"3.1", 1}, {"3.2", 1}, {"3.3", 4}, {"3.4", 1}, {"3.5", 3}, {"3.6", 3}, {"3.7", 5}, {"3.8", 1},
}

// knownVersion accepts a release, a patch release of it, or one of its steps
// (3.7, 3.7.2, 3.7-IV4).
func knownVersion(s string) bool {
	release, step, hasStep := strings.Cut(s, "-IV")
	parts := strings.Split(release, ".")
	want := 2
	if parts[0] == "0" {
		want = 3
	}
	if len(parts) > want {
		release = strings.Join(parts[:want], ".")
	}
	for _, m := range metadataVersions {
		if m.release == release {
			n, err := strconv.Atoi(step)
			return !hasStep || err == nil && n >= 0 && n < m.steps && step == strconv.Itoa(n)
		}
	}
	return false
}
