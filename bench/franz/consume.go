package franz

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kaas/bench/load"
)

// ConsumeConfig describes a consume run. With a group its clock runs while the group forms.
type ConsumeConfig struct {
	Config
	Group    string  // empty: partitions are assigned by number
	All      bool    // without a group: every client reads all partitions (fan-out), else they share them
	MaxBytes int     // of an answer; 0: the library's own
	Ends     []int64 // by partition: a run without a limit ends when this has been read; the caller knows them
}

// wanted is how many records are read in a run without limits.
func (c *ConsumeConfig) wanted(starts []int64) int64 {
	n := int64(0)
	for i, end := range c.Ends {
		n += end - starts[i]
	}
	if c.All && c.Group == "" {
		n *= int64(c.Clients)
	}
	return n
}

// Consume reads from the beginning. starts are the first offsets by partition.
func Consume(ctx context.Context, cfg ConsumeConfig, starts []int64) (load.Result, error) {
	if err := cfg.check(); err != nil {
		return load.Result{}, err
	}
	if cfg.Records == 0 && cfg.Duration == 0 && cfg.Bytes == 0 {
		if cfg.Records = cfg.wanted(starts); cfg.Records == 0 {
			return load.Result{}, fmt.Errorf("topic %s is empty", cfg.Topic)
		}
	}
	t := newTally(&cfg.Config)
	t.polls = true
	if err := consume(ctx, &cfg, t, nil, func(*kgo.FetchTopic) {}); err != nil {
		return load.Result{}, err
	}
	return t.result("consume", cfg.Clients, false)
}

// client is number index of the run; it begins at the offsets in from, by partition, or without them at the beginning.
func (c *ConsumeConfig) client(index int, from []int64) (*kgo.Client, error) {
	o := append(c.options(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if c.MaxBytes > 0 {
		o = append(o, kgo.FetchMaxBytes(int32(c.MaxBytes)), kgo.FetchMaxPartitionBytes(int32(c.MaxBytes)))
	}
	if c.Group != "" {
		return kgo.NewClient(append(o, kgo.ConsumerGroup(c.Group), kgo.ConsumeTopics(c.Topic))...)
	}
	own := map[int32]kgo.Offset{}
	for p := range c.Partitions {
		if c.All || p%c.Clients == index {
			own[int32(p)] = kgo.NewOffset().AtStart()
			if from != nil {
				own[int32(p)] = kgo.NewOffset().At(from[p])
			}
		}
	}
	return kgo.NewClient(append(o, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{c.Topic: own}))...)
}

// consume reads with all clients until the tally is full. each is called for what a poll brought.
func consume(ctx context.Context, cfg *ConsumeConfig, t *tally, from []int64, each func(*kgo.FetchTopic)) error {
	if !cfg.All && cfg.Group == "" {
		cfg.Clients = min(cfg.Clients, cfg.Partitions)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		tick := time.NewTicker(10 * time.Millisecond) // a poll without news must end with the run
		defer tick.Stop()
		for !t.over() {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
		cancel()
	}()
	var clients []*kgo.Client
	for i := range cfg.Clients {
		cl, err := cfg.client(i, from)
		if err != nil {
			return err
		}
		defer cl.CloseAllowingRebalance()
		clients = append(clients, cl)
	}
	var group sync.WaitGroup
	for _, cl := range clients {
		group.Add(1)
		go func() {
			defer group.Done()
			for !t.over() {
				poll(ctx, cl, t, each)
			}
		}()
	}
	group.Wait()
	return nil
}

func poll(ctx context.Context, cl *kgo.Client, t *tally, each func(*kgo.FetchTopic)) {
	before := time.Now()
	fetches := cl.PollFetches(ctx)
	if err := fetches.Err0(); err != nil && !errors.Is(err, context.Canceled) {
		t.fail(err)
		return
	}
	fetches.EachError(func(topic string, partition int32, err error) {
		if !errors.Is(err, context.Canceled) {
			t.fail(fmt.Errorf("partition %d: %w", partition, err))
		}
	})
	records, bytes := 0, int64(0)
	fetches.EachTopic(func(ft kgo.FetchTopic) {
		ft.EachRecord(func(r *kgo.Record) {
			records++
			bytes += int64(len(r.Key) + len(r.Value))
		})
		each(&ft)
	})
	if records > 0 {
		latency := time.Since(before)
		if !t.polls {
			latency = 0
		}
		t.add(records, bytes, latency)
	}
}
