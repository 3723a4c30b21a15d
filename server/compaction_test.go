package server

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kaas/server/config"
)

// compactedTopic makes a topic with small segments that is compacted as soon as anything is dirty.
func compactedTopic(t *testing.T, b *Broker, policy string) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(b.Ready().Listeners["PLAINTEXT"]), kgo.DefaultProduceTopic("t"),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ConsumeTopics("t"), kgo.FetchMaxWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	value := func(s string) *string { return &s }
	_, err = kadm.NewClient(c).CreateTopic(t.Context(), 1, 1, map[string]*string{
		"cleanup.policy": value(policy), "segment.bytes": value("16384"), "min.cleanable.dirty.ratio": value("0.01"),
	}, "t")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// until waits for a condition; only a broken broker needs the whole deadline.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(deadline); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not in %v", what, deadline)
		}
	}
}

// TestCompactedTopic: many updates of a few keys shrink by themselves to little more than the last values, and a client reads
// exactly those; a restart changes nothing.
func TestCompactedTopic(t *testing.T) {
	const updates, keys = 10_000, 100
	dir := t.TempDir()
	settings := []string{"log.cleaner.backoff.ms", "10", "log.retention.check.interval.ms", "50"}
	b := start(t, dir, settings...)
	c := compactedTopic(t, b, "compact")
	var records []*kgo.Record
	for i := range updates {
		records = append(records, &kgo.Record{Key: fmt.Append(nil, "key-", i%keys), Value: fmt.Appendf(nil, "value-%0100d", i)})
	}
	for i := 0; i < updates; i += 100 { // batches of a size that fits many into a segment
		if err := c.ProduceSync(t.Context(), records[i:i+100]...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	log := b.topics.ByName("t").Partition(0).Log
	grown := log.SizeBytes()
	until(t, "shrinking", func() bool { return log.SizeBytes() < 3*16384 })
	if o := log.Offsets(); o.LogEnd != updates || o.LogStart != 0 {
		t.Errorf("offsets %+v of a log of %d bytes, %d before", o, log.SizeBytes(), grown)
	}
	got := map[string]string{}
	read := 0
	for last := int64(-1); last < updates-1; {
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		fetches := c.PollFetches(ctx)
		cancel()
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset <= last {
				t.Fatalf("offset %d after %d", r.Offset, last)
			}
			last = r.Offset
			read++
			got[string(r.Key)] = string(r.Value)
		})
	}
	for k := range keys {
		if want := fmt.Sprintf("value-%0100d", updates-keys+k); got[fmt.Sprint("key-", k)] != want {
			t.Errorf("key %d: %s, want %s", k, got[fmt.Sprint("key-", k)], want)
		}
	}
	if len(got) != keys || read > updates/10 {
		t.Errorf("%d keys in %d records", len(got), read)
	}
	stop(t, b)
	b = start(t, dir, settings...)
	defer stop(t, b)
	log = b.topics.ByName("t").Partition(0).Log
	if err := log.Load(); err != nil {
		t.Fatal(err)
	}
	if o := log.Offsets(); o.LogEnd != updates {
		t.Errorf("offsets after a restart %+v", o)
	}
}

// TestCleanerSettings: what is altered in a running broker reaches the engine: compaction that was off starts, by the policy of
// the topic.
func TestCleanerSettings(t *testing.T) {
	b := broker(t, "log.cleaner.threads", "0")
	c := compactedTopic(t, b, "delete")
	log := b.topics.ByName("t").Partition(0).Log
	for i := range 60 {
		r := &kgo.Record{Key: []byte("k"), Value: fmt.Appendf(nil, "%01000d", i)}
		if err := c.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	grown := log.SizeBytes()
	if n := b.engine.Clean(); n != 0 {
		t.Errorf("%d cleans of a topic that is not compacted", n)
	}
	if err := b.topics.AlterTopic("t", []config.Change{{Name: "cleanup.policy", Value: "compact"}}, false, false); err != nil {
		t.Fatal(err)
	}
	alter := []config.Change{{Name: "log.cleaner.threads", Value: "1"}, {Name: "log.cleaner.backoff.ms", Value: "1"}}
	if err := b.topics.AlterBroker(false, alter, false, false); err != nil {
		t.Fatal(err)
	}
	until(t, "compaction", func() bool { return log.SizeBytes() < grown/2 })
}
