package engine

import (
	"errors"
	"io/fs"
	"math"
	"time"

	"kaas/engine/segment"
	"kaas/engine/vfs"
)

// How files go: their names first, so that nothing finds them, then their bytes in the background, slice by slice. Unlinking a GiB at once
// keeps the journal of the file system and the page cache busy for so long that appends to other files wait.
const (
	shredSlice = 8 << 20
	// shredRest: between two slices is a pause of so many times what the first took.
	shredRest = 4
	// shredBusyMs is when a file that somebody still reads is looked at again.
	shredBusyMs = 1000

	deleteSuffix  = "-delete"             // ends the names of directories that are being removed
	straySuffix   = "-stray"              // ends those of directories that wait for an operator, as in Apache Kafka
	deletedSuffix = segment.DeletedSuffix // ends those of files
)

// later runs f in the background once delayMs have passed; not at all if the engine is closed before: the next start finds what there
// is to remove. Memory does not wait: it would be held meanwhile.
func (e *Engine) later(delayMs int64, f func()) {
	if delayMs <= 0 || e.cfg.Storage == Memory {
		e.reaper.run(f)
		return
	}
	time.AfterFunc(time.Duration(min(delayMs, math.MaxInt64/int64(time.Millisecond)))*time.Millisecond, func() {
		if !e.closed.Load() {
			e.reaper.run(f)
		}
	})
}

// setAside renames a directory so that its name is free at once, and removes it in the background, when nobody reads segs, which are in it.
func (e *Engine) setAside(dir string, segs []*segment.Segment, delayMs int64) {
	to := dir + "." + randomHex() + deleteSuffix
	err := e.cfg.FS.Rename(dir, to)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		e.cfg.Logger.Error("directory could not be set aside for removal", "dir", dir, "error", err)
		return
	}
	e.reap(to, segs, delayMs)
}

// strand renames a directory of which nobody knows whose it is. It stays until an operator decides: its bytes may be all that is left of a
// log of which only partition.metadata was damaged.
func (e *Engine) strand(dir string) {
	to := dir + "." + randomHex() + straySuffix
	if err := e.cfg.FS.Rename(dir, to); err != nil {
		e.cfg.Logger.Error("directory with an empty partition.metadata could not be set aside", "dir", dir, "error", err)
		return
	}
	e.cfg.Logger.Error("partition.metadata is empty: set aside and left alone. After a power cut nothing in it was acknowledged as durable. "+
		"If the file was damaged, stop the broker, write the topic's id into it and give the directory its name again", "dir", dir, "now", to)
}

// reap removes a directory and the files in it.
func (e *Engine) reap(dir string, segs []*segment.Segment, delayMs int64) {
	e.later(delayMs, func() {
		if e.busy(segs) {
			e.reap(dir, segs, shredBusyMs)
			return
		}
		entries, err := e.cfg.FS.ReadDir(dir)
		for _, f := range entries {
			if err == nil {
				err = e.shred(dir+"/"+f.Name, func(cut func() error) error { return cut() })
			}
		}
		if err == nil {
			err = e.cfg.FS.Remove(dir)
		}
		if vfs.NoRoom(err) {
			e.reap(dir, nil, shredBusyMs)
			return
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && err != ErrClosed {
			e.cfg.Logger.Warn("directory could not be removed", "dir", dir, "error", err)
		}
	})
}

// busy tells whether somebody reads one of segs: a file that is cut would end before what was promised. Memory does not wait: it is never
// cut, and readers keep what they have.
func (e *Engine) busy(segs []*segment.Segment) bool {
	for _, s := range segs {
		if s.InUse() && e.cfg.Storage == Disk {
			return true
		}
	}
	return false
}

// shredLater removes files of the log's directory that have lost their names to *.deleted ones, when nobody reads segs, whose they were.
func (l *Log) shredLater(names []string, segs []*segment.Segment, delayMs int64) {
	if len(names) == 0 {
		return
	}
	l.e.later(delayMs, func() {
		if l.e.busy(segs) {
			l.shredLater(names, segs, shredBusyMs)
			return
		}
		for _, name := range names {
			// A log that is removed takes its directory along, with what is in it.
			err := l.e.shred(l.dir()+"/"+name, l.inDir)
			if err == ErrClosed || err == ErrDeleted {
				return
			}
			if vfs.NoRoom(err) { // of a file system that needs some to give some
				l.shredLater([]string{name}, nil, shredBusyMs)
				continue
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				l.e.cfg.Logger.Warn("file could not be removed", "log", l.name(), "file", name, "error", err)
			}
		}
	})
}

// shred cuts a file down and removes it, each cut by way of within. After ErrClosed the next start goes on.
func (e *Engine) shred(name string, within func(func() error) error) error {
	for {
		began := time.Now()
		gone := false
		err := within(func() (err error) {
			gone, err = cutSlice(e.cfg.FS, name)
			return err
		})
		if err != nil || gone {
			return err
		}
		rest := time.NewTimer(shredRest * time.Since(began))
		select {
		case <-e.stop:
			rest.Stop()
			return ErrClosed
		case <-rest.C:
		}
	}
}

// cutSlice takes the last slice off a file; of the last one the name goes too.
func cutSlice(f vfs.FS, name string) (gone bool, err error) {
	size, err := f.Size(name)
	if err != nil {
		return false, err
	}
	if size <= shredSlice {
		return true, f.Remove(name)
	}
	file, err := f.Open(name, vfs.ReadWrite)
	if err != nil {
		return false, err
	}
	return false, errors.Join(file.Truncate(size-shredSlice), file.Close())
}
