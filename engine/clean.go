package engine

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"kaas/engine/compact"
	"kaas/engine/producer"
	"kaas/engine/segment"
)

// toClean is a log that has something to compact.
type toClean struct {
	log        *Log
	segs       []*segment.Segment // from the log's first up to end
	start, end int64              // what is dirty
	clean      int64              // bytes before start
	dirty      int64              // bytes after it
	due        bool               // by max.compaction.lag.ms
}

// ratio is the dirty share, as min.cleanable.dirty.ratio means it.
func (t *toClean) ratio() float64 { return float64(t.dirty) / float64(t.clean+t.dirty) }

// pick chooses the log with the largest dirty share among those that are due, and marks it busy.
func (c *cleaner) pick() *toClean {
	logs := c.candidates()
	now := c.e.cfg.Clock().UnixMilli()
	var best *toClean
	for _, l := range logs {
		if c.e.closed.Load() {
			return nil
		}
		if l.Load() != nil {
			continue
		}
		t := c.judge(l, now)
		if t == nil || t.dirty == 0 || best != nil && best.ratio() >= t.ratio() {
			continue
		}
		if t.due || t.ratio() > l.cfg.Load().MinCleanableRatio {
			best = t
		}
	}
	if best == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy[best.log] || c.halves[best.log] != nil {
		return nil // another thread took it meanwhile
	}
	c.busy[best.log] = true
	return best
}

// candidates are the logs to be looked at. Logs that nobody has used yet are loaded a few at a time; one that may be dirty is
// for Recover.
func (c *cleaner) candidates() (logs []*Log) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	loads := 0
	for l := range c.e.logs {
		if !l.cfg.Load().Compact || l.Err() != nil || c.busy[l] || c.bad[l] || c.halves[l] != nil {
			continue
		}
		if !l.Loaded() {
			if loads == loadsPerPass || c.e.journal.dirty(l.name()) {
				continue
			}
			loads++
		}
		logs = append(logs, l)
	}
	return logs
}

// judge finds what of a log is dirty and may be cleaned (Kafka's LogCleanerManager.cleanableOffsets and LogToClean); nil when
// it has no sealed segment.
func (c *cleaner) judge(l *Log, now int64) *toClean {
	cfg, m, segs := l.cfg.Load(), l.pub.read(), *l.segs.Load()
	if len(segs) < 2 {
		return nil
	}
	start, ok := c.firstDirty(l)
	if !ok || start < m.start || start > m.end.offset {
		start = m.start
	}
	sealed := segs[:len(segs)-1]
	bound := min(m.lso, l.sealedEnd(segs[len(segs)-1].Base()))
	from := find(segs, start)
	if cfg.MinCompactionLagMs > 0 {
		for _, s := range sealed[min(from, len(sealed)):] {
			if s.NewestMs() > now-cfg.MinCompactionLagMs {
				bound = min(bound, s.Base())
				break
			}
		}
	}
	n := 0 // whole segments only
	for n < len(sealed) && segs[n+1].Base() <= bound {
		n++
	}
	t := &toClean{log: l, segs: sealed[:n], start: start, end: segs[n].Base()}
	for i, s := range t.segs {
		if s.Base() < start {
			t.clean += s.Size()
		}
		if i >= from {
			t.dirty += s.Size()
			if first := s.FirstMs(); first > 0 && cfg.MaxCompactionLagMs > 0 && first < now-cfg.MaxCompactionLagMs {
				t.due = true
			}
		}
	}
	if start >= t.end {
		t.dirty = 0
	}
	return t
}

// sealedEnd is the offset up to which segments are sealed for good, whatever a power cut takes: only those may get holes.
func (l *Log) sealedEnd(active int64) int64 {
	if j := l.e.journal.get(l.name()); j.dirty {
		return min(j.recovery, active)
	}
	return active
}

// cleanLog compacts a log: keys into a map, then group by group a copy without what the map says is old, swapped in.
func (c *cleaner) cleanLog(t *toClean) error {
	l := t.log
	began := time.Now()
	if err := c.room(); err != nil {
		return err
	}
	if err := l.e.journal.sync(); err != nil { // what sealedEnd said
		return err
	}
	if err := l.syncEnds(); err != nil {
		return err
	}
	j := c.job(t)
	var end int64
	if err := l.contained(func() (err error) { end, err = j.Index(); return }); err != nil {
		return err
	}
	copier := j.Copier()
	for _, g := range j.Groups() {
		next := t.end
		if at := slices.Index(t.segs, g[len(g)-1]); at+1 < len(t.segs) {
			next = t.segs[at+1].Base()
		}
		if err := l.cleanGroup(copier, g, next); err != nil {
			return err
		}
	}
	c.setDirty(l, end)
	l.e.cfg.Logger.Info("compacted a log", "log", l.name(), "from", t.start, "to", end, "keys", j.Map.Len(),
		"bytesBefore", copier.Stats.BytesRead, "bytesAfter", copier.Stats.BytesWritten, "took", time.Since(began))
	return nil
}

// syncEnds makes durable how the transactions that a clean takes for committed or aborted ended: their markers may be behind what is sealed, and after
// a power cut without them their records would be wanted that the clean has taken out. Under GroupCommit they are durable when the LSO passes.
func (l *Log) syncEnds() error {
	if l.e.cfg.Durability == GroupCommit || l.e.cfg.Storage == Memory {
		return nil
	}
	ended := false
	l.mu.Lock()
	l.st.producers.Each(func(_ int64, e *producer.Entry, _ *producer.Batch) { ended = ended || e.CoordinatorEpoch >= 0 })
	l.mu.Unlock()
	if ended {
		l.syncIdle()
	}
	return l.Err()
}

func (c *cleaner) job(t *toClean) *compact.Job {
	l := t.log
	c.mu.Lock()
	cleaner := c.cfg
	c.mu.Unlock()
	cleaner.setDefaults()
	dedupe, buffer := cleaner.share()
	cfg := l.cfg.Load()
	return &compact.Job{
		Batches: l.e.cfg.Format, Format: l.e.cfg.Records,
		Segments: t.segs, Start: t.start, End: t.end,
		Map:     compact.NewMap(dedupe, cleaner.LoadFactor, t.end-t.start),
		Aborted: func(from, to int64) []AbortedTxn { return l.AbortedIn(nil, from, to) },
		Last:    l.lastOfProducers(),
		NowMs:   l.e.cfg.Clock().UnixMilli(), RetentionMs: cfg.DeleteRetentionMs,
		MaxBytes: l.segmentBytes(cfg), MaxIndexBytes: cfg.SegmentIndexBytes, IndexInterval: cfg.IndexIntervalBytes,
		Buffer:   buffer,
		Throttle: func(n int) error { return c.pace(l, n) },
	}
}

// cleanSpare is how much compaction leaves free of the file system, or a sixteenth of a small one: appends need it.
const cleanSpare = 16 << 20

// room is an error (ENOSPC) if there is too little left to compact now.
func (c *cleaner) room() error {
	if c.e.cfg.Storage == Memory {
		return nil
	}
	s, err := c.e.cfg.FS.Space(c.e.cfg.Dir)
	if err == nil && s.Free < min(cleanSpare, s.Total/16) {
		err = fmt.Errorf("%d bytes of the file system are free: %w", s.Free, syscall.ENOSPC)
	}
	return err
}

// pace is called before n bytes are read or written.
func (c *cleaner) pace(l *Log, n int) error {
	if err := c.room(); err != nil {
		return err
	}
	return c.throttle(l, n)
}

// throttle waits until n more bytes may be read or written, or until the settings change: one who waits by a low rate would wait for hours
// after it was raised. It ends a clean when the log or the engine goes.
func (c *cleaner) throttle(l *Log, n int) error {
	c.mu.Lock()
	changed := c.changed
	c.mu.Unlock()
	for wait := c.rate.debt(n, time.Now()); ; wait -= throttleStep {
		if c.e.closed.Load() {
			return ErrClosed
		}
		if err := l.Err(); err != nil || wait <= 0 {
			return err
		}
		t := time.NewTimer(min(wait, throttleStep))
		select {
		case <-c.e.stop:
		case <-changed:
			wait = 0
		case <-t.C:
		}
		t.Stop()
	}
}

// throttleStep is how often a clean that is throttled looks whether it is still wanted.
const throttleStep = time.Second

// lastOfProducers says what the producers known now have in the log last.
func (l *Log) lastOfProducers() map[int64]compact.Last {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := make(map[int64]compact.Last, l.st.producers.Len())
	l.st.producers.Each(func(id int64, e *producer.Entry, b *producer.Batch) {
		r := compact.Last{Offset: -1, Epoch: e.Epoch}
		if b != nil {
			r.Offset = b.LastOffset
		}
		last[id] = r
	})
	return last
}

// cleanGroup makes one segment of a group and swaps it in, unless it would be the same. next is the base of the segment after it.
func (l *Log) cleanGroup(copier *compact.Copier, group []*segment.Segment, next int64) error {
	var cleaned *segment.Segment
	err := l.inDir(func() (err error) {
		cleaned, err = l.e.files.NewCleaned(l.e.cfg.Format, l.dir(), group[0].Base(), group[len(group)-1])
		return err
	})
	if err != nil {
		return err
	}
	changed := false
	err = l.contained(func() (err error) { changed, err = copier.Copy(group, next, cleaned); return })
	end := cleaned.Next()
	if err == nil && changed {
		if err = cleaned.Sync(); err == nil { // the long part without the lock
			err = l.inDir(func() error { return cleaned.Finish(next) })
		}
	}
	if err != nil || !changed {
		return errors.Join(err, l.abandon(cleaned))
	}
	return l.swap(group, cleaned, end)
}
