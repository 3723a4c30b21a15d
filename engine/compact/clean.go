package compact

import (
	"fmt"
	"math"

	"kaas/engine/segment"
)

// Format is what compaction needs to know of a batch, besides what a segment does. Implementations are safe for concurrent
// use, and never panic on bad input.
type Format interface {
	// Keys calls f for each record of a batch, in order, until it returns false. key is nil when the record has none, and is
	// valid during the call; tombstone says that it has no value. It may decompress.
	Keys(batch []byte, f func(offset int64, key []byte, tombstone bool) bool) error
	// Rebuild appends to dst what is left of a batch when only the records stay for which keep, asked with their place in the
	// batch in order, is true. Offsets, sequence numbers and codec stay. horizonMs, unless -1, is the delete horizon to enter.
	Rebuild(dst, batch []byte, keep func(index int32) bool, horizonMs int64) ([]byte, error)
}

// Last is what a producer has left last in the log: a data batch, or, when Offset is -1, a marker of its epoch.
type Last struct {
	Offset int64
	Epoch  int16
}

// Job is one clean of one log. Index comes first, then Clean for each of Groups.
type Job struct {
	Batches segment.Format
	Format  Format
	// Segments are the sealed segments from the log's first to the one before End, in order; End is the base of the next.
	Segments []*segment.Segment
	Start    int64 // first dirty offset
	End      int64 // first offset that may not be cleaned
	Map      *Map
	// Aborted are the aborted transactions that overlap [from, to), markers after that included.
	Aborted func(from, to int64) []segment.AbortedTxn
	Last    map[int64]Last // by producer

	NowMs, RetentionMs           int64 // delete.retention.ms
	MaxBytes                     int64 // of a segment
	MaxIndexBytes, IndexInterval int
	// Buffer is the size of the read and the write buffer each; larger batches make them grow.
	Buffer int
	// Throttle is called before n bytes are read or written; an error ends the clean.
	Throttle func(n int) error

	in  []byte
	end int64 // what Index found
}

// Stats count what a clean did.
type Stats struct {
	BytesRead, BytesWritten     int64
	RecordsRead, RecordsWritten int64
}

func (j *Job) buffers() {
	if j.in == nil {
		j.in = make([]byte, max(j.Buffer, segment.HeaderSize))
	}
}

// Index reads the dirty part into the map until that is full, and returns the offset up to which the log can be cleaned.
func (j *Job) Index() (end int64, err error) {
	j.buffers()
	t := newTxns(j.Batches)
	t.add(j.Aborted(j.Start, j.End))
	for i, s := range j.Segments {
		next := j.nextBase(i)
		if next <= j.Start {
			continue
		}
		full := false
		err := s.Batches(max(j.Start, s.Base()), &j.in, j.Throttle, func(info *segment.BatchInfo, data []byte) error {
			var err error
			if full, err = j.index(t, info, data); full {
				err = errFull
			}
			return err
		})
		if full {
			break
		}
		if err != nil {
			return 0, err
		}
		j.Map.reached(next - 1)
	}
	j.end = j.Map.latest + 1
	return j.end, nil
}

var errFull = fmt.Errorf("compact: map is full")

func (j *Job) nextBase(i int) int64 {
	if i+1 < len(j.Segments) {
		return j.Segments[i+1].Base()
	}
	return j.End
}

// index enters the keys of a batch; full is true when they did not all fit.
func (j *Job) index(t *txns, info *segment.BatchInfo, data []byte) (full bool, err error) {
	if !t.read(info, data) && !info.Control {
		err = j.Format.Keys(data, func(offset int64, key []byte, _ bool) bool {
			if key != nil && offset >= j.Start {
				full = !j.Map.put(key, offset)
			}
			return !full
		})
	}
	if err == nil && !full {
		j.Map.reached(info.LastOffset())
	}
	return full, err
}

// Groups are the runs of segments that become one each: as many as fit into a segment by their present sizes.
func (j *Job) Groups() (groups [][]*segment.Segment) {
	segs := j.Segments
	n := 0
	for n < len(segs) && segs[n].Base() < j.end {
		n++
	}
	for at := 0; at < n; {
		first := segs[at]
		size, index := first.Size(), first.IndexBytes()
		to := at + 1
		for ; to < n; to++ {
			s := segs[to]
			size += s.Size()
			index += s.IndexBytes()
			if size > j.MaxBytes || index > int64(j.MaxIndexBytes) || s.Size() > 0 && j.nextBase(to)-1-first.Base() > math.MaxInt32 {
				break
			}
		}
		groups = append(groups, segs[at:to])
		at = to
	}
	return groups
}

// Copier does the second pass. It follows transactions from group to group, so there is one for a clean, and the groups come
// in order.
type Copier struct {
	j    *Job
	txns *txns
	into *segment.Segment
	opt  segment.Options

	out     []byte
	infos   []segment.BatchInfo
	kept    []bool
	changed bool
	Stats   Stats
}

// Copier returns the second pass.
func (j *Job) Copier() *Copier {
	c := &Copier{j: j, txns: newTxns(j.Batches), out: make([]byte, 0, max(j.Buffer, segment.HeaderSize))}
	c.opt = segment.Options{IndexInterval: j.IndexInterval, MaxIndex: j.MaxIndexBytes, MaxBytes: j.MaxBytes}
	c.txns.ended = func(a segment.AbortedTxn) { c.into.AddAborted(a) }
	return c
}

// Copy writes what stays of a group into an empty segment. changed is false if that is all of it. next is the base of the
// segment after the group.
func (c *Copier) Copy(group []*segment.Segment, next int64, into *segment.Segment) (changed bool, err error) {
	c.j.buffers()
	c.into, c.changed = into, len(group) > 1
	c.out, c.infos = c.out[:0], c.infos[:0]
	for i, s := range group {
		end := next
		if i+1 < len(group) {
			end = group[i+1].Base()
		}
		c.txns.add(c.j.Aborted(s.Base(), end))
		if err := s.Batches(s.Base(), &c.j.in, c.j.Throttle, c.batch); err != nil {
			return false, err
		}
		c.Stats.BytesRead += s.Size()
	}
	return c.changed, c.flush()
}

// batch copies what stays of a batch.
func (c *Copier) batch(info *segment.BatchInfo, data []byte) error {
	j := c.j
	c.Stats.RecordsRead += int64(info.Count)
	discard := c.txns.read(info, data)
	none := discard
	if info.Control {
		// A marker goes when an earlier clean found it useless and delete.retention.ms has passed since.
		none = discard && info.DeleteHorizon && info.BaseTimestamp <= j.NowMs
	}
	keepEmpty := c.lastOfProducer(info)
	if none && !keepEmpty {
		c.changed = true
		return nil
	}
	kept, tombstones, err := c.choose(info, data, none)
	if err != nil {
		return err
	}
	if kept == 0 && !keepEmpty {
		c.changed = true
		return nil
	}
	c.Stats.RecordsWritten += int64(kept)
	horizon := int64(-1)
	if kept > 0 && (tombstones || discard && info.Control) && !info.DeleteHorizon {
		horizon = j.NowMs + j.RetentionMs
		if horizon < 0 {
			horizon = math.MaxInt64
		}
	}
	return c.put(info, data, kept, horizon)
}

// choose fills c.kept and counts.
func (c *Copier) choose(info *segment.BatchInfo, data []byte, none bool) (kept int32, tombstones bool, err error) {
	c.kept = c.kept[:0]
	switch {
	case none:
		return 0, false, nil
	case info.Control:
		return info.Count, false, nil
	}
	j := c.j
	past := info.DeleteHorizon && info.BaseTimestamp <= j.NowMs
	err = j.Format.Keys(data, func(offset int64, key []byte, tombstone bool) bool {
		keep := offset >= j.end
		if !keep && key != nil {
			keep = offset >= j.Map.get(key) && !(tombstone && past)
		}
		c.kept = append(c.kept, keep)
		if keep {
			kept++
			tombstones = tombstones || tombstone
		}
		return true
	})
	return kept, tombstones, err
}

// put adds a batch, or what is left of it, to what is to be written.
func (c *Copier) put(info *segment.BatchInfo, data []byte, kept int32, horizon int64) error {
	start := len(c.out)
	if kept == info.Count && horizon < 0 {
		c.out = append(c.out, data...)
	} else {
		var err error
		c.changed = true
		keep := func(i int32) bool { return kept > 0 && (info.Control || c.kept[i]) }
		if c.out, err = c.j.Format.Rebuild(c.out, data, keep, horizon); err != nil {
			return err
		}
	}
	size, got, err := c.j.Batches.Peek(c.out[start:])
	if err != nil {
		return err
	}
	if got.BaseOffset != info.BaseOffset || got.LastOffsetDelta != info.LastOffsetDelta || size != len(c.out)-start {
		panic(fmt.Sprintf("BUG: batch of offsets %d-%d rebuilt as %d-%d, %d bytes as %d", info.BaseOffset, info.LastOffset(), got.BaseOffset, got.LastOffset(), len(c.out)-start, size))
	}
	got.Size = size
	c.infos = append(c.infos, got)
	if len(c.out) >= c.j.Buffer {
		return c.flush()
	}
	return nil
}

func (c *Copier) flush() error {
	n := int64(len(c.out))
	if n == 0 {
		return nil
	}
	if c.into.Size()+n > math.MaxInt32 {
		return fmt.Errorf("compact: cleaned segment %d would exceed 2 GiB", c.into.Base())
	}
	if err := c.j.Throttle(int(n)); err != nil {
		return err
	}
	if err := c.into.Write([][]byte{c.out}, n, &c.opt); err != nil {
		return err
	}
	for i := range c.infos {
		c.into.Note(&c.infos[i], &c.opt)
	}
	c.Stats.BytesWritten += n
	c.out, c.infos = c.out[:0], c.infos[:0]
	return nil
}

// lastOfProducer reports that a batch has to stay for its sequence numbers, or, a marker, for its epoch.
func (c *Copier) lastOfProducer(info *segment.BatchInfo) bool {
	last, ok := c.j.Last[info.ProducerID]
	if info.ProducerID < 0 || !ok {
		return false
	}
	if last.Offset >= 0 {
		return info.LastOffset() == last.Offset
	}
	return info.Control && info.ProducerEpoch == last.Epoch
}
