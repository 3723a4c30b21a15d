package engine

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"kaas/engine/commit"
	"kaas/engine/producer"
	"kaas/engine/segment"
)

// LogConfig are the settings of one log. A value is immutable: SetConfig swaps in another.
type LogConfig struct {
	SegmentBytes       int64 // segment.bytes
	SegmentMs          int64 // segment.ms
	SegmentJitterMs    int64 // segment.jitter.ms: at most so much is taken off segment.ms, at random for each segment
	SegmentIndexBytes  int   // segment.index.bytes
	IndexIntervalBytes int   // index.interval.bytes
	RetentionMs        int64 // retention.ms, -1: for ever
	RetentionBytes     int64 // retention.bytes, -1: without bound
	Delete             bool  // cleanup.policy has delete
	Compact            bool  // cleanup.policy has compact
	FileDeleteDelayMs  int64 // file.delete.delay.ms: files that are no longer part of the log stay so long

	// Under PageCache; a commit follows each append under GroupCommit. FlushMessages 1 is GroupCommit for this log; otherwise nobody
	// waits for the commit that begins when so many messages are unsynced, or the first of them is FlushMs old.
	FlushMessages int64 // flush.messages
	FlushMs       int64 // flush.ms, math.MaxInt64: never

	DeleteRetentionMs                      int64   // delete.retention.ms
	MinCompactionLagMs, MaxCompactionLagMs int64   // min.compaction.lag.ms, max.compaction.lag.ms
	MinCleanableRatio                      float64 // min.cleanable.dirty.ratio
}

// DefaultLogConfig has Kafka's defaults.
var DefaultLogConfig = LogConfig{
	SegmentBytes:       1 << 30,
	SegmentMs:          7 * 24 * 3600 * 1000,
	SegmentIndexBytes:  10 << 20,
	IndexIntervalBytes: 4096,
	RetentionMs:        7 * 24 * 3600 * 1000,
	RetentionBytes:     -1,
	Delete:             true,
	FlushMessages:      math.MaxInt64,
	FlushMs:            math.MaxInt64,
	DeleteRetentionMs:  24 * 3600 * 1000,
	MaxCompactionLagMs: math.MaxInt64,
	MinCleanableRatio:  0.5,
}

// LogSpec says which log is meant.
type LogSpec struct {
	Topic       string
	Partition   int32
	TopicID     [16]byte
	LeaderEpoch int32 // stamped into batches from now on
	Config      *LogConfig
	New         bool // the topic was just created: whatever the disk has under this name is not this log's
}

// Offsets are the public offsets of a log; ends are exclusive.
type Offsets struct {
	LogStart, HighWatermark, LastStable, LogEnd int64
	LeaderEpoch                                 int32
}

// identity is what stays of a LogSpec, besides the topic's name, which is in the log's.
type identity struct {
	Partition   int32
	LeaderEpoch int32
	TopicID     [16]byte
}

// Log is one partition. Until it is loaded it costs no descriptor, no map, and less than a KiB. There may be 100,000: its size, and those of
// state and segment.Segment, are watched by TestSizes.
type Log struct {
	e     *Engine
	spec  identity
	path  string // of the directory; its segments and the journal's entry share it
	cfg   atomic.Pointer[LogConfig]
	pub   published
	segs  atomic.Pointer[[]*segment.Segment] // in order, never changed in place; nil until loaded
	item  commit.Item[*Log]
	watch watchList

	loaded atomic.Bool
	listed atomic.Bool // it is in the flusher's list
	naming atomic.Bool // syncNamesLater runs
	// freshDir: the directory was made by this process, and its name and metadata are not yet durable either.
	freshDir atomic.Bool
	// leaving counts the detached groups of segments whose names need not be gone: until they are, the journal has the log start.
	leaving atomic.Int32
	shared  [2]bool // see shared.logs
	isNew   bool    // LogSpec.New
	// unsure: a load that found no room has written what was not synced. Guarded by mu.
	unsure  bool
	sealing bool // somebody works on seals; guarded by syncMu

	stored atomic.Int64 // what StoredBytes found, and 1, while it is not loaded
	failed atomic.Pointer[failure]
	// names counts changes of the journal's line, directory entries and epochs; those up to namesSynced are durable. It goes up behind
	// the sync, so that no commit passes one that still runs.
	names, namesSynced atomic.Int64

	mu sync.Mutex // guards st; held over appends to the page cache, and by nothing that only looks
	st *state

	// pathMu is held by background work that uses names in the directory, and by its renaming. Taken after mu, before syncMu.
	pathMu sync.Mutex

	syncMu   sync.Mutex         // guards what follows; held for moments
	rolled   []*segment.Segment // left by a roll with unsynced writes
	syncing  place              // the end that the sync that runs covers; the committer's
	staged   *staged            // nil: nothing
	seals    []seal             // rolled segments to be sealed, in order
	unsealed []seal             // no longer to be sealed, as retention took them first or they were before, but their snapshots may be needed yet
}

type failure struct{ err error }

// state is what a loaded log has besides.
type state struct {
	end       int64 // offset of the next batch; ahead of the published one during an append
	producers producer.State
	epochs    epochs
	marked    bool  // the journal says dirty
	markLine  int64 // in the line of this number, or before this process
	dirMade   bool
	jitter    float64 // the active segment's share of segment.jitter.ms, below 1
	synced    bool    // the high watermark of what is being appended follows the commits
	asked     int64   // end at the last append for which flush.messages had a commit begin
	run       *run    // of the append that runs
	zeros     zeroPace
	snapshot  int64 // offset of the newest snapshot file, -1
	outdated  int64 // of the one that it replaces, -1
	// claimed is the first of the segments that compaction is about to replace: it and what follows stay in the log meanwhile.
	claimed *segment.Segment
}

// OpenLog makes a log known. It does no I/O.
func (e *Engine) OpenLog(spec LogSpec) *Log {
	l := &Log{e: e, spec: identity{spec.Partition, spec.LeaderEpoch, spec.TopicID}, isNew: spec.New}
	l.path = e.cfg.Dir + "/" + spec.Topic + "-" + strconv.Itoa(int(spec.Partition))
	if spec.Config == nil {
		spec.Config = &DefaultLogConfig
	}
	l.cfg.Store(spec.Config)
	l.item.Init(l, 0)
	e.mu.Lock()
	e.logs[l] = struct{}{}
	e.mu.Unlock()
	if spec.New {
		e.journal.forget(l.name())
		e.cleaner.forget(l)
		l.st = &state{snapshot: -1, outdated: -1}
		l.st.epochs.assign(spec.LeaderEpoch, 0)
		l.segs.Store(&[]*segment.Segment{})
		l.loaded.Store(true)
	}
	return l
}

func (l *Log) name() string { return l.path[len(l.e.cfg.Dir)+1:] }
func (l *Log) dir() string  { return l.path }

// Topic and Partition are what the log was opened with.
func (l *Log) Topic() string {
	name := l.name()
	return name[:strings.LastIndexByte(name, '-')]
}

func (l *Log) Partition() int32 { return l.spec.Partition }

// String is the name of the log's directory.
func (l *Log) String() string { return l.name() }

// SetConfig takes effect with the next append, roll or maintenance; flush.ms at once.
func (l *Log) SetConfig(c *LogConfig) {
	if old := l.cfg.Swap(c); old.FlushMs != c.FlushMs {
		l.flushAnew()
	}
}

// Config is the one in force.
func (l *Log) Config() *LogConfig { return l.cfg.Load() }

// Loaded reports whether the log's offsets are known. Append and Read of a log that is not loaded load it, which may block.
func (l *Log) Loaded() bool { return l.loaded.Load() }

// Ready reports that an append or a read waits for the page cache at most: the log is loaded, and the file that is appended to is open or
// there is a descriptor for it. Otherwise whoever must not block leaves it to somebody else, who calls MakeReady first.
func (l *Log) Ready() bool {
	if !l.loaded.Load() {
		return false
	}
	if !l.e.files.Full() {
		return true
	}
	a := l.active()
	return a != nil && a.Opened()
}

// MakeReady loads the log, and syncs files of others while too many with unsynced writes are open. It may block. A log that cannot be
// loaded is offline.
func (l *Log) MakeReady() error {
	if err := l.Load(); err != nil {
		return err
	}
	if !l.Ready() {
		l.e.files.MakeRoom()
	}
	return nil
}

// Err is why the log is offline, nil while it is not. It waits for nothing.
func (l *Log) Err() error {
	if f := l.failed.Load(); f != nil {
		return f.err
	}
	return nil
}

// fail takes the log offline, for good until the next start. Reads of what is durable go on unless it was deleted.
func (l *Log) fail(err error) {
	if !l.failed.CompareAndSwap(nil, &failure{err}) {
		return
	}
	if err != ErrDeleted && err != ErrClosed {
		l.markFailed()
		l.e.cfg.Logger.Error("log is offline", "log", l.name(), "error", err)
		if l.e.cfg.OnFailure != nil {
			l.e.cfg.OnFailure(l, err)
		}
	}
	l.watch.notify(l)
}

// markFailed says so in the journal, for a start without a reboot: the kernel takes pages whose write-back failed for written, so that
// a scan finds them and a sync of them succeeds, though they are not on the disk. It need not be durable: a reboot reads the disk.
func (l *Log) markFailed() {
	if l.e.cfg.Storage == Memory {
		return
	}
	err := l.e.journal.update(l.name(), func(e *journalEntry) { e.failed = e.dirty && e.is(l.spec.TopicID) })
	if err != nil && err != ErrClosed {
		l.e.cfg.Logger.Error("the journal does not say that the log failed", "log", l.name(), "error", err)
	}
}

// Offsets is a consistent snapshot, without waiting for anybody. All zero until the log is loaded.
func (l *Log) Offsets() Offsets {
	m := l.pub.read()
	return Offsets{LogStart: m.start, HighWatermark: m.hw.offset, LastStable: m.lso, LogEnd: m.end.offset, LeaderEpoch: l.spec.LeaderEpoch}
}

// SizeBytes is the size of the log's data in bytes. It waits for nothing.
func (l *Log) SizeBytes() int64 {
	var n int64
	if segs := l.segs.Load(); segs != nil {
		for _, s := range *segs {
			n += s.Size()
		}
	}
	return n
}

// place is an offset and where it lies: the base of its segment and the position in that.
type place struct{ offset, seg, pos int64 }

// mark is what is published together.
type mark struct {
	start, lso int64
	hw, end    place
}

// published is a seqlock: readers never wait and never see halves. Writers hold mu.
type published struct {
	mu   sync.Mutex
	seq  atomic.Uint32 // odd while being written
	v    [8]atomic.Int64
	open []openTxn // transactions that hold back the LSO, by first offset; guarded by mu
}

func (p *published) read() (m mark) {
	for {
		seq := p.seq.Load()
		m.start, m.lso = p.v[0].Load(), p.v[1].Load()
		m.hw = place{p.v[2].Load(), p.v[3].Load(), p.v[4].Load()}
		m.end = place{p.v[5].Load(), p.v[6].Load(), p.v[7].Load()}
		if seq&1 == 0 && p.seq.Load() == seq {
			return m
		}
	}
}

// write publishes m after computing its LSO. mu is held.
func (p *published) write(m mark) {
	p.settle(m.hw.offset)
	m.lso = m.hw.offset
	if len(p.open) > 0 {
		m.lso = min(m.lso, max(p.open[0].first, m.start))
	}
	p.seq.Add(1)
	for i, v := range [...]int64{m.start, m.lso, m.hw.offset, m.hw.seg, m.hw.pos, m.end.offset, m.end.seg, m.end.pos} {
		p.v[i].Store(v)
	}
	p.seq.Add(1)
}

// openTxn is a transaction in the log whose end is not yet below the high watermark.
type openTxn struct {
	producer, first int64
	last            int64 // offset of its marker, -1 while it is open
}

// settle drops transactions whose marker is below the high watermark. mu is held.
func (p *published) settle(hw int64) {
	keep := p.open[:0]
	for _, t := range p.open {
		if t.last < 0 || t.last >= hw {
			keep = append(keep, t)
		}
	}
	p.open = keep
}

func (p *published) begin(id, first int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = append(p.open, openTxn{producer: id, first: first, last: -1})
	for i := len(p.open) - 1; i > 0 && p.open[i].first < p.open[i-1].first; i-- {
		p.open[i], p.open[i-1] = p.open[i-1], p.open[i]
	}
}

func (p *published) finish(id, marker int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.open {
		if t := &p.open[i]; t.producer == id && t.last < 0 {
			t.last = marker
		}
	}
}

// forgetOpen drops all transactions.
func (p *published) forgetOpen() {
	p.mu.Lock()
	p.open = nil
	p.mu.Unlock()
}

func (m mark) String() string {
	return fmt.Sprintf("start %d lso %d hw %v end %v", m.start, m.lso, m.hw, m.end)
}
