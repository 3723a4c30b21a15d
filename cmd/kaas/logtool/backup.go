package logtool

import (
	"errors"
	"io/fs"
	"path/filepath"

	"kaas/engine"
	"kaas/engine/segment"
	"kaas/engine/vfs"
)

// rank is the order in which edits of one partition are made, so that a repair that is cut short leaves what the next one finds damaged
// as before, or mended: later segments go before the damaged one is cut, and the journal is last.
func (e *edit) rank() int {
	_, suffix, ok := segment.ParseName(filepath.Base(e.name))
	switch log := ok && suffix == segment.LogSuffix; {
	case filepath.Base(e.name) == engine.JournalName:
		return 4
	case e.kind == removed && log:
		return 0
	case e.kind == cut:
		return 1
	case e.kind == removed:
		return 3
	}
	return 2
}

// apply makes edits, after all files that they change have been copied and the copies are durable.
func (r *repair) apply(o *overlay, edits []*edit) error {
	for _, e := range edits {
		if e.old >= 0 && !r.dryRun {
			if err := r.save(e); err != nil {
				return err
			}
		}
	}
	dirs := map[string]bool{}
	for _, e := range edits {
		r.edits++
		r.tellEdit(e)
		if r.dryRun {
			continue
		}
		if err := r.change(o, e); err != nil {
			return err
		}
		dirs[filepath.Dir(e.name)] = true
	}
	for dir := range dirs {
		if err := r.fs.SyncDir(dir); err != nil {
			return err
		}
	}
	return r.flush()
}

func (r *repair) tellEdit(e *edit) {
	o := editObject{Type: "edit", File: e.name, Action: string(e.kind), From: max(e.old, 0), To: e.size}
	switch e.kind {
	case removed:
		o.To = 0
		r.text("%-8s %s (%d bytes)", e.kind, e.name, e.old)
	case appeared:
		r.text("%-8s %s (%d bytes)", e.kind, e.name, e.size)
	default:
		r.text("%-8s %s (from %d to %d bytes)", e.kind, e.name, e.old, e.size)
	}
	if r.saved[e.name] {
		o.Backup = r.copyOf(e.name)
	}
	r.object(o)
}

// copyOf is the name of the copy of a file of the data directory.
func (r *repair) copyOf(name string) string {
	rel, err := filepath.Rel(r.data, name)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return filepath.Join(r.backup, rel)
}

// save copies a file into the backup, unless an earlier edit did, and makes the copy durable with its name.
func (r *repair) save(e *edit) error {
	if r.saved[e.name] {
		return nil
	}
	to := r.copyOf(e.name)
	if err := r.fs.MkdirAll(filepath.Dir(to)); err != nil {
		return err
	}
	from, err := r.fs.Open(e.name, vfs.ReadOnly)
	if err != nil {
		return err
	}
	defer from.Close()
	if err := r.copyTo(to, from, e.old); err != nil {
		return err
	}
	for dir := filepath.Dir(to); ; dir = filepath.Dir(dir) {
		if err := r.fs.SyncDir(dir); err != nil {
			return err
		}
		if dir == filepath.Dir(r.backup) {
			break
		}
	}
	r.saved[e.name] = true
	return nil
}

// copyTo makes a new file of the first size bytes of another, and syncs it.
func (r *repair) copyTo(name string, from vfs.File, size int64) error {
	f, err := r.fs.Open(name, vfs.CreateNew)
	if err != nil {
		return err
	}
	if err = copyFile(f, from, size); err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// change makes one edit.
func (r *repair) change(o *overlay, e *edit) error {
	switch e.kind {
	case removed:
		return r.removed(e.name)
	case cut:
		f, err := r.fs.Open(e.name, vfs.ReadWrite)
		if err != nil {
			return err
		}
		if err = f.Truncate(e.size); err == nil {
			err = f.Sync()
		}
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		return err
	}
	from, release, err := o.content(e)
	if err != nil {
		return err
	}
	defer release()
	tmp := e.name + ".tmp" // one that is there was left by a write that was cut short, and saved
	if err := r.removed(tmp); err != nil {
		return err
	}
	if err := r.copyTo(tmp, from, e.size); err != nil {
		return err
	}
	return r.fs.Rename(tmp, e.name)
}

// removed sees to it that there is no such file.
func (r *repair) removed(name string) error {
	err := r.fs.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
