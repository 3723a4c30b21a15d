package coordinator

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"kaas/codec/batch"
	"kaas/engine"
	"kaas/engine/state"
	"kaas/engine/vfs"
	"kaas/engine/vfs/crashfs"
	"kaas/server/config"
	"kaas/server/topics"
)

// format is what the engine needs to know of a batch.
type format struct{}

func facts(v batch.View) engine.BatchInfo {
	return engine.BatchInfo{BaseOffset: v.BaseOffset(), Size: v.Size(), LastOffsetDelta: v.LastOffsetDelta(), LeaderEpoch: v.PartitionLeaderEpoch(),
		BaseTimestamp: v.BaseTimestamp(), MaxTimestamp: v.MaxTimestamp(), ProducerID: v.ProducerID(), ProducerEpoch: v.ProducerEpoch(),
		BaseSequence: v.BaseSequence(), Count: v.Count(), Transactional: v.IsTransactional(), Control: v.IsControl()}
}

func (format) Next(b []byte) (int, engine.BatchInfo, error) {
	v, err := batch.Next(b)
	if errors.Is(err, batch.ErrTorn) {
		return 0, engine.BatchInfo{}, engine.ErrShort
	}
	if err != nil {
		return 0, engine.BatchInfo{}, err
	}
	return v.Size(), facts(v), nil
}

func (format) Peek(h []byte) (int, engine.BatchInfo, error) {
	v, err := batch.PeekHeader(h)
	if err != nil {
		return 0, engine.BatchInfo{}, err
	}
	return v.Size(), facts(v), nil
}

func (format) Stamp(b []byte, base int64, epoch int32) {
	batch.View(b).SetBaseOffset(base)
	batch.View(b).SetPartitionLeaderEpoch(epoch)
}

func (format) FirstAtOrAfter(b []byte, ts, from int64) (int64, int64, bool, error) {
	return batch.FirstAtOrAfter(batch.View(b), nil, ts, from)
}

func (format) ControlType(b []byte) (commit bool, epoch int32, ok bool) {
	m, ok := batch.ReadMarker(batch.View(b))
	return m.Type == batch.ControlCommit, m.CoordinatorEpoch, ok
}

// handClock is a clock that a test moves.
type handClock struct {
	mu   sync.Mutex // guards what follows
	now  time.Time
	set  map[int]ring
	next int
}

type ring struct {
	at time.Time
	f  func()
}

func newHandClock() *handClock {
	return &handClock{now: time.UnixMilli(1_700_000_000_000), set: map[int]ring{}}
}

func (c *handClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *handClock) AfterFunc(d time.Duration, f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	id := c.next
	c.set[id] = ring{c.now.Add(d), f}
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, ok := c.set[id]
		delete(c.set, id)
		return ok
	}
}

// advance moves the clock and rings what is due, in order, on the caller's goroutine.
func (c *handClock) advance(d time.Duration) {
	c.mu.Lock()
	end := c.now.Add(d)
	for {
		first := -1
		for id, r := range c.set {
			if !r.at.After(end) && (first < 0 || r.at.Before(c.set[first].at)) {
				first = id
			}
		}
		if first < 0 {
			break
		}
		r := c.set[first]
		delete(c.set, first)
		c.now = maxTime(c.now, r.at)
		c.mu.Unlock()
		r.f()
		c.mu.Lock()
	}
	c.now = end
	c.mu.Unlock()
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// store is a State that remembers the last value of each key, and everything that it was told.
type store struct {
	timers Timers
	values map[string]string
	txn    map[Producer][]Entry
	told   []string
	loaded int
	parked []func(error)
}

var errNonsense = errors.New("nonsense")

func (s *store) Replay(e Entry, at Position) error {
	if string(e.Key) == "nonsense" {
		return errNonsense
	}
	if string(e.Value) == "panic" {
		panic("a record that the state does not survive")
	}
	e = Entry{Key: slices.Clone(e.Key), Value: slices.Clone(e.Value)}
	if at.Txn != nil {
		s.txn[*at.Txn] = append(s.txn[*at.Txn], e)
		return nil
	}
	s.set(e)
	s.told = append(s.told, fmt.Sprintf("%d %s=%s", at.Offset, e.Key, e.Value))
	return nil
}

func (s *store) set(e Entry) {
	if e.Value == nil {
		delete(s.values, string(e.Key))
		return
	}
	s.values[string(e.Key)] = string(e.Value)
}

func (s *store) ReplayMarker(p Producer, commit bool, at Position) {
	for _, e := range s.txn[p] {
		if commit {
			s.set(e)
		}
	}
	delete(s.txn, p)
	s.told = append(s.told, fmt.Sprintf("%d end of %d/%d commit=%v", at.Offset, p.ID, p.Epoch, commit))
}

func (s *store) Loaded(time.Time) { s.loaded++ }

func (s *store) Closed(err error) {
	for _, f := range s.parked {
		f(err)
	}
	s.parked = nil
}

// rig is a runtime of stores over a topic on a file system of the test's.
type rig struct {
	t      *testing.T
	disk   vfs.FS
	faults *crashfs.Faults
	clock  *handClock
	engine *engine.Engine
	topics *topics.Registry
	files  *state.Store
	rt     *Runtime[*store]

	durability engine.Durability
	shards     string
	settings   []string
	block      chan struct{}
}

func newRig(t *testing.T, durability engine.Durability, settings ...string) *rig {
	r := &rig{t: t, disk: crashfs.New(), faults: crashfs.Rules(""), clock: newHandClock(), durability: durability, shards: "1", settings: settings}
	r.start()
	if err := r.topics.EnsureInternal(topics.OffsetsTopic); err != nil {
		t.Fatal(err)
	}
	r.rt.Load()
	t.Cleanup(func() {
		r.rt.Close()
		_ = r.engine.Close()
		_ = r.files.Close()
	})
	return r
}

func (r *rig) start() {
	r.t.Helper()
	options := config.Options{}
	for i, s := range append([]string{"offsets.topic.num.partitions", r.shards}, r.settings...) {
		if i%2 == 0 {
			options.Settings = append(options.Settings, config.Setting{Key: s, Origin: "test"})
			continue
		}
		options.Settings[i/2].Value = s
	}
	cfg, err := config.Load(options)
	if err != nil {
		r.t.Fatal(err)
	}
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	fs := r.faults.FS(r.disk)
	if r.engine, err = engine.Open(engine.Config{Dir: "data", FS: fs, Format: format{}, Durability: r.durability, Logger: quiet}); err != nil {
		r.t.Fatal(err)
	}
	if r.files, err = state.Open(r.disk, "catalog", state.Options{}); err != nil {
		r.t.Fatal(err)
	}
	if r.topics, err = topics.New(cfg, r.files, r.engine, quiet); err != nil {
		r.t.Fatal(err)
	}
	r.rt = New(Config[*store]{
		Topic: func() *topics.Topic { return r.topics.ByName(topics.OffsetsTopic) },
		New: func(_ int32, timers Timers) *store {
			if r.block != nil {
				<-r.block
			}
			return &store{timers: timers, values: map[string]string{}, txn: map[Producer][]Entry{}}
		},
		LoadBytes: 256, Clock: r.clock, Logger: quiet,
	})
}

// restart stops in good order and starts again on the same files.
func (r *rig) restart() {
	r.t.Helper()
	r.rt.Close()
	if err := errors.Join(r.engine.Close(), r.files.Close()); err != nil {
		r.t.Fatal(err)
	}
	r.start()
	r.rt.Load()
}

// do runs an operation and waits for its answer; it is tried again while the shard is being loaded.
func (r *rig) do(key string, op Op[*store]) error {
	r.t.Helper()
	for {
		err := r.try(key, op)
		if !errors.Is(err, ErrLoading) {
			return err
		}
	}
}

// try runs an operation once.
func (r *rig) try(key string, op Op[*store]) error {
	r.t.Helper()
	answer := make(chan error, 1)
	r.rt.Submit(key, func(s *store, now time.Time) Outcome {
		o := op(s, now)
		done := o.Done
		o.Done = func(err error) {
			if done != nil {
				done(err)
			}
			answer <- err
		}
		return o
	}, func(err error) { answer <- err })
	return r.wait(answer)
}

// wait bounds a wait; nothing is measured by it.
func (r *rig) wait(answer chan error) error {
	r.t.Helper()
	select {
	case err := <-answer:
		return err
	case <-time.After(30 * time.Second):
		r.t.Fatal("no answer")
		return nil
	}
}

// must is do without an error. When it returns nobody is at work on the shard, so that what a round is given next is run by that round.
func (r *rig) must(key string, op Op[*store]) {
	r.t.Helper()
	if err := r.do(key, op); err != nil {
		r.t.Fatal(err)
	}
	h, err := r.rt.find()
	if err != nil {
		return // closed by what was done
	}
	sh := h.of(key)
	for busy := true; busy; runtime.Gosched() {
		sh.mu.Lock()
		busy = sh.running
		sh.mu.Unlock()
	}
}

// put writes one value.
func put(key, value string) Op[*store] {
	return func(*store, time.Time) Outcome {
		return Outcome{Write: Write{Entries: []Entry{{Key: []byte(key), Value: []byte(value)}}}}
	}
}

// values reads all values.
func (r *rig) values() map[string]string {
	r.t.Helper()
	out := map[string]string{}
	r.must("", func(s *store, _ time.Time) Outcome {
		for k, v := range s.values {
			out[k] = v
		}
		return Outcome{}
	})
	return out
}

// told reads what the state was told.
func (r *rig) told() (out []string) {
	r.t.Helper()
	r.must("", func(s *store, _ time.Time) Outcome {
		out = slices.Clone(s.told)
		return Outcome{}
	})
	return out
}

// log is the log of the only shard.
func (r *rig) log() *engine.Log { return r.topics.ByName(topics.OffsetsTopic).Partition(0).Log }

// batches lists what is in the log: base offset, count, codec, and a letter for transactional (t) and control (c) batches.
func (r *rig) batches() (out []string) {
	r.t.Helper()
	l := r.log()
	end := l.Offsets().HighWatermark
	buf := make([]byte, 8<<20)
	for offset := int64(0); offset < end; {
		n, _, err := l.ReadBytes(buf, offset, engine.ReadUncommitted)
		if err != nil {
			r.t.Fatal(err)
		}
		for b := buf[:n]; len(b) > 0; {
			v, err := batch.Next(b)
			if err != nil {
				break
			}
			flags := ""
			if v.IsTransactional() {
				flags += "t"
			}
			if v.IsControl() {
				flags += "c"
			}
			out = append(out, fmt.Sprintf("%d+%d %s%s", v.BaseOffset(), v.Count(), v.Codec(), flags))
			offset = v.LastOffset() + 1
			b = b[v.Size():]
		}
	}
	return out
}

func be(n int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }
