package engine

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"kaas/engine/commit"
	"kaas/engine/producer"
	"kaas/engine/segment"
)

// The reasons to refuse a batch of an idempotent producer; the number is the Kafka error code.
var (
	ErrOutOfOrderSequence   = producer.ErrOutOfOrderSequence // 45
	ErrInvalidProducerEpoch = producer.ErrInvalidEpoch       // 47
	ErrInvalidTxnState      = producer.ErrInvalidTxnState    // 48
	ErrCoordinatorFenced    = producer.ErrCoordinatorFenced  // 52
)

// Guard names the verification of a producer's transaction (BeginVerify).
type Guard = producer.Guard

// Entry is one batch to append and what became of it.
type Entry struct {
	Data []byte    // the batch, validated by the caller; base offset and leader epoch are stamped in place
	Info BatchInfo // of Data; Append sets BaseOffset, LeaderEpoch and Size
	// Verify: a transactional batch is refused with ErrInvalidTxnState unless its producer's transaction is open in this log, or Guard is of a
	// verification that began after the last one ended.
	Verify bool
	Guard  Guard

	BaseOffset, LastOffset int64 // given now, or for a Duplicate then
	LogStart               int64
	Duplicate              bool  // an exact repeat: nothing was written
	Err                    error // nothing was written; ErrStorage and others may be wrapped
}

// run is what one pwritev is to write. Its slices are reused.
type run struct {
	bufs  [][]byte
	items []runItem
	bytes int64
	start int64   // offset of its first batch
	all   []Entry // of the call

	options segment.Options // of the segments that it goes to
}

// runs are used again by other logs: very many keep none.
var runs = sync.Pool{New: func() any { return new(run) }}

// endRun gives the run back at the end of an append.
func (l *Log) endRun() {
	r := l.st.run
	r.reset(0)
	r.all, l.st.run = nil, nil
	runs.Put(r)
}

// runItem remembers what an entry changed before its bytes were written, so that it can be undone.
type runItem struct {
	entry   *Entry
	prev    producer.Saved
	known   bool
	tracked bool // it has a producer id
}

// Append gives each batch its offsets and writes them, all in one pwritev unless a segment ends between them. Results are
// in the entries; errors are per entry. Without an error the batch is in the log: under PageCache it is readable at once, under
// GroupCommit, and with flush.messages=1, once the commit that is scheduled has ended. It allocates nothing. It blocks for the
// page cache only, except for the first use of a log that is not loaded: see Ready.
func (l *Log) Append(entries []Entry) {
	if l.append(entries) {
		l.e.group.Schedule(&l.item)
	}
}

// Due are logs whose commit is due after appends. It is used again and again.
type Due struct{ items []*commit.Item[*Log] }

// AppendDue is Append for who writes to several logs: the commit of this one is left to Commit, which must follow before anything waits for it.
func (l *Log) AppendDue(entries []Entry, due *Due) {
	if l.append(entries) {
		due.items = append(due.items, &l.item)
	}
}

// Commit begins the commits that are due, all in one round: if they began one by one, the first would be synced alone and the others wait.
func (e *Engine) Commit(due *Due) {
	if len(due.items) == 0 {
		return
	}
	e.group.ScheduleAll(due.items)
	clear(due.items)
	due.items = due.items[:0]
}

// append reports whether a commit is due.
func (l *Log) append(entries []Entry) bool {
	l.mu.Lock()
	err := l.readyLocked()
	before := l.pub.read()
	if err == nil {
		err = l.appendLocked(entries)
	}
	if err != nil {
		for i := range entries {
			entries[i].Err = err
		}
	}
	after := l.pub.read()
	moved := after.end.offset != before.end.offset
	due := moved && l.flushDue(after.end.offset)
	l.mu.Unlock()
	for i := range entries {
		entries[i].LogStart = after.start
	}
	if !moved {
		return false
	}
	if after.hw.offset != before.hw.offset {
		l.watch.notify(l)
	}
	if !due {
		l.flushLater()
	}
	return due
}

// readyLocked loads the log if need be. mu is held.
func (l *Log) readyLocked() error {
	if f := l.failed.Load(); f != nil {
		if f.err == ErrDeleted || f.err == ErrClosed {
			return f.err
		}
		return fmt.Errorf("%w: %w", ErrStorage, f.err)
	}
	if l.e.closed.Load() {
		return ErrClosed
	}
	if l.st == nil {
		return l.loadLocked(nil)
	}
	return nil
}

func (l *Log) appendLocked(entries []Entry) error {
	cfg := l.cfg.Load()
	st := l.st
	now := l.e.cfg.Clock()
	st.synced = l.synced(cfg)
	st.run = runs.Get().(*run)
	defer l.endRun()
	st.run.options = segment.Options{IndexInterval: cfg.IndexIntervalBytes, MaxIndex: cfg.SegmentIndexBytes, MaxBytes: l.segmentBytes(cfg), NowMs: now.UnixMilli()}
	st.run.reset(st.end)
	st.run.all = entries
	if err := l.prepare(); err != nil {
		return err
	}
	for i := range entries {
		en := &entries[i]
		en.Duplicate, en.Err = false, nil
		size := int64(len(en.Data))
		if size > cfg.SegmentBytes {
			en.Err = ErrTooLarge
			continue
		}
		if !l.admit(en) {
			continue
		}
		if err := l.makeRoom(en, size, cfg, now); err != nil {
			en.Err = err
			continue
		}
		l.take(en, now.UnixMilli())
	}
	// The entries have the error.
	_ = l.flushRun()
	return nil
}

// segmentBytes is the size at which segments end. In memory they are small enough that dropping one frees a little only.
func (l *Log) segmentBytes(cfg *LogConfig) int64 {
	if l.e.cfg.Storage == Memory {
		return min(cfg.SegmentBytes, max(memorySegmentMin, l.e.cfg.MemoryMaxBytes/16))
	}
	return cfg.SegmentBytes
}

// admit judges an entry by its producer: false when it is refused or a duplicate.
func (l *Log) admit(en *Entry) bool {
	b := &en.Info
	if b.ProducerID < 0 {
		return true
	}
	ps := &l.st.producers
	var dup bool
	var base, last int64
	switch {
	case b.Control:
		en.Err = l.admitMarker(en)
	case b.Internal:
		en.Err = ps.CheckEpoch(b.ProducerID, b.ProducerEpoch)
	default:
		dup, base, last, en.Err = ps.Check(b.ProducerID, b.ProducerEpoch, b.BaseSequence, b.LastOffsetDelta, b.Transactional)
	}
	if dup {
		en.Duplicate, en.BaseOffset, en.LastOffset = true, base, last
		return false
	}
	if en.Err == nil && en.Verify && b.Transactional && !b.Control {
		en.Err = ps.CheckGuard(b.ProducerID, b.ProducerEpoch, b.BaseSequence, en.Guard)
	}
	return en.Err == nil
}

// admitMarker judges the end of a transaction.
func (l *Log) admitMarker(en *Entry) error {
	b := &en.Info
	if _, epoch, ok := l.e.cfg.Format.ControlType(en.Data); ok {
		return l.st.producers.CheckMarker(b.ProducerID, b.ProducerEpoch, epoch)
	}
	return l.st.producers.CheckEpoch(b.ProducerID, b.ProducerEpoch)
}

// BeginVerify is called before the transaction coordinator is asked whether a producer's transaction includes this log: with what it returns
// the batch is appended (Entry.Guard). 0: the transaction is open here, and nobody need be asked. It waits for appends to the page cache, and
// for the load of a log that is not loaded.
func (l *Log) BeginVerify(id int64, epoch int16, sequence int32) (Guard, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.readyLocked(); err != nil {
		return 0, err
	}
	return l.st.producers.Begin(id, epoch, sequence, l.e.cfg.Clock().UnixMilli()), nil
}

// TxnOpen tells whether a producer's transaction is open here. It waits for appends to the page cache; false while the log is not loaded.
func (l *Log) TxnOpen(id int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.st == nil {
		return false
	}
	p, ok := l.st.producers.Get(id)
	return ok && p.TxnFirst >= 0
}

// makeRoom rolls the segment if the entry does not belong into it: after writing what is collected for it.
func (l *Log) makeRoom(en *Entry, size int64, cfg *LogConfig, now time.Time) error {
	st := l.st
	last := st.end + int64(en.Info.LastOffsetDelta)
	active := l.active()
	if active == nil {
		return l.roll(now)
	}
	if !active.ShouldRoll(st.run.bytes, size, last, en.Info.MaxTimestamp, &st.run.options, l.segmentMs(cfg), now) {
		return nil
	}
	if len(st.run.items) > 0 {
		if err := l.flushRun(); err != nil {
			return err // the entry was judged after those that failed: it fails with them
		}
		last = st.end + int64(en.Info.LastOffsetDelta)
		if !active.ShouldRoll(0, size, last, en.Info.MaxTimestamp, &st.run.options, l.segmentMs(cfg), now) {
			return nil
		}
	}
	return l.roll(now)
}

// segmentMs is how long the active segment is appended to, in milliseconds.
func (l *Log) segmentMs(cfg *LogConfig) int64 {
	ms := cfg.SegmentMs
	if cfg.Compact && cfg.MaxCompactionLagMs > 0 {
		ms = min(ms, cfg.MaxCompactionLagMs) // the active segment is never compacted
	}
	return ms - int64(l.st.jitter*float64(min(cfg.SegmentJitterMs, ms)))
}

// take gives the entry its offsets and adds it to the run.
func (l *Log) take(en *Entry, now int64) {
	st, b := l.st, &en.Info
	b.BaseOffset, b.LeaderEpoch, b.Size = st.end, l.spec.LeaderEpoch, len(en.Data)
	l.e.cfg.Format.Stamp(en.Data, b.BaseOffset, b.LeaderEpoch)
	en.BaseOffset, en.LastOffset = b.BaseOffset, b.LastOffset()
	r := st.run
	r.bufs = append(r.bufs, en.Data)
	r.bytes += int64(len(en.Data))
	r.items = append(r.items, runItem{entry: en})
	if b.ProducerID >= 0 {
		it := &r.items[len(r.items)-1]
		it.tracked = true
		it.known = st.producers.Save(b.ProducerID, &it.prev)
		if b.Control {
			if _, epoch, ok := l.e.cfg.Format.ControlType(en.Data); ok {
				st.producers.Marker(b.ProducerID, b.ProducerEpoch, epoch, b.MaxTimestamp, now)
			}
		} else {
			st.producers.Append(b.ProducerID, b.ProducerEpoch, b.BaseSequence, b.LastOffsetDelta, b.LastOffset(), b.MaxTimestamp, now, b.Transactional)
		}
	}
	st.end = b.LastOffset() + 1
}

func (r *run) reset(start int64) {
	clear(r.bufs)
	clear(r.items)
	r.bufs, r.items, r.bytes, r.start = r.bufs[:0], r.items[:0], 0, start
}

// flushRun writes the run and publishes it, or undoes it.
func (l *Log) flushRun() error {
	st := l.st
	r := st.run
	if len(r.items) == 0 {
		return nil
	}
	defer func() { r.reset(st.end) }()
	active := l.active()
	err := l.memoryRoom(r.bytes)
	if err == nil {
		err = l.write(active, r)
	}
	if err != nil {
		return l.undoRun(err)
	}
	l.e.memory.Add(r.bytes)
	for i := range r.items {
		it := &r.items[i]
		l.noteTxn(it)
		active.Note(&it.entry.Info, &st.run.options)
	}
	l.zeroAhead(active)
	end := place{st.end, active.Base(), active.Size()}
	l.stage(r, end.seg, end.pos-r.bytes)
	l.pub.mu.Lock()
	m := l.pub.read()
	m.end = end
	if !l.st.synced {
		m.hw = end
	}
	l.pub.write(m)
	l.pub.mu.Unlock()
	return nil
}

// write writes the run at the end of a segment, and tells how long that took: every write is timed, since what matters is
// the rare one that stalls.
func (l *Log) write(s *segment.Segment, r *run) error {
	told := l.e.cfg.OnWrite
	if told == nil {
		return s.Write(r.bufs, r.bytes, &r.options)
	}
	// Since reads the monotonic clock alone: half the cost of Now.
	began := time.Since(l.e.opened)
	err := s.Write(r.bufs, r.bytes, &r.options)
	told(r.bytes, time.Since(l.e.opened)-began)
	return err
}

// undoRun takes back what the run changed. A repeat of an entry whose write failed fails too.
func (l *Log) undoRun(cause error) error {
	st := l.st
	err := fmt.Errorf("%w: %w", ErrStorage, cause)
	for i := len(st.run.items) - 1; i >= 0; i-- {
		it := &st.run.items[i]
		it.entry.Err = err
		if it.tracked {
			st.producers.Restore(it.entry.Info.ProducerID, &it.prev, it.known)
		}
	}
	for i := range st.run.all {
		if en := &st.run.all[i]; en.Duplicate && en.BaseOffset >= st.run.start {
			en.Duplicate, en.Err = false, err
		}
	}
	st.end = st.run.start
	return err
}

// noteTxn follows the transaction state of a batch that was written.
func (l *Log) noteTxn(it *runItem) {
	b := &it.entry.Info
	switch {
	case !it.tracked:
	case b.Control:
		commit, _, ok := l.e.cfg.Format.ControlType(it.entry.Data)
		if !ok || !it.known || it.prev.TxnFirst < 0 {
			return
		}
		l.pub.finish(b.ProducerID, b.BaseOffset)
		if !commit {
			l.active().AddAborted(segment.AbortedTxn{ProducerID: b.ProducerID, FirstOffset: it.prev.TxnFirst, LastOffset: b.BaseOffset, LastStable: l.pub.stableAfter(b.BaseOffset)})
		}
	case b.Transactional && (!it.known || it.prev.TxnFirst < 0):
		l.pub.begin(b.ProducerID, b.BaseOffset)
	}
}

// stableAfter is the last stable offset once the marker is in: the first offset of an open transaction, or what follows.
func (p *published) stableAfter(marker int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.open {
		if t.last < 0 {
			return t.first
		}
	}
	return marker + 1
}

// active is the segment appended to, nil before the first append.
func (l *Log) active() *segment.Segment {
	segs := *l.segs.Load()
	if len(segs) == 0 {
		return nil
	}
	return segs[len(segs)-1]
}

// prepare makes the log writable: marked in the journal, with a directory. Both become durable with the first commit.
func (l *Log) prepare() error {
	st := l.st
	need := false
	if !st.dirMade {
		l.e.dirMu.Lock()
		defer l.e.dirMu.Unlock()
	}
	if l.e.cfg.Storage == Disk && !st.marked {
		recovery := st.end
		if a := l.active(); a != nil {
			recovery = a.Base()
		}
		if err := l.e.journal.update(l.name(), func(e *journalEntry) {
			e.claim(l.spec.TopicID)
			e.dirty, e.recovery = true, recovery
		}); err != nil {
			return fmt.Errorf("%w: %w", ErrStorage, err)
		}
		st.marked, st.markLine, need = true, l.e.journal.written.Load(), true
	}
	if !st.dirMade {
		if err := l.makeDir(); err != nil {
			return fmt.Errorf("%w: %w", ErrStorage, err)
		}
		need = true
	}
	if need || st.epochs.unsaved() {
		l.needNames()
	}
	return nil
}

// needNames has directory entries and small files made durable before the next commit publishes.
func (l *Log) needNames() {
	l.names.Add(1)
	if l.e.cfg.Durability == PageCache && l.e.cfg.Storage == Disk {
		l.syncNamesLater()
	}
}

// roll begins a new segment at the end of the log. The old one is sealed in the background.
func (l *Log) roll(now time.Time) error {
	st := l.st
	if active := l.active(); active != nil {
		if err := active.Mend(); err != nil {
			return fmt.Errorf("%w: %w", ErrStorage, err)
		}
	}
	if len(*l.segs.Load()) > 0 && l.e.cfg.Storage == Disk {
		// A start takes all segments but the last of a clean log for whole. So a power cut must not leave this one and take the line that
		// says dirty. It is durable since the first commit as a rule; a roll before that waits here.
		if err := l.e.journal.syncTo(st.markLine); err != nil {
			return fmt.Errorf("%w: %w", ErrStorage, err)
		}
	}
	fresh := l.e.files.New(l.e.cfg.Format, l.dir(), st.end, now)
	if err := fresh.Create(); err != nil {
		return fmt.Errorf("%w: %w", ErrStorage, err)
	}
	old := *l.segs.Load()
	segs := append(append(make([]*segment.Segment, 0, len(old)+1), old...), fresh)
	if len(old) > 0 {
		snapshot := st.producers.Snapshot(true) // of none too: without it the next first use looks for producers in every batch before
		l.syncMu.Lock()
		l.rolled = append(l.rolled, old[len(old)-1])
		l.seals = append(l.seals, seal{old[len(old)-1], st.end, snapshot})
		start := !l.sealing
		l.sealing = true
		l.syncMu.Unlock()
		if start {
			l.e.seal(l)
		}
	}
	l.segs.Store(&segs)
	st.jitter = rand.Float64()
	l.needNames()
	return nil
}
