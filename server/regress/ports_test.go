package regress

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kaas/server/brokertest"
)

// tlsHello is what a TLS client says first.
func tlsHello(t *testing.T) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() {
		_ = tls.Client(theirs, &tls.Config{ServerName: "broker"}).Handshake()
		theirs.Close()
	}()
	b := make([]byte, 64<<10)
	n, err := ours.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

// hostile is something that a port may be sent; closes says that the broker ends the connection by itself.
type hostile struct {
	name   string
	bytes  []byte
	closes bool
}

func hostiles(t *testing.T) []hostile {
	frame := func(size uint32, body string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, size), body...)
	}
	garbage := bytes.Repeat([]byte{0xa5, 0x5a, 0x00, 0xff}, 512)
	return []hostile{
		{"garbage", garbage, true},
		{"TLS hello", tlsHello(t), true},
		{"HTTP", []byte("GET / HTTP/1.1\r\nHost: broker\r\n\r\n"), true},
		{"length 0x7fffffff", frame(0x7fffffff, "x"), true},
		{"negative length", frame(0x80000000, "x"), true},
		{"garbage in a frame", append(frame(uint32(len(garbage)), ""), garbage...), true},
		{"a count of 2^31-1", frame(17, "\x00\x03\x00\x01\x00\x00\x00\x01\xff\xff\x7f\xff\xff\xffxxx"), true},
		{"100 MiB announced, 2 KiB sent", append(frame(100<<20, ""), garbage...), false},
		{"half a frame", append(frame(uint32(2*len(garbage)), ""), garbage...), false},
	}
}

// growthMax bounds what 1,800 hostile connections may cost the process, in bytes. Together they announce 20 GiB and more.
const growthMax = 64 << 20

// Nothing that arrives on a port makes the broker's memory grow, and others are answered meanwhile (faults 5, 6, 7).
func TestHostileBytesStayCheap(t *testing.T) {
	const times = 200
	bin, err := brokertest.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b, err := brokertest.Start(bin, "--data-dir", t.TempDir(), "--set", "max.connections=100000")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	}()
	friend := dial(t, b.Addr)
	friend.create("t", 1)
	friend.stored("t", 0, batch{values: []string{"before"}}, 0)
	before := anonymousMemory(t, b.PID())
	offset := int64(1)
	for _, h := range hostiles(t) {
		conns := make([]*client, times)
		for i := range conns {
			conns[i] = dial(t, b.Addr)
			// A peer that has closed already does not take the rest: that is the point.
			_, _ = conns[i].c.Write(h.bytes)
		}
		friend.stored("t", 0, batch{values: []string{h.name}}, offset)
		offset++
		for _, c := range conns {
			if h.closes {
				c.closed(h.name)
			}
		}
		if grown := anonymousMemory(t, b.PID()) - before; grown > growthMax {
			t.Errorf("%s on %d connections: memory grew by %d KiB", h.name, times, grown>>10)
		}
		for _, c := range conns {
			c.c.Close()
		}
	}
	if s := b.Stderr(); s != "" {
		t.Errorf("the broker has something to say about peers like these:\n%s", s)
	}
}

// anonymousMemory is the RssAnon of a process in bytes.
func anonymousMemory(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`RssAnon:\s+(\d+) kB`).FindSubmatch(b)
	if m == nil {
		t.Skip("this kernel does not tell RssAnon")
	}
	kib, _ := strconv.ParseInt(string(m[1]), 10, 64)
	return kib << 10
}

// header is a request header of version 1, for any key.
func header(key, version int16) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	return append(b, 0, 0, 0, 9, 0xff, 0xff) // correlation id, null client id
}

func framed(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// Keys and versions that are not advertised close the connection, all of them, with no answer (fault 2). ApiVersions is the exception:
// fault 1.
func TestWhatIsNotServedIsClosed(t *testing.T) {
	b := start(t, t.TempDir())
	c := b.dial()
	served := map[int16]kmsg.ApiVersionsResponseApiKey{}
	for _, k := range c.call(kmsg.NewPtrApiVersionsRequest(), 0).(*kmsg.ApiVersionsResponse).ApiKeys {
		served[k.ApiKey] = k
	}
	tries := 0
	refused := func(key, version int16) {
		tries++
		x := b.dial()
		x.write(framed(append(header(key, version), make([]byte, 64)...)))
		x.closed(fmt.Sprintf("key %d version %d", key, version))
		x.c.Close()
	}
	for key := int16(-2); key < 100; key++ {
		k, ok := served[key]
		switch {
		case !ok:
			refused(key, 0)
			refused(key, 1)
		case key != 18:
			refused(key, k.MaxVersion+1)
			refused(key, k.MinVersion-1)
			refused(key, 0x7fff)
		}
	}
	refused(0x7fff, 0)
	refused(-0x8000, 0)
	if tries < 150 {
		t.Errorf("only %d tries", tries)
	}
	c.works()
}

// A request that ends too soon closes the connection wherever it was cut; nothing is done, nobody else notices, and no log line is
// written that an operator would see (fault 7).
func TestCutRequestsClose(t *testing.T) {
	b := start(t, t.TempDir())
	c := b.dial()
	c.create("t", 1)
	create := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "cut", 1, 1
	create.Topics = append(create.Topics, topic)
	metadata := kmsg.NewPtrMetadataRequest()
	name := "cut"
	metadata.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
	list := kmsg.NewPtrListOffsetsRequest()
	list.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "t", Partitions: []kmsg.ListOffsetsRequestTopicPartition{{Timestamp: -1}}}}
	set := batch{values: []string{"cut"}}.bytes()
	for _, q := range []struct {
		q       kmsg.Request
		version int16
	}{
		{produceRequest("t", -1, set, 0), 3}, {produceRequest("t", -1, set, 0), 9}, {fetchRequest("t", 0, 0), 4}, {fetchRequest("t", 0, 0), 12},
		{metadata, 4}, {metadata, 9}, {create, 4}, {create, 7}, {list, 1}, {list, 6},
	} {
		whole := c.frame(q.q, q.version)[4:]
		for n := range whole {
			x := b.dial()
			x.write(framed(whole[:n]))
			x.closed(fmt.Sprintf("%T version %d cut after %d of %d bytes", q.q, q.version, n, len(whole)))
			x.c.Close()
		}
	}
	c = b.dial() // the frames above took correlation ids of the other one
	if got := c.metadata(false, "cut").Topics[0].ErrorCode; got != unknownPartition {
		t.Errorf("a request that was cut made a topic: error %d", got)
	}
	if got := c.all("t", 0); len(got) != 0 {
		t.Errorf("a request that was cut stored %q", got)
	}
	if s := b.log.String(); s != "" {
		t.Errorf("logged:\n%s", s)
	}
}

// Sixteen requests sent in one go are answered in order, whatever each of them waits for: a commit, a worker, data (fault 8).
func TestSixteenRequestsInOneGo(t *testing.T) {
	b := start(t, t.TempDir())
	c, other := b.dial(), b.dial()
	c.create("t", 1)
	var requests []kmsg.Request
	var out []byte
	first := c.corr + 1
	add := func(q kmsg.Request, version int16) {
		requests = append(requests, q)
		out = append(out, c.frame(q, version)...)
	}
	one := batch{values: []string{"x"}}.bytes()
	for i := range 4 {
		create := kmsg.NewPtrCreateTopicsRequest()
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = fmt.Sprint("made-", i), 1, 1
		create.Topics = append(create.Topics, topic)
		wait := fetchRequest("t", int64(i)+1, 0)
		wait.MinBytes, wait.MaxWaitMillis = 1, 20 // nothing there: it parks
		add(produceRequest("t", -1, one, 0), 9)
		add(wait, 12)
		add(create, 5)
		add(produceRequest(fmt.Sprint("made-", i), 1, one, 0), 9)
	}
	c.write(out)
	for i, q := range requests {
		p := c.receive(q, first+int32(i))
		switch p := p.(type) {
		case *kmsg.ProduceResponse:
			want := int64(0)
			if i%4 == 0 {
				want = int64(i / 4)
			}
			if got := p.Topics[0].Partitions[0]; got.ErrorCode != none || got.BaseOffset != want {
				t.Errorf("request %d: error %d, offset %d, want %d", i, got.ErrorCode, got.BaseOffset, want)
			}
		case *kmsg.FetchResponse:
			// The commit of the batch before it may still be under way: then the high watermark does not show it yet.
			if got := p.Topics[0].Partitions[0]; got.ErrorCode != none || got.HighWatermark > int64(i/4)+1 || len(got.RecordBatches) != 0 {
				t.Errorf("request %d: %+v", i, got)
			}
		case *kmsg.CreateTopicsResponse:
			if got := p.Topics[0].ErrorCode; got != none {
				t.Errorf("request %d: error %d", i, got)
			}
		}
	}
	other.works()
}

// A version of ApiVersions that nobody knows is answered in version 0, and the connection goes on (fault 1).
func TestApiVersionsOfTheFuture(t *testing.T) {
	c := start(t, t.TempDir()).dial()
	for _, version := range []int16{4, 5, 100, 0x7fff, -1} {
		c.write(framed(append(header(18, version), 0, 2, 'x', 2, 'y', 0)))
		var size [4]byte
		if _, err := io.ReadFull(c.c, size[:]); err != nil {
			t.Fatalf("version %d: %v", version, err)
		}
		b := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(c.c, b); err != nil {
			t.Fatal(err)
		}
		want := []byte{0, 0, 0, 9, 0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 3}
		if !bytes.Equal(b, want) {
			t.Errorf("version %d: % x, want % x", version, b, want)
		}
		c.works()
	}
	if err := c.c.SetDeadline(time.Now().Add(deadline)); err != nil {
		t.Fatal(err)
	}
	p := c.call(kmsg.NewPtrApiVersionsRequest(), 0).(*kmsg.ApiVersionsResponse)
	for _, k := range p.ApiKeys {
		if k.ApiKey == 18 && (k.MinVersion != 0 || k.MaxVersion != 3) {
			t.Errorf("ApiVersions %d-%d", k.MinVersion, k.MaxVersion)
		}
	}
}
