package logtool

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"

	"kaas/codec/batch"
	"kaas/engine/producer"
	"kaas/engine/segment"
)

// replay follows the producers of a log through its batches, as a recovery does, and compares with what snapshots and transaction
// indexes say.
type replay struct {
	p         *partition
	state     producer.State
	snapshots []int64 // to be compared, in order
	complete  bool    // what was before the first batch is known
	holes     bool    // offsets are missing: compaction may have taken batches
	ended     bool    // the last batch has gone by
	blind     bool    // a damaged batch was passed: what follows proves nothing
	aborted   []txnEntry
}

// begin makes the replay of a log with the segments of bases.
func (p *partition) begin(bases []int64) error {
	r := &replay{p: p, snapshots: p.sorted(segment.SnapshotSuffix)}
	p.replay = r
	if len(bases) == 0 {
		r.blind = true
		return nil
	}
	r.complete = bases[0] == 0
	if r.complete || !p.files[segment.SnapshotSuffix][bases[0]] {
		return nil
	}
	b, err := os.ReadFile(p.path(bases[0], segment.SnapshotSuffix))
	if err == nil {
		r.complete = r.state.Load(b, 0) == nil
	}
	return err
}

// batch takes the next batch of the log. sound: its CRC matches.
func (r *replay) batch(v batch.View, sound bool) error {
	if r.p.first >= 0 && v.BaseOffset() > r.p.next {
		r.holes = true
	}
	if err := r.until(v.BaseOffset()); err != nil {
		return err
	}
	r.blind = r.blind || !sound
	if int64(v.Count()) != int64(v.LastOffsetDelta())+1 {
		r.holes = true
	}
	if r.blind || !v.HasProducerID() {
		return nil
	}
	id, epoch := v.ProducerID(), v.ProducerEpoch()
	if !v.IsControl() {
		r.state.Append(id, epoch, v.BaseSequence(), v.LastOffsetDelta(), v.LastOffset(), v.MaxTimestamp(), 0, v.IsTransactional())
		return nil
	}
	m, ok := batch.ReadMarker(v)
	if !ok {
		return nil
	}
	first := r.state.Marker(id, epoch, -1, v.MaxTimestamp(), 0)
	if first < 0 || m.Type != batch.ControlAbort {
		return nil
	}
	e := txnEntry{id, first, v.BaseOffset(), v.BaseOffset() + 1}
	stable := int64(math.MaxInt64)
	r.state.Open(func(_, first int64) { stable = min(stable, first) })
	if stable != math.MaxInt64 {
		e.lastStable = stable
	}
	r.aborted = append(r.aborted, e)
	return nil
}

// segmentEnd compares the aborted transactions of a segment with those that its index has.
func (r *replay) segmentEnd(path string, index []txnEntry, limit int64) {
	has := map[int64]txnEntry{}
	for _, e := range index {
		has[e.last] = e
	}
	missing := 0
	for _, want := range r.aborted {
		e, ok := has[want.last]
		switch {
		case !ok && r.p.behind(limit):
			missing++
		case !ok:
			r.p.tell(&Problem{path, int64(len(index) * txnWidth), fmt.Sprintf("aborted transaction of producer %d, offsets %s, is missing", want.producerID, span(want.first, want.last))})
		case e.producerID != want.producerID: // there is no marker of that one, which was told
		case e.first != want.first && (r.complete || want.first < e.first):
			r.p.tell(&Problem{path, 0, fmt.Sprintf("aborted transaction of producer %d at offset %d begins at %d; the log says %d", e.producerID, e.last, e.first, want.first)})
		case e.lastStable != want.lastStable && r.complete && !r.holes:
			r.p.tell(&Problem{path, 0, fmt.Sprintf("last stable offset %d after the aborted transaction at offset %d; the log says %d", e.lastStable, e.last, want.lastStable)})
		}
	}
	if missing > 0 {
		r.p.note(path, fmt.Sprintf("%d aborted transactions of the log are not in it; the next start finds them", missing))
	}
	r.aborted = nil
}

// end compares what is left once all batches have gone by.
func (r *replay) end() error {
	r.ended = true
	return r.until(math.MaxInt64)
}

// until compares the snapshots up to offset with the producers so far.
func (r *replay) until(offset int64) error {
	for len(r.snapshots) > 0 && r.snapshots[0] <= offset {
		at := r.snapshots[0]
		r.snapshots = r.snapshots[1:]
		if err := r.snapshot(at); err != nil {
			return err
		}
	}
	return nil
}

// snapshot checks the snapshot at an offset, all batches before which have gone by.
func (r *replay) snapshot(at int64) error {
	p, path := r.p, r.p.path(at, segment.SnapshotSuffix)
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	list, problem := producers(path, b)
	if problem != nil {
		p.tell(problem)
		return nil
	}
	tell := func(format string, args ...any) { p.tell(&Problem{path, 0, fmt.Sprintf(format, args...)}) }
	future := r.ended && p.first >= 0 && at > p.end
	if future {
		tell("snapshot of offset %d, but the log ends at %d", at, p.end)
	}
	for _, e := range list {
		if e.last != nil && e.last.LastOffset >= at {
			tell("producer %d wrote offset %d, after the snapshot's %d", e.id, e.last.LastOffset, at)
			future = true
		}
		if e.state.TxnFirst >= at {
			tell("transaction of producer %d begins at %d, after the snapshot's %d", e.id, e.state.TxnFirst, at)
			future = true
		}
	}
	if !future && !r.blind && p.first >= 0 && p.first < at {
		r.compare(path, list, tell)
	}
	return nil
}

// compare judges the producers of a snapshot by those of the log.
func (r *replay) compare(path string, list []producerEntry, tell func(format string, args ...any)) {
	type fact struct {
		e    producer.Entry
		last *producer.Batch
	}
	log := map[int64]fact{}
	r.state.Each(func(id int64, e *producer.Entry, last *producer.Batch) { log[id] = fact{*e, last} })
	all := r.complete && !r.holes // the log has every batch that counts
	for _, s := range list {
		l, ok := log[s.id]
		delete(log, s.id)
		last := int64(-1)
		if s.last != nil {
			last = s.last.LastOffset
		}
		switch {
		case !ok && all && last >= 0:
			tell("producer %d wrote offset %d; no batch of the log is its", s.id, last)
		case !ok:
		case l.last != nil && last < l.last.LastOffset, l.last != nil && all && last != l.last.LastOffset, l.last == nil && all && last >= 0:
			tell("last offset of producer %d is %d; the log says %d", s.id, last, offsetOf(l.last))
		case l.last != nil && last == l.last.LastOffset && (s.last.LastSequence != l.last.LastSequence || s.last.Delta != l.last.Delta):
			tell("last sequence of producer %d is %d, of a batch of %d; the log says %d and %d", s.id, s.last.LastSequence, s.last.Delta+1, l.last.LastSequence, l.last.Delta+1)
		case all && s.state.Epoch != l.e.Epoch:
			tell("epoch of producer %d is %d; the log says %d", s.id, s.state.Epoch, l.e.Epoch)
		case r.complete && l.e.TxnFirst >= 0 && s.state.TxnFirst != l.e.TxnFirst, all && s.state.TxnFirst != l.e.TxnFirst:
			tell("open transaction of producer %d begins at %d; the log says %d", s.id, s.state.TxnFirst, l.e.TxnFirst)
		}
	}
	gone := 0
	for _, id := range slices.Sorted(maps.Keys(log)) {
		if l := log[id]; l.e.TxnFirst >= 0 {
			tell("producer %d, with an open transaction from offset %d, is missing", id, l.e.TxnFirst)
		} else {
			gone++
		}
	}
	if gone > 0 {
		r.p.note(path, fmt.Sprintf("%d producers of the log are not in it: they had expired, or are missing", gone))
	}
}

func offsetOf(b *producer.Batch) int64 {
	if b == nil {
		return -1
	}
	return b.LastOffset
}
