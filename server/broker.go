package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"path/filepath"
	"time"

	"kaas/engine"
	"kaas/engine/state"
	"kaas/engine/vfs"
	"kaas/netio"
	"kaas/server/api"
	"kaas/server/config"
	"kaas/server/coordinator"
	"kaas/server/group"
	"kaas/server/logging"
	"kaas/server/metrics"
	"kaas/server/metrics/counters"
	"kaas/server/topics"
	"kaas/server/txn"
)

// Limits of one connection. They bound memory: what a client has sent and not yet been answered, and answers it does not read.
const (
	inflightPerConnMax = 64      // requests begun and not yet answered
	unreadPerConnMax   = 4 << 20 // bytes of answers in memory, not counting slices of files
)

// Broker is one running broker.
type Broker struct {
	cfg    *config.Broker
	levels *logging.Levels
	log    *slog.Logger
	fs     vfs.FS
	engine *engine.Engine
	store  *state.Store
	topics *topics.Registry
	groups *coordinator.Runtime[*group.Shard]
	txns   *coordinator.Runtime[*txn.Shard]
	api    *api.Service
	net    *netio.Server
	ready  Ready

	metrics *metrics.Server   // nil: not configured, and then nothing is counted
	storage *counters.Storage // what the engine counts on
}

// Ready says where a broker is to be reached: the JSON line that tells that the port is open.
type Ready struct {
	Listeners  map[string]string `json:"listeners"` // name to host:port as bound
	ClusterID  string            `json:"clusterId"`
	NodeID     int32             `json:"nodeId"`
	Durability string            `json:"durability"`
	Storage    string            `json:"storage"`
	DataDir    string            `json:"dataDir"`
	Metrics    string            `json:"metrics,omitempty"` // host:port as bound
	StartMs    float64           `json:"startMs"`
}

// Start starts a broker. began is when the process began, for the start time in Ready; progress gets lines about long recoveries.
func Start(cfg *config.Broker, began time.Time, progress io.Writer) (*Broker, error) {
	return startOn(nil, cfg, began, progress)
}

// startOn starts a broker whose logs are on fs; nil: on the one that the settings ask for.
func startOn(fs vfs.FS, cfg *config.Broker, began time.Time, progress io.Writer) (b *Broker, err error) {
	levels := logging.New(progress, slog.LevelWarn)
	b = &Broker{cfg: cfg, levels: levels, log: levels.Logger("kaas.server"), fs: fs}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	for _, n := range cfg.Notes {
		b.log.Info(n)
	}
	raiseOpenFiles(b.log)
	for _, step := range []func() error{b.checkDataDir, b.openMetrics, b.openEngine, b.openCatalog, b.recover, b.openGroups, b.openTxns, b.openPorts} {
		if err := step(); err != nil {
			return b, err
		}
	}
	b.net.Start()
	b.showMetrics()
	b.ready.StartMs = float64(time.Since(began).Microseconds()) / 1000
	return b, nil
}

// Ready returns where the broker is to be reached.
func (b *Broker) Ready() Ready { return b.ready }

// openMetrics opens the listener of metrics, if there is to be one: before anything that may take long.
func (b *Broker) openMetrics() (err error) {
	if b.cfg.MetricsListen == "" {
		return nil
	}
	b.metrics, err = metrics.Listen(b.cfg.MetricsListen, b.cfg.Pprof, b.log)
	if err != nil {
		return fmt.Errorf("kaas.metrics.listen: %w", err)
	}
	b.storage = counters.NewStorage()
	at := b.metrics.Addr().(*net.TCPAddr)
	host, _, _ := net.SplitHostPort(b.cfg.MetricsListen) // was checked with the settings
	b.ready.Metrics = net.JoinHostPort(shownHost(host), fmt.Sprint(at.Port))
	return nil
}

// showMetrics gives the listener something to show, once the ports are open.
func (b *Broker) showMetrics() {
	if b.metrics == nil {
		return
	}
	from := &metrics.Sources{Net: b.net, API: b.api, Groups: b.groups, Txns: b.txns, Engine: b.engine, Topics: b.topics, Storage: b.storage, Memory: b.cfg.Memory}
	if !b.cfg.Memory {
		from.Space = func() (vfs.Space, error) { return vfs.OS.Space(b.cfg.DataDir) }
	}
	b.metrics.Serve(from)
}

// openEngine locks the data directory.
func (b *Broker) openEngine() (err error) {
	c := b.cfg
	ec := engine.Config{
		Dir: c.DataDir, MemoryMaxBytes: c.MemoryMaxBytes, MaxOpenFiles: c.OpenFilesMax,
		CommitJournalBytes: c.CommitJournalBytes, CommitThreads: c.CommitThreads, RecoveryThreads: c.RecoveryThreads,
		Format: batchFormat{}, Records: batchFormat{}, Logger: b.levels.Logger("kaas.engine"),
		ProducerExpiry: c.ProducerIDExpiration, ProducerCheck: config.Millis(c.Int("producer.id.expiration.check.interval.ms")), Maintenance: c.RetentionCheckInterval, Durability: engine.PageCache, SealDelay: sealDelay, FS: b.fs,
	}
	if c.CommitJournalBytes == 0 {
		ec.CommitJournalBytes = -1
	}
	if ec.MaxOpenFiles == 0 {
		ec.MaxOpenFiles = openFilesDefault()
	}
	b.ready.Durability, b.ready.Storage, b.ready.DataDir = "page-cache", "disk", c.DataDir
	if c.GroupCommit {
		ec.Durability, b.ready.Durability = engine.GroupCommit, "group-commit"
	}
	if c.Memory {
		ec.Storage, b.ready.Storage = engine.Memory, "memory"
	}
	if c.MemoryRefuse {
		ec.MemoryFull = engine.Refuse
	}
	if b.storage != nil {
		ec.OnCommit, ec.OnWrite = b.storage.Round, b.storage.Wrote
	}
	b.engine, err = engine.Open(ec)
	return err
}

// openCatalog reads what exists, and opens the logs of it.
func (b *Broker) openCatalog() (err error) {
	files := vfs.OS
	if b.cfg.Memory {
		files = vfs.Memory()
	}
	b.store, err = state.Open(files, filepath.Join(b.cfg.DataDir, catalogDir), state.Options{OnError: func(err error) {
		b.log.Warn("catalog: housekeeping failed and will be tried again", "error", err)
	}})
	if err != nil {
		return fmt.Errorf("catalog: %w", err)
	}
	b.topics, err = topics.New(b.cfg, b.store, b.engine, b.log)
	if err != nil {
		return fmt.Errorf("catalog: %w", err)
	}
	b.ready.ClusterID, b.ready.NodeID = b.topics.Catalog().ClusterID(), b.cfg.NodeID
	return nil
}

// recover makes whole the logs that an unclean stop may have left otherwise.
func (b *Broker) recover() (err error) {
	if err := b.engine.Recover(context.Background(), b.topics.Logs(), b.progress()); err != nil {
		return err
	}
	b.engine.Go(func() { b.engine.RemoveStray(b.ownsDir) })
	return nil
}

// progress tells how far a recovery is, once a second at most; a short one says nothing.
func (b *Broker) progress() func(done, total int64) {
	last := time.Now()
	return func(done, total int64) {
		if now := time.Now(); now.Sub(last) >= time.Second {
			last = now
			b.log.Warn("recovering logs after an unclean stop", "percent", done*100/max(total, 1), "bytes", done, "of", total)
		}
	}
}

// openPorts binds the listeners; nobody is accepted before Start.
func (b *Broker) openPorts() (err error) {
	c := b.cfg
	b.api = api.New(api.Config{
		Topics: b.topics, Engine: b.engine, Groups: b.groups, Txns: b.txns, Levels: b.levels,
		AppendStallMs: c.AppendStallMs, AppendThreads: c.AppendThreads,
		ConsumerGroups: consumerGroups(c), Unstable: c.Bool("unstable.api.versions.enable"),
		ClusterID: b.ready.ClusterID, NodeID: c.NodeID, Rack: c.Rack,
		Quotas: quotasOf(c), Sessions: int(c.FetchSessionSlots), FetchMaxBytes: int(c.FetchMaxBytes), Space: b.space,
	})
	nc := netio.Config{
		Handshakes: c.HandshakesMax, HandshakeTimeout: c.HandshakeTimeout,
		Loops: c.Loops, MaxFrameBytes: c.SocketRequestMaxBytes, IdleMax: c.ConnectionsMaxIdle,
		SendBufferBytes: int(c.SocketSendBuffer), RecvBufferBytes: int(c.SocketReceiveBuffer), Backlog: int(c.ListenBacklog),
		InflightBytes: c.InflightMaxBytes, RequestBytes: c.QueuedMaxRequestBytes,
		ReadAheadThreads: c.ReadAheadThreads, ReadAheadBytes: c.ReadAheadBytes,
		PausePendingReplies: inflightPerConnMax, PausePendingBytes: unreadPerConnMax,
		Logger: b.levels.Logger("kaas.netio"),
	}
	if b.metrics != nil {
		nc.OnDone = b.api.Done
	}
	b.net, err = netio.New(nc, b.api)
	if err != nil {
		return err
	}
	b.net.SetGate(b.api.Connected)
	if err := b.net.SetLimits(limitsOf(c)); err != nil {
		return err
	}
	b.topics.OnBrokerConfig(b.applyConfig)
	b.txns.Load()
	b.ready.Listeners = make(map[string]string, len(c.Listeners))
	var endpoints []api.Endpoint
	for i, l := range c.Listeners {
		secure, err := b.secureListener(l)
		if err != nil {
			return err
		}
		addr, err := b.net.ListenTLS(net.JoinHostPort(l.Host, fmt.Sprint(l.Port)), i, secure)
		if err != nil {
			return fmt.Errorf("listener %s: %w (is another broker running there?)", l.Name, err)
		}
		port := int32(addr.(*net.TCPAddr).Port)
		b.ready.Listeners[l.Name] = net.JoinHostPort(shownHost(l.Host), fmt.Sprint(port))
		if l.AdvertisedPort != 0 {
			port = int32(l.AdvertisedPort)
		}
		endpoints = append(endpoints, api.Endpoint{Host: l.AdvertisedHost, Port: port})
	}
	b.api.SetEndpoints(endpoints)
	return nil
}

// space tells the room on the file system of the logs, or in the machine's memory; it may block.
func (b *Broker) space() (total, usable int64, err error) {
	files := vfs.OS
	if b.cfg.Memory {
		files = vfs.Memory()
	}
	room, err := files.Space(b.cfg.DataDir)
	return room.Total, room.Free, err
}

// applyConfig puts in force what can be altered in a running broker and is no topic's.
func (b *Broker) applyConfig(c *config.Broker) {
	if err := b.net.SetLimits(limitsOf(c)); err != nil {
		b.log.Error("the limits of connections stay as they were", "error", err)
	}
	b.engine.SetProducerExpiry(c.ProducerIDExpiration)
	b.api.VerifyTransactions(c.Bool("transaction.partition.verification.enable"))
	b.engine.SetCleaner(cleanerOf(c))
}

// cleanerOf is what the engine wants to know of the settings of compaction.
func cleanerOf(c *config.Broker) engine.CleanerConfig {
	cc := engine.CleanerConfig{
		Threads: int(c.Int("log.cleaner.threads")), DedupeBytes: c.Int("log.cleaner.dedupe.buffer.size"),
		LoadFactor: c.Float("log.cleaner.io.buffer.load.factor"), BufferBytes: int(c.Int("log.cleaner.io.buffer.size")),
		BytesPerSecond: c.Float("log.cleaner.io.max.bytes.per.second"),
		Backoff:        time.Duration(min(max(c.Int("log.cleaner.backoff.ms"), 1), math.MaxInt64/int64(time.Millisecond))) * time.Millisecond,
	}
	if !c.Bool("log.cleaner.enable") {
		cc.Threads = 0
	}
	return cc
}

// shownHost is where to reach a listener that is bound to every address.
func shownHost(host string) string {
	if host == "" || host == "0.0.0.0" || host == "::" {
		return "127.0.0.1"
	}
	return host
}

// sealDelay is the time in which the kernel writes back what is dirty (vm.dirty_expire_centisecs, 30 s by default).
const sealDelay = 35 * time.Second

// drainMax bounds how long a stop waits for answers that are due.
const drainMax = 10 * time.Second

// Stop drains connections, syncs and closes everything.
func (b *Broker) Stop() error {
	if b.metrics != nil {
		b.metrics.Stopping()
	}
	b.net.StopAccepting()
	b.groups.Close() // who is parked in a JoinGroup would hold his connection for minutes
	ctx, cancel := context.WithTimeout(context.Background(), drainMax)
	defer cancel()
	err := b.net.Drain(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil // clients that do not read their answers do not make a stop unclean
	}
	return errors.Join(err, b.close())
}

// close closes what is open, in the order that keeps everything that was accepted.
func (b *Broker) close() error {
	var errs []error
	if b.api != nil {
		b.api.Close()
	}
	if b.txns != nil {
		b.txns.Close()
	}
	if b.groups != nil {
		b.groups.Close()
	}
	if b.engine != nil {
		errs = append(errs, b.engine.Close())
	}
	if b.store != nil {
		errs = append(errs, b.store.Close())
	}
	if b.metrics != nil {
		errs = append(errs, b.metrics.Close())
	}
	return errors.Join(errs...)
}
