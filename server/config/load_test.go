package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func testHost() (string, error) { return "box.example", nil }

// load makes a snapshot of properties given as text.
func load(text string) (*Broker, error) {
	settings, problems := ParseProperties("test.properties", text)
	if len(problems) > 0 {
		return nil, &LoadError{problems}
	}
	return Load(Options{Settings: settings, Hostname: testHost})
}

func mustLoad(t *testing.T, text string) *Broker {
	t.Helper()
	b, err := load(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDefaults(t *testing.T) {
	b := mustLoad(t, "")
	if b.NodeID != 1 || b.DataDir != "./data" || !b.GroupCommit || b.Memory || b.NumPartitions != 1 || !b.AutoCreateTopics || !b.DeleteTopics {
		t.Errorf("everyday defaults are %+v", b)
	}
	want := Listener{Name: "PLAINTEXT", Port: 9092, AdvertisedHost: "box.example", AdvertisedPort: 9092, Protocol: "PLAINTEXT"}
	if len(b.Listeners) != 1 || b.Listeners[0] != want {
		t.Errorf("listeners %+v, want %+v", b.Listeners, want)
	}
	if b.ConnectionsMaxIdle != 10*time.Minute || b.SocketRequestMaxBytes != 100<<20 || b.FetchMaxBytes != 55<<20 || b.FetchSessionSlots != 1000 {
		t.Errorf("network defaults are %+v", b)
	}
	if b.OffsetsTopic != (InternalTopic{50, 1, 100 << 20, 1}) || b.TransactionTopic != (InternalTopic{50, 1, 100 << 20, 1}) {
		t.Errorf("internal topics %+v %+v", b.OffsetsTopic, b.TransactionTopic)
	}
	if len(b.Notes) != 0 {
		t.Errorf("notes without settings: %q", b.Notes)
	}
}

// otherThanDefault gives every key of a typed field a value that is not its default.
const otherThanDefault = `
node.id=7
broker.rack=r1
log.dirs= /data/kaas
kaas.durability=page-cache
kaas.storage=memory
kaas.memory.max.bytes=2097152
kaas.memory.full.policy=refuse
kaas.compressed.batch.validation=full
kaas.inflight.max.bytes=3145728
kaas.loops=5
kaas.open.files.max=99
kaas.commit.journal.bytes=77
kaas.append.stall.ms=26
kaas.append.threads=27
kaas.read.ahead.threads=25
kaas.read.ahead.bytes=0
kaas.commit.threads=3
kaas.metrics.listen=h:0
kaas.pprof.enable=true
kaas.recovery.threads=4
num.recovery.threads.per.data.dir=6
auto.create.topics.enable=FALSE
delete.topic.enable=false
num.partitions=8
default.replication.factor=2
connections.max.idle.ms=-1
max.connections=10
max.connections.per.ip=9
max.connections.per.ip.overrides=h:1
socket.request.max.bytes=11
socket.send.buffer.bytes=-1
socket.receive.buffer.bytes=13
socket.listen.backlog.size=14
fetch.max.bytes=2048
max.incremental.fetch.session.cache.slots=15
log.retention.check.interval.ms=16
producer.id.expiration.ms=17
min.insync.replicas=2
offsets.topic.num.partitions=18
offsets.topic.replication.factor=2
offsets.topic.segment.bytes=19
transaction.state.log.num.partitions=20
transaction.state.log.replication.factor=3
transaction.state.log.segment.bytes=21
transaction.state.log.min.isr=2
max.connection.creation.rate=22
kaas.tls.handshake.timeout.ms=23
kaas.tls.handshakes.max=24`

func TestTypedFields(t *testing.T) {
	got := mustLoad(t, otherThanDefault)
	want := Broker{NodeID: 7, Rack: "r1", DataDir: "/data/kaas", Memory: true, MemoryMaxBytes: 2 << 20, MemoryRefuse: true,
		FullBatchValidation: true, InflightMaxBytes: 3 << 20, QueuedMaxRequestBytes: -1, Loops: 5, OpenFilesMax: 99, CommitJournalBytes: 77, AppendStallMs: 26, AppendThreads: 27, ReadAheadThreads: 25, ReadAheadBytes: 0, CommitThreads: 3, RecoveryThreads: 6,
		MetricsListen: "h:0", Pprof: true,
		NumPartitions: 8, DefaultReplicationFactor: 2, MaxConnections: 10, MaxConnectionsPerIP: 9, ConnectionCreationRate: 22, HandshakeTimeout: 23 * time.Millisecond, HandshakesMax: 24, InterBroker: "PLAINTEXT", ConnectionsPerHost: map[string]int32{"h": 1},
		SocketRequestMaxBytes: 11, SocketSendBuffer: -1, SocketReceiveBuffer: 13, ListenBacklog: 14, FetchMaxBytes: 2048, FetchSessionSlots: 15,
		RetentionCheckInterval: 16 * time.Millisecond, ProducerIDExpiration: 17 * time.Millisecond,
		OffsetsTopic: InternalTopic{18, 2, 19, 2}, TransactionTopic: InternalTopic{20, 3, 21, 2}}
	bare := *got
	bare.Listeners, bare.Notes, bare.static, bare.all, bare.own, bare.hostname, bare.topic, bare.origins = nil, nil, nil, nil, nil, nil, Topic{}, nil
	if !reflect.DeepEqual(bare, want) {
		t.Errorf("got %+v\nwant %+v", bare, want)
	}
	if b := mustLoad(t, "connections.max.idle.ms=9223372036854775807\nnode.id=1\nbroker.id=1"); b.ConnectionsMaxIdle < 290*365*24*time.Hour {
		t.Errorf("the longest idle time became %v", b.ConnectionsMaxIdle)
	}
	b := mustLoad(t, "")
	if b.Loops < 1 || b.RecoveryThreads < 2 || b.CommitThreads != 16 || b.InflightMaxBytes != 256<<20 {
		t.Errorf("derived defaults: loops %d, recovery %d, commit %d, in flight %d", b.Loops, b.RecoveryThreads, b.CommitThreads, b.InflightMaxBytes)
	}
	if b.Float("log.cleaner.min.cleanable.ratio") != 0.5 || !b.Bool("log.cleaner.enable") || b.Int("group.max.session.timeout.ms") != 1800000 ||
		!slices.Equal(b.List("log.cleanup.policy"), []string{"delete"}) {
		t.Error("a getter gives another value than the default")
	}
}

func TestStockKRaftFile(t *testing.T) {
	b, err := Load(Options{File: "testdata/stock-kraft.properties", Hostname: testHost})
	if err != nil {
		t.Fatal(err)
	}
	want := Listener{Name: "PLAINTEXT", Port: 9092, AdvertisedHost: "localhost", AdvertisedPort: 9092, Protocol: "PLAINTEXT"}
	if len(b.Listeners) != 1 || b.Listeners[0] != want {
		t.Errorf("listeners %+v, want %+v", b.Listeners, want)
	}
	if b.DataDir != "/tmp/kraft-combined-logs" || b.NodeID != 1 || b.Text("broker.id") != "1" {
		t.Errorf("data %q node %d broker.id %q", b.DataDir, b.NodeID, b.Text("broker.id"))
	}
	note := "testdata/stock-kraft.properties:11: num.io.threads=8 has no effect: kaas has event loops instead (kaas.loops)"
	if !slices.Contains(b.Notes, note) {
		t.Errorf("notes %q lack %q", b.Notes, note)
	}
}

func TestStockZooKeeperFile(t *testing.T) {
	b, err := Load(Options{File: "testdata/stock-zookeeper.properties", Hostname: testHost})
	if err != nil {
		t.Fatal(err)
	}
	if b.NodeID != 0 || b.Text("node.id") != "0" {
		t.Errorf("node id %d (%q), want that of broker.id", b.NodeID, b.Text("node.id"))
	}
	note := "testdata/stock-zookeeper.properties:17: zookeeper.connect=localhost:2181 has no effect: kaas has no ZooKeeper"
	if !slices.Contains(b.Notes, note) {
		t.Errorf("notes %q lack %q", b.Notes, note)
	}
	if got := b.Int("group.initial.rebalance.delay.ms"); got != 0 {
		t.Errorf("group.initial.rebalance.delay.ms %d, want 0", got)
	}
}

// TestErrorTexts compares every message of a file full of mistakes.
func TestErrorTexts(t *testing.T) {
	_, err := Load(Options{File: "testdata/bad.properties", Hostname: testHost})
	var bad *LoadError
	if !errors.As(err, &bad) {
		t.Fatalf("error %v", err)
	}
	got := err.Error() + "\n"
	golden := filepath.Join("testdata", "bad.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("messages are\n%s\nwant\n%s", got, want)
	}
	for _, secret := range []string{"secret1", "secret2", "secret3", "secret4"} {
		if strings.Contains(got, secret) {
			t.Errorf("a message shows %s", secret)
		}
	}
}

func TestConflicts(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"node.id=1\nbroker.id=2", "test.properties:2: broker.id=2: broker.id must be the same as node.id (1)"},
		{"process.roles=controller", "test.properties:1: process.roles=controller: kaas is always a broker; add broker to the roles"},
		{"log.dirs=/a,/b", "test.properties:1: log.dirs=/a,/b: exactly one data directory is needed"},
		{"log.dir=", "test.properties:1: log.dir: exactly one data directory is needed"},
		{"log.retention.minutes=0", "test.properties:1: log.retention.minutes=0: log retention must be -1 (no limit) or at least 1 ms"},
		{"kaas.metrics.listen=9100", "test.properties:1: kaas.metrics.listen=9100: want host:port with a port of 0 to 65535"},
		{"kaas.metrics.listen=:65536", "test.properties:1: kaas.metrics.listen=:65536: want host:port with a port of 0 to 65535"},
		{"kaas.pprof.enable=true", "test.properties:1: kaas.pprof.enable=true: profiles are served at kaas.metrics.listen, which is not set"},
		{"log.roll.ms=0", "test.properties:1: log.roll.ms=0: log.roll.ms must be at least 1"},
		{"log.roll.jitter.ms=-1", "test.properties:1: log.roll.jitter.ms=-1: log.roll.jitter.ms must be at least 0"},
		{"log.flush.interval.ms=-1", "test.properties:1: log.flush.interval.ms=-1: log.flush.interval.ms must be at least 0"},
		{"log.cleaner.min.compaction.lag.ms=9\nlog.cleaner.max.compaction.lag.ms=8",
			"test.properties:1: log.cleaner.min.compaction.lag.ms=9: it must not be above log.cleaner.max.compaction.lag.ms (8)"},
		{"log.cleaner.threads=128", "log.cleaner.dedupe.buffer.size: it must be more than 1 MiB for each of log.cleaner.threads"},
		{"group.consumer.session.timeout.ms=44999", "test.properties:1: group.consumer.session.timeout.ms=44999: it must lie between group.consumer.min.session.timeout.ms (45000) and group.consumer.max.session.timeout.ms (60000)"},
		{"group.consumer.max.session.timeout.ms=44999", "test.properties:1: group.consumer.max.session.timeout.ms=44999: it must not be below group.consumer.min.session.timeout.ms (45000)"},
		{"group.consumer.heartbeat.interval.ms=15001", "test.properties:1: group.consumer.heartbeat.interval.ms=15001: it must lie between group.consumer.min.heartbeat.interval.ms (5000) and group.consumer.max.heartbeat.interval.ms (15000)"},
		{"group.consumer.min.heartbeat.interval.ms=15001", "group.consumer.max.heartbeat.interval.ms: it must not be below group.consumer.min.heartbeat.interval.ms (15001)"},
		{"group.coordinator.rebalance.protocols=consumer", "test.properties:1: group.coordinator.rebalance.protocols=consumer: the classic protocol cannot be turned off"},
		{"max.connections.per.ip=0", "test.properties:1: max.connections.per.ip=0: it can be 0 only when max.connections.per.ip.overrides is set"},
		{"max.connections.per.ip.overrides=a", `test.properties:1: max.connections.per.ip.overrides=a: "a" is not host:count`},
		{"max.connections.per.ip.overrides=a:-1", `test.properties:1: max.connections.per.ip.overrides=a:-1: "a:-1" is not host:count`},
		{"node.id=x\nlog.dirs=a,b", "test.properties:1: node.id=x: Not a number of type INT (allowed: int of at least 0)\n" +
			"test.properties:2: log.dirs=a,b: exactly one data directory is needed"},
	} {
		if _, err := load(c.text); err == nil || err.Error() != c.want {
			t.Errorf("%q:\n got %v\nwant %s", c.text, err, c.want)
		}
	}
}

func TestPerHostConnections(t *testing.T) {
	b := mustLoad(t, "max.connections.per.ip=0\nmax.connections.per.ip.overrides=127.0.0.1:5, [::1]:6,host.example:7")
	want := map[string]int32{"127.0.0.1": 5, "::1": 6, "host.example": 7}
	for host, n := range want {
		if b.ConnectionsPerHost[host] != n {
			t.Errorf("%s has %d, want %d", host, b.ConnectionsPerHost[host], n)
		}
	}
	if b.MaxConnectionsPerIP != 0 || len(b.ConnectionsPerHost) != len(want) {
		t.Errorf("%d and %v", b.MaxConnectionsPerIP, b.ConnectionsPerHost)
	}
}

func TestSourcesAndPrecedence(t *testing.T) {
	path := filepath.Join(t.TempDir(), "server.properties")
	if err := os.WriteFile(path, []byte("num.partitions=2\nlog.dirs=/file\nbroker.id=-1\nlog.dirs=/twice\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := ParseAssignment("num.partitions = 4")
	if err != nil {
		t.Fatal(err)
	}
	b, err := Load(Options{File: path, Settings: []Setting{{"num.partitions", "3", "--partitions"}, set, {"kaas.storage", "memory", "--storage"}}, Hostname: testHost})
	if err != nil {
		t.Fatal(err)
	}
	if b.NumPartitions != 4 || b.DataDir != "/twice" || b.NodeID != 1 || !b.Memory {
		t.Errorf("partitions %d, data %q, node %d, memory %v", b.NumPartitions, b.DataDir, b.NodeID, b.Memory)
	}
	if want := "--set: num.partitions replaces the value of --partitions"; !slices.Contains(b.Notes, want) {
		t.Errorf("notes %q lack %q", b.Notes, want)
	}
	if _, err := ParseAssignment("num.partitions"); err == nil || err.Error() != "--set num.partitions: want key=value" {
		t.Errorf("an argument without = gives %v", err)
	}
	if _, err := Load(Options{File: path + ".none"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file gives %v", err)
	}
}

func TestDefaultValueOfNotBuiltKeyIsAccepted(t *testing.T) {
	b := mustLoad(t, "sasl.enabled.mechanisms=GSSAPI\nssl.keystore.location=\nquota.window.num= 11\nlistener.name.x.ssl.client.auth=none\nlistener.name.x.num.network.threads=5")
	if got := b.Text("sasl.enabled.mechanisms"); got != "GSSAPI" {
		t.Errorf("got %q", got)
	}
	if len(b.Notes) != 1 || !strings.Contains(b.Notes[0], "listener.name.x.num.network.threads=5 has no effect") {
		t.Errorf("notes %q", b.Notes)
	}
}

// TestSecurityKeysAreNeverIgnored holds the rule of design Seams 11.
func TestSecurityKeysAreNeverIgnored(t *testing.T) {
	seen := 0
	for _, k := range BrokerKeys() {
		for _, prefix := range []string{"ssl.", "sasl.", "authorizer.", "security.", "principal.", "delegation.", "password.", "super.", "allow.everyone", "connections.max.reauth", "listener.security"} {
			if strings.HasPrefix(k.Name, prefix) {
				seen++
				if k.Class == Ignored || k.Class == Later {
					t.Errorf("%s is %v", k.Name, k.Class)
				}
			}
		}
	}
	if seen < 70 {
		t.Errorf("only %d security keys", seen)
	}
}

func TestProperties(t *testing.T) {
	text := "# c\n! c\n\n  a = 1 \nb:2\nc 3\nd\t:\t4\ne=x\\\n   y\\\\\nf\\=g\\:h\\ i=v\ng=\\t\\n\\r\\f\\u00e9\\q\r\nh\ri=a=b:c\nj=end\\"
	got, problems := ParseProperties("f", text)
	want := []Setting{{"a", "1 ", "f:4"}, {"b", "2", "f:5"}, {"c", "3", "f:6"}, {"d", "4", "f:7"}, {"e", `xy\`, "f:8"},
		{"f=g:h i", "v", "f:10"}, {"g", "\t\n\r\fé" + "q", "f:11"}, {"h", "", "f:12"}, {"i", "a=b:c", "f:13"}, {"j", "end", "f:14"}}
	if !slices.Equal(got, want) || len(problems) != 0 {
		t.Errorf("got %q %v\nwant %q", got, problems, want)
	}
	for _, bad := range []string{`a=\u12`, `a=\u12g4`} {
		if _, problems := ParseProperties("f", bad); len(problems) != 1 || problems[0].String() != `f:1: malformed \u escape` {
			t.Errorf("%s: %v", bad, problems)
		}
	}
}

func FuzzProperties(f *testing.F) {
	f.Add("a=1\\\n b\\u0041")
	f.Fuzz(func(t *testing.T, text string) {
		settings, _ := ParseProperties("f", text)
		if len(settings) > strings.Count(text, "\n")+strings.Count(text, "\r")+1 {
			t.Errorf("%d settings in %q", len(settings), text)
		}
		load(text)
	})
}

// BenchmarkLoad is part of the start, which has 15 ms in all.
func BenchmarkLoad(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Load(Options{File: "testdata/stock-kraft.properties", Hostname: testHost}); err != nil {
			b.Fatal(err)
		}
	}
}
