package engine

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"kaas/engine/producer"
)

// step is one thing that the driver does. Bounds of the model move before the engine is called when they only allow more, and
// after it when they promise.
func (w *world) step() {
	w.update(func() { w.now = w.now.Add(time.Duration(w.rng.IntN(2000)) * time.Millisecond) })
	switch n := w.rng.IntN(100); {
	case n < 45:
		w.append()
	case n < 60:
		w.burst()
	case n < 70:
		w.await(w.pick())
	case n < 78:
		w.deleteRecords()
	case n < 83:
		w.maintain()
	case n < 88:
		w.compact()
	case n < 92:
		w.remove()
	default:
		w.look()
	}
	if w.rng.IntN(10) < 7 {
		w.settle()
	}
}

// log returns a log, made if there is none in its place.
func (w *world) log() (*Log, *mlog) {
	i, l, m := w.pick()
	if l != nil {
		return l, m
	}
	cfg := w.config()
	w.update(func() {
		m.recreate(byte(w.life), w.rng, cfg)
		w.trace = append(w.trace, "create "+m.name())
	})
	s := m.spec(int32(2 * w.life))
	s.New = true
	l = w.e.OpenLog(s)
	w.update(func() { w.logs[i] = l })
	return l, m
}

// burst appends to several logs before any of it is synced.
func (w *world) burst() {
	w.gate.Lock()
	defer w.gate.Unlock()
	for range 2 + w.rng.IntN(5) {
		w.append()
	}
}

// planned is an entry and what is to become of it.
type planned struct {
	entry Entry
	batch mbatch // as it will be stored; data nil when it is not stored
	dup   bool
	base  int64
	err   error
}

// plan draws a batch that fits behind the state of the producers, or one that does not.
func (w *world) plan(st *want, cfg *LogConfig, end int64, epoch int32) planned {
	s := spec{n: 1 + w.rng.IntN(4), size: 40 + w.rng.IntN(300), ts: w.now.UnixMilli() + int64(w.rng.IntN(5000)) - 2500, tag: byte(w.rng.Uint32())}
	p := planned{base: end}
	kind := w.rng.IntN(10)
	switch s.pid = int64(1 + w.rng.IntN(2)); {
	case kind < 3:
		s.pid = 0
	case kind < 8:
		if kind >= 5 {
			s.pid, s.txn = s.pid+10, true
		}
		w.sequence(st, &s, &p)
	default:
		s.pid += 10
		if pr, ok := st.producers[s.pid]; ok && pr.txnFirst >= 0 {
			s.control, s.commit, s.epoch, s.n = true, w.rng.IntN(2) == 0, pr.epoch, 1
		} else {
			s.pid = 0
		}
	}
	if cfg.Compact && !s.control && !p.dup {
		s.keys = randomKeyed(w.rng)
	}
	p.entry = batch(s)
	if p.err == nil && !p.dup {
		stored := batch(s)
		stored.Info.BaseOffset, stored.Info.LeaderEpoch, stored.Info.Size = end, epoch, len(stored.Data)
		testFormat{}.Stamp(stored.Data, end, epoch)
		p.batch = mbatch{stored.Data, stored.Info}
		st.produce(p.batch, 0)
	}
	return p
}

// sequence continues a producer, or repeats its last batch, or leaves a gap.
func (w *world) sequence(st *want, s *spec, p *planned) {
	pr, ok := st.producers[s.pid]
	if !ok {
		s.seq = int32(w.rng.IntN(3)) // anything begins
		return
	}
	s.epoch, s.seq = pr.epoch, 0
	known := pr.last != producer.Batch{}
	if known {
		s.seq = pr.last.LastSequence + 1
	}
	switch n := w.rng.IntN(10); {
	case n == 0 && known:
		s.n, s.seq = int(pr.last.Delta)+1, pr.last.LastSequence-pr.last.Delta
		p.dup, p.base = true, pr.last.FirstOffset()
	case n == 1:
		s.seq += 5
		p.err = ErrOutOfOrderSequence
	case n == 2:
		s.epoch, s.seq = s.epoch+1, 0
	}
}

func (w *world) append() {
	l, m := w.log()
	n := 1 + w.rng.IntN(3)
	if w.faulty {
		n = 1 // then it is known what comes after a failure
	}
	end := w.nextOffset(m)
	st := wanted(m.batches, 0, end)
	var plans []planned
	var entries []Entry
	var stored []mbatch
	for range n {
		p := w.plan(&st, m.cfg, end, l.spec.LeaderEpoch)
		plans, entries = append(plans, p), append(entries, p.entry)
		if p.batch.data != nil {
			stored = append(stored, p.batch)
			end = p.batch.info.LastOffset() + 1
		}
	}
	w.update(func() { m.batches = append(m.batches, stored...) })
	w.note("append %d batches to %s, end %d", len(stored), m.name(), end)
	l.Append(entries)
	for i := range entries {
		en, p := &entries[i], &plans[i]
		if errors.Is(en.Err, ErrStorage) && w.allowed(en.Err) {
			w.update(func() { m.batches = m.batches[:len(m.batches)-len(stored)] })
			continue
		}
		if p.err == nil && en.Err != nil || !errors.Is(en.Err, p.err) || en.Duplicate != p.dup || p.err == nil && en.BaseOffset != p.base {
			w.fail("append to %s: entry %d has offset %d, duplicate %v, %v; want %d, %v, %v", m.name(), i, en.BaseOffset, en.Duplicate, en.Err, p.base, p.dup, p.err)
		} else if p.batch.data != nil && !bytes.Equal(en.Data, p.batch.data) {
			w.fail("append to %s: entry %d is not stamped as expected", m.name(), i)
		}
	}
	w.offline(l, m)
}

// offline holds a log that failed to its word: no errors without a fault, and no acknowledgement after one.
func (w *world) offline(l *Log, m *mlog) {
	err := l.Err()
	if err == nil {
		return
	}
	if !w.faulty || w.faults.Fired() == 0 {
		w.fail("%s is offline: %v", m.name(), err)
		return
	}
	hw := l.Offsets().HighWatermark
	if m.frozen < 0 {
		w.update(func() { m.frozen = hw })
		w.note("%s is offline: %v", m.name(), err)
	}
	if hw != m.frozen {
		w.fail("%s is offline, and its high watermark went from %d to %d", m.name(), m.frozen, hw)
	}
	en := []Entry{batch(spec{})}
	if l.Append(en); !errors.Is(en[0].Err, ErrStorage) {
		w.fail("%s is offline, and an append got %v", m.name(), en[0].Err)
	}
	if !l.Loaded() || w.durability == PageCache {
		return
	}
	if done, err := l.AwaitDurable(hw+1, make(waiter, 1)); done || err == nil {
		w.fail("%s is offline, and a wait above its high watermark got %v, %v", m.name(), done, err)
	}
	have, _ := m.upTo(hw)
	st := wanted(have, l.Offsets().LogStart, hw)
	if m.cfg.Compact {
		return
	}
	if err := (&checker{}).data(l, &st); err != nil && w.faults.Fired() == 0 {
		w.fail("%s is offline, and what is durable cannot be read: %v", m.name(), err)
	}
}

// nextOffset is the offset of the next batch of a log. The bounds move under the hands of the driver: the disk's hook raises them.
func (w *world) nextOffset(m *mlog) (offset int64) {
	w.update(func() { offset = max(m.end(), m.start) })
	return offset
}

// await waits for all of a log to be durable.
func (w *world) await(_ int, l *Log, m *mlog) bool {
	if l == nil || l.Err() != nil {
		return false
	}
	end := w.nextOffset(m)
	wait := make(waiter, 1)
	done, err := l.AwaitDurable(end, wait)
	if !done && err == nil {
		err = <-wait
	}
	w.note("%s is durable up to %d: %v", m.name(), end, err)
	if err != nil {
		if !w.faulty || w.faults.Fired() == 0 {
			w.fail("wait for %s: %v", m.name(), err)
		}
		if l.Err() == nil {
			w.fail("wait for %s: %v, and it is not offline", m.name(), err)
		}
		w.offline(l, m)
		return false
	}
	if w.durability == GroupCommit {
		w.update(func() { m.durable = max(m.durable, end) })
	}
	return true
}

func (w *world) deleteRecords() {
	_, l, m := w.pick()
	if l == nil {
		return
	}
	o := l.Offsets()
	offset := o.LogStart + w.rng.Int64N(o.HighWatermark-o.LogStart+1)
	if w.rng.IntN(3) == 0 {
		offset = -1
	}
	w.update(func() {
		m.startMax = max(m.startMax, offset)
		if offset < 0 {
			m.startMax = m.end()
		}
		m.startMax = max(m.startMax, m.start)
	})
	start, err := l.DeleteRecords(offset)
	w.note("delete records of %s up to %d: %d %v", m.name(), offset, start, err)
	switch {
	case err != nil && !w.allowed(err):
		w.fail("DeleteRecords(%d) of %s: %v", offset, m.name(), err)
	case err == nil && (start < max(offset, o.LogStart) || start > m.startMax):
		w.fail("DeleteRecords(%d) of %s: %d", offset, m.name(), start)
	case err == nil:
		w.update(func() { m.start, m.startMax = start, start })
	}
}

// maintain lets retention run under other settings.
func (w *world) maintain() {
	if w.rng.IntN(2) == 0 {
		w.update(func() { w.now = w.now.Add(time.Minute) })
	}
	before := make([]Offsets, modelSlots)
	for i, l := range w.logs {
		if l == nil {
			continue
		}
		c := *w.model.logs[i].cfg
		c.RetentionMs, c.RetentionBytes = -1, -1
		switch w.rng.IntN(3) {
		case 0:
			c.RetentionMs = int64(1000 + w.rng.IntN(60_000))
		case 1:
			c.RetentionBytes = int64(w.rng.IntN(5000))
		}
		l.SetConfig(&c)
		before[i] = l.Offsets()
		w.update(func() {
			m := w.model.logs[i]
			m.cfg, m.startMax = &c, max(m.startMax, m.end())
		})
	}
	w.note("maintain")
	w.e.Maintain()
	for i, l := range w.logs {
		if l == nil {
			continue
		}
		m, start := w.model.logs[i], l.Offsets().LogStart
		if gone := w.retained(m, before[i].LogStart, start); gone != "" && !m.cfg.Compact {
			w.fail("retention of %s moved the start from %d to %d: %s", m.name(), before[i].LogStart, start, gone)
		}
		w.update(func() {
			if m.start = max(m.start, start); w.faults.Fired() == 0 {
				m.startMax = m.start
			}
		})
		w.offline(l, m)
	}
}

// retained says what is wrong with a new log start: what went was neither old nor too much, or too much was left.
func (w *world) retained(m *mlog, before, start int64) string {
	if start < before {
		return "it went back"
	}
	size := int64(0)
	for _, b := range m.batches {
		gone := b.info.LastOffset() < start
		switch {
		case gone && b.info.BaseOffset >= before && m.cfg.RetentionMs >= 0 && w.now.UnixMilli()-b.info.MaxTimestamp <= m.cfg.RetentionMs:
			return "a batch was not that old"
		case gone && b.info.BaseOffset >= before && m.cfg.RetentionMs < 0 && m.cfg.RetentionBytes < 0:
			return "nothing was to go"
		case !gone:
			size += int64(len(b.data))
		}
	}
	if m.cfg.RetentionBytes >= 0 && start > before && size < m.cfg.RetentionBytes {
		return "too little is left"
	}
	return ""
}

func (w *world) remove() {
	i, l, m := w.pick()
	if l == nil {
		return
	}
	w.update(func() {
		m.exists = false
		w.logs[i] = nil
		w.trace = append(w.trace, "remove "+m.name())
	})
	w.e.Remove(l)
	en := []Entry{batch(spec{})}
	if l.Append(en); !errors.Is(en[0].Err, ErrDeleted) {
		w.fail("append to %s, which was removed: %v", m.name(), en[0].Err)
	}
}

// look holds a running log against the model.
func (w *world) look() {
	i, l, m := w.pick()
	if !w.await(i, l, m) {
		return
	}
	o := l.Offsets()
	var start int64
	w.update(func() { start = m.start })
	if end := w.nextOffset(m); o.LogEnd != end || o.HighWatermark != end || o.LogStart != start {
		if w.durability == GroupCommit || o.LogEnd != end || o.LogStart != start {
			w.fail("%s has %+v, want start %d, end %d", m.name(), o, start, end)
			return
		}
	}
	st := wanted(slices.Clone(m.batches), start, o.LogEnd)
	if err := (&checker{rng: w.rng}).state(l, &st, true); err != nil && !(w.faulty && w.faults.Fired() > 0) {
		w.fail("%s: %v", m.name(), err)
	}
}
