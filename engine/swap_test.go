package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kaas/engine/vfs/crashfs"
)

// swapLoad is a log with segments of keyed records that are to be compacted, some of which were before: so groups of several segments become one.
type swapLoad struct {
	*fixture
	rule   string
	disk   *crashfs.Disk
	faults *crashfs.Faults
	logs   *LogConfig
	l      *Log
	put    []string // what was appended, by offset
	sealed int      // of it in segments that are not appended to
}

func newSwapLoad(t *testing.T, rule string) *swapLoad {
	t.Helper()
	w := &swapLoad{rule: rule, faults: crashfs.Rules(""), logs: small(1500)}
	w.logs.Compact, w.logs.Delete, w.logs.MinCleanableRatio, w.logs.FileDeleteDelayMs = true, false, 0, 0
	w.on(t, crashfs.NewBare())
	w.l = w.fixture.log(true, w.logs)
	w.fill(20)
	if w.e.Clean() == 0 {
		t.Fatal("nothing to compact")
	}
	w.fill(20)
	return w
}

// on has an engine on the disk.
func (w *swapLoad) on(t *testing.T, d *crashfs.Disk) {
	t.Helper()
	w.disk = d
	w.fixture = newFixture(t, func(c *Config) {
		c.FS, c.Dir, c.Durability, c.Records, c.Maintenance = w.faults.FS(d), modelDir, PageCache, keyedFormat{}, 1<<40
	})
}

// fill appends batches of two records, of eight keys in turn, and waits until all but the last segment are sealed.
func (w *swapLoad) fill(n int) {
	w.t.Helper()
	for range n {
		at := len(w.put)
		var recs []keyed
		for i := range 2 {
			r := keyed{delta: i, key: byte(at/2+5*i) % 8, value: fmt.Appendf(nil, "value of %d %s", at+i, strings.Repeat("x", 20))}
			recs = append(recs, r)
			w.put = append(w.put, recordText(at+i, &r))
		}
		if e := w.append(w.l, spec{keys: recs}); e.BaseOffset != int64(at) {
			w.t.Fatalf("%s: batch at %d, want %d", w.rule, e.BaseOffset, at)
		}
	}
	w.settle()
	w.sealed = int(w.l.active().Base())
}

func recordText(offset int, r *keyed) string { return fmt.Sprintf("%d: %d=%s", offset, r.key, r.value) }

func (w *swapLoad) settle() {
	w.e.work.wait()
	w.e.reaper.wait()
}

func (w *swapLoad) set(rule string) {
	w.t.Helper()
	if err := w.faults.Set(rule); err != nil {
		w.t.Fatal(err)
	}
}

// compacted is what is left of what was appended: of each key the last of the sealed segments, and what is not sealed.
func (w *swapLoad) compacted() (left []string) {
	last := map[string]int{}
	key := func(r string) string { return r[strings.Index(r, ": ")+2 : strings.Index(r, "=")] }
	for o, r := range w.put[:w.sealed] {
		last[key(r)] = o
	}
	for o, r := range w.put {
		if o >= w.sealed || last[key(r)] == o {
			left = append(left, r)
		}
	}
	return left
}

// read returns the records of the log; each has to be one that was appended.
func (w *swapLoad) read(when string) (found []string) {
	w.t.Helper()
	if err := w.l.Load(); err != nil {
		w.t.Fatalf("%s, %s: %v", w.rule, when, err)
	}
	batches, err := (&checker{}).read(w.l, w.l.Offsets().LogStart)
	if err != nil || w.l.Err() != nil {
		w.t.Fatalf("%s, %s: %v, offline: %v", w.rule, when, err, w.l.Err())
	}
	for _, b := range batches {
		for _, r := range parseKeyed(b.data) {
			o := int(b.info.BaseOffset) + r.delta
			if text := recordText(o, &r); text != w.put[o] {
				w.t.Fatalf("%s, %s: %q, was %q", w.rule, when, text, w.put[o])
			}
			found = append(found, w.put[o])
		}
	}
	return found
}

// wantAtLeast: what compaction must leave is there, whether or not it took place.
func (w *swapLoad) wantAtLeast(when string) {
	w.t.Helper()
	found := w.read(when)
	for _, r := range w.compacted() {
		if !slices.Contains(found, r) {
			w.t.Fatalf("%s, %s: lost %q of %q", w.rule, when, r, found)
		}
	}
}

// wantCompacted: with room there is exactly what compaction leaves, and no file besides.
func (w *swapLoad) wantCompacted(when string) {
	w.t.Helper()
	w.e.Clean()
	w.settle()
	if found, want := w.read(when), w.compacted(); !slices.Equal(found, want) {
		w.t.Fatalf("%s, %s: %q, want %q", w.rule, when, found, want)
	}
	for _, name := range w.disk.Files("*") {
		for _, suffix := range []string{".cleaned", ".swap", deletedSuffix, ".tmp"} {
			if strings.HasSuffix(name, suffix) && !(when == "with room" && strings.Contains(w.rule, "any")) { // what could not be removed may be so yet
				w.t.Fatalf("%s, %s: %s is left", w.rule, when, name)
			}
		}
	}
	if n := len(w.e.cleaner.halves) + len(w.e.cleaner.bad) + len(w.e.cleaner.busy); n != 0 {
		w.t.Fatalf("%s, %s: %d logs are not to be compacted", w.rule, when, n)
	}
}

// restart opens the log on a disk as a start does. There may be no room for that: a start that is refused is tried again, a log that could
// not be loaded is loaded by its next use.
func (w *swapLoad) restart(t *testing.T, d *crashfs.Disk, rule string) {
	t.Helper()
	w.disk, w.cfg.FS = d, w.faults.FS(d)
	w.set(rule)
	e, err := Open(w.fixture.cfg)
	if err != nil {
		w.noRoom("start", err)
		w.set("")
		if e, err = Open(w.fixture.cfg); err != nil {
			t.Fatalf("%s: start with room: %v", w.rule, err)
		}
	}
	w.e = e
	w.l = w.fixture.log(false, w.logs)
	if err := w.e.Recover(t.Context(), []*Log{w.l}, nil); err != nil {
		w.noRoom("recovery", err)
	}
	if err := w.l.Load(); err != nil {
		w.noRoom("load", err)
	}
	w.set("")
	if err := w.l.Load(); err != nil {
		t.Fatalf("%s: load with room: %v", w.rule, err)
	}
}

func (w *swapLoad) noRoom(what string, err error) {
	w.t.Helper()
	if !errors.Is(err, syscall.ENOSPC) {
		w.t.Fatalf("%s: %s: %v", w.rule, what, err)
	}
}

// TestNoRoomToSwap: whichever operation of a compaction finds no room, that one or all from there on, the log stays online with the records
// that it has to have; with room the compaction ends, at once or after a stop or a kill, and leaves nothing behind.
func TestNoRoomToSwap(t *testing.T) {
	pending := 0
	for _, op := range []string{" any", "+ any", "+ space", "+ create", "+ rename", "+ syncdir"} {
		for n := 1; ; n++ {
			rule := fmt.Sprintf("%dth%s: ENOSPC", n, op)
			w := newSwapLoad(t, rule)
			w.set(rule)
			w.e.Clean()
			w.settle()
			fired := w.faults.Fired()
			pending += len(w.e.cleaner.halves)
			killed := w.disk.Clone()
			w.set("")
			w.wantAtLeast("without room")
			if n%2 == 0 {
				w.wantCompacted("with room")
			}
			w.close()
			w.restart(t, w.disk, "")
			w.wantCompacted("after a stop")
			w.close()
			w.restart(t, killed, fmt.Sprintf("%dth%s: ENOSPC", 1+n%40, op))
			w.wantAtLeast("after a kill")
			w.wantCompacted("after a kill")
			w.fill(10)
			w.wantCompacted("and then")
			w.close()
			if fired == 0 {
				break
			}
		}
	}
	if pending < 10 {
		t.Errorf("%d swaps were put off", pending)
	}
}

// putOff is a load whose first swap lacks room for its nth rename: four are before the cleaned segment is the truth, five after.
func putOff(t *testing.T, n int) *swapLoad {
	t.Helper()
	rule := fmt.Sprintf("%dth+ rename: ENOSPC", n)
	w := newSwapLoad(t, rule)
	w.set(rule)
	w.e.Clean()
	w.settle()
	if w.l.Err() != nil {
		t.Fatal(w.l.Err())
	}
	return w
}

// TestPutOffSwap: while a swap lacks room the log is appended to, its start moves, and it is removed, as always.
func TestPutOffSwap(t *testing.T) {
	for n := 1; n < 11; n++ {
		w := putOff(t, n)
		if want := n > 4 && n < 10; want != (len(w.e.cleaner.halves) == 1) {
			t.Errorf("%s: %d swaps were put off", w.rule, len(w.e.cleaner.halves))
		}
		w.set("")
		w.fill(3)
		if start, err := w.l.DeleteRecords(int64(w.sealed) + 1); err != nil || start != int64(w.sealed)+1 {
			t.Errorf("%s: DeleteRecords: %d, %v", w.rule, start, err)
		}
		w.settle()
		read := func(when string) {
			t.Helper()
			if got, want := w.read(when), w.put[w.sealed:]; !slices.Equal(got, want) { // the batch at the start has one record before it
				t.Errorf("%s, %s: %q, want %q", w.rule, when, got, want)
			}
		}
		read("while it lacks room")
		w.e.Clean()
		w.settle()
		read("with room")
		if got := w.disk.Files("*.log"); len(got) != 1 || len(w.e.cleaner.halves) != 0 || w.l.Err() != nil {
			t.Errorf("%s: %v is left, %d swaps, offline: %v", w.rule, got, len(w.e.cleaner.halves), w.l.Err())
		}
		w.close()

		w = putOff(t, n)
		w.set("")
		w.e.Remove(w.l)
		w.settle()
		if got := w.disk.Files("*.log*"); len(got) != 0 || len(w.e.cleaner.halves) != 0 {
			t.Errorf("%s: of a removed log %v is left, %d swaps", w.rule, got, len(w.e.cleaner.halves))
		}
		w.close()
	}
}
