// Package rivals measures kaas beside other brokers of the same protocol, with the clients that people use: Apache Kafka, franz-go's kfake with a
// data directory and in memory, and the floor (package floor).
//
// Rounds are interleaved: in each round every broker has its turn with a fresh process on a fresh directory, one alive at a time. What a broker used is
// read from outside. Clients are processes of their own: Apache's ProducerPerformance and ConsumerPerformance, franz-go and the own generator (both as
// `kaas bench …`), and librdkafka (drivers/librdkafka, built when it is needed: it wants cgo, which this module does not). kfake is built from drivers/kfake;
// Apache's jars come by Maven (.ci/java). At most 2 GiB are on the disk at a time.
package rivals

// Names of brokers.
const (
	Kaas    = "kaas"
	Kfake   = "kfake"
	Memory  = "kfake-memory"
	Apache  = "apache"
	Floor   = "floor"
	version = "3.7.2" // of Apache Kafka
)

// Brokers in the order of the tables.
var Brokers = []string{Kaas, Apache, Kfake, Memory, Floor}

// Figures, which say their unit.
const (
	bytesPerSecond    = "bytes_per_second"
	requestsPerSecond = "requests_per_second"
	cpuPerGB          = "cpu_s_per_gb"
	cpuPerRequest     = "cpu_us_per_request"
	p50               = "p50_us"
	p99               = "p99_us"
	p999              = "p99.9_us"
	rssPeak           = "rss_anon_peak_mib"
	clientCPU         = "client_cpu_s"
	startMs           = "start_ms"
	idleRss           = "idle_rss_anon_mib"
	idleCPU           = "idle_cpu_percent"
	createMs          = "create_1000_ms"
	usableMs          = "usable_1000_ms"
	restartMs         = "restart_ms"
	ackP99Quiet       = "ack_p99_quiet_us"
	ackP99Cold        = "ack_p99_cold_us"
	ackP99Times       = "ack_p99_times_quiet"
	coldPerSecond     = "cold_bytes_per_second"
	instructions      = "instructions_per_request"
)

const mib = 1 << 20
