package compact_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"kaas/codec/batch"
	"kaas/engine"
	"kaas/engine/vfs"
	"kaas/engine/vfs/crashfs"
)

// format is what a server passes: made of codec/batch.
type format struct{}

func (format) Next(b []byte) (int, engine.BatchInfo, error) {
	v, err := batch.Next(b)
	if errors.Is(err, batch.ErrTorn) {
		return 0, engine.BatchInfo{}, engine.ErrShort
	}
	if err != nil {
		return 0, engine.BatchInfo{}, err
	}
	return v.Size(), infoOf(v), nil
}

func (format) Peek(b []byte) (int, engine.BatchInfo, error) {
	v, err := batch.PeekHeader(b)
	if err != nil {
		return 0, engine.BatchInfo{}, err
	}
	return v.Size(), infoOf(v), nil
}

func infoOf(v batch.View) engine.BatchInfo {
	return engine.BatchInfo{
		BaseOffset: v.BaseOffset(), Size: v.Size(), LastOffsetDelta: v.LastOffsetDelta(), LeaderEpoch: v.PartitionLeaderEpoch(),
		BaseTimestamp: v.BaseTimestamp(), MaxTimestamp: v.MaxTimestamp(), ProducerID: v.ProducerID(), ProducerEpoch: v.ProducerEpoch(),
		BaseSequence: v.BaseSequence(), Count: v.Count(), Transactional: v.IsTransactional(), Control: v.IsControl(),
		Compressed: v.Codec() != batch.CodecNone, DeleteHorizon: v.HasDeleteHorizon(),
	}
}

func (format) Stamp(b []byte, base int64, epoch int32) {
	batch.View(b).SetBaseOffset(base)
	batch.View(b).SetPartitionLeaderEpoch(epoch)
}

func (format) FirstAtOrAfter(b []byte, ts, from int64) (int64, int64, bool, error) {
	return batch.FirstAtOrAfter(batch.View(b), nil, ts, from)
}

func (format) ControlType(b []byte) (bool, int32, bool) {
	m, ok := batch.ReadMarker(batch.View(b))
	return ok && m.Type == batch.ControlCommit, m.CoordinatorEpoch, ok
}

var (
	inflaters = sync.Pool{New: func() any { return batch.NewInflater(1 << 30) }}
	deflaters = sync.Pool{New: func() any { return new(batch.Deflater) }}
)

func (format) Keys(b []byte, f func(int64, []byte, bool) bool) error {
	inf := inflaters.Get().(*batch.Inflater)
	defer inflaters.Put(inf)
	var c batch.Cursor
	if err := c.Open(batch.View(b), inf); err != nil {
		return err
	}
	for c.Next() {
		if !f(c.Offset(), c.Key(), c.Value() == nil) {
			return nil
		}
	}
	return c.Err()
}

func (format) Rebuild(dst, b []byte, keep func(int32) bool, horizonMs int64) ([]byte, error) {
	inf, def := inflaters.Get().(*batch.Inflater), deflaters.Get().(*batch.Deflater)
	defer inflaters.Put(inf)
	defer deflaters.Put(def)
	dst, _, err := batch.Rebuild(dst, batch.View(b), batch.Retention{Keep: keep, DeleteHorizonMs: horizonMs}, inf, def)
	return dst, err
}

// kv is a record to append; value "-" is a tombstone, key "-" none.
type kv struct{ key, value string }

// spec is a batch to append.
type spec struct {
	pid    int64 // 0: none
	epoch  int16
	txn    bool
	codec  batch.Codec
	marker string // commit or abort, instead of records
}

// rig is one log on a disk that knows what was synced.
type rig struct {
	t    testing.TB
	disk *crashfs.Disk
	fs   vfs.FS // what the engine gets; the disk unless a test puts something before it
	cfg  engine.LogConfig
	conf func(*engine.Config)
	now  time.Time
	e    *engine.Engine
	l    *engine.Log
	seq  map[int64]int32
}

func newRig(t testing.TB, change func(*engine.LogConfig)) *rig {
	r := &rig{t: t, disk: crashfs.New(), now: time.UnixMilli(1_700_000_000_000), seq: map[int64]int32{}}
	r.fs = r.disk
	r.cfg = engine.DefaultLogConfig
	r.cfg.Delete, r.cfg.Compact, r.cfg.SegmentBytes, r.cfg.MinCleanableRatio, r.cfg.IndexIntervalBytes = false, true, 1000, 0, 200
	if change != nil {
		change(&r.cfg)
	}
	t.Cleanup(func() {
		if r.e != nil {
			r.e.Close()
		}
	})
	return r
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// open starts an engine on the disk and loads the log.
func (r *rig) open() error {
	c := engine.Config{Dir: "/d", Durability: engine.PageCache, Format: format{}, Records: format{}, FS: r.fs, Logger: quiet,
		Clock: func() time.Time { return r.now }, Workers: 1, ProducerExpiry: 1 << 60, Maintenance: time.Hour}
	if r.conf != nil {
		r.conf(&c)
	}
	e, err := engine.Open(c)
	if err != nil {
		return err
	}
	r.e = e
	r.l = e.OpenLog(engine.LogSpec{Topic: "t", TopicID: [16]byte{1}, Config: &r.cfg})
	if err := e.Recover(r.t.Context(), []*engine.Log{r.l}, nil); err != nil {
		return err
	}
	return r.l.Load()
}

func (r *rig) mustOpen() {
	r.t.Helper()
	if err := r.open(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) close() {
	r.t.Helper()
	err := r.e.Close()
	r.e = nil
	if err != nil {
		r.t.Fatal(err)
	}
}

// sealed waits until what was rolled is sealed: there is one worker, and it works in order.
func (r *rig) sealed() {
	done := make(chan struct{})
	r.e.Go(func() { close(done) })
	<-done
}

// add appends a batch and returns its base offset.
func (r *rig) add(s spec, records ...kv) int64 {
	r.t.Helper()
	h := batch.NewSpec()
	h.Codec = s.codec
	if s.pid > 0 {
		h.ProducerID, h.ProducerEpoch, h.Transactional = s.pid, s.epoch, s.txn
	}
	var data []byte
	if s.marker != "" {
		m := batch.Marker{ProducerID: s.pid, ProducerEpoch: s.epoch, TimestampMs: r.now.UnixMilli(), Type: batch.ControlAbort}
		if s.marker == "commit" {
			m.Type = batch.ControlCommit
		}
		data = batch.AppendMarker(nil, m)
	} else {
		if s.pid > 0 {
			h.BaseSequence = r.seq[s.pid]
			r.seq[s.pid] += int32(len(records))
		}
		var b batch.Builder
		b.Begin(nil, h)
		for _, rec := range records {
			b.Append(r.now.UnixMilli(), opt(rec.key), opt(rec.value))
		}
		def := deflaters.Get().(*batch.Deflater)
		data = b.End(def)
		deflaters.Put(def)
	}
	en := []engine.Entry{{Data: data, Info: infoOf(batch.View(data))}}
	r.l.Append(en)
	if en[0].Err != nil {
		r.t.Fatal(en[0].Err)
	}
	return en[0].BaseOffset
}

func opt(s string) []byte {
	if s == "-" {
		return nil
	}
	return []byte(s)
}

// roll ends the active segment, by a batch that does not fit into it.
func (r *rig) roll() {
	r.t.Helper()
	n := len(r.l.Segments())
	for i := 0; len(r.l.Segments()) == n; i++ {
		r.add(spec{}, kv{fmt.Sprint("roll", n), fmt.Sprintf("%0*d", int(r.cfg.SegmentBytes)/2, i)})
	}
	r.sealed()
}

// rec is a record as read.
type rec struct {
	offset     int64
	key, value string
	pid        int64
}

// batches reads the log's batches from its start to its end.
func (r *rig) batches() (out []batch.View) {
	r.t.Helper()
	at := r.l.Offsets().LogStart
	for at < r.l.Offsets().LogEnd {
		s, err := r.l.Read(at, 1<<20, true, engine.ReadUncommitted)
		if err != nil {
			r.t.Fatalf("read at %d: %v", at, err)
		}
		if s.Len == 0 {
			r.t.Fatalf("read at %d of %+v: nothing", at, r.l.Offsets())
		}
		b := make([]byte, s.Len)
		if _, err := s.Ref.File().ReadAt(b, s.Pos); err != nil {
			r.t.Fatal(err)
		}
		s.Ref.Release()
		for len(b) > 0 {
			v, err := batch.Next(b)
			if err != nil {
				r.t.Fatalf("batch after %d: %v", at, err)
			}
			out = append(out, v)
			at = v.LastOffset() + 1
			b = b[v.Size():]
		}
	}
	return out
}

// records reads the data records, those of aborted transactions too.
func (r *rig) records() (out []rec) {
	r.t.Helper()
	for _, v := range r.batches() {
		if !v.IsControl() {
			out = append(out, recordsOf(r.t, v)...)
		}
	}
	return out
}

func recordsOf(t testing.TB, v batch.View) (out []rec) {
	t.Helper()
	inf := inflaters.Get().(*batch.Inflater)
	defer inflaters.Put(inf)
	var c batch.Cursor
	if err := c.Open(v, inf); err != nil {
		t.Fatal(err)
	}
	for c.Next() {
		out = append(out, rec{c.Offset(), text(c.Key()), text(c.Value()), v.ProducerID()})
	}
	if c.Err() != nil {
		t.Fatal(c.Err())
	}
	return out
}

func text(b []byte) string {
	if b == nil {
		return "-"
	}
	return string(b)
}
