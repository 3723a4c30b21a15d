package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"kaas/engine/commit"
	"kaas/engine/segment"
	"kaas/engine/vfs"
)

// DurableWaiter is told once when what it waited for is durable, or why it never will be. It must not block.
type DurableWaiter = commit.Waiter

// AwaitDurable reports true if everything below end is durable, or durability is PageCache and flush.messages is not 1. Otherwise,
// without an error, w.Durable is called once, from a goroutine of the committer.
func (l *Log) AwaitDurable(end int64, w DurableWaiter) (bool, error) {
	if !l.synced(l.cfg.Load()) {
		return true, nil
	}
	done, err := l.e.group.Await(&l.item, end, w)
	if !done && err == nil && l.e.cfg.Durability == PageCache {
		l.e.group.Schedule(&l.item) // what was appended before flush.messages was altered has no commit to wait for
	}
	return done, err
}

// sync is what the committer calls: everything that was published before it becomes durable, names before data.
func (l *Log) sync() (int64, error) {
	m := l.pub.read()
	if l.namesBehind() {
		if err := l.syncNames(); vfs.NoRoom(err) {
			return 0, fmt.Errorf("%w: %w: %w", ErrStorage, commit.ErrNotNow, err)
		} else if err != nil {
			return 0, err
		}
	}
	segs := *l.segs.Load()
	l.syncMu.Lock()
	l.syncing = m.end
	rolled := l.rolled
	l.rolled = nil
	l.syncMu.Unlock()
	for _, s := range rolled {
		if err := l.syncSegment(s); err != nil {
			return 0, err
		}
	}
	if len(segs) > 0 {
		if err := l.syncSegment(segs[len(segs)-1]); err != nil {
			return 0, err
		}
	}
	return m.end.offset, nil
}

// syncSegment tolerates a segment that was removed meanwhile: what is deleted need not be durable.
func (l *Log) syncSegment(s *segment.Segment) error {
	if !s.Dirty() {
		return nil
	}
	err := s.Sync()
	if errors.Is(err, fs.ErrNotExist) && (l.failed.Load() != nil || s.Base() < l.pub.read().start) {
		return nil
	}
	return err
}

// publishDurable is what the committer calls after sync.
func (l *Log) publishDurable(end int64, err error) {
	if errors.Is(err, commit.ErrNotNow) {
		l.e.cfg.Logger.Warn("no room to make a log durable; it is tried again with the next append or pass of maintenance", "log", l.name(), "error", err)
		return
	}
	if err != nil {
		l.fail(err)
		l.syncMu.Lock()
		l.dropStaged()
		l.syncMu.Unlock()
		return
	}
	l.syncMu.Lock()
	durable := l.syncing
	l.unstage(durable)
	l.syncMu.Unlock()
	if durable.offset != end {
		return
	}
	l.pub.mu.Lock()
	m := l.pub.read()
	moved := m.hw.offset < end
	if moved {
		m.hw = durable
		l.pub.write(m)
	}
	l.pub.mu.Unlock()
	if moved {
		l.watch.notify(l)
	}
}

func (l *Log) namesBehind() bool { return l.namesSynced.Load() < l.names.Load() }

// syncNamesLater has names made durable in the background, by one at a time.
func (l *Log) syncNamesLater() {
	if l.naming.Swap(true) {
		return
	}
	l.e.Go(func() {
		for {
			err := l.syncNames()
			l.naming.Store(false)
			switch {
			case vfs.NoRoom(err):
				l.e.cfg.Logger.Warn("no room to make the names of a log durable; it is tried again", "log", l.name(), "error", err)
				return
			case err != nil:
				l.fail(err)
				return
			case !l.namesBehind() || l.naming.Swap(true): // what came after the sync has somebody, or nothing came
				return
			}
		}
	})
}

// syncNames makes durable that the log exists and what it is called: the journal's line, the directory, its small files.
func (l *Log) syncNames() error {
	if l.e.cfg.Storage == Memory || !l.namesBehind() {
		return nil
	}
	l.pathMu.Lock()
	defer l.pathMu.Unlock()
	seen := l.names.Load() // before: what is added meanwhile asks again
	err := l.e.journal.sync()
	if err == nil && l.Err() != ErrDeleted {
		err = l.syncDir()
	}
	if err != nil && l.Err() != ErrDeleted {
		return err
	}
	l.namesSynced.Store(seen)
	return nil
}

func (l *Log) syncDir() error {
	fsys := l.e.cfg.FS
	// No room for the leader epochs is no reason to lose the log: until they are saved the recovery point stays before the batches that
	// tell them, and the next append asks again.
	if err := l.st.epochs.save(fsys, l.dir()); err != nil && !vfs.NoRoom(err) {
		return err
	}
	fresh := l.freshDir.Load()
	if fresh {
		if err := l.syncMetadata(); err != nil {
			return err
		}
	}
	if err := fsys.SyncDir(l.dir()); err != nil {
		return err
	}
	if fresh {
		if err := l.e.syncRoot(); err != nil {
			return err
		}
		l.freshDir.Store(false)
	}
	return nil
}

func (l *Log) syncMetadata() error {
	f, err := l.e.cfg.FS.Open(l.dir()+"/"+metadataName, vfs.ReadWrite)
	if err != nil {
		return err
	}
	err = f.Sync()
	return errors.Join(err, f.Close())
}

// syncRoot makes the names of logs' directories durable, once for all that were made before.
func (e *Engine) syncRoot() error {
	e.rootMu.Lock()
	defer e.rootMu.Unlock()
	if !e.rootNew.Swap(false) {
		return nil
	}
	err := e.cfg.FS.SyncDir(e.cfg.Dir)
	if err != nil {
		e.rootNew.Store(true)
	}
	return err
}

// seal is a rolled segment to be trimmed and closed for good.
type seal struct {
	segment  *segment.Segment
	next     int64  // base of the segment after it
	snapshot []byte // of the producers at next; nil when it is written
}

// sealRolled trims rolled segments, writes their indexes, and moves the recovery point behind them, in order. One runs per log. It ends at
// one that fails: the recovery point stays before that, so before all that come after it. The next roll or pass of maintenance tries again.
func (l *Log) sealRolled() {
	for {
		l.syncMu.Lock()
		if err := l.Err(); len(l.seals) == 0 || err != nil && err != ErrDeleted {
			l.sealing = false
			l.syncMu.Unlock()
			return
		}
		s := l.seals[0]
		l.syncMu.Unlock()
		err := l.sealOne(s)
		gone := s.next <= l.pub.read().start
		if err != nil && l.Err() == nil && !gone {
			// A failed sync of its data is found by the committer, and under PageCache it is found here.
			l.e.cfg.Logger.Warn("segment could not be sealed", "log", l.name(), "segment", s.segment.Base(), "error", err)
			if bad := s.segment.InDoubt(); bad != nil {
				l.e.group.Poison(&l.item, bad)
			}
		}
		l.syncMu.Lock()
		if err != nil && !gone {
			l.sealing = false
			l.syncMu.Unlock()
			return
		}
		if err != nil {
			l.unsealed = append(l.unsealed, s)
		} else {
			// It is synced: under PageCache no commit comes that would take it off the list.
			l.rolled = slices.DeleteFunc(l.rolled, func(r *segment.Segment) bool { return r == s.segment })
		}
		l.seals = l.seals[1:]
		l.syncMu.Unlock()
	}
}

// syncAgain has the commit, or the sync of names, tried again that found no room.
func (l *Log) syncAgain() {
	switch {
	case l.e.cfg.Storage == Memory || !l.namesBehind():
	case l.e.cfg.Durability == GroupCommit:
		l.e.group.Schedule(&l.item)
	default:
		l.syncNamesLater()
	}
}

// sealAgain has the segments sealed whose seal failed.
func (l *Log) sealAgain() {
	l.syncMu.Lock()
	start := len(l.seals) > 0 && !l.sealing
	l.sealing = l.sealing || start
	l.syncMu.Unlock()
	if start {
		l.e.Go(l.sealRolled)
	}
}

// forgetSeals says that a checkpoint has done what the seals were to do. Those that run already go on.
func (l *Log) forgetSeals() {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if !l.sealing {
		l.seals = nil
	}
}

func (l *Log) sealOne(s seal) error {
	if l.e.cfg.Storage == Memory {
		return nil
	}
	// The long part without the lock: a removal of the log waits for the rest only.
	if err := l.syncSegment(s.segment); err != nil {
		return err
	}
	l.pathMu.Lock()
	defer l.pathMu.Unlock()
	if l.Err() == ErrDeleted {
		return nil
	}
	if !s.segment.Sealed() { // by an attempt that failed later
		if err := s.segment.Seal(); err != nil {
			return err
		}
	}
	if s.snapshot != nil {
		if err := l.writeSnapshot(s.next, s.snapshot); err != nil {
			return err
		}
	}
	if err := l.st.epochs.save(l.e.cfg.FS, l.dir()); err != nil {
		return err
	}
	if err := l.e.cfg.FS.SyncDir(l.dir()); err != nil {
		return err
	}
	return l.e.journal.update(l.name(), func(e *journalEntry) {
		if e.dirty && e.recovery < s.next {
			e.recovery = s.next
		}
	})
}

func (l *Log) writeSnapshot(offset int64, b []byte) error {
	return vfs.WriteFile(l.e.cfg.FS, l.dir(), segment.FileName(offset, segment.SnapshotSuffix), b)
}

// makeDir makes the directory and partition.metadata. A directory that is there already belongs to a dead topic if the log
// is new.
func (l *Log) makeDir() error {
	fsys := l.e.cfg.FS
	if l.isNew {
		l.e.setAside(l.dir(), nil, 0)
	}
	if err := fsys.MkdirAll(l.dir()); err != nil {
		return err
	}
	if err := l.writeMetadata(); err != nil {
		return err
	}
	l.freshDir.Store(true)
	l.e.rootNew.Store(true)
	l.st.dirMade = true
	return nil
}

func (l *Log) writeMetadata() error {
	f, err := l.e.cfg.FS.Open(l.dir()+"/"+metadataName, vfs.Create)
	if err != nil {
		return err
	}
	defer f.Close()
	b := l.metadata()
	if _, err := f.WriteAt(b, 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(b)))
}

// metadata is the content of partition.metadata.
func (l *Log) metadata() []byte {
	return fmt.Appendf(nil, "version: 0\n"+topicIDKey+"%s", topicID(l.spec.TopicID))
}
