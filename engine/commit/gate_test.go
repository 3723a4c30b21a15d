package commit

import (
	"sync/atomic"
	"testing"
	"time"
)

// TestGate: it opens for the number it waits for and not before, gives up after its time, and leaves no signal behind.
func TestGate(t *testing.T) {
	var g gate
	g.open()
	defer g.close()
	var waiting atomic.Int64
	for range 100 {
		waiting.Store(0)
		go func() {
			for range 3 {
				g.passed(waiting.Add(1))
			}
		}()
		g.wait(&waiting, 3, time.Hour)
		if n := waiting.Load(); n != 3 {
			t.Fatalf("opened for %d of 3", n)
		}
	}
	g.wait(&waiting, 4, time.Microsecond) // nobody comes: it must give up
	if g.target.Load() != 0 {
		t.Error("still armed")
	}
	g.passed(10) // nobody waits: no signal
	g.wait(&waiting, 4, time.Microsecond)
	if waiting.Load() != 3 {
		t.Error("somebody else counted")
	}
}
