package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"kaas/engine/vfs"
)

// allocFirst and allocMax bound how far a file is allocated ahead of its data: a step doubles from one to the other, so
// that many small partitions do not reserve a disk (100,000 of them 1.6 GiB; it was 12.5 with 128 KiB) and one fast partition does not pay for
// many calls.
const (
	allocFirst = 16 << 10
	allocMax   = 16 << 20
)

// Options are what a segment needs to know to append; they may change between appends.
type Options struct {
	IndexInterval int   // bytes between index entries
	MaxIndex      int   // bytes of the offset index
	MaxBytes      int64 // of the log file; allocation ahead stops there
	NowMs         int64 // the time
}

// Segment is one segment. Methods that say "writer" are called by one goroutine at a time, the holder of the log's mutex;
// the others by anyone. A segment that was only listed costs no descriptor and no map.
type Segment struct {
	base      int64
	dir       string
	files     *Files
	format    Format
	createdMs int64 // clock when this process made or found it

	size atomic.Int64 // of good data, in bytes
	next atomic.Int64 // offset after the last batch; base when empty
	// The greatest timestamp and the last offset of the batch that has it; -1 when unknown or empty.
	maxTime, maxTimeAt atomic.Int64
	modified           atomic.Int64 // clock of the last append, milliseconds; 0 when it was before this process
	own                atomic.Int64 // where the appends of this process begin, once there is one
	firstTime          atomic.Int64 // max timestamp of the first batch; -1 when empty or unknown

	// Writer's.
	allocated  int64 // length of the file
	step       int64
	sinceIndex int
	lastTime   int64 // of the last time index entry; MinInt64 when there is none

	index, times sparse
	txns         txnIndex
	recent       recent
	hints        hints
	lastSize     atomic.Int32 // of the last batch looked up, in bytes
	used         atomic.Bool  // since the cache last looked

	openMu    sync.Mutex // guards opening
	ref       atomic.Pointer[FileRef]
	writes    atomic.Int64 // counts changes of the file, before and after each: a sync covers what it saw finished
	synced    atomic.Int64 // writes that the last sync covered
	syncMu    sync.Mutex   // one sync at a time: an error is reported by the kernel only once; guards syncErr
	syncErr   error        // of a failed sync, for good
	slot      int          // in Files.open, -1 when not; guarded by Files.mu
	rebuildMu sync.Mutex   // one rebuild at a time
	sealed    atomic.Bool  // nothing is appended: a rebuilt index goes to its file at once
	retired   atomic.Bool  // its files are being removed, or are another's by now
	rebuilt   atomic.Bool  // the index was rebuilt once since opened: no more tries

	stage  atomic.Int32            // of the files' names, see staged.go
	pinned atomic.Pointer[FileRef] // the log file of a staged segment
	opens  atomic.Int32            // open log files: more than one while readers hold those that the cache let go
	torn   bool                    // the file is longer than allocated: see Mend. Writer's

	zero zeroing
}

// New describes a segment without touching the disk.
func (f *Files) New(format Format, dir string, base int64, now time.Time) *Segment {
	s := &Segment{base: base, dir: dir, files: f, format: format, createdMs: now.UnixMilli(), slot: -1, step: allocFirst, lastTime: math.MinInt64}
	s.index.seg, s.index.of = s, offsetEntry
	s.times.seg, s.times.of = s, timeEntry
	s.next.Store(base)
	s.maxTime.Store(-1)
	s.maxTimeAt.Store(-1)
	s.firstTime.Store(-1)
	return s
}

func (s *Segment) path(suffix string) string {
	return s.dir + "/" + FileName(s.base, suffix) + stageSuffix[s.stage.Load()]
}

// Base is the first offset that may be in the segment.
func (s *Segment) Base() int64 { return s.base }

// Size is the length of the data in bytes; the file may be longer.
func (s *Segment) Size() int64 { return s.size.Load() }

// Next is the offset after the last batch.
func (s *Segment) Next() int64 { return s.next.Load() }

// Dirty reports writes that no sync has covered.
func (s *Segment) Dirty() bool { return s.writes.Load() != s.synced.Load() }

// Create makes an empty file; one of that name must not exist.
func (s *Segment) Create() error {
	file, err := s.files.FS.Open(s.path(LogSuffix), vfs.CreateNew)
	if err != nil {
		return err
	}
	s.openMu.Lock()
	defer s.openMu.Unlock()
	s.hold(file).Release()
	return nil
}

// Write appends n bytes of whole batches, already stamped, at Size. After an error nothing was appended: what may have
// been written, or allocated, is cut away again. Where that fails too it is done before the next write, and nothing is written until it
// succeeds (see Mend). Size moves only with Note, so that readers never see batches of which the log has not decided yet. Writer.
func (s *Segment) Write(bufs [][]byte, n int64, o *Options) error {
	r, err := s.Acquire()
	if err != nil {
		return err
	}
	defer r.Release()
	at := s.size.Load()
	if err := s.mend(r.file); err != nil {
		return err
	}
	if err := s.reserve(r.file, at+n, o); err != nil {
		return err
	}
	s.writes.Add(1)
	defer s.writes.Add(1)
	s.zero.reserve(at + n)
	if _, err := r.file.WriteVAt(bufs, at); err != nil {
		s.allocated = at
		err = errors.Join(err, s.cut(r.file))
		s.zero.reset(at)
		return err
	}
	return nil
}

// Mend cuts away what a failed write has left behind the data, if that could not be done then. Nothing may follow until it is: what lies
// there may be whole batches, that nobody was told are stored, and behind a shorter write, or in front of a new segment, a recovery would take
// them for some. Writer.
func (s *Segment) Mend() error {
	if !s.torn {
		return nil
	}
	r, err := s.Acquire()
	if err != nil {
		return err
	}
	defer r.Release()
	return s.mend(r.file)
}

func (s *Segment) mend(file vfs.File) error {
	if !s.torn {
		return nil
	}
	s.writes.Add(1)
	defer s.writes.Add(1)
	return s.cut(file)
}

// cut ends the file where it is known to be allocated.
func (s *Segment) cut(file vfs.File) error {
	s.zero.stop() // zeros behind that would make it longer again
	err := file.Truncate(s.allocated)
	s.torn = err != nil
	return err
}

// aheadShare is the part of what the file system has free that is allocated ahead at most: with less and less room, what one segment takes
// is not missed by others.
const aheadShare = 16

// reserve allocates the file up to end at least. ENOSPC comes from here, before anything is written; what an allocation that failed has
// taken is given back.
func (s *Segment) reserve(file vfs.File, end int64, o *Options) error {
	if end <= s.allocated {
		return nil
	}
	to := max(end, min(s.allocated+s.step, max(o.MaxBytes, end)))
	if to > end && !s.files.memory {
		if room, err := s.files.FS.Space(s.dir); err == nil {
			to = min(to, end+room.Free/aheadShare)
		}
	}
	err := s.allocate(file, to)
	if err != nil && to > end && !s.torn {
		to = end // somebody else took the room ahead; perhaps there is some for this
		err = s.allocate(file, to)
	}
	if err != nil {
		return err
	}
	s.allocated = to
	s.step = min(2*s.step, allocMax)
	return nil
}

func (s *Segment) allocate(file vfs.File, to int64) error {
	err := file.Allocate(s.allocated, to-s.allocated)
	if err != nil {
		err = errors.Join(err, s.cut(file))
	}
	return err
}

// Note takes one written batch into account: indexes, size, timestamps. info has its final offsets. Writer.
func (s *Segment) Note(info *BatchInfo, o *Options) {
	at := s.size.Load()
	last := info.LastOffset()
	if at == 0 {
		s.firstTime.Store(info.MaxTimestamp)
	}
	if info.MaxTimestamp > s.maxTime.Load() {
		s.maxTime.Store(info.MaxTimestamp)
		s.maxTimeAt.Store(last)
	}
	if s.sinceIndex > o.IndexInterval {
		s.indexEntry(last, at)
		s.sinceIndex = 0
	}
	s.sinceIndex += info.Size
	s.recent.add(info.BaseOffset, last, at, info.Size)
	if o.NowMs != 0 {
		if s.modified.Load() == 0 {
			s.own.Store(at)
		}
		s.modified.Store(o.NowMs)
	}
	s.next.Store(last + 1)
	s.size.Store(at + int64(info.Size))
}

func (s *Segment) indexEntry(last, at int64) {
	var e entry
	binary.BigEndian.PutUint32(e[:], uint32(last-s.base))
	binary.BigEndian.PutUint32(e[4:], uint32(at))
	s.index.add(e[:offsetEntry])
	s.timeEntry()
	if len(s.index.tail) >= flushAt && !s.files.memory && s.stage.Load() == stageNone {
		// Not a failure of the append: an index that could not be written is rebuilt.
		if s.times.flush(false, false, false) != nil || s.index.flush(false, false, false) != nil {
			s.index.fail(errors.New("index could not be written"))
		}
	}
}

// timeEntry adds the greatest timestamp so far to the time index, unless the last entry has it.
func (s *Segment) timeEntry() {
	t := s.maxTime.Load()
	if t <= s.lastTime || t < 0 {
		return
	}
	var e entry
	binary.BigEndian.PutUint64(e[:], uint64(t))
	binary.BigEndian.PutUint32(e[8:], uint32(s.maxTimeAt.Load()-s.base))
	s.times.add(e[:])
	s.lastTime = t
}

// ShouldRoll reports whether a batch with these facts, behind pending bytes that are to be written first, belongs into a new
// segment (Kafka's LogSegment.shouldRoll). An empty segment takes a batch of any size. Writer.
func (s *Segment) ShouldRoll(pending, size, lastOffset, maxTimestamp int64, o *Options, segmentMs int64, now time.Time) bool {
	have := s.size.Load() + pending
	if have == 0 {
		return lastOffset-s.base > math.MaxInt32
	}
	if have > o.MaxBytes-size || have+size > math.MaxInt32 || lastOffset-s.base > math.MaxInt32 {
		return true
	}
	// The last entry of the time index is the one that a roll adds.
	if s.index.count() >= o.MaxIndex/offsetEntry || s.times.count() >= o.MaxIndex/timeEntry-1 {
		return true
	}
	return s.Age(maxTimestamp, now) > segmentMs
}

// Age is how old the segment is in the sense of segment.ms, in milliseconds: by the timestamps of its first batch and of
// the one to come, or by the clock when there is none.
func (s *Segment) Age(maxTimestamp int64, now time.Time) int64 {
	if first := s.FirstMs(); first >= 0 && maxTimestamp >= 0 {
		return maxTimestamp - first
	}
	return now.UnixMilli() - s.createdMs
}

// ModifiedMs is when the segment was last appended to: by the clock, or by its records if that was before this process.
func (s *Segment) ModifiedMs() int64 {
	if t := s.modified.Load(); t != 0 {
		return t
	}
	t, _, _ := s.MaxTimestamp()
	return t
}

// NewestMs is what retention.ms counts from, in milliseconds: the greatest timestamp, or for records without times when the
// segment was last appended to, or opened if that was before this process (Kafka's LogSegment.largestTimestamp).
func (s *Segment) NewestMs() int64 {
	if t, _, ok := s.MaxTimestamp(); ok {
		return t
	}
	if t := s.modified.Load(); t != 0 {
		return t
	}
	return s.createdMs
}

// Sync makes the data of the log file durable. After a failure it fails for good: what the kernel did with the pages is
// unknown, and a later success would hide it.
func (s *Segment) Sync() error {
	r, err := s.Acquire()
	if err != nil {
		return err
	}
	defer r.Release()
	return s.syncFile(r.file)
}

func (s *Segment) syncFile(file vfs.File) error {
	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	if s.syncErr != nil {
		return s.syncErr
	}
	seen := s.writes.Load()
	if seen == s.synced.Load() {
		return nil // another sync, which this one waited for, covered it
	}
	if s.syncErr = file.Sync(); s.syncErr == nil {
		s.synced.Store(seen)
	}
	return s.syncErr
}

// Writes counts the writes so far, for Synced.
func (s *Segment) Writes() int64 { return s.writes.Load() }

// Synced says that a sync of the whole file system has covered what Writes saw before it began. It returns why it counts for nothing
// here: an earlier sync of the file has failed.
func (s *Segment) Synced(seen int64) error {
	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	if s.syncErr == nil && seen > s.synced.Load() {
		s.synced.Store(seen)
	}
	return s.syncErr
}

// InDoubt is why a sync of the file failed, nil if none has.
func (s *Segment) InDoubt() error {
	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	return s.syncErr
}

// Doubt says that a sync of the whole file system failed: as if one of the file had.
func (s *Segment) Doubt(err error) {
	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	if s.syncErr == nil {
		s.syncErr = err
	}
}

// Seal trims the file to its data, writes the indexes, and makes all of it durable. Nothing is appended after it, unless
// the log is opened again. Writer.
func (s *Segment) Seal() error {
	if err := s.save(true, false); err != nil {
		return err
	}
	s.noteSealed()
	return nil
}

func (s *Segment) noteSealed() {
	s.sealed.Store(true)
	s.recent.reset()
	s.hints.reset()
}

// SaveLater is Seal, or Checkpoint if the segment may be appended to later, without the syncs: one of the whole file system is to follow
// before anything relies on them. Writer.
func (s *Segment) SaveLater(seal bool) error {
	err := s.save(false, true)
	if err == nil && seal {
		s.noteSealed()
	}
	return err
}

// Sealed reports that nothing will be appended.
func (s *Segment) Sealed() bool { return s.sealed.Load() }

// Checkpoint trims the file and makes it durable with all that is known of it, for a segment that may be appended to later.
// Its offset index is written but not synced: opening it verifies it. Writer.
func (s *Segment) Checkpoint() error { return s.save(false, false) }

func (s *Segment) save(syncIndexes, later bool) error {
	s.zero.stop()
	s.timeEntry()
	// The time index first, and always synced: nothing would show that entries of it are missing, while an offset index that is behind is found out by
	// what follows its last entry.
	err := s.times.flush(true, !later, later)
	if err == nil {
		err = s.index.flush(true, syncIndexes, later)
	}
	if err == nil {
		err = s.txns.flush(s, later)
	}
	if err != nil {
		return err
	}
	return s.trim(later)
}

// Trim cuts the file to its data and syncs it: what was allocated ahead, or is a torn tail, is gone. Writer.
func (s *Segment) Trim() error { return s.trim(false) }

func (s *Segment) trim(later bool) error {
	r, err := s.Acquire()
	if err != nil {
		return err
	}
	size := s.size.Load()
	have, err := r.file.Size()
	defer r.Release()
	if err == nil && have != size {
		err = r.file.Truncate(size)
		s.writes.Add(1)
	}
	if err != nil {
		return err
	}
	s.allocated, s.step, s.torn = size, allocFirst, false
	s.zero.reset(size)
	if later {
		return nil
	}
	return s.syncFile(r.file)
}

// Retire closes the segment for good: it is never opened again by its name, which may soon be another's. Readers that hold
// references go on.
func (s *Segment) Retire() {
	s.retired.Store(true)
	s.zero.stop()
	s.unpin()
	s.Close()
}

// Remove retires the segment and removes its files.
func (s *Segment) Remove() error {
	s.Retire()
	var first error
	for _, suffix := range []string{LogSuffix, IndexSuffix, TimeIndexSuffix, TxnIndexSuffix} {
		if err := s.files.FS.Remove(s.path(suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) && first == nil {
			first = err
		}
	}
	return first
}

// Discard retires the segment and takes its names away. The log file is not unlinked, which takes long, but renamed: the caller removes what
// has the name returned, once that is durable and the segment not InUse. No name, no file: there was none, or it was in memory.
func (s *Segment) Discard() (name string, err error) {
	name, err = s.DiscardLog()
	return name, errors.Join(err, s.Remove())
}

// DiscardLog is Discard for the log file alone: what is left is no segment.
func (s *Segment) DiscardLog() (name string, err error) {
	s.Retire()
	if s.files.memory {
		return "", nil
	}
	name = fmt.Sprintf("%s.%08x%s", FileName(s.base, LogSuffix), rand.Uint32(), DeletedSuffix)
	err = s.files.FS.Rename(s.path(LogSuffix), s.dir+"/"+name)
	if err != nil {
		name = ""
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return name, err
}

// InUse reports that the log file is open: somebody reads it, or may.
func (s *Segment) InUse() bool { return s.opens.Load() > 0 }

// Position is where a batch lies.
type Position struct {
	Pos        int64 // in the log file
	Size       int   // of the batch
	Base, Last int64 // its offsets
}

// ErrEnd is returned by Locate when no batch of the segment has the offset or a later one.
var ErrEnd = errors.New("segment: offset is after the last batch")

// Locate finds the first batch whose last offset is not below offset.
func (s *Segment) Locate(offset int64) (Position, error) {
	if p, ok := s.recent.find(offset); ok {
		return p, nil
	}
	p, err := s.locate(offset, false)
	if err == nil || err == ErrEnd || s.rebuilt.Load() {
		return p, err
	}
	// An index that does not fit the log: rebuild it, once.
	if err := s.rebuildIndex(); err != nil {
		return p, err
	}
	return s.locate(offset, false)
}

var errStaleIndex = errors.New("index does not fit the log")

func (s *Segment) locate(offset int64, cached bool) (Position, error) {
	if offset >= s.next.Load() {
		return Position{}, ErrEnd
	}
	r, err := s.Acquire()
	if err != nil {
		return Position{}, err
	}
	defer r.Release()
	w := walk{s: s, r: r, end: s.size.Load(), win: windows.Get().(*window), last: int(s.lastSize.Load()), cached: cached}
	defer windows.Put(w.win)
	if pos, ok := s.hints.find(offset); ok {
		if p, _, err := w.nextAt(pos); err == nil && p.Base == offset {
			s.found(&p)
			return p, nil
		}
	}
	e, after, ok, err := s.index.around(offset - s.base)
	if err != nil {
		return Position{}, err
	}
	var at, check int64
	if ok {
		check, at = s.base+int64(binary.BigEndian.Uint32(e[:])), int64(binary.BigEndian.Uint32(e[4:]))
		// Of large batches each has its entry, and the next one is that of the batch in question: its header alone is read.
		if pos := int64(binary.BigEndian.Uint32(after[4:])); check < offset && pos-at > int64(len(w.win.b)/2) {
			p, _, err := w.nextAt(pos)
			if err == nil && p.Last == s.base+int64(binary.BigEndian.Uint32(after[:])) && p.Base <= offset && offset <= p.Last {
				s.found(&p)
				return p, nil
			}
		}
	}
	w.at, w.end = at, s.size.Load()
	largest := 0
	for first := true; ; first = false {
		p, _, err := w.next()
		if err == io.EOF && s.sealed.Load() && !(first && ok) {
			return p, ErrEnd // the last batches of the segment were compacted away
		}
		if err == io.EOF {
			return p, &CorruptError{File: s.path(LogSuffix), Offset: w.end, Err: errStaleIndex}
		}
		if err != nil {
			return p, err
		}
		if first && ok && p.Last != check {
			return p, &CorruptError{File: s.path(IndexSuffix), Offset: p.Pos, Err: errStaleIndex}
		}
		if p.Last >= offset {
			s.found(&p)
			return p, nil
		}
		// Kafka's default interval: a walk far beyond it means that entries are missing.
		largest = max(largest, p.Size)
		if p.Pos-at > indexGapMax+2*int64(largest) && !s.rebuilt.Load() {
			return p, &CorruptError{File: s.path(IndexSuffix), Offset: p.Pos, Err: errStaleIndex}
		}
	}
}

// found remembers what the next look-up of the same reader may want.
func (s *Segment) found(p *Position) {
	s.lastSize.Store(int32(p.Size))
	if p.Last+1 < s.next.Load() {
		s.hints.put(p.Last+1, p.Pos+int64(p.Size))
	}
}

// indexGapMax is how far a look-up walks before it holds the index for short.
const indexGapMax = 1 << 20

// walk goes from batch to batch by their headers.
type walk struct {
	s       *Segment
	r       *FileRef
	at, end int64
	win     *window
	from    int64 // what win holds
	n       int
	last    int  // size of the batch before, or of one looked up earlier
	cached  bool // an error in place of waiting for the disk
}

// nextAt is next at pos.
func (w *walk) nextAt(pos int64) (Position, BatchInfo, error) {
	w.at = pos
	return w.next()
}

// next returns the batch at w.at and moves on; io.EOF at the end of the data.
func (w *walk) next() (Position, BatchInfo, error) {
	if w.at+HeaderSize > w.end {
		if w.at == w.end {
			return Position{}, BatchInfo{}, io.EOF
		}
		return Position{}, BatchInfo{}, w.corrupt(errors.New("batch header is cut"))
	}
	if w.n == 0 || w.at < w.from || w.at+HeaderSize > w.from+int64(w.n) {
		length := len(w.win.b)
		if w.last > length/2 {
			length = HeaderSize // of large batches the window would hold one header and a copy of its records
		}
		n, err := w.readAt(w.win.b[:min(int64(length), w.end-w.at)], w.at)
		if err != nil && n < HeaderSize {
			return Position{}, BatchInfo{}, w.corrupt(err)
		}
		w.from, w.n = w.at, n
	}
	size, info, err := w.s.format.Peek(w.win.b[w.at-w.from:][:HeaderSize])
	if err != nil {
		return Position{}, info, w.corrupt(err)
	}
	if size < HeaderSize || int64(size) > w.end-w.at {
		return Position{}, info, w.corrupt(fmt.Errorf("batch size %d", size))
	}
	p := Position{Pos: w.at, Size: size, Base: info.BaseOffset, Last: info.LastOffset()}
	w.at += int64(size)
	w.last = size
	return p, info, nil
}

func (w *walk) corrupt(err error) error {
	return &CorruptError{File: w.s.path(LogSuffix), Offset: w.at, Err: err}
}
