package load_test

import (
	"sync/atomic"
	"testing"
	"time"

	"kaas/bench/load"
)

// A rate of fetches is kept to, and who reads a partition is told how far it has come: 0 where it begins anew.
func TestFetchRateAndConsumed(t *testing.T) {
	address := startFloor(t)
	p := load.ProduceConfig{
		Brokers: []string{address}, Topic: "t", Partitions: 2, Connections: 2, Pipeline: 1, BatchBytes: 1000, RecordBytes: 100, Acks: 1,
		Limits: load.Limits{Requests: 10},
	}
	written, err := load.Produce(p)
	if err != nil {
		t.Fatal(err)
	}
	each := written.Bytes / 10
	told := map[int][]int64{}
	want := []int64{2 * each, 4 * each, 5 * each, 0, 2 * each}
	const rate = 2000
	var stop atomic.Bool
	r, err := load.Fetch(load.FetchConfig{
		Brokers: []string{address}, Topic: "t", Connections: 2, MaxBytes: int(2 * each), Alike: true, Rate: rate,
		Consumed: func(partition int, bytes int64) {
			told[partition] = append(told[partition], bytes)
			stop.Store(len(told[0]) >= len(want) && len(told[1]) >= len(want))
		},
		Limits: load.Limits{Duration: time.Minute, Stop: &stop},
	})
	if err != nil {
		t.Fatal(err)
	}
	if least := float64(r.Requests-2) / rate; r.Seconds < least {
		t.Errorf("%d requests at %d/s took %v s, less than %v", r.Requests, rate, r.Seconds, least)
	}
	for partition := range 2 {
		got := told[partition]
		if len(got) < len(want) {
			t.Fatalf("partition %d: told %v", partition, got)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("partition %d: told %v, want %v at first", partition, got, want)
				break
			}
		}
	}
	if _, err := load.Fetch(load.FetchConfig{Brokers: []string{address}, Topic: "t", Connections: 1, MaxBytes: 1, Rate: -1, Limits: load.Limits{Requests: 1}}); err == nil {
		t.Error("a rate below 0 was accepted")
	}
}
