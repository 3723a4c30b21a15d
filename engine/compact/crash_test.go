package compact_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"kaas/codec/batch"
	"kaas/engine"
	"kaas/engine/vfs/crashfs"
)

var crashSeeds = flag.Int("crashseeds", 2, "histories whose cleans are cut at every operation")

// history is what was appended, as data that is not aborted: what compaction is about.
type history struct {
	recs    map[int64]rec
	aborted map[int64]bool
}

// random appends a history of a few keys: codecs, tombstones, producers, transactions.
func (r *rig) random(rng *rand.Rand, batches int) *history {
	h := &history{map[int64]rec{}, map[int64]bool{}}
	open := map[int64][]int64{} // offsets of each open transaction
	for i := range batches {
		s := spec{codec: batch.Codec(rng.IntN(5)), pid: int64(rng.IntN(4))}
		if s.pid > 1 {
			if s.txn = true; rng.IntN(3) == 0 && open[s.pid] != nil {
				s.marker = []string{"commit", "abort"}[rng.IntN(2)]
				r.add(s)
				for _, o := range open[s.pid] {
					h.aborted[o] = s.marker == "abort"
				}
				delete(open, s.pid)
				continue
			}
		}
		var kvs []kv
		for range 1 + rng.IntN(4) {
			v := fmt.Sprint("v", i, strings.Repeat("x", rng.IntN(60)))
			if rng.IntN(6) == 0 {
				v = "-"
			}
			kvs = append(kvs, kv{fmt.Sprint("k", rng.IntN(12)), v})
		}
		base := r.add(s, kvs...)
		for j, x := range kvs {
			h.recs[base+int64(j)] = rec{base + int64(j), x.key, x.value, max(s.pid, -1)}
			if s.txn {
				open[s.pid] = append(open[s.pid], base+int64(j))
			}
		}
	}
	for _, pid := range []int64{2, 3} {
		if open[pid] != nil {
			r.add(spec{pid: pid, txn: true, marker: "commit"})
		}
	}
	r.sealed()
	return h
}

// last is the last record of each key.
func (h *history) last() map[string]rec {
	out := map[string]rec{}
	for o, x := range h.recs {
		if !h.aborted[o] && x.offset >= out[x.key].offset {
			out[x.key] = x
		}
	}
	return out
}

// check compares what the log has with the history: only records of it, at their offsets, in order; of each key the last value, or
// neither a value nor anything before its tombstone; what a committed reader must not see is told by the transaction index.
func (h *history) check(r *rig, what string) {
	r.t.Helper()
	seen := map[string]rec{}
	before := int64(-1)
	aborted := r.l.AbortedIn(nil, 0, 1<<60)
	for _, v := range r.batches() {
		if v.BaseOffset() <= before {
			r.t.Fatalf("%s: batch %d after offset %d", what, v.BaseOffset(), before)
		}
		before = v.LastOffset()
		if v.IsControl() {
			continue
		}
		for _, x := range recordsOf(r.t, v) {
			w, ok := h.recs[x.offset]
			if !ok || w.key != x.key || w.value != x.value {
				r.t.Fatalf("%s: record %+v, appended was %+v", what, x, w)
			}
			told := v.IsTransactional() && slices.ContainsFunc(aborted, func(a engine.AbortedTxn) bool {
				return a.ProducerID == v.ProducerID() && a.FirstOffset <= x.offset && x.offset < a.LastOffset
			})
			if told != h.aborted[x.offset] {
				r.t.Fatalf("%s: record %+v: told as aborted %v, index %+v", what, x, told, aborted)
			}
			if !told {
				seen[x.key] = x
			}
		}
	}
	for key, w := range h.last() {
		if got, ok := seen[key]; got.offset != w.offset && (ok || w.value != "-") {
			r.t.Fatalf("%s: last of key %s is %+v, want %+v", what, key, got, w)
		}
	}
}

// expected is what a clean of all below end leaves: the last committed record of each key. Tombstones are in it.
func (h *history) expected(end int64) (offsets []int64) {
	last := map[string]int64{}
	for o, x := range h.recs {
		if o < end && !h.aborted[o] {
			last[x.key] = max(last[x.key], o)
		}
	}
	for o, x := range h.recs {
		if !h.aborted[o] && (o >= end || last[x.key] == o) {
			offsets = append(offsets, o)
		}
	}
	slices.Sort(offsets)
	return offsets
}

// TestRandom: exactly the records stay that a plain reading of the rules keeps, for many histories.
func TestRandom(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		r := newRig(t, func(c *engine.LogConfig) { c.SegmentBytes = int64(400 + rng.IntN(3000)) })
		r.mustOpen()
		h := r.random(rng, 80+rng.IntN(80))
		segs := r.l.Segments()
		end := segs[len(segs)-1].BaseOffset
		for r.e.Clean() > 0 {
		}
		h.check(r, fmt.Sprint("seed ", seed))
		var got []int64
		for _, x := range r.records() {
			if !h.aborted[x.offset] {
				got = append(got, x.offset)
			}
			if h.aborted[x.offset] && x.offset < end {
				t.Fatalf("seed %d: aborted record at %d is still there", seed, x.offset)
			}
		}
		if want := h.expected(end); !slices.Equal(got, want) {
			t.Fatalf("seed %d: offsets %v, want %v", seed, got, want)
		}
		r.now = r.now.Add(2 * 24 * 3600 * 1e9)
		r.roll()
		r.e.Clean()
		for _, x := range r.records() {
			if !strings.HasPrefix(x.key, "roll") {
				if h.recs[x.offset].value == "-" && x.offset < end {
					t.Fatalf("seed %d: tombstone at %d outlived its horizon", seed, x.offset)
				}
			}
		}
		r.close()
	}
}

// powerCuts collects the disks that a power cut at each operation of a clean may leave. Its hook runs in the goroutines of the operations:
// the background removes what goes while the clean is still busy, and after it. So the hook only takes the disks, and checks are for the
// test's goroutine, when the background is done: the history they compare with is not to grow meanwhile.
type powerCuts struct {
	disk *crashfs.Disk
	gone sync.WaitGroup // files that have lost their names and are not yet removed

	mu       sync.Mutex // guards what follows
	rng      *rand.Rand
	cuts     []powerCut
	removals int // in the background
}

type powerCut struct {
	op   crashfs.Op
	disk *crashfs.Disk
}

func (p *powerCuts) see(op crashfs.Op) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cuts = append(p.cuts, powerCut{op, p.disk.Crash(p.rng)})
	if !strings.HasSuffix(op.Name, ".deleted") {
		return
	}
	switch op.Kind {
	case crashfs.OpRename:
		p.gone.Add(1)
	case crashfs.OpRemove:
		p.removals++
		p.gone.Done()
	}
}

// cleanAndCut cleans all that is due, and returns how many cleans that took, and the cuts, once the background has removed what the cleans
// replaced.
func (r *rig) cleanAndCut(rng *rand.Rand) (cleans int, p *powerCuts) {
	p = &powerCuts{disk: r.disk, rng: rng}
	r.disk.OnOp(p.see)
	cleans = r.e.Clean()
	p.gone.Wait()
	r.disk.OnOp(nil)
	return cleans, p
}

// TestPowerCut: the power goes at every operation of a first clean and of one that drops tombstones and merges segments, and of the removal of
// what they replaced; whatever is left, a start finds the last value of each key, resurrects none, and can clean on.
func TestPowerCut(t *testing.T) {
	for seed := range uint64(*crashSeeds) {
		rng := rand.New(rand.NewPCG(seed, 2))
		r := newRig(t, func(c *engine.LogConfig) { c.SegmentBytes, c.DeleteRetentionMs = int64(300+rng.IntN(900)), 1000 })
		r.conf = func(c *engine.Config) { c.Durability = engine.GroupCommit }
		r.mustOpen()
		h := r.random(rng, 50)
		for round := range 3 {
			r.durable()
			r.now = r.now.Add(2000 * 1e6)
			cleans, p := r.cleanAndCut(rng)
			if cleans == 0 || len(p.cuts) < 20 || p.removals == 0 {
				t.Fatalf("seed %d round %d: %d cleans, %d operations, %d removals", seed, round, cleans, len(p.cuts), p.removals)
			}
			for _, c := range p.cuts {
				h.restart(r, c.disk, fmt.Sprintf("seed %d round %d: cut at %v", seed, round, c.op))
			}
			h.check(r, "after a clean")
			h.grow(r)
		}
		r.close()
	}
}

// restart checks what a start makes of the disk that a power cut has left of r's, and cleans it.
func (h *history) restart(r *rig, disk *crashfs.Disk, what string) {
	r.t.Helper()
	after := newRig(r.t, nil)
	after.disk, after.cfg, after.now, after.seq = disk, r.cfg, r.now, r.seq
	after.fs, after.conf = after.disk, r.conf
	if err := after.open(); err != nil {
		r.t.Fatalf("%s: %v", what, err)
	}
	h.check(after, what)
	if end := after.l.Offsets().LogEnd; end != r.l.Offsets().LogEnd {
		r.t.Fatalf("%s: log end %d, was %d", what, end, r.l.Offsets().LogEnd)
	}
	after.e.Clean()
	h.check(after, what+", cleaned again")
	after.close()
	if left := slices.Concat(after.disk.Files("*.cleaned"), after.disk.Files("*.swap")); len(left) != 0 {
		r.t.Fatalf("%s: left %v", what, left)
	}
}

type waiter chan error

func (w waiter) Durable(err error) { w <- err }

// durable waits until all of the log is.
func (r *rig) durable() {
	r.t.Helper()
	r.sealed()
	w := make(waiter, 1)
	done, err := r.l.AwaitDurable(r.l.Offsets().LogEnd, w)
	if err == nil && !done {
		err = <-w
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// grow appends to what the history knows until two segments end; now and then there is a clean restart after it.
func (h *history) grow(r *rig) {
	for n := len(r.l.Segments()); len(r.l.Segments()) < n+2; {
		base := r.add(spec{}, kv{"k1", fmt.Sprint("grown ", len(h.recs), strings.Repeat("y", 100))}, kv{"k2", "-"})
		h.recs[base] = rec{base, "k1", fmt.Sprint("grown ", len(h.recs), strings.Repeat("y", 100)), -1}
		h.recs[base+1] = rec{base + 1, "k2", "-", -1}
	}
	if len(h.recs)%2 == 0 {
		r.close()
		r.mustOpen()
	}
}

// TestFailingDisk: any operation of a clean may fail, once or from then on. Readers go on, nothing is lost, and after a start all is
// as it should be and can be cleaned. A lack of room takes nothing offline.
func TestFailingDisk(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	r := newRig(t, func(c *engine.LogConfig) { c.SegmentBytes = 600 })
	r.mustOpen()
	h := r.random(rng, 24)
	r.close()
	for _, rule := range []string{"%d%s any of t-0/*: EIO", "%d%s+ any of t-0/*: EIO", "%d%s+ any of t-0/*: ENOSPC"} {
		offline := 0
		step := 1
		if strings.Contains(rule, "+") {
			step = 3
		}
		for n := 1; ; n += step {
			what := fmt.Sprintf(rule, n, ordinal(n))
			faults := crashfs.Rules("")
			again := newRig(t, nil)
			again.cfg, again.now, again.seq, again.disk = r.cfg, r.now, r.seq, r.disk.Clone()
			again.fs = faults.FS(again.disk)
			again.mustOpen()
			if err := faults.Set(what); err != nil {
				t.Fatal(err)
			}
			again.e.Clean()
			fired := faults.Fired()
			if err := faults.Set(""); err != nil {
				t.Fatal(err)
			}
			h.check(again, what)
			if again.l.Err() != nil {
				offline++
			}
			again.close()
			again.fs = again.disk
			again.mustOpen()
			h.check(again, what+", after a start")
			again.e.Clean()
			h.check(again, what+", cleaned")
			again.close()
			if fired == 0 {
				if n < 50 || (offline == 0) != strings.Contains(rule, "ENOSPC") {
					t.Errorf("%s: %d operations only, offline %d times", rule, n, offline)
				}
				break
			}
		}
	}
}

func ordinal(n int) string {
	if n%100/10 == 1 {
		return "th"
	}
	return [...]string{"th", "st", "nd", "rd", "th", "th", "th", "th", "th", "th"}[n%10]
}

// TestReaders: readers beside cleans, appends and restarts of readers see each key's values in order and never a hole where the
// last value should be.
func TestReaders(t *testing.T) {
	r := newRig(t, nil)
	r.mustOpen()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				seen := map[string]int64{}
				at, end := int64(0), r.l.Offsets().LogEnd
				for ; at < end; end = r.l.Offsets().LogEnd { // to the end as it is then: until there a last value may be replaced
					s, err := r.l.Read(at, 4000, true, engine.ReadUncommitted)
					if err != nil || s.Len == 0 {
						t.Errorf("read at %d of %d: %d bytes, %v", at, end, s.Len, err)
						return
					}
					b := make([]byte, s.Len)
					_, err = s.Ref.File().ReadAt(b, s.Pos)
					s.Ref.Release()
					if err != nil {
						t.Error(err)
						return
					}
					for len(b) > 0 {
						v, err := batch.Next(b)
						if errors.Is(err, batch.ErrTorn) {
							break
						}
						if err != nil {
							t.Errorf("batch at %d: %v", at, err)
							return
						}
						for _, x := range recordsOf(t, v) {
							seen[x.key] = x.offset
						}
						at, b = v.LastOffset()+1, b[v.Size():]
					}
				}
				for k := range 10 {
					if off, ok := seen[fmt.Sprint("k", k)]; end >= 20 && (!ok || off < end-11) {
						t.Errorf("key %d: last seen at %d, log end %d", k, off, end)
						return
					}
				}
			}
		})
	}
	cleans := 0
	for i := range 300 {
		r.add(spec{codec: batch.Codec(i % 5)}, kv{fmt.Sprint("k", i%10), fmt.Sprint(i)})
		if i%20 == 0 {
			r.sealed()
			cleans += r.e.Clean()
		}
	}
	close(stop)
	wg.Wait()
	if cleans < 5 {
		t.Errorf("%d cleans only", cleans)
	}
}
