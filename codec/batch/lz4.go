package batch

import (
	"encoding/binary"
	"errors"
	"math/bits"

	"github.com/pierrec/lz4/v4"
)

// The LZ4 frame format (version 1) as Kafka uses it: independent blocks, no dictionary. It is taken apart here rather
// than by lz4.Reader, which reads into buffers of its own and allocates them per frame.
const (
	lz4Magic           = 0x184d2204
	lz4Version         = 0x40
	lz4Independent     = 0x20
	lz4BlockChecksum   = 0x10
	lz4ContentSize     = 0x08
	lz4ContentChecksum = 0x04
	lz4Reserved        = 0x03
	lz4Stored          = 1 << 31 // of a block's length: the block is not compressed
	lz4BlockBytes      = 64 << 10
)

var errLZ4 = errors.New("bad lz4 frame")

// unlz4 appends the content of the one frame that payload begins with; what follows the frame is ignored, as by Java.
func unlz4(dst, payload []byte, limit int) ([]byte, error) {
	flags, blockMax, p, err := lz4Header(payload)
	if err != nil {
		return dst, err
	}
	for {
		if len(payload)-p < 4 {
			return dst, errCut
		}
		size := binary.LittleEndian.Uint32(payload[p:])
		p += 4
		if size == 0 {
			break
		}
		n := int(size &^ lz4Stored)
		if n > blockMax {
			return dst, errLZ4
		}
		if n > len(payload)-p {
			return dst, errCut
		}
		block := payload[p : p+n]
		p += n
		if dst, err = lz4Block(dst, block, size&lz4Stored != 0, blockMax, limit); err != nil {
			return dst, err
		}
		if flags&lz4BlockChecksum != 0 {
			if len(payload)-p < 4 {
				return dst, errCut
			}
			if binary.LittleEndian.Uint32(payload[p:]) != xxh32(block) {
				return dst, errLZ4
			}
			p += 4
		}
	}
	if flags&lz4ContentChecksum != 0 && len(payload)-p < 4 {
		return dst, errCut // Apache reads it and does not compare it
	}
	return dst, nil
}

// lz4Block appends the content of one block.
func lz4Block(dst, block []byte, stored bool, blockMax, limit int) ([]byte, error) {
	if stored {
		if len(block) > limit-len(dst) {
			return dst, ErrInflateLimit
		}
		return append(dst, block...), nil
	}
	// One byte of a block makes at most 255 bytes of content.
	dst = grow(dst, min(blockMax, 255*len(block)))
	room := dst[len(dst):cap(dst)]
	n, err := lz4.UncompressBlock(block, room[:min(len(room), blockMax)])
	if err != nil {
		return dst, err
	}
	if n > limit-len(dst) {
		return dst, ErrInflateLimit
	}
	return dst[:len(dst)+n], nil
}

// lz4Header reads the frame descriptor. It returns the flags, the largest block size, and where the first block is.
func lz4Header(b []byte) (flags byte, blockMax, next int, err error) {
	if len(b) < 7 {
		return 0, 0, 0, errCut
	}
	flags = b[4]
	size := b[5] >> 4
	if binary.LittleEndian.Uint32(b) != lz4Magic || flags&0xc0 != lz4Version || flags&lz4Reserved != 0 ||
		flags&lz4Independent == 0 || b[5]&0x8f != 0 || size < 4 {
		return 0, 0, 0, errLZ4
	}
	next = 6
	if flags&lz4ContentSize != 0 {
		next += 8
	}
	if next >= len(b) {
		return 0, 0, 0, errCut
	}
	if b[next] != byte(xxh32(b[4:next])>>8) {
		return 0, 0, 0, errLZ4
	}
	return flags, 1 << (8 + 2*size), next + 1, nil
}

// xxh32 is the 32-bit xxHash with seed 0.
func xxh32(b []byte) uint32 {
	const (
		p1 uint32 = 2654435761
		p2 uint32 = 2246822519
		p3 uint32 = 3266489917
		p4 uint32 = 668265263
		p5 uint32 = 374761393
	)
	h := p5
	size := uint32(len(b))
	if len(b) >= 16 {
		v := [4]uint32{p1, p2, 0, 0}
		v[0] += p2
		v[3] -= p1
		for ; len(b) >= 16; b = b[16:] {
			for i := range v {
				v[i] = bits.RotateLeft32(v[i]+binary.LittleEndian.Uint32(b[4*i:])*p2, 13) * p1
			}
		}
		h = bits.RotateLeft32(v[0], 1) + bits.RotateLeft32(v[1], 7) + bits.RotateLeft32(v[2], 12) + bits.RotateLeft32(v[3], 18)
	}
	h += size
	for ; len(b) >= 4; b = b[4:] {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(b)*p3, 17) * p4
	}
	for _, c := range b {
		h = bits.RotateLeft32(h+uint32(c)*p5, 11) * p1
	}
	h = (h ^ h>>15) * p2
	h = (h ^ h>>13) * p3
	return h ^ h>>16
}
