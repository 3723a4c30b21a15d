// Package engine stores logs: a Log is one partition, an Engine is a data directory of them.
//
// It moves bytes, not records: of a batch it knows the header facts (BatchInfo) and what the Format it was given can tell.
// It is not a broker: no protocol, no topics, no configuration keys, no catalog; which logs exist is said by the caller.
// FORMAT.md states what is on disk and what recovery does.
//
// Invariants: offsets are given once, in order, under the log's mutex, in the same order as the bytes on disk. Log start
// never goes back; log start <= last stable offset <= high watermark <= log end. Under GroupCommit the high watermark is the
// durable end. After a failed sync nothing more is acknowledged from that log. What lists or watches logs never waits for a
// write.
package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"kaas/engine/commit"
	"kaas/engine/compact"
	"kaas/engine/redo"
	"kaas/engine/segment"
	"kaas/engine/vfs"
)

// BatchInfo and Format are the engine's view of a record batch.
type (
	BatchInfo = segment.BatchInfo
	Format    = segment.Format
	// RecordFormat is what compaction needs besides.
	RecordFormat = compact.Format
)

// The errors of this package; the number is the Kafka error code that the server answers with.
var (
	ErrLocked           = errors.New("engine: data directory is in use by another process")
	ErrClosed           = errors.New("engine: closed")
	ErrDeleted          = errors.New("engine: log was deleted")             // 3
	ErrOffsetOutOfRange = errors.New("engine: offset out of range")         // 1
	ErrStorage          = errors.New("engine: storage error")               // 56
	ErrTooLarge         = errors.New("engine: batch larger than a segment") // 18
	ErrShort            = segment.ErrShort                                  // for Formats
)

// Storage says where logs live.
type Storage int

const (
	Disk   Storage = iota
	Memory         // in memfd files: gone with the process
)

// MemoryFull says what a full memory storage does with an append.
type MemoryFull int

const (
	DropOldest MemoryFull = iota // the log's oldest segment goes
	Refuse                       // ErrStorage
)

// Durability says what the high watermark follows.
type Durability int

const (
	GroupCommit Durability = iota // the synced end
	PageCache                     // the written end
)

// Config are the settings of an engine. Zero values of numbers mean the defaults named.
type Config struct {
	Dir            string
	Storage        Storage
	MemoryMaxBytes int64 // of all logs together; 1 GiB
	MemoryFull     MemoryFull
	Durability     Durability
	MaxOpenFiles   int // log files held open when nobody reads them; 4096
	CommitThreads  int // syncs at the same time; 16
	// CommitJournalBytes is how large the commit journal may become, in both files together; 64 MiB. Below 0: none, each log is synced by itself.
	CommitJournalBytes int64
	RecoveryThreads    int           // logs recovered at the same time; 2
	Workers            int           // of Go; 8
	Maintenance        time.Duration // between passes over retention; 30 s
	ProducerExpiry     time.Duration // producer.id.expiration.ms; 24 h
	ProducerCheck      time.Duration // producer.id.expiration.check.interval.ms: between searches for producers to be forgotten; 10 min
	// SealDelay is how long a rolled segment waits before it is synced and sealed, under PageCache: by then the kernel has written most of
	// it in its own time. Until then a start after a kill scans it. Syncing 1 GiB at once takes half a core for a second.
	SealDelay time.Duration
	Format    Format
	Records   RecordFormat // nil: nothing is compacted
	Cleaner   CleanerConfig
	FS        vfs.FS           // nil: vfs.OS, or vfs.Memory for Memory
	Clock     func() time.Time // nil: time.Now
	Logger    *slog.Logger     // nil: slog.Default
	// OnCommit, if set, is told about each round of the group commit: logs synced, waiters released, time taken.
	OnCommit func(logs, released int, took time.Duration)
	// OnWrite, if set, is told about each write of appended batches into the page cache, space allocated for it included:
	// its bytes, and how long it took. The log's mutex is held: it must be cheap.
	OnWrite     func(bytes int64, took time.Duration)
	sharedAfter int // rounds before the commit journal is made; sharedAfter
	volumeMin   int // logs that are synced by one syncfs; volumeSyncMin
	// OnFailure, if set, is told once when a log goes offline. It must not call the log's methods that append or load.
	OnFailure func(l *Log, err error)
}

func (c *Config) setDefaults() {
	set := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	set(&c.MaxOpenFiles, 4096)
	set(&c.CommitThreads, 16)
	set(&c.RecoveryThreads, 2)
	set(&c.sharedAfter, sharedAfter)
	set(&c.volumeMin, volumeSyncMin)
	if c.CommitJournalBytes == 0 {
		c.CommitJournalBytes = 64 << 20
	}
	set(&c.Workers, 8)
	if c.MemoryMaxBytes == 0 {
		c.MemoryMaxBytes = 1 << 30
	}
	if c.Maintenance == 0 {
		c.Maintenance = 30 * time.Second
	}
	if c.ProducerCheck == 0 {
		c.ProducerCheck = 10 * time.Minute
	}
	if c.ProducerExpiry == 0 {
		c.ProducerExpiry = 24 * time.Hour
	}
	if c.FS == nil {
		if c.FS = vfs.OS; c.Storage == Memory {
			c.FS = vfs.Memory()
		}
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Storage == Memory {
		c.Durability = PageCache
		c.Dir = "/"
	}
}

// maxMaps leaves most of the default vm.max_map_count (65,530) to the rest of the process.
const maxMaps = 16384

// Engine is a data directory. Its methods may be called from any goroutine.
type Engine struct {
	cfg     Config
	files   *segment.Files
	journal *journal
	lock    vfs.Unlocker
	group   *commit.Group[*Log]
	shared  *shared                  // nil: no commit journal
	old     atomic.Pointer[redo.Old] // the commit journal of an earlier life while logs may need it
	volume  vfs.Volume               // that Dir is on; nil when it cannot be synced as a whole
	work    pool
	reaper  pool // one worker: removes files in the background
	cleaner cleaner
	flusher flusher
	opened  time.Time
	closed  atomic.Bool
	crowd   atomic.Bool  // syncCrowd has not looked yet
	memory  atomic.Int64 // bytes held by a Memory storage
	expiry  atomic.Int64 // of producers, in ms
	stop    chan struct{}
	stopped chan struct{} // maintenance has ended

	rootNew atomic.Bool // directories were made since the data directory was synced
	rootMu  sync.Mutex  // one sync of it at a time

	// dirMu is held from the question whose a directory is to its renaming, and while the first append of a log makes its own:
	// RemoveStray runs beside appends. Taken after a log's mu.
	dirMu sync.Mutex

	mu   sync.Mutex // guards logs
	logs map[*Log]struct{}
}

// Open takes the lock of the data directory (ErrLocked) and reads the set of logs that may be dirty. It scans no directory.
func Open(cfg Config) (*Engine, error) {
	if cfg.Format == nil {
		panic("BUG: engine without a Format")
	}
	cfg.setDefaults()
	e := &Engine{cfg: cfg, opened: time.Now(), logs: map[*Log]struct{}{}, stop: make(chan struct{}), stopped: make(chan struct{})}
	if err := cfg.FS.MkdirAll(cfg.Dir); err != nil {
		return nil, err
	}
	lock, err := cfg.FS.Lock(cfg.Dir + "/.lock")
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("%w: %s", ErrLocked, cfg.Dir)
	}
	if err != nil {
		return nil, err
	}
	if e.journal, err = openJournal(cfg.FS, cfg.Dir); err != nil {
		lock.Unlock()
		return nil, err
	}
	e.lock = lock
	e.files = segment.NewFiles(cfg.FS, cfg.MaxOpenFiles, maxMaps, cfg.Storage == Memory)
	e.files.Crowded = e.syncCrowd
	e.work.max, e.reaper.max = cfg.Workers, 1
	e.SetProducerExpiry(cfg.ProducerExpiry)
	e.shared = newShared(e)
	err = e.openShared()
	if err == nil {
		err = e.journal.ask(e.volume, cfg.Logger)
	}
	if err != nil {
		e.releaseShared()
		e.journal.close()
		lock.Unlock()
		return nil, err
	}
	if err := e.cleaner.open(e); err != nil {
		e.journal.close()
		e.releaseShared()
		lock.Unlock()
		return nil, err
	}
	e.group = commit.New(commit.Config[*Log]{
		Sync:       (*Log).sync,
		Pick:       e.shared.pick,
		SyncPicked: e.shared.sync,
		Publish:    (*Log).publishDurable,
		Threads:    cfg.CommitThreads,
		OnRound:    cfg.OnCommit,
	})
	go e.maintain()
	e.SetCleaner(cfg.Cleaner)
	return e, nil
}

// SetProducerExpiry changes producer.id.expiration.ms, from the next search on.
func (e *Engine) SetProducerExpiry(d time.Duration) { e.expiry.Store(d.Milliseconds()) }

// Durability is the one in force: Memory storage has only PageCache.
func (e *Engine) Durability() Durability { return e.cfg.Durability }

// Stats says what the engine holds now.
type Stats struct {
	OpenFiles   int   // log files held open by the cache
	Maps        int64 // mapped index files
	MemoryBytes int64 // of log data with Memory storage; 0 on Disk
}

// Stats never waits for a write or a sync.
func (e *Engine) Stats() Stats {
	s := Stats{OpenFiles: e.files.OpenCount(), Maps: e.files.Maps()}
	if e.cfg.Storage == Memory {
		s.MemoryBytes = e.memory.Load()
	}
	return s
}

// Go runs f on the bounded pool for what may block. f waits its turn; Go does not.
func (e *Engine) Go(f func()) { e.work.run(f) }

// Close makes every log durable and clean, so that the next start scans nothing, and gives up the lock. Appends that run
// beside it fail with ErrClosed.
func (e *Engine) Close() error {
	if e.closed.Swap(true) {
		return ErrClosed
	}
	close(e.stop)
	<-e.stopped
	e.cleaner.close()
	e.work.wait()
	e.mu.Lock()
	logs := make([]*Log, 0, len(e.logs))
	for l := range e.logs {
		logs = append(logs, l)
	}
	e.mu.Unlock()
	errs := []error{e.closeLogs(logs)}
	e.group.Close()
	e.work.wait()
	e.reaper.wait()
	errs = append(errs, e.journal.close(), e.closeShared(), e.lock.Unlock())
	return errors.Join(errs...)
}

// each calls f for every one of all, n at a time.
func each[T any](all []T, n int, f func(T)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, len(all)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(all)); i = next.Add(1) - 1 {
				f(all[i])
			}
		})
	}
	wg.Wait()
}

// Remove ends a log whose topic was deleted: its readers and writers get ErrDeleted, its directory is renamed at once and
// its files go in the background. A log of the same name may be opened right after it.
func (e *Engine) Remove(l *Log) {
	e.mu.Lock()
	delete(e.logs, l)
	e.mu.Unlock()
	l.remove()
}

// RemoveStray is called at start: directories of partitions that known does not know, and what was left of removals, are
// removed in the background. Only names that a partition can have are touched. Logs may be opened and written to meanwhile.
func (e *Engine) RemoveStray(known func(dir string) bool) {
	entries, err := e.cfg.FS.ReadDir(e.cfg.Dir)
	if err != nil {
		e.cfg.Logger.Warn("data directory could not be listed", "error", err)
		return
	}
	for _, d := range entries {
		if d.Dir && !strings.HasPrefix(d.Name, "__kaas") {
			e.removeStray(d.Name, known)
		}
	}
}

func (e *Engine) removeStray(name string, known func(dir string) bool) {
	e.dirMu.Lock()
	defer e.dirMu.Unlock()
	dir := e.cfg.Dir + "/" + name
	switch {
	case known(name):
	case strings.HasSuffix(name, deleteSuffix):
		e.reap(dir, nil, 0)
	case IsPartitionDir(name):
		e.cfg.Logger.Info("removing a directory that no topic owns", "dir", name)
		e.setAside(dir, nil, 0)
		e.journal.forget(name)
	}
}

// seal has the rolled segments of a log sealed in the background.
func (e *Engine) seal(l *Log) {
	if e.cfg.Durability != PageCache || e.cfg.SealDelay == 0 {
		e.Go(l.sealRolled)
		return
	}
	time.AfterFunc(e.cfg.SealDelay, func() {
		if !e.closed.Load() { // a close seals what is left
			e.Go(l.sealRolled)
		}
	})
}

// IsPartitionDir tells whether a partition's directory can have that name: <topic>-<number>.
func IsPartitionDir(name string) bool {
	i := strings.LastIndexByte(name, '-')
	if i <= 0 || i == len(name)-1 {
		return false
	}
	for _, c := range name[i+1:] {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}
