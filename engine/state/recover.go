package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"kaas/engine/vfs"
)

// Open opens the store in dir, which is made if it is missing. It recovers what a crash left (see FORMAT) and returns a
// CorruptError for damage. One process at a time: locking is the caller's. May block.
func Open(fs vfs.FS, dir string, opts Options) (*Store, error) {
	s := &Store{fs: fs, dir: path.Clean(dir), opts: opts.withDefaults(), files: map[uint32]*logFile{}, index: &tree{}, nextSeq: 1}
	s.ckptDue = s.opts.CheckpointBytes
	s.sync.done = sync.NewCond(&s.sync.mu)
	if err := s.recover(); err != nil {
		for _, l := range s.files {
			l.release()
		}
		return nil, err
	}
	return s, nil
}

// recovery is what the directory and the checkpoint say.
type recovery struct {
	logs, ckpts []uint32 // numbers, ascending
	replayFile  uint32
	replayOff   int64
	seq         uint64 // of the next frame to read
	syncedFile  uint32 // all before this place was durable
	syncedOff   int64
	stale       []string // names to be removed

	// Of the file that is replayed: where its frames begin that were read, the sequence of the first of them, and up to which sequence
	// all are known to have been synced by what they say.
	offs    []int64
	first   uint64
	durable uint64
}

func (s *Store) recover() error {
	if err := s.fs.MkdirAll(s.dir); err != nil {
		return err
	}
	r, err := s.survey()
	if err != nil {
		return err
	}
	if n := len(r.ckpts); n > 0 {
		if err := s.loadCheckpoint(r.ckpts[n-1], r); err != nil {
			return err
		}
	}
	if err := s.openLogs(r); err != nil {
		return err
	}
	if err := s.replayLogs(r); err != nil {
		return err
	}
	for _, id := range r.ckpts[:max(len(r.ckpts)-1, 0)] {
		r.stale = append(r.stale, ckptName(id))
	}
	if err := s.tidy(r.stale); err != nil {
		return err
	}
	s.nextSeq = r.seq
	s.sync.written.Store(r.seq - 1)
	s.sync.durable.Store(r.seq - 1)
	return nil
}

// tidy removes files that the newest checkpoint has made superfluous. Its own name comes first: after a kill it may not be
// durable yet.
func (s *Store) tidy(names []string) error {
	if len(names) == 0 {
		return nil
	}
	if err := s.fs.SyncDir(s.dir); err != nil {
		return err
	}
	for _, name := range names {
		if err := s.fs.Remove(path.Join(s.dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// survey lists the directory.
func (s *Store) survey() (*recovery, error) {
	r := &recovery{replayFile: 1, replayOff: logHeader, seq: 1}
	list, err := s.fs.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		if strings.HasSuffix(e.Name, ".tmp") {
			r.stale = append(r.stale, e.Name)
		}
		switch id, ext, ok := parseName(e.Name); {
		case ok && ext == ".log":
			r.logs = append(r.logs, id)
		case ok && ext == ".ckp":
			r.ckpts = append(r.ckpts, id)
		}
	}
	slices.Sort(r.logs)
	slices.Sort(r.ckpts)
	return r, nil
}

var (
	errMissing  = errors.New("file is missing")
	errUnsynced = errors.New("a frame is lost that was durable")
)

// openLogs opens the files that the index or the replay needs.
func (s *Store) openLogs(r *recovery) error {
	used := map[uint32]int64{} // live bytes by file, from the checkpoint
	s.index.ascend(nil, func(key []byte, p place) bool {
		used[p.file] += putSize(len(key), int(p.size))
		return true
	})
	next := r.replayFile
	for _, id := range r.logs {
		live, ok := used[id]
		name := path.Join(s.dir, logName(id))
		if id < r.replayFile && !ok {
			r.stale = append(r.stale, logName(id))
			continue
		}
		if id >= r.replayFile {
			if id != next {
				return &CorruptError{File: path.Join(s.dir, logName(next)), Err: errMissing}
			}
			next++
		}
		f, err := s.fs.Open(name, vfs.ReadWrite)
		if err != nil {
			return err
		}
		l := &logFile{id: id, name: name, f: f, live: live}
		l.refs.Store(1)
		s.files[id] = l
		if l.size, err = f.Size(); err != nil {
			return err
		}
		delete(used, id)
	}
	for id := range used {
		return &CorruptError{File: path.Join(s.dir, logName(id)), Err: errMissing}
	}
	if next == r.replayFile && len(r.ckpts) > 0 {
		return &CorruptError{File: path.Join(s.dir, logName(next)), Err: errMissing}
	}
	return nil
}

// replayLogs brings the index up to date, deals with the torn tail, and leaves the last file active and durable.
func (s *Store) replayLogs(r *recovery) error {
	id := r.replayFile
	for ; s.files[id] != nil; id++ {
		l := s.files[id]
		whole, err := s.replayFile(l, r)
		if err != nil {
			return err
		}
		if !whole {
			return s.cutTail(l, r)
		}
	}
	if id == r.replayFile {
		return s.newLog(id)
	}
	last := s.files[id-1]
	s.active.Store(last)
	if r.syncedFile == last.id && r.syncedOff == last.size {
		return nil // closed cleanly
	}
	return s.settle(last, r.doubtful(last))
}

// doubtful is where the part of the file just replayed begins that nothing says was synced.
func (r *recovery) doubtful(l *logFile) int64 {
	var from int64 // the header too, if no frame is known to be synced
	switch n := len(r.offs); {
	case n > 0 && r.durable+1 >= r.first+uint64(n):
		from = l.size
	case n > 0 && r.durable >= r.first:
		from = r.offs[r.durable+1-r.first]
	}
	if r.syncedFile == l.id {
		from = max(from, r.syncedOff)
	}
	return min(from, l.size)
}

// settle makes the last file durable. What it has from there on, which is not known to have been synced, is written once more before: the process before may
// have died behind a sync that failed, or while one ran that was to fail. The kernel takes the pages of a failed write for clean, so that they
// read well, and a sync of them does nothing and succeeds; the disk does not have them.
func (s *Store) settle(l *logFile, from int64) error {
	buf := make([]byte, windowBytes)
	for off := from; off < l.size; {
		b := buf[:min(int64(len(buf)), l.size-off)]
		if _, err := l.f.ReadAt(b, off); err != nil {
			return err
		}
		if _, err := l.f.WriteAt(b, off); err != nil {
			return err
		}
		off += int64(len(b))
	}
	if err := l.f.Truncate(l.size); err != nil { // the length is of a torn tail, or was set by who died like that
		return err
	}
	s.sync.made.Add(1)
	return s.sync.file(s, l)
}

func (s *Store) newLog(id uint32) error {
	l, err := createLog(s.fs, s.dir, id, s.nextSeq)
	if err != nil {
		return err
	}
	s.files[id] = l
	s.active.Store(l)
	s.sync.made.Add(1)
	return nil
}

// replayFile replays one file from the replay place or its beginning. whole is false if it ends in something that is not
// the next frame, at l.size.
func (s *Store) replayFile(l *logFile, r *recovery) (whole bool, err error) {
	r.offs, r.first, r.durable = r.offs[:0], r.seq, max(r.durable, r.seq-1)
	w := newWindow(l.f, logHeader, l.size)
	first, err := readLogHeader(l.f, l.id)
	switch {
	case err == errNoHeader:
		l.size = 0
		return false, s.judge(l, w, r)
	case err == errVersion:
		return false, &CorruptError{File: l.name, Err: err}
	case err != nil:
		return false, err
	case l.id != r.replayFile && first != r.seq: // a file is made when all before it is synced
		before := s.files[l.id-1]
		return false, &CorruptError{File: before.name, Offset: before.size, Err: errUnsynced}
	case l.id == r.replayFile:
		if w.off = r.replayOff; w.off > l.size {
			return false, &CorruptError{File: l.name, Offset: l.size, Err: errUnsynced}
		}
	}
	for {
		off := w.off
		frame, err := w.nextFrame(r.seq)
		switch {
		case err == errFrameCut:
			l.size = off
			return false, s.judge(l, w, r)
		case err != nil:
			return false, err
		case frame == nil:
			if r.syncedFile == l.id && r.syncedOff > off || r.syncedFile > l.id && s.files[l.id+1] == nil {
				return false, &CorruptError{File: l.name, Offset: off, Err: errUnsynced}
			}
			return true, nil
		case !s.replay(l, frame, off):
			return false, &CorruptError{File: l.name, Offset: off, Err: errFrameOps}
		}
		r.offs = append(r.offs, off)
		if lag := binary.LittleEndian.Uint32(frame[16:]); lag < 0xffffffff && uint64(lag) <= r.seq {
			r.durable = max(r.durable, r.seq-uint64(lag))
		}
		s.sinceCkpt += int64(len(frame))
		w.skip(len(frame))
		r.seq++
	}
}

// judge returns nil if what begins at l.size is a torn tail, and a CorruptError if a durable frame was there.
func (s *Store) judge(l *logFile, w *window, r *recovery) error {
	corrupt := &CorruptError{File: l.name, Offset: l.size, Err: fmt.Errorf("%w: %w", errUnsynced, errFrameCut)}
	if r.syncedFile > l.id || r.syncedFile == l.id && r.syncedOff > l.size {
		return corrupt
	}
	for next := l.id + 1; ; next++ {
		if found, err := w.syncedBeyond(r.seq); err != nil {
			return err
		} else if found {
			return corrupt
		}
		n := s.files[next]
		if n == nil {
			return nil
		}
		if first, err := readLogHeader(n.f, n.id); err == nil && first > r.seq {
			return corrupt
		} else if err != nil && err != errNoHeader {
			return err
		}
		w = newWindow(n.f, logHeader, n.size)
	}
}

// cutTail removes what follows the last whole frame, in l and in later files, newest first so that a crash on the way leaves
// a directory that recovers to the same.
func (s *Store) cutTail(l *logFile, r *recovery) error {
	last := l.id
	for s.files[last+1] != nil {
		last++
	}
	keep := l.id
	if l.size == 0 { // not even a header
		keep--
	}
	for id := last; id > keep; id-- {
		s.files[id].release()
		delete(s.files, id)
		if err := s.fs.Remove(path.Join(s.dir, logName(id))); err != nil {
			return err
		}
	}
	from := r.doubtful(l)
	if keep < l.id {
		s.nextSeq = r.seq
		if s.files[keep] == nil { // the first file of all, or of the replay
			return s.newLog(l.id)
		}
		l = s.files[keep]
		from = l.size // it was synced before the next was made
	}
	s.active.Store(l)
	return s.settle(l, from)
}
