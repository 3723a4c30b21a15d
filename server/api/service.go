package api

import (
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"kaas/codec/api"
	"kaas/codec/batch"
	"kaas/codec/wire"
	"kaas/engine"
	"kaas/netio"
	"kaas/server/catalog"
	"kaas/server/coordinator"
	"kaas/server/fetchsession"
	"kaas/server/group"
	"kaas/server/logging"
	"kaas/server/quota"
	"kaas/server/topics"
	"kaas/server/txn"
)

// Endpoint is the address that clients of one listener are told.
type Endpoint struct {
	Host string
	Port int32
}

// Config is what a Service is made of.
type Config struct {
	Topics    *topics.Registry
	Engine    *engine.Engine
	Groups    *coordinator.Runtime[*group.Shard]
	Txns      *coordinator.Runtime[*txn.Shard]
	Levels    *logging.Levels
	ClusterID string
	NodeID    int32
	Rack      string
	Sessions  int // slots of the fetch session cache
	// FetchMaxBytes bounds every Fetch response (fetch.max.bytes).
	FetchMaxBytes int
	// Space tells the room on the file system of the logs, in bytes; it may block.
	Space func() (total, usable int64, err error)
	// AppendStallMs is from when on an append stalls, and Produce goes to AppendThreads workers for a while; 0: never.
	AppendStallMs, AppendThreads int
	// Quotas are the limits of clients; nil: none, until some are set.
	Quotas *quota.Manager
	// Now is the wall clock in ms; nil for the real one.
	Now func() int64

	// ConsumerGroups: the consumer protocol (KIP-848) is on. Unstable: APIs still in development are offered
	// (unstable.api.versions.enable).
	ConsumerGroups, Unstable bool
}

// Service serves the APIs. It implements netio.Handler.
type Service struct {
	topics        *topics.Registry
	engine        *engine.Engine
	groups        *coordinator.Runtime[*group.Shard]
	txns          *coordinator.Runtime[*txn.Shard]
	log           *slog.Logger
	logger        loggerConfigs
	clusterID     string
	nodeID        int32
	rack          wire.NullString
	replicas      []int32 // of every partition: this broker
	endpoints     []Endpoint
	sessions      *fetchsession.Cache
	fetchMaxBytes int
	space         func() (total, usable int64, err error)
	now           func() int64
	handlers      [maxKey]*handler
	advertised    []api.ApiVersionsResponseApiVersion
	featuresEpoch int64
	quotas        *quota.Manager

	counted       counted
	producerIDs   producerIDs
	markers       markerWriter
	stalls        stalls
	verifyTxns    atomic.Bool // transaction.partition.verification.enable
	panics        atomic.Int64
	parkedFetches atomic.Int64

	consumerGroups bool // KIP-848
}

// Authorized operations without an authorizer: everything that exists for the kind of resource, as bits of Apache's operation codes.
const (
	topicOperations   = 3576
	clusterOperations = 8096
	groupOperations   = 328
)

// New makes a Service; SetEndpoints must follow before the first connection.
func New(c Config) *Service {
	s := &Service{
		topics: c.Topics, engine: c.Engine, groups: c.Groups, txns: c.Txns,
		log: c.Levels.Logger("kaas.server"), logger: loggerConfigs{levels: c.Levels},
		clusterID: c.ClusterID, nodeID: c.NodeID, replicas: []int32{c.NodeID},
		sessions: fetchsession.NewCache(c.Sessions), fetchMaxBytes: c.FetchMaxBytes,
		space: c.Space, now: c.Now, handlers: joinHandlers(), featuresEpoch: 0,
	}
	if c.Rack != "" {
		s.rack = wire.Some(c.Rack)
	}
	if s.now == nil {
		s.now = func() int64 { return time.Now().UnixMilli() }
	}
	if s.quotas = c.Quotas; s.quotas == nil {
		s.quotas = quota.NewManager(quota.Config{Windows: quota.Windows{Samples: 11, SizeMs: 1000}, MutationWindows: quota.Windows{Samples: 11, SizeMs: 1000}})
	}
	s.stalls.init(c.AppendStallMs, c.AppendThreads)
	s.consumerGroups = c.ConsumerGroups
	s.offer(c.Unstable)
	s.counted.init()
	s.advertised = advertise(&s.handlers)
	s.producerIDs.reserve = c.Topics.Catalog().NextProducerIDs
	s.markers.s = s
	s.verifyTxns.Store(true)
	c.Topics.OnQuotas(s.setQuotas)
	return s
}

// offer takes what is unstable out of the table unless it is to be offered.
func (s *Service) offer(unstable bool) {
	for i, h := range s.handlers {
		if h != nil && h.unstable && !unstable {
			s.handlers[i] = nil
		}
	}
}

// SetEndpoints says what clients of each listener are told, by the id the listener has in netio.
func (s *Service) SetEndpoints(byListener []Endpoint) { s.endpoints = byListener }

// endpoint is the advertised address of the listener on which the client asks (regression 19).
func (s *Service) endpoint(c *netio.Conn) (host string, port int32) {
	e := s.endpoints[c.Listener()]
	return e.Host, e.Port
}

// Stats are counters of the service, for metrics.
type Stats struct {
	Panics        int64 // handlers that panicked
	ParkedFetches int64 // Fetch requests waiting for data now
	FetchSessions int64
	AppendStalls  int64 // rounds of appends that took AppendStallMs or longer
	Quotas        quota.Stats

	MarkersCommit, MarkersAbort int64 // markers of transactions written
	MarkerRetries               int64 // of them that were put off
}

// Stats reads the counters.
func (s *Service) Stats() Stats {
	w := &s.markers
	return Stats{Panics: s.panics.Load(), ParkedFetches: s.parkedFetches.Load(), AppendStalls: s.stalls.seen.Load(), FetchSessions: int64(s.sessions.Len()), Quotas: s.quotas.Stats(),
		MarkersCommit: w.markers[batch.ControlCommit].Load(), MarkersAbort: w.markers[batch.ControlAbort].Load(), MarkerRetries: w.again.Load()}
}

// producerIDs hands out producer ids from blocks that the catalog has made durable; an id is never given twice.
type producerIDs struct {
	reserve func() (first int64, err error)
	mu      sync.Mutex // guards the block; held over the catalog's write once per block
	next    int64
	end     int64

	spareMu sync.Mutex // guards spare; held for moments
	spare   []int64    // taken and not used
}

// nextProducerID returns an id nobody has had. It may block.
func (s *Service) nextProducerID() (int64, error) {
	p := &s.producerIDs
	if id, ok := p.takeSpare(); ok {
		return id, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == p.end {
		first, err := p.reserve()
		if err != nil {
			return 0, err
		}
		p.next, p.end = first, first+catalog.ProducerIDBlock
	}
	p.next++
	return p.next - 1, nil
}

func (p *producerIDs) takeSpare() (id int64, ok bool) {
	p.spareMu.Lock()
	defer p.spareMu.Unlock()
	n := len(p.spare)
	if n == 0 {
		return 0, false
	}
	id, p.spare = p.spare[n-1], p.spare[:n-1]
	return id, true
}

// giveBack takes back an id that was not used. It does not block.
func (p *producerIDs) giveBack(id int64) {
	p.spareMu.Lock()
	defer p.spareMu.Unlock()
	p.spare = append(p.spare, id)
}

// WriteMarkers has the markers of a decided transaction written (txn.Config.Markers). It does not wait for the disk; true: they are there.
func (s *Service) WriteMarkers(w txn.MarkerWork) bool { return s.markers.take(w) }

// VerifyTransactions says whether transactional data is verified with the coordinator (transaction.partition.verification.enable).
func (s *Service) VerifyTransactions(on bool) { s.verifyTxns.Store(on) }

// Close ends what the service does of itself: markers that failed are not tried again.
func (s *Service) Close() { s.markers.close() }

// cloneString copies a string that aliases the read buffer.
func cloneString(s string) string { return string(append([]byte(nil), s...)) }

// stack is the stack of the goroutine that panicked, for the log.
func stack() string { return string(debug.Stack()) }
