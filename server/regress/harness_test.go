package regress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kaas/server"
	"kaas/server/config"
)

// deadline bounds every wait; nothing is measured by it.
const deadline = 30 * time.Second

// Error codes of the protocol that these tests expect.
const (
	none                = 0
	offsetOutOfRange    = 1
	unknownPartition    = 3
	leaderNotAvailable  = 5
	messageTooLarge     = 10
	invalidTopic        = 17
	outOfOrderSequence  = 45
	invalidProducerEp   = 47
	storageError        = 56
	unknownTopicID      = 100
	operationsNotWanted = -1 << 31
)

// logged is where a broker's log lines go.
type logged struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// broker is one running in the test's process.
type broker struct {
	*server.Broker
	t    testing.TB
	dir  string
	log  *logged
	down bool
}

// start runs a broker on dir until the end of the test, with settings as key, value, key, value…
func start(t testing.TB, dir string, settings ...string) *broker {
	t.Helper()
	b, err := tryStart(t, dir, settings...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// tryStart is start where a broker may refuse to.
func tryStart(t testing.TB, dir string, settings ...string) (*broker, error) {
	t.Helper()
	opts := config.Options{}
	add := func(k, v string) {
		opts.Settings = append(opts.Settings, config.Setting{Key: k, Value: v, Origin: "test"})
	}
	add("log.dirs", dir)
	add("listeners", "PLAINTEXT://127.0.0.1:0")
	for i := 0; i < len(settings); i += 2 {
		add(settings[i], settings[i+1])
	}
	cfg, err := config.Load(opts)
	if err != nil {
		t.Fatal(err)
	}
	b := &broker{t: t, dir: dir, log: &logged{}}
	if b.Broker, err = server.Start(cfg, time.Now(), b.log); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if !b.down {
			b.stop()
		}
	})
	return b, nil
}

// stop ends the broker in good order.
func (b *broker) stop() {
	b.t.Helper()
	b.down = true
	if err := b.Stop(); err != nil {
		b.t.Error(err)
	}
}

// killed is what the data directory would be if the broker were killed now: a copy. Nothing may be under way but the removal of what was
// set aside.
func (b *broker) killed() string {
	b.t.Helper()
	for {
		to := b.t.TempDir()
		err := os.CopyFS(to, os.DirFS(b.dir))
		if err == nil {
			return to
		}
		if !errors.Is(err, fs.ErrNotExist) { // else something was removed under the copy's hands: another one
			b.t.Fatal(err)
		}
	}
}

func (b *broker) addr() string { return b.Ready().Listeners["PLAINTEXT"] }

// client is one connection that speaks frames.
type client struct {
	t    testing.TB
	c    net.Conn
	corr int32
}

func (b *broker) dial() *client {
	b.t.Helper()
	return dial(b.t, b.addr())
}

func dial(t testing.TB, addr string) *client {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	out := &client{t: t, c: c}
	out.patience()
	return out
}

// patience gives what comes next the whole deadline: on a busy machine a test may take longer than any of its requests may.
func (c *client) patience() {
	c.t.Helper()
	if err := c.c.SetDeadline(time.Now().Add(deadline)); err != nil {
		c.t.Fatal(err)
	}
}

var format = kmsg.NewRequestFormatter(kmsg.FormatterClientID("regress"))

// frame encodes a request of that version.
func (c *client) frame(q kmsg.Request, version int16) []byte {
	q.SetVersion(version)
	c.corr++
	return format.AppendRequest(nil, q, c.corr)
}

func (c *client) write(b []byte) {
	c.t.Helper()
	c.patience()
	if _, err := c.c.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// receive reads the answer to q, which was sent with that correlation id.
func (c *client) receive(q kmsg.Request, corr int32) kmsg.Response {
	c.t.Helper()
	c.patience()
	var head [8]byte
	if _, err := io.ReadFull(c.c, head[:]); err != nil {
		c.t.Fatalf("answer to %T: %v", q, err)
	}
	b := make([]byte, binary.BigEndian.Uint32(head[:])-4)
	if _, err := io.ReadFull(c.c, b); err != nil {
		c.t.Fatalf("answer to %T: %v", q, err)
	}
	if got := int32(binary.BigEndian.Uint32(head[4:])); got != corr {
		c.t.Fatalf("correlation id %d, want %d", got, corr)
	}
	p := q.ResponseKind()
	p.SetVersion(q.GetVersion())
	if p.IsFlexible() && q.Key() != int16(kmsg.ApiVersions) {
		b = b[1:] // tagged fields of the header: none
	}
	if err := p.ReadFrom(b); err != nil {
		c.t.Fatalf("answer to %T: %v", q, err)
	}
	return p
}

// call sends a request and reads its answer.
func (c *client) call(q kmsg.Request, version int16) kmsg.Response {
	c.t.Helper()
	c.write(c.frame(q, version))
	return c.receive(q, c.corr)
}

// closed waits until the broker closes the connection, and fails if it answers.
func (c *client) closed(what string) {
	c.t.Helper()
	c.patience()
	var b [1]byte
	n, err := c.c.Read(b[:])
	var timeout net.Error
	if n != 0 || err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		c.t.Errorf("%s: not closed: %d bytes, %v", what, n, err)
	}
}

// works asks for something small and wants an answer.
func (c *client) works() {
	c.t.Helper()
	if p := c.call(kmsg.NewPtrApiVersionsRequest(), 0).(*kmsg.ApiVersionsResponse); p.ErrorCode != none || len(p.ApiKeys) < 10 {
		c.t.Errorf("ApiVersions: error %d, %d keys", p.ErrorCode, len(p.ApiKeys))
	}
}

// tryCreate makes a topic with settings as key, value… and returns the error code.
func (c *client) tryCreate(name string, partitions int32, configs ...string) kmsg.CreateTopicsResponseTopic {
	c.t.Helper()
	q := kmsg.NewPtrCreateTopicsRequest()
	q.TimeoutMillis = 10_000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, 1
	for i := 0; i < len(configs); i += 2 {
		k := kmsg.NewCreateTopicsRequestTopicConfig()
		k.Name, k.Value = configs[i], &configs[i+1]
		t.Configs = append(t.Configs, k)
	}
	q.Topics = append(q.Topics, t)
	return c.call(q, 7).(*kmsg.CreateTopicsResponse).Topics[0]
}

// create makes a topic and returns its id.
func (c *client) create(name string, partitions int32, configs ...string) [16]byte {
	c.t.Helper()
	p := c.tryCreate(name, partitions, configs...)
	if p.ErrorCode != none {
		c.t.Fatalf("create %s: error %d", name, p.ErrorCode)
	}
	return p.TopicID
}

func (c *client) delete(name string) {
	c.t.Helper()
	q := kmsg.NewPtrDeleteTopicsRequest()
	q.TopicNames, q.TimeoutMillis = []string{name}, 10_000
	if code := c.call(q, 5).(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode; code != none {
		c.t.Fatalf("delete %s: error %d", name, code)
	}
}

// metadata asks for topics by name.
func (c *client) metadata(create bool, names ...string) *kmsg.MetadataResponse {
	c.t.Helper()
	q := kmsg.NewPtrMetadataRequest()
	q.AllowAutoTopicCreation = create
	q.Topics = []kmsg.MetadataRequestTopic{}
	for _, n := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &n
		q.Topics = append(q.Topics, t)
	}
	return c.call(q, 9).(*kmsg.MetadataResponse)
}

// batch is what to produce; the zero value of the producer means none.
type batch struct {
	values   []string
	producer int64 // id; 0 stands for none
	epoch    int16
	sequence int32
	ts       int64 // of all records; 0 stands for a fixed one
}

// bytes makes Kafka's record batch of it, by hand.
func (b batch) bytes() []byte {
	ts := b.ts
	if ts == 0 {
		ts = 1_700_000_000_000
	}
	out := kmsg.RecordBatch{PartitionLeaderEpoch: -1, Magic: 2, FirstTimestamp: ts, MaxTimestamp: ts, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
		LastOffsetDelta: int32(len(b.values) - 1), NumRecords: int32(len(b.values))}
	if b.producer != 0 {
		out.ProducerID, out.ProducerEpoch, out.FirstSequence = b.producer, b.epoch, b.sequence
	}
	for i, v := range b.values {
		r := kmsg.Record{OffsetDelta: int32(i), Value: []byte(v)}
		n := len(r.AppendTo(nil)) - 1 // without the length, which is one byte while it is 0
		r.Length = int32(n)
		out.Records = r.AppendTo(out.Records)
	}
	out.Length = int32(49 + len(out.Records))
	set := out.AppendTo(nil)
	binary.BigEndian.PutUint32(set[17:], crc32.Checksum(set[21:], crc32.MakeTable(crc32.Castagnoli)))
	return set
}

// produceRequest asks for one batch in each of the partitions.
func produceRequest(topic string, acks int16, set []byte, partitions ...int32) *kmsg.ProduceRequest {
	q := kmsg.NewPtrProduceRequest()
	q.Acks, q.TimeoutMillis = acks, 10_000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	for _, n := range partitions {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = n, bytes.Clone(set)
		t.Partitions = append(t.Partitions, p)
	}
	q.Topics = append(q.Topics, t)
	return q
}

// produce writes a batch with acks=all.
func (c *client) produce(topic string, partition int32, b batch) kmsg.ProduceResponseTopicPartition {
	c.t.Helper()
	return c.produceAll(topic, b.bytes(), partition)[0]
}

// produceAll writes the same set to several partitions in one request, with acks=all.
func (c *client) produceAll(topic string, set []byte, partitions ...int32) []kmsg.ProduceResponseTopicPartition {
	c.t.Helper()
	return c.call(produceRequest(topic, -1, set, partitions...), 9).(*kmsg.ProduceResponse).Topics[0].Partitions
}

// stored writes a batch and wants it at that offset.
func (c *client) stored(topic string, partition int32, b batch, offset int64) {
	c.t.Helper()
	if p := c.produce(topic, partition, b); p.ErrorCode != none || p.BaseOffset != offset {
		c.t.Errorf("produce %v to %s-%d: error %d, offset %d, want %d", b.values, topic, partition, p.ErrorCode, p.BaseOffset, offset)
	}
}

// fetchRequest asks for partitions of one topic, all from the same offset, without a session.
func fetchRequest(topic string, offset int64, partitions ...int32) *kmsg.FetchRequest {
	q := kmsg.NewPtrFetchRequest()
	q.MinBytes, q.MaxBytes = 0, 50<<20
	t := kmsg.NewFetchRequestTopic()
	t.Topic = topic
	for _, n := range partitions {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes = n, offset, 50<<20
		t.Partitions = append(t.Partitions, p)
	}
	q.Topics = append(q.Topics, t)
	return q
}

// fetch reads one partition.
func (c *client) fetch(topic string, partition int32, offset int64) kmsg.FetchResponseTopicPartition {
	c.t.Helper()
	return c.call(fetchRequest(topic, offset, partition), 12).(*kmsg.FetchResponse).Topics[0].Partitions[0]
}

// values lists the values in a set of whole, uncompressed batches; offsets must have no gap from first on.
func values(t testing.TB, set []byte, first int64) (out []string) {
	t.Helper()
	for len(set) > 0 {
		var b kmsg.RecordBatch
		size := 12 + int(binary.BigEndian.Uint32(set[8:]))
		if err := b.ReadFrom(set[:size]); err != nil {
			t.Fatal(err)
		}
		if got := crc32.Checksum(set[21:size], crc32.MakeTable(crc32.Castagnoli)); got != uint32(b.CRC) {
			t.Fatalf("batch at offset %d: CRC %x, says %x", b.FirstOffset, got, uint32(b.CRC))
		}
		set = set[size:]
		rest := b.Records
		for i := range b.NumRecords {
			var r kmsg.Record
			n, used := binary.Varint(rest)
			if err := r.ReadFrom(rest[:used+int(n)]); err != nil {
				t.Fatal(err)
			}
			rest = rest[used+int(n):]
			if offset := b.FirstOffset + int64(i); offset != first+int64(len(out)) {
				t.Fatalf("offset %d, want %d", offset, first+int64(len(out)))
			}
			out = append(out, string(r.Value))
		}
	}
	return out
}

// all reads a partition from the start; every record must be there from offset 0 on.
func (c *client) all(topic string, partition int32) (out []string) {
	c.t.Helper()
	for {
		p := c.fetch(topic, partition, int64(len(out)))
		if p.ErrorCode != none {
			c.t.Fatalf("fetch %s-%d at %d: error %d", topic, partition, len(out), p.ErrorCode)
		}
		if len(p.RecordBatches) == 0 {
			return out
		}
		out = append(out, values(c.t, p.RecordBatches, int64(len(out)))...)
	}
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(deadline); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never came: %s", what)
		}
	}
}

// edit changes a file.
func edit(t testing.TB, change func(b []byte) []byte, path ...string) {
	t.Helper()
	name := filepath.Join(path...)
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, change(b), 0o644); err != nil {
		t.Fatal(err)
	}
}
