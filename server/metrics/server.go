package metrics

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"sync/atomic"
	"time"

	"kaas/netio"
)

// Server is the HTTP listener. It runs beside the event loops, on goroutines of its own.
type Server struct {
	sources  atomic.Pointer[Sources]
	stopping atomic.Bool
	loops    []*ping // set with sources
	space    space

	once    sync.Once // makes metrics
	metrics http.Handler
	http    http.Server
	addr    net.Addr
}

// Limits of the listener: what a client that does not behave may cost.
const (
	headerTimeout  = 5 * time.Second
	idleTimeout    = 2 * time.Minute
	headerMaxBytes = 16 << 10
)

// Listen opens the listener at host:port and serves. Until Serve is called the broker counts as starting.
func Listen(at string, profiles bool, log *slog.Logger) (*Server, error) {
	l, err := net.Listen("tcp", at)
	if err != nil {
		return nil, err
	}
	s := &Server{addr: l.Addr()}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) { s.handler().ServeHTTP(w, r) })
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.sick()) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.unready()) })
	if profiles {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	s.http = http.Server{
		Handler: mux, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: headerMaxBytes,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	go func() {
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the listener of metrics failed", "error", err)
		}
	}()
	return s, nil
}

// Addr is where it listens.
func (s *Server) Addr() net.Addr { return s.addr }

// Serve says that the broker's ports are open, and what to read from now on. Once.
func (s *Server) Serve(from *Sources) {
	for _, l := range from.Net.Loops() {
		s.loops = append(s.loops, &ping{loop: l})
	}
	s.sources.Store(from)
}

// Stopping says that the broker stops.
func (s *Server) Stopping() { s.stopping.Store(true) }

// Close closes the listener and its connections.
func (s *Server) Close() error { return s.http.Close() }

// ping asks one loop for a sign of life. A loop has at most one question to answer, however often it is asked.
type ping struct {
	loop *netio.Loop

	mu     sync.Mutex    // guards answer
	answer chan struct{} // closed by the loop; nil: nobody asks
}

// ask returns a channel that is closed when the loop has answered.
func (p *ping) ask() <-chan struct{} {
	p.mu.Lock()
	ch, first := p.answer, p.answer == nil
	if first {
		ch = make(chan struct{})
		p.answer = ch
	}
	p.mu.Unlock()
	if first {
		p.loop.Post(p)
	}
	return ch
}

// Run implements netio.Task.
func (p *ping) Run() {
	p.mu.Lock()
	close(p.answer)
	p.answer = nil
	p.mu.Unlock()
}
