package load

import (
	"testing"
	"time"

	"kaas/bench/floor"
)

// TestHotLoopsAllocateNothing counts the allocations of the whole process, the floor's own loop included.
func TestHotLoopsAllocateNothing(t *testing.T) {
	s, err := floor.Listen("127.0.0.1:0", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve() }()
	defer func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	brokers := []string{s.Address()}
	for _, rate := range []float64{0, 2e4} {
		p, err := newProducer(ProduceConfig{
			Brokers: brokers, Topic: "t", Partitions: 1, Connections: 4, Pipeline: 4, BatchBytes: 1000, RecordBytes: 100, Acks: 1, Rate: rate,
			Limits: Limits{Duration: time.Hour},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.begin(func() {}); err != nil {
			t.Fatal(err)
		}
		allocs(t, "produce", func() error { return p.turn(int64(time.Second)) })
		if p.acked < 300 {
			t.Errorf("only %d requests answered", p.acked)
		}
		p.close()
	}
	for _, alike := range []bool{false, true} {
		f, err := newFetcher(FetchConfig{
			Brokers: brokers, Topic: "t", Connections: 2, MaxBytes: 10_000, Alike: alike, Limits: Limits{Duration: time.Hour},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.begin(); err != nil {
			t.Fatal(err)
		}
		allocs(t, "fetch", func() error { return f.turn(int64(time.Second)) })
		if f.requests < 300 {
			t.Errorf("only %d answers read", f.requests)
		}
		f.close()
	}
}

func allocs(t *testing.T, what string, turn func() error) {
	t.Helper()
	step := func() {
		if err := turn(); err != nil {
			t.Fatal(err)
		}
	}
	for range 300 {
		step() // buffers grow to their size
	}
	if n := testing.AllocsPerRun(300, step); n != 0 {
		t.Errorf("%s: want no allocation per turn, got %v", what, n)
	}
}
