package engine

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"kaas/engine/segment"
	"kaas/engine/vfs"
)

// closeLogs makes every log clean and closes its files. Many of them are synced together: 2,000 take 2.8 s so, and 12.3 s with their own
// syncs (BenchmarkClose, on a busy machine).
func (e *Engine) closeLogs(logs []*Log) error {
	var errs []error
	var mu sync.Mutex
	note := func(l *Log, err error) {
		if err != nil {
			mu.Lock()
			errs = append(errs, fmt.Errorf("closing %s: %w", l.name(), err))
			mu.Unlock()
		}
	}
	var dirty []*Log
	for _, l := range logs {
		if l.unclean() {
			dirty = append(dirty, l)
		}
	}
	if e.volume != nil && len(dirty) >= e.cfg.volumeMin {
		for some := range slices.Chunk(dirty, max(1, e.cfg.MaxOpenFiles/2)) { // their descriptors are held until they are synced
			errs = append(errs, e.checkpointAll(some, note))
		}
	}
	each(logs, e.cfg.CommitThreads, func(l *Log) { note(l, l.close()) })
	return errors.Join(errs...)
}

// checkpointAll makes logs clean with one sync of the file system between the writing of their files and the lines that say so. What
// fails stays dirty.
func (e *Engine) checkpointAll(logs []*Log, note func(l *Log, err error)) error {
	var mu sync.Mutex
	var saved []*Log
	each(logs, e.cfg.CommitThreads, func(l *Log) {
		if err := l.checkpointLater(); err != nil {
			note(l, err)
			return
		}
		mu.Lock()
		saved = append(saved, l)
		mu.Unlock()
	})
	if err := e.syncVolume(saved); err != nil {
		return err
	}
	for _, l := range saved {
		note(l, l.checkpointed())
	}
	return nil
}

// unclean reports that a close has files of the log to make durable.
func (l *Log) unclean() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.st != nil && l.st.marked && l.Err() == nil && l.e.cfg.Storage == Disk
}

// checkpointLater is checkpoint as far as it goes before the files are synced. Small files that are replaced are synced nevertheless:
// until the log is clean the old content must not be lost.
func (l *Log) checkpointLater() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.st == nil || !l.st.marked || l.Err() != nil || !l.st.dirMade {
		return nil
	}
	return l.saveFiles(true, l.st.epochs.save)
}

// checkpointed ends what checkpointLater began.
func (l *Log) checkpointed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.st == nil || !l.st.marked || l.Err() != nil {
		return nil
	}
	l.pathMu.Lock()
	err := l.dropSnapshot()
	l.pathMu.Unlock()
	if err != nil {
		return err
	}
	return l.noteClean()
}

// checkpoint makes a log clean: everything durable, indexes and producers on disk, the journal's line taken back.
func (l *Log) checkpoint() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.checkpointLocked()
}

func (l *Log) checkpointLocked() error {
	st := l.st
	if st == nil || !st.marked || l.e.cfg.Storage == Memory {
		return nil
	}
	if st.dirMade {
		if err := l.saveFiles(false, st.epochs.save); err != nil {
			return err
		}
	}
	return l.noteClean()
}

// noteClean takes the journal's line back. mu is held.
func (l *Log) noteClean() error {
	if err := l.e.journal.update(l.name(), func(e *journalEntry) { e.dirty, e.failed, e.holes, e.recovery = false, false, false, 0 }); err != nil {
		return err
	}
	l.st.marked = false
	return nil
}

// saveFiles brings all files of the log to what a clean start expects, and makes them durable unless that is left for later. mu is held.
func (l *Log) saveFiles(later bool, saveEpochs func(f vfs.FS, dir string) error) error {
	if err := l.syncNames(); err != nil {
		return err
	}
	l.pathMu.Lock()
	defer l.pathMu.Unlock()
	if l.st.epochs.behind() {
		if err := saveEpochs(l.e.cfg.FS, l.dir()); err != nil {
			return err
		}
	}
	segs := *l.segs.Load()
	for i, s := range segs {
		if s.Sealed() {
			continue
		}
		if err := saveSegment(s, i < len(segs)-1, later); err != nil {
			return err
		}
	}
	if err := l.saveSeals(later); err != nil {
		return err
	}
	if err := l.saveProducers(later); err != nil || later {
		return err
	}
	return l.e.cfg.FS.SyncDir(l.dir())
}

func saveSegment(s *segment.Segment, seal, later bool) error {
	switch {
	case later:
		return s.SaveLater(seal)
	case seal:
		return s.Seal()
	default:
		return s.Checkpoint()
	}
}

// withoutSnapshot is the size in bytes up to which a log without producers needs no snapshot that says so: its few batches are soon looked through.
const withoutSnapshot = 1 << 20

// saveProducers writes the snapshot at the log end. The one of the last checkpoint goes, later if the new one is not durable yet.
func (l *Log) saveProducers(later bool) error {
	st := l.st
	if st.snapshot == st.end || st.producers.Len() == 0 && st.snapshot < 0 && l.SizeBytes() <= withoutSnapshot {
		return nil
	}
	// A stop in order is answered as by Apache, which then knows the last batch of each producer only: clients had their answers. After a kill,
	// and another one before they have come back, they may repeat all that was in flight.
	if err := l.saveSnapshot(st.end, st.producers.Snapshot(!l.e.closed.Load()), later); err != nil {
		return err
	}
	st.outdated, st.snapshot = st.snapshot, st.end
	if later {
		return nil
	}
	return l.dropSnapshot()
}

// saveSeals writes the snapshots that were to come with seals: when the log is clean nobody else will.
func (l *Log) saveSeals(later bool) error {
	l.syncMu.Lock()
	seals := slices.Concat(l.unsealed, l.seals)
	l.syncMu.Unlock()
	for _, s := range seals {
		there := func(x *segment.Segment) bool { return x.Base() == s.next }
		if s.snapshot == nil || !slices.ContainsFunc(*l.segs.Load(), there) {
			continue
		}
		if err := l.saveSnapshot(s.next, s.snapshot, later); err != nil {
			return err
		}
	}
	return nil
}

// saveSnapshot is writeSnapshot, without the sync if one of the file system follows: nothing of that name is in use, and one that does not
// verify is passed over.
func (l *Log) saveSnapshot(at int64, b []byte, later bool) error {
	if later {
		return writeUnsynced(l.e.cfg.FS, l.dir()+"/"+segment.FileName(at, segment.SnapshotSuffix), b)
	}
	return l.writeSnapshot(at, b)
}

// dropSnapshot removes the snapshot of the checkpoint before, unless a roll needs it.
func (l *Log) dropSnapshot() error {
	old := l.st.outdated
	l.st.outdated = -1
	for _, s := range *l.segs.Load() {
		if s.Base() == old {
			return nil
		}
	}
	if old < 0 {
		return nil
	}
	return l.removeSnapshot(old) // it may have gone with the segment that began there
}

func writeUnsynced(f vfs.FS, name string, b []byte) error {
	file, err := f.Open(name, vfs.Create)
	if err != nil {
		return err
	}
	if _, err = file.WriteAt(b, 0); err == nil {
		err = file.Truncate(int64(len(b)))
	}
	return errors.Join(err, file.Close())
}

// close checkpoints a log and closes its files.
func (l *Log) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.st == nil {
		return nil
	}
	var err error
	if l.Err() == nil {
		err = l.checkpointLocked()
	}
	for _, s := range *l.segs.Load() {
		s.Close()
	}
	return err
}
