package producer

import (
	"runtime"
	"testing"
)

// TestMemory: a producer that was seen once takes at most 104 bytes, so that a million take 100 MiB, and what expired is given back.
func TestMemory(t *testing.T) {
	const producers, perProducer = 1 << 17, 104
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	var s State
	before := heap()
	for id := range int64(producers) {
		s.Append(id, 0, 0, 0, id, 1, 1, id == 0)
	}
	if used := heap() - before; used > producers*perProducer {
		t.Errorf("%d bytes for %d producers: %d each, want at most %d", used, producers, used/producers, perProducer)
	}
	s.Expire(100, 10)
	if s.Len() != 1 {
		t.Errorf("%d producers left, want the one with an open transaction", s.Len())
	}
	if left := heap() - before; left > producers {
		t.Errorf("%d bytes are left of %d expired producers", left, producers)
	}
	runtime.KeepAlive(&s)
}
