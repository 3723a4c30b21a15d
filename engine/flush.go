package engine

import (
	"math"
	"slices"
	"sync"
	"time"
)

// flushTick is how much later than flush.ms a commit may begin: one timer serves all logs, and this bounds how often it fires.
const flushTick = 10 * time.Millisecond

// flushScan is how long the timer sleeps at most while logs wait, so that those that are gone are let go of.
const flushScan = time.Minute

// synced tells whether the log's high watermark follows what is synced: under GroupCommit, and under PageCache with
// flush.messages=1. Memory has nothing to sync to.
func (l *Log) synced(cfg *LogConfig) bool {
	return l.e.cfg.Durability == GroupCommit || cfg.FlushMessages == 1 && l.e.cfg.Storage == Disk
}

// FlushesEach reports flush.messages=1: a batch is synced before any producer is told of it, whatever its acks.
func (l *Log) FlushesEach() bool {
	return l.cfg.Load().FlushMessages == 1 && l.e.cfg.Storage == Disk
}

// flushDue tells whether an append that ended at end is to be followed by a commit. A commit that was asked for and has not ended
// counts: it covers what was there. mu is held.
func (l *Log) flushDue(end int64) bool {
	if l.st.synced {
		return true
	}
	if l.e.cfg.Storage == Memory || end-max(l.item.Durable(), l.st.asked) < l.cfg.Load().FlushMessages {
		return false
	}
	l.st.asked = end
	return true
}

// flusher begins the commits that flush.ms asks for. It is idle under GroupCommit, where each append is followed by one.
type flusher struct {
	mu    sync.Mutex // guards what follows; held for moments. Taken after a log's mu
	logs  []unflushed
	timer *time.Timer
	next  time.Time // when the timer fires; zero: it is stopped
}

// unflushed is a log with appends that no commit was asked for, the first of them at since or later.
type unflushed struct {
	log   *Log
	since time.Time
}

// flushLater has the log committed flush.ms after the first of its unsynced appends. It allocates nothing once the list has grown.
func (l *Log) flushLater() {
	ms := l.cfg.Load().FlushMs
	if ms == math.MaxInt64 || l.e.cfg.Durability == GroupCommit || l.e.cfg.Storage == Memory || l.listed.Load() || !l.listed.CompareAndSwap(false, true) {
		return
	}
	f := &l.e.flusher
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.logs = append(f.logs, unflushed{l, now})
	f.arm(now, now.Add(flushWait(ms)), l.e)
}

// arm has the timer fire at due, or when it would anyway. mu is held.
func (f *flusher) arm(now, due time.Time, e *Engine) {
	if !f.next.IsZero() && !due.Before(f.next) {
		return
	}
	f.next = due
	if f.timer == nil {
		f.timer = time.AfterFunc(due.Sub(now), e.flushWaiting)
		return
	}
	f.timer.Reset(due.Sub(now))
}

// flushWait is how long the timer sleeps for a log with that flush.ms.
func flushWait(ms int64) time.Duration {
	return max(flushTick, time.Duration(min(ms, flushScan.Milliseconds()))*time.Millisecond)
}

// flushWaiting schedules the logs whose time has come, and sets the timer for the rest.
func (e *Engine) flushWaiting() {
	if e.closed.Load() {
		return // a close syncs all
	}
	f := &e.flusher
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = time.Time{}
	f.logs = slices.DeleteFunc(f.logs, func(u unflushed) bool {
		l, ms := u.log, u.log.cfg.Load().FlushMs
		waited := now.Sub(u.since).Milliseconds()
		if waited < ms && ms != math.MaxInt64 && l.Err() == nil {
			f.arm(now, now.Add(flushWait(ms-waited)), e)
			return false
		}
		l.listed.Store(false) // before the commit: an append that it may miss lists the log again
		if waited >= ms && l.Err() == nil {
			e.group.Schedule(&l.item)
		}
		return true
	})
}

// flushAnew follows a change of flush.ms: of a log with unsynced appends, and of one that waits for a time that is no longer its own.
func (l *Log) flushAnew() {
	if !l.Loaded() || l.pub.read().end.offset <= l.item.Durable() {
		return
	}
	l.flushLater()
	f := &l.e.flusher
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.listed.Load() {
		f.arm(now, now.Add(flushTick), l.e)
	}
}
