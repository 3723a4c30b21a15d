package parsley

// Edge is the running clock of a plain client: it claims what the client has seen and sent, so that nodes deliver what it
// sends next after that. One per thread of the client; not safe for concurrent use. The zero value claims nothing.
//
// A client that pipelines sends has not ordered them among themselves: to order two, call Produced for the first before
// Stamp for the second. The clock only grows.
type Edge struct {
	clock    Clock
	received Clock // memory of Observe
}

// Observe takes in a record that the client read: what it claims (clock is the value of its header vc, nil if it has
// none), and itself. A corrupt clock is an error and changes nothing.
func (e *Edge) Observe(ch Channel, offset int64, clock []byte, rules Rules) error {
	if ch.Partition < 0 || offset < 0 {
		return corrupt("position", 0, ErrNegative)
	}
	if clock != nil {
		if err := e.received.Decode(clock, rules); err != nil {
			return err
		}
		e.clock.Merge(&e.received)
	}
	e.clock.RaiseOffset(ch, offset)
	return nil
}

// Produced takes in the acknowledgement of a record that the client sent. Without an offset (−1, acks=0) it is ignored.
func (e *Edge) Produced(ch Channel, offset int64) { e.clock.RaiseOffset(ch, offset) }

// Clock is the running clock, to read only; it is valid until the next call.
func (e *Edge) Clock() *Clock { return &e.clock }

// Stamp replaces the header vc of a record that is about to be sent. The value lies in buf, which is returned extended.
func (e *Edge) Stamp(hs []Header, buf []byte) ([]Header, []byte) {
	s := Stamp{Clock: e.clock}
	return s.AppendHeaders(hs, buf)
}
