package counters

import (
	"math/bits"
	"sync/atomic"
)

// Buckets is the number of buckets of a Histogram; the last one has no upper bound.
const Buckets = 45

// DurationShift makes a Histogram one of nanoseconds: its bounds are 8.2 µs, 16 µs, 25 µs, 33 µs, 49 µs, … 34 s.
const DurationShift = 13

// Histogram counts whole numbers above 0 in fixed log-linear buckets: two per power of two. Its bounds, inclusive, are 1, 2, 3, 4, 6, 8,
// 12, 16, … times 2^Shift. The zero value is ready, with bounds for sizes. One writer or many; readers wait for nobody.
type Histogram struct {
	Shift  uint8 // set before use
	sum    atomic.Int64
	counts [Buckets]atomic.Int64
}

// Bound is the inclusive upper bound of bucket i, which is not the last.
func (h *Histogram) Bound(i int) int64 {
	switch {
	case i < 2:
		return int64(i+1) << h.Shift
	case i&1 == 0:
		return 3 << (i/2 - 1) << h.Shift
	default:
		return 2 << (i / 2) << h.Shift
	}
}

// bucket is where v belongs.
func (h *Histogram) bucket(v int64) int {
	x := uint64(max(v-1, 0)) >> h.Shift
	if x < 2 {
		return int(x)
	}
	octave := bits.Len64(x) - 1
	return min(2*octave+int(x>>(octave-1)&1), Buckets-1)
}

// Observe counts v.
func (h *Histogram) Observe(v int64) {
	h.counts[h.bucket(v)].Add(1)
	h.sum.Add(v)
}

// AddTo adds what was counted to counts and returns the sum of the values.
func (h *Histogram) AddTo(counts *[Buckets]int64) (sum int64) {
	for i := range h.counts {
		counts[i] += h.counts[i].Load()
	}
	return h.sum.Load()
}

// Count is how many values were counted.
func (h *Histogram) Count() (n int64) {
	for i := range h.counts {
		n += h.counts[i].Load()
	}
	return n
}
