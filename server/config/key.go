package config

import (
	"sort"
	"strings"
)

// Type is the type of a value, numbered as DescribeConfigs v3 numbers it.
type Type int8

// The types of values (KIP-569).
const (
	TypeUnknown  Type = 0
	TypeBoolean  Type = 1
	TypeString   Type = 2
	TypeInt      Type = 3
	TypeShort    Type = 4
	TypeLong     Type = 5
	TypeDouble   Type = 6
	TypeList     Type = 7
	TypeClass    Type = 8
	TypePassword Type = 9
)

// String names the type as Apache Kafka does.
func (t Type) String() string {
	return [...]string{"UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD"}[t]
}

// Class says what a value of a key does in kaas (design, Seams 11).
type Class int8

const (
	// Effective keys do what they say.
	Effective Class = iota
	// Later keys are checked, kept and shown; the feature they steer is being built.
	Later
	// Ignored keys have no meaning on one node; a value is accepted and noted.
	Ignored
	// NotBuilt keys stop the start when set to anything but the default.
	NotBuilt
)

// String names the class as the documentation does.
func (c Class) String() string {
	return [...]string{"effective", "later", "ignored", "not-built"}[c]
}

// Update says how a broker key may be changed while the broker runs (KIP-226).
type Update int8

const (
	// ReadOnly keys stand in the file alone.
	ReadOnly Update = iota
	// PerBroker keys can be changed for a broker.
	PerBroker
	// ClusterWide keys can be changed for a broker and for all.
	ClusterWide
	// DynamicOnly keys can be changed but not stand in the file.
	DynamicOnly
	// TopicLevel marks the keys of topics.
	TopicLevel
)

// rule is a validator beyond type, range and choice.
type rule int8

const (
	ruleNone rule = iota
	ruleNotEmpty
	ruleMetadataVersion
	ruleThrottledReplicas
)

// Synonym names a broker key that gives a topic key its default.
type Synonym struct {
	Name   string
	Factor int64 // the broker value times Factor is the topic value
}

// Key is a row of the table. Rows are constants: do not change them.
type Key struct {
	Name      string
	Type      Type
	Default   string // "" when NoDefault
	NoDefault bool   // the default is null
	Low, High string // inclusive range, "" for none
	Choice    []string
	rule      rule
	Update    Update
	Synonyms  []Synonym // topic keys: broker keys in order of precedence
	Internal  bool      // not shown unless set
	Class     Class
	Reason    string // why the class is not Effective
	Help      string
}

// Sensitive reports whether values must not be shown.
func (k *Key) Sensitive() bool { return k.Type == TypePassword || k.Type == TypeUnknown }

// BrokerKeys returns the keys of brokers in order of name. Read only.
func BrokerKeys() []Key { return brokerKeys[:] }

// TopicKeys returns the keys of topics in order of name. Read only.
func TopicKeys() []Key { return topicKeys[:] }

// BrokerKey returns the row of a broker key, or nil.
func BrokerKey(name string) *Key { return find(brokerKeys[:], name) }

// TopicKey returns the row of a topic key, or nil.
func TopicKey(name string) *Key { return find(topicKeys[:], name) }

func find(keys []Key, name string) *Key {
	i := sort.Search(len(keys), func(i int) bool { return keys[i].Name >= name })
	if i < len(keys) && keys[i].Name == name {
		return &keys[i]
	}
	return nil
}

// listenerPrefix begins the keys that count for one listener alone.
const listenerPrefix = "listener.name."

// listenerKey resolves listener.name.NAME.KEY and, for SASL,
// listener.name.NAME.MECHANISM.KEY to the row of KEY; nil if there is none.
func listenerKey(name string) *Key {
	rest, ok := strings.CutPrefix(name, listenerPrefix)
	if !ok {
		return nil
	}
	// Neither a listener's name nor a mechanism has a fixed form, so the
	// longest suffix that is a key wins.
	for {
		_, after, ok := strings.Cut(rest, ".")
		if !ok {
			return nil
		}
		if k := BrokerKey(after); k != nil {
			return k
		}
		rest = after
	}
}

// dynamicKey is the row of a key that may be altered while the broker runs, for all listeners or one; nil if there is none.
func dynamicKey(name string) *Key {
	if k := BrokerKey(name); k != nil {
		return k
	}
	if k := listenerKey(name); k != nil && k.ownPerListener() {
		return k
	}
	return nil
}

// nearest returns the broker key with the smallest edit distance to name, or ""
// when none is near enough to be what was meant.
func nearest(name string) string {
	best, at := "", min(len(name)/3+2, 7)
	for i := range brokerKeys {
		if d := distance(name, brokerKeys[i].Name, at); d < at {
			best, at = brokerKeys[i].Name, d
		}
	}
	return best
}

// distance is the Levenshtein distance of a and b, or limit if it is not below.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		least := row[0]
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
			least = min(least, row[j+1])
		}
		if least >= limit {
			return limit // later rows are not smaller
		}
	}
	return min(row[len(b)], limit)
}
