package segment

import (
	"encoding/binary"
	"errors"
	"io"
)

// OffsetForTime finds the first record with timestamp ts or later, at offset from or later; found is false when the
// segment has none. It may read and decompress a batch.
func (s *Segment) OffsetForTime(ts, from int64) (offset, timestamp int64, epoch int32, found bool, err error) {
	start := max(from, s.base)
	e, ok, err := s.times.floor(s.files, s.path(TimeIndexSuffix), ts)
	if err == nil && ok {
		at := s.base + int64(int32(binary.BigEndian.Uint32(e[8:])))
		if at >= s.next.Load() {
			err = &CorruptError{File: s.path(TimeIndexSuffix), Err: errStaleIndex}
		}
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
		offset, timestamp, found, err = s.format.FirstAtOrAfter(data, ts)
		if err != nil {
			return 0, 0, 0, false, &CorruptError{File: s.path(LogSuffix), Offset: p.Pos, Err: err}
		}
		if found && offset >= from {
			return offset, timestamp, info.LeaderEpoch, true, nil
		}
	}
}

// EpochAt is the leader epoch of the batch that holds offset, or comes first after it.
func (s *Segment) EpochAt(offset int64) (int32, error) {
	p, err := s.Locate(offset)
	if err != nil {
		return -1, err
	}
	r, err := s.Acquire()
	if err != nil {
		return -1, err
	}
	defer r.Release()
	var head [HeaderSize]byte
	if _, err := r.file.ReadAt(head[:], p.Pos); err != nil {
		return -1, &CorruptError{File: s.path(LogSuffix), Offset: p.Pos, Err: err}
	}
	_, info, err := s.format.Peek(head[:])
	return info.LeaderEpoch, err
}

// FirstTimestamp is the max timestamp of the first batch, -1 for an empty segment.
func (s *Segment) FirstTimestamp() int64 {
	if t := s.firstTime.Load(); t >= 0 || s.size.Load() < HeaderSize {
		return t
	}
	r, err := s.Acquire()
	if err != nil {
		return -1
	}
	defer r.Release()
	var head [HeaderSize]byte
	if _, err := r.file.ReadAt(head[:], 0); err != nil {
		return -1
	}
	_, info, err := s.format.Peek(head[:])
	if err != nil {
		return -1
	}
	s.firstTime.Store(info.MaxTimestamp)
	return info.MaxTimestamp
}

// ReadAt copies len(p) bytes of the log file at pos.
func (s *Segment) ReadAt(p []byte, pos int64) error {
	if pos+int64(len(p)) > s.size.Load() {
		return errors.New("segment: read past the data")
	}
	r, err := s.Acquire()
	if err != nil {
		return err
	}
	defer r.Release()
	_, err = r.file.ReadAt(p, pos)
	return err
}
