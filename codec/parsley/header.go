package parsley

import (
	"encoding/binary"
	"slices"

	"github.com/google/uuid"
)

// Names of the record headers.
const (
	HeaderClock    = "vc"        // a clock
	HeaderSender   = "vc-sender" // 16 bytes: who sent the record
	HeaderSequence = "vc-seq"    // int64: its number among what that sender sent to that channel
)

// Header is a record header. A nil Value is null.
type Header struct {
	Key   string
	Value []byte
}

// IsProtocolHeader says whether name is one of the three headers of this protocol.
func IsProtocolHeader(name string) bool {
	return name == HeaderClock || name == HeaderSender || name == HeaderSequence
}

// Headers collects the values of the protocol headers of one record. The zero value has none.
type Headers struct {
	clock, sender, sequence []byte // nil: absent or null
}

// Add takes the next header of the record, in order: of several with one name the last one counts, also when it is null.
// It says whether the header belongs to the protocol; the value is kept, not copied.
func (h *Headers) Add(name string, value []byte) bool {
	switch name {
	case HeaderClock:
		h.clock = value
	case HeaderSender:
		h.sender = value
	case HeaderSequence:
		h.sequence = value
	default:
		return false
	}
	return true
}

// Stamp is what the protocol headers of a record say. The zero value is not a stamp of "nothing": use Decode.
type Stamp struct {
	Clock    Clock // empty when there is none
	HasClock bool  // there is a clock, maybe an empty one
	Tagged   bool  // Sender and Sequence are set
	Sender   uuid.UUID
	Sequence int64 // >= 0 when tagged, else −1
}

// Decode reads the headers of one record, the clock into s's memory. After an error s claims nothing and must not be used.
func (s *Stamp) Decode(h *Headers, rules Rules) error {
	s.Clock.Reset()
	s.HasClock, s.Tagged, s.Sender, s.Sequence = h.clock != nil, false, uuid.UUID{}, -1
	if s.HasClock {
		if err := s.Clock.Decode(h.clock, rules); err != nil {
			return err
		}
	}
	var sender uuid.UUID
	sequence, err := int64(-1), error(nil)
	if h.sender != nil {
		if sender, err = DecodeSender(h.sender); err != nil {
			return err
		}
	}
	if h.sequence != nil {
		if sequence, err = DecodeSequence(h.sequence, rules); err != nil {
			return err
		}
	}
	if rules == Strict && (h.sender == nil) != (h.sequence == nil) {
		return corrupt(HeaderSequence, 0, ErrHalfTag)
	}
	if h.sender != nil {
		s.Tagged, s.Sender, s.Sequence = true, sender, sequence
	}
	return nil
}

// DecodeSender reads the value of vc-sender.
func DecodeSender(b []byte) (uuid.UUID, error) {
	if len(b) != len(uuid.UUID{}) {
		return uuid.UUID{}, corrupt(HeaderSender, 0, ErrLength)
	}
	return uuid.UUID(b), nil
}

// DecodeSequence reads the value of vc-seq. Parity allows negative numbers.
func DecodeSequence(b []byte, rules Rules) (int64, error) {
	if len(b) != 8 {
		return 0, corrupt(HeaderSequence, 0, ErrLength)
	}
	n := int64(binary.BigEndian.Uint64(b))
	if n < 0 && rules == Strict {
		return 0, corrupt(HeaderSequence, 0, ErrNegative)
	}
	return n, nil
}

// AppendHeaders takes the headers that s writes out of hs and appends them anew: vc always, and when s is tagged vc-sender
// and vc-seq, in this order. The values lie in buf, which is returned extended; pass it with a length of 0 to use it again.
func (s *Stamp) AppendHeaders(hs []Header, buf []byte) ([]Header, []byte) {
	hs = slices.DeleteFunc(hs, func(h Header) bool {
		return h.Key == HeaderClock || s.Tagged && IsProtocolHeader(h.Key)
	})
	size := s.Clock.Size()
	buf = slices.Grow(buf, size+24)
	at := len(buf)
	buf = s.Clock.Append(buf)
	hs = append(hs, Header{HeaderClock, buf[at:len(buf):len(buf)]})
	if !s.Tagged {
		return hs, buf
	}
	at = len(buf)
	buf = append(buf, s.Sender[:]...)
	hs = append(hs, Header{HeaderSender, buf[at:len(buf):len(buf)]})
	at = len(buf)
	buf = AppendNumber(buf, s.Sequence)
	return append(hs, Header{HeaderSequence, buf[at:len(buf):len(buf)]}), buf
}
