package engine

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"kaas/engine/segment"
	"kaas/engine/vfs/crashfs"
)

// shredded counts, by name, how often files were cut down and in what order what happened to them.
type shredded struct {
	mu   sync.Mutex
	cuts map[string]int
	ops  []string // cut and remove of log files, by how their names end
}

func (s *shredded) see(op crashfs.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !strings.Contains(op.Name, ".log") || !strings.HasSuffix(op.Name, deletedSuffix) && !strings.Contains(op.Name, deleteSuffix) {
		return
	}
	if op.Kind == crashfs.OpTruncate {
		s.cuts[op.Name]++
	}
	s.ops = append(s.ops, op.Kind)
}

// big makes a log of one segment of n slices and a bit, and one that is appended to.
func (f *fixture) big(n int) *Log {
	l := f.log(true, small(int64(n)*shredSlice+1000))
	size := shredSlice/4 - 61
	for range 4 * n {
		f.append(l, spec{size: size})
	}
	f.append(l, spec{size: 500})
	f.append(l, spec{size: 500})
	f.e.work.wait()
	return l
}

// TestShredding: what goes, however it goes, loses its name first, durably, and then its bytes in slices, none of which is larger than
// shredSlice.
func TestShredding(t *testing.T) {
	for name, remove := range map[string]func(f *fixture, l *Log){
		"delete records": func(f *fixture, l *Log) {
			if _, err := l.DeleteRecords(l.Offsets().LogEnd); err != nil {
				f.t.Fatal(err)
			}
		},
		"retention": func(f *fixture, l *Log) {
			c := *l.Config()
			c.RetentionBytes = 0
			l.SetConfig(&c)
			f.e.Maintain()
		},
		"topic": func(f *fixture, l *Log) { f.e.Remove(l) },
	} {
		t.Run(name, func(t *testing.T) {
			d := crashfs.NewBare()
			f := onDisk(t, d, PageCache)
			l := f.big(3)
			c := *l.Config()
			c.FileDeleteDelayMs = 0
			l.SetConfig(&c)
			s := &shredded{cuts: map[string]int{}}
			d.OnOp(s.see)
			remove(f, l)
			until(t, "all but the segment in use is gone", func() bool { // a sync may hold a file for a moment
				f.e.reaper.wait()
				return len(d.Files("*"+deletedSuffix))+len(d.Files("*"+segment.LogSuffix)) <= 1
			})
			d.OnOp(nil)
			large := 0
			for name, n := range s.cuts {
				large = max(large, n)
				if n > 4 {
					t.Errorf("%d cuts of %s", n, name)
				}
			}
			if large < 3 {
				t.Errorf("the large segment went in %d cuts: %v", large, s.ops)
			}
			if got := d.Files("*" + deletedSuffix); len(got) > 0 {
				t.Errorf("left: %v", got)
			}
		})
	}
}

// TestShreddingCutShort: after a power cut or a kill between two slices only *.deleted files are left of what goes, and a start
// finishes them, in slices too.
func TestShreddingCutShort(t *testing.T) {
	for _, kill := range []bool{true, false} {
		d := crashfs.NewBare()
		f := onDisk(t, d, PageCache)
		l := f.big(4)
		c := *l.Config()
		c.FileDeleteDelayMs = 0
		l.SetConfig(&c)
		if err := l.syncSegment(l.active()); err != nil {
			t.Fatal(err)
		}
		cuts := 0
		var after *crashfs.Disk
		d.OnOp(func(op crashfs.Op) {
			if op.Kind != crashfs.OpTruncate || !strings.HasSuffix(op.Name, deletedSuffix) {
				return
			}
			if cuts++; cuts == 2 && kill {
				after = d.Clone()
			} else if cuts == 2 {
				after = d.CrashAs(rand.New(rand.NewPCG(1, 1)), crashfs.Cut{Names: crashfs.None, Sizes: crashfs.All, Data: crashfs.All, Sector: 512})
			}
		})
		end := l.Offsets().LogEnd
		if _, err := l.DeleteRecords(end - 1); err != nil {
			t.Fatal(err)
		}
		f.e.reaper.wait()
		d.OnOp(nil)
		if after == nil || cuts < 4 {
			t.Fatalf("%d cuts", cuts)
		}
		if got := after.Files("*" + deletedSuffix); len(got) != 1 || len(after.Files("*"+segment.LogSuffix)) != 1 {
			t.Errorf("kill=%v: %v of %v", kill, got, after.Files("*"))
		}
		s := &shredded{cuts: map[string]int{}}
		after.OnOp(s.see)
		f = onDisk(t, after, PageCache)
		if l = f.log(false, nil); l.Load() != nil || l.Offsets().LogStart != end-1 || l.Offsets().LogEnd != end {
			t.Errorf("kill=%v: %+v, %v", kill, l.Offsets(), l.Err())
		}
		f.e.reaper.wait()
		after.OnOp(nil)
		if got := fmt.Sprint(s.ops); len(after.Files("*"+deletedSuffix)) > 0 || !strings.HasPrefix(got, "[truncate") || !strings.HasSuffix(got, "remove]") {
			t.Errorf("kill=%v: the start did %s, and left %v", kill, got, after.Files("*"+deletedSuffix))
		}
	}
}

// TestShreddingWaitsForReaders: a file that is being sent is not cut under the reader.
func TestShreddingWaitsForReaders(t *testing.T) {
	f := newFixture(t)
	l := f.big(3)
	c := *l.Config()
	c.FileDeleteDelayMs = 0
	l.SetConfig(&c)
	s, err := l.Read(0, 1<<20, true, ReadUncommitted)
	if err != nil {
		t.Fatal(err)
	}
	old := (*l.segs.Load())[:1]
	if _, err := l.DeleteRecords(l.Offsets().LogEnd); err != nil {
		t.Fatal(err)
	}
	f.e.reaper.wait()
	if size, err := s.Ref.File().Size(); err != nil || size < 3*shredSlice || !f.e.busy(old) {
		t.Errorf("the file that is read has %d bytes, %v; busy %v", size, err, f.e.busy(old))
	}
	s.Ref.Release()
	if f.e.busy(old) {
		t.Error("busy without a reader")
	}
}
