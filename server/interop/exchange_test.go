//go:build interop

package interop

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	exchangeRecords    = 10_000 // of each producer in each compression
	exchangePartitions = 3
	programTimeout     = 2 * time.Minute // for one run of a client
)

var apache = flag.Bool("apache", false, "start Apache Kafka too and compare what clients read from both")

// producer writes records with a client of its own kind. What it cannot write (own timestamps, null and empty keys) is not in records.
type producer struct {
	name       string
	records    []*kgo.Record
	timestamps bool // it can set them; else the client's clock does
	produce    func(t *testing.T, addr, topic, codec string, records []*kgo.Record)
}

// reader reads every partition from its start to its end by assignment, without a group.
type reader struct {
	name string
	read func(t *testing.T, addr, topic string) map[int32][]*kgo.Record
	// seen turns a record into what this reader can show of it, nil if it shows all.
	seen func(*kgo.Record) *kgo.Record
}

func producers() []producer {
	all := makeRecords(exchangeRecords, exchangePartitions)
	return []producer{
		{"franz-go", all, true, produceFranz},
		{"confluent-kafka", all, true, produceConfluent},
		{"kafkajs", withoutNullHeaders(all), true, produceKafkaJS},
		{"kcat", kcatRecords(exchangeRecords, exchangePartitions), false, produceKcat},
	}
}

func readers() []reader {
	return []reader{
		{"franz-go", readAll, nil},
		{"confluent-kafka", readConfluent, nil},
		{"kcat", readKcat, kcatSeen},
	}
}

// TestExchange: every client writes in every compression, every client that needs no group for it reads that back, equal in
// all it can show (in the short form what others wrote in two compressions only). With -apache the same happens at Apache Kafka, and both brokers must give the same records.
func TestExchange(t *testing.T) {
	t.Parallel()
	addr, _ := startBroker(t)
	ours := exchange(t, addr, "")
	if !*apache {
		return
	}
	theirs := exchange(t, startApache(t), " at Apache")
	for _, p := range producers() {
		for _, codec := range codecs {
			cell(t, p.name, "as Apache", func(t *testing.T) {
				key := p.name + "/" + codec.name
				if ours[key] == "" || ours[key] != theirs[key] {
					t.Errorf("%s: digest of the records: want Apache's %q, got %q", key, theirs[key], ours[key])
				}
			})
		}
	}
}

// exchange returns a digest of the records of each producer/codec, as franz-go reads them. Mark tells the rows of the table apart.
func exchange(t *testing.T, addr, mark string) map[string]string {
	digests := map[string]string{}
	for _, p := range producers() {
		for _, codec := range codecs {
			topic := newExchangeTopic(t, addr)
			row, key := p.name+mark, p.name+"/"+codec.name
			written := cell(t, row, codec.name, func(t *testing.T) {
				begin := time.Now()
				p.produce(t, addr, topic, codec.name, p.records)
				took := time.Since(begin)
				got := readAll(t, addr, topic)
				compareExchange(t, p, p.records, got)
				digests[key] = digest(p, got)
				t.Logf("written in %.1f s; digest %s", took.Seconds(), digests[key])
				checkCodec(t, addr, row, p, codec.name, codec.id, got)
			})
			if !written {
				continue
			}
			for _, r := range readers() {
				if r.name == "franz-go" && p.name != "franz-go" {
					results.note(r.name+mark, "reads "+p.name, "ok") // just done
					continue
				}
				if testing.Short() && r.name != p.name && codec.name != "lz4" && codec.name != "zstd" {
					continue
				}
				cell(t, r.name+mark, "reads "+p.name, func(t *testing.T) {
					want := p.records
					if r.seen != nil {
						want = make([]*kgo.Record, len(p.records))
						for i, w := range p.records {
							want[i] = r.seen(w)
						}
					}
					compareExchange(t, p, want, r.read(t, addr, topic))
				})
			}
		}
	}
	return digests
}

// newExchangeTopic keeps records for ever: these are older than a week.
func newExchangeTopic(t *testing.T, addr string) string {
	t.Helper()
	name, forever := fmt.Sprintf("exchange-%08x", rand.Uint32()), "-1"
	adm := kadm.NewClient(newClient(t, addr))
	if _, err := adm.CreateTopic(newContext(t), exchangePartitions, 1, map[string]*string{"retention.ms": &forever}, name); err != nil {
		t.Fatal(err)
	}
	settled(t, func() error { // Apache shows a new topic a little later
		meta, err := adm.Metadata(newContext(t), name)
		if err == nil && len(meta.Topics[name].Partitions) != exchangePartitions {
			err = fmt.Errorf("%s has no partitions yet", name)
		}
		return err
	})
	return name
}

// compareExchange compares all but the compression, and the timestamp only if the producer could set it.
func compareExchange(t *testing.T, p producer, written []*kgo.Record, got map[int32][]*kgo.Record) {
	t.Helper()
	next := map[int32]int{}
	for _, w := range written {
		i := next[w.Partition]
		if i >= len(got[w.Partition]) {
			t.Fatalf("partition %d: %d records only", w.Partition, i)
		}
		g := got[w.Partition][i]
		if g.Offset != int64(i) {
			t.Fatalf("partition %d: want offset %d, got %d", w.Partition, i, g.Offset)
		}
		if !p.timestamps {
			w = &kgo.Record{Key: w.Key, Value: w.Value, Headers: w.Headers, Partition: w.Partition, Timestamp: g.Timestamp}
		}
		if d := same(w, g); d != "" {
			t.Fatalf("partition %d offset %d: %s", w.Partition, i, d)
		}
		next[w.Partition]++
	}
	for part, rs := range got {
		if len(rs) != next[part] {
			t.Errorf("partition %d: want %d records, got %d", part, next[part], len(rs))
		}
	}
}

// digest is a SHA-256 over all that must not depend on the broker, in order.
func digest(p producer, got map[int32][]*kgo.Record) string {
	h := sha256.New()
	for part := range int32(exchangePartitions) {
		for _, r := range got[part] {
			ms := r.Timestamp.UnixMilli()
			if !p.timestamps {
				ms = 0
			}
			fmt.Fprintf(h, "%d %d %d type %d %v%q %v%q", part, r.Offset, ms, r.Attrs.TimestampType(), r.Key == nil, r.Key, r.Value == nil, r.Value)
			for _, head := range r.Headers {
				fmt.Fprintf(h, " %q %v%q", head.Key, head.Value == nil, head.Value)
			}
			fmt.Fprintln(h)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// checkCodec wants the batches to be compressed as the client was told. A batch of one or two records may be sent as it is
// because compression would not make it smaller, so nine tenths of the records count.
//
// librdkafka 2.0.2 (kcat of Debian 12) asks whether the broker takes Produce version 0 before it uses gzip, snappy or lz4, and
// version 7 before zstd; a broker that begins at 3 gets the first three uncompressed, and only -X debug=msg tells. The table
// then says "plain". librdkafka 2.16.0 (confluent-kafka) compresses.
func checkCodec(t *testing.T, addr, row string, p producer, name string, id uint8, got map[int32][]*kgo.Record) {
	t.Helper()
	counts := map[uint8]int{}
	total := 0
	for _, rs := range got {
		for _, r := range rs {
			counts[r.Attrs.CompressionType()]++
			total++
		}
	}
	first, _, _ := served(t, addr, 0)
	if p.name == "kcat" && (name == "gzip" || name == "snappy" || name == "lz4") && first > 0 {
		if counts[0] != total {
			t.Errorf("librdkafka compresses although Produce 0 is not served; codecs: %v", counts)
		}
		results.note(row, name, "plain")
		return
	}
	if counts[id] < total*9/10 || id != 0 && counts[id]+counts[0] != total {
		t.Errorf("records by codec: want nearly all %d, got %v", id, counts)
	}
}

// served returns the range of versions that the broker offers of an API key.
func served(t *testing.T, addr string, key int16) (first, last int16, ok bool) {
	t.Helper()
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(newContext(t), newClient(t, addr))
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range resp.ApiKeys {
		if k.ApiKey == key {
			return k.MinVersion, k.MaxVersion, true
		}
	}
	return 0, 0, false
}

func produceFranz(t *testing.T, addr, topic, codec string, records []*kgo.Record) {
	with := kgo.NoCompression()
	for _, c := range codecs {
		if c.name == codec {
			with = c.franz
		}
	}
	c := newClient(t, addr, kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(with), kgo.ProducerBatchMaxBytes(32<<10))
	own := make([]*kgo.Record, len(records)) // the client writes into what it is given
	for i, r := range records {
		own[i] = &kgo.Record{Partition: r.Partition, Key: r.Key, Value: r.Value, Headers: r.Headers, Timestamp: r.Timestamp}
	}
	if err := c.ProduceSync(newContext(t), own...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func produceConfluent(t *testing.T, addr, topic, codec string, records []*kgo.Record) {
	confluent(t, encodeLines(t, records), "produce", addr, topic, codec)
}

func readConfluent(t *testing.T, addr, topic string) map[int32][]*kgo.Record {
	return decodeLines(t, confluent(t, nil, "consume", addr, topic))
}

func produceKafkaJS(t *testing.T, addr, topic, codec string, records []*kgo.Record) {
	kafkajs(t, encodeLines(t, records), "produce", addr, topic, codec)
}

// withoutNullHeaders gives headers without value an empty one: kafkajs 2.2.4 throws a TypeError at null.
func withoutNullHeaders(records []*kgo.Record) []*kgo.Record {
	out := make([]*kgo.Record, len(records))
	for i, r := range records {
		c := *r
		c.Headers = slices.Clone(r.Headers)
		for j := range c.Headers {
			if c.Headers[j].Value == nil {
				c.Headers[j].Value = []byte{}
			}
		}
		out[i] = &c
	}
	return out
}

func confluent(t *testing.T, stdin []byte, args ...string) []byte {
	t.Helper()
	python := filepath.Join(moduleRoot(t), ".interop", "python", "bin", "python")
	return program(t, stdin, nil, python, append([]string{filepath.Join("clients", "confluent.py")}, args...)...)
}

func kafkajs(t *testing.T, stdin []byte, args ...string) []byte {
	t.Helper()
	env := []string{"NODE_PATH=" + filepath.Join(moduleRoot(t), ".interop", "node", "node_modules")}
	return program(t, stdin, env, "node", append([]string{filepath.Join("clients", "kafkajs.js")}, args...)...)
}

// program runs a client to its end and returns its standard output; it must succeed. .ci/clients installs all of them.
func program(t *testing.T, stdin []byte, env []string, name string, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), programTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin = bytes.NewReader(stdin)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%.2000s%s", filepath.Base(name), strings.Join(args, " "), err, out, &stderr)
	}
	if stderr.Len() > 0 {
		t.Logf("%s %s says: %.2000s", filepath.Base(name), strings.Join(args, " "), &stderr)
	}
	return out
}

var goMod = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	return strings.TrimSpace(string(out)), err
})

func moduleRoot(t *testing.T) string {
	t.Helper()
	mod, err := goMod()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(mod)
}

// line is a record between the tests and a client's script.
type line struct {
	Partition int32        `json:"p"`
	Offset    int64        `json:"o"`
	Time      int64        `json:"t"`
	Key       *string      `json:"k"` // base64 or null, as all bytes
	Value     *string      `json:"v"`
	Headers   [][2]*string `json:"h"` // name, value
}

func encodeLines(t *testing.T, records []*kgo.Record) []byte {
	t.Helper()
	pack := func(b []byte) *string {
		if b == nil {
			return nil
		}
		s := base64.StdEncoding.EncodeToString(b)
		return &s
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	for _, r := range records {
		l := line{Partition: r.Partition, Time: r.Timestamp.UnixMilli(), Key: pack(r.Key), Value: pack(r.Value), Headers: [][2]*string{}}
		for _, h := range r.Headers {
			l.Headers = append(l.Headers, [2]*string{&h.Key, pack(h.Value)})
		}
		if err := enc.Encode(l); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

func decodeLines(t *testing.T, text []byte) map[int32][]*kgo.Record {
	t.Helper()
	unpack := func(s *string) []byte {
		if s == nil {
			return nil
		}
		b, err := base64.StdEncoding.DecodeString(*s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	got := map[int32][]*kgo.Record{}
	for dec := json.NewDecoder(bytes.NewReader(text)); dec.More(); {
		var l line
		if err := dec.Decode(&l); err != nil {
			t.Fatal(err)
		}
		r := &kgo.Record{Partition: l.Partition, Offset: l.Offset, Timestamp: time.UnixMilli(l.Time), Key: unpack(l.Key), Value: unpack(l.Value)}
		for _, h := range l.Headers {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: *h[0], Value: unpack(h[1])})
		}
		got[l.Partition] = append(got[l.Partition], r)
	}
	return got
}

// startApache runs Apache Kafka until the end of t and returns its address.
func startApache(t *testing.T) string {
	t.Helper()
	root := moduleRoot(t)
	script := filepath.Join(root, "server", "interop", "oracle", "oracle.sh")
	port := strconv.Itoa(twoFreePorts(t))
	run := func(action string) ([]byte, error) {
		cmd := exec.Command(script, action, port)
		cmd.Env = append(os.Environ(), "ORACLE_HOME="+cmp.Or(os.Getenv("ORACLE_HOME"), filepath.Join(root, ".oracle")))
		return cmd.Output()
	}
	t.Cleanup(func() { _, _ = run("stop") })
	begin := time.Now()
	out, err := run("start")
	if err != nil {
		t.Fatalf("%s start %s: %v", script, port, err)
	}
	t.Logf("Apache Kafka started in %.1f s", time.Since(begin).Seconds())
	return strings.TrimSpace(string(out))
}

// twoFreePorts returns a port that is free now, and so is the next one (Apache's controller).
func twoFreePorts(t *testing.T) int {
	t.Helper()
	for range 100 {
		a, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := a.Addr().(*net.TCPAddr).Port
		b, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+1)))
		_ = a.Close()
		if err == nil {
			_ = b.Close()
			return port
		}
	}
	t.Fatal("no two free ports side by side")
	return 0
}
