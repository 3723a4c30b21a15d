package state

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"kaas/engine/vfs"
)

// Errors of the store. CorruptError is the other one.
var (
	ErrClosed   = errors.New("state: store is closed")
	ErrPoisoned = errors.New("state: an earlier sync failed; nothing is accepted until the store is opened again")
	ErrTooLarge = errors.New("state: key or batch too large")
)

// CorruptError says where a file does not hold what it must.
type CorruptError struct {
	File   string
	Offset int64
	Err    error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("state: %s at offset %d: %v", e.File, e.Offset, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// Options of a store; zero values mean the defaults.
type Options struct {
	FileBytes       int64       // a log file is sealed above this; 64 MiB, at most 1 GiB
	CacheBytes      int64       // bound of the value cache, made at the first Get; 32 MiB, negative: none
	CheckpointBytes int64       // log written since the last checkpoint that makes a new one due; 32 MiB
	OnError         func(error) // background checkpoint or compaction failed; it is tried again later
}

func (o Options) withDefaults() Options {
	if o.FileBytes == 0 {
		o.FileBytes = 64 << 20
	}
	o.FileBytes = min(o.FileBytes, 1<<30)
	if o.CacheBytes == 0 {
		o.CacheBytes = 32 << 20
	}
	if o.CheckpointBytes == 0 {
		o.CheckpointBytes = 32 << 20
	}
	if o.OnError == nil {
		o.OnError = func(error) {}
	}
	return o
}

// Store is an open store. All methods may be called from any goroutine. Locks are taken in the order maintain, appendMu,
// mu, sync.mu.
type Store struct {
	fs   vfs.FS
	dir  string
	opts Options

	maintain sync.Mutex     // one checkpoint or compaction at a time; guards ckpt
	ckpt     uint32         // number of the newest checkpoint, 0: none
	ckptSize atomic.Int64   // its size in bytes
	busy     atomic.Bool    // background work is running or about to
	work     sync.WaitGroup // background work

	appendMu  sync.Mutex // order of the log; guards the fields below and the writing to active
	nextSeq   uint64
	sinceSync int64 // log bytes written since the last sync in the background began
	sinceCkpt int64 // log bytes written after the replay place of the newest checkpoint
	ckptDue   int64 // sinceCkpt at which the next checkpoint is due
	active    atomic.Pointer[logFile]

	mu     sync.RWMutex // guards the index, files, logFile.live and closed; never held over I/O
	index  *tree
	files  map[uint32]*logFile
	closed bool

	sync  syncer
	cache valueCache
}

// Apply appends the batch and makes it visible. With durable it returns after a sync that covers it and all before it;
// callers at the same time share syncs. A batch that was refused (error) is not visible, except when it was written and
// its sync failed: then it stays visible, whether it survives is open, and the store accepts nothing more. May block.
func (s *Store) Apply(b *Batch, durable bool) error {
	if b.err != nil {
		return b.err
	}
	var seq uint64
	if b.n > 0 {
		var err error
		if seq, err = s.append(b, nil); err != nil {
			return err
		}
	} else {
		s.appendMu.Lock()
		seq = s.nextSeq - 1
		s.appendMu.Unlock()
	}
	if !durable {
		return nil
	}
	return s.sync.wait(s, seq)
}

// append writes the batch as the next frame and puts it into the index. If fill is set it makes the batch, at a moment when
// nothing else changes the store; it may leave it empty.
func (s *Store) append(b *Batch, fill func()) (seq uint64, err error) {
	s.appendMu.Lock()
	defer s.appendMu.Unlock()
	if err := s.usable(); err != nil {
		return 0, err
	}
	if fill != nil {
		if fill(); b.n == 0 {
			return s.nextSeq - 1, nil
		}
		if b.err != nil {
			panic("BUG: " + b.err.Error())
		}
	}
	a := s.active.Load()
	if a.size+int64(len(b.buf)) > s.opts.FileBytes && a.size > logHeader {
		if a, err = s.roll(a); err != nil {
			return 0, err
		}
	}
	b.seal(s.nextSeq, s.sync.durable.Load())
	if _, err := a.f.WriteAt(b.buf, a.size); err != nil {
		// A part may have been written. If it cannot be taken back it is a torn tail, which the next frame overwrites only
		// in part: go no further.
		if terr := a.f.Truncate(a.size); terr != nil {
			s.sync.poison(terr)
		}
		return 0, err
	}
	s.mu.Lock()
	s.replay(a, b.buf, a.size)
	s.mu.Unlock()
	a.size += int64(len(b.buf))
	s.sinceCkpt += int64(len(b.buf))
	s.sinceSync += int64(len(b.buf))
	seq = s.nextSeq
	s.nextSeq++
	s.sync.written.Store(seq)
	if s.sinceSync >= behindBytes && s.syncBehind(seq) {
		s.sinceSync = 0
	}
	if s.sinceCkpt >= s.ckptDue {
		s.startMaintenance()
	}
	return seq, nil
}

func (s *Store) usable() error {
	s.mu.RLock()
	closed := s.closed
	s.mu.RUnlock()
	if closed {
		return ErrClosed
	}
	return s.sync.failed()
}

// replay puts the operations of a frame at off of file l into the index; false if they make no sense. Called with mu.
func (s *Store) replay(l *logFile, frame []byte, off int64) bool {
	var ops [warmMax]op
	for at := frameHeader; at < len(frame); {
		n := 0
		for ; n < warmMax && at < len(frame); n++ {
			o, ok := nextOp(frame, at)
			if !ok {
				return false
			}
			at += o.size
			ops[n] = o
		}
		s.index.warm(ops[:n])
		s.enter(l, ops[:n], off)
	}
	return true
}

// enter puts operations of a frame at off of file l into the index. Called with mu.
func (s *Store) enter(l *logFile, ops []op, off int64) {
	for i := range ops {
		o := &ops[i]
		var old place
		var had bool
		if o.kind == opPut {
			old, had = s.index.put(o.key, place{l.id, uint32(off) + uint32(o.off), uint32(len(o.value))})
			l.live += int64(o.size)
		} else {
			old, had = s.index.remove(o.key)
		}
		if had {
			s.files[old.file].live -= putSize(len(o.key), int(old.size))
		}
	}
}

// roll seals the active file, synced, and opens the next. Called with appendMu.
func (s *Store) roll(a *logFile) (*logFile, error) {
	if a.id == math.MaxUint32 {
		return nil, fmt.Errorf("state: %s is the last file that can be numbered", a.name)
	}
	if err := s.sync.file(s, a); err != nil {
		return nil, err
	}
	raise(&s.sync.durable, s.nextSeq-1) // what the new file's header and frames say of this one
	next, err := createLog(s.fs, s.dir, a.id+1, s.nextSeq)
	if err != nil {
		return nil, err
	}
	s.sync.made.Add(1)
	s.mu.Lock()
	s.files[next.id] = next
	s.mu.Unlock()
	s.active.Store(next)
	if s.wasteful() {
		s.startMaintenance()
	}
	return next, nil
}

// Get returns the value of key; ok is false if there is none. The value must not be modified; it may be kept. May block.
func (s *Store) Get(key []byte) (value []byte, ok bool, err error) {
	s.mu.RLock()
	p, ok := s.index.get(key)
	closed := s.closed
	s.mu.RUnlock()
	if closed {
		return nil, false, ErrClosed
	}
	if !ok {
		return nil, false, nil
	}
	if v, ok := s.cache.get(p); ok {
		return v, true, nil
	}
	s.mu.RLock()
	p, ok = s.index.get(key) // again: compaction may have moved it and closed the file
	var l *logFile
	if ok = ok && !s.closed; ok {
		l = s.files[p.file]
		l.acquire()
	}
	s.mu.RUnlock()
	if !ok {
		return nil, false, s.closedErr()
	}
	defer l.release()
	v, err := l.readValue(key, p)
	if err != nil {
		return nil, false, err
	}
	s.cache.put(p, v, s.opts.CacheBytes)
	return v, true, nil
}

func (s *Store) closedErr() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return ErrClosed
	}
	return nil
}

// Stats are figures of a store.
type Stats struct {
	Keys       int
	Files      int
	LiveBytes  int64 // of operations that the index names
	TotalBytes int64 // of all log files
	Checkpoint int64 // size in bytes of the newest checkpoint, 0: none
}

// Stats returns the figures of now.
func (s *Store) Stats() Stats {
	s.appendMu.Lock()
	defer s.appendMu.Unlock()
	s.mu.RLock()
	defer s.mu.RUnlock()
	st := Stats{Keys: s.index.n, Files: len(s.files), Checkpoint: s.ckptSize.Load()}
	for _, l := range s.files {
		st.LiveBytes += l.live
		st.TotalBytes += l.size
	}
	return st
}

// Close waits for background work, syncs, writes a checkpoint so that the next Open replays nothing, and closes the files.
// Calls of other methods return ErrClosed from now on.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	s.closed = true
	s.mu.Unlock()
	s.work.Wait()
	s.maintain.Lock()
	defer s.maintain.Unlock()
	s.appendMu.Lock()
	fresh := s.sinceCkpt > 0
	s.appendMu.Unlock()
	err := s.sync.wait(s, s.sync.written.Load())
	if err == nil && fresh {
		err = s.checkpoint()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.files {
		if cerr := l.release(); err == nil {
			err = cerr
		}
	}
	s.files, s.index = nil, &tree{}
	s.cache.close()
	return err
}
