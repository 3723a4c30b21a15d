package server

import (
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"kaas/codec/api"
	"kaas/codec/batch"
	"kaas/codec/wire"
	"kaas/engine/vfs"
	"kaas/server/config"
)

// deadline bounds every wait of these tests; nothing is measured by it.
const deadline = 30 * time.Second

// connDeadline bounds all that a test does on one connection: on a busy machine a hundred requests take longer than one may.
const connDeadline = 10 * deadline

// start runs a broker in the test's process, with settings as key, value, key, value…
func start(t testing.TB, dir string, settings ...string) *Broker {
	t.Helper()
	return startWith(t, nil, dir, settings...)
}

// startWith is start with the logs on a file system of the test's.
func startWith(t testing.TB, fs vfs.FS, dir string, settings ...string) *Broker {
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
	b, err := startOn(fs, cfg, time.Now(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// broker runs one for the length of the test.
func broker(t testing.TB, settings ...string) *Broker {
	t.Helper()
	b := start(t, t.TempDir(), settings...)
	t.Cleanup(func() { stop(t, b) })
	return b
}

func stop(t testing.TB, b *Broker) {
	t.Helper()
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
}

// client is one connection that speaks frames.
type client struct {
	t    testing.TB
	c    net.Conn
	corr int32
	id   string // client id, "test" if empty
}

func dial(t testing.TB, b *Broker) *client {
	t.Helper()
	return dialAt(t, b.Ready().Listeners["PLAINTEXT"])
}

// dialAt connects to a broker of any process.
func dialAt(t testing.TB, addr string) *client {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(connDeadline)); err != nil {
		t.Fatal(err)
	}
	return &client{t: t, c: c}
}

// frame encodes a request.
func (c *client) frame(key, version int16, m api.Message) []byte {
	c.t.Helper()
	fact, _ := api.Lookup(key)
	c.corr++
	var w wire.Writer
	f := w.BeginFrame()
	h := wire.RequestHeader{Key: key, Version: version, CorrelationID: c.corr, ClientID: wire.Some(cmp.Or(c.id, "test"))}
	h.Encode(&w, fact.RequestHeader(version))
	m.Encode(&w, version)
	w.EndFrame(f)
	if w.Err != nil {
		c.t.Fatal(w.Err)
	}
	return w.B
}

// send writes a request.
func (c *client) send(key, version int16, m api.Message) {
	c.t.Helper()
	c.write(c.frame(key, version, m))
}

func (c *client) write(b []byte) {
	c.t.Helper()
	if _, err := c.c.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// read reads one frame and returns it without its size.
func (c *client) read() []byte {
	c.t.Helper()
	var size [4]byte
	if _, err := io.ReadFull(c.c, size[:]); err != nil {
		c.t.Fatal(err)
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c.c, b); err != nil {
		c.t.Fatal(err)
	}
	return b
}

// receive reads the answer to a request of that key and version.
func (c *client) receive(key, version int16, m api.Message) int32 {
	c.t.Helper()
	fact, _ := api.Lookup(key)
	b := c.read()
	r := wire.NewReader(b)
	var h wire.ResponseHeader
	h.Decode(&r, fact.ResponseHeader(version))
	m.Decode(&r, version)
	if r.Err() != nil || r.Rest() != 0 {
		c.t.Fatalf("%s v%d: %v, %d bytes left over", fact.Name, version, r.Err(), r.Rest())
	}
	return h.CorrelationID
}

// call sends a request and reads its answer.
func (c *client) call(key, version int16, q, p api.Message) {
	c.t.Helper()
	c.send(key, version, q)
	if corr := c.receive(key, version, p); corr != c.corr {
		c.t.Fatalf("correlation id %d, want %d", corr, c.corr)
	}
}

// closed waits until the broker closes the connection, and fails if it answers.
func (c *client) closed() {
	c.t.Helper()
	if err := c.c.SetReadDeadline(time.Now().Add(deadline)); err != nil {
		c.t.Fatal(err)
	}
	var b [1]byte
	n, err := c.c.Read(b[:])
	var timeout net.Error
	if n != 0 || err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		c.t.Fatalf("the connection is open: %d bytes, %v", n, err)
	}
}

// create makes a topic with settings as key, value…
func (c *client) create(name string, partitions int32, configs ...string) {
	c.t.Helper()
	var q api.CreateTopicsRequest
	q.Default()
	t := api.Next(&q.Topics)
	t.Name, t.NumPartitions, t.ReplicationFactor = name, partitions, 1
	for i := 0; i < len(configs); i += 2 {
		k := api.Next(&t.Configs)
		k.Name, k.Value = configs[i], wire.Some(configs[i+1])
	}
	var p api.CreateTopicsResponse
	c.call(api.KeyCreateTopics, 7, &q, &p)
	if p.Topics[0].ErrorCode != api.ErrNone {
		c.t.Fatalf("create %s: %v %s", name, p.Topics[0].ErrorCode, p.Topics[0].ErrorMessage.String)
	}
}

// records makes a batch of records with these values.
func records(values ...string) []byte {
	var b batch.Builder
	b.Begin(nil, batch.NewSpec())
	for _, v := range values {
		b.Append(1_700_000_000_000, nil, []byte(v))
	}
	return b.End(nil)
}

// produceRequest asks for one batch in one partition.
func produceRequest(topic string, partition int32, acks int16, set []byte) *api.ProduceRequest {
	var q api.ProduceRequest
	q.Default()
	q.Acks, q.TimeoutMs = acks, 10_000
	t := api.Next(&q.TopicData)
	t.Name = topic
	p := api.Next(&t.PartitionData)
	p.Index, p.Records = partition, wire.Records{Bytes: set}
	return &q
}

// produce writes one batch with acks=-1 and returns what the partition was answered.
func (c *client) produce(topic string, partition int32, set []byte) api.ProduceResponsePartitionProduceResponse {
	c.t.Helper()
	var p api.ProduceResponse
	c.call(api.KeyProduce, 9, produceRequest(topic, partition, -1, set), &p)
	return p.Responses[0].PartitionResponses[0]
}

// fetchRequest asks for one partition, without a session.
func fetchRequest(topic string, partition int32, offset int64, maxWait, minBytes int32) *api.FetchRequest {
	var q api.FetchRequest
	q.Default()
	q.MaxWaitMs, q.MinBytes, q.MaxBytes = maxWait, minBytes, 1<<20
	t := api.Next(&q.Topics)
	t.Topic = topic
	p := api.Next(&t.Partitions)
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, offset, 1<<20
	return &q
}

// fetch reads a partition and returns its answer.
func (c *client) fetch(topic string, partition int32, offset int64) api.FetchResponsePartitionData {
	c.t.Helper()
	var p api.FetchResponse
	c.call(api.KeyFetch, 12, fetchRequest(topic, partition, offset, 0, 0), &p)
	return p.Responses[0].Partitions[0]
}

// values lists the values of the records in a set, each with its offset.
func values(t testing.TB, set []byte) (out []record) {
	t.Helper()
	inf := batch.NewInflater(1 << 30)
	for len(set) > 0 {
		v, err := batch.Next(set)
		if err != nil {
			t.Fatal(err)
		}
		var c batch.Cursor
		if err := c.Open(v, inf); err != nil {
			t.Fatal(err)
		}
		for c.Next() {
			out = append(out, record{c.Offset(), string(c.Value())})
		}
		if c.Err() != nil {
			t.Fatal(c.Err())
		}
		set = set[v.Size():]
	}
	return out
}

type record struct {
	offset int64
	value  string
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
