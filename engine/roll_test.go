package engine

import (
	"testing"
)

// TestRollOfAFullIndex: a segment ends when the offset index has as many entries as fit into segment.index.bytes, or the time index one
// fewer: as Apache Kafka 3.7.2 ends it, with an entry for each batch but the first of a segment, and times that stay or grow.
func TestRollOfAFullIndex(t *testing.T) {
	for _, c := range []struct {
		index      int
		stay, grow int64 // batches in a segment
	}{{24, 2, 2}, {25, 2, 2}, {36, 5, 3}, {47, 6, 3}, {48, 7, 4}, {72, 10, 6}, {80, 11, 6}} {
		for step, want := range []int64{c.stay, c.grow} {
			cfg := small(1 << 20)
			cfg.SegmentIndexBytes, cfg.IndexIntervalBytes = c.index, 0
			f := newFixture(t)
			l := f.log(true, cfg)
			for i := range int64(40) {
				f.append(l, spec{ts: 1_700_000_000_000 + i*int64(step)})
			}
			for i, s := range l.Segments() {
				if s.BaseOffset != int64(i)*want {
					t.Errorf("segment.index.bytes=%d, times grow by %d: segment %d begins at %d, want %d", c.index, step, i, s.BaseOffset, int64(i)*want)
				}
			}
			if n := int64(len(l.Segments())); n != (40+want-1)/want {
				t.Errorf("segment.index.bytes=%d, times grow by %d: %d segments", c.index, step, n)
			}
			f.close()
		}
	}
}
