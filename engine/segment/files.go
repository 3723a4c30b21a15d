package segment

import (
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"

	"kaas/engine/vfs"
)

// Files are what all segments of an engine share: the file system, the bounded set of open log files, the budget of maps,
// and read buffers.
type Files struct {
	FS      vfs.FS
	maxOpen int
	maxMaps int64
	maps    atomic.Int64
	// memory: nothing outlives the process, so indexes stay on the heap.
	memory bool
	// Crowded, if set, is called when the bound is exceeded because too many descriptors have unsynced writes: whoever can is to sync them.
	// It must not block.
	Crowded func()

	mu   sync.Mutex // guards open and hand
	open []*Segment
	hand int

	count atomic.Int64 // of open
}

// NewFiles bounds open log files to maxOpen and maps to maxMaps. With memory set, index files are never written.
func NewFiles(fs vfs.FS, maxOpen, maxMaps int, memory bool) *Files {
	return &Files{FS: fs, maxOpen: maxOpen, maxMaps: int64(maxMaps), memory: memory}
}

// OpenCount is the number of log files held open by the cache.
func (f *Files) OpenCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.open)
}

// Maps is the number of index files that are mapped.
func (f *Files) Maps() int64 { return f.maps.Load() }

// FileRef is a counted reference to an open log file. The file is closed when the cache and all readers have let go, so a
// slice that is being sent stays readable when its segment is deleted or its descriptor evicted meanwhile.
type FileRef struct {
	file  vfs.File
	refs  atomic.Int32
	opens *atomic.Int32 // of the segment
}

func (r *FileRef) acquire() bool {
	for {
		n := r.refs.Load()
		if n == 0 {
			return false
		}
		if r.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release gives the reference back. It must be called once for each one received.
func (r *FileRef) Release() {
	if n := r.refs.Add(-1); n == 0 {
		r.file.Close() // nothing unsynced was written through it: see Files.admit
		r.opens.Add(-1)
	} else if n < 0 {
		panic("BUG: file reference released twice")
	}
}

// File is the open file.
func (r *FileRef) File() vfs.File { return r.file }

// Acquire returns a reference to the segment's log file, opening it if needed.
func (s *Segment) Acquire() (*FileRef, error) {
	if r := s.ref.Load(); r != nil && r.acquire() {
		if !s.used.Load() {
			s.used.Store(true)
		}
		return r, nil
	}
	s.openMu.Lock()
	defer s.openMu.Unlock()
	if r := s.ref.Load(); r != nil && r.acquire() {
		return r, nil
	}
	if r := s.pinned.Load(); r != nil && r.acquire() {
		return r, nil
	}
	if s.retired.Load() {
		return nil, errRetired
	}
	file, err := s.files.FS.Open(s.path(LogSuffix), vfs.ReadWrite)
	if err != nil {
		return nil, err
	}
	return s.hold(file), nil
}

var errRetired = fmt.Errorf("segment: removed: %w", fs.ErrNotExist)

// Opened reports that the segment's log file is held open: to write to it needs no further descriptor.
func (s *Segment) Opened() bool { return s.ref.Load() != nil }

// hold makes file the segment's open file and returns a reference beside the cache's own. openMu is held.
func (s *Segment) hold(file vfs.File) *FileRef {
	r := &FileRef{file: file, opens: &s.opens}
	s.opens.Add(1)
	r.refs.Store(2)
	s.ref.Store(r)
	s.used.Store(true)
	s.files.admit(s)
	return r
}

// admit adds an opened segment to the cache and closes another if there are too many. Descriptors with unsynced writes
// are passed over: closing one would lose the error of a failed write-back. If all are such, Crowded is told and the bound is exceeded:
// whoever opens may be an event loop, which must not wait for a sync. See Full.
func (f *Files) admit(s *Segment) {
	f.mu.Lock()
	var victims [4]*Segment // more than one only after the bound was exceeded
	n := 0
	for tries := 2 * len(f.open); tries > 0 && len(f.open) >= f.maxOpen && n < len(victims); tries-- {
		if f.hand >= len(f.open) {
			f.hand = 0
		}
		c := f.open[f.hand]
		if c.Dirty() || c.used.Swap(false) {
			f.hand++
			continue
		}
		victims[n] = c
		n++
		f.removeAt(f.hand)
	}
	crowded := n == 0 && len(f.open) >= f.maxOpen
	f.add(s)
	f.mu.Unlock()
	if crowded && f.Crowded != nil {
		f.Crowded()
	}
	for _, v := range victims[:n] {
		if v.Dirty() { // since a moment ago
			f.mu.Lock()
			f.add(v)
			f.mu.Unlock()
			continue
		}
		v.drop()
	}
}

// Full reports that the bound is exceeded by more than a quarter: there are that many descriptors with unsynced writes. Whoever may block
// calls MakeRoom before it opens one more, and nobody else opens any.
func (f *Files) Full() bool { return f.count.Load() >= int64(f.maxOpen+f.maxOpen/4) }

// MakeRoom syncs and closes files until the cache is no longer Full. Its errors are those of the segments, which remember them.
func (f *Files) MakeRoom() {
	for f.Full() {
		f.mu.Lock()
		if len(f.open) == 0 {
			f.mu.Unlock()
			return
		}
		f.hand %= len(f.open)
		v := f.open[f.hand]
		f.removeAt(f.hand)
		f.mu.Unlock()
		if r := v.ref.Load(); v.Dirty() && r != nil && r.acquire() {
			_ = v.syncFile(r.file)
			r.Release()
		}
		v.drop()
	}
}

// add puts a segment into the list. mu is held.
func (f *Files) add(s *Segment) {
	if s.slot >= 0 {
		return
	}
	s.slot = len(f.open)
	f.open = append(f.open, s)
	f.count.Store(int64(len(f.open)))
}

func (f *Files) removeAt(i int) {
	last := len(f.open) - 1
	f.open[i].slot = -1
	if i != last {
		f.open[i] = f.open[last]
		f.open[i].slot = i
	}
	f.open[last] = nil
	f.open = f.open[:last]
	f.count.Store(int64(last))
}

// drop lets go of the cache's reference of a segment that is no longer in the list.
func (s *Segment) drop() {
	if r := s.ref.Swap(nil); r != nil {
		r.Release()
	}
	s.index.unmap()
	s.times.unmap()
}

// Close gives up the open file and the maps. Readers that hold references go on. The segment may be used again.
func (s *Segment) Close() {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	f := s.files
	f.mu.Lock()
	if s.slot >= 0 {
		f.removeAt(s.slot)
	}
	f.mu.Unlock()
	s.drop()
}

// window is a pooled read buffer for header walks.
type window struct{ b [16 << 10]byte }

var windows = sync.Pool{New: func() any { return new(window) }}
