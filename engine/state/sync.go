package state

import (
	"fmt"
	"path"
	"sync"
	"sync/atomic"
)

// syncer is group commit: whoever finds no sync running runs one for all that was written by then; the others wait for it.
// The next starts as soon as it ends, so that the size of a group follows the load. No timer.
type syncer struct {
	written atomic.Uint64         // last sequence in the files
	durable atomic.Uint64         // last sequence known to be synced
	made    atomic.Uint64         // names made in the directory
	named   atomic.Uint64         // of these, how many are known to be durable
	bad     atomic.Pointer[error] // the first failed sync, as ErrPoisoned

	mu   sync.Mutex // guards busy; held only to decide who syncs
	done *sync.Cond // a sync has ended
	busy bool

	// one is held over each sync, of a group, a roll, a checkpoint: the kernel reports a failure to one of those that sync at the time.
	one sync.Mutex

	behind atomic.Bool // syncBehind runs
}

// behindBytes is how much is written without a sync before one begins in the background. Without it a file is synced as a whole when it is full,
// while all writers wait.
const behindBytes = 8 << 20

// syncBehind has everything up to seq synced in the background, unless that is going on already: then false. A failure poisons the store,
// which tells the next writer. Called with appendMu.
func (s *Store) syncBehind(seq uint64) bool {
	if !s.sync.behind.CompareAndSwap(false, true) {
		return false
	}
	return s.inBackground(func() {
		defer s.sync.behind.Store(false)
		_ = s.sync.wait(s, seq)
	})
}

func (y *syncer) failed() error {
	if e := y.bad.Load(); e != nil {
		return *e
	}
	return nil
}

func (y *syncer) poison(cause error) error {
	err := fmt.Errorf("%w: %w", ErrPoisoned, cause)
	y.bad.CompareAndSwap(nil, &err)
	return y.failed()
}

// raise sets v to at least n.
func raise(v *atomic.Uint64, n uint64) {
	for old := v.Load(); old < n && !v.CompareAndSwap(old, n); old = v.Load() {
	}
}

// wait returns when seq is durable, or the error that says it may never be.
func (y *syncer) wait(s *Store, seq uint64) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	for {
		if y.durable.Load() >= seq {
			return nil
		}
		if err := y.failed(); err != nil {
			return err
		}
		if y.busy {
			y.done.Wait()
			continue
		}
		y.busy = true
		y.mu.Unlock()
		// First the sequence, then the file: if the file is a newer one, rolling has synced the older.
		target := y.written.Load()
		err := y.file(s, s.active.Load())
		if err == nil {
			raise(&y.durable, target)
		}
		y.mu.Lock()
		y.busy = false
		y.done.Broadcast()
	}
}

// file syncs one log file, and the directory if a name in it is new. A failure poisons the store.
func (y *syncer) file(s *Store, l *logFile) error {
	if !l.acquire() {
		return nil // sealed, so synced, and since removed
	}
	defer l.release()
	y.one.Lock()
	defer y.one.Unlock()
	if err := y.failed(); err != nil { // while this one waited
		return err
	}
	if err := l.f.Sync(); err != nil {
		return y.poison(err)
	}
	if made := y.made.Load(); y.named.Load() < made {
		for _, dir := range []string{s.dir, path.Dir(s.dir)} {
			if err := s.fs.SyncDir(dir); err != nil {
				return y.poison(err)
			}
		}
		raise(&y.named, made)
	}
	return nil
}
