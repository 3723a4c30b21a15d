//go:build interop

package interop

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"kaas/codec/batch"
)

// compactor is a broker with a compacted topic, written and read by raw batches.
type compactor struct {
	t     *testing.T
	name  string
	c     *kgo.Client
	topic string
}

func newCompactor(t *testing.T, name, addr string, retentionMs int) *compactor {
	c := &compactor{t: t, name: name, topic: fmt.Sprint("compacted-", retentionMs)}
	c.c = newClient(t, addr, kgo.MaxVersions(kversion.V2_7_0()))
	value := func(s string) *string { return &s }
	_, err := kadm.NewClient(c.c).CreateTopic(newContext(t), 1, 1, map[string]*string{
		"cleanup.policy": value("compact"), "segment.bytes": value("3000"), "min.cleanable.dirty.ratio": value("0.01"),
		"delete.retention.ms": value(fmt.Sprint(retentionMs)), "index.interval.bytes": value("500"),
	}, c.topic)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *compactor) produce(set []byte) {
	c.t.Helper()
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 30_000
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = c.topic
	part := kmsg.NewProduceRequestTopicPartition()
	part.Records = set
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(newContext(c.t), c.c)
	if err != nil {
		c.t.Fatal(err)
	}
	if p := resp.Topics[0].Partitions[0]; p.ErrorCode != 0 {
		c.t.Fatalf("%s: produce: error %d", c.name, p.ErrorCode)
	}
}

// dump reads the whole log and shows every batch and record, but for what depends on when a clean ran.
func (c *compactor) dump(ctx context.Context, end int64) []string {
	c.t.Helper()
	var out []string
	for at := int64(0); at < end; {
		req := kmsg.NewPtrFetchRequest()
		req.MaxWaitMillis, req.MaxBytes = 100, 1<<20
		topic := kmsg.NewFetchRequestTopic()
		topic.Topic = c.topic
		part := kmsg.NewFetchRequestTopicPartition()
		part.FetchOffset, part.PartitionMaxBytes = at, 1<<20
		topic.Partitions = append(topic.Partitions, part)
		req.Topics = append(req.Topics, topic)
		resp, err := req.RequestWith(ctx, c.c)
		if err != nil {
			c.t.Fatal(err)
		}
		p := resp.Topics[0].Partitions[0]
		if p.ErrorCode != 0 {
			c.t.Fatalf("%s: fetch at %d: error %d", c.name, at, p.ErrorCode)
		}
		for b := p.RecordBatches; len(b) > 0; {
			v, err := batch.Next(b)
			if err == batch.ErrTorn {
				break
			}
			if err != nil {
				c.t.Fatalf("%s: batch at %d: %v", c.name, at, err)
			}
			out = append(out, show(c.t, v)...)
			at, b = v.LastOffset()+1, b[v.Size():]
		}
	}
	return out
}

func show(t *testing.T, v batch.View) []string {
	out := []string{fmt.Sprintf("batch %d-%d attributes %x producer %d/%d sequence %d count %d max timestamp %d", v.BaseOffset(), v.LastOffset(),
		v.Attributes(), v.ProducerID(), v.ProducerEpoch(), v.BaseSequence(), v.Count(), v.MaxTimestamp())}
	var c batch.Cursor
	if err := c.Open(v, nil); err != nil {
		t.Fatal(err)
	}
	for c.Next() {
		out = append(out, fmt.Sprintf("  %d at %d %q=%q null %v", c.Offset(), c.Timestamp(), c.Key(), c.Value(), c.Value() == nil))
	}
	if c.Err() != nil {
		t.Fatal(c.Err())
	}
	return out
}

// keyedHistory makes batches of every codec with updates and tombstones of a few keys, some by idempotent producers.
func keyedHistory(rng *rand.Rand, batches int, seq map[int64]int32) (sets [][]byte, records int64) {
	def := new(batch.Deflater)
	for i := range batches {
		spec := batch.NewSpec()
		spec.Codec = batch.Codec(rng.IntN(5))
		n := 1 + rng.IntN(5)
		if pid := int64(rng.IntN(4)); pid > 0 {
			spec.ProducerID, spec.ProducerEpoch, spec.BaseSequence = 9000+pid, 0, seq[pid]
			seq[pid] += int32(n)
		}
		var b batch.Builder
		b.Begin(nil, spec)
		for range n {
			var value []byte
			if rng.IntN(5) > 0 {
				value = bytes.Repeat([]byte{byte('a' + rng.IntN(26))}, rng.IntN(120))
				value = fmt.Appendf(value, " %d", i)
			}
			b.Append(time.Now().UnixMilli()+int64(rng.IntN(5)), fmt.Append(nil, "key-", rng.IntN(25)), value)
		}
		sets = append(sets, b.End(def))
		records += int64(n)
	}
	return sets, records
}

// TestCompactionAsApache: the same batches at Apache Kafka and here, compacted, leave the same batches and records: those of
// the last values, of tombstones until their horizon, and the empty ones that keep sequence numbers.
func TestCompactionAsApache(t *testing.T) {
	if !*apache {
		t.Skip("needs -apache")
	}
	extra := filepath.Join(t.TempDir(), "extra.properties")
	if err := os.WriteFile(extra, []byte("log.cleaner.backoff.ms=50\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ORACLE_EXTRA", extra)
	theirs := startApache(t)
	ours, _ := startBroker(t, "--set", "log.cleaner.backoff.ms=50")
	for _, retention := range []int{86_400_000, 200} {
		t.Run(fmt.Sprint("delete.retention.ms=", retention), func(t *testing.T) {
			both := []*compactor{newCompactor(t, "Apache", theirs, retention), newCompactor(t, "kaas", ours, retention)}
			rng := rand.New(rand.NewPCG(uint64(retention), 3))
			seq := map[int64]int32{}
			end := int64(0)
			for round := range 4 {
				sets, n := keyedHistory(rng, 120, seq)
				for _, set := range sets {
					for _, c := range both {
						c.produce(bytes.Clone(set))
					}
				}
				end += n
				settle(t, both, end, fmt.Sprint("round ", round))
			}
		})
	}
}

// settle waits until both logs show the same and are compacted.
func settle(t *testing.T, both []*compactor, end int64, what string) {
	t.Helper()
	ctx := newContext(t)
	var shown [2][]string
	for {
		for i, c := range both {
			shown[i] = c.dump(ctx, end)
		}
		records := 0
		for _, line := range shown[0] {
			if strings.HasPrefix(line, " ") {
				records++
			}
		}
		if slices.Equal(shown[0], shown[1]) && int64(records) < end/2 {
			t.Logf("%s: %d of %d records left, %d lines equal", what, records, end, len(shown[0]))
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not the same:\nApache\n%s\nkaas\n%s", what, strings.Join(shown[0], "\n"), strings.Join(shown[1], "\n"))
		case <-time.After(100 * time.Millisecond):
		}
	}
}
