package engine

import "sync"

const (
	// stagedMax is how many bytes of a log are kept for its next commit round. Of more a read of the page cache costs little by the byte.
	stagedMax = 8 << 10
	// stagedLogs is how many logs may have such bytes at the same time.
	stagedLogs = 1024
)

// staged is a copy of the last bytes written to a log that are not durable yet, for the commit journal: reading them back from each of 64 logs
// was a twelfth of the broker's processor time. It has what lies at [at, at+n) of a segment, which need not be all that a round wants: then
// the file is read.
type staged struct {
	seg, at int64
	n       int
	buf     [stagedMax]byte
}

// stagedPool are used again by other logs.
var stagedPool = sync.Pool{New: func() any { return new(staged) }}

// stage keeps a run that was written to a segment at a position, before its end is published.
func (l *Log) stage(r *run, seg, at int64) {
	s := l.e.shared
	if s == nil || !s.running.Load() || s.j.Broken() {
		return
	}
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if st := l.staged; st != nil && (st.seg != seg || st.at+int64(st.n) != at || st.n+int(r.bytes) > stagedMax) {
		st.seg, st.at, st.n = seg, at, 0
	}
	if r.bytes > stagedMax || l.staged == nil && (l.failed.Load() != nil || !s.stagesMore()) {
		return // what is kept does not reach this run, so it is of no use to a round
	}
	if l.staged == nil {
		l.staged = stagedPool.Get().(*staged)
		l.staged.seg, l.staged.at, l.staged.n = seg, at, 0
	}
	for _, b := range r.bufs {
		l.staged.n += copy(l.staged.buf[l.staged.n:], b)
	}
}

// stagesMore counts one more log with staged bytes, unless that is too many.
func (s *shared) stagesMore() bool {
	if s.staging.Add(1) <= stagedLogs {
		return true
	}
	s.staging.Add(-1)
	return false
}

// fromStaged copies the bytes of a segment at a position, if all of them are staged.
func (l *Log) fromStaged(b []byte, seg, at int64) bool {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	st := l.staged
	if st == nil || st.seg != seg || at < st.at || at+int64(len(b)) > st.at+int64(st.n) {
		return false
	}
	copy(b, st.buf[at-st.at:])
	return true
}

// unstage drops what is durable: all up to end. syncMu is held.
func (l *Log) unstage(end place) {
	st := l.staged
	if st == nil {
		return
	}
	if done := end.pos - st.at; st.seg == end.seg && done < int64(st.n) {
		if done > 0 {
			st.n = copy(st.buf[:], st.buf[done:st.n])
			st.at = end.pos
		}
		return
	}
	l.dropStaged()
}

// dropStaged drops all. syncMu is held.
func (l *Log) dropStaged() {
	if l.staged != nil {
		stagedPool.Put(l.staged)
		l.staged = nil
		l.e.shared.staging.Add(-1)
	}
}
