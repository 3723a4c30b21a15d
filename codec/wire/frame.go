package wire

import (
	"encoding/binary"
	"math"
)

// RequestHeader is the header of every request, of header version 0, 1 or 2 (FORMAT.md of the message tables, Headers).
type RequestHeader struct {
	Key           int16
	Version       int16
	CorrelationID int32
	ClientID      NullString // header versions 1 and 2
	UnknownTags   []Tag      // header version 2
}

// PeekRequest gives key and version at the front of a request, from which the header's version follows.
func PeekRequest(b []byte) (key, version int16, ok bool) {
	if len(b) < 4 {
		return 0, 0, false
	}
	return int16(binary.BigEndian.Uint16(b)), int16(binary.BigEndian.Uint16(b[2:])), true
}

// Decode reads the header and leaves r at the body.
func (h *RequestHeader) Decode(r *Reader, headerVersion int16) {
	if headerVersion < 0 || headerVersion > 2 {
		r.Fail(ErrVersion)
		return
	}
	h.Key = r.Int16()
	h.Version = r.Int16()
	h.CorrelationID = r.Int32()
	h.ClientID = NullString{}
	h.UnknownTags = h.UnknownTags[:0]
	if headerVersion >= 1 {
		// The client id keeps its int16 length in header version 2.
		h.ClientID = r.NullString(false, true)
	}
	if headerVersion >= 2 {
		h.UnknownTags = r.UnknownTags(h.UnknownTags)
	}
}

// Encode writes the header.
func (h *RequestHeader) Encode(w *Writer, headerVersion int16) {
	if headerVersion < 0 || headerVersion > 2 {
		w.Fail(ErrVersion)
		return
	}
	w.Int16(h.Key)
	w.Int16(h.Version)
	w.Int32(h.CorrelationID)
	if headerVersion >= 1 {
		w.NullString(h.ClientID, false)
	}
	if headerVersion >= 2 {
		w.Tags(h.UnknownTags)
	}
}

// ResponseHeader is the header of every response, of header version 0 or 1.
type ResponseHeader struct {
	CorrelationID int32
	UnknownTags   []Tag // header version 1
}

// Decode reads the header and leaves r at the body.
func (h *ResponseHeader) Decode(r *Reader, headerVersion int16) {
	if headerVersion < 0 || headerVersion > 1 {
		r.Fail(ErrVersion)
		return
	}
	h.CorrelationID = r.Int32()
	h.UnknownTags = h.UnknownTags[:0]
	if headerVersion >= 1 {
		h.UnknownTags = r.UnknownTags(h.UnknownTags)
	}
}

// Encode writes the header.
func (h *ResponseHeader) Encode(w *Writer, headerVersion int16) {
	if headerVersion < 0 || headerVersion > 1 {
		w.Fail(ErrVersion)
		return
	}
	w.Int32(h.CorrelationID)
	if headerVersion >= 1 {
		w.Tags(h.UnknownTags)
	}
}

// Frame is a place in a Writer where a frame, a request or response with its int32 size, begins.
type Frame struct {
	at   int // of the size
	cuts int // how many Cuts came before
}

// BeginFrame leaves room for the size.
func (w *Writer) BeginFrame() Frame {
	f := Frame{at: len(w.B), cuts: len(w.Cuts)}
	w.B = append(w.B, 0, 0, 0, 0)
	return f
}

// EndFrame puts in the size of everything since BeginFrame, external bytes included, and gives it back without the four
// bytes of the size itself. A frame above 2 GiB is an error.
func (w *Writer) EndFrame(f Frame) int {
	n := len(w.B) - f.at - 4
	for _, c := range w.Cuts[f.cuts:] {
		n += c.Len
	}
	if n > math.MaxInt32 {
		w.Fail(ErrSize)
		return 0
	}
	binary.BigEndian.PutUint32(w.B[f.at:], uint32(n))
	return n
}
