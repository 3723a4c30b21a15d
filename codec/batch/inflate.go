package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
)

// DefaultInflateLimit bounds what one batch may decompress to. A batch of max.message.bytes compresses by a few
// hundred at the very best of real data.
const DefaultInflateLimit = 128 << 20

// inflateKeep is how large an output buffer an Inflater keeps for the next batch.
const inflateKeep = 4 << 20

// zstdLeast is the decoder's own bound where the limit is below it: the decoder refuses windows above its bound, and
// the usual levels declare up to 8 MiB even for short content.
const zstdLeast = 8 << 20

// ErrInflateLimit: a payload decompresses to more than the limit allows.
var ErrInflateLimit = errors.New("batch: decompressed payload exceeds the limit")

// ErrInflate wraps what is wrong with a compressed payload.
var ErrInflate = errors.New("batch: payload cannot be decompressed")

var errCut = errors.New("payload is cut off")

// Inflater decompresses payloads into a buffer of its own, which the next use overwrites. It keeps its decoders and,
// up to 4 MiB, the buffer. Not for use by several goroutines at once.
type Inflater struct {
	limit int
	buf   []byte
	src   bytes.Reader
	gzip  *gzip.Reader
	zstd  *zstd.Decoder
}

// NewInflater returns an Inflater that refuses to produce more than limit bytes from one batch.
func NewInflater(limit int) *Inflater { return &Inflater{limit: limit} }

// inflate returns the record frames in a payload compressed with codec. The result is valid until the next call.
func (n *Inflater) inflate(codec Codec, payload []byte) ([]byte, error) {
	out := n.buf[:0]
	if cap(out) > inflateKeep {
		out = nil
	}
	var err error
	switch codec {
	case CodecNone:
		return payload, nil
	case CodecGzip:
		out, err = n.gunzip(out, payload)
	case CodecSnappy:
		out, err = unsnappy(out, payload, n.limit)
	case CodecLZ4:
		out, err = unlz4(out, payload, n.limit)
	case CodecZstd:
		out, err = n.unzstd(out, payload)
	default:
		err = errors.New("unknown codec")
	}
	n.buf = out[:0]
	if err == nil || err == ErrInflateLimit {
		return out, err
	}
	return nil, fmt.Errorf("%w: %s: %v", ErrInflate, codec, err)
}

// gunzip reads all members of a gzip payload. As Java does, it takes bytes after a member that begin no other member
// for the end.
func (n *Inflater) gunzip(dst, payload []byte) ([]byte, error) {
	n.src.Reset(payload)
	if n.gzip == nil {
		n.gzip = new(gzip.Reader)
	}
	for first := true; ; first = false {
		if err := n.gzip.Reset(&n.src); err != nil {
			if first {
				return dst, err
			}
			return dst, nil
		}
		n.gzip.Multistream(false)
		var err error
		if dst, err = readAll(dst, n.gzip, n.limit); err != nil {
			return dst, err
		}
	}
}

// readAll appends what r gives, growing dst as bytes come.
func readAll(dst []byte, r io.Reader, limit int) ([]byte, error) {
	for {
		if len(dst) == cap(dst) {
			dst = grow(dst, 512)
		}
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		if len(dst) > limit {
			return dst, ErrInflateLimit
		}
		if err == io.EOF {
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
	}
}

// grow makes room for n more bytes.
func grow(dst []byte, n int) []byte {
	if cap(dst)-len(dst) >= n {
		return dst
	}
	return append(make([]byte, 0, max(2*cap(dst), len(dst)+n)), dst...)
}

func (n *Inflater) unzstd(dst, payload []byte) ([]byte, error) {
	if n.zstd == nil {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(uint64(max(n.limit, zstdLeast))))
		if err != nil {
			return dst, err
		}
		n.zstd = d
	}
	dst, err := n.zstd.DecodeAll(payload, dst)
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) || len(dst) > n.limit {
		return dst, ErrInflateLimit
	}
	return dst, err
}

// xerialMagic begins the framing that snappy-java writes: this, two int32 versions, then chunks of an int32 length
// and a raw snappy block each. Other clients send one raw block.
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const xerialHeader = 16

func unsnappy(dst, payload []byte, limit int) ([]byte, error) {
	if len(payload) < xerialHeader || !bytes.HasPrefix(payload, xerialMagic) {
		return snappyBlock(dst, payload, limit)
	}
	for p := xerialHeader; p < len(payload); {
		if bytes.HasPrefix(payload[p:], xerialMagic) && len(payload)-p >= xerialHeader {
			p += xerialHeader // a second stream, appended
			continue
		}
		if len(payload)-p < 4 {
			return dst, errCut
		}
		size := int(int32(binary.BigEndian.Uint32(payload[p:])))
		p += 4
		if size < 0 || size > len(payload)-p {
			return dst, errCut
		}
		var err error
		if dst, err = snappyBlock(dst, payload[p:p+size], limit); err != nil {
			return dst, err
		}
		p += size
	}
	return dst, nil
}

// snappyBlock appends one raw block. Its first bytes say how large it gets; at most 64 bytes can come of 3, so a
// claim beyond that is a lie and allocates nothing.
func snappyBlock(dst, block []byte, limit int) ([]byte, error) {
	size, err := snappy.DecodedLen(block)
	if err != nil {
		return dst, err
	}
	if size > limit-len(dst) {
		return dst, ErrInflateLimit
	}
	if size > 22*len(block) {
		return dst, snappy.ErrCorrupt
	}
	dst = grow(dst, size)
	got, err := snappy.Decode(dst[len(dst):len(dst)+size:cap(dst)], block)
	if err != nil {
		return dst, err
	}
	return dst[:len(dst)+len(got)], nil
}
