package segment

import (
	"errors"
	"math"

	"kaas/engine/vfs"
)

// ErrCold says that an answer needs the disk.
var ErrCold = errors.New("segment: not in memory")

// LocateCached is Locate for who must not wait for the disk: ErrCold when the file is not open, or its index not mapped, or the batch headers
// not in the page cache, and when the index does not fit. Locate then knows more.
func (s *Segment) LocateCached(offset int64) (Position, error) {
	if p, ok := s.recent.find(offset); ok {
		return p, nil
	}
	if offset < s.next.Load() && (!s.Opened() || !s.index.ready(offset-s.base)) {
		return Position{}, ErrCold
	}
	p, err := s.locate(offset, true)
	if err != nil && err != ErrEnd {
		err = ErrCold
	}
	return p, err
}

// ready tells whether floor of key opens no file and maps none. A map that is there was walked by somebody who could wait.
func (x *sparse) ready(key int64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.tail) > 0 && x.key(x.tail) <= key || len(x.mapped()) >= x.disk
}

// readAt reads what the walk is to look at.
func (w *walk) readAt(p []byte, off int64) (int, error) {
	if w.cached {
		if f, ok := w.r.file.(vfs.CachedReader); ok {
			return f.ReadCachedAt(p, off)
		}
	}
	return w.r.file.ReadAt(p, off)
}

// Lag is how far before the end of the data pos lies, in bytes: MaxInt64 for what was not appended by this process.
func (s *Segment) Lag(pos int64) int64 {
	if s.modified.Load() == 0 || pos < s.own.Load() {
		return math.MaxInt64
	}
	return s.size.Load() - pos
}

// AppendedMs is the clock at the last append of this process, in milliseconds; 0: there was none.
func (s *Segment) AppendedMs() int64 { return s.modified.Load() }
