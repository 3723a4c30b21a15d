package compare

import (
	"fmt"

	"kaas/bench/record"
)

// Names of subjects.
const (
	Broker = "kaas"
	Floor  = "floor"
)

// Names of figures, which say their unit. Those that end in _of_… are ratios.
const (
	bytesPerSecond    = "bytes_per_second"
	requestsPerSecond = "requests_per_second"
	cpuPerGB          = "cpu_s_per_gb"
	cpuPerRequest     = "cpu_us_per_request"
	latencyP50        = "p50_us"
	latencyP99        = "p99_us"
	clientCPU         = "client_cpu_s"
	rssAnonMiB        = "rss_anon_mib"
	syncsPerSecond    = "syncs_per_second"
	probePerSecond    = "probe_syncs_per_second"
	probeEach         = "probe_of_each_file_per_second"
	probeVolume       = "probe_of_syncfs_per_second"
	probeShared       = "probe_of_one_file_per_second"
	acksOfWriters     = "acks_per_sync_of_writers"
	syncsOfProbe      = "syncs_of_probe"
	probeP99          = "probe_p99_us"
	p99OfProbe        = "p99_of_probe"
	startMs           = "start_ms"
	idleCPU           = "idle_cpu_percent"
	bytesPerConn      = "bytes_per_connection"
	bytesPerPart      = "bytes_per_partition"
	restartMs         = "restart_ms"
	create1000Ms      = "create_1000_ms"
	plainProduce      = "plain_produce_bytes_per_second"
	plainProduceCPU   = "plain_produce_cpu_s_per_gb"
	plainFetch        = "plain_fetch_bytes_per_second"
	plainFetchCPU     = "plain_fetch_cpu_s_per_gb"
	tlsProduce        = "tls_produce_bytes_per_second"
	tlsProduceCPU     = "tls_produce_cpu_s_per_gb"
	tlsFetch          = "tls_fetch_bytes_per_second"
	tlsFetchCPU       = "tls_fetch_cpu_s_per_gb"
	tlsProduceOfPlain = "tls_produce_cpu_of_plain"
	tlsFetchOfPlain   = "tls_fetch_cpu_of_plain"
	quietAckP99       = "quiet_ack_p99_us"
	quietTailP99      = "quiet_tail_p99_us"
	warmAckP99        = "warm_ack_p99_us"
	warmTailP99       = "warm_tail_p99_us"
	coldAckP99        = "cold_ack_p99_us"
	coldTailP99       = "cold_tail_p99_us"
	coldAckOfQuiet    = "cold_ack_p99_of_quiet"
	oneLoopCPU        = "one_loop_cpu_us_per_request"
	twoLoopsOfOne     = "two_loops_cpu_of_one"
	coldTailOfQuiet   = "cold_tail_p99_of_quiet"
)

// Bar is a limit for the median of a figure of the broker, or with over set for its ratio to that of another subject.
type Bar struct {
	figure string
	over   string
	limit  float64
	most   bool // the figure may be at most limit, else it must be at least that
	show   string
}

func atLeast(limit float64, figure, over, show string) Bar {
	return Bar{figure, over, limit, false, show}
}
func atMost(limit float64, figure, show string) Bar { return Bar{figure, "", limit, true, show} }

// value is what the bar judges in r; ok is false when it was not measured.
func (b Bar) value(r *record.Record) (v float64, ok bool) {
	s, ok := r.Figure(Broker, b.figure)
	if !ok || b.over == "" {
		return s.Median, ok
	}
	o, ok := r.Figure(b.over, b.figure)
	if !ok || o.Median == 0 {
		return 0, false
	}
	return s.Median / o.Median, true
}

func (b Bar) met(v float64) bool {
	if b.most {
		return v <= b.limit
	}
	return v >= b.limit
}

func (b Bar) String() string {
	sign := "≥"
	if b.most {
		sign = "≤"
	}
	if b.over != "" {
		return fmt.Sprintf("%s %.0f %% of the %s's %s", sign, 100*b.limit, b.over, b.show)
	}
	return fmt.Sprintf("%s %g %s", sign, b.limit, b.show)
}

// verdict is value and judgement in words.
func (b Bar) verdict(r *record.Record) string {
	v, ok := b.value(r)
	if !ok {
		return "not measured"
	}
	text := fmt.Sprintf("%.3g", v)
	if v >= 1000 {
		text = fmt.Sprintf("%.0f", v)
	}
	if b.over != "" {
		text = fmt.Sprintf("%.0f %%", 100*v)
	}
	if b.met(v) {
		return text + " ✓"
	}
	return text + " ✗"
}
