package segment

import (
	"sync"
	"sync/atomic"
)

const (
	zeroStep  = 2 << 20  // zeros written ahead at a time
	zeroLow   = 1 << 20  // less than this ahead: time for the next step
	zeroChunk = 64 << 10 // written at a time: an append may wait that long
)

// zeroing writes zeros ahead of the data in the background: fdatasync of blocks that are written already needs no journal
// commit of the file system, and costs two thirds or less.
type zeroing struct {
	done    atomic.Int64 // below this the file is zeros or data, synced; appends below it need no lock
	running atomic.Bool
	gen     int32 // counts resets; guarded by mu

	mu       sync.Mutex // guards gen and reserved, and is held while a chunk is written
	reserved int64      // end of what appends have taken; zeros only go behind it
}

// reserve keeps the filler away from [.., end): called before a write that ends there.
func (z *zeroing) reserve(end int64) {
	if end <= z.done.Load() || !z.running.Load() && z.done.Load() == 0 {
		return
	}
	z.mu.Lock()
	z.reserved = max(z.reserved, end)
	z.mu.Unlock()
}

// reset starts again from at: the file was cut there.
func (z *zeroing) reset(at int64) {
	z.mu.Lock()
	z.gen++
	z.reserved = at
	z.done.Store(0)
	z.mu.Unlock()
}

// stop ends a fill that is running; when it returns no more zeros are written.
func (z *zeroing) stop() {
	z.mu.Lock()
	z.gen++
	z.mu.Unlock()
}

// WantsZeros claims the next fill when little is left of the last one. The caller then has ZeroAhead run. Writer.
func (s *Segment) WantsZeros() bool {
	if s.files.memory || s.size.Load()+zeroLow < s.zero.done.Load() || s.size.Load()+zeroChunk > s.allocated {
		return false
	}
	if !s.zero.running.CompareAndSwap(false, true) {
		return false
	}
	s.zero.mu.Lock()
	s.zero.reserved = max(s.zero.reserved, s.size.Load())
	s.zero.mu.Unlock()
	return true
}

// ZeroAhead writes the next step of zeros and syncs them. It runs beside appends. An error is that of the sync, and means that
// the file is in doubt; zeros that could not be written are only missing.
func (s *Segment) ZeroAhead() error {
	z := &s.zero
	defer z.running.Store(false)
	r, err := s.Acquire()
	if err != nil {
		return nil
	}
	defer r.Release()
	z.mu.Lock()
	gen := z.gen // before the size: a cut that comes after it ends this
	at := max(z.done.Load(), z.reserved)
	z.mu.Unlock()
	size, err := r.file.Size()
	if err != nil {
		return nil
	}
	to := min(at+zeroStep, size)
	for at < to {
		z.mu.Lock()
		if z.gen != gen {
			z.mu.Unlock()
			return nil
		}
		at = max(at, z.reserved)
		n := min(to-at, zeroChunk)
		if n > 0 {
			err = r.file.ZeroFill(at, n)
			at += n
		}
		z.mu.Unlock()
		if err != nil {
			return nil
		}
	}
	s.writes.Add(1)
	if err := s.syncFile(r.file); err != nil {
		return err
	}
	z.mu.Lock()
	if z.gen == gen {
		z.done.Store(at)
	}
	z.mu.Unlock()
	return nil
}

// SkipZeros gives a claim of WantsZeros back without a fill.
func (s *Segment) SkipZeros() { s.zero.running.Store(false) }
