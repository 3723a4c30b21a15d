package batch

import (
	"bytes"
	"errors"
	"testing"
)

// modern calls f for every batch of format 2 that Apache could read the header of, in both fixture files.
func modern(t *testing.T, f func(x fixture, fb fixtureBatch, b []byte)) {
	t.Helper()
	n := 0
	for _, file := range []string{"valid.jsonl", "corrupt.jsonl"} {
		for _, x := range fixtures(t, file) {
			b := x.bytes(t)
			for _, fb := range x.Batches {
				if fb.Size < logOverhead || fb.Size > len(b) {
					break
				}
				if fb.Magic == 2 && fb.Size >= HeaderSize {
					n++
					f(x, fb, b[:fb.Size:fb.Size])
				}
				b = b[fb.Size:]
			}
		}
	}
	if n < 110 {
		t.Fatalf("only %d batches", n)
	}
}

func TestViewFields(t *testing.T) {
	modern(t, func(x fixture, fb fixtureBatch, b []byte) {
		v := View(b)
		got := fixtureBatch{
			BaseOffset: v.BaseOffset(), BatchLength: v.Length(), LeaderEpoch: v.PartitionLeaderEpoch(), Magic: v.Magic(),
			CRC: v.CRC(), Attributes: int32(int16(v.Attributes())), LastDelta: v.LastOffsetDelta(),
			BaseTimestamp: v.BaseTimestamp(), MaxTimestamp: v.MaxTimestamp(), ProducerID: v.ProducerID(),
			ProducerEpoch: v.ProducerEpoch(), BaseSequence: v.BaseSequence(), Count: v.Count(), Size: v.Size(),
			LastOffset: v.LastOffset(), Transactional: v.IsTransactional(), Control: v.IsControl(),
			Compression: fb.Compression, TimestampType: "CreateTime",
		}
		if v.IsLogAppendTime() {
			got.TimestampType = "LogAppendTime"
		}
		if v.Codec().Known() && fb.Compression != "" {
			got.Compression = v.Codec().String()
		}
		if v.HasDeleteHorizon() != (fb.DeleteHorizon != nil) || fb.DeleteHorizon != nil && *fb.DeleteHorizon != v.BaseTimestamp() {
			t.Errorf("%s: delete horizon %v, base timestamp %d", x.Name, fb.DeleteHorizon, v.BaseTimestamp())
		}
		if !equalBatch(got, fb) {
			t.Errorf("%s:\n got %+v\nwant %+v", x.Name, got, fb)
		}
		if corrupt := x.Phase == "validity"; v.CheckCRC() == corrupt {
			t.Errorf("%s: CRC good: %v", x.Name, !corrupt)
		}
	})
}

func equalBatch(a, b fixtureBatch) bool {
	a.Records, b.Records, a.DeleteHorizon, b.DeleteHorizon = nil, nil, nil, nil
	return a.String() == b.String()
}

func TestStamping(t *testing.T) {
	v := View(named(t, "v2-idempotent"))
	v.SetBaseOffset(1 << 40)
	v.SetPartitionLeaderEpoch(77)
	if v.BaseOffset() != 1<<40 || v.PartitionLeaderEpoch() != 77 || v.LastOffset() != 1<<40+2 || !v.CheckCRC() {
		t.Errorf("base %d epoch %d last %d crc %v", v.BaseOffset(), v.PartitionLeaderEpoch(), v.LastOffset(), v.CheckCRC())
	}
	before := bytes.Clone(v)
	v.SetMaxTimestamp(v.MaxTimestamp())
	if !bytes.Equal(v, before) {
		t.Error("setting the present maximum changed the batch")
	}
	v[posAttributes], v[posAttributes+1] = 0x81, 0x80|attrTransactional
	v.SetLogAppendTime(42)
	if v.MaxTimestamp() != 42 || v.Attributes() != attrLogAppendTime|attrTransactional || !v.CheckCRC() {
		t.Errorf("max %d attributes %x crc %v", v.MaxTimestamp(), v.Attributes(), v.CheckCRC())
	}
	v.SetMaxTimestamp(42)
	if v.IsLogAppendTime() || !v.CheckCRC() || v.Attributes() != attrTransactional {
		t.Errorf("attributes %x crc %v", v.Attributes(), v.CheckCRC())
	}
}

func TestScan(t *testing.T) {
	three := named(t, "v2-three-batches")
	var sizes []int
	for b := three; len(b) > 0; {
		v, err := Next(b)
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(v))
		b = b[len(v):]
	}
	if len(sizes) != 3 || sizes[0] != 109 || sizes[1] != 117 || sizes[2] != 109 {
		t.Errorf("sizes %v", sizes)
	}
	one := three[:109]
	for n := range one {
		if _, err := Next(one[:n]); err != ErrTorn {
			t.Errorf("%d bytes: %v", n, err)
		}
		if _, err := PeekHeader(one[:n]); (err == nil) != (n >= HeaderSize) {
			t.Errorf("header of %d bytes: %v", n, err)
		}
	}
	for i := range one {
		b := bytes.Clone(one)
		b[i] ^= 0x40
		_, err := Next(b)
		switch {
		case i < posLength || i >= posLeaderEpoch && i < posMagic:
			if err != nil { // not covered by the CRC
				t.Errorf("byte %d: %v", i, err)
			}
		case err == nil:
			t.Errorf("byte %d flipped and not noticed", i)
		case i > posMagic && !errors.Is(err, ErrCorrupt):
			t.Errorf("byte %d: %v", i, err)
		}
	}
	for name, want := range map[string]error{"magic-3": ErrInvalid, "length-48": ErrInvalid, "length--1": ErrInvalid,
		"length-huge": ErrTorn, "crc-wrong": ErrCorrupt, "last-offset-delta--1": ErrInvalid, "count--1": ErrInvalid} {
		for _, f := range fixtures(t, "corrupt.jsonl") {
			if _, err := Next(f.bytes(t)); f.Name == name && err != want {
				t.Errorf("%s: %v, want %v", name, err, want)
			}
		}
	}
	if _, err := Next(make([]byte, 4096)); err != ErrInvalid {
		t.Errorf("zeros: %v", err)
	}
}
