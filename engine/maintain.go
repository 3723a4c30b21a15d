package engine

import (
	"errors"
	"fmt"
	"time"

	"kaas/engine/segment"
	"kaas/engine/vfs"
)

// memorySegmentMin is the smallest size at which segments in memory end.
const memorySegmentMin = 1 << 20

func (e *Engine) maintain() {
	defer close(e.stopped)
	t := time.NewTicker(e.cfg.Maintenance)
	defer t.Stop()
	producers := time.NewTicker(e.cfg.ProducerCheck)
	defer producers.Stop()
	for {
		select {
		case <-e.stop:
			return
		case <-t.C:
			e.Maintain()
		case <-producers.C:
			e.ExpireProducers()
		}
	}
}

// loadsPerPass is how many logs that nobody has used yet a pass of maintenance loads, so that they shrink too.
const loadsPerPass = 256

// Maintain makes one pass over the logs: retention, syncs of descriptors that page-cache durability
// leaves unsynced, and the size of the journal. Logs that are not loaded get their turn a few at a time. The engine does it
// every Config.Maintenance.
func (e *Engine) Maintain() {
	e.mu.Lock()
	logs := make([]*Log, 0, len(e.logs))
	loads := 0
	for l := range e.logs {
		if l.Err() != nil {
			continue
		}
		if !l.Loaded() {
			if loads == loadsPerPass || !l.cfg.Load().Delete || e.journal.dirty(l.name()) {
				continue // one that may be dirty is for Recover
			}
			loads++
		}
		logs = append(logs, l)
	}
	e.mu.Unlock()
	crowded := e.files.OpenCount() > e.cfg.MaxOpenFiles*3/4
	for _, l := range logs {
		if e.closed.Load() {
			return
		}
		if err := l.Load(); err != nil {
			continue // it is offline and has said why
		}
		l.syncAgain()
		l.sealAgain()
		if err := l.retain(); err != nil && l.Err() == nil {
			e.cfg.Logger.Warn("retention failed", "log", l.name(), "error", err)
		}
		if crowded && e.cfg.Durability == PageCache {
			l.syncIdle()
		}
	}
	if err := e.journal.compact(); err != nil {
		e.cfg.Logger.Warn("journal could not be rewritten", "error", err)
	}
}

// syncCrowd has the descriptors of all logs made evictable, in the background; once, however often it is called meanwhile.
func (e *Engine) syncCrowd() {
	if e.crowd.Swap(true) {
		return
	}
	e.Go(func() {
		e.mu.Lock()
		logs := make([]*Log, 0, len(e.logs))
		for l := range e.logs {
			if l.Loaded() && l.Err() == nil {
				logs = append(logs, l)
			}
		}
		e.mu.Unlock()
		e.crowd.Store(false)
		each(logs, e.cfg.CommitThreads, func(l *Log) {
			if !e.closed.Load() {
				l.syncIdle()
			}
		})
	})
}

// syncIdle makes all that was written durable: descriptors with unsynced writes are evictable again. A failure takes the log offline.
func (l *Log) syncIdle() {
	for _, s := range *l.segs.Load() {
		if err := l.syncSegment(s); err != nil {
			l.e.group.Poison(&l.item, err)
			return
		}
	}
}

// ExpireProducers forgets the producers that have been idle for producer.id.expiration.ms, except those with an open transaction. The engine does
// it every Config.ProducerCheck.
func (e *Engine) ExpireProducers() {
	e.mu.Lock()
	logs := make([]*Log, 0, len(e.logs))
	for l := range e.logs {
		if l.Loaded() && l.Err() == nil {
			logs = append(logs, l)
		}
	}
	e.mu.Unlock()
	for _, l := range logs {
		l.expire()
	}
}

func (l *Log) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.st != nil {
		l.st.producers.Expire(l.e.cfg.Clock().UnixMilli(), l.e.expiry.Load())
	}
}

// retain applies retention.ms and retention.bytes.
func (l *Log) retain() error {
	cfg := l.cfg.Load()
	if !cfg.Delete || l.segs.Load() == nil {
		return nil
	}
	segs := *l.segs.Load()
	n := l.expired(segs, cfg)
	if n == 0 {
		return nil
	}
	if n == len(segs) {
		// Kafka rolls before it deletes the active segment, so that offsets go on.
		l.mu.Lock()
		err := l.readyLocked()
		if active := l.active(); err == nil && active == segs[n-1] && active.Size() > 0 {
			if err = l.prepare(); err == nil {
				err = l.roll(l.e.cfg.Clock())
			}
		}
		l.mu.Unlock()
		if err != nil {
			return err
		}
		segs = *l.segs.Load()
		if n >= len(segs) {
			n = len(segs) - 1
		}
	}
	return l.advance(segs[n].Base())
}

// expired counts the leading segments that retention lets go. Only what is below the high watermark goes.
func (l *Log) expired(segs []*segment.Segment, cfg *LogConfig) int {
	hw := l.pub.read().hw.offset
	now := l.e.cfg.Clock().UnixMilli()
	excess := int64(-1)
	if cfg.RetentionBytes >= 0 {
		excess = l.SizeBytes() - cfg.RetentionBytes
	}
	n := 0
	for _, s := range segs {
		size := s.Size()
		if s.Next() > hw || size == 0 && n == len(segs)-1 { // one that compaction has emptied may go
			break
		}
		old := cfg.RetentionMs >= 0 && now-s.NewestMs() > cfg.RetentionMs
		if !old && !(excess >= 0 && excess >= size) {
			break
		}
		excess -= size
		n++
	}
	return n
}

// DeleteRecords moves the log start to offset; -1 means the high watermark. The new start is durable when it returns, before
// any file goes. An offset below the present start changes nothing; below -1 or above the high watermark it is
// ErrOffsetOutOfRange. It may block.
func (l *Log) DeleteRecords(offset int64) (newStart int64, err error) {
	if err := l.readable(); err != nil {
		return -1, err
	}
	m := l.pub.read()
	if offset == -1 {
		offset = m.hw.offset
	}
	if offset < 0 || offset > m.hw.offset {
		return -1, ErrOffsetOutOfRange
	}
	if offset <= m.start {
		return m.start, nil
	}
	if err := l.advance(offset); err != nil {
		return -1, err
	}
	return l.pub.read().start, nil
}

// advance moves the log start: durable in the journal, then published, then segments below it go in the background.
func (l *Log) advance(start int64) error {
	if l.e.cfg.Storage == Disk {
		err := l.e.journal.update(l.name(), func(e *journalEntry) {
			e.claim(l.spec.TopicID)
			e.start = max(e.start, start)
		})
		if err == nil {
			err = l.e.journal.sync()
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrStorage, err)
		}
	}
	l.pub.mu.Lock()
	m := l.pub.read()
	before := m.lso
	m.start = max(m.start, start)
	l.pub.write(m)
	moved := l.pub.read().lso != before
	l.pub.mu.Unlock()
	if moved {
		l.watch.notify(l)
	}
	l.st.epochs.cutStart(start)

	l.mu.Lock()
	gone := l.detach(start)
	l.mu.Unlock()
	if len(gone) > 0 {
		l.e.later(l.cfg.Load().FileDeleteDelayMs, func() { l.removeSegments(gone) })
	}
	return nil
}

// detach takes the segments below start out of the list, never the active one: their files are for one removeSegments. mu is held.
func (l *Log) detach(start int64) []*segment.Segment {
	segs := *l.segs.Load()
	n := 0
	for n+1 < len(segs) && segs[n+1].Base() <= start && segs[n] != l.st.claimed {
		n++
	}
	if n == 0 {
		return nil
	}
	rest := append([]*segment.Segment(nil), segs[n:]...)
	l.leaving.Add(1)
	l.segs.Store(&rest)
	for _, s := range segs[:n] {
		l.e.memory.Add(-s.Size())
	}
	return segs[:n]
}

// removeSegments takes the names of segments that are no longer in the list, and has their bytes go. Where that lacks room it is tried again:
// theirs is missed now.
func (l *Log) removeSegments(gone []*segment.Segment) { l.removeRest(gone, nil) }

// removeRest is removeSegments when some log files have been renamed already.
func (l *Log) removeRest(gone []*segment.Segment, names []string) {
	err := l.inDir(func() error {
		more, err := l.dropSegments(gone)
		names = append(names, more...)
		return err
	})
	switch {
	case err == ErrDeleted:
		return // they went with the directory
	case vfs.NoRoom(err):
		l.e.later(shredBusyMs, func() { l.removeRest(gone, names) })
		return
	case err != nil:
		l.e.cfg.Logger.Warn("segments could not be removed", "log", l.name(), "error", err)
	}
	l.shredLater(names, gone, 0)
}

// dropSegments is the part of removeSegments that needs the log's directory. It returns the names of what is to be shredded: they are durable,
// unless the error is one for lack of room.
func (l *Log) dropSegments(gone []*segment.Segment) (names []string, err error) {
	first := (*l.segs.Load())[0].Base()
	if err := l.keepProducers(first); err != nil {
		return nil, err // the next start takes them
	}
	var errs []error
	for _, s := range gone {
		name, err := s.Discard()
		if name != "" {
			names = append(names, name)
		}
		errs = append(errs, err, l.removeSnapshot(s.Base()))
	}
	if l.e.cfg.Storage == Memory {
		return nil, errors.Join(errs...)
	}
	if err := l.e.cfg.FS.SyncDir(l.dir()); err != nil {
		if !vfs.NoRoom(err) {
			names = nil
		}
		return names, errors.Join(append(errs, err)...)
	}
	if err := errors.Join(errs...); err != nil {
		return names, err
	}
	if l.leaving.Add(-1) > 0 {
		return names, nil // the names of others that are below the log start are still there
	}
	_ = l.e.journal.update(l.name(), func(e *journalEntry) {
		if e.start <= first {
			e.start = 0 // the files say it now
		}
	})
	return names, nil
}

// keepProducers writes the snapshot at the base of the first segment that stays, if the seal that writes it is still to come: without it
// what the segments before say of producers and open transactions would go with them. pathMu is held.
func (l *Log) keepProducers(first int64) error {
	if l.e.cfg.Storage == Memory {
		return nil
	}
	l.syncMu.Lock()
	var snapshot []byte
	for _, s := range append(l.unsealed, l.seals...) {
		if s.next == first {
			snapshot = s.snapshot
		}
	}
	l.syncMu.Unlock()
	if snapshot == nil {
		return nil
	}
	return l.writeSnapshot(first, snapshot)
}

// memoryRoom makes sure that n more bytes may be held in memory, by the rule of Config.MemoryFull.
func (l *Log) memoryRoom(n int64) error {
	e := l.e
	if e.cfg.Storage == Disk || e.memory.Load()+n <= e.cfg.MemoryMaxBytes {
		return nil
	}
	if e.cfg.MemoryFull == DropOldest {
		l.dropOldest(n)
		if e.memory.Load()+n <= e.cfg.MemoryMaxBytes {
			return nil
		}
		e.Go(e.dropFromLargest)
		if e.memory.Load()+n <= e.cfg.MemoryMaxBytes+e.cfg.MemoryMaxBytes/8 {
			return nil // the others make room meanwhile
		}
	}
	return fmt.Errorf("memory storage is full: %d of %d bytes", e.memory.Load(), e.cfg.MemoryMaxBytes)
}

// dropOldest drops sealed segments of this log until n bytes fit. mu is held.
func (l *Log) dropOldest(n int64) {
	for l.e.memory.Load()+n > l.e.cfg.MemoryMaxBytes {
		segs := *l.segs.Load()
		if len(segs) < 2 {
			return
		}
		start := segs[1].Base()
		l.pub.mu.Lock()
		m := l.pub.read()
		m.start = max(m.start, start)
		l.pub.write(m)
		l.pub.mu.Unlock()
		l.st.epochs.cutStart(start)
		gone := l.detach(start)
		if gone == nil {
			return // compaction has it just now
		}
		for _, s := range gone {
			// Unlike on disk, at once: the room is needed now, and freeing memory takes no seek.
			if err := s.Remove(); err != nil {
				l.e.cfg.Logger.Warn("segment could not be dropped", "log", l.name(), "error", err)
			}
		}
	}
}

// dropFromLargest makes the largest log give up its oldest segment, when the log that needs room has none to give.
func (e *Engine) dropFromLargest() {
	for e.memory.Load() > e.cfg.MemoryMaxBytes {
		var largest *Log
		var most int64
		e.mu.Lock()
		for l := range e.logs {
			if n := l.SizeBytes(); l.Loaded() && n > most {
				largest, most = l, n
			}
		}
		e.mu.Unlock()
		if largest == nil {
			return
		}
		largest.mu.Lock()
		before := e.memory.Load()
		if len(*largest.segs.Load()) == 1 && largest.Err() == nil {
			if err := largest.roll(e.cfg.Clock()); err != nil {
				e.cfg.Logger.Warn("segment could not be rolled", "log", largest.name(), "error", err)
			}
		}
		largest.dropOldest(0)
		largest.mu.Unlock()
		if e.memory.Load() == before {
			return
		}
	}
}

// zeroPace decides whether zeros are written ahead: only under group commit, and only while syncs are small. A sync of much
// data costs its bytes, and zeros would double them.
type zeroPace struct {
	bytes, commits int64 // since the last decision
}

const zeroMaxPerCommit = 256 << 10

// zeroAhead has zeros written in the background behind the data just appended. mu is held.
func (l *Log) zeroAhead(active *segment.Segment) {
	if l.e.cfg.Durability != GroupCommit || l.e.shared != nil && !l.e.shared.j.Broken() {
		return
	}
	p := &l.st.zeros
	p.bytes += l.st.run.bytes
	p.commits++
	if p.commits < 32 || !active.WantsZeros() {
		return
	}
	small := p.bytes/p.commits <= zeroMaxPerCommit
	*p = zeroPace{}
	if !small {
		active.SkipZeros()
		return
	}
	l.e.Go(func() {
		if err := active.ZeroAhead(); err != nil && l.Err() == nil {
			// A failed sync of this file took the error that the committer would have seen.
			l.e.group.Poison(&l.item, err)
		}
	})
}

// remove is Engine.Remove for one log.
func (l *Log) remove() {
	l.fail(ErrDeleted)
	l.failed.Store(&failure{ErrDeleted}) // also one that was offline
	l.e.group.Poison(&l.item, ErrDeleted)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pathMu.Lock()
	defer l.pathMu.Unlock()
	var gone []*segment.Segment
	if segs := l.segs.Load(); segs != nil {
		gone = *segs
	}
	for _, s := range gone {
		l.e.memory.Add(-s.Size())
		s.Retire()
	}
	if !l.isNew || l.st.dirMade {
		l.e.setAside(l.dir(), gone, l.cfg.Load().FileDeleteDelayMs)
	}
	l.e.journal.forget(l.name())
	l.e.cleaner.forget(l)
	l.watch.notify(l)
}

// unscanned estimates how many bytes a recovery of this log reads.
func (l *Log) unscanned() int64 {
	entries, err := l.e.cfg.FS.ReadDir(l.dir())
	if err != nil {
		return 0 // Load says what is wrong
	}
	recovery := l.e.journal.get(l.name()).recovery
	var n int64
	for _, d := range entries {
		if base, suffix, ok := segment.ParseName(d.Name); ok && suffix == segment.LogSuffix && base >= recovery {
			size, _ := l.e.cfg.FS.Size(l.dir() + "/" + d.Name)
			n += size
		}
	}
	return n
}
