package catalog

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
)

const (
	kindIdentity = 'I'
	kindStarts   = 'S'
	kindProducer = 'P'
	kindTopic    = 'T'
	kindBroker   = 'B'
	kindQuota    = 'Q'

	recordVersion = 1
	flagInternal  = 1
	flagEpochBase = 2
)

var (
	errRecordVersion = errors.New("value of an unknown version")
	errRecord        = errors.New("value damaged")
)

func topicKey(name string) []byte  { return append([]byte{kindTopic}, name...) }
func brokerKey(node string) []byte { return append([]byte{kindBroker}, node...) }

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendMap(b []byte, m map[string]string) []byte {
	b = binary.AppendUvarint(b, uint64(len(m)))
	if len(m) == 0 {
		return b
	}
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		b = appendString(appendString(b, k), m[k])
	}
	return b
}

func (t *Topic) append(b []byte) []byte {
	b = append(append(b, recordVersion), t.ID[:]...)
	b = binary.AppendUvarint(b, uint64(t.Partitions))
	b = binary.AppendUvarint(b, t.created)
	flags := byte(0)
	if t.Internal {
		flags |= flagInternal
	}
	if t.epochBase == 0 {
		return appendMap(append(b, flags), t.Configs)
	}
	b = appendMap(append(b, flags|flagEpochBase), t.Configs)
	return binary.AppendUvarint(b, uint64(t.epochBase))
}

func appendNumber(n uint64) []byte { return binary.AppendUvarint([]byte{recordVersion}, n) }

func appendIdentity(node int32, cluster string) []byte {
	return appendString(appendNumber(uint64(node)), cluster)
}

// decoder reads a value; after the first fault everything reads as zero and err stays.
type decoder struct {
	b   []byte
	err error
}

func newDecoder(b []byte) *decoder {
	d := &decoder{b: b}
	if v := d.bytes(1); d.err == nil && v[0] != recordVersion {
		d.fail(errRecordVersion)
	}
	return d
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.b = nil
}

func (d *decoder) number(max uint64) uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > max {
		d.fail(errRecord)
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) bytes(n uint64) []byte {
	if uint64(len(d.b)) < n {
		d.fail(errRecord)
		return nil
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) string() string { return string(d.bytes(d.number(math.MaxInt32))) }

func (d *decoder) pairs() map[string]string {
	n := d.number(uint64(len(d.b)) / 2) // a pair has two lengths at least
	if n == 0 {
		return nil
	}
	m := make(map[string]string, n)
	for range n {
		k := d.string()
		m[k] = d.string()
	}
	return m
}

func (d *decoder) done() error {
	if d.err == nil && len(d.b) > 0 {
		return errRecord
	}
	return d.err
}

func decodeTopic(name string, b []byte) (*Topic, error) {
	d := newDecoder(b)
	t := &Topic{Name: name}
	copy(t.ID[:], d.bytes(16))
	t.Partitions = int32(d.number(math.MaxInt32))
	t.created = d.number(math.MaxUint64)
	flags := byte(0)
	if f := d.bytes(1); d.err == nil {
		flags = f[0]
	}
	t.Internal = flags&flagInternal != 0
	t.Configs = d.pairs()
	if flags&flagEpochBase != 0 {
		t.epochBase = int32(d.number(math.MaxInt32))
	}
	if err := d.done(); err != nil {
		return nil, err
	}
	if t.Partitions == 0 || t.ID == ([16]byte{}) || !LegalName(name) {
		return nil, errRecord
	}
	return t, nil
}

// MaxNameBytes is the longest name of a topic: with a partition's number it is a directory's, and those have at most 255.
const MaxNameBytes = 249

// LegalName reports whether Apache Kafka would accept a topic name: 1 to 249 of [a-zA-Z0-9._-], not "." or "..".
func LegalName(name string) bool {
	if name == "" || len(name) > MaxNameBytes || name == "." || name == ".." {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}
