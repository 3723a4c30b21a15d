package metrics

import (
	"fmt"
	"io"
	"runtime"
	"strings"

	"kaas/codec/api"
	"kaas/server/metrics/counters"
	"kaas/server/txn"
)

//go:generate go run ./gen ../../docs/metrics.md

// Type is what kind of number a metric is.
type Type string

// The types of Prometheus that are in use.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// Metric is a row of the table.
type Metric struct {
	Name   string
	Type   Type
	Labels []string
	Unit   string // seconds, bytes, or "" for a count
	Help   string

	read func(s *scrape, e emitter)
}

// Table lists every metric of the broker's own.
func Table() []Metric { return table[:] }

var table = [...]Metric{
	{"kaas_build_info", Gauge, []string{"version", "revision", "go"}, "", "Always 1; the labels say what runs.",
		func(s *scrape, e emitter) { e.value(1, s.version, s.revision, runtime.Version()) }},

	{"kaas_requests_total", Counter, []string{"api"}, "", "Requests answered; Produce with acks=0 counts when it is handled.",
		perAPI(func(a *counters.APITotals, e emitter) { e.value(float64(a.Requests), a.Name) })},
	{"kaas_request_bytes_total", Counter, []string{"api"}, "bytes", "Bytes of those requests, without the 4 bytes of the size.",
		perAPI(func(a *counters.APITotals, e emitter) { e.value(float64(a.BytesIn), a.Name) })},
	{"kaas_response_bytes_total", Counter, []string{"api"}, "bytes", "Bytes of their responses, the size included.",
		perAPI(func(a *counters.APITotals, e emitter) { e.value(float64(a.BytesOut), a.Name) })},
	{"kaas_request_duration_seconds", Histogram, []string{"api"}, "seconds",
		"From the start of the loop's round that read a request until its response was handed to the socket whole: waiting for durability, for data (Fetch), for responses before it and for a slow reader is in it.",
		perAPI(func(a *counters.APITotals, e emitter) { e.histogram(&a.Took, counters.DurationShift, a.Nanos, a.Name) })},
	{"kaas_request_errors_total", Counter, []string{"api", "error"}, "", "Error codes in responses, by Apache Kafka's names; one for each topic, partition or resource that got one.",
		perAPI(func(a *counters.APITotals, e emitter) {
			for _, c := range a.NonZeroErrorCounts {
				e.value(float64(c.Count), a.Name, api.ErrorCode(c.Code).String())
			}
		})},

	{"kaas_produce_batches_total", Counter, nil, "", "Record batches appended by Produce; repeats of idempotent producers are not counted.",
		func(s *scrape, e emitter) { e.value(float64(s.traffic.ProduceBatches)) }},
	{"kaas_produce_bytes_total", Counter, nil, "bytes", "Bytes of those batches.",
		func(s *scrape, e emitter) { e.value(float64(s.traffic.ProduceBytes)) }},
	{"kaas_produce_records_total", Counter, nil, "", "Records in those batches.",
		func(s *scrape, e emitter) { e.value(float64(s.traffic.ProduceRecords)) }},
	{"kaas_fetch_bytes_total", Counter, nil, "bytes", "Bytes of record batches in Fetch responses.",
		func(s *scrape, e emitter) { e.value(float64(s.traffic.FetchBytes)) }},

	{"kaas_log_writes_total", Counter, nil, "", "Writes of appended batches into the page cache: one per partition and round of a loop.",
		func(s *scrape, e emitter) { e.value(float64(s.storage.WriteTook.Count())) }},
	{"kaas_log_write_bytes_total", Counter, nil, "bytes", "Bytes of those writes.",
		func(s *scrape, e emitter) { e.value(float64(s.storage.WriteBytes.Load())) }},
	{"kaas_log_write_duration_seconds", Histogram, nil, "seconds", "How long those writes took, allocating space included. Long ones are stalls: the kernel throttles writers.",
		stored(func(st *counters.Storage) *counters.Histogram { return &st.WriteTook })},
	{"kaas_commit_rounds_total", Counter, nil, "", "Rounds of the group commit.",
		func(s *scrape, e emitter) { e.value(float64(s.storage.Rounds.Load())) }},
	{"kaas_commit_syncs_total", Counter, nil, "", "Logs synced in those rounds.",
		func(s *scrape, e emitter) { e.value(float64(s.storage.Syncs.Load())) }},
	{"kaas_commit_released_total", Counter, nil, "", "Appends with acks=all that waited for those rounds. One that was durable before it came to wait is not among them.",
		func(s *scrape, e emitter) { e.value(float64(s.storage.Released.Load())) }},
	{"kaas_commit_round_logs", Histogram, nil, "", "Logs synced in one round.",
		stored(func(st *counters.Storage) *counters.Histogram { return &st.RoundLogs })},
	{"kaas_commit_round_released", Histogram, nil, "", "Appends released by one round.",
		stored(func(st *counters.Storage) *counters.Histogram { return &st.RoundReleased })},
	{"kaas_commit_round_duration_seconds", Histogram, nil, "seconds", "How long the syncs of a round took.",
		stored(func(st *counters.Storage) *counters.Histogram { return &st.RoundTook })},

	{"kaas_topics", Gauge, nil, "", "Topics, internal ones included.",
		func(s *scrape, e emitter) { e.value(float64(s.logs.topics)) }},
	{"kaas_partitions", Gauge, nil, "", "Partitions.",
		func(s *scrape, e emitter) { e.value(float64(s.logs.partitions)) }},
	{"kaas_logs_offline", Gauge, nil, "", "Partitions whose log failed and takes no writes until the next start.",
		func(s *scrape, e emitter) { e.value(float64(s.logs.offline)) }},
	{"kaas_log_bytes", Gauge, nil, "bytes", "Record batches in the logs that are loaded; a log is loaded when it is first used after a start.",
		func(s *scrape, e emitter) { e.value(float64(s.logs.bytes)) }},
	{"kaas_log_files_open", Gauge, nil, "", "Segment files held open.",
		func(s *scrape, e emitter) { e.value(float64(s.engine.OpenFiles)) }},
	{"kaas_log_maps", Gauge, nil, "", "Index files mapped.",
		func(s *scrape, e emitter) { e.value(float64(s.engine.Maps)) }},
	{"kaas_memory_storage_bytes", Gauge, nil, "bytes", "Record batches held in memory; with kaas.storage=memory only.",
		func(s *scrape, e emitter) {
			if s.memory {
				e.value(float64(s.engine.MemoryBytes))
			}
		}},
	{"kaas_page_cache_missed_bytes_total", Counter, nil, "bytes", "Bytes read from the disk because the page cache lacked them.",
		func(_ *scrape, e emitter) {
			if n, ok := missedBytes(); ok {
				e.value(n)
			}
		}},
	{"kaas_disk_size_bytes", Gauge, nil, "bytes", "Size of the file system of the data directory.",
		func(s *scrape, e emitter) {
			if s.disk != nil {
				e.value(float64(s.disk.Total))
			}
		}},
	{"kaas_disk_free_bytes", Gauge, nil, "bytes", "What of it the broker may still use.",
		func(s *scrape, e emitter) {
			if s.disk != nil {
				e.value(float64(s.disk.Free))
			}
		}},

	{"kaas_connections", Gauge, nil, "", "Open connections.",
		func(s *scrape, e emitter) { e.value(float64(s.net.Conns)) }},
	{"kaas_connections_accepted_total", Counter, nil, "", "Connections accepted.",
		func(s *scrape, e emitter) { e.value(float64(s.net.Opened)) }},
	{"kaas_connections_closed_total", Counter, []string{"reason"}, "", "Connections closed, by why.",
		func(s *scrape, e emitter) {
			s.requests.EachClosing(func(why counters.Closing, _ bool, n int64) { e.value(float64(n), why.String()) })
		}},
	{"kaas_connections_rejected_total", Counter, []string{"reason"}, "", "Connections not let in: over max.connections.per.ip, or not accepted for an error of the system.",
		func(s *scrape, e emitter) {
			e.value(float64(s.net.RejectedPerIP), "max_connections_per_ip")
			e.value(float64(s.net.AcceptErrors), "accept_error")
		}},
	{"kaas_accept_pauses_total", Counter, []string{"reason"}, "", "Times that accepting rested to keep to max.connection.creation.rate, of all or of a listener, or because there were max.connections of all or of a listener; peers wait.",
		func(s *scrape, e emitter) {
			e.value(float64(s.net.Paced), "rate")
			e.value(float64(s.net.FullTotal), "max_connections")
			e.value(float64(s.net.FullListener), "listener_max_connections")
		}},
	{"kaas_tls_handshakes_total", Counter, []string{"result"}, "", "TLS handshakes; a failed one was refused, broken off, no TLS at all or too slow. Those of peers that sent nothing are not counted.",
		func(s *scrape, e emitter) {
			e.value(float64(s.net.Handshakes), "ok")
			e.value(float64(s.net.HandshakeFailures), "failed")
		}},
	{"kaas_connection_pauses_total", Counter, nil, "", "Times a connection was not read because too much of it was not yet answered, or its answers not read.",
		func(s *scrape, e emitter) { e.value(float64(s.net.Pauses)) }},
	{"kaas_inflight_request_bytes", Gauge, nil, "bytes", "Requests received, in part or whole, and not yet answered: part of what kaas.inflight.max.bytes bounds.",
		func(s *scrape, e emitter) { e.value(float64(s.net.HeldRequests)) }},
	{"kaas_inflight_response_bytes", Gauge, nil, "bytes", "Memory of responses that clients have not read yet: the other part.",
		func(s *scrape, e emitter) { e.value(float64(s.net.HeldReplies)) }},
	{"kaas_inflight_pauses_total", Counter, nil, "", "Times a connection was not read because kaas.inflight.max.bytes or queued.max.request.bytes was used up.",
		func(s *scrape, e emitter) { e.value(float64(s.net.Starved)) }},
	{"kaas_cold_reads_total", Counter, nil, "", "Times the sending of records waited for a worker that reads them from the disk, a MiB or less at a time.",
		func(s *scrape, e emitter) { e.value(float64(s.net.ColdReads)) }},
	{"kaas_cold_reads_gone_total", Counter, nil, "", "Times that what such a worker had read was out of the page cache again before it was sent: there is too little memory for so many readers.",
		func(s *scrape, e emitter) { e.value(float64(s.net.ColdGone)) }},
	{"kaas_quota_throttled_total", Counter, []string{"quota"}, "", "Requests answered with a throttle time, by the key of the quota that the client was over.",
		func(s *scrape, e emitter) {
			for _, u := range s.api.Quotas.Kinds {
				e.value(float64(u.Throttled), u.Key)
			}
		}},
	{"kaas_quota_throttle_seconds_total", Counter, []string{"quota"}, "seconds", "Sum of those throttle times.",
		func(s *scrape, e emitter) {
			for _, u := range s.api.Quotas.Kinds {
				e.value(float64(u.MutedMs)/1000, u.Key)
			}
		}},
	{"kaas_quota_time_seconds_total", Counter, []string{"part"}, "seconds", "Time measured of clients with a request_percentage: handler and network count for it, exempt (acks=0, markers) does not.",
		func(s *scrape, e emitter) {
			for _, p := range s.api.Quotas.Spent {
				e.value(float64(p.Nanos)/1e9, p.Part)
			}
		}},
	{"kaas_quota_clients", Gauge, nil, "", "Users, client ids and addresses whose use is measured because of a quota.",
		func(s *scrape, e emitter) { e.value(float64(s.api.Quotas.Meters)) }},
	{"kaas_quota_connections_refused_total", Counter, nil, "", "Connections over connection_creation_rate: closed after a wait.",
		func(s *scrape, e emitter) { e.value(float64(s.api.Quotas.Refused)) }},
	{"kaas_frames_total", Counter, nil, "", "Whole frames received.",
		func(s *scrape, e emitter) { e.value(float64(s.net.Frames)) }},
	{"kaas_protocol_errors_total", Counter, []string{"reason"}, "", "Connections closed for what the peer sent.",
		func(s *scrape, e emitter) {
			s.requests.EachClosing(func(why counters.Closing, fault bool, n int64) {
				if fault {
					e.value(float64(n), why.String())
				}
			})
		}},
	{"kaas_network_received_bytes_total", Counter, nil, "bytes", "Bytes received from clients.",
		func(s *scrape, e emitter) { e.value(float64(s.net.BytesIn)) }},
	{"kaas_network_sent_bytes_total", Counter, nil, "bytes", "Bytes sent to clients.",
		func(s *scrape, e emitter) { e.value(float64(s.net.BytesOut)) }},
	{"kaas_loops", Gauge, nil, "", "Event loops.",
		func(s *scrape, e emitter) { e.value(float64(s.loops)) }},
	{"kaas_loop_rounds_total", Counter, nil, "", "Rounds of the event loops.",
		func(s *scrape, e emitter) { e.value(float64(s.net.Rounds)) }},
	{"kaas_loop_wakes_total", Counter, nil, "", "Times a sleeping loop was woken by another goroutine.",
		func(s *scrape, e emitter) { e.value(float64(s.net.Wakes)) }},
	{"kaas_append_stalls_total", Counter, nil, "", "Appends of a round that took kaas.append.stall.ms or longer, preempted ones included; see Stalled writes in operations.md.",
		func(s *scrape, e emitter) { e.value(float64(s.api.AppendStalls)) }},
	{"kaas_parked_fetches", Gauge, nil, "", "Fetch requests that wait for data.",
		func(s *scrape, e emitter) { e.value(float64(s.api.ParkedFetches)) }},
	{"kaas_fetch_sessions", Gauge, nil, "", "Incremental fetch sessions (KIP-227).",
		func(s *scrape, e emitter) { e.value(float64(s.api.FetchSessions)) }},
	{"kaas_groups", Gauge, []string{"state"}, "", "Groups, by state. Those of shards that are being loaded are not among them.",
		func(s *scrape, e emitter) {
			for _, st := range s.groups.States {
				e.value(float64(st.Groups), st.Name)
			}
		}},
	{"kaas_group_members", Gauge, nil, "", "Members of groups.",
		func(s *scrape, e emitter) { e.value(float64(s.groups.Members)) }},
	{"kaas_group_offsets", Gauge, nil, "", "Committed offsets: one per group and partition.",
		func(s *scrape, e emitter) { e.value(float64(s.groups.Offsets)) }},
	{"kaas_group_shards", Gauge, nil, "", "Shards of the group coordinator: partitions of __consumer_offsets.",
		func(s *scrape, e emitter) { e.value(float64(s.shards.Shards)) }},
	{"kaas_group_shards_open", Gauge, nil, "", "Those that are loaded and serve.",
		func(s *scrape, e emitter) { e.value(float64(s.shards.Open)) }},
	{"kaas_group_load_seconds_total", Counter, nil, "seconds", "Time spent loading shards, summed over those that were loaded at the same time.",
		func(s *scrape, e emitter) { e.value(s.shards.Loading.Seconds()) }},
	{"kaas_group_operations_total", Counter, nil, "", "Operations run by shards: requests about groups, alarms, removals.",
		func(s *scrape, e emitter) { e.value(float64(s.shards.Operations)) }},
	{"kaas_group_log_records_total", Counter, nil, "", "Records written to __consumer_offsets: one per committed offset, generation and removal.",
		func(s *scrape, e emitter) { e.value(float64(s.shards.Records)) }},
	{"kaas_group_log_batches_total", Counter, nil, "", "Batches that they were written in.",
		func(s *scrape, e emitter) { e.value(float64(s.shards.Batches)) }},
	{"kaas_group_log_bytes_total", Counter, nil, "bytes", "Bytes of those batches.",
		func(s *scrape, e emitter) { e.value(float64(s.shards.Bytes)) }},
	{"kaas_group_log_failures_total", Counter, nil, "", "Batches that could not be written: no room, or a log that failed.",
		func(s *scrape, e emitter) { e.value(float64(s.shards.Failed)) }},
	{"kaas_transactional_ids", Gauge, []string{"state"}, "", "Transactional ids, by the state of their transaction. Those of shards that are being loaded are not among them.",
		func(s *scrape, e emitter) {
			for st := txn.Empty; st < txn.Dead; st++ {
				e.value(float64(s.txns[st]), st.String())
			}
		}},
	{"kaas_transaction_shards", Gauge, nil, "", "Shards of the transaction coordinator: partitions of __transaction_state.",
		func(s *scrape, e emitter) { e.value(float64(s.txnLog.Shards)) }},
	{"kaas_transaction_shards_open", Gauge, nil, "", "Those that are loaded and serve.",
		func(s *scrape, e emitter) { e.value(float64(s.txnLog.Open)) }},
	{"kaas_transaction_load_seconds_total", Counter, nil, "seconds", "Time spent loading shards, summed over those that were loaded at the same time.",
		func(s *scrape, e emitter) { e.value(s.txnLog.Loading.Seconds()) }},
	{"kaas_transaction_operations_total", Counter, nil, "", "Operations run by shards: requests about transactions, verifications, alarms.",
		func(s *scrape, e emitter) { e.value(float64(s.txnLog.Operations)) }},
	{"kaas_transaction_log_records_total", Counter, nil, "", "Records written to __transaction_state: one per change of a transaction.",
		func(s *scrape, e emitter) { e.value(float64(s.txnLog.Records)) }},
	{"kaas_transaction_log_batches_total", Counter, nil, "", "Batches that they were written in.",
		func(s *scrape, e emitter) { e.value(float64(s.txnLog.Batches)) }},
	{"kaas_transaction_log_failures_total", Counter, nil, "", "Batches that could not be written: no room, or a log that failed.",
		func(s *scrape, e emitter) { e.value(float64(s.txnLog.Failed)) }},
	{"kaas_transaction_markers_total", Counter, []string{"type"}, "", "Markers written to partitions: one per transaction and partition.",
		func(s *scrape, e emitter) {
			e.value(float64(s.api.MarkersCommit), "commit")
			e.value(float64(s.api.MarkersAbort), "abort")
		}},
	{"kaas_transaction_marker_retries_total", Counter, nil, "", "Markers that could not be written and were put off: a log without room, one that failed, or a shard of groups that was not loaded.",
		func(s *scrape, e emitter) { e.value(float64(s.api.MarkerRetries)) }},
	{"kaas_handler_panics_total", Counter, nil, "", "Requests whose handler panicked; each cost its connection. Any is a defect of kaas.",
		func(s *scrape, e emitter) { e.value(float64(s.api.Panics + s.net.Panics)) }},
}

// perAPI reads a metric of each API that was asked for at least once.
func perAPI(read func(a *counters.APITotals, e emitter)) func(*scrape, emitter) {
	return func(s *scrape, e emitter) {
		for i := range s.apis {
			if a := &s.apis[i]; a.Requests > 0 || len(a.NonZeroErrorCounts) > 0 {
				read(a, e)
			}
		}
	}
}

// stored reads a histogram of the storage.
func stored(pick func(*counters.Storage) *counters.Histogram) func(*scrape, emitter) {
	return func(s *scrape, e emitter) {
		h := pick(s.storage)
		var counts [counters.Buckets]int64
		sum := h.AddTo(&counts)
		e.histogram(&counts, h.Shift, sum)
	}
}

const docsHead = `<!-- Made by go generate ./server/metrics from the table in server/metrics/table.go. Do not edit. -->

# Metrics and health

Off by default. ` + "`--metrics host:port`, or `kaas.metrics.listen=host:port`" + `, opens an HTTP listener of its own; port 0 picks a free one, and the
ready line says where it is (` + "`metrics`" + `). It has no authentication: bind it where only those who watch can reach it.

| path | answer |
|---|---|
| ` + "`/metrics`" + ` | Prometheus' text format, or OpenMetrics for those who ask for it |
| ` + "`/healthz`" + ` | 200 if every event loop answers within 0.9 s, else 503 with reasons; 200 also while the broker starts. For a liveness probe |
| ` + "`/readyz`" + ` | 200 if the ports are open and no log is offline, else 503 with reasons; 503 while it starts and stops. For a readiness probe |
| ` + "`/debug/pprof/`" + ` | Go's profiles, with ` + "`kaas.pprof.enable=true`" + ` only |

Health is JSON: ` + "`{\"ok\":false,\"reasons\":[\"log orders-3 is offline: …\"]}`" + `. The listener opens before the data directory does, so a long recovery
can be watched. A scrape waits for no disk and for no lock that is held over one; numbers of one scrape need not be of the same instant.

Series are bounded: labels name APIs, error codes and reasons, never topics or clients. An API appears once it was asked for. Histograms
have two buckets per power of two: durations from 8.2 µs to 34 s, sizes from 1.

| name | type | labels | unit | help |
|---|---|---|---|---|
`

const docsTail = `
Beside them stand Go's and the process's own, as every Go program shows them: ` + "`go_*`" + ` (heap, garbage collector, goroutines) and ` + "`process_*`" + ` (CPU,
memory, descriptors, start time).
`

// WriteDocs writes docs/metrics.md.
func WriteDocs(w io.Writer) error {
	var b strings.Builder
	b.WriteString(docsHead)
	for i := range table {
		m := &table[i]
		labels, unit := "–", "–"
		if len(m.Labels) > 0 {
			labels = "`" + strings.Join(m.Labels, "`, `") + "`"
		}
		if m.Unit != "" {
			unit = m.Unit
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", m.Name, m.Type, labels, unit, m.Help)
	}
	b.WriteString(docsTail)
	_, err := io.WriteString(w, b.String())
	return err
}
