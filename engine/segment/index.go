package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"sync"

	"kaas/engine/vfs"
)

const (
	offsetEntry = 8  // int32 relative offset, int32 position
	timeEntry   = 12 // int64 timestamp, int32 relative offset

	// flushAt is how many bytes of entries are kept on the heap before they go to the file in one write: an index write per
	// 4 KiB of log would cost as much as the log's own.
	flushAt = 512 * offsetEntry
)

// sparse is a sorted file of fixed entries with the newest ones in memory. Keys are the first 4 or 8 bytes of an entry.
type sparse struct {
	seg *Segment
	of  entrySize // says which of the two indexes it is
	gen int32     // counts replacements of everything; guarded by mu

	mu   sync.Mutex // guards what follows; held over memory and page-cache work only
	disk int        // bytes of the file that count
	tail []byte     // entries after those
	rare *rare      // nil as a rule: a broker may have 100,000 segments
}

type entrySize uint8

// rare is what few indexes have at a time.
type rare struct {
	mapped []byte // of the file, when mapped
	err    error  // the file cannot be used: to be rebuilt
}

func (x *sparse) path() string {
	if x.of == offsetEntry {
		return x.seg.path(IndexSuffix)
	}
	return x.seg.path(TimeIndexSuffix)
}

func (x *sparse) width() int { return int(x.of) }

// mapped is the file, nil when it is not mapped. mu is held.
func (x *sparse) mapped() []byte {
	if x.rare == nil {
		return nil
	}
	return x.rare.mapped
}

// broken is why the file cannot be used, nil if it can. mu is held.
func (x *sparse) broken() error {
	if x.rare == nil {
		return nil
	}
	return x.rare.err
}

// note sets what mapped and broken say. mu is held.
func (x *sparse) note(mapped []byte, err error) {
	x.rare = nil
	if mapped != nil || err != nil {
		x.rare = &rare{mapped, err}
	}
}

func (x *sparse) count() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return (x.disk + len(x.tail)) / x.width()
}

func (x *sparse) key(e []byte) int64 {
	if x.of == offsetEntry {
		return int64(int32(binary.BigEndian.Uint32(e)))
	}
	return int64(binary.BigEndian.Uint64(e))
}

type entry [timeEntry]byte

// floor returns the last entry with a key not above key; ok is false if there is none.
func (x *sparse) floor(key int64) (e entry, ok bool, err error) {
	e, _, ok, err = x.around(key)
	return e, ok, err
}

// around is floor with the entry that follows; zeros where there is none, or where it would take another read.
func (x *sparse) around(key int64) (e, after entry, ok bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	w := x.width()
	if len(x.tail) > 0 && x.key(x.tail) <= key {
		n := search(len(x.tail)/w, func(i int) bool { return x.key(x.tail[i*w:]) <= key })
		copy(e[:w], x.tail[(n-1)*w:])
		copy(after[:w], x.tail[n*w:])
		return e, after, true, nil
	}
	if err := x.broken(); err != nil {
		return e, after, false, err
	}
	if x.disk == 0 {
		return e, after, false, nil
	}
	return x.aroundDisk(key)
}

// search returns how many of n leading elements satisfy ok, which must hold for a prefix.
func search(n int, ok func(i int) bool) int {
	lo := 0
	for lo < n {
		if mid := int(uint(lo+n) >> 1); ok(mid) {
			lo = mid + 1
		} else {
			n = mid
		}
	}
	return lo
}

func (x *sparse) aroundDisk(key int64) (e, after entry, ok bool, err error) {
	if len(x.mapped()) < x.disk {
		if err := x.remap(); err != nil {
			x.note(nil, err)
			return e, after, false, err
		}
	}
	mapped, w := x.mapped(), x.width()
	if mapped == nil {
		e, ok, err = x.floorRead(key)
		return e, after, ok, err
	}
	// The file may have been cut behind our back: touching the map is then a fault, which must not end the process.
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if r := recover(); r != nil {
			err = &CorruptError{File: x.path(), Err: fmt.Errorf("fault in map: %v", r)}
			x.note(mapped, err)
			ok = false
		}
	}()
	n := search(x.disk/w, func(i int) bool { return x.key(mapped[i*w:]) <= key })
	if n == 0 {
		return e, after, false, nil
	}
	copy(e[:w], mapped[(n-1)*w:])
	if n < x.disk/w {
		copy(after[:w], mapped[n*w:])
	} else {
		copy(after[:w], x.tail)
	}
	return e, after, true, nil
}

// remap maps the file up to disk bytes, unless the budget of maps is used up.
func (x *sparse) remap() error {
	x.unmapLocked()
	size, err := x.seg.files.FS.Size(x.path())
	if err != nil {
		return err
	}
	if size < int64(x.disk) {
		return &CorruptError{File: x.path(), Offset: size, Err: errors.New("index is shorter than it was")}
	}
	if x.seg.files.maps.Add(1) > x.seg.files.maxMaps {
		x.seg.files.maps.Add(-1)
		return nil
	}
	file, err := x.seg.files.FS.Open(x.path(), vfs.ReadOnly)
	var mapped []byte
	if err == nil {
		mapped, err = file.Map(x.disk)
		file.Close()
	}
	if err != nil {
		x.seg.files.maps.Add(-1)
		return err
	}
	x.note(mapped, x.broken())
	return nil
}

func (x *sparse) floorRead(key int64) (e entry, ok bool, err error) {
	file, err := x.seg.files.FS.Open(x.path(), vfs.ReadOnly)
	if err != nil {
		x.note(nil, err)
		return e, false, err
	}
	defer file.Close()
	var rerr error
	w := x.width()
	read := func(i int) bool {
		if _, err := file.ReadAt(e[:w], int64(i*w)); err != nil {
			rerr = err
		}
		return x.key(e[:]) <= key
	}
	n := search(x.disk/w, read)
	if n > 0 {
		read(n - 1)
	}
	x.note(nil, rerr)
	return e, n > 0 && rerr == nil, rerr
}

func (x *sparse) unmap() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.unmapLocked()
}

func (x *sparse) unmapLocked() {
	if m := x.mapped(); m != nil {
		x.seg.files.FS.Unmap(m)
		x.note(nil, x.broken())
		x.seg.files.maps.Add(-1)
	}
}

// add appends an entry; only the log's writer calls it.
func (x *sparse) add(e []byte) {
	x.mu.Lock()
	x.tail = append(x.tail, e...)
	x.mu.Unlock()
}

// last returns the newest entry.
func (x *sparse) last() (e entry, ok bool, err error) {
	return x.floor(1 << 62)
}

// flush writes the entries on the heap to the file; with last it also cuts the file there and gives up the buffer, and with bare it makes no
// file for no entries: making one is most of what the close of a log with few batches costs. Only the log's writer calls it; readers are not
// held up by the write.
func (x *sparse) flush(last, sync, bare bool) error {
	if x.seg.files.memory {
		return nil
	}
	x.mu.Lock()
	tail, at, gen := x.tail, x.disk, x.gen
	x.mu.Unlock()
	if len(tail) == 0 && !last {
		return nil
	}
	mode := vfs.Create
	if bare && len(tail) == 0 {
		mode = vfs.ReadWrite
	}
	file, err := x.seg.files.FS.Open(x.path(), mode)
	if errors.Is(err, fs.ErrNotExist) && mode == vfs.ReadWrite {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.WriteAt(tail, int64(at)); err != nil {
		return err
	}
	if last {
		err = file.Truncate(int64(at + len(tail)))
	}
	if err == nil && sync {
		err = file.Sync()
	}
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.gen != gen {
		return nil
	}
	x.disk += len(tail)
	x.tail = nil
	if !last {
		x.tail = tail[:0] // the writer goes on: keep the buffer
	}
	return nil
}

// stageTo writes all entries to a file that is to become the index, and keeps them in memory meanwhile: see Settle.
func (x *sparse) stageTo(name string) error {
	if x.seg.files.memory {
		return nil
	}
	x.mu.Lock()
	entries := x.tail
	x.mu.Unlock()
	return write(x.seg.files.FS, name, entries, true)
}

// settle says that the entries in memory are in the file.
func (x *sparse) settle() {
	if x.seg.files.memory {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.unmapLocked()
	x.disk, x.tail = len(x.tail), nil
}

// write replaces the content of a file, durably with sync; its name is the caller's affair.
func write(f vfs.FS, name string, b []byte, sync bool) error {
	file, err := f.Open(name, vfs.Create)
	if err != nil {
		return err
	}
	if _, err = file.WriteAt(b, 0); err == nil {
		err = file.Truncate(int64(len(b)))
	}
	if err == nil && sync {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// adopt takes over an existing file. What it says is checked when it is used.
func (x *sparse) adopt() {
	size, err := x.seg.files.FS.Size(x.path())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		size, err = 0, nil
	case err == nil && size%int64(x.width()) != 0:
		err = &CorruptError{File: x.path(), Offset: size, Err: errors.New("index ends inside an entry")}
	}
	x.mu.Lock()
	x.disk = int(size)
	x.note(x.mapped(), err)
	x.mu.Unlock()
}

// reset empties the index; the file is overwritten by the next flush.
func (x *sparse) reset() {
	x.mu.Lock()
	x.unmapLocked()
	x.disk, x.tail, x.rare = 0, nil, nil
	x.gen++
	x.mu.Unlock()
}

// replace puts rebuilt entries in the place of all there are. They go to the file with the next flush; until then, and when
// a crash comes first, the file is what it was and is rebuilt again.
func (x *sparse) replace(entries []byte) {
	x.mu.Lock()
	x.unmapLocked()
	x.disk, x.tail, x.rare = 0, entries, nil
	x.gen++
	x.mu.Unlock()
}

// fail has look-ups in the file fail from now on, so that the index is rebuilt.
func (x *sparse) fail(err error) {
	x.mu.Lock()
	x.note(x.mapped(), err)
	x.mu.Unlock()
}
