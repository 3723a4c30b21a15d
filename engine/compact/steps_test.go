package compact_test

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"kaas/engine"
	"kaas/engine/vfs/crashfs"
)

// stepsOfAClean are the operations of FORMAT.md §8 on a run of four segments, and on one that stays as it is. A change of this list is a
// change of what a power cut may leave.
const stepsOfAClean = `
create 0000.log.cleaned
sync 0000.log.cleaned
create 0000.index.cleaned
truncate 0000.index.cleaned
sync 0000.index.cleaned
create 0000.timeindex.cleaned
write 0000.timeindex.cleaned
truncate 0000.timeindex.cleaned
sync 0000.timeindex.cleaned
create 0000.txnindex.cleaned
truncate 0000.txnindex.cleaned
sync 0000.txnindex.cleaned
truncate 0000.log.cleaned
sync 0000.log.cleaned
rename 0000.index.swap
rename 0000.timeindex.swap
rename 0000.txnindex.swap
syncdir t-0
rename 0000.log.swap
syncdir t-0
rename 0003.log.deleted
remove 0003.index
remove 0003.timeindex
remove 0003.txnindex
remove 0003.snapshot
rename 0006.log.deleted
remove 0006.index
remove 0006.timeindex
remove 0006.txnindex
remove 0006.snapshot
rename 0009.log.deleted
remove 0009.index
remove 0009.timeindex
remove 0009.txnindex
remove 0009.snapshot
syncdir t-0
rename 0000.index
rename 0000.timeindex
rename 0000.txnindex
syncdir t-0
rename 0000.log.deleted
rename 0000.log
syncdir t-0
create 0012.log.cleaned
remove 0012.log.cleaned
create cleaner-offset-checkpoint.tmp
write cleaner-offset-checkpoint.tmp
sync cleaner-offset-checkpoint.tmp
rename cleaner-offset-checkpoint
syncdir d
`

var shredName = regexp.MustCompile(`\.[0-9a-f]{8}\.deleted`)

// TestStepsOfAClean: each sync is there, and comes before what relies on it. A random power cut finds a missing one rarely.
func TestStepsOfAClean(t *testing.T) {
	r := newRig(t, func(c *engine.LogConfig) { c.SegmentBytes = 600 })
	r.conf = func(c *engine.Config) { c.Durability = engine.GroupCommit }
	r.mustOpen()
	for i := range 12 {
		r.add(spec{}, kv{[]string{"a", "b"}[i%2], strings.Repeat("x", 100)})
	}
	r.roll()
	r.durable()
	if r.e.Clean() == 0 { // it leaves small segments, which the next one merges
		t.Fatal("nothing was cleaned")
	}
	r.roll()
	r.durable()
	var ops []string
	var mu sync.Mutex // the background removes what goes
	r.disk.OnOp(func(op crashfs.Op) {
		mu.Lock()
		defer mu.Unlock()
		name := shredName.ReplaceAllString(strings.TrimLeft(strings.TrimPrefix(path.Base(op.Name), "0000000000000000"), ""), ".deleted")
		if op.Kind == crashfs.OpAllocate || op.Kind == crashfs.OpWrite && strings.HasSuffix(op.Name, ".log.cleaned") || op.Kind == crashfs.OpRemove && strings.HasSuffix(op.Name, ".deleted") {
			return // as many as there is data; removals in the background
		}
		ops = append(ops, op.Kind+" "+name)
	})
	if r.e.Clean() == 0 {
		t.Fatal("nothing was cleaned")
	}
	r.disk.OnOp(nil)
	mu.Lock()
	defer mu.Unlock()
	if len(ops) > 0 && ops[0] == "sync kaas.journal" { // if a commit has not: TestCleanSyncsTheJournal
		ops = ops[1:]
	}
	if got := "\n" + strings.Join(ops, "\n") + "\n"; got != stepsOfAClean {
		t.Errorf("steps are %s", got)
	}
}

// TestEmptySegmentsGoInOrder: of segments at the end of a run of which nothing is left, each loses its log durably before the next does: what
// the later one replaced must not be left without it.
func TestEmptySegmentsGoInOrder(t *testing.T) {
	r := newRig(t, func(c *engine.LogConfig) { c.SegmentBytes = 100 })
	r.conf = func(c *engine.Config) { c.Durability = engine.GroupCommit }
	r.mustOpen()
	for _, key := range []string{"a", "b", "c", "b", "c", "d"} { // a segment each
		r.add(spec{}, kv{key, "value"})
	}
	r.durable()
	segs := r.l.Segments()
	cfg := *r.l.Config()
	cfg.SegmentBytes = 3 * segs[0].Size // what takes the place of the second and the third is in another run
	r.l.SetConfig(&cfg)
	var ops []string
	var mu sync.Mutex // the background removes what goes
	r.disk.OnOp(func(op crashfs.Op) {
		mu.Lock()
		defer mu.Unlock()
		if op.Kind == crashfs.OpSyncDir || op.Kind == crashfs.OpRename && strings.HasSuffix(op.Name, ".deleted") {
			ops = append(ops, op.Kind+" "+shredName.ReplaceAllString(strings.TrimPrefix(path.Base(op.Name), "0000000000000000000"), ".deleted"))
		}
	})
	if len(segs) != 6 || r.e.Clean() == 0 {
		t.Fatalf("segments %+v, or nothing was cleaned", segs)
	}
	r.disk.OnOp(nil)
	mu.Lock()
	defer mu.Unlock()
	want := []string{"syncdir t-0", "syncdir t-0", // §8, steps 2 and 3
		"rename 1.log.deleted", "syncdir t-0", "rename 2.log.deleted", "syncdir t-0", "syncdir t-0", // 4
		"syncdir t-0", "rename 0.log.deleted", "syncdir t-0"} // 5 and 6
	if len(ops) < len(want) || !slices.Equal(ops[:len(want)], want) {
		t.Errorf("steps are %q,\nwant %q", ops, want)
	}
}
