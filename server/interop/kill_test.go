package interop

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	killWriters    = 4
	killPartitions = 3
	killAcksLeast  = 200                    // a round has at least so many acknowledgements before the kill
	killMoreAtMost = 100 * time.Millisecond // and goes on for up to that long
)

// acked is what the writers were promised: the offset of value n of writer w in partition p is acked[p][w][n], -1 when
// the broker acknowledged without saying where (a duplicate whose first answer was lost).
type acked struct {
	mu      sync.Mutex // guards offsets and errors
	offsets [killPartitions][killWriters][]int64
	errors  []error
	count   atomic.Int64
}

func (a *acked) promise(w, n int) func(*kgo.Record, error) {
	return func(r *kgo.Record, err error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		list := &a.offsets[r.Partition][w]
		switch {
		case err != nil:
			a.errors = append(a.errors, fmt.Errorf("partition %d, value %d:%d: %w", r.Partition, w, n, err))
		case n != len(*list):
			a.errors = append(a.errors, fmt.Errorf("partition %d: value %d:%d acknowledged after %d others", r.Partition, w, n, len(*list)))
		default:
			*list = append(*list, r.Offset)
			a.count.Add(1)
		}
	}
}

// write produces numbered values to every partition in turn until stop is closed, then waits for their acknowledgement.
func (a *acked) write(ctx context.Context, c *kgo.Client, topic string, w int, stop <-chan struct{}) error {
	pad := make([]byte, 200)
	for n := 0; ; n++ {
		select {
		case <-stop:
			return c.Flush(ctx)
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		for p := range int32(killPartitions) {
			value := append(fmt.Appendf(nil, "%d:%d:", w, n), pad[:rand.IntN(len(pad))]...)
			c.Produce(ctx, &kgo.Record{Topic: topic, Partition: p, Value: value}, a.promise(w, n))
		}
	}
}

// TestKill: whatever is killed when, everything that idempotent writers with acks=all were promised is there, in order, once.
func TestKill(t *testing.T) {
	if *bootstrap != "" {
		t.Skip("a broker that was not started here is not killed")
	}
	cell(t, "franz-go", "kill", func(t *testing.T) {
		addr, process := startBroker(t)
		topic := newTopic(t, addr, killPartitions)
		ctx, cancel := context.WithTimeout(t.Context(), patience+time.Duration(*kills)*10*time.Second)
		var promised acked
		stop := make(chan struct{})
		var writers sync.WaitGroup
		defer writers.Wait()
		defer cancel()
		for w := range killWriters {
			c := newClient(t, addr,
				kgo.RecordPartitioner(kgo.ManualPartitioner()),
				kgo.MaxBufferedRecords(500),
				kgo.ProducerLinger(0),
				kgo.MetadataMinAge(20*time.Millisecond),
				kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }))
			writers.Go(func() {
				if err := promised.write(ctx, c, topic, w, stop); err != nil {
					t.Error(err)
				}
			})
		}
		for round := range *kills {
			goal := promised.count.Load() + killAcksLeast
			for promised.count.Load() < goal {
				if ctx.Err() != nil {
					t.Fatalf("round %d: only %d acknowledged\n%s", round, promised.count.Load(), process.Stderr())
				}
				time.Sleep(time.Millisecond)
			}
			time.Sleep(rand.N(killMoreAtMost))
			if err := process.Restart(true); err != nil {
				t.Fatal(err)
			}
		}
		close(stop)
		writers.Wait()
		for i, fault := range promised.judge(readAll(t, addr, topic)) {
			if i == 10 {
				t.Fatal("and more")
			}
			t.Error(fault)
		}
		t.Logf("%d kills, %d records acknowledged, all there, in order, once", *kills, promised.count.Load())
	})
}

// judge compares the promises with what is in the partitions and returns every fault.
func (a *acked) judge(got map[int32][]*kgo.Record) []error {
	a.mu.Lock()
	defer a.mu.Unlock()
	faults := append([]error(nil), a.errors...)
	for p := range int32(killPartitions) {
		next, err := sequences(got[p])
		if err != nil {
			faults = append(faults, fmt.Errorf("partition %d: %w", p, err))
			continue
		}
		for w := range killWriters {
			offsets := a.offsets[p][w]
			if next[w] < len(offsets) {
				faults = append(faults, fmt.Errorf("partition %d: %d values of writer %d acknowledged, %d there", p, len(offsets), w, next[w]))
				continue
			}
			for n, offset := range offsets {
				if offset < 0 {
					continue
				}
				want := fmt.Sprintf("%d:%d:", w, n)
				if offset >= int64(len(got[p])) || !strings.HasPrefix(string(got[p][offset].Value), want) {
					faults = append(faults, fmt.Errorf("partition %d: %s was acknowledged at offset %d, where something else is", p, want, offset))
				}
			}
		}
	}
	return faults
}

// TestJudge: the loop above proves nothing if its judge sees nothing.
func TestJudge(t *testing.T) {
	log := func(values ...string) map[int32][]*kgo.Record {
		var rs []*kgo.Record
		for i, v := range values {
			rs = append(rs, &kgo.Record{Offset: int64(i), Value: []byte(v)})
		}
		return map[int32][]*kgo.Record{0: rs}
	}
	shifted := log("0:0:", "0:1:")
	shifted[0][1].Offset = 2
	for _, c := range []struct {
		name    string
		offsets []int64 // acknowledged to writer 0 in partition 0
		got     map[int32][]*kgo.Record
		faults  int
	}{
		{"all there", []int64{0, 2}, log("0:0:", "1:0:", "0:1:"), 0},
		{"one more than acknowledged", []int64{0}, log("0:0:", "0:1:"), 0},
		{"acknowledged without offset", []int64{0, -1}, log("0:0:", "0:1:"), 0},
		{"lost", []int64{0, 1}, log("0:0:"), 1},
		{"twice", []int64{0}, log("0:0:", "0:0:"), 1},
		{"out of order", []int64{0, 1}, log("0:1:", "0:0:"), 1},
		{"elsewhere", []int64{1}, log("0:0:", "1:0:"), 1},
		{"gap in offsets", []int64{0, 1}, shifted, 1},
	} {
		var a acked
		a.offsets[0][0] = c.offsets
		if got := a.judge(c.got); len(got) != c.faults {
			t.Errorf("%s: want %d faults, got %v", c.name, c.faults, got)
		}
	}
	var a acked
	a.promise(0, 0)(&kgo.Record{}, context.Canceled)
	a.promise(0, 1)(&kgo.Record{}, nil)
	if got := a.judge(log()); len(got) != 2 {
		t.Errorf("want a fault for a failed and one for a skipped promise, got %v", got)
	}
}
