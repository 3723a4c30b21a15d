package logtool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"kaas/codec/batch"
	"kaas/engine"
	"kaas/engine/segment"
	"kaas/engine/vfs"
	"kaas/server"
)

// plan is what is to be done to one partition.
type plan struct {
	over  *overlay
	edits []*edit
	end   int64 // of the log then
}

// engineConfig opens a directory on an overlay and does nothing by itself.
func engineConfig(o *overlay, dir string) engine.Config {
	return engine.Config{Dir: dir, FS: o, Format: server.BatchFormat(), Durability: engine.PageCache, Maintenance: math.MaxInt64,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
}

// plan has the engine recover the log on an overlay. refused says why that is not to be done.
func (r *repair) plan(p *partition) (*plan, *refusedObject, error) {
	refuse := func(format string, args ...any) *refusedObject {
		return &refusedObject{Dir: p.dir, Why: fmt.Sprintf(format, args...)}
	}
	name := filepath.Base(p.dir)
	i := strings.LastIndexByte(name, '-')
	number, err := strconv.ParseInt(name[i+1:], 10, 32)
	if i < 0 || err != nil {
		return nil, refuse("not named as the directory of a partition"), nil
	}
	topic, known := p.ctx.topic(p.dir)
	if !known && p.ctx.topics != nil {
		return nil, refuse("no topic of the catalog owns it: the next start removes it"), nil
	}
	if p.foreign {
		return nil, refuse("it belongs to a deleted topic: the next start sets it aside"), nil
	}
	if !known && !p.hasID {
		return nil, refuse("neither %s nor the catalog has its topic id", metadataName), nil
	}
	pl := &plan{over: newOverlay(r.fs)}
	if err := pl.forget(p); err != nil {
		return pl, nil, err
	}
	spec := engine.LogSpec{Topic: name[:i], Partition: int32(number), TopicID: p.id, Config: logConfig(topic.configs)}
	if known {
		spec.TopicID = topic.id
	}
	why, err := pl.recover(r.data, spec)
	if err != nil {
		return pl, nil, err
	}
	if why != nil {
		return pl, refuse("the engine cannot recover it: %v", why), nil
	}
	refused, err := r.lost(p, pl)
	if err != nil || refused != nil {
		return pl, refused, err
	}
	all, err := pl.over.edits()
	if err != nil {
		return pl, nil, err
	}
	pl.edits = needed(p, all)
	return pl, nil, nil
}

// logConfig is that of a log which is only recovered: nothing is deleted from it, and holes in its offsets may be compaction's.
func logConfig(configs map[string]string) *engine.LogConfig {
	c := engine.DefaultLogConfig
	c.Delete, c.Compact = false, true
	if n, err := strconv.Atoi(configs["index.interval.bytes"]); err == nil && n >= 0 {
		c.IndexIntervalBytes = n
	}
	return &c
}

// forget removes files that do not fit from the overlay, so that they are built again.
func (pl *plan) forget(p *partition) error {
	for _, x := range p.found {
		switch ext := filepath.Ext(x.File); {
		case ext == segment.IndexSuffix, ext == segment.TimeIndexSuffix, ext == segment.TxnIndexSuffix, ext == segment.SnapshotSuffix,
			filepath.Base(x.File) == epochsName:
		case strings.Contains(x.What, epochsName): // told of a batch, but it is the file that is wrong
			x = &Problem{File: filepath.Join(p.dir, epochsName)}
		default:
			continue
		}
		if err := pl.over.Remove(x.File); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// recover does to the log, on the overlay, what a start does, with what the commit journal has of it, and then scans it from its first
// batch on. Not at once: what the commit journal has of older segments must not be written to them. why: the log is offline.
func (pl *plan) recover(data string, spec engine.LogSpec) (why, err error) {
	if why, err = pl.open(data, spec, false); why != nil || err != nil {
		return why, err
	}
	for _, name := range redoNames {
		if err := pl.over.Remove(filepath.Join(data, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return pl.open(data, spec, true)
}

// redoNames are the files of the commit journal (engine/FORMAT.md §9).
var redoNames = []string{"kaas.redo.0", "kaas.redo.1"}

// isRedo tells the files of the commit journal. They stay as they are: other logs may need them.
func isRedo(path string) bool { return slices.Contains(redoNames, filepath.Base(path)) }

func (pl *plan) open(data string, spec engine.LogSpec, rescan bool) (why, err error) {
	e, err := engine.Open(engineConfig(pl.over, data))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	l := e.OpenLog(spec)
	if rescan {
		if err := e.Rescan(l); err != nil {
			return nil, err
		}
	}
	if err := e.Recover(context.Background(), []*engine.Log{l}, nil); err != nil {
		return nil, err
	}
	pl.end = l.Offsets().LogEnd
	return l.Err(), nil
}

// lost refuses a plan that loses sound batches, unless that is wanted.
func (r *repair) lost(p *partition, pl *plan) (*refusedObject, error) {
	last, count := int64(-1), 0
	for _, base := range p.sorted(segment.LogSuffix) {
		err := soundBatches(r.fs, p.path(base, segment.LogSuffix), func(v batch.View) {
			if v.LastOffset() >= pl.end {
				last = max(last, v.LastOffset())
				count++
			}
		})
		if err != nil {
			return nil, err
		}
	}
	if count == 0 {
		return nil, nil
	}
	if r.cutDamaged {
		r.text("%s: cut at offset %d, %d sound batches up to offset %d go into the backup only", p.dir, pl.end, count, last)
		return nil, nil
	}
	return &refusedObject{Dir: p.dir, From: pl.end, To: last + 1, Batches: count, Why: fmt.Sprintf(
		"the log is damaged in the middle. It can go on from offset %d only, and %d sound batches behind the damage, up to offset %d, would be lost: offsets %s. --cut-damaged cuts it there",
		pl.end, count, last, span(pl.end, last))}, nil
}

// soundBatches calls f for every batch of a file whose CRC matches, also for those behind damage.
func soundBatches(f vfs.FS, path string, visit func(v batch.View)) error {
	file, err := f.Open(path, vfs.ReadOnly)
	if err != nil {
		return err
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return err
	}
	r := &batches{name: path, f: file, size: size, buf: make([]byte, readWindow)}
	for r.pos < size {
		v, _, err := r.next()
		var problem *Problem
		switch {
		case err == io.EOF:
			return nil
		case errors.As(err, &problem):
			if !r.seek() {
				return nil
			}
		case err != nil:
			return err
		case v.CheckCRC():
			visit(v)
		default: // its length may be what is damaged
			r.pos -= int64(v.Size())
			if !r.seek() {
				return nil
			}
		}
	}
	return nil
}

// seek moves behind pos to where a whole batch with a matching CRC begins; false if there is none.
func (r *batches) seek() bool {
	for pos := r.pos + 1; pos+batch.HeaderSize <= r.size; pos++ {
		head, err := r.at(pos, batch.HeaderSize)
		if err != nil {
			return false
		}
		h, err := batch.PeekHeader(head)
		if err != nil || int64(h.Size()) > r.size-pos || h.BaseOffset() < 0 || h.LastOffsetDelta() < 0 {
			continue
		}
		whole, err := r.at(pos, int64(h.Size()))
		if err != nil {
			return false
		}
		if v, err := batch.Peek(whole); err == nil && v.CheckCRC() {
			r.pos = pos
			return true
		}
	}
	return false
}

// needed leaves out what recovery would write differently but is sound: indexes of another density, snapshots with the same
// producers, space allocated ahead, the journal if no log changes.
func needed(p *partition, all []*edit) (list []*edit) {
	told := map[string]bool{}
	for _, x := range p.found {
		told[x.File] = true
		if strings.Contains(x.What, epochsName) {
			told[filepath.Join(p.dir, epochsName)] = true
		}
	}
	logs := map[int64]bool{} // whose log changes
	for _, e := range all {
		if base, suffix, ok := segment.ParseName(filepath.Base(e.name)); ok && suffix == segment.LogSuffix {
			logs[base] = e.kind != cut || told[e.name]
		}
	}
	line, _ := p.ctx.line(p.dir)
	failed, touched := line.Failed, false
	for _, changes := range logs {
		touched = touched || changes
	}
	for _, e := range all {
		base, suffix, ok := segment.ParseName(filepath.Base(e.name))
		need := true
		switch {
		case filepath.Dir(e.name) != p.dir:
			// Of a log whose sync failed the next start writes again what it keeps: it must not be told that the log is clean.
			need = touched && !isRedo(e.name) && !failed
		case e.kind == removed:
		case !ok:
		case suffix == segment.LogSuffix:
			need = logs[base]
		case suffix == segment.SnapshotSuffix:
			need = told[e.name] || e.old < 0 || touched
		default:
			need = told[e.name] || logs[base]
		}
		if need {
			list = append(list, e)
		}
	}
	slices.SortStableFunc(list, func(a, b *edit) int { return a.rank() - b.rank() })
	return list
}
