package engine

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kaas/engine/vfs/crashfs"
)

var (
	modelSeeds = flag.Uint64("seeds", 0, "random runs of TestModel; 0: a few")
	modelSeed  = flag.Uint64("seed", 0, "the first run of TestModel to make, and the only one unless -seeds says more; 0: from 1")
)

// TestModel makes random runs on a disk that knows what was synced and, at every operation of a run, cuts the power and
// sometimes kills the process, starts from what is left, and holds it against a model in memory. A run has several lives: each
// begins from what a crash in the last one left, and is cut at every operation of its recovery too.
//
// What the driver does, where the power is cut and what a cut keeps come from the seed; how the driver's goroutine and those in
// the background interleave does not, so a failure may need its seed more than once (-count).
func TestModel(t *testing.T) {
	first, n := uint64(1), *modelSeeds
	if n == 0 {
		// A seed is some 550 crashes and half a second of processor time.
		n = 32
		if testing.Short() {
			n = 4
		}
	}
	if *modelSeed > 0 {
		first, n = *modelSeed, max(1, *modelSeeds)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // small disks are made and dropped all the time: a quarter of the processor time was the collector's
	var cuts, cleans atomic.Int64
	var next atomic.Uint64
	next.Store(first)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for seed := next.Add(1) - 1; seed < first+n && !t.Failed(); seed = next.Add(1) - 1 {
				w := newWorld(t, seed)
				w.run()
				cuts.Add(w.cuts.Load())
				cleans.Add(w.cleans.Load())
			}
		})
	}
	wg.Wait()
	t.Logf("%d runs, %d crashes, %d cleans", n, cuts.Load(), cleans.Load())
	if n > 3 && cleans.Load() == 0 {
		t.Error("nothing was compacted")
	}
}

// world is one run.
type world struct {
	t          *testing.T
	seed       uint64
	rng        *rand.Rand
	durability Durability
	faulty     bool
	cuts       atomic.Int64
	cleans     atomic.Int64
	failed     atomic.Bool

	disk   *crashfs.Disk
	faults *crashfs.Faults
	e      *Engine
	logs   []*Log // by slot, nil when it does not exist
	life   int
	trace  []string

	// gate is held while the driver appends a burst: commits wait, so that more than one append is in the air.
	gate sync.RWMutex

	mu    sync.Mutex // guards what follows: cuts read it from whatever goroutine makes an operation
	model *model
	now   time.Time
	seen  int // operations of this life
	next  *crashfs.Disk
	after *model // of next
	kill  bool   // how next came about
}

const modelSlots = 3

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), disk: crashfs.NewBare(), model: &model{}, now: time.UnixMilli(1_700_000_000_000)}
	if seed%4 == 3 {
		w.durability = PageCache
	}
	w.faulty = seed%3 == 2
	for i := range int32(modelSlots) {
		w.model.logs = append(w.model.logs, &mlog{slot: i, cfg: w.config(), frozen: -1})
	}
	w.logs = make([]*Log, modelSlots)
	return w
}

// config draws settings under which little data makes many files.
func (w *world) config() *LogConfig {
	c := DefaultLogConfig
	c.SegmentBytes = int64(500 + w.rng.IntN(2500))
	c.IndexIntervalBytes = 150 + w.rng.IntN(300)
	c.RetentionMs = -1
	if c.Compact = w.rng.IntN(2) == 0; c.Compact {
		c.Delete, c.MinCleanableRatio, c.DeleteRetentionMs = w.rng.IntN(3) == 0, 0, 2000
		c.SegmentBytes = int64(500 + w.rng.IntN(600)) // more than a batch of keyed records
	}
	if c.FileDeleteDelayMs = 0; w.rng.IntN(4) == 0 {
		c.FileDeleteDelayMs = time.Hour.Milliseconds()
	}
	return &c
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) fail(format string, args ...any) {
	if w.failed.Swap(true) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.t.Errorf("seed %d, life %d: %s\nreplay: go test ./engine -run TestModel -count 20 -seed %d\n%s",
		w.seed, w.life, fmt.Sprintf(format, args...), w.seed, strings.Join(w.trace, "\n"))
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

func (w *world) run() {
	for w.life = 0; w.life < 3 && !w.failed.Load(); w.life++ {
		w.trace = nil
		if !w.begin() {
			return
		}
		for range 12 + w.rng.IntN(8) {
			if w.failed.Load() {
				break
			}
			w.step()
		}
		w.end()
	}
}

// begin starts an engine on the disk, cut at every operation, and holds what it finds against the model.
func (w *world) begin() bool {
	w.seen, w.next = 0, nil
	w.faults = crashfs.Rules("")
	w.disk.OnOp(w.cut)
	c := &checker{model: w.model, durability: w.durability, kill: w.kill, now: w.now, rng: w.rng}
	e, logs, err := w.model.start(modelConfig(w.faults.FS(w.disk), w.durability, w.clock, w.rng.IntN(2) == 0), int32(2*w.life))
	w.e = e
	if err != nil {
		w.fail("start: %v", err)
		return false
	}
	for i, l := range logs {
		if l == nil {
			continue
		}
		m := w.model.logs[i]
		if err := c.log(l, m); err != nil {
			w.fail("start: %v: %v", l, err)
			return false
		}
		w.mu.Lock()
		m.found(l.Offsets())
		w.mu.Unlock()
		if m.lost {
			return false
		}
	}
	w.mu.Lock()
	w.logs = logs
	w.mu.Unlock()
	if w.faulty {
		w.setFaults()
	}
	return true
}

// end is a clean close, or the crash that was chosen; the next life begins with what it left.
func (w *world) end() {
	clean := w.rng.IntN(3) == 0 && !w.faulty || w.next == nil
	if !clean {
		w.disk.OnOp(nil)
	}
	for i, l := range w.logs {
		if l != nil {
			l.mu.Lock()
			dirty := l.st != nil && l.st.marked
			l.mu.Unlock()
			w.update(func() { w.model.logs[i].dirty = dirty })
		}
	}
	err := w.e.Close()
	w.mu.Lock()
	clear(w.logs)
	w.mu.Unlock()
	if !clean {
		w.disk, w.model = w.next, w.after
		return
	}
	w.disk.OnOp(nil)
	if err != nil {
		if !w.faulty {
			w.fail("close: %v", err)
		}
		return
	}
	w.kill = false
	if w.faulty {
		return
	}
	for _, m := range w.model.logs {
		m.durable, m.written = m.end(), m.end()
	}
	c := &checker{model: w.model.clone(), durability: w.durability, epoch: int32(2*w.life + 1), now: w.now, rng: w.rng, exact: w.life == 0}
	if err := c.closed(w.disk.Clone()); err != nil {
		w.fail("%v", err)
	}
}

// cut is called while an operation is in flight, by whatever goroutine makes it.
func (w *world) cut(op crashfs.Op) {
	if op.Kind == crashfs.OpSync && (strings.HasSuffix(op.Name, ".log") || strings.Contains(op.Name, "/kaas.redo.")) {
		w.passGate()
	}
	if w.failed.Load() {
		return
	}
	rng := rand.New(rand.NewPCG(w.seed, uint64(op.N)<<8|uint64(w.life)))
	w.mu.Lock()
	w.trace = append(w.trace, "    "+op.String())
	w.seen++
	for i, l := range w.logs {
		w.model.logs[i].observe(l, w.durability)
	}
	c := &checker{model: w.model.clone(), durability: w.durability, epoch: int32(2*w.life + 1), now: w.now, rng: rng, kill: rng.IntN(5) == 0}
	what := "kill"
	var image *crashfs.Disk
	if c.kill {
		image = w.disk.Clone()
	} else {
		kind := crashfs.RandomCut(rng)
		if kind.Names == crashfs.Some { // FORMAT.md §7: names of a directory become durable in order
			kind.Names = crashfs.Ordered
		}
		what = "power cut: " + kind.String()
		image = w.disk.CrashAs(rng, kind)
		for _, m := range c.model.logs {
			m.written = m.durable
		}
	}
	if rng.IntN(w.seen) == 0 { // each crash of a life has the same chance to begin the next one
		w.next, w.after, w.kill = image.Clone(), c.model.clone(), c.kill
	}
	w.mu.Unlock()
	w.cuts.Add(1)
	before := c.model.clone()
	if err := c.image(image); err != nil {
		w.fail("%s at operation %v: %v\nbounds %v", what, op, err, before)
	}
}

func (w *world) passGate() {
	w.gate.RLock()
	defer w.gate.RUnlock()
}

// observe raises the bounds to what anybody can see of a log.
func (m *mlog) observe(l *Log, d Durability) {
	if l == nil || !l.Loaded() {
		return
	}
	o := l.Offsets()
	if d == GroupCommit {
		m.durable = max(m.durable, o.HighWatermark)
	}
	m.written = max(m.written, o.LogEnd)
	m.start = max(m.start, o.LogStart)
}

func (m *model) String() string {
	var b strings.Builder
	for _, l := range m.logs {
		fmt.Fprintf(&b, "[%s exists %v, durable %d, written %d, appended %d, start %d to %d]", l.name(), l.exists, l.durable, l.written, l.end(), l.start, l.startMax)
	}
	return b.String()
}

// settle waits until nothing runs in the background.
func (w *world) settle() {
	w.e.work.wait()
	w.e.reaper.wait()
}

func (w *world) setFaults() {
	n := 1 + w.rng.IntN(10)
	rule := fmt.Sprintf([]string{
		"%dth+ fdatasync of *.log: EIO", "%dth fdatasync of *.log: EIO", "%dth write of *.log: short", "%dth write of *.log: short EIO",
		"%dth+ space of *.log: ENOSPC", "%dth sync of kaas.journal: EIO", "%dth write of kaas.journal: short", "%dth syncdir: EIO",
		"%dth rename: EIO", "%dth create: EMFILE", "%dth remove: EIO", "%dth write of *.*index: EIO", "%dth truncate: EIO",
		"%[1]dth write of *.log: short; %[1]dth truncate of *.log: EIO", "%dth sync of *.tmp: EIO", "%dth any: EIO", "ENOSPC after %d KiB",
	}[w.seed/3%17], n)
	w.note("faults: %s", rule)
	if err := w.faults.Set(rule); err != nil {
		panic(err)
	}
}

// allowed reports whether an error of an operation is one that the faults explain.
func (w *world) allowed(err error) bool {
	return err == nil || w.faulty && w.faults.Fired() > 0 && (errors.Is(err, ErrStorage) || errors.Is(err, ErrDeleted))
}

func (w *world) pick() (int, *Log, *mlog) {
	i := w.rng.IntN(modelSlots)
	return i, w.logs[i], w.model.logs[i]
}

// update changes the model where cuts do not look on.
func (w *world) update(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (m *mlog) recreate(id byte, rng *rand.Rand, cfg *LogConfig) {
	*m = mlog{slot: m.slot, cfg: cfg, exists: true, frozen: -1}
	for i := range m.id {
		m.id[i] = byte(rng.Uint32())
	}
	m.id[0] = id
	m.batches = slices.Clip([]mbatch{})
}
