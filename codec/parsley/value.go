package parsley

import (
	"encoding/binary"
	"slices"

	"github.com/google/uuid"
)

// AppendNumber writes the value of a frontier (f/), of a send sequence (sq/) and of the header vc-seq.
func AppendNumber(dst []byte, n int64) []byte { return binary.BigEndian.AppendUint64(dst, uint64(n)) }

// DecodeFrontier reads the value of f/<channel>: an offset.
func DecodeFrontier(b []byte, rules Rules) (int64, error) {
	var v [1]int64
	err := numbers("frontier", v[:], b, rules)
	return v[0], err
}

// DecodeSent reads the value of sq/<channel>: the last send sequence that was issued.
func DecodeSent(b []byte, rules Rules) (int64, error) {
	var v [1]int64
	err := numbers("send sequence", v[:], b, rules)
	return v[0], err
}

// Queue is the value of q/<channel>/m: held records have the indices Head <= i < Tail. Indices only grow.
type Queue struct{ Head, Tail int64 }

// Append writes the value.
func (q Queue) Append(dst []byte) []byte { return AppendNumber(AppendNumber(dst, q.Head), q.Tail) }

// DecodeQueue reads the value.
func DecodeQueue(b []byte, rules Rules) (Queue, error) {
	var v [2]int64
	if err := numbers("queue", v[:], b, rules); err != nil {
		return Queue{}, err
	}
	if rules == Strict && v[0] > v[1] {
		return Queue{}, corrupt("queue", 0, ErrQueue)
	}
	return Queue{v[0], v[1]}, nil
}

// Mark is the value of ds/<channel>/<sender>: the highest send sequence that was delivered, and at which offset.
type Mark struct{ Sequence, Offset int64 }

// Append writes the value.
func (m Mark) Append(dst []byte) []byte { return AppendNumber(AppendNumber(dst, m.Sequence), m.Offset) }

// DecodeMark reads the value.
func DecodeMark(b []byte, rules Rules) (Mark, error) {
	var v [2]int64
	if err := numbers("delivered mark", v[:], b, rules); err != nil {
		return Mark{}, err
	}
	return Mark{v[0], v[1]}, nil
}

// numbers reads a value of fixed size. Parity allows bytes after it and negative numbers; dst is zero after an error.
func numbers(what string, dst []int64, b []byte, rules Rules) error {
	if len(b) != 8*len(dst) && (rules == Strict || len(b) < 8*len(dst)) {
		return corrupt(what, 0, ErrLength)
	}
	for i := range dst {
		if dst[i] = int64(binary.BigEndian.Uint64(b[8*i:])); dst[i] < 0 && rules == Strict {
			clear(dst)
			return corrupt(what, 8*i, ErrNegative)
		}
	}
	return nil
}

// Scope is the value of the key scope: the channels that a node consumes and the topics that it sends to.
type Scope struct {
	Channels []Channel
	Sinks    []uuid.UUID
}

// Append sorts both lists, drops duplicates, and writes the value.
func (s *Scope) Append(dst []byte) []byte {
	slices.SortFunc(s.Channels, Channel.Compare)
	slices.SortFunc(s.Sinks, CompareUUIDs)
	s.Channels, s.Sinks = slices.Compact(s.Channels), slices.Compact(s.Sinks)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(s.Channels)))
	for _, c := range s.Channels {
		dst = appendChannel(dst, c)
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(s.Sinks)))
	for _, id := range s.Sinks {
		dst = append(dst, id[:]...)
	}
	return dst
}

// Decode reads the value into s's memory. After an error s is empty.
func (s *Scope) Decode(b []byte, rules Rules) error {
	err := s.decode(b, rules)
	if err != nil {
		s.Channels, s.Sinks = s.Channels[:0], s.Sinks[:0]
	}
	return err
}

func (s *Scope) decode(b []byte, rules Rules) error {
	const what, channelSize, sinkSize = "scope", 20, 16
	n, end, err := section(what, b, 0, channelSize)
	if err != nil {
		return err
	}
	s.Channels = slices.Grow(s.Channels[:0], n)[:n]
	for i := range s.Channels {
		at := 4 + i*channelSize
		readChannel(&s.Channels[i], b[at:])
		if s.Channels[i].Partition < 0 && rules == Strict {
			return corrupt(what, at+16, ErrNegative)
		}
	}
	m, last, err := section(what, b, end, sinkSize)
	if err != nil {
		return err
	}
	s.Sinks = slices.Grow(s.Sinks[:0], m)[:m]
	for i := range s.Sinks {
		copy(s.Sinks[i][:], b[end+4+i*sinkSize:])
	}
	if rules == Parity {
		return nil
	}
	if last != len(b) {
		return corrupt(what, last, ErrTrailing)
	}
	if err := ascending(what, s.Channels, 4, channelSize, Channel.Compare); err != nil {
		return err
	}
	return ascending(what, s.Sinks, end+4, sinkSize, CompareUUIDs)
}

func readChannel(ch *Channel, b []byte) {
	copy(ch.Topic[:], b)
	ch.Partition = int32(binary.BigEndian.Uint32(b[16:]))
}

// section reads the count at b[at:] of entries of size bytes and says where they end.
func section(what string, b []byte, at, size int) (n, end int, err error) {
	if len(b)-at < 4 {
		return 0, 0, corrupt(what, at, ErrTruncated)
	}
	n = int(int32(binary.BigEndian.Uint32(b[at:])))
	if n < 0 {
		return 0, 0, corrupt(what, at, ErrNegative)
	}
	if n > (len(b)-at-4)/size {
		return 0, 0, corrupt(what, at, ErrTruncated)
	}
	return n, at + 4 + n*size, nil
}

// ascending checks a list of entries that begin at byte at and take size bytes each.
func ascending[T any](what string, s []T, at, size int, compare func(a, b T) int) error {
	for i := 1; i < len(s); i++ {
		switch o := compare(s[i-1], s[i]); {
		case o == 0:
			return corrupt(what, at+i*size, ErrDuplicate)
		case o > 0:
			return corrupt(what, at+i*size, ErrOrder)
		}
	}
	return nil
}
