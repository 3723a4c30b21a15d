package regress

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// What is stored is what was sent, byte for byte, but for the base offset, the leader epoch and a CRC that follows from neither; whatever
// the compression (faults 21, 29). The codecs' payloads here are opaque: a broker that opened one would refuse it.
func TestStoredVerbatim(t *testing.T) {
	c := start(t, t.TempDir()).dial()
	c.create("t", 1)
	for codec := range uint16(5) {
		set := batch{values: []string{"some value", "another"}}.bytes()
		if codec > 0 {
			binary.BigEndian.PutUint16(set[21:], codec)
			copy(set[61:], []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 1, 2, 3, 4, 5})
			binary.BigEndian.PutUint32(set[17:], crc32.Checksum(set[21:], crc32.MakeTable(crc32.Castagnoli)))
		}
		p := c.produceAll("t", set, 0)[0]
		if p.ErrorCode != none {
			t.Fatalf("codec %d: error %d", codec, p.ErrorCode)
		}
		got := c.fetch("t", 0, p.BaseOffset).RecordBatches
		if offset, epoch := binary.BigEndian.Uint64(got), binary.BigEndian.Uint32(got[12:]); offset != uint64(p.BaseOffset) || epoch != 0 {
			t.Errorf("codec %d: stored at offset %d with leader epoch %d, want %d and 0", codec, offset, int32(epoch), p.BaseOffset)
		}
		if !bytes.Equal(got[8:12], set[8:12]) || !bytes.Equal(got[16:], set[16:]) {
			t.Errorf("codec %d: stored\n% x, sent\n% x", codec, got, set)
		}
	}
}

// A partition that fails does not take the others of its request along (faults 22, 23, 32).
func TestErrorsStayInTheirPartition(t *testing.T) {
	b := start(t, t.TempDir())
	c := b.dial()
	c.create("t", 4)
	c.create("small", 1, "max.message.bytes", "100")
	good := batch{values: []string{"good"}}.bytes()
	torn := bytes.Clone(good)
	torn[len(torn)-1]++
	q := produceRequest("t", -1, good, 0, 1, 2, 3, 4, -1, 1<<30)
	q.Topics[0].Partitions[1].Records = torn
	q.Topics[0].Partitions[2].Records = append(bytes.Clone(good), good...)
	q.Topics = append(q.Topics, produceRequest("small", -1, batch{values: []string{string(make([]byte, 60))}}.bytes(), 0).Topics[0])
	q.Topics = append(q.Topics, produceRequest("nobody", -1, good, 0).Topics[0])
	got := map[string]int16{}
	for _, topic := range c.call(q, 9).(*kmsg.ProduceResponse).Topics {
		for _, p := range topic.Partitions {
			got[fmt.Sprint(topic.Topic, p.Partition)] = p.ErrorCode
		}
	}
	want := map[string]int16{"t0": none, "t1": 2, "t2": 87, "t3": none, "t4": unknownPartition, "t-1": unknownPartition, "t1073741824": unknownPartition,
		"small0": messageTooLarge, "nobody0": unknownPartition}
	for k, code := range want {
		if got[k] != code {
			t.Errorf("%s: error %d, want %d", k, got[k], code)
		}
	}
	for p, want := range [][]string{{"good"}, nil, nil, {"good"}} {
		if got := c.all("t", int32(p)); !slices.Equal(got, want) {
			t.Errorf("partition %d holds %q", p, got)
		}
	}
	dirs, err := filepath.Glob(filepath.Join(b.dir, "*-*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range dirs {
		dirs[i] = filepath.Base(dirs[i])
	}
	if !slices.Equal(dirs, []string{"t-0", "t-3"}) {
		t.Errorf("directories %q", dirs)
	}
}

// acks=0 is never answered: what comes next on the connection is the answer to what came next. An error closes the connection, since
// the client would not learn of it otherwise (fault 24).
func TestAcksZero(t *testing.T) {
	b := start(t, t.TempDir())
	c := b.dial()
	c.create("t", 1)
	set := batch{values: []string{"x"}}.bytes()
	for range 5 {
		c.write(c.frame(produceRequest("t", 0, set, 0), 9))
	}
	c.works()
	c.stored("t", 0, batch{values: []string{"y"}}, 5)
	bad := bytes.Clone(set)
	bad[30]++
	for what, q := range map[string]*kmsg.ProduceRequest{
		"unknown partition": produceRequest("t", 0, set, 7),
		"unknown topic":     produceRequest("u", 0, set, 0),
		"bad CRC":           produceRequest("t", 0, bad, 0),
		"one of two":        produceRequest("t", 0, set, 0, 9),
	} {
		x := b.dial()
		x.write(x.frame(q, 9))
		x.closed(what)
	}
	for _, acks := range []int16{2, -2, 100, -0x8000} {
		for _, p := range c.call(produceRequest("t", acks, set, 0, 9), 9).(*kmsg.ProduceResponse).Topics[0].Partitions {
			if p.ErrorCode != 21 || p.BaseOffset != -1 {
				t.Errorf("acks=%d: error %d, offset %d", acks, p.ErrorCode, p.BaseOffset)
			}
		}
	}
	c.stored("t", 0, batch{values: []string{"z"}}, 7) // one of two was stored
	if got := c.all("t", 0); !slices.Equal(got, []string{"x", "x", "x", "x", "x", "y", "x", "z"}) {
		t.Errorf("stored %q", got)
	}
}

// A producer's last five batches are known, over a kill and a clean stop too; the answer to a repeat is the original's (faults 25, 26).
func TestRepeatsOverRestarts(t *testing.T) {
	b := start(t, t.TempDir())
	c := b.dial()
	c.create("t", 1)
	send := func(sequence int32) batch {
		return batch{values: []string{fmt.Sprint(sequence), "and"}, producer: 5, sequence: sequence}
	}
	next := int32(0)
	for range 7 {
		c.stored("t", 0, send(next), int64(next))
		next += 2
	}
	check := func(how string, known int32) {
		t.Helper()
		for _, k := range []struct {
			sequence int32
			code     int16
		}{{next - 2, none}, {next - 2*known, none}, {next + 1, outOfOrderSequence}, {next - 1, outOfOrderSequence}} {
			p := c.produce("t", 0, send(k.sequence))
			if p.ErrorCode != k.code || k.code == none && p.BaseOffset != int64(k.sequence) {
				t.Errorf("%s: sequence %d of %d: error %d, offset %d, want error %d", how, k.sequence, next, p.ErrorCode, p.BaseOffset, k.code)
			}
		}
		if p := c.produce("t", 0, send(next-2*6)); p.ErrorCode != outOfOrderSequence {
			t.Errorf("%s: the sixth last batch again: error %d", how, p.ErrorCode)
		}
		c.stored("t", 0, send(next), int64(next))
		next += 2
	}
	check("same process", 5)
	dir := b.killed()
	b.stop()
	b = start(t, dir)
	c = b.dial()
	check("killed", 5)
	b.stop()
	b = start(t, dir)
	c = b.dial()
	check("stopped", 1) // a snapshot keeps the last batch of each producer, as Apache's does
	old := send(0)
	old.epoch = 1
	c.stored("t", 0, old, int64(next))
	if p := c.produce("t", 0, send(next)); p.ErrorCode != invalidProducerEp {
		t.Errorf("an older epoch: error %d", p.ErrorCode)
	}
	c.stored("t", 0, batch{values: []string{"any"}, producer: 6, sequence: 4711}, int64(next)+2)
}

// Producer ids are given once: to many at the same time, in every version, over kills and clean stops (faults 30, 75).
func TestProducerIDsAreGivenOnce(t *testing.T) {
	dir := t.TempDir()
	given := map[int64]string{}
	var mu sync.Mutex // guards given
	for round := range 4 {
		b := start(t, dir)
		var wg sync.WaitGroup
		for i := range 8 {
			c := b.dial()
			wg.Go(func() {
				for n := range 40 {
					q := kmsg.NewPtrInitProducerIDRequest()
					q.TransactionTimeoutMillis = 60_000
					q.ProducerID, q.ProducerEpoch = -1, -1
					p := c.call(q, int16(n%5)).(*kmsg.InitProducerIDResponse)
					who := fmt.Sprintf("client %d of start %d", i, round)
					mu.Lock()
					if other, ok := given[p.ProducerID]; ok || p.ErrorCode != none || p.ProducerID < 0 || p.ProducerEpoch != 0 {
						t.Errorf("%s: id %d (also given to %q), epoch %d, error %d", who, p.ProducerID, other, p.ProducerEpoch, p.ErrorCode)
					}
					given[p.ProducerID] = who
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if round%2 == 0 {
			dir = b.killed()
		}
		b.stop()
	}
}

// A record without a key does not get into a compacted topic; the answer says which (fault 28).
func TestKeylessInCompactedTopic(t *testing.T) {
	c := start(t, t.TempDir()).dial()
	c.create("t", 1, "cleanup.policy", "compact")
	p := c.produce("t", 0, batch{values: []string{"a", "b"}})
	if p.ErrorCode != 87 || p.BaseOffset != -1 || p.ErrorMessage == nil {
		t.Errorf("error %d, offset %d, message %v", p.ErrorCode, p.BaseOffset, p.ErrorMessage)
	}
	if len(p.ErrorRecords) != 2 || p.ErrorRecords[0].RelativeOffset != 0 || p.ErrorRecords[1].RelativeOffset != 1 || p.ErrorRecords[1].ErrorMessage == nil {
		t.Errorf("record errors %+v", p.ErrorRecords)
	}
	if got := c.all("t", 0); len(got) != 0 {
		t.Errorf("stored %q", got)
	}
}

// On a LogAppendTime topic the broker's time is in the answer and, with its bit, in the batch, under a CRC that fits; on others the answer
// says -1, and times outside the topic's window are refused (fault 27).
func TestTimes(t *testing.T) {
	c := start(t, t.TempDir()).dial()
	c.create("append", 1, "message.timestamp.type", "LogAppendTime")
	c.create("create", 1, "message.timestamp.before.max.ms", "3600000", "message.timestamp.after.max.ms", "3600000")
	before := time.Now().UnixMilli()
	p := c.produce("append", 0, batch{values: []string{"x"}})
	after := time.Now().UnixMilli()
	if p.ErrorCode != none || p.LogAppendTime < before || p.LogAppendTime > after {
		t.Errorf("LogAppendTime: error %d, time %d, want between %d and %d", p.ErrorCode, p.LogAppendTime, before, after)
	}
	set := c.fetch("append", 0, 0).RecordBatches
	var rb kmsg.RecordBatch
	if err := rb.ReadFrom(set); err != nil || rb.Attributes != 8 || rb.MaxTimestamp != p.LogAppendTime || rb.FirstTimestamp != 1_700_000_000_000 {
		t.Errorf("stored batch: attributes %d, times %d to %d, %v", rb.Attributes, rb.FirstTimestamp, rb.MaxTimestamp, err)
	}
	values(t, set, 0) // checks the CRC
	for ts, want := range map[int64]int16{after: none, after - 3_700_000: 32, after + 3_700_000: 32} {
		if p := c.produce("create", 0, batch{values: []string{"x"}, ts: ts}); p.ErrorCode != want || p.LogAppendTime != -1 {
			t.Errorf("%d ms from now: error %d, log append time %d", ts-after, p.ErrorCode, p.LogAppendTime)
		}
	}
}

// max_bytes and partition_max_bytes hold, but the first batch of the first partition that has data comes whole (fault 36).
func TestLimitsOfAFetch(t *testing.T) {
	c := start(t, t.TempDir()).dial()
	c.create("t", 3)
	set := batch{values: []string{string(make([]byte, 1000))}}.bytes()
	size := len(set)
	for range 4 {
		c.produceAll("t", set, 1, 2) // 0 stays empty
	}
	for _, k := range []struct {
		max, partitionMax int
		want              [3]int
	}{
		{1, 1, [3]int{0, size, 0}},
		{size, size, [3]int{0, size, 0}},
		{2*size + 10, 50 << 20, [3]int{0, 2*size + 10, 0}}, // the last batch may be cut
		{50 << 20, 2 * size, [3]int{0, 2 * size, 2 * size}},
		{3 * size, 2 * size, [3]int{0, 2 * size, size}},
		{50 << 20, 50 << 20, [3]int{0, 4 * size, 4 * size}},
	} {
		q := fetchRequest("t", 0, 0, 1, 2)
		q.MaxBytes = int32(k.max)
		for i := range q.Topics[0].Partitions {
			q.Topics[0].Partitions[i].PartitionMaxBytes = int32(k.partitionMax)
		}
		var got [3]int
		for _, p := range c.call(q, 12).(*kmsg.FetchResponse).Topics[0].Partitions {
			got[p.Partition] = len(p.RecordBatches)
		}
		if got != k.want {
			t.Errorf("max_bytes %d, partition_max_bytes %d: %v bytes, want %v", k.max, k.partitionMax, got, k.want)
		}
	}
	if p := c.fetch("t", 1, 5); p.ErrorCode != offsetOutOfRange || p.HighWatermark != -1 {
		t.Errorf("above the end: error %d, high watermark %d", p.ErrorCode, p.HighWatermark)
	}
}

// Asking for what is not there, or was never written, makes no directory (fault 32).
func TestReadingMakesNothing(t *testing.T) {
	b := start(t, t.TempDir())
	c := b.dial()
	c.create("t", 2)
	c.fetch("t", 0, 0)
	c.fetch("t", 9, 0)
	q := kmsg.NewPtrListOffsetsRequest()
	q.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "t", Partitions: []kmsg.ListOffsetsRequestTopicPartition{{Partition: 1, Timestamp: -1}, {Partition: 5, Timestamp: -1}}}}
	parts := c.call(q, 2).(*kmsg.ListOffsetsResponse).Topics[0].Partitions
	if parts[0].ErrorCode != none || parts[0].Offset != 0 || parts[1].ErrorCode != unknownPartition {
		t.Errorf("ListOffsets: %+v", parts)
	}
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && e.Name() != "__kaas" {
			t.Errorf("directory %q", e.Name())
		}
	}
}
