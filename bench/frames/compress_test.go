package frames

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/klauspost/crc32"
	"github.com/pierrec/lz4/v4"
)

func TestCompressedBatch(t *testing.T) {
	plain, records, err := makeBatch(4000, 100, 5, "none", lettersCompressed)
	if err != nil {
		t.Fatal(err)
	}
	open := map[string]func([]byte) ([]byte, error){
		"gzip": func(b []byte) ([]byte, error) {
			r, err := gzip.NewReader(bytes.NewReader(b))
			if err != nil {
				return nil, err
			}
			return io.ReadAll(r)
		},
		"snappy": func(b []byte) ([]byte, error) { return snappy.Decode(nil, b) },
		"lz4":    func(b []byte) ([]byte, error) { return io.ReadAll(lz4.NewReader(bytes.NewReader(b))) },
		"zstd": func(b []byte) ([]byte, error) {
			r, err := zstd.NewReader(nil)
			if err != nil {
				return nil, err
			}
			defer r.Close()
			return r.DecodeAll(b, nil)
		},
	}
	for number, name := range Compressions[1:] {
		b, n, err := CompressedBatch(4000, 100, 5, name)
		if err != nil {
			t.Fatal(err)
		}
		be := binary.BigEndian
		if n != records || int(be.Uint16(b[21:])) != number+1 || int(be.Uint32(b[BatchLengthAt:])) != len(b)-BatchLengthEnd || len(b) >= len(plain) {
			t.Errorf("%s: %d records, attributes %d, %d bytes", name, n, be.Uint16(b[21:]), len(b))
		}
		if be.Uint32(b[BatchCRCAt:]) != crc32.Checksum(b[BatchCRCFrom:], Castagnoli) {
			t.Errorf("%s: wrong checksum", name)
		}
		if body, err := open[name](b[BatchHeader:]); err != nil || !bytes.Equal(body, plain[BatchHeader:]) {
			t.Errorf("%s: the records do not come back: %v", name, err)
		}
	}
	if _, _, err := CompressedBatch(4000, 100, 5, "brotli"); err == nil {
		t.Error("an unknown codec was taken")
	}
	a, _, err := CompressedBatch(1000, 100, 5, "")
	if err != nil {
		t.Fatal(err)
	}
	if b, _, err := Batch(1000, 100, 5); err != nil || !bytes.Equal(a, b) {
		t.Errorf("without a codec the batch is not plain: %v", err)
	}
}

func TestDeleteTopics(t *testing.T) {
	got := DeleteTopics(7, "ab", "c")
	want := append(begin(20, 1), 0, 0, 0, 2, 0, 2, 'a', 'b', 0, 1, 'c', 0, 0, 0, 7)
	want[3] = byte(len(want) - 4)
	if !bytes.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
	topic, code, err := DeleteTopicsAnswer([]byte{0, 0, 0, 0, 0, 0, 0, 2, 0, 2, 'a', 'b', 0, 0, 0, 1, 'c', 0, 3})
	if topic != "c" || code != 3 || err != nil {
		t.Errorf("got %q, %d, %v", topic, code, err)
	}
	if _, _, err := DeleteTopicsAnswer([]byte{0, 0, 0, 0, 0, 0, 0, 9}); err == nil {
		t.Error("a cut answer was taken")
	}
}
