package api

import (
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"kaas/codec/api"
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
	Levels    *logging.Levels
	ClusterID string
	NodeID    int32
	Rack      string
	Sessions  int // slots of the fetch session cache
	// FetchMaxBytes bounds every Fetch response (fetch.max.bytes).
	FetchMaxBytes int
	// Space tells the room on the file system of the logs, in bytes; it may block.
	Space func() (total, usable int64, err error)
	// Quotas are the limits of clients; nil: none, until some are set.
	Quotas *quota.Manager
	// Now is the wall clock in ms; nil for the real one.
	Now func() int64
}

// Service serves the APIs. It implements netio.Handler.
type Service struct {
	topics        *topics.Registry
	engine        *engine.Engine
	groups        *coordinator.Runtime[*group.Shard]
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
	panics        atomic.Int64
	parkedFetches atomic.Int64
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
		topics: c.Topics, engine: c.Engine, groups: c.Groups,
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
	s.counted.init()
	s.advertised = advertise(&s.handlers)
	s.producerIDs.reserve = c.Topics.Catalog().NextProducerIDs
	c.Topics.OnQuotas(s.setQuotas)
	return s
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
}

// Stats reads the counters.
func (s *Service) Stats() Stats {
	return Stats{Panics: s.panics.Load(), ParkedFetches: s.parkedFetches.Load(), FetchSessions: int64(s.sessions.Len())}
}

// producerIDs hands out producer ids from blocks that the catalog has made durable; an id is never given twice.
type producerIDs struct {
	reserve func() (first int64, err error)
	mu      sync.Mutex // guards the rest; held over the catalog's write once per block
	next    int64
	end     int64
}

// nextProducerID returns an id nobody has had. It may block.
func (s *Service) nextProducerID() (int64, error) {
	p := &s.producerIDs
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

// cloneString copies a string that aliases the read buffer.
func cloneString(s string) string { return string(append([]byte(nil), s...)) }

// stack is the stack of the goroutine that panicked, for the log.
func stack() string { return string(debug.Stack()) }
