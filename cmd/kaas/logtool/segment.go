package logtool

import (
	"errors"
	"fmt"
	"io"
	"math"
	"sort"

	"kaas/codec/batch"
	"kaas/engine/segment"
)

// segmentCheck is the check of one segment.
type segmentCheck struct {
	*partition
	base, limit int64 // first offset that may be in it, and the next segment's; -1 for the last one
	path        string
	any         bool // a batch was seen
	reached     bool // a batch lies in the next segment's offsets, which is told once
	indexes     *indexCheck
	inf         *batch.Inflater
}

func (p *partition) segment(base, limit int64) error {
	s := &segmentCheck{partition: p, base: base, limit: limit, path: p.path(base, segment.LogSuffix)}
	r, closeFile, err := openBatches(s.path)
	if err != nil {
		return err
	}
	defer closeFile()
	if s.indexes, err = p.openIndexes(base); err != nil {
		return err
	}
	damaged, read := false, int64(0)
	p.Segments++
	for {
		v, pos, err := r.next()
		var problem *Problem
		if errors.As(err, &problem) {
			damaged, p.replay.blind = true, true
			if limit < 0 {
				p.doubt(problem)
			} else {
				p.tell(problem)
			}
			break
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if err := s.batch(v, pos); err != nil {
			return err
		}
		if told := r.pos - read; told >= readWindow && p.read != nil {
			p.read(told)
			read = r.pos
		}
	}
	if r.zero > 0 && limit >= 0 {
		p.note(s.path, fmt.Sprintf("%d bytes of zeros after the last batch of a segment that is not the last one", r.zero))
	}
	if !damaged { // otherwise what is left in the indexes may be about what is damaged
		s.indexes.end()
		p.replay.segmentEnd(s.indexes.txnPath, s.indexes.allTxns, limit)
	}
	if p.read != nil {
		p.read(r.size - read)
	}
	return nil
}

func (s *segmentCheck) wrong(pos int64, format string, args ...any) {
	s.tell(&Problem{s.path, pos, fmt.Sprintf(format, args...)})
}

// batch checks one batch and remembers it.
func (s *segmentCheck) batch(v batch.View, pos int64) error {
	s.Batches++
	s.Records += int64(v.Count())
	s.Bytes += int64(v.Size())
	base, last := v.BaseOffset(), v.LastOffset()
	sound := v.CheckCRC()
	if !sound {
		s.wrong(pos, "batch of offsets %s: CRC does not match", span(base, last))
	}
	if !s.any && base < s.base {
		s.wrong(pos, "offset %d in the segment of %d", base, s.base)
	}
	if s.first >= 0 && base < s.next {
		s.wrong(pos, "offset %d after %d", base, s.next-1)
	}
	if s.limit >= 0 && last >= s.limit && !s.reached {
		s.reached = true
		s.wrong(pos, "offset %d reaches into the next segment, which begins at %d", last, s.limit)
	}
	if last-s.base > math.MaxInt32 || pos > math.MaxInt32 {
		s.wrong(pos, "offset %d is out of reach of the segment's index", last)
	}
	if n := int64(v.Count()); n < 0 || n > int64(v.LastOffsetDelta())+1 {
		s.wrong(pos, "%d records in offsets %s", n, span(base, last))
	}
	if sound && s.records {
		s.inside(v, pos)
	}
	s.checkEpoch(v, pos)
	s.indexes.batch(v, pos, sound)
	err := s.replay.batch(v, sound)
	s.any = true
	if s.first < 0 {
		s.first = base
	}
	s.next, s.end = last+1, max(s.end, last+1)
	return err
}

func (s *segmentCheck) checkEpoch(v batch.View, pos int64) {
	epoch := v.PartitionLeaderEpoch()
	if epoch < s.epoch {
		s.wrong(pos, "leader epoch %d after %d", epoch, s.epoch)
		return
	}
	s.epoch = epoch
	i := sort.Search(len(s.epochs), func(i int) bool { return s.epochs[i].epoch >= epoch })
	// The first entry moves up with the log start: batches before it may still be there.
	switch found := i < len(s.epochs) && s.epochs[i].epoch == epoch; {
	case len(s.epochs) == 0 || s.behind(s.limit):
	case !found && !s.lacks[epoch]:
		s.lacks[epoch] = true
		s.wrong(pos, "offset %d has leader epoch %d, which %s lacks", v.BaseOffset(), epoch, epochsName)
	case !found:
	case i+1 < len(s.epochs) && s.epochs[i+1].start <= v.LastOffset():
		s.wrong(pos, "offset %d has leader epoch %d, but epoch %d begins at %d by %s", v.LastOffset(), epoch, s.epochs[i+1].epoch, s.epochs[i+1].start, epochsName)
	}
	if i > 0 && i < len(s.epochs) && s.epochs[i].epoch == epoch && s.epochs[i].start > v.BaseOffset() {
		s.wrong(pos, "offset %d has leader epoch %d, which begins at %d by %s", v.BaseOffset(), epoch, s.epochs[i].start, epochsName)
	}
}

// inside reads every record of a batch.
func (s *segmentCheck) inside(v batch.View, pos int64) {
	if s.inf == nil {
		s.inf = batch.NewInflater(inflateMax)
	}
	var c batch.Cursor
	if err := c.Open(v, s.inf); err != nil {
		s.wrong(pos, "%v", err)
		return
	}
	prev := int32(-1)
	for c.Next() {
		if d := c.OffsetDelta(); d <= prev || d > v.LastOffsetDelta() {
			s.wrong(pos, "record %d of the batch: offset %d after %d, the batch ends at %d", c.Index(), c.Offset(), v.BaseOffset()+int64(prev), v.LastOffset())
		}
		prev = max(prev, c.OffsetDelta())
	}
	if err := c.Err(); err != nil {
		s.wrong(pos, "record %d of the batch: %v", c.Index()+1, err)
	}
}
