package segment

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"
)

// The ends of the names of files that compaction makes, until they take the place of others (Kafka's).
const (
	CleanedSuffix = ".cleaned" // being written
	SwapSuffix    = ".swap"    // whole and durable: the log file of that name stands for the segments it was made from
)

// stage says under which names a segment's files are.
type stage = int32

const (
	stageNone stage = iota
	stageCleaned
	stageSwap
)

var stageSuffix = [...]string{"", CleanedSuffix, SwapSuffix}

// indexSuffixes are the files of a staged segment besides its log. It has all of them, if only empty ones: see Advance.
var indexSuffixes = [...]string{IndexSuffix, TimeIndexSuffix, TxnIndexSuffix}

// NewCleaned describes a segment that is to take the place of others, the last of which is like, and makes its files, named
// *.cleaned. What a failed attempt left under these names is removed. Until Settle its log file is held open and its indexes
// are in memory, so that readers need no names while these change.
func (f *Files) NewCleaned(format Format, dir string, base int64, like *Segment) (*Segment, error) {
	s := f.New(format, dir, base, time.UnixMilli(like.createdMs))
	s.stage.Store(stageCleaned)
	s.modified.Store(like.modified.Load())
	s.next.Store(base)
	if err := f.FS.Remove(s.path(LogSuffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := s.Create(); err != nil {
		return nil, err
	}
	r, err := s.Acquire()
	if err != nil {
		return nil, err
	}
	s.pinned.Store(r)
	return s, nil
}

// OpenSwap describes the segment of a *.log.swap file that a crash left.
func (f *Files) OpenSwap(format Format, dir string, base int64, now time.Time) *Segment {
	s := f.New(format, dir, base, now)
	s.stage.Store(stageSwap)
	return s
}

// Finish trims a cleaned segment, writes its indexes, and makes all of it durable but its names. It has the offsets up to next
// whatever batch it ends with. Writer.
func (s *Segment) Finish(next int64) error {
	s.timeEntry()
	err := s.index.stageTo(s.path(IndexSuffix))
	if err == nil {
		err = s.times.stageTo(s.path(TimeIndexSuffix))
	}
	if err == nil {
		err = s.txns.stageTo(s)
	}
	if err == nil {
		err = s.Trim()
	}
	if err != nil {
		return err
	}
	s.next.Store(next)
	s.sealed.Store(true)
	s.recent.reset()
	s.hints.reset()
	return nil
}

// AdvanceIndexes renames the index files of a staged segment one stage on: from .cleaned to .swap, from .swap to none. The
// caller syncs the directory before AdvanceLog, so that a log file never has a lower stage than its indexes after a crash.
func (s *Segment) AdvanceIndexes() error {
	from := s.stage.Load()
	for _, suffix := range indexSuffixes {
		name := s.dir + "/" + FileName(s.base, suffix)
		err := s.files.FS.Rename(name+stageSuffix[from], name+stageSuffix[next(from)])
		if errors.Is(err, fs.ErrNotExist) && (s.files.memory || from == stageSwap) {
			err = nil // in memory there are none; after a crash some may have been renamed
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// AdvanceLog renames the log file one stage on.
func (s *Segment) AdvanceLog() error {
	from := s.stage.Load()
	name := s.dir + "/" + FileName(s.base, LogSuffix)
	if err := s.files.FS.Rename(name+stageSuffix[from], name+stageSuffix[next(from)]); err != nil {
		return err
	}
	s.stage.Store(next(from))
	return nil
}

func next(s stage) stage {
	if s == stageCleaned {
		return stageSwap
	}
	return stageNone
}

// Settle ends the staging of a segment whose files have their names: it is like any other now.
func (s *Segment) Settle() {
	s.index.settle()
	s.times.settle()
	s.unpin()
}

// Abandon closes a segment whose log file is still .cleaned, and removes its files.
func (s *Segment) Abandon() error {
	s.Retire()
	names := []string{LogSuffix + CleanedSuffix}
	for _, suffix := range indexSuffixes {
		names = append(names, suffix+CleanedSuffix, suffix+SwapSuffix)
	}
	var errs []error
	for _, name := range names {
		if err := s.files.FS.Remove(s.dir + "/" + FileName(s.base, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (s *Segment) unpin() {
	if r := s.pinned.Swap(nil); r != nil {
		r.Release()
	}
}

// Batches calls f for each batch whose last offset is not below from, whole and with its CRC verified; data is valid during
// the call. It reads through buf, which grows for larger batches, and asks read before each read, with its bytes; an error of
// read ends the walk. Errors: *CorruptError for a batch that does not verify. For segments that are not appended to.
func (s *Segment) Batches(from int64, buf *[]byte, read func(n int) error, f func(info *BatchInfo, data []byte) error) error {
	var at int64
	if from > s.base {
		p, err := s.Locate(from)
		if err == ErrEnd {
			return nil
		}
		if err != nil {
			return err
		}
		at = p.Pos
	}
	r, err := s.Acquire()
	if err != nil {
		return err
	}
	defer r.Release()
	sc := scanner{file: r.file, size: s.size.Load(), buf: *buf, ask: read}
	defer func() { *buf = sc.buf }()
	offset := s.base
	for {
		data, info, err := s.scanOne(&sc, at, offset, true)
		if sc.err != nil {
			return sc.err
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return &CorruptError{File: s.path(LogSuffix), Offset: at, Err: err}
		}
		if err := f(&info, data); err != nil {
			return err
		}
		at += int64(info.Size)
		offset = info.LastOffset() + 1
	}
}

// IndexBytes is how large the larger of the two sparse indexes is.
func (s *Segment) IndexBytes() int64 {
	return int64(max(s.index.count()*offsetEntry, s.times.count()*timeEntry))
}

// FirstMs is the max timestamp of the first batch in milliseconds, -1 when there is none.
func (s *Segment) FirstMs() int64 {
	first := s.firstTime.Load()
	if first < 0 && s.size.Load() > 0 { // written by an earlier process
		if info, err := s.header(0); err == nil {
			first = info.MaxTimestamp
			s.firstTime.Store(first)
		}
	}
	return first
}

// String is the name of the segment's log file.
func (s *Segment) String() string { return fmt.Sprint(FileName(s.base, LogSuffix)) }
