package engine

import (
	"context"
	"sync"
	"sync/atomic"

	"kaas/engine/vfs"
)

// Recover loads those of logs that may be dirty: scans what their recovery point does not cover, cuts torn tails, syncs what
// is kept. It runs before clients are let in; the other logs are loaded when first used. progress, if set, is told bytes scanned and
// to scan, one call at a time, every MiB or so, and after each log. A log that cannot be recovered is offline, or
// without room left to be loaded at its next use; that is not an error of Recover.
func (e *Engine) Recover(ctx context.Context, logs []*Log, progress func(done, total int64)) error {
	r := &recovery{e: e, ctx: ctx, progress: progress}
	var dirty []*Log
	for _, l := range logs {
		if e.journal.dirty(l.name()) {
			dirty = append(dirty, l)
			r.total += l.unscanned()
		}
	}
	if e.volume != nil && len(dirty) >= e.cfg.volumeMin {
		r.together(dirty)
	} else {
		each(dirty, e.cfg.RecoveryThreads, r.alone)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := e.journal.compact(); err != nil && !vfs.NoRoom(err) { // without room it is only longer than it need be
		return err
	}
	if r.failed.Load() {
		return nil // the commit journal stays for the logs that may need it
	}
	return e.dropOld()
}

// recovery is one run of Recover.
type recovery struct {
	e      *Engine
	ctx    context.Context
	failed atomic.Bool // a log could not be recovered

	mu          sync.Mutex // guards done, and is held over progress
	done, total int64      // bytes
	progress    func(done, total int64)
}

func (r *recovery) tell(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done += n; r.progress != nil {
		r.progress(r.done, r.total)
	}
}

// told is what to tell the progress of one log, and what of it is left at the end.
func (r *recovery) told(l *Log) (tell func(n int64), rest func()) {
	left := l.unscanned()
	tell = func(n int64) {
		n = min(n, left) // more was written since
		left -= n
		r.tell(n)
	}
	return tell, func() { r.tell(left) }
}

func (r *recovery) lost(l *Log, err error) {
	r.failed.Store(true)
	r.e.cfg.Logger.Error("log could not be recovered", "log", l.name(), "error", err)
}

// alone recovers a log with its own syncs.
func (r *recovery) alone(l *Log) {
	if r.ctx.Err() != nil {
		return
	}
	tell, rest := r.told(l)
	defer rest()
	if err := l.load(tell); err != nil {
		r.lost(l, err)
	} else if err := l.checkpoint(); err == nil {
		l.forgetSeals()
	} else if !vfs.NoRoom(err) {
		l.fail(err) // without room for its files it only stays dirty
	}
}

// together recovers many logs with a few syncs of the whole file system: one makes durable what the scans of some of them have kept, and the
// files that a clean log has; then these logs can be read, and small files take the place of old ones; the next sync makes that durable too,
// and the lines in the journal say clean. Alone a log takes eight syncs: 10,000 of them took a minute.
func (r *recovery) together(logs []*Log) {
	e := r.e
	step := max(1, e.cfg.MaxOpenFiles/2) // their descriptors are held until they are synced
	var last []*loader
	for len(logs) > 0 || len(last) > 0 {
		some := logs[:min(step, len(logs))]
		logs = logs[len(some):]
		loads := r.scan(some)
		synced := make([]*Log, len(loads))
		for i, ld := range loads {
			synced[i] = ld.l
		}
		err := e.syncVolume(synced)
		for i := 0; err != nil && i < len(synced); i++ {
			e.group.Poison(&synced[i].item, err) // also those without data
		}
		each(last, e.cfg.RecoveryThreads, func(ld *loader) { ld.clean(err) })
		each(loads, e.cfg.RecoveryThreads, r.show)
		last = loads
		if r.ctx.Err() != nil {
			logs = nil
		}
	}
}

// scan loads logs as far as it goes without syncs. The mu of each whose loader it returns is held.
func (r *recovery) scan(logs []*Log) []*loader {
	var mu sync.Mutex
	var loads []*loader
	each(logs, r.e.cfg.RecoveryThreads, func(l *Log) {
		if r.ctx.Err() != nil {
			return
		}
		tell, rest := r.told(l)
		defer rest()
		l.mu.Lock()
		if l.st != nil { // somebody was faster
			l.mu.Unlock()
			return
		}
		ld := l.loader(tell)
		ld.later = true
		if err := l.find(ld); err != nil {
			l.mu.Unlock()
			r.lost(l, err)
			return
		}
		if ld.st.dirMade {
			ld.unsaved = l.saveFiles(true, ld.st.epochs.stage)
		}
		mu.Lock()
		loads = append(loads, ld)
		mu.Unlock()
	})
	return loads
}

// show publishes a log that scan has loaded and a sync has made durable, and gives up its mu. A log that went offline meanwhile, as by that
// sync, was not loaded.
func (r *recovery) show(ld *loader) {
	l := ld.l
	defer l.mu.Unlock()
	if err := l.Err(); err != nil {
		for _, s := range ld.segs {
			s.Close()
		}
		l.st = nil
		l.segs.Store(nil)
		if err != ErrDeleted {
			r.lost(l, err)
		}
		return
	}
	l.publish(ld)
	if err := ld.unsaved; err != nil {
		if !vfs.NoRoom(err) {
			l.fail(err) // without room for its files it only stays dirty
		}
		return
	}
	l.pathMu.Lock()
	defer l.pathMu.Unlock()
	ld.unsaved = ld.st.epochs.place(ld.fs, ld.dir)
	ld.shown = ld.st.end
}

// clean says in the journal that a log is clean: show has renamed the last of its files, and synced tells whether that is durable. A log that
// was appended to since stays dirty.
func (ld *loader) clean(synced error) {
	l := ld.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Err() != nil || !l.Loaded() {
		return
	}
	if synced != nil {
		l.fail(synced)
		return
	}
	err := ld.unsaved
	if err == nil && l.st.end == ld.shown && l.st.marked {
		l.pathMu.Lock()
		err = l.dropSnapshot()
		l.pathMu.Unlock()
		if err == nil {
			err = l.noteClean()
		}
		if err == nil {
			l.forgetSeals()
		}
	}
	if err != nil && !vfs.NoRoom(err) {
		l.fail(err)
	}
}
