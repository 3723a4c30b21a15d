package engine

import (
	"testing"
	"time"
)

// Each write is told about once, with its bytes; what is refused is not a write.
func TestOnWriteAndStats(t *testing.T) {
	var bytes []int64
	var took time.Duration
	f := newFixture(t, func(c *Config) {
		c.OnWrite = func(n int64, d time.Duration) { bytes, took = append(bytes, n), took+d }
	})
	l := f.log(true, small(4096))
	if s := f.e.Stats(); s != (Stats{}) {
		t.Errorf("before the first append: %+v", s)
	}
	run := []Entry{batch(spec{n: 1}), batch(spec{n: 2})}
	l.Append(run)
	want := int64(len(run[0].Data) + len(run[1].Data))
	if len(bytes) != 1 || bytes[0] != want {
		t.Fatalf("two batches of one run: told about writes of %v bytes, want one of %d", bytes, want)
	}
	if took <= 0 {
		t.Errorf("the write took %v", took)
	}
	l.Append([]Entry{{Data: make([]byte, 5000)}})
	if len(bytes) != 1 {
		t.Errorf("a batch larger than a segment was told about as a write")
	}
	if s := f.e.Stats(); s.OpenFiles != 1 || s.MemoryBytes != 0 {
		t.Errorf("after an append: %+v", s)
	}
}

func TestStatsOfMemory(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.Storage = Memory })
	l := f.log(true, nil)
	f.append(l, spec{n: 3})
	if s := f.e.Stats(); s.MemoryBytes == 0 || s.MemoryBytes != l.SizeBytes() {
		t.Errorf("after an append: %+v", s)
	}
}
