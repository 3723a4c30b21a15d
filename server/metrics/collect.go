package metrics

import (
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"kaas/engine"
	"kaas/engine/vfs"
	"kaas/netio"
	"kaas/server/api"
	"kaas/server/coordinator"
	"kaas/server/group"
	"kaas/server/metrics/counters"
	"kaas/server/topics"
	"kaas/server/txn"
)

// Sources are the parts of a running broker that metrics and health read.
type Sources struct {
	Net     *netio.Server
	API     *api.Service
	Engine  *engine.Engine
	Topics  *topics.Registry
	Groups  *coordinator.Runtime[*group.Shard]
	Txns    *coordinator.Runtime[*txn.Shard]
	Storage *counters.Storage
	Memory  bool // logs are in memory
	// Space asks for the room on the data directory's file system; it may block. nil with Memory.
	Space func() (vfs.Space, error)
}

// scrape is what one scrape reads: each source once.
type scrape struct {
	version, revision string

	requests *counters.Set
	apis     []counters.APITotals
	traffic  counters.Traffic
	storage  *counters.Storage
	net      netio.Stats
	loops    int
	api      api.Stats
	engine   engine.Stats
	logs     logTotals
	shards   coordinator.Stats
	groups   group.Totals
	txnLog   coordinator.Stats
	txns     txn.Totals
	memory   bool
	disk     *vfs.Space // nil: not known
}

// logTotals are those of all logs.
type logTotals struct {
	topics, partitions, offline int
	bytes                       int64
}

func totalsOf(r *topics.Registry) (t logTotals) {
	for _, topic := range r.All() {
		t.topics++
		for _, p := range topic.Partitions() {
			t.partitions++
			t.bytes += p.Log.SizeBytes()
			if p.Log.Err() != nil {
				t.offline++
			}
		}
	}
	return t
}

// space asks for the room on the disk. A file system that hangs costs one goroutine, and its numbers are missing until it answers.
type space struct{ asking atomic.Bool }

// spaceWait is how long a scrape waits for the disk's numbers; they take microseconds where nothing is wrong.
const spaceWait = 100 * time.Millisecond

func (p *space) read(ask func() (vfs.Space, error)) *vfs.Space {
	if ask == nil || p.asking.Swap(true) {
		return nil
	}
	got := make(chan *vfs.Space, 1)
	go func() {
		defer p.asking.Store(false)
		s, err := ask()
		if err != nil {
			got <- nil
			return
		}
		got <- &s
	}()
	select {
	case s := <-got:
		return s
	case <-time.After(spaceWait):
		return nil
	}
}

// collector makes Prometheus metrics of the table.
type collector struct {
	server            *Server
	descs             [len(table)]*prometheus.Desc
	version, revision string
}

func newCollector(s *Server) *collector {
	c := &collector{server: s, version: "(devel)"}
	if info, ok := debug.ReadBuildInfo(); ok {
		c.version = info.Main.Version
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				c.revision = s.Value
			}
		}
	}
	for i := range table {
		c.descs[i] = prometheus.NewDesc(table[i].Name, table[i].Help, table[i].Labels, nil)
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector. Before the broker serves there is the first row only.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	s := scrape{version: c.version, revision: c.revision}
	from := c.server.sources.Load()
	if from == nil {
		table[0].read(&s, emitter{ch, c.descs[0], table[0].Type})
		return
	}
	s.requests, s.storage = from.API.Counters(), from.Storage
	s.apis, s.traffic = s.requests.APIs(), s.requests.Traffic()
	s.net, s.loops, s.api = from.Net.Stats(), len(from.Net.Loops()), from.API.Stats()
	s.engine, s.logs = from.Engine.Stats(), totalsOf(from.Topics)
	s.shards, s.groups = from.Groups.Stats(), groupsOf(from.Groups)
	s.txnLog, s.txns = from.Txns.Stats(), txnsOf(from.Txns)
	s.memory, s.disk = from.Memory, c.server.space.read(from.Space)
	for i := range table {
		table[i].read(&s, emitter{ch, c.descs[i], table[i].Type})
	}
}

// emitter takes the values of one metric.
type emitter struct {
	ch   chan<- prometheus.Metric
	desc *prometheus.Desc
	typ  Type
}

// value gives a counter's or gauge's value for these values of the labels.
func (e emitter) value(v float64, labels ...string) {
	typ := prometheus.GaugeValue
	if e.typ == Counter {
		typ = prometheus.CounterValue
	}
	e.ch <- prometheus.MustNewConstMetric(e.desc, typ, v, labels...)
}

// histogram gives a histogram's; with counters.DurationShift its values are nanoseconds, which are shown as seconds.
func (e emitter) histogram(counts *[counters.Buckets]int64, shift uint8, sum int64, labels ...string) {
	unit := 1.0
	if shift == counters.DurationShift {
		unit = 1e9
	}
	h := counters.Histogram{Shift: shift}
	buckets := make(map[float64]uint64, counters.Buckets-1)
	var n uint64
	for i, c := range counts {
		n += uint64(c)
		if i < counters.Buckets-1 {
			buckets[float64(h.Bound(i))/unit] = n
		}
	}
	e.ch <- prometheus.MustNewConstHistogram(e.desc, n, float64(sum)/unit, buckets, labels...)
}

// scrapesMax bounds scrapes at the same time.
const scrapesMax = 4

// handler makes the registry and what serves it: at the first scrape, so that a start pays nothing for it.
func (s *Server) handler() http.Handler {
	s.once.Do(func() {
		r := prometheus.NewRegistry()
		r.MustRegister(newCollector(s), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
		s.metrics = promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: scrapesMax, EnableOpenMetrics: true})
	})
	return s.metrics
}
