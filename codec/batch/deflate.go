package batch

import (
	"encoding/binary"
	"fmt"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// snappyChunk is the chunk size of snappy-java's framing.
const snappyChunk = 32 << 10

// Deflater compresses record frames at each codec's usual level. It keeps its encoders. Not for use by several
// goroutines at once; the zero value is ready.
type Deflater struct {
	frames []byte // scratch for frames that are about to be compressed
	out    appendWriter
	gzip   *gzip.Writer
	zstd   *zstd.Encoder
	lz4    lz4.Compressor
}

// keep holds on to scratch for the next batch, unless it has grown large.
func (d *Deflater) keep(frames []byte) {
	if cap(frames) <= inflateKeep {
		d.frames = frames[:0]
	} else {
		d.frames = nil
	}
}

// appendWriter is the end of a slice as an io.Writer.
type appendWriter struct{ b []byte }

func (w *appendWriter) Write(p []byte) (int, error) {
	w.b = append(w.b, p...)
	return len(p), nil
}

// deflate appends frames compressed with codec, which must be known.
func (d *Deflater) deflate(dst []byte, codec Codec, frames []byte) []byte {
	switch codec {
	case CodecNone:
		return append(dst, frames...)
	case CodecGzip:
		return d.toGzip(dst, frames)
	case CodecSnappy:
		return toSnappy(dst, frames)
	case CodecLZ4:
		return d.toLZ4(dst, frames)
	case CodecZstd:
		return d.toZstd(dst, frames)
	}
	panic(fmt.Sprintf("BUG: compressing with codec %d", codec))
}

func (d *Deflater) toGzip(dst, frames []byte) []byte {
	if d.gzip == nil {
		d.gzip = gzip.NewWriter(nil)
	}
	d.out.b = dst
	d.gzip.Reset(&d.out)
	_, err := d.gzip.Write(frames)
	if err == nil {
		err = d.gzip.Close()
	}
	if err != nil {
		panic(fmt.Sprintf("BUG: gzip into memory: %v", err))
	}
	dst, d.out.b = d.out.b, nil
	return dst
}

func (d *Deflater) toZstd(dst, frames []byte) []byte {
	if d.zstd == nil {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true),
			zstd.WithEncoderCRC(false), zstd.WithZeroFrames(true))
		if err != nil {
			panic(fmt.Sprintf("BUG: zstd options: %v", err))
		}
		d.zstd = e
	}
	return d.zstd.EncodeAll(frames, dst)
}

// toSnappy writes the framing of snappy-java: older Java clients read no other.
func toSnappy(dst, frames []byte) []byte {
	dst = append(dst, xerialMagic...)
	dst = binary.BigEndian.AppendUint32(dst, 1) // version, and the oldest that can read it
	dst = binary.BigEndian.AppendUint32(dst, 1)
	for len(frames) > 0 {
		chunk := frames[:min(snappyChunk, len(frames))]
		frames = frames[len(chunk):]
		at := len(dst)
		room := snappy.MaxEncodedLen(len(chunk))
		dst = grow(dst, 4+room)
		block := snappy.Encode(dst[at+4:at+4+room], chunk)
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(block)))
		dst = dst[:at+4+len(block)]
	}
	return dst
}

func (d *Deflater) toLZ4(dst, frames []byte) []byte {
	at := len(dst)
	dst = binary.LittleEndian.AppendUint32(dst, lz4Magic)
	dst = append(dst, lz4Version|lz4Independent, 4<<4)
	dst = append(dst, byte(xxh32(dst[at+4:])>>8))
	for len(frames) > 0 {
		block := frames[:min(lz4BlockBytes, len(frames))]
		frames = frames[len(block):]
		at := len(dst)
		dst = grow(dst, 4+lz4.CompressBlockBound(len(block)))
		n, err := d.lz4.CompressBlock(block, dst[at+4:cap(dst)])
		if err != nil {
			panic(fmt.Sprintf("BUG: lz4 into enough room: %v", err))
		}
		if n == 0 || n >= len(block) {
			dst = binary.LittleEndian.AppendUint32(dst, uint32(len(block))|lz4Stored)
			dst = append(dst, block...)
			continue
		}
		dst = binary.LittleEndian.AppendUint32(dst, uint32(n))
		dst = dst[:at+4+n]
	}
	return append(dst, 0, 0, 0, 0)
}
