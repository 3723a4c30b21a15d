package config

import (
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Broker is an immutable snapshot of every broker setting. The fields are the
// effective ones in the form the broker uses; Int, Text and so on read any key.
type Broker struct {
	// Listeners are those to open, in the order given, at least one.
	Listeners []Listener
	// InterBroker is the name of the listener between brokers; none need have it.
	InterBroker string
	NodeID      int32
	Rack        string // "" for none
	DataDir     string // as given; may be relative
	// GroupCommit: acks=all waits for a disk sync (kaas.durability).
	GroupCommit bool
	// Memory: logs are kept in memory only (kaas.storage).
	Memory         bool
	MemoryMaxBytes int64
	// MemoryRefuse: a full memory refuses writes instead of dropping segments.
	MemoryRefuse bool
	// FullBatchValidation: compressed batches are opened and checked.
	FullBatchValidation   bool
	InflightMaxBytes      int64
	QueuedMaxRequestBytes int64 // below 0: no limit of its own
	Loops                 int   // at least 1
	OpenFilesMax          int   // 0: half of the descriptor limit
	// AppendStallMs is how long an append takes that stalls, 0: none does; AppendThreads are those that append then.
	AppendStallMs, AppendThreads int
	// CommitJournalBytes is of both files of the commit journal together; 0: none.
	CommitJournalBytes int64
	// ReadAheadBytes is how far ReadAheadThreads read ahead of a consumer what is not in the page cache.
	ReadAheadThreads, ReadAheadBytes int
	CommitThreads                    int
	RecoveryThreads                  int
	MetricsListen                    string // host:port, "" for nowhere
	Pprof                            bool   // profiles there too

	AutoCreateTopics         bool
	DeleteTopics             bool
	NumPartitions            int32
	DefaultReplicationFactor int32

	ConnectionsMaxIdle     time.Duration // 0: never closed
	MaxConnections         int32
	ConnectionCreationRate int32 // per second
	HandshakeTimeout       time.Duration
	HandshakesMax          int
	MaxConnectionsPerIP    int32
	ConnectionsPerHost     map[string]int32 // exceptions to it, by host as written; read only
	SocketRequestMaxBytes  int32
	SocketSendBuffer       int32 // bytes, -1: the system's choice
	SocketReceiveBuffer    int32 // bytes, -1: the system's choice
	ListenBacklog          int32
	FetchMaxBytes          int32
	FetchSessionSlots      int32
	RetentionCheckInterval time.Duration
	ProducerIDExpiration   time.Duration
	OffsetsTopic           InternalTopic
	TransactionTopic       InternalTopic

	// Notes are lines for the log: keys without effect, values replaced.
	Notes []string

	static   map[string]string // from the file and the command line
	all, own map[string]string // dynamic: of all brokers, of this one
	unknown  [2]map[string]string
	origins  map[string]Setting // of static
	hostname func() (string, error)
	topic    Topic // of a topic without settings of its own
}

// InternalTopic says how __consumer_offsets or __transaction_state is made.
type InternalTopic struct {
	Partitions        int32
	ReplicationFactor int16
	SegmentBytes      int32
	MinInsyncReplicas int32
}

func (b *Broker) note(format string, args ...any) {
	b.Notes = append(b.Notes, fmt.Sprintf(format, args...))
}

// lookup returns what was given for a key, the strongest source first.
func (b *Broker) lookup(key string) (raw string, given bool) {
	for _, m := range [...]map[string]string{b.own, b.all, b.static} {
		if raw, given = m[key]; given {
			return raw, true
		}
	}
	return "", false
}

// has reports whether a key has a value, given or by default.
func (b *Broker) has(key string) bool {
	_, given := b.lookup(key)
	return given || !mustKey(key).NoDefault
}

func mustKey(key string) *Key {
	k := BrokerKey(key)
	if k == nil {
		panic("BUG: no broker key " + key)
	}
	return k
}

// get returns the value of a key in force; the zero value when it has none.
func (b *Broker) get(key string) value {
	k := mustKey(key)
	raw, given := b.lookup(key)
	if !given {
		if k.NoDefault {
			return value{}
		}
		raw = k.Default
	}
	v, err := k.parse(raw)
	if err != nil {
		panic("BUG: a value that was not checked: " + err.Message)
	}
	return v
}

// Text returns the value of a broker key as DescribeConfigs shows it, "" when it
// has none. It panics if there is no such key.
func (b *Broker) Text(key string) string { return b.get(key).text }

// Int returns the value of a SHORT, INT or LONG broker key, 0 when it has none.
// It panics if there is no such key.
func (b *Broker) Int(key string) int64 { return b.get(key).num }

// Bool returns the value of a BOOLEAN broker key.
func (b *Broker) Bool(key string) bool { return b.get(key).num != 0 }

// Float returns the value of a DOUBLE broker key.
func (b *Broker) Float(key string) float64 { return b.get(key).real }

// List returns the members of a LIST broker key.
func (b *Broker) List(key string) []string { return b.get(key).list }

// dataDirs returns log.dirs, or log.dir when that is not set.
func (b *Broker) dataDirs() string {
	if dirs := b.Text("log.dirs"); dirs != "" {
		return dirs
	}
	return b.Text("log.dir")
}

// firstInt returns the first of keys that has a value, times its factor.
func (b *Broker) firstInt(keys []Synonym) (n int64, from string) {
	for _, s := range keys {
		if b.has(s.Name) {
			return b.Int(s.Name) * s.Factor, s.Name
		}
	}
	panic("BUG: no default behind " + keys[0].Name)
}

// conflicts returns the rules between values that are broken, each with the key
// to blame.
func (b *Broker) conflicts() []*Error {
	var out []*Error
	fail := func(key, text string) { out = append(out, &Error{CodeInvalidConfig, key, text}) }
	if n, key := b.firstInt(TopicKey("retention.ms").Synonyms); n == 0 {
		fail(key, "log retention must be -1 (no limit) or at least 1 ms")
	}
	if n, key := b.firstInt(TopicKey("segment.ms").Synonyms); n < 1 {
		fail(key, "log.roll.ms must be at least 1")
	}
	if n, key := b.firstInt(TopicKey("segment.jitter.ms").Synonyms); n < 0 {
		fail(key, "log.roll.jitter.ms must be at least 0")
	}
	if n, key := b.firstInt(TopicKey("flush.ms").Synonyms); n < 0 {
		fail(key, "log.flush.interval.ms must be at least 0")
	}
	if least, most := b.Int("log.cleaner.min.compaction.lag.ms"), b.Int("log.cleaner.max.compaction.lag.ms"); least > most {
		fail("log.cleaner.min.compaction.lag.ms", fmt.Sprintf("it must not be above log.cleaner.max.compaction.lag.ms (%d)", most))
	}
	if n := b.Int("log.cleaner.threads"); n > 0 && b.Int("log.cleaner.dedupe.buffer.size")/n <= 1<<20 {
		fail("log.cleaner.dedupe.buffer.size", "it must be more than 1 MiB for each of log.cleaner.threads")
	}
	if n := b.Int("offsets.topic.compression.codec"); n < 0 || n > 4 {
		fail("offsets.topic.compression.codec", "it must be 0 (none), 1 (gzip), 2 (snappy), 3 (lz4) or 4 (zstd)")
	}
	for _, of := range []string{"session.timeout.ms", "heartbeat.interval.ms"} {
		key := "group.consumer." + of
		least, most := b.Int("group.consumer.min."+of), b.Int("group.consumer.max."+of)
		switch n := b.Int(key); {
		case least > most:
			fail("group.consumer.max."+of, fmt.Sprintf("it must not be below group.consumer.min.%s (%d)", of, least))
		case n < least || n > most:
			fail(key, fmt.Sprintf("it must lie between group.consumer.min.%s (%d) and group.consumer.max.%s (%d)", of, least, of, most))
		}
	}
	if !slices.Contains(b.List("group.coordinator.rebalance.protocols"), "classic") {
		fail("group.coordinator.rebalance.protocols", "the classic protocol cannot be turned off")
	}
	if hosts, err := parsePerHost(b.Text("max.connections.per.ip.overrides")); err != nil {
		fail("max.connections.per.ip.overrides", err.Error())
	} else if b.Int("max.connections.per.ip") == 0 && len(hosts) == 0 {
		fail("max.connections.per.ip", "it can be 0 only when max.connections.per.ip.overrides is set")
	}
	return out
}

// parsePerHost reads host:count,... An IPv6 address may contain colons.
func parsePerHost(text string) (map[string]int32, error) {
	out := map[string]int32{}
	for _, entry := range strings.Split(text, ",") {
		if entry = javaTrim(entry); entry == "" {
			continue
		}
		at := strings.LastIndexByte(entry, ':')
		if at <= 0 {
			return nil, fmt.Errorf("%q is not host:count", entry)
		}
		n, err := strconv.ParseUint(javaTrim(entry[at+1:]), 10, 31)
		if err != nil {
			return nil, fmt.Errorf("%q is not host:count", entry)
		}
		out[strings.Trim(javaTrim(entry[:at]), "[]")] = int32(n)
	}
	return out, nil
}

// derive fills the typed fields from values that were checked.
func (b *Broker) derive() {
	b.NodeID, b.Rack = int32(b.Int("node.id")), b.Text("broker.rack")
	b.DataDir = javaTrim(b.dataDirs())
	b.GroupCommit = b.Text("kaas.durability") == "group-commit"
	b.Memory, b.MemoryMaxBytes = b.Text("kaas.storage") == "memory", b.Int("kaas.memory.max.bytes")
	b.MemoryRefuse = b.Text("kaas.memory.full.policy") == "refuse"
	b.FullBatchValidation = b.Text("kaas.compressed.batch.validation") == "full"
	b.InflightMaxBytes, b.QueuedMaxRequestBytes = b.Int("kaas.inflight.max.bytes"), b.Int("queued.max.request.bytes")
	if b.Loops = int(b.Int("kaas.loops")); b.Loops == 0 {
		b.Loops = max(1, runtime.GOMAXPROCS(0)/2)
	}
	b.ReadAheadThreads, b.ReadAheadBytes = int(b.Int("kaas.read.ahead.threads")), int(b.Int("kaas.read.ahead.bytes"))
	b.AppendStallMs, b.AppendThreads = int(b.Int("kaas.append.stall.ms")), int(b.Int("kaas.append.threads"))
	b.CommitJournalBytes = b.Int("kaas.commit.journal.bytes")
	b.OpenFilesMax, b.CommitThreads = int(b.Int("kaas.open.files.max")), int(b.Int("kaas.commit.threads"))
	if b.RecoveryThreads = int(b.Int("kaas.recovery.threads")); b.RecoveryThreads == 0 {
		b.RecoveryThreads = 2 * runtime.GOMAXPROCS(0)
	}
	b.RecoveryThreads = max(b.RecoveryThreads, int(b.Int("num.recovery.threads.per.data.dir")))
	b.MetricsListen, b.Pprof = b.Text("kaas.metrics.listen"), b.Bool("kaas.pprof.enable")

	b.AutoCreateTopics, b.DeleteTopics = b.Bool("auto.create.topics.enable"), b.Bool("delete.topic.enable")
	b.NumPartitions, b.DefaultReplicationFactor = int32(b.Int("num.partitions")), int32(b.Int("default.replication.factor"))
	b.ConnectionsMaxIdle = max(0, Millis(b.Int("connections.max.idle.ms")))
	b.MaxConnections, b.MaxConnectionsPerIP = int32(b.Int("max.connections")), int32(b.Int("max.connections.per.ip"))
	b.ConnectionCreationRate, b.HandshakesMax = int32(b.Int("max.connection.creation.rate")), int(b.Int("kaas.tls.handshakes.max"))
	b.HandshakeTimeout = Millis(b.Int("kaas.tls.handshake.timeout.ms"))
	b.ConnectionsPerHost, _ = parsePerHost(b.Text("max.connections.per.ip.overrides"))
	b.SocketRequestMaxBytes, b.ListenBacklog = int32(b.Int("socket.request.max.bytes")), int32(b.Int("socket.listen.backlog.size"))
	b.SocketSendBuffer, b.SocketReceiveBuffer = int32(b.Int("socket.send.buffer.bytes")), int32(b.Int("socket.receive.buffer.bytes"))
	b.FetchMaxBytes, b.FetchSessionSlots = int32(b.Int("fetch.max.bytes")), int32(b.Int("max.incremental.fetch.session.cache.slots"))
	b.RetentionCheckInterval = Millis(b.Int("log.retention.check.interval.ms"))
	b.ProducerIDExpiration = Millis(b.Int("producer.id.expiration.ms"))
	b.OffsetsTopic = InternalTopic{int32(b.Int("offsets.topic.num.partitions")),
		int16(b.Int("offsets.topic.replication.factor")), int32(b.Int("offsets.topic.segment.bytes")), int32(b.Int("min.insync.replicas"))}
	b.TransactionTopic = InternalTopic{int32(b.Int("transaction.state.log.num.partitions")),
		int16(b.Int("transaction.state.log.replication.factor")), int32(b.Int("transaction.state.log.segment.bytes")),
		int32(b.Int("transaction.state.log.min.isr"))}
	b.topic = b.topicDefaults()
}

// Millis converts without overflow: the longest Duration is 292 years.
func Millis(ms int64) time.Duration {
	return time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// WithDynamic returns a snapshot with other dynamic settings: of all brokers,
// and of this one, which win. Values that do not hold (any more) are left out
// and returned; unknown keys have no effect but are shown, as Apache does.
func (b *Broker) WithDynamic(all, own map[string]string) (*Broker, []*Error) {
	n := *b
	var bad []*Error
	n.all, n.unknown[0] = usable(all, &bad)
	n.own, n.unknown[1] = usable(own, &bad)
	for {
		conflicts := n.conflicts()
		size := len(n.all) + len(n.own)
		for _, c := range conflicts {
			delete(n.all, c.Key)
			delete(n.own, c.Key)
		}
		bad = append(bad, conflicts...)
		if len(n.all)+len(n.own) == size {
			break
		}
	}
	n.derive()
	return &n, bad
}

// usable copies the entries of dynamic settings that can be in force, and apart
// from them those with unknown keys.
func usable(given map[string]string, bad *[]*Error) (known, unknown map[string]string) {
	known, unknown = maps.Clone(given), map[string]string{}
	for key, raw := range given {
		k := dynamicKey(key)
		switch {
		case k == nil:
			unknown[key] = raw
			delete(known, key)
		default:
			if err := k.checkDynamic(raw); err != nil {
				*bad = append(*bad, err)
				delete(known, key)
			}
		}
	}
	return known, unknown
}
