package segment

import (
	"encoding/binary"
	"io"
)

// MaxTimestamp is the greatest timestamp in the segment and the last offset of the batch that has it; ok is false for a
// segment without any.
func (s *Segment) MaxTimestamp() (ts, offset int64, ok bool) {
	if t := s.maxTime.Load(); t >= 0 {
		return t, s.maxTimeAt.Load(), true
	}
	if s.size.Load() == 0 {
		return -1, -1, false
	}
	e, ok, err := s.times.last()
	if err == nil && ok {
		ts, offset = s.timeOf(&e)
		if err = s.checkTime(ts, offset); err == nil && !s.rebuilt.Load() {
			err = s.checkNewest(ts)
		}
	}
	if (err != nil || !ok) && !s.rebuilt.Load() && s.rebuildIndex() == nil {
		if e, ok, err = s.times.last(); ok {
			ts, offset = s.timeOf(&e)
		}
	}
	if err != nil || !ok {
		return -1, -1, false
	}
	s.maxTimeAt.Store(offset)
	s.maxTime.Store(ts)
	return ts, offset, true
}

func (s *Segment) timeOf(e *entry) (ts, offset int64) {
	return int64(binary.BigEndian.Uint64(e[:])), s.base + int64(int32(binary.BigEndian.Uint32(e[8:])))
}

// checkTime compares a time index entry with the batch that it is about.
func (s *Segment) checkTime(ts, offset int64) error {
	p, err := s.Locate(offset)
	if err == nil && p.Last == offset {
		var info BatchInfo
		if info, err = s.header(p.Pos); err == nil && info.MaxTimestamp == ts {
			return nil
		}
	}
	if err == nil || err == ErrEnd {
		err = &CorruptError{File: s.path(TimeIndexSuffix), Err: errStaleIndex}
	}
	return err
}

// checkNewest looks for a timestamp above that of the last time index entry in the batches from the last offset index entry on. A whole
// time index has none there: one was entered with that entry, and the last when the segment was sealed.
func (s *Segment) checkNewest(ts int64) error {
	e, ok, err := s.index.last()
	if err != nil {
		return err
	}
	r, err := s.Acquire()
	if err != nil {
		return err
	}
	defer r.Release()
	w := walk{s: s, r: r, end: s.size.Load(), win: windows.Get().(*window)}
	defer windows.Put(w.win)
	if ok {
		w.at = int64(binary.BigEndian.Uint32(e[4:]))
	}
	for {
		_, info, err := w.next()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case info.MaxTimestamp > ts:
			return &CorruptError{File: s.path(TimeIndexSuffix), Err: errStaleIndex}
		}
	}
}

// OffsetForTime finds the first record with timestamp ts or later, at offset from or later; found is false when the
// segment has none. It may read and decompress a batch.
func (s *Segment) OffsetForTime(ts, from int64) (offset, timestamp int64, epoch int32, found bool, err error) {
	start := max(from, s.base)
	e, ok, err := s.times.floor(ts)
	if err == nil && ok {
		t, at := s.timeOf(&e)
		err = s.checkTime(t, at)
		start = max(start, at)
	}
	if err != nil {
		if s.rebuilt.Load() {
			return 0, 0, 0, false, err
		}
		if err := s.rebuildIndex(); err != nil {
			return 0, 0, 0, false, err
		}
		return s.OffsetForTime(ts, from)
	}
	p, err := s.Locate(start)
	if err == ErrEnd {
		return 0, 0, 0, false, nil
	}
	if err != nil {
		return 0, 0, 0, false, err
	}
	return s.searchTime(ts, from, p.Pos)
}

func (s *Segment) searchTime(ts, from, pos int64) (offset, timestamp int64, epoch int32, found bool, err error) {
	r, err := s.Acquire()
	if err != nil {
		return 0, 0, 0, false, err
	}
	defer r.Release()
	w := walk{s: s, r: r, at: pos, end: s.size.Load(), win: windows.Get().(*window)}
	defer windows.Put(w.win)
	for {
		p, info, err := w.next()
		if err == io.EOF {
			return 0, 0, 0, false, nil
		}
		if err != nil {
			return 0, 0, 0, false, err
		}
		if info.MaxTimestamp < ts {
			continue
		}
		data := make([]byte, p.Size) // bounded by the file, see walk.next
		if _, err := r.file.ReadAt(data, p.Pos); err != nil {
			return 0, 0, 0, false, &CorruptError{File: s.path(LogSuffix), Offset: p.Pos, Err: err}
		}
		offset, timestamp, found, err = s.format.FirstAtOrAfter(data, ts, from)
		if err != nil {
			return 0, 0, 0, false, &CorruptError{File: s.path(LogSuffix), Offset: p.Pos, Err: err}
		}
		if found {
			return offset, timestamp, info.LeaderEpoch, true, nil
		}
	}
}

// header reads the header of the batch at pos.
func (s *Segment) header(pos int64) (BatchInfo, error) {
	r, err := s.Acquire()
	if err != nil {
		return BatchInfo{}, err
	}
	defer r.Release()
	w := windows.Get().(*window)
	defer windows.Put(w)
	if _, err := r.file.ReadAt(w.b[:HeaderSize], pos); err != nil {
		return BatchInfo{}, &CorruptError{File: s.path(LogSuffix), Offset: pos, Err: err}
	}
	_, info, err := s.format.Peek(w.b[:HeaderSize])
	return info, err
}
