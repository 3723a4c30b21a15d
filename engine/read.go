package engine

import (
	"encoding/base64"
	"errors"
	"io/fs"
	"sort"

	"kaas/engine/segment"
)

// Isolation says how far a reader may see.
type Isolation int8

const (
	ReadUncommitted Isolation = iota // below the high watermark
	ReadCommitted                    // below the last stable offset
)

// FileRef keeps the file of a Slice open.
type FileRef = segment.FileRef

// Slice is a range of a log file, for sendfile or pread. Ref.Release gives it back; with Len 0 there is nothing to read and
// Ref is nil.
type Slice struct {
	FD          int
	Pos         int64
	Len         int
	Ref         *FileRef
	FirstOffset int64 // base offset of the first batch
	// Lag is how far before the end of its segment the slice begins, in bytes, and AppendedMs the clock of the last append to that: a slice with
	// little lag behind a late append is in the page cache. What another process appended has a lag of MaxInt64, what is in memory one of 0.
	Lag, AppendedMs int64
	// Upper is an offset above every batch in the slice.
	Upper int64
	// Aborted are the aborted transactions that overlap [the offset asked for, Upper); only under ReadCommitted.
	Aborted []AbortedTxn
}

// Read finds the batch that contains offset, or the first after it, and what follows in the same segment: at most max
// bytes, never past the high watermark or the last stable offset. The last batch may be cut, as Apache does. With
// minOneBatch the first batch is whole even when it is larger than max. Errors: ErrOffsetOutOfRange below log start or above
// log end, ErrDeleted, *CorruptError. It allocates nothing when the file is open and the index in memory.
func (l *Log) Read(offset int64, max int, minOneBatch bool, iso Isolation) (Slice, error) {
	return l.readTrying(offset, max, minOneBatch, iso, false)
}

// ReadCached is Read for who must not wait for the disk: ErrCold when the place of the slice cannot be told from what is in memory. The slice
// itself may be on the disk only.
func (l *Log) ReadCached(offset int64, max int, minOneBatch bool, iso Isolation) (Slice, error) {
	return l.readTrying(offset, max, minOneBatch, iso, true)
}

// ErrCold says that an answer needs the disk.
var ErrCold = segment.ErrCold

func (l *Log) readTrying(offset int64, max int, minOneBatch bool, iso Isolation, cached bool) (Slice, error) {
	if err := l.readable(); err != nil {
		return Slice{}, err
	}
	for try := 0; ; try++ {
		before := l.segs.Load()
		s, err := l.read(offset, max, minOneBatch, iso, cached)
		if s.Len > 0 || try == readTries || l.segs.Load() == before {
			return s, err
		}
		// Retention or compaction took the segment between look-up and open, or what was below the high watermark as it was.
	}
}

// readTries bounds how often a reader is overtaken by changes of the list of segments.
const readTries = 100

// readable loads the log if need be. A log that is offline stays readable.
func (l *Log) readable() error {
	if f := l.failed.Load(); f != nil && (f.err == ErrDeleted || f.err == ErrClosed) {
		return f.err
	}
	if l.loaded.Load() {
		return nil
	}
	return l.Load()
}

func (l *Log) read(offset int64, max int, minOneBatch bool, iso Isolation, cached bool) (Slice, error) {
	m := l.pub.read()
	if offset < m.start || offset > m.end.offset {
		return Slice{}, ErrOffsetOutOfRange
	}
	upper := m.hw.offset
	if iso == ReadCommitted {
		upper = m.lso
	}
	if offset >= upper {
		return Slice{}, nil
	}
	segs := *l.segs.Load()
	for i := find(segs, offset); i < len(segs) && segs[i].Base() < upper; i++ {
		p, err := locate(segs[i], offset, cached)
		if err == segment.ErrEnd {
			continue // a gap at the end of the segment
		}
		if err != nil {
			return Slice{}, err
		}
		end, last, err := l.readEnd(segs, i, m, upper, cached)
		if err != nil {
			return Slice{}, err
		}
		if cached && !segs[i].Opened() {
			return Slice{}, ErrCold
		}
		slice, err := cut(segs[i], p, end, max, minOneBatch, last)
		if l.e.cfg.Storage == Memory {
			slice.Lag = 0
		}
		if err == nil && slice.Len > 0 && iso == ReadCommitted {
			slice.Aborted = l.AbortedIn(nil, offset, last)
		}
		return slice, err
	}
	return Slice{}, nil
}

func locate(s *segment.Segment, offset int64, cached bool) (segment.Position, error) {
	if cached {
		return s.LocateCached(offset)
	}
	return s.Locate(offset)
}

// find is the index of the segment whose range has offset: the last with a base not above it, or the first.
func find(segs []*segment.Segment, offset int64) int {
	lo, hi := 0, len(segs)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); segs[mid].Base() <= offset {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return max(lo-1, 0)
}

// readEnd is the position in segment i at which a reader limited to offsets below upper stops, and the offset there.
func (l *Log) readEnd(segs []*segment.Segment, i int, m mark, upper int64, cached bool) (pos, offset int64, err error) {
	s := segs[i]
	if i+1 < len(segs) && segs[i+1].Base() <= upper {
		return s.Size(), segs[i+1].Base(), nil
	}
	if upper == m.hw.offset && s.Base() == m.hw.seg && i == len(segs)-1 { // one that ended since may have been compacted
		return m.hw.pos, upper, nil
	}
	p, err := locate(s, upper, cached)
	if err == segment.ErrEnd {
		return s.Size(), upper, nil
	}
	return p.Pos, upper, err
}

func cut(s *segment.Segment, p segment.Position, end int64, max int, minOneBatch bool, last int64) (Slice, error) {
	n := end - p.Pos
	if n <= 0 {
		return Slice{}, nil
	}
	limit := int64(max)
	if minOneBatch && limit < int64(p.Size) {
		limit = int64(p.Size)
	}
	if n > limit {
		n = limit
	}
	if n <= 0 {
		return Slice{}, nil
	}
	ref, err := s.Acquire()
	if err != nil {
		return Slice{}, err
	}
	return Slice{FD: ref.File().FD(), Pos: p.Pos, Len: int(n), Ref: ref, Lag: s.Lag(p.Pos), AppendedMs: s.AppendedMs(), FirstOffset: p.Base, Upper: last}, nil
}

// ReadBytes reads what Read finds into p, for readers that need the bytes in memory: len(p) is max. It returns how many
// bytes, and the base offset of the first batch. A first batch that is larger than p is cut.
func (l *Log) ReadBytes(p []byte, offset int64, iso Isolation) (n int, first int64, err error) {
	s, err := l.Read(offset, len(p), false, iso)
	if err != nil || s.Len == 0 {
		return 0, 0, err
	}
	defer s.Ref.Release()
	n, err = s.Ref.File().ReadAt(p[:s.Len], s.Pos)
	return n, s.FirstOffset, err
}

// AbortedTxn is an aborted transaction, for readers with ReadCommitted.
type AbortedTxn = segment.AbortedTxn

// AbortedIn appends to out the aborted transactions that overlap [from, to).
func (l *Log) AbortedIn(out []AbortedTxn, from, to int64) []AbortedTxn {
	segs := l.segs.Load()
	if segs == nil {
		return out
	}
	for i := find(*segs, from); i < len(*segs); i++ {
		var done bool
		if out, done = (*segs)[i].Aborted(out, from, to); done {
			break
		}
	}
	return out
}

// OffsetForTime finds the first record with timestamp ts (milliseconds) or later that is below the high watermark. It may
// block and decompress.
func (l *Log) OffsetForTime(ts int64) (offset, timestamp int64, epoch int32, found bool, err error) {
	if err := l.readable(); err != nil {
		return 0, 0, 0, false, err
	}
	for try := 0; ; try++ {
		segs := l.segs.Load()
		offset, timestamp, epoch, found, err = l.offsetForTime(*segs, ts)
		if err == nil || try == readTries || l.segs.Load() == segs {
			return offset, timestamp, epoch, found, err
		}
	}
}

func (l *Log) offsetForTime(segs []*segment.Segment, ts int64) (offset, timestamp int64, epoch int32, found bool, err error) {
	m := l.pub.read()
	for _, s := range segs {
		if s.Next() <= m.start {
			continue
		}
		if t, _, ok := s.MaxTimestamp(); ok && t < ts {
			continue
		}
		offset, timestamp, epoch, found, err = s.OffsetForTime(ts, m.start)
		if errors.Is(err, fs.ErrNotExist) && s.Base() < l.pub.read().start {
			continue
		}
		if err != nil || found {
			return offset, timestamp, epoch, found && offset < m.hw.offset, err
		}
	}
	return 0, 0, 0, false, nil
}

// MaxTimestamp is the greatest timestamp of the log, the last offset of the batch that has it (Apache's answer to
// ListOffsets -3), and its leader epoch; found is false for an empty log. It may block.
func (l *Log) MaxTimestamp() (offset, timestamp int64, epoch int32, found bool, err error) {
	if err := l.readable(); err != nil {
		return 0, 0, 0, false, err
	}
	offset, timestamp, epoch = -1, -1, -1
	for _, s := range *l.segs.Load() {
		if t, at, ok := s.MaxTimestamp(); ok && t > timestamp {
			offset, timestamp, found = at, t, true
		}
	}
	if found {
		epoch = l.st.epochs.at(offset)
	}
	return offset, timestamp, epoch, found, nil
}

// EpochAt is the leader epoch of the batch at offset, -1 if the log does not say.
func (l *Log) EpochAt(offset int64) int32 {
	if l.readable() != nil {
		return -1
	}
	return l.st.epochs.at(offset)
}

// EndOffsetForEpoch is what OffsetForLeaderEpoch answers: the greatest epoch known that is not above the one asked for, and
// the offset at which it ends; (-1, -1) for an epoch below 0 or above the latest.
func (l *Log) EndOffsetForEpoch(epoch int32) (foundEpoch int32, end int64) {
	if l.readable() != nil {
		return -1, -1
	}
	return l.st.epochs.endOf(epoch, l.pub.read().end.offset)
}

// SegmentInfo describes a segment: its base offset, its data in bytes, and when it was last appended to (milliseconds; after
// a restart its greatest record timestamp).
type SegmentInfo struct {
	BaseOffset, Size, ModifiedMs int64
}

// Segments lists the log's segments in order; none if the log is not loaded. The last one is appended to.
func (l *Log) Segments() []SegmentInfo {
	segs := l.segs.Load()
	if segs == nil {
		return nil
	}
	out := make([]SegmentInfo, len(*segs))
	for i, s := range *segs {
		out[i] = SegmentInfo{BaseOffset: s.Base(), Size: s.Size(), ModifiedMs: s.ModifiedMs()}
	}
	return out
}

func sortInt64(v []int64) { sort.Slice(v, func(i, j int) bool { return v[i] < v[j] }) }

// topicID is Kafka's text form of a topic id.
func topicID(id [16]byte) string { return base64.RawURLEncoding.EncodeToString(id[:]) }
