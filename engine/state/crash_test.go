package state

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"syscall"
	"testing"

	"kaas/engine/vfs"
	"kaas/engine/vfs/crashfs"
)

// killed returns the disk as the next process sees it; what still runs on d is dead.
func killed(d *crashfs.Disk) *crashfs.Disk {
	d.CutAfter(0)
	return d.Clone()
}

func setRules(t *testing.T, f *crashfs.Faults, text string) {
	t.Helper()
	if err := f.Set(text); err != nil {
		t.Fatal(err)
	}
}

// content is what a file of the disk holds.
func content(t *testing.T, d *crashfs.Disk, name string) []byte {
	t.Helper()
	b, err := vfs.ReadFile(d, name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// life is one opening of a store under random changes, with a model beside it.
type life struct {
	t       *testing.T
	rng     *rand.Rand
	history []map[string]string // contents after 0, 1, 2… batches
	durable int                 // batches that must survive
}

var tinyFiles = Options{FileBytes: 1500, CheckpointBytes: 4000, CacheBytes: -1} // caches cost more than the rest of a life

// change makes one random batch and returns the contents after it.
func (l *life) change() (*Batch, map[string]string) {
	after := maps.Clone(l.history[len(l.history)-1])
	b := &Batch{}
	put := func(k, v string) {
		b.Put([]byte(k), []byte(v))
		after[k] = v
	}
	put("count", fmt.Sprint(len(l.history)))
	for range l.rng.IntN(5) {
		k := fmt.Sprintf("key/%02d", l.rng.IntN(40))
		if l.rng.IntN(3) == 0 {
			b.Delete([]byte(k))
			delete(after, k)
		} else {
			put(k, fmt.Sprintf("%0*d", l.rng.IntN(90), l.rng.IntN(1000)))
		}
	}
	return b, after
}

// run opens the store, checks it, changes it until the power goes or a sync fails (or for steps batches), and returns whether it did.
func (l *life) run(d vfs.FS, steps int) (cut bool) {
	s, err := Open(d, "/s", tinyFiles)
	if errors.Is(err, crashfs.ErrPower) || errors.Is(err, ErrPoisoned) {
		return true
	} else if err != nil {
		l.t.Fatalf("open: %v", err)
	}
	l.check(s)
	for range steps {
		b, after := l.change()
		durable := l.rng.IntN(4) == 0
		l.history = append(l.history, after)
		if err := s.Apply(b, durable); err != nil {
			return true
		}
		if durable {
			l.durable = len(l.history) - 1
		}
		if l.rng.IntN(25) == 0 {
			if s.Checkpoint() != nil {
				return true
			}
			l.durable = len(l.history) - 1
		}
	}
	if s.Close() != nil {
		return true
	}
	l.durable = len(l.history) - 1
	return false
}

// check compares the store with the model: it must be exactly the contents after some batch that is not before the last
// durable one. From there the history goes on.
func (l *life) check(s *Store) {
	l.t.Helper()
	got := map[string]string{}
	last := ""
	if err := s.Scan(nil, func(k, v []byte) error {
		if string(k) <= last {
			l.t.Fatalf("scan: %q after %q", k, last)
		}
		last = string(k)
		got[last] = string(v)
		return nil
	}); err != nil {
		l.t.Fatal(err)
	}
	n := 0
	if c, ok := got["count"]; ok {
		fmt.Sscan(c, &n)
	}
	if n < l.durable || n >= len(l.history) {
		l.t.Fatalf("store holds %d batches, %d were durable, %d were made", n, l.durable, len(l.history)-1)
	}
	if !maps.Equal(got, l.history[n]) {
		l.t.Fatalf("after %d batches the store holds\n%v\nnot\n%v", n, got, l.history[n])
	}
	for k, want := range got {
		if v, ok, err := s.Get([]byte(k)); !ok || err != nil || string(v) != want {
			l.t.Fatalf("get %q: %q %v %v", k, v, ok, err)
		}
	}
	l.history, l.durable = l.history[:n+1], n
}

var (
	seeds = flag.Uint64("seeds", 2, "histories that TestPowerCut tries")
	first = flag.Uint64("first", 0, "the first `seed` of TestPowerCut")
)

// TestPowerCut cuts the power at every operation of a run, four lives in a row, some of which a kill ends, and opens what is left.
func TestPowerCut(t *testing.T) {
	for seed := *first; seed < *first+*seeds; seed++ {
		for at := int64(1); ; at++ {
			rng := rand.New(rand.NewPCG(seed, uint64(at)))
			l := &life{t: t, rng: rng, history: []map[string]string{{}}}
			d := crashfs.New()
			d.CutAfter(at)
			cut := l.run(d, 60)
			for range 3 { // once more, soon after the first cut, when recovery has just worked on the files
				if rng.IntN(3) == 0 {
					d = killed(d)
				} else {
					d = d.Crash(rng)
				}
				d.CutAfter(1 + rng.Int64N(60))
				l.run(d, 20)
			}
			l.run(d.Crash(rng), 5)
			if t.Failed() || !cut {
				t.Logf("seed %d: %d places", seed, at)
				break
			}
		}
	}
}

// damaged opens a disk in which change was applied to the named file, and returns the error.
func damaged(t *testing.T, d *crashfs.Disk, name string, change func([]byte) []byte) error {
	t.Helper()
	c := d.Clone()
	c.Edit(name, change)
	s, err := Open(c, "/s", Options{CacheBytes: -1})
	if err == nil {
		err = s.Scan(nil, func(_, _ []byte) error { return nil })
	}
	return err
}

// TestDamage flips every byte of every file of a store, synced throughout and never closed, in turn: it is found, or it lies in
// the last frame (which may be a torn tail), or it is one of the few bytes that say nothing.
func TestDamage(t *testing.T) {
	d := crashfs.New()
	s, err := Open(d, "/s", Options{FileBytes: 700})
	if err != nil {
		t.Fatal(err)
	}
	var last *Batch
	for i := range 27 {
		last = &Batch{}
		last.Put(fmt.Appendf(nil, "key%d", i), make([]byte, 50))
		if err := s.Apply(last, true); err != nil {
			t.Fatal(err)
		}
		if i == 12 {
			if err := s.Checkpoint(); err != nil {
				t.Fatal(err)
			}
		}
	}
	logs := d.Files("*.log")
	if len(logs) < 3 {
		t.Fatalf("%d files", len(logs))
	}
	active := logs[len(logs)-1]
	replay, replayOff := ckptReplay(t, d)
	for _, name := range append(d.Files("*.ckp"), logs...) {
		size := len(content(t, d, name))
		for off := range size {
			err := damaged(t, d, name, func(b []byte) []byte { b[off] ^= 0x40; return b })
			var c *CorruptError
			found := errors.As(err, &c) && c.File == name && c.Offset <= int64(off)
			switch {
			case name == active && off >= size-len(last.buf): // taken for a torn tail
				found = err == nil
			case err == nil && path.Ext(name) == ".log" && (name < replay || name == replay && off < replayOff):
				found = !slices.Contains(s.values(name), off) // headers of frames and keys, which are not replayed
			case off >= 28 && off < logHeader && err == nil:
				found = true // padding of the header
			}
			if !found {
				t.Fatalf("%s byte %d of %d flipped: %v", name, off, size, err)
			}
		}
	}
}

// ckptReplay is the place at which the replay begins.
func ckptReplay(t *testing.T, d *crashfs.Disk) (name string, off int) {
	b := content(t, d, d.Files("*.ckp")[0])[blockHeader+1:]
	return "/s/" + logName(binary.LittleEndian.Uint32(b[12:])), int(binary.LittleEndian.Uint32(b[16:]))
}

// values lists the offsets in a file that are bytes of values, with their checksums.
func (s *Store) values(name string) (offs []int) {
	s.index.ascend(nil, func(_ []byte, p place) bool {
		for i := range int(p.size) + 4 {
			if s.files[p.file].name == name {
				offs = append(offs, int(p.off)+i)
			}
		}
		return true
	})
	return offs
}

// TestSyncedPlace: damage to the last frame is no torn tail if a checkpoint has seen it synced, or a later file was begun.
func TestSyncedPlace(t *testing.T) {
	d := crashfs.New()
	s, err := Open(d, "/s", Options{FileBytes: 300})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		put(t, s, fmt.Sprint("key", i), "value", true)
	}
	name := "/s/" + logName(1)
	last := len(content(t, d, name)) - 1
	flip := func(b []byte) []byte { b[last] ^= 1; return b }
	frame := (len(content(t, d, name)) - logHeader) / 3
	shorten := func(b []byte) []byte { return b[:len(b)-frame] }
	find := func(d *crashfs.Disk, change func([]byte) []byte) error { return damaged(t, d, name, change) }
	if err := errors.Join(find(d, flip), find(d, shorten)); err != nil {
		t.Errorf("taken for damage: %v", err)
	}
	// A checkpoint as a long walk of the index would give it: the replay begins long before the synced place.
	c := d.Clone()
	s2, err := Open(c, "/s", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s2.writeCheckpoint("/s/"+ckptName(1), 1, logHeader, 1); err != nil {
		t.Fatal(err)
	}
	put(t, s, "big", string(make([]byte, 300)), true) // a second file
	second := "/s/" + logName(2)
	d.Edit(second, func(b []byte) []byte { return b[:logHeader] })
	for what, disk := range map[string]*crashfs.Disk{"checkpoint": c, "second file": d} {
		for how, change := range map[string]func([]byte) []byte{"flipped": flip, "shortened": shorten} {
			var corrupt *CorruptError
			if err := find(disk, change); !errors.As(err, &corrupt) || corrupt.File != name || corrupt.Offset != int64(last+1-frame) {
				t.Errorf("%s, %s: %v", what, how, err)
			}
		}
	}
}

// TestKilledCheckpoint kills the process between the renaming of a checkpoint and the sync of the directory, opens the store,
// and cuts the power: what the checkpoint made superfluous must not be gone without it.
func TestKilledCheckpoint(t *testing.T) {
	for seed := range uint64(30) {
		d, faults := crashfs.New(), crashfs.Rules("")
		s, err := Open(faults.FS(d), "/s", Options{FileBytes: 100})
		if err != nil {
			t.Fatal(err)
		}
		s.busy.Store(true) // nothing in the background
		for i := range 6 {
			put(t, s, "key", fmt.Sprint("value ", i, string(make([]byte, 60))), true)
		}
		setRules(t, faults, "1st syncdir: EIO")
		if err := s.Checkpoint(); !errors.Is(err, syscall.EIO) {
			t.Fatalf("checkpoint: %v", err)
		}
		d = killed(d)
		open(t, d, Options{CacheBytes: -1})
		if n := len(d.Files("*.log")); n != 1 {
			t.Fatalf("%d files after the kill", n)
		}
		d = d.Crash(rand.New(rand.NewPCG(seed, 0)))
		want(t, open(t, d, Options{CacheBytes: -1}), "key", "value 5"+string(make([]byte, 60)))
	}
}

func TestLostFiles(t *testing.T) {
	d := crashfs.New()
	s, err := Open(d, "/s", Options{FileBytes: 300})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 12 {
		var b Batch
		b.Put(fmt.Appendf(nil, "key%d", i), make([]byte, 50))
		if err := s.Apply(&b, true); err != nil {
			t.Fatal(err)
		}
		if i == 6 {
			if err := s.Checkpoint(); err != nil {
				t.Fatal(err)
			}
		}
	}
	logs := d.Files("*.log")
	for _, name := range append(d.Files("*.ckp"), logs[:len(logs)-1]...) {
		c := d.Clone()
		c.Lose(name)
		_, err := Open(c, "/s", Options{})
		var corrupt *CorruptError
		if ext := name[len(name)-4:]; ext == ".ckp" && err == nil {
			continue // nothing was compacted: the whole log is still there
		} else if !errors.As(err, &corrupt) || corrupt.File != name {
			t.Errorf("without %s: %v", name, err)
		}
	}
}
