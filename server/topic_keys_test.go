package server

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"kaas/codec/api"
	"kaas/codec/batch"
	"kaas/codec/wire"
	"kaas/engine/vfs"
)

// The tests of this file alter the settings of a live topic by IncrementalAlterConfigs and look at what that does, through the socket or
// on the disk. docs/verification.md lists the test of each key.

const (
	resourceTopic  = 2
	resourceBroker = 4
)

// alter sets a topic's settings: key, value…
func (c *client) alter(topic string, settings ...string) {
	c.t.Helper()
	c.alterResource(resourceTopic, topic, settings...)
}

// alterResource sets settings of a topic, a broker or, for a broker without a name, of all brokers.
func (c *client) alterResource(kind int8, name string, settings ...string) {
	c.t.Helper()
	var q api.IncrementalAlterConfigsRequest
	r := api.Next(&q.Resources)
	r.ResourceType, r.ResourceName = kind, name
	for i := 0; i < len(settings); i += 2 {
		k := api.Next(&r.Configs)
		k.Name, k.Value = settings[i], wire.Some(settings[i+1])
	}
	var p api.IncrementalAlterConfigsResponse
	c.call(api.KeyIncrementalAlterConfigs, 1, &q, &p)
	if got := p.Responses[0]; got.ErrorCode != api.ErrNone {
		c.t.Fatalf("alter %s %v: %v %s", name, settings, got.ErrorCode, got.ErrorMessage.String)
	}
}

// made is a batch of one record.
func made(spec batch.Spec, ms int64, key, value []byte) []byte {
	var b batch.Builder
	b.Begin(nil, spec)
	b.Append(ms, key, value)
	return b.End(&batch.Deflater{})
}

// recordAt is a batch of one record of about a kilobyte with that time.
func recordAt(ms int64) []byte { return made(batch.NewSpec(), ms, nil, make([]byte, 1000)) }

// must produces to partition 0 of t and wants that error code.
func (c *client) must(want api.ErrorCode, what string, set []byte) api.ProduceResponsePartitionProduceResponse {
	c.t.Helper()
	got := c.produce("t", 0, set)
	if got.ErrorCode != want {
		c.t.Errorf("%s: %v, want %v", what, got.ErrorCode, want)
	}
	return got
}

// must1 is must with acks=1.
func (c *client) must1(want api.ErrorCode, what string, set []byte) {
	c.t.Helper()
	var p api.ProduceResponse
	c.call(api.KeyProduce, 9, produceRequest("t", 0, 1, set), &p)
	if got := p.Responses[0].PartitionResponses[0].ErrorCode; got != want {
		c.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// logStart is what a reader of t at offset is told of the log's start.
func (c *client) logStart(offset int64) int64 { return c.fetch("t", 0, offset).LogStartOffset }

// segmentFiles lists the .log files of partition 0 of t.
func segmentFiles(t *testing.T, b *Broker) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(b.Ready().DataDir, "t-0", "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// deleteRecords moves the log start of t.
func (c *client) deleteRecords(offset int64) {
	c.t.Helper()
	var q api.DeleteRecordsRequest
	q.Default()
	q.TimeoutMs = 10_000
	t := api.Next(&q.Topics)
	t.Name = "t"
	p := api.Next(&t.Partitions)
	p.PartitionIndex, p.Offset = 0, offset
	var r api.DeleteRecordsResponse
	c.call(api.KeyDeleteRecords, 2, &q, &r)
	if got := r.Topics[0].Partitions[0]; got.ErrorCode != api.ErrNone || got.LowWatermark != offset {
		c.t.Fatalf("DeleteRecords to %d: %+v", offset, got)
	}
}

// TestTopicKeyRetention: retention.ms, retention.bytes, and file.delete.delay.ms of what they and DeleteRecords take away.
func TestTopicKeyRetention(t *testing.T) {
	b := broker(t)
	c := dial(t, b)
	c.create("t", 1, "retention.ms", "-1", "segment.bytes", "1100", "file.delete.delay.ms", "3600000")
	now := time.Now().UnixMilli()
	for _, age := range []int64{7_200_000, 7_100_000, 60_000, 50_000, 40_000, 30_000} { // a segment each
		c.must(api.ErrNone, "produce", recordAt(now-age))
	}
	b.engine.Maintain()
	if got := c.logStart(5); got != 0 {
		t.Errorf("retention.ms=-1: log start %d", got)
	}
	c.alter("t", "retention.ms", "3600000")
	b.engine.Maintain()
	if got := c.logStart(5); got != 2 {
		t.Errorf("retention.ms: log start %d, want 2", got)
	}
	size := len(recordAt(now))
	c.alter("t", "retention.bytes", strconv.Itoa(3*size))
	b.engine.Maintain()
	if got := c.logStart(5); got != 3 {
		t.Errorf("retention.bytes: log start %d, want 3", got)
	}
	if got := len(segmentFiles(t, b)); got != 6 {
		t.Errorf("%d segment files within file.delete.delay.ms, want 6", got)
	}
	c.alter("t", "file.delete.delay.ms", "0")
	c.deleteRecords(5)
	eventually(t, "the files of two segments go at once", func() bool { return len(segmentFiles(t, b)) == 4 })
}

// TestTopicKeySegments: segment.bytes, segment.ms and segment.index.bytes end segments, index.interval.bytes decides what is in the index.
func TestTopicKeySegments(t *testing.T) {
	b := broker(t)
	c := dial(t, b)
	c.create("t", 1)
	ms := time.Now().UnixMilli() - 1_000_000
	next, bases := int64(0), []int64{0}
	produce := func(n int, step int64) {
		t.Helper()
		for range n {
			ms += step
			next = c.must(api.ErrNone, "produce", recordAt(ms)).BaseOffset + 1
		}
	}
	check := func(what string, rolledAt ...int64) {
		t.Helper()
		bases = append(bases, rolledAt...)
		var got []int64
		for _, name := range segmentFiles(t, b) {
			n, err := strconv.ParseInt(filepath.Base(name)[:20], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, n)
		}
		if len(got) != len(bases) {
			t.Fatalf("%s: segments at %d, want %d", what, got, bases)
		}
		for i := range got {
			if got[i] != bases[i] {
				t.Errorf("%s: segments at %d, want %d", what, got, bases)
			}
		}
	}
	produce(8, 10_000)
	check("defaults")
	c.alter("t", "segment.ms", "5000")
	produce(2, 10_000)
	check("segment.ms", 8, 9)
	c.alter("t", "segment.ms", "604800000", "segment.bytes", "2500")
	produce(4, 1)
	check("segment.bytes", 11, 13)
	c.alter("t", "segment.bytes", "1073741824", "index.interval.bytes", "0")
	produce(10, 0)
	check("index.interval.bytes")
	c.alter("t", "segment.index.bytes", "48") // room for six entries of the offset index
	produce(1, 0)
	check("segment.index.bytes: the active segment has more", next-1)
	produce(10, 0)
	check("segment.index.bytes", next-4)

	// By default an entry every 4096 bytes, then one for each batch.
	for base, want := range map[int64]int{0: 1, 13: 10} {
		name := filepath.Join(b.Ready().DataDir, "t-0", fmt.Sprintf("%020d.index", base))
		var entries []uint32
		eventually(t, "the index of a sealed segment", func() bool {
			index, err := os.ReadFile(name)
			entries = entries[:0]
			for ; len(index) >= 8; index = index[8:] {
				entries = append(entries, binary.BigEndian.Uint32(index))
			}
			return err == nil && len(entries) == want
		})
		if entries[want-1] != map[int64]uint32{0: 4, 13: 10}[base] {
			t.Errorf("segment %d: entries %d", base, entries)
		}
	}
}

// TestTopicKeyChecks: what decides whether a batch is taken: max.message.bytes, message.timestamp.before.max.ms and its sister and their
// older name, min.insync.replicas, and cleanup.policy, which wants keys.
func TestTopicKeyChecks(t *testing.T) {
	b := broker(t)
	c := dial(t, b)
	c.create("t", 1)
	now := time.Now().UnixMilli()
	past, future := recordAt(now-3_600_000), recordAt(now+3_500_000)
	size := len(past)
	c.alter("t", "max.message.bytes", strconv.Itoa(size-1))
	c.must(api.ErrMessageTooLarge, "max.message.bytes below the batch", past)
	c.alter("t", "max.message.bytes", strconv.Itoa(size))
	c.must(api.ErrNone, "max.message.bytes of the batch", past)

	c.must(api.ErrNone, "a future time by default", future)
	c.alter("t", "message.timestamp.before.max.ms", "60000")
	c.must(api.ErrInvalidTimestamp, "an old time", past)
	c.must(api.ErrNone, "a future time still", future)
	c.alter("t", "message.timestamp.after.max.ms", "60000", "message.timestamp.before.max.ms", "9223372036854775807")
	c.must(api.ErrInvalidTimestamp, "a future time", future)
	c.must(api.ErrNone, "an old time again", past)
	c.alter("t", "message.timestamp.after.max.ms", "9223372036854775807", "message.timestamp.difference.max.ms", "60000")
	c.must(api.ErrInvalidTimestamp, "an old time by the older key", past)
	c.must(api.ErrInvalidTimestamp, "a future time by the older key", future)
	c.alter("t", "message.timestamp.difference.max.ms", "9223372036854775807")

	c.alter("t", "min.insync.replicas", "2")
	c.must(api.ErrNotEnoughReplicas, "acks=-1 with two replicas wanted", past)
	c.must1(api.ErrNone, "acks=1 with two replicas wanted", past)
	c.alter("t", "min.insync.replicas", "1")
	c.must(api.ErrNone, "acks=-1 with one replica wanted", past)

	c.alter("t", "cleanup.policy", "compact")
	c.must(api.ErrInvalidRecord, "no key in a compacted topic", past)
	c.alter("t", "cleanup.policy", "compact,delete")
	c.must(api.ErrInvalidRecord, "no key in a topic that is compacted too", past)
	c.alter("t", "cleanup.policy", "delete")
	c.must(api.ErrNone, "no key", past)
}

// TestTopicKeyStored: what changes a batch on its way to the disk: message.timestamp.type and compression.type.
func TestTopicKeyStored(t *testing.T) {
	c := dial(t, broker(t))
	c.create("t", 1)
	began := time.Now().UnixMilli()
	stored := func(offset int64) batch.View {
		t.Helper()
		v, err := batch.Next(c.fetch("t", 0, offset).Records.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	old := recordAt(1_700_000_000_000)
	if p := c.must(api.ErrNone, "CreateTime", old); p.LogAppendTimeMs != -1 || stored(p.BaseOffset).MaxTimestamp() != 1_700_000_000_000 {
		t.Errorf("CreateTime: answered %d, stored %d", p.LogAppendTimeMs, stored(p.BaseOffset).MaxTimestamp())
	}
	c.alter("t", "message.timestamp.type", "LogAppendTime")
	p := c.must(api.ErrNone, "LogAppendTime", old)
	if v := stored(p.BaseOffset); p.LogAppendTimeMs < began || !v.IsLogAppendTime() || v.MaxTimestamp() != p.LogAppendTimeMs {
		t.Errorf("LogAppendTime: answered %d, stored %d", p.LogAppendTimeMs, v.MaxTimestamp())
	}
	zipped := batch.NewSpec()
	zipped.Codec = batch.CodecGzip
	for _, k := range []struct {
		setting string
		sent    []byte
		want    batch.Codec
	}{
		{"gzip", old, batch.CodecGzip},
		{"snappy", old, batch.CodecSnappy},
		{"lz4", old, batch.CodecLZ4},
		{"zstd", old, batch.CodecZstd},
		{"uncompressed", made(zipped, began, nil, make([]byte, 1000)), batch.CodecNone},
		{"producer", made(zipped, began, nil, make([]byte, 1000)), batch.CodecGzip},
	} {
		c.alter("t", "compression.type", k.setting)
		p := c.must(api.ErrNone, k.setting, k.sent)
		if got := stored(p.BaseOffset).Codec(); got != k.want {
			t.Errorf("compression.type=%s: stored with codec %d, want %d", k.setting, got, k.want)
		}
	}
}

// TestTopicKeyFlush: under page-cache, flush.messages=1 has producers and readers wait for the sync; flush.messages above that and flush.ms
// have a sync begin that nobody waits for; so do the broker's keys for topics that have none of their own.
func TestTopicKeyFlush(t *testing.T) {
	fs := &heldFS{FS: vfs.OS}
	b := startWith(t, fs, t.TempDir(), "kaas.durability", "page-cache")
	defer stop(t, b)
	c, one, all := dial(t, b), dial(t, b), dial(t, b)
	c.create("t", 1)
	c.must(api.ErrNone, "page-cache", records("x"))
	if n := fs.syncs(); n != 0 {
		t.Fatalf("%d syncs under page-cache", n)
	}
	c.alter("t", "flush.messages", "1")
	let := fs.hold()
	defer let(nil)
	one.send(api.KeyProduce, 9, produceRequest("t", 0, 1, records("acks 1")))
	eventually(t, "the append", func() bool { return b.topics.ByName("t").Partition(0).Log.Offsets().LogEnd == 2 })
	all.send(api.KeyProduce, 9, produceRequest("t", 0, -1, records("acks all")))
	one.unanswered("acks=1 with flush.messages=1")
	all.unanswered("acks=-1 with flush.messages=1")
	if got := c.fetch("t", 0, 0); got.HighWatermark != 1 {
		t.Errorf("what is not synced can be read: %+v", got)
	}
	let(nil)
	for offset, w := range []*client{one, all} {
		var p api.ProduceResponse
		w.receive(api.KeyProduce, 9, &p)
		if got := p.Responses[0].PartitionResponses[0]; got.ErrorCode != api.ErrNone || got.BaseOffset != int64(offset+1) {
			t.Errorf("after the sync: %+v", got)
		}
	}
	if got := c.fetch("t", 0, 0); got.HighWatermark != 3 {
		t.Errorf("after the sync: %+v", got)
	}

	c.alter("t", "flush.messages", "3")
	before := fs.syncs()
	c.must(api.ErrNone, "flush.messages=3", records("1", "2"))
	if n := fs.syncs() - before; n != 0 {
		t.Errorf("flush.messages=3: %d syncs after two messages", n)
	}
	c.must(api.ErrNone, "flush.messages=3", records("3"))
	eventually(t, "a sync after three messages", func() bool { return fs.syncs() == before+1 })

	c.alter("t", "flush.messages", "9223372036854775807", "flush.ms", "1")
	c.must(api.ErrNone, "flush.ms", records("x"))
	eventually(t, "a sync after flush.ms", func() bool { return fs.syncs() == before+2 })
	c.alter("t", "flush.ms", "3600000")
	c.must(api.ErrNone, "flush.ms", records("x"))
	c.alter("t", "flush.ms", "0")
	eventually(t, "a sync when flush.ms is lowered", func() bool { return fs.syncs() == before+3 })

	c.create("defaults", 1)
	c.alterResource(resourceBroker, "", "log.flush.interval.messages", "2")
	c.produce("defaults", 0, records("1", "2"))
	eventually(t, "a sync for log.flush.interval.messages", func() bool { return fs.syncs() == before+4 })
	c.alterResource(resourceBroker, "", "log.flush.interval.messages", "1000", "log.flush.interval.ms", "1")
	c.produce("defaults", 0, records("x"))
	eventually(t, "a sync for log.flush.interval.ms", func() bool { return fs.syncs() == before+5 })
}

// TestTopicKeyCompaction: min.compaction.lag.ms and min.cleanable.dirty.ratio hold compaction back, max.compaction.lag.ms overrules the
// ratio, and delete.retention.ms keeps tombstones.
func TestTopicKeyCompaction(t *testing.T) {
	b := broker(t, "log.cleaner.threads", "0")
	c := dial(t, b)
	c.create("t", 1, "cleanup.policy", "compact", "segment.bytes", "1100", "min.compaction.lag.ms", "3600000", "min.cleanable.dirty.ratio", "1")
	now := time.Now().UnixMilli()
	put := func(key string, value []byte) {
		t.Helper()
		c.must(api.ErrNone, "produce", made(batch.NewSpec(), now-60_000, []byte(key), value))
	}
	held := func(what string) {
		t.Helper()
		if got := b.engine.Clean(); got != 0 {
			t.Errorf("%s: %d cleans", what, got)
		}
	}
	clean := func(what string) { // a segment is cleaned once it is sealed, in the background
		t.Helper()
		eventually(t, what, func() bool { return b.engine.Clean() > 0 })
	}
	big := make([]byte, 1000)
	for range 5 {
		put("k", big)
	}
	put("gone", nil)
	put("k", big)
	c.alter("t", "min.cleanable.dirty.ratio", "0.1")
	held("min.compaction.lag.ms of an hour")
	c.alter("t", "min.compaction.lag.ms", "0", "min.cleanable.dirty.ratio", "1")
	held("min.cleanable.dirty.ratio of 1")
	c.alter("t", "max.compaction.lag.ms", "30000")
	clean("max.compaction.lag.ms")
	tombstones := func() (at []int64) {
		for _, r := range c.readAll() {
			if r.value == "" {
				at = append(at, r.offset)
			}
		}
		return at
	}
	for i := range 3 { // the first clean gives the tombstone at 5 its time
		if i > 0 {
			put("k", big)
			put("k", big)
			clean("again")
		}
		if got := tombstones(); len(got) != 1 || got[0] != 5 {
			t.Errorf("within delete.retention.ms tombstones at %d, want one at 5", got)
		}
	}
	c.alter("t", "delete.retention.ms", "0")
	put("gone", nil) // takes the place of the other
	eventually(t, "no tombstone after delete.retention.ms", func() bool {
		put("k", big)
		put("k", big)
		b.engine.Clean()
		return len(tombstones()) == 0
	})
}

// readAll reads t from its start to the high watermark: an answer may end with a segment.
func (c *client) readAll() (out []record) {
	c.t.Helper()
	for offset := int64(0); ; {
		p := c.fetch("t", 0, offset)
		got := values(c.t, p.Records.Bytes)
		if len(got) == 0 {
			if offset < p.HighWatermark {
				c.t.Fatalf("nothing at %d below the high watermark %d", offset, p.HighWatermark)
			}
			return out
		}
		out = append(out, got...)
		offset = got[len(got)-1].offset + 1
	}
}
