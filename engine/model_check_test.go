package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"

	"kaas/engine/producer"
	"kaas/engine/segment"
	"kaas/engine/vfs"
	"kaas/engine/vfs/crashfs"
)

const modelDir = "/var/data"

// modelConfig has the logs of a start and of a close synced together, or each by itself.
func modelConfig(f vfs.FS, d Durability, now func() time.Time, together bool) Config {
	volumeMin := volumeSyncMin
	if together {
		volumeMin = 1
	}
	return Config{Dir: modelDir, Durability: d, Format: testFormat{}, Logger: quiet, FS: f, Clock: now, Records: keyedFormat{}, CommitThreads: 2, Workers: 2,
		RecoveryThreads: 1, Maintenance: time.Hour, sharedAfter: 1, CommitJournalBytes: 4 << 10, volumeMin: volumeMin}
}

// start opens an engine as a broker does, with the logs of the model's catalog.
func (m *model) start(cfg Config, epoch int32) (*Engine, []*Log, error) {
	e, err := Open(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("open: %w", err)
	}
	logs := make([]*Log, len(m.logs))
	var known []*Log
	names := map[string]bool{}
	for i, l := range m.logs {
		if l.exists {
			logs[i] = e.OpenLog(l.spec(epoch))
			known = append(known, logs[i])
			names[l.name()] = true
		}
	}
	e.RemoveStray(func(dir string) bool { return names[dir] })
	if err := e.Recover(context.Background(), known, nil); err != nil {
		return e, logs, fmt.Errorf("recover: %w", err)
	}
	for _, l := range known {
		if err := l.Load(); err != nil {
			return e, logs, fmt.Errorf("load %v: %w", l, err)
		}
	}
	return e, logs, nil
}

func (m *mlog) spec(epoch int32) LogSpec {
	return LogSpec{Topic: "t", Partition: m.slot, TopicID: m.id, LeaderEpoch: epoch, Config: m.cfg}
}

// checker holds what a crash left against the model.
type checker struct {
	model      *model
	durability Durability
	kill       bool // the process was killed, the power was there
	exact      bool // no crash came before: indexes have all entries
	epoch      int32
	now        time.Time
	rng        *rand.Rand
}

// image checks a disk that a crash left: it is started from, looked at, appended to, closed cleanly and looked at again.
func (c *checker) image(disk *crashfs.Disk) (err error) {
	cfg := modelConfig(disk, c.durability, func() time.Time { return c.now }, c.rng.IntN(2) == 0)
	e, logs, err := c.model.start(cfg, c.epoch)
	if e == nil {
		return err
	}
	defer func() {
		if cerr := e.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("close: %w", cerr)
		}
		if err == nil {
			err = c.closed(disk)
		}
	}()
	if err != nil {
		return err
	}
	for i, l := range logs {
		if l == nil {
			continue
		}
		if err := c.log(l, c.model.logs[i]); err != nil {
			return fmt.Errorf("%v: %w", l, err)
		}
		c.model.logs[i].found(l.Offsets())
	}
	if c.rng.IntN(4) == 0 { // what can be read is durable
		if err := c.again(disk.CrashAs(c.rng, crashfs.Cut{Sector: 512}), false); err != nil {
			return fmt.Errorf("after a power cut right after the start: %w", err)
		}
	}
	for i, l := range logs {
		if l == nil {
			continue
		}
		m := c.model.logs[i]
		if c.rng.IntN(2) == 0 {
			if err := c.goOn(l, m); err != nil {
				return err
			}
		}
		m.dirty = l.st.marked
	}
	return nil
}

// goOn appends to a log that was started, so that what a start left behind its end would show.
func (c *checker) goOn(l *Log, m *mlog) error {
	s := spec{n: 2, size: 30 + c.rng.IntN(100), ts: c.now.UnixMilli()}
	if m.cfg.Compact {
		s.keys = randomKeyed(c.rng)
	}
	en := []Entry{batch(s)}
	l.Append(en)
	if en[0].Err != nil || en[0].LastOffset != l.Offsets().LogEnd-1 {
		return fmt.Errorf("%v: append after the start: offset %d, %w", l, en[0].BaseOffset, en[0].Err)
	}
	m.batches = append(m.batches, mbatch{en[0].Data, en[0].Info})
	return nil
}

// again starts from a disk on which nothing may be lost that the model has.
func (c *checker) again(disk *crashfs.Disk, clean bool) error {
	cfg := modelConfig(disk, c.durability, func() time.Time { return c.now }, c.rng.IntN(2) == 0)
	e, logs, err := c.model.start(cfg, c.epoch+1)
	if e == nil {
		return err
	}
	defer e.Close()
	for i, l := range logs {
		if err != nil {
			return err
		}
		if l == nil {
			continue
		}
		if m := c.model.logs[i]; clean && l.Offsets().LogEnd != max(m.end(), m.start) {
			err = fmt.Errorf("%v: log end %d, was %d", l, l.Offsets().LogEnd, m.end())
		} else if err = c.log(l, m); err != nil {
			err = fmt.Errorf("%v: %w", l, err)
		}
	}
	return err
}

// log checks a log that was started.
func (c *checker) log(l *Log, m *mlog) error {
	o := l.Offsets()
	least := m.durable
	if c.kill {
		least = max(least, m.written)
	}
	// The log start is durable at once; under PageCache it may be above all data that is left.
	beyond := c.durability == PageCache && o.LogEnd == o.LogStart && o.LogEnd <= m.end() && o.LogEnd > least
	m.lost = m.lost || beyond
	have, border := m.upTo(o.LogEnd)
	switch {
	case l.Err() != nil:
		return fmt.Errorf("offline: %w", l.Err())
	case o.LogStart < m.start || o.LogStart > m.startMax:
		return fmt.Errorf("log start %d, want %d to %d", o.LogStart, m.start, m.startMax)
	case o.LogEnd < least && !beyond:
		return fmt.Errorf("log end %d: lost acknowledged records up to %d", o.LogEnd, least)
	case o.LogEnd > max(m.end(), m.startMax) || !border && !beyond:
		return fmt.Errorf("log end %d: records that nobody wrote, of %d", o.LogEnd, m.end())
	case o.HighWatermark != o.LogEnd:
		return fmt.Errorf("high watermark %d, log end %d", o.HighWatermark, o.LogEnd)
	}
	w := wanted(have, o.LogStart, o.LogEnd)
	// Under PageCache the marker of a transaction may be lost whose data was compacted by what it said.
	m.lost = m.lost || m.cfg.Compact && c.durability == PageCache && !c.kill && w.lso < w.end
	return c.state(l, &w, !m.lost)
}

// state compares a log with what it is to hold, up to its high watermark.
func (c *checker) state(l *Log, w *want, exact bool) error {
	compacted := l.Config().Compact
	if compacted {
		if err := c.compacted(l, w, exact); err != nil {
			return err
		}
	} else if err := errors.Join(c.data(l, w), c.find(l, w)); err != nil {
		return err
	}
	if !exact {
		return nil // lost batches had producers and transactions of which an older snapshot may know
	}
	if lso := l.Offsets().LastStable; lso != w.lso {
		return fmt.Errorf("last stable offset %d, want %d", lso, w.lso)
	}
	if got := l.AbortedIn(nil, w.start, w.end); !compacted && !slices.Equal(got, w.aborted) {
		return fmt.Errorf("aborted transactions %v, want %v", got, w.aborted)
	}
	return sameProducers(&l.st.producers, w.producers)
}

func sameProducers(s *producer.State, want map[int64]mproducer) error {
	got := map[int64]mproducer{}
	s.Each(func(id int64, e *producer.Entry, b *producer.Batch) {
		p := mproducer{epoch: e.Epoch, txnFirst: e.TxnFirst, timestamp: e.LastTimestamp}
		if b != nil {
			p.last = *b
			p.last.Timestamp = 0 // a snapshot has only that of the last batch or marker
		}
		got[id] = p
	})
	want = maps.Clone(want)
	for id, p := range want {
		p.last.Timestamp = 0
		want[id] = p
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("producers\n%v, want\n%v", got, want)
	}
	return nil
}

// data reads all and compares it byte by byte.
func (c *checker) data(l *Log, w *want) error {
	offset := w.start
	for i := 0; ; {
		s, err := l.Read(offset, 1<<20, true, ReadUncommitted)
		if err != nil {
			return fmt.Errorf("read at %d: %w", offset, err)
		}
		if s.Len == 0 {
			if i < len(w.batches) {
				return fmt.Errorf("nothing to read at %d of %d", offset, w.end)
			}
			return nil
		}
		b := make([]byte, s.Len)
		_, err = s.Ref.File().ReadAt(b, s.Pos)
		s.Ref.Release()
		if err != nil {
			return fmt.Errorf("read at %d: %w", offset, err)
		}
		for ; len(b) > 0; i++ {
			if i == len(w.batches) {
				return fmt.Errorf("%d bytes after the last batch, at %d", len(b), offset)
			}
			want := &w.batches[i]
			if !bytes.HasPrefix(b, want.data) {
				return fmt.Errorf("batch %d is not what was written", want.info.BaseOffset)
			}
			b, offset = b[len(want.data):], want.info.LastOffset()+1
		}
	}
}

// find looks records up by offset, time and epoch.
func (c *checker) find(l *Log, w *want) error {
	for _, o := range []int64{w.start - 1, w.end + 1} {
		if _, err := l.Read(o, 100, true, ReadUncommitted); err != ErrOffsetOutOfRange {
			return fmt.Errorf("read at %d, outside: %v", o, err)
		}
	}
	for range 3 {
		if w.end == w.start {
			break
		}
		o := w.start + c.rng.Int64N(w.end-w.start)
		b := w.at(o)
		if b == nil {
			break // under PageCache nothing may be left
		}
		s, err := l.Read(o, 61, true, ReadUncommitted)
		if err != nil || s.Len != len(b.data) || s.FirstOffset != b.info.BaseOffset {
			return fmt.Errorf("look-up of %d: %d bytes at %d, want %d at %d (%v)", o, s.Len, s.FirstOffset, len(b.data), b.info.BaseOffset, err)
		}
		s.Ref.Release()
		if epoch := l.EpochAt(o); epoch != b.info.LeaderEpoch {
			return fmt.Errorf("epoch of %d is %d, want %d", o, epoch, b.info.LeaderEpoch)
		}
		ts := b.info.BaseTimestamp + c.rng.Int64N(3) - 1
		offset, at, epoch, found, err := l.OffsetForTime(ts)
		wo, wt, wf := w.forTime(ts)
		if err != nil || found != wf || found && (offset != wo || at != wt || epoch != w.at(wo).info.LeaderEpoch) {
			return fmt.Errorf("time %d: offset %d, time %d, found %v, %w; want %d, %d, %v", ts, offset, at, found, err, wo, wt, wf)
		}
	}
	return nil
}

// closed checks the files of a cleanly closed engine, and that it starts to the same again.
func (c *checker) closed(disk *crashfs.Disk) error {
	for _, m := range c.model.logs {
		if m.exists && !m.lost && !m.cfg.Compact {
			if err := c.files(disk, m); err != nil {
				return fmt.Errorf("%s, closed: %w", m.name(), err)
			}
		}
	}
	if c.rng.IntN(3) > 0 {
		return nil
	}
	if err := c.again(disk.CrashAs(c.rng, crashfs.Cut{Sector: 4096}), true); err != nil {
		return fmt.Errorf("after a clean close and a power cut: %w", err)
	}
	return nil
}

// files compares every file of a cleanly closed log with the batches.
func (c *checker) files(disk *crashfs.Disk, m *mlog) error {
	dir := modelDir + "/" + m.name() + "/"
	w := wanted(m.batches, m.start, m.end())
	next := int64(-1)
	var tail []mbatch
	entries, err := disk.ReadDir(strings.TrimSuffix(dir, "/"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, d := range entries {
		name := dir + d.Name
		base, suffix, ok := segment.ParseName(d.Name)
		if !ok || suffix != segment.LogSuffix {
			continue
		}
		if next >= 0 && base != next {
			return fmt.Errorf("segment %d after %d", base, next)
		}
		b, err := vfs.ReadFile(disk, name, 1<<20)
		if err != nil {
			return err
		}
		batches, rest := m.parse(b)
		if len(rest) > 0 {
			return fmt.Errorf("segment %d: %d bytes are not what was written", base, len(rest))
		}
		next = base
		if n := len(batches); n > 0 {
			next = batches[n-1].info.LastOffset() + 1
		}
		tail = append(tail, batches...)
		if !m.dirty {
			continue // a close does not write what a clean log lacks: each load finds it again
		}
		if err := c.indexes(disk, m, strings.TrimSuffix(name, segment.LogSuffix), base, batches); err != nil {
			return fmt.Errorf("segment %d: %w", base, err)
		}
	}
	if next >= 0 && next != m.end() && len(m.batches) > 0 {
		return fmt.Errorf("files end at %d, want %d", next, m.end())
	}
	if len(tail) < len(w.batches) {
		return fmt.Errorf("%d batches in files, want %d", len(tail), len(w.batches))
	}
	if next < 0 || len(w.producers) == 0 || !m.dirty {
		return nil
	}
	return c.snapshot(disk, dir, m, &w)
}

// parse splits a segment into the model's batches.
func (m *mlog) parse(b []byte) (out []mbatch, rest []byte) {
	for i := range m.batches {
		if bytes.HasPrefix(b, m.batches[i].data) {
			out, b = append(out, m.batches[i]), b[len(m.batches[i].data):]
		} else if len(out) > 0 {
			break
		}
	}
	return out, b
}

func (c *checker) snapshot(disk *crashfs.Disk, dir string, m *mlog, w *want) error {
	b, err := vfs.ReadFile(disk, dir+segment.FileName(m.end(), segment.SnapshotSuffix), 1<<20)
	if err != nil {
		return err
	}
	var s producer.State
	if err := s.Load(b, 0); err != nil {
		return err
	}
	if err := sameProducers(&s, w.producers); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	return nil
}

// indexes checks that the index files of a segment say what FORMAT.md promises, entry by entry.
func (c *checker) indexes(disk *crashfs.Disk, m *mlog, prefix string, base int64, batches []mbatch) error {
	be := binary.BigEndian
	var index, txns []byte
	var times [][]byte // what entries of the time index may be: one for each batch that raised the greatest timestamp
	since, pos, top := 0, 0, int64(-1)
	var must []int // of times
	for _, b := range batches {
		if b.info.MaxTimestamp > top {
			top = b.info.MaxTimestamp
			times = append(times, be.AppendUint32(be.AppendUint64(nil, uint64(top)), uint32(b.info.LastOffset()-base)))
		}
		if since > m.cfg.IndexIntervalBytes {
			index = be.AppendUint32(be.AppendUint32(index, uint32(b.info.LastOffset()-base)), uint32(pos))
			must = append(must, len(times)-1)
			since = 0
		}
		since += len(b.data)
		pos += len(b.data)
	}
	for _, a := range wanted(m.batches, 0, m.end()).aborted {
		if slices.ContainsFunc(batches, func(b mbatch) bool { return b.info.BaseOffset == a.LastOffset }) {
			txns = be.AppendUint16(txns, 0)
			for _, v := range []int64{a.ProducerID, a.FirstOffset, a.LastOffset, a.LastStable} {
				txns = be.AppendUint64(txns, uint64(v))
			}
		}
	}
	for suffix, want := range map[string][]byte{segment.IndexSuffix: index, segment.TxnIndexSuffix: txns} {
		got, err := vfs.ReadFile(disk, prefix+suffix, 1<<20)
		if len(want) == 0 && err != nil {
			err = nil
		}
		if suffix == segment.IndexSuffix && !c.exact && isHint(got, base, batches) {
			continue
		}
		if err != nil || !bytes.Equal(got, want) {
			return errors.Join(fmt.Errorf("%s is\n%x, want\n%x", suffix, got, want), err)
		}
	}
	got, err := vfs.ReadFile(disk, prefix+segment.TimeIndexSuffix, 1<<20)
	if err != nil && len(times) > 0 {
		return err
	}
	return timesFit(got, times, append(must, len(times)-1))
}

// isHint: an index that was not synced before a crash may lack entries, and have zeros for some: that the first record is at the
// start, which is right or found out when it is used. The others are right, and in order.
func isHint(got []byte, base int64, batches []mbatch) bool {
	be := binary.BigEndian
	valid := map[uint64]bool{0: true}
	pos := 0
	for _, b := range batches {
		valid[uint64(b.info.LastOffset()-base)<<32|uint64(pos)] = true
		pos += len(b.data)
	}
	last := uint64(0)
	for ; len(got) >= 8; got = got[8:] {
		e := be.Uint64(got)
		if !valid[e] || e > 0 && e <= last {
			return false
		}
		last = max(last, e)
	}
	return len(got) == 0
}

// timesFit: a time index has only entries that are right, in order, and not fewer than it must. A clean close adds one.
func timesFit(got []byte, may [][]byte, must []int) error {
	bad := fmt.Errorf("time index is\n%x, may have\n%x of which must have %v", got, may, must)
	has := map[int]bool{-1: true}
	at := -1
	for ; len(got) > 0; got = got[min(12, len(got)):] {
		i := slices.IndexFunc(may, func(e []byte) bool { return bytes.Equal(e, got[:min(12, len(got))]) })
		if i <= at {
			return bad
		}
		at = i
		has[i] = true
	}
	for _, i := range must {
		if !has[i] {
			return bad
		}
	}
	return nil
}
