package compare

import (
	"kaas/bench/load"
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

// Durabilities of the broker.
const (
	pageCache   = "page-cache"
	groupCommit = "group-commit"
)

// scenario is one thing to measure. Bytes and requests are those of a full run; Options.Scale shrinks them.
type scenario struct {
	name     string
	what     string // for the reader of the tables
	subjects []string
	rounds   int
	named    bool // it runs only when it is named: it writes more than the others
	measure  func(t *turn) error
	bars     []Bar
}

var both, alone = []string{Floor, Broker}, []string{Broker}

// scenarios in the order of the tables.
var scenarios = []scenario{
	{
		name: "produce-16k", what: "produce, 16 KiB batches, page cache; 4 connections, 8 requests in flight each", subjects: both, rounds: 5,
		measure: func(t *turn) error {
			return t.produce(load.ProduceConfig{Connections: 4, Pipeline: 8, BatchBytes: 16 * kib, RecordBytes: kib, Acks: 1}, 1500*mib)
		},
		bars: []Bar{atLeast(0.5, bytesPerSecond, Floor, "bytes/s"), atMost(0.8, cpuPerGB, "CPU-s/GB")},
	},
	{
		name: "produce-1m", what: "produce, 1 MiB requests, page cache; 4 connections, 2 requests in flight each", subjects: both, rounds: 5,
		measure: func(t *turn) error {
			return t.produce(load.ProduceConfig{Connections: 4, Pipeline: 2, BatchBytes: mib, RecordBytes: kib, Acks: 1}, 1500*mib)
		},
		bars: []Bar{atLeast(0.6, bytesPerSecond, Floor, "bytes/s"), atMost(0.6, cpuPerGB, "CPU-s/GB")},
	},
	{
		name: "produce-1-record", what: "produce, one 1 KiB record per request, page cache; 64 connections, 5 requests in flight each",
		subjects: both, rounds: 5,
		measure: func(t *turn) error {
			return t.produce(load.ProduceConfig{Connections: 64, Pipeline: 5, BatchBytes: 1, RecordBytes: kib, Acks: 1}, 500*mib)
		},
		bars: []Bar{atMost(10, cpuPerRequest, "µs CPU per request")},
	},
	{
		name: "fetch-1m", what: "fetch, 1 MiB responses, warm; 4 connections", subjects: both, rounds: 5,
		measure: func(t *turn) error { return t.fetch(mib) },
		bars:    []Bar{atLeast(0.6, bytesPerSecond, Floor, "bytes/s"), atMost(0.45, cpuPerGB, "CPU-s/GB")},
	},
	{
		name: "fetch-64k", what: "fetch, 64 KiB responses, warm; 4 connections", subjects: both, rounds: 5,
		measure: func(t *turn) error { return t.fetch(64 * kib) },
		bars:    []Bar{atLeast(0.6, bytesPerSecond, Floor, "bytes/s")},
	},
	{
		name: "commit-64", what: "group commit, closed loop of 64 writers of 1 KiB records on one partition, a connection each", subjects: both, rounds: 3,
		measure: func(t *turn) error { return t.commit(commits{64, 64, 1}) }, bars: commitBars,
	},
	{
		name: "commit-512", what: "group commit, closed loop of 512 writers of 1 KiB records on one partition, a connection each", subjects: both, rounds: 3,
		measure: func(t *turn) error { return t.commit(commits{512, 512, 1}) }, bars: commitBars,
	},
	{
		name: "commit-64-shared", what: "group commit, closed loop of 64 writers of 1 KiB records on one partition, over 8 connections", subjects: both, rounds: 3,
		measure: func(t *turn) error { return t.commit(commits{64, 8, 1}) }, bars: commitBars,
	},
	{
		name: "commit-512-shared", what: "group commit, closed loop of 512 writers of 1 KiB records on one partition, over 8 connections", subjects: both, rounds: 3,
		measure: func(t *turn) error { return t.commit(commits{512, 8, 1}) }, bars: commitBars,
	},
	{
		name: "commit-64-partitions", what: "group commit, closed loop of 64 writers of 1 KiB records on 64 partitions, a connection each", subjects: both, rounds: 3,
		measure: func(t *turn) error { return t.commit(commits{64, 64, 64}) },
		bars: []Bar{
			atLeast(0.8, acksOfWriters, "", "acks per sync, of the writers"), atLeast(0.6, syncsOfProbe, "", "syncs/s, of a bare probe that syncs as many files the best way"),
			atMost(2, p99OfProbe, "times the probe's p99, for the p99 of an acknowledgement"), acksOfFloor,
		},
	},
	{
		name: "cold-readers", what: "1,000 acknowledgements/s and their tail reader, page cache, beside 4 readers of data that is not in the page cache", subjects: alone, rounds: 5,
		measure: (*turn).coldReaders,
		bars: []Bar{
			atMost(2, coldAckOfQuiet, "times the quiet p99, for the p99 of an acknowledgement"), atMost(2, coldTailOfQuiet, "times the quiet p99, for the p99 of the tail reader"),
			atMost(1.5, coldAckOfControl, "times the p99 of a floor that serves no reader, in the same moments, for the p99 of an acknowledgement"),
		},
	},
	{
		name: "dirty-limits", what: "500 fetches/s of 64 KiB in memory, page cache, beside a producer of another partition that goes on beyond the kernel's limits of dirty pages",
		subjects: alone, rounds: 3, named: true,
		measure: (*turn).dirtyLimits,
		bars: []Bar{
			atMost(3, beyondFetchOfQuiet, "times the quiet p99, for the p99 of a fetch"),
			atMost(1.5, beyondFetchOfControl, "times the p99 of a floor that serves no producer, in the same moments, for the p99 of a fetch"),
		},
	},
	{
		name: "loops", what: "produce, one 1 KiB record per request on 8 partitions, 64 connections: two event loops on two cores over one on one", subjects: alone, rounds: 5,
		measure: (*turn).loops, bars: []Bar{atMost(1.1, twoLoopsOfOne, "times the CPU per request of one loop")},
	},
	{
		name: "tls", what: "franz-go, 2 clients, 256 KiB batches, page cache: over TLS 1.3 beside plaintext", subjects: alone, rounds: 3,
		measure: (*turn).overTLS,
		bars:    []Bar{atMost(3, tlsProduceOfPlain, "times the CPU of plaintext, produce"), atMost(3, tlsFetchOfPlain, "times the CPU of plaintext, fetch")},
	},
	{
		name: "start", what: "start to the first answered ApiVersions, empty directory", subjects: alone, rounds: 20,
		measure: (*turn).startUp, bars: []Bar{atMost(15, startMs, "ms")},
	},
	{
		name: "idle", what: "idle without topics", subjects: alone, rounds: 3,
		measure: (*turn).idle,
		bars:    []Bar{atMost(6, rssAnonMiB, "MiB RssAnon"), atMost(0.1, idleCPU, "% CPU")},
	},
	{
		name: "connections", what: "5,000 idle connections, each after one ApiVersions", subjects: alone, rounds: 3,
		measure: (*turn).connections, bars: []Bar{atMost(kib, bytesPerConn, "bytes RssAnon per connection")},
	},
	{
		name: "partitions", what: "10,000 partitions known, none in use", subjects: alone, rounds: 3,
		measure: partitions(10),
		bars: []Bar{
			atMost(2*kib, bytesPerPart, "bytes RssAnon per partition"), atMost(500, restartMs, "ms for a clean restart"),
			atMost(50, create1000Ms, "ms to create 1,000"),
		},
	},
	{
		name: "partitions-100k", what: "100,000 partitions known, none in use", subjects: alone, rounds: 3,
		measure: partitions(100),
		bars: []Bar{
			atMost(2*kib, bytesPerPart, "bytes RssAnon per partition"), atMost(4000, restartMs, "ms for a clean restart"),
			atMost(50, create1000Ms, "ms to create 1,000"),
		},
	},
	{
		name: "partitions-written", what: "10,000 partitions with a record in each, page cache", subjects: alone, rounds: 3,
		measure: written(10), bars: append([]Bar{atMost(500, restartMs, "ms for a clean restart")}, writtenBars...),
	},
	{
		name: "partitions-100k-written", what: "100,000 partitions with a record in each, page cache", subjects: alone, rounds: 1, named: true,
		measure: written(100), bars: append([]Bar{atMost(4000, restartMs, "ms for a clean restart")}, writtenBars...),
	},
}

var writtenBars = []Bar{
	atMost(4*kib, writtenBytes, "bytes RssAnon per partition written to"), atMost(4*kib, readBytes, "bytes RssAnon per partition looked at after the restart"),
	atMost(20_000, descriptors, "descriptors"), atMost(65_530, memoryMaps, "memory maps"),
}

var commitBars = []Bar{
	atLeast(0.8, acksOfWriters, "", "acks per sync, of the writers"), atLeast(0.7, syncsOfProbe, "", "syncs/s, of a bare fdatasync probe"),
	acksOfFloor,
}

// acksOfFloor judges by what the sockets and the processors leave of the disk's syncs: the floor's group commit is the least there is, with
// the same clients on the same cores.
var acksOfFloor = atLeast(0.65, requestsPerSecond, Floor, "acks/s")

// Names lists the scenarios.
func Names() []string {
	var names []string
	for i := range scenarios {
		names = append(names, scenarios[i].name)
	}
	return names
}
