package server

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"kaas/codec/api"
	"kaas/codec/batch"
)

// The tests of the files keys_*_test.go set keys of the broker and look at what that does: through the socket, in the metrics or on the disk.
// Keys that can be altered in a running broker are. The tests of this file are about the defaults that a topic takes from the broker.

// brokerKeys alters settings of the broker: of all brokers, or of this one.
func (c *client) brokerKeys(own bool, settings ...string) {
	c.t.Helper()
	c.alterResource(resourceBroker, map[bool]string{true: "1"}[own], settings...)
}

// taken produces to partition 0 of a topic and wants that error code.
func (c *client) taken(topic string, want api.ErrorCode, set []byte) api.ProduceResponsePartitionProduceResponse {
	c.t.Helper()
	got := c.produce(topic, 0, set)
	if got.ErrorCode != want {
		c.t.Errorf("%s: %v, want %v", topic, got.ErrorCode, want)
	}
	return got
}

// The defaults that decide whether a batch is taken, and how it is stored: a new topic has them, and it has those that are altered later.
func TestKeysOfNewBatches(t *testing.T) {
	c := dial(t, broker(t))
	now := time.Now().UnixMilli()
	past, future := recordAt(now-3_600_000), recordAt(now+3_500_000)
	const forever = "9223372036854775807"
	for i, k := range []struct {
		key, value, before string
		past, future       api.ErrorCode
		appendTime         bool
	}{
		{"log.message.timestamp.before.max.ms", "60000", forever, api.ErrInvalidTimestamp, api.ErrNone, false},
		{"log.message.timestamp.after.max.ms", "60000", forever, api.ErrNone, api.ErrInvalidTimestamp, false},
		{"log.message.timestamp.difference.max.ms", "60000", forever, api.ErrInvalidTimestamp, api.ErrInvalidTimestamp, false},
		{"log.message.timestamp.type", "LogAppendTime", "CreateTime", api.ErrNone, api.ErrNone, true},
		{"log.cleanup.policy", "compact", "delete", api.ErrInvalidRecord, api.ErrInvalidRecord, false}, // there is no key
	} {
		check := func(topic string, past, future []byte) {
			t.Helper()
			if p := c.taken(topic, k.past, past); k.appendTime != (p.LogAppendTimeMs >= now) {
				t.Errorf("%s: stored with the broker's time %d", topic, p.LogAppendTimeMs)
			}
			c.taken(topic, k.future, future)
		}
		c.brokerKeys(i%2 == 0, k.key, k.value)
		c.create(k.key, 1)
		check(k.key, past, future)
		c.brokerKeys(i%2 == 0, k.key, k.before)
		c.taken(k.key, api.ErrNone, past)
		c.taken(k.key, api.ErrNone, future)
		c.brokerKeys(i%2 == 0, k.key, k.value)
		check(k.key, past, future)
		c.brokerKeys(i%2 == 0, k.key, k.before)
	}
}

// bases lists where the segments of partition 0 of a topic begin.
func bases(t *testing.T, b *Broker, topic string) (out []int64) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(b.Ready().DataDir, topic+"-0", "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		n, err := strconv.ParseInt(filepath.Base(name)[:20], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, n)
	}
	return out
}

// apart makes a topic, writes batches with so many ms between them, and wants so many segments.
func (c *client) apart(b *Broker, topic string, ms int64, batches, want int, settings ...string) {
	t := c.t.(*testing.T)
	t.Helper()
	c.create(topic, 1, settings...)
	at := time.Now().UnixMilli() - int64(batches)*ms
	for i := range int64(batches) {
		c.taken(topic, api.ErrNone, recordAt(at+i*ms))
	}
	if got := bases(t, b, topic); len(got) != want {
		t.Errorf("%s: segments at %d, want %d", topic, got, want)
	}
}

// When a segment ends: log.roll.hours and log.roll.jitter.hours of the start, then log.roll.ms and log.roll.jitter.ms, which win over them,
// and segment.jitter.ms of a topic. What a jitter takes off is random: of two hours it is less than a ms once in seven million times.
func TestKeysOfRolling(t *testing.T) {
	const hour = 3_600_000
	b := broker(t, "log.roll.hours", "2")
	c := dial(t, b)
	c.apart(b, "hours", 3*hour, 3, 3)
	c.apart(b, "within-hours", 2*hour-1, 2, 1)
	c.brokerKeys(false, "log.roll.ms", "1000")
	c.apart(b, "ms", 2000, 3, 3)
	c.apart(b, "within-ms", 999, 2, 1)
	c.brokerKeys(false, "log.roll.ms", strconv.Itoa(2*hour), "log.roll.jitter.ms", strconv.Itoa(2*hour))
	c.apart(b, "jitter-ms", 2*hour-1, 3, 3)
	c.brokerKeys(false, "log.roll.jitter.ms", "0")
	c.apart(b, "no-jitter-ms", 2*hour-1, 2, 1)
	c.apart(b, "jitter-topic", 2*hour-1, 3, 3, "segment.jitter.ms", strconv.Itoa(2*hour))

	b = broker(t, "log.roll.hours", "2", "log.roll.jitter.hours", "2")
	c = dial(t, b)
	c.apart(b, "jitter-hours", 2*hour-1, 3, 3)
	c.brokerKeys(true, "log.roll.jitter.ms", "0")
	c.apart(b, "ms-wins", 2*hour-1, 2, 1)
}

// log.index.interval.bytes decides what is in an index, log.index.size.max.bytes ends the segment of one that is full.
func TestKeysOfIndexes(t *testing.T) {
	b := broker(t)
	c := dial(t, b)
	c.brokerKeys(false, "log.index.interval.bytes", "0", "log.index.size.max.bytes", "48") // an entry for each batch but the first
	at := time.Now().UnixMilli()
	write := func(topic string, n int, want ...int64) {
		t.Helper()
		c.create(topic, 1)
		for range n {
			c.taken(topic, api.ErrNone, recordAt(at)) // of one time: the index of times does not fill
		}
		got := bases(t, b, topic)
		if len(got) != len(want) {
			t.Fatalf("%s: segments at %d, want %d", topic, got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: segments at %d, want %d", topic, got, want)
			}
		}
	}
	write("small", 15, 0, 7, 14)
	c.brokerKeys(false, "log.index.interval.bytes", "4096", "log.index.size.max.bytes", "36")
	write("sparse", 19, 0, 17) // four entries, one for each four batches of a kilobyte
	for name, want := range map[string][]uint32{"small-0/00000000000000000000.index": {1, 2, 3, 4, 5, 6}, "sparse-0/00000000000000000000.index": {4, 8, 12, 16}} {
		var entries []uint32
		eventually(t, "the index of a sealed segment", func() bool {
			index, err := os.ReadFile(filepath.Join(b.Ready().DataDir, name))
			entries = entries[:0]
			for ; len(index) >= 8; index = index[8:] {
				entries = append(entries, binary.BigEndian.Uint32(index))
			}
			return err == nil && len(entries) == len(want)
		})
		for i := range want {
			if entries[i] != want[i] {
				t.Errorf("%s: entries %d, want %d", name, entries, want)
			}
		}
	}
}

// starts has a pass of retention made and wants that log start of a topic of ten batches at most.
func (c *client) starts(b *Broker, topic string, want int64) {
	c.t.Helper()
	b.engine.Maintain()
	if got := c.fetch(topic, 0, 10).LogStartOffset; got != want {
		c.t.Errorf("%s: log start %d, want %d", topic, got, want)
	}
}

// aged makes a topic of ten batches, one a segment, the first half of them so old.
func (c *client) aged(topic string, age time.Duration) {
	c.t.Helper()
	c.create(topic, 1, "segment.bytes", "1100")
	now := time.Now().UnixMilli()
	for i := range int64(10) {
		at := now - 10 + i
		if i < 5 {
			at -= age.Milliseconds()
		}
		c.taken(topic, api.ErrNone, recordAt(at))
	}
}

// What goes: log.retention.hours, log.retention.minutes, which wins over it, log.retention.bytes, and log.segment.delete.delay.ms after which
// its files do.
func TestKeysOfRetention(t *testing.T) {
	b := broker(t, "log.retention.hours", "5")
	c := dial(t, b)
	c.aged("hours", 6*time.Hour)
	c.aged("within-hours", 4*time.Hour)
	c.starts(b, "hours", 5)
	c.starts(b, "within-hours", 0)
	c.brokerKeys(false, "log.retention.bytes", strconv.Itoa(3*len(recordAt(0))), "log.segment.delete.delay.ms", "3600000")
	c.starts(b, "within-hours", 7)
	if got := bases(t, b, "within-hours"); len(got) != 10 {
		t.Errorf("files within log.segment.delete.delay.ms: %d", got)
	}
	c.brokerKeys(false, "log.retention.bytes", "-1", "log.segment.delete.delay.ms", "0")
	c.aged("bytes", time.Hour)
	c.starts(b, "bytes", 0)
	c.brokerKeys(true, "log.retention.bytes", "0")
	c.starts(b, "bytes", 10)
	eventually(t, "the files go at once", func() bool { return len(bases(t, b, "bytes")) == 1 })

	b = broker(t, "log.retention.hours", "5", "log.retention.minutes", "90")
	c = dial(t, b)
	c.aged("minutes", 2*time.Hour)
	c.aged("within-minutes", time.Hour)
	c.starts(b, "minutes", 5)
	c.starts(b, "within-minutes", 0)
}

// The defaults of compaction: log.cleaner.min.compaction.lag.ms and log.cleaner.min.cleanable.ratio hold it back,
// log.cleaner.max.compaction.lag.ms overrules the ratio, log.cleaner.delete.retention.ms keeps tombstones.
func TestKeysOfCompaction(t *testing.T) {
	b := broker(t, "log.cleaner.threads", "0")
	c := dial(t, b)
	c.brokerKeys(false, "log.cleaner.min.compaction.lag.ms", "3600000", "log.cleaner.min.cleanable.ratio", "1")
	c.create("t", 1, "cleanup.policy", "compact", "segment.bytes", "1100")
	at := time.Now().UnixMilli() - 60_000
	put := func(key string, value []byte) {
		t.Helper()
		c.must(api.ErrNone, "produce", made(batch.NewSpec(), at, []byte(key), value))
	}
	held := func(what string) {
		t.Helper()
		if got := b.engine.Clean(); got != 0 {
			t.Errorf("%s: %d cleans", what, got)
		}
	}
	big := make([]byte, 1000)
	for range 5 {
		put("k", big)
	}
	put("gone", nil)
	put("k", big)
	c.brokerKeys(false, "log.cleaner.min.cleanable.ratio", "0.1")
	held("log.cleaner.min.compaction.lag.ms")
	c.brokerKeys(false, "log.cleaner.min.compaction.lag.ms", "0", "log.cleaner.min.cleanable.ratio", "1")
	held("log.cleaner.min.cleanable.ratio")
	c.brokerKeys(false, "log.cleaner.max.compaction.lag.ms", "30000")
	eventually(t, "log.cleaner.max.compaction.lag.ms", func() bool { return b.engine.Clean() > 0 })
	c.brokerKeys(false, "log.cleaner.max.compaction.lag.ms", "9223372036854775807", "log.cleaner.min.cleanable.ratio", "0.01")
	tombstones := func() (n int) {
		for _, r := range c.readAll() {
			if r.value == "" {
				n++
			}
		}
		return n
	}
	again := func() bool {
		put("k", big)
		put("k", big)
		return b.engine.Clean() > 0
	}
	for range 2 { // the first clean gives the tombstone its time, the second would let it go
		eventually(t, "log.cleaner.min.cleanable.ratio of a hundredth", again)
	}
	if got := tombstones(); got != 1 {
		t.Errorf("%d tombstones within log.cleaner.delete.retention.ms, want 1", got)
	}
	c.brokerKeys(false, "log.cleaner.delete.retention.ms", "0")
	put("gone", nil) // takes the place of the other
	eventually(t, "no tombstone after log.cleaner.delete.retention.ms", func() bool { return again() && tombstones() == 0 })
}
