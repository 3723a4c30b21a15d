package parsley

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

var widths = []int{1, 4, 16, 64, 256}

// topicOf makes ids that look like real ones: all bytes vary, and every second one has a top bit set.
func topicOf(i int) uuid.UUID {
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[:], uint64(i+1)*0x9e3779b97f4a7c15)
	binary.BigEndian.PutUint64(id[8:], uint64(i+1)*0xc2b2ae3d27d4eb4f)
	return id
}

// wideClock has claims on four partitions of each topic; mixed: half of the claims are on sequences.
func wideClock(width int, mixed bool, n int64) *Clock {
	c := new(Clock)
	for i := range width {
		ch := Channel{topicOf(i / 4), int32(i % 4)}
		if mixed && i%2 == 1 {
			c.RaiseSequence(SequenceKey{ch, topicOf(1000 + i)}, n)
		} else {
			c.RaiseOffset(ch, n)
		}
	}
	return c
}

// cpuTime is the CPU time of the process in nanoseconds: wall time says little on a machine that others use.
func cpuTime() int64 {
	var u unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}

func perWidth(b *testing.B, run func(b *testing.B, width int, mixed bool)) {
	for _, mixed := range []bool{false, true} {
		for _, width := range widths {
			claims := "offsets"
			if mixed {
				claims = "mixed"
			}
			b.Run(fmt.Sprintf("claims=%s/width=%d", claims, width), func(b *testing.B) {
				b.ReportAllocs()
				from := cpuTime() // with the preparation, which is next to nothing
				run(b, width, mixed)
				b.ReportMetric(float64(cpuTime()-from)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// Every merge raises every claim: the dearest case without new claims.
func BenchmarkDecodeMerge(b *testing.B) {
	perWidth(b, func(b *testing.B, width int, mixed bool) {
		encoded, target := wideClock(width, mixed, 7).Append(nil), wideClock(width, mixed, 0)
		var c Clock
		for b.Loop() {
			if err := c.Decode(encoded, Strict); err != nil {
				b.Fatal(err)
			}
			for i := range target.offsets {
				target.offsets[i].N = 0
			}
			for i := range target.sequences {
				target.sequences[i].N = 0
			}
			if !target.Merge(&c) {
				b.Fatal("nothing merged")
			}
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	perWidth(b, func(b *testing.B, width int, mixed bool) {
		encoded := wideClock(width, mixed, 7).Append(nil)
		var c Clock
		for b.Loop() {
			if err := c.Decode(encoded, Strict); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Half of the claims are new to the clock.
func BenchmarkMergeNew(b *testing.B) {
	perWidth(b, func(b *testing.B, width int, mixed bool) {
		all, half := wideClock(width, mixed, 7), wideClock(width, mixed, 7)
		odd := false
		half.FilterOffsets(func(OffsetClaim) bool { odd = !odd; return odd })
		half.FilterSequences(func(SequenceClaim) bool { odd = !odd; return odd })
		var c Clock
		for b.Loop() {
			c.CopyFrom(half)
			c.Merge(all)
		}
	})
}

func BenchmarkDominates(b *testing.B) {
	perWidth(b, func(b *testing.B, width int, mixed bool) {
		c, d := wideClock(width, mixed, 7), wideClock(width, mixed, 7)
		for b.Loop() {
			if !c.Dominates(d) {
				b.Fatal("not dominated")
			}
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	perWidth(b, func(b *testing.B, width int, mixed bool) {
		c, buf := wideClock(width, mixed, 7), []byte(nil)
		for b.Loop() {
			buf = c.Append(buf[:0])
		}
	})
}

func BenchmarkHeld(b *testing.B) {
	h := Held{Offset: 1, Tagged: true, Sender: topicOf(1), Clock: *wideClock(4, true, 7), Key: []byte("key"), Value: make([]byte, 100)}
	encoded := h.Append(nil)
	b.Run("op=encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			encoded = h.Append(encoded[:0])
		}
	})
	b.Run("op=decode", func(b *testing.B) {
		b.ReportAllocs()
		var d Held
		for b.Loop() {
			if err := d.Decode(encoded, Strict); err != nil {
				b.Fatal(err)
			}
		}
	})
}
