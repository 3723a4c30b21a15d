package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"sync"

	"kaas/engine/vfs"
)

const (
	epochsName   = "leader-epoch-checkpoint"
	metadataName = "partition.metadata"
	smallFileMax = 16 << 20
)

// epochs are the leader epochs of a log and where each began. It has a lock of its own because the committer writes the
// file while appends go on.
type epochs struct {
	mu    sync.Mutex // guards all
	list  []epochStart
	dirty bool // the file lacks something
	// staged: what it lacked is in a file beside it, not yet durable, that is to take its place.
	staged bool
	// ahead: all that the file lacks is the last epoch, which has no batch: the append of the first one has it saved.
	ahead bool
}

type epochStart struct {
	epoch int32
	start int64
}

// unsaved reports that the file lacks something.
func (x *epochs) unsaved() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.dirty || x.staged
}

// assign says that epoch begins at offset. Epochs without a batch in them go (Kafka's LeaderEpochFileCache.assign).
func (x *epochs) assign(epoch int32, offset int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n := len(x.list); n > 0 && x.list[n-1].epoch >= epoch {
		return
	}
	for n := len(x.list); n > 0 && x.list[n-1].start >= offset; n-- {
		x.list = x.list[:n-1]
	}
	x.list = append(x.list, epochStart{epoch, offset})
	x.dirty, x.ahead = true, false
}

// compare tells what the file has: stored, read before the batches were looked at.
func (x *epochs) compare(stored []epochStart) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.dirty = !slices.Equal(x.list, stored)
}

// begin is assign for the epoch that is to come: at the end of the log.
func (x *epochs) begin(epoch int32, end int64) {
	lacks := x.unsaved()
	x.assign(epoch, end)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ahead = x.dirty && !lacks
}

// cutEnd drops epochs that begin at or after end.
func (x *epochs) cutEnd(end int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for n := len(x.list); n > 0 && x.list[n-1].start >= end; n-- {
		x.list = x.list[:n-1]
		x.dirty, x.ahead = true, false
	}
}

// cutStart forgets epochs that end before the log starts; the one that covers start begins there.
func (x *epochs) cutStart(start int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(x.list) > 1 && x.list[1].start <= start {
		x.list = x.list[1:]
		x.dirty, x.ahead = true, false
	}
	if len(x.list) > 0 && x.list[0].start < start {
		x.list = append([]epochStart{{x.list[0].epoch, start}}, x.list[1:]...)
		x.dirty, x.ahead = true, false
	}
}

// endOf answers OffsetForLeaderEpoch as Apache does: the greatest known epoch not above the one asked for, and where it
// ends; (-1, -1) for an epoch above all, or none.
func (x *epochs) endOf(epoch int32, logEnd int64) (int32, int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := len(x.list)
	if n == 0 || epoch < 0 || epoch > x.list[n-1].epoch {
		return -1, -1
	}
	if epoch == x.list[n-1].epoch {
		return epoch, logEnd
	}
	for i := n - 2; i >= 0; i-- {
		if x.list[i].epoch <= epoch {
			return x.list[i].epoch, x.list[i+1].start
		}
	}
	return epoch, x.list[0].start
}

// at is the epoch that covers offset, -1 if none does.
func (x *epochs) at(offset int64) int32 {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := len(x.list) - 1; i >= 0; i-- {
		if x.list[i].start <= offset {
			return x.list[i].epoch
		}
	}
	return -1
}

// save writes Kafka's checkpoint format: version 0, count, then "epoch offset" lines. The caller syncs the directory. One at a time, stage and
// place included.
func (x *epochs) save(f vfs.FS, dir string) error {
	b := x.take(true)
	if b == nil {
		return nil
	}
	return x.saved(vfs.ReplaceFile(f, dir, epochsName, b), false)
}

// behind reports that the file lacks what batches in the log tell.
func (x *epochs) behind() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return (x.dirty || x.staged) && !x.ahead
}

// stage writes the file beside the old one without a sync. place gives it its name when it is durable.
func (x *epochs) stage(f vfs.FS, dir string) error {
	b := x.take(false)
	if b == nil {
		return nil
	}
	return x.saved(writeUnsynced(f, dir+"/"+epochsName+".tmp", b), true)
}

// place ends what stage began, unless a save came between. The caller syncs the directory.
func (x *epochs) place(f vfs.FS, dir string) error {
	x.mu.Lock()
	staged := x.staged
	x.staged = false
	x.mu.Unlock()
	if !staged {
		return nil
	}
	return x.saved(f.Rename(dir+"/"+epochsName+".tmp", dir+"/"+epochsName), false)
}

// take is what the file is to have, nil if it has that; with staged also if only a stage has written it.
func (x *epochs) take(staged bool) []byte {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.dirty && !(staged && x.staged) {
		return nil
	}
	x.ahead = false
	x.dirty, x.staged = false, false
	b := fmt.Appendf(nil, "0\n%d\n", len(x.list))
	for _, e := range x.list {
		b = fmt.Appendf(b, "%d %d\n", e.epoch, e.start)
	}
	return b
}

func (x *epochs) saved(err error, staged bool) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err != nil {
		x.dirty = true
	} else if staged {
		x.staged = true
	}
	return err
}

// load reads the file. Anything that does not parse, or goes back, counts as missing: recovery builds epochs from batches. stored is what a sound file has.
func (x *epochs) load(f vfs.FS, dir string) (stored []epochStart, err error) {
	b, err := vfs.ReadFile(f, dir+"/"+epochsName, smallFileMax)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []epochStart
	var version, count int
	r := bytes.NewReader(b)
	if n, _ := fmt.Fscan(r, &version, &count); n != 2 || version != 0 || count < 0 || count > len(b) {
		return nil, nil
	}
	last := epochStart{-1, math.MinInt64}
	for range count {
		var e epochStart
		if n, _ := fmt.Fscan(r, &e.epoch, &e.start); n != 2 || e.epoch <= last.epoch || e.start < last.start {
			break
		}
		list = append(list, e)
		last = e
	}
	x.mu.Lock()
	x.list, x.dirty = list, len(list) != count
	x.mu.Unlock()
	if len(list) != count {
		return nil, nil
	}
	return slices.Clone(list), nil
}
