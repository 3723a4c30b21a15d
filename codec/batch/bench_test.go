package batch

import (
	"encoding/binary"
	"fmt"
	"testing"
)

// plainBatch makes an uncompressed batch of records with values of size bytes, without headers; timestamps step by
// 0 or 1 ms.
func plainBatch(records, size int, key []byte) View {
	b := make([]byte, HeaderSize)
	value := make([]byte, size)
	for i := range records {
		body := []byte{0}
		body = appendVarint(body, int64(i/7))
		body = appendVarint(body, int64(i))
		if key == nil {
			body = append(body, 1)
		} else {
			body = append(appendVarint(body, int64(len(key))), key...)
		}
		body = append(appendVarint(body, int64(size)), value...)
		body = append(body, 0)
		b = append(appendVarint(b, int64(len(body))), body...)
	}
	v := View(b)
	v[posMagic] = 2
	binary.BigEndian.PutUint32(v[posLength:], uint32(len(b)-logOverhead))
	binary.BigEndian.PutUint32(v[posLastOffsetDelta:], uint32(records-1))
	binary.BigEndian.PutUint64(v[posBaseTimestamp:], 1_700_000_000_000)
	binary.BigEndian.PutUint64(v[posMaxTimestamp:], uint64(1_700_000_000_000+(records-1)/7))
	binary.BigEndian.PutUint64(v[posProducerID:], ^uint64(0))
	binary.BigEndian.PutUint16(v[posProducerEpoch:], ^uint16(0))
	binary.BigEndian.PutUint32(v[posBaseSequence:], ^uint32(0))
	binary.BigEndian.PutUint32(v[posCount:], uint32(records))
	v.setCRC()
	return v
}

func BenchmarkWalk(b *testing.B) {
	for _, c := range []struct {
		size int
		key  []byte
	}{{100, nil}, {100, []byte("key-12345")}, {10, nil}, {1000, nil}} {
		v := plainBatch(16384/(c.size+10)+1, c.size, c.key)
		b.Run(fmt.Sprintf("size=%d/key=%d", c.size, len(c.key)), func(b *testing.B) {
			for b.Loop() {
				if w := walkFrames(v.Payload(), v.Count(), v.BaseTimestamp(), demands{}); w.fault != faultNone {
					b.Fatal(w)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(v.Count()), "ns/record")
		})
	}
}

func BenchmarkCRC(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 1 << 20} {
		v := plainBatch(size/110, 100, nil)
		b.Run(fmt.Sprintf("size=%dk", size>>10), func(b *testing.B) {
			b.SetBytes(int64(len(v)))
			for b.Loop() {
				if !v.CheckCRC() {
					b.Fatal("CRC")
				}
			}
		})
	}
}

func BenchmarkValidate(b *testing.B) {
	rules := DefaultRules()
	rules.MaxMessageBytes = 2 << 20
	for _, size := range []int{1 << 10, 16 << 10, 1 << 20} {
		v := plainBatch(size/110, 100, nil)
		b.Run(fmt.Sprintf("size=%dk", size>>10), func(b *testing.B) {
			b.SetBytes(int64(len(v)))
			b.ReportAllocs()
			for b.Loop() {
				if _, rej := Validate(v, &rules, &Env{ProduceVersion: 9}); rej != nil {
					b.Fatal(rej)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(v.Count()), "ns/record")
		})
	}
}
