package batch

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

var allCodecs = []Codec{CodecNone, CodecGzip, CodecSnappy, CodecLZ4, CodecZstd}

// contents are payloads of several kinds and sizes.
func contents() map[string][]byte {
	r := rand.NewChaCha8([32]byte{1})
	noise := make([]byte, 300_000)
	_, _ = r.Read(noise)
	return map[string][]byte{
		"one": {7}, "zeros": make([]byte, 200_000), "noise": noise, "block": noise[:lz4BlockBytes],
		"text": bytes.Repeat([]byte("the quick brown fox "), 9000), "mixed": append(make([]byte, 70_000), noise...),
	}
}

func TestDeflateInflate(t *testing.T) {
	inf, def := NewInflater(1<<20), new(Deflater)
	for name, content := range contents() {
		for _, codec := range allCodecs {
			packed := def.deflate([]byte("before"), codec, content)
			got, err := inf.inflate(codec, packed[6:])
			if err != nil || !bytes.Equal(got, content) || string(packed[:6]) != "before" {
				t.Errorf("%s %s: %v, %d bytes", name, codec, err, len(got))
			}
			if _, err := NewInflater(len(content)-1).inflate(codec, packed[6:]); codec != CodecNone && !errors.Is(err, ErrInflateLimit) {
				t.Errorf("%s %s: limit: %v", name, codec, err)
			}
			if _, err := NewInflater(len(content)).inflate(codec, packed[6:]); err != nil {
				t.Errorf("%s %s: at the limit: %v", name, codec, err)
			}
		}
	}
}

// TestDeflatedIsReadByOthers decompresses with other readers than our own.
func TestDeflatedIsReadByOthers(t *testing.T) {
	def := new(Deflater)
	for name, content := range contents() {
		got, err := io.ReadAll(lz4.NewReader(bytes.NewReader(def.deflate(nil, CodecLZ4, content))))
		if err != nil || !bytes.Equal(got, content) {
			t.Errorf("lz4 %s: %v", name, err)
		}
		z, err := gzip.NewReader(bytes.NewReader(def.deflate(nil, CodecGzip, content)))
		if err == nil {
			got, err = io.ReadAll(z)
		}
		if err != nil || !bytes.Equal(got, content) {
			t.Errorf("gzip %s: %v", name, err)
		}
	}
}

// TestInflateOthers reads what other writers make, with the options that Kafka clients use.
func TestInflateOthers(t *testing.T) {
	inf := NewInflater(1 << 20)
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedBetterCompression))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range contents() {
		check := func(what string, codec Codec, packed []byte) {
			t.Helper()
			got, err := inf.inflate(codec, packed)
			if err != nil || !bytes.Equal(got, content) {
				t.Errorf("%s %s: %v, %d bytes", name, what, err, len(got))
			}
		}
		check("raw snappy block", CodecSnappy, snappy.Encode(nil, content))
		for _, size := range []lz4.BlockSize{lz4.Block64Kb, lz4.Block4Mb} {
			for _, sum := range []bool{false, true} {
				var b bytes.Buffer
				w := lz4.NewWriter(&b)
				err := w.Apply(lz4.BlockSizeOption(size), lz4.BlockChecksumOption(sum), lz4.ChecksumOption(sum), lz4.SizeOption(uint64(len(content))))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := w.Write(content); err != nil {
					t.Fatal(err)
				}
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
				check("lz4", CodecLZ4, b.Bytes())
			}
		}
		half := len(content) / 2
		var b bytes.Buffer
		for _, part := range [][]byte{content[:half], content[half:]} {
			w := gzip.NewWriter(&b)
			_, _ = w.Write(part)
			_ = w.Close()
		}
		check("two gzip members", CodecGzip, b.Bytes())
		check("two zstd frames", CodecZstd, e.EncodeAll(content[half:], e.EncodeAll(content[:half], nil)))
		check("two snappy streams", CodecSnappy, toSnappy(toSnappy(nil, content[:half]), content[half:]))
	}
}

func TestInflateRefuses(t *testing.T) {
	lz4Frame := new(Deflater).deflate(nil, CodecLZ4, bytes.Repeat([]byte("abcdefgh"), 100))
	change := func(i int, to byte) []byte {
		b := bytes.Clone(lz4Frame)
		b[i] = to
		return b
	}
	snappyLie := binary.AppendUvarint(nil, 1<<19)
	for name, c := range map[string]struct {
		codec   Codec
		payload []byte
	}{
		"lz4 magic":           {CodecLZ4, change(0, 0)},
		"lz4 version":         {CodecLZ4, change(4, 0x20)},
		"lz4 dependent":       {CodecLZ4, change(4, 0x40)},
		"lz4 header checksum": {CodecLZ4, change(6, lz4Frame[6]+1)},
		"lz4 block too large": {CodecLZ4, change(9, 0x10)},
		"lz4 no end mark":     {CodecLZ4, lz4Frame[:len(lz4Frame)-1]},
		"snappy size":         {CodecSnappy, append(snappyLie, 1, 2, 3)},
		"snappy chunk":        {CodecSnappy, append(toSnappy(nil, []byte("abc")), 0, 0)},
		"unknown codec":       {5, []byte{1, 2, 3}},
	} {
		got, err := NewInflater(1<<20).inflate(c.codec, c.payload)
		if !errors.Is(err, ErrInflate) || got != nil {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}

// TestInflateLimitInValidate: a batch that decompresses beyond the limit is too large, not corrupt.
func TestInflateLimitInValidate(t *testing.T) {
	rules := DefaultRules()
	rules.FullCompressed = true
	spec := NewSpec()
	spec.Codec = CodecZstd
	set := build(t, nil, spec, []fixtureRecord{{Timestamp: 5, Value: make([]byte, 3<<20)}}, new(Deflater))
	if len(set) > 3000 {
		t.Fatalf("%d bytes", len(set))
	}
	_, rej := Validate(set, &rules, env(NewInflater(1<<20)))
	expect(t, "bomb", rej, 10)
	_, rej = Validate(set, &rules, env(nil))
	expect(t, "within the default", rej, 0)
	if _, _, _, err := FirstAtOrAfter(set, NewInflater(1<<20), 0, 0); err != ErrInflateLimit {
		t.Errorf("cursor: %v", err)
	}
}
