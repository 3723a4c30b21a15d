// Package crashfs is a file system for tests: a disk in memory that knows what was synced, and that can be cloned as a power
// cut at any operation may leave it; and faults by text rules, over this disk or any other vfs.FS.
//
// It is not a fast file system and not a faithful one of any make: it allows whatever the assumptions in engine/FORMAT.md
// allow. File content needs no descriptor; File.Map and File.FD make a memfd for that file, which later changes reach too.
//
// Invariants: what File.Sync returned nil for survives every cut, with the file's size, and so does what SyncDir returned nil
// for, in that directory. Of everything else a cut keeps some: see Cut. After FailSync (a failed fdatasync) the changes before
// it are seen by readers, but no later sync makes them durable, and the next Sync of a Volume tells. Crash and Clone do not disturb the disk they are taken from.
package crashfs

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"

	"kaas/engine/vfs"
)

// ErrPower is the error of every change of a disk that has no power.
var ErrPower = errors.New("crashfs: power cut")

// The kinds of operations that change a disk, for Op.Kind and in rules.
const (
	OpCreate   = "create"
	OpWrite    = "write"
	OpTruncate = "truncate"
	OpAllocate = "allocate"
	OpZero     = "zero"
	OpSync     = "sync"
	OpRename   = "rename"
	OpRemove   = "remove"
	OpMkdir    = "mkdir"
	OpSyncDir  = "syncdir"
	OpSyncFS   = "syncfs"
)

// Op is one operation.
type Op struct {
	N    int64 // counts from 1
	Kind string
	Name string // as given by the caller; of a rename, the new one
}

func (o Op) String() string { return fmt.Sprintf("%d %s %s", o.N, o.Kind, o.Name) }

// Disk is a disk. It implements vfs.FS; renames stay within a directory (EXDEV otherwise).
type Disk struct {
	mirrors vfs.FS // memfd files for maps and descriptors
	bare    bool   // there are none

	mu    sync.Mutex // guards what follows and all nodes
	root  *node
	ops   int64
	seq   int64 // of the last change; never less than those of pending changes
	limit int64 // operation at which the power goes, 0: never
	size  int64 // all files together
	hook  func(Op)
	locks map[string]bool
	links int // mirrors made

	failures int64 // of syncs, so far; a crash forgets them, a kill does not
	told     int64 // of those, the ones that a Volume has reported
}

// New returns an empty disk.
func New() *Disk { return newDisk(newDir(), 0, false) }

// NewBare returns an empty disk without descriptors: File.FD is -1, and a map is a copy of what the file has when it is made. It and
// its clones need no system calls.
func NewBare() *Disk { return newDisk(newDir(), 0, true) }

func newDisk(root *node, seq int64, bare bool) *Disk {
	d := &Disk{root: root, seq: seq, bare: bare, size: defaultSize, locks: map[string]bool{}}
	if !bare {
		d.mirrors = vfs.Memory()
	}
	return d
}

// OnOp has f called with every operation while it is in flight: a change is seen by readers but may be lost in a cut, a sync has
// not yet made anything durable. f runs in the goroutine of the operation, without locks: it may take Crash and Clone.
func (d *Disk) OnOp(f func(Op)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hook = f
}

// Ops is the number of operations so far.
func (d *Disk) Ops() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ops
}

// CutAfter lets n more operations succeed. The next one fails with ErrPower, though it may be on the disk, and later ones do
// nothing but fail. A negative n takes that back.
func (d *Disk) CutAfter(n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.limit = 0; n >= 0 {
		d.limit = d.ops + n + 1
	}
}

// enter begins a change. mu is held when it returns nil.
func (d *Disk) enter(kind, name string) error {
	d.mu.Lock()
	if d.off() {
		return d.fail(kind, name, ErrPower)
	}
	d.seq++
	return nil
}

// off reports that the power has gone. mu is held.
func (d *Disk) off() bool { return d.limit > 0 && d.ops >= d.limit }

// leave counts the operation that is in flight, after its change was made, and gives up mu.
func (d *Disk) leave(kind, name string) error {
	d.ops++
	op, hook, cut := Op{d.ops, kind, name}, d.hook, d.ops == d.limit
	d.mu.Unlock()
	if cut {
		return &fs.PathError{Op: kind, Path: name, Err: ErrPower}
	}
	if hook != nil {
		hook(op)
	}
	return nil
}

// fail gives up mu: nothing was changed.
func (d *Disk) fail(kind, name string, err error) error {
	d.mu.Unlock()
	return &fs.PathError{Op: kind, Path: name, Err: err}
}

func split(name string) []string {
	name = strings.Trim(path.Clean(name), "/")
	if name == "" || name == "." {
		return nil
	}
	return strings.Split(name, "/")
}

// find returns what has the name, nil when nothing has. mu is held.
func (d *Disk) find(name string) *node {
	n := d.root
	for rest := strings.Trim(path.Clean(name), "/"); rest != "" && rest != "."; {
		if n == nil || !n.dir {
			return nil
		}
		var part string
		part, rest, _ = strings.Cut(rest, "/")
		n = n.names[part]
	}
	return n
}

// parent returns the directory that has, or would have, the name, and the last part of it. mu is held.
func (d *Disk) parent(name string) (*node, string) {
	dirName, base := path.Split(path.Clean(name))
	dir := d.find(dirName)
	if base == "" || base == "." || dir == nil || !dir.dir {
		return nil, ""
	}
	return dir, base
}

func (d *Disk) Open(name string, mode vfs.Mode) (vfs.File, error) {
	d.mu.Lock()
	dir, base := d.parent(name)
	if dir == nil {
		return nil, d.fail("open", name, syscall.ENOENT)
	}
	n := dir.names[base]
	switch {
	case n != nil && n.dir:
		return nil, d.fail("open", name, syscall.EISDIR)
	case n != nil && mode == vfs.CreateNew:
		return nil, d.fail("open", name, syscall.EEXIST)
	case n != nil:
		d.mu.Unlock()
		return &file{d: d, n: n, name: name, readOnly: mode == vfs.ReadOnly}, nil
	case mode == vfs.ReadOnly || mode == vfs.ReadWrite:
		return nil, d.fail("open", name, syscall.ENOENT)
	case d.off():
		return nil, d.fail(OpCreate, name, ErrPower)
	}
	d.seq++
	n = &node{}
	dir.edit(edit{seq: d.seq, name: base, node: n})
	if err := d.leave(OpCreate, name); err != nil {
		return nil, err
	}
	return &file{d: d, n: n, name: name}, nil
}

func (d *Disk) Size(name string) (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.find(name)
	if n == nil || n.dir {
		return 0, &fs.PathError{Op: "stat", Path: name, Err: syscall.ENOENT}
	}
	return int64(len(n.data.b)), nil
}

func (d *Disk) MkdirAll(name string) error {
	parts := split(name)
	for i := range parts {
		if err := d.enter(OpMkdir, name); err != nil {
			return err
		}
		dir := d.find(strings.Join(parts[:i], "/"))
		if !dir.dir {
			return d.fail(OpMkdir, name, syscall.ENOTDIR)
		}
		if dir.names[parts[i]] != nil {
			d.mu.Unlock()
			continue
		}
		dir.edit(edit{seq: d.seq, name: parts[i], node: newDir()})
		if err := d.leave(OpMkdir, name); err != nil {
			return err
		}
	}
	return nil
}

func (d *Disk) Rename(from, to string) error {
	if err := d.enter(OpRename, to); err != nil {
		return err
	}
	dir, old := d.parent(from)
	if dir == nil || dir.names[old] == nil {
		return d.fail(OpRename, from, syscall.ENOENT)
	}
	toDir, base := d.parent(to)
	if toDir != dir {
		return d.fail(OpRename, to, syscall.EXDEV)
	}
	if n := dir.names[base]; n != nil && (n.dir || dir.names[old].dir) {
		return d.fail(OpRename, to, syscall.EEXIST)
	}
	dir.edit(edit{seq: d.seq, name: base, node: dir.names[old]})
	return d.leave(OpRename, to)
}

func (d *Disk) Remove(name string) error {
	if err := d.enter(OpRemove, name); err != nil {
		return err
	}
	dir, base := d.parent(name)
	if dir == nil || dir.names[base] == nil {
		return d.fail(OpRemove, name, syscall.ENOENT)
	}
	if n := dir.names[base]; n.dir && len(n.names) > 0 {
		return d.fail(OpRemove, name, syscall.ENOTEMPTY)
	}
	dir.edit(edit{seq: d.seq, name: base})
	return d.leave(OpRemove, name)
}

func (d *Disk) ReadDir(name string) ([]vfs.DirEntry, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dir := d.find(name)
	if dir == nil || !dir.dir {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOENT}
	}
	var out []vfs.DirEntry
	for _, base := range slices.Sorted(maps.Keys(dir.names)) {
		out = append(out, vfs.DirEntry{Name: base, Dir: dir.names[base].dir})
	}
	return out, nil
}

func (d *Disk) SyncDir(name string) error {
	if err := d.enter(OpSyncDir, name); err != nil {
		return err
	}
	dir, seq := d.find(name), d.seq
	if dir == nil || !dir.dir {
		return d.fail(OpSyncDir, name, syscall.ENOENT)
	}
	if err := d.leave(OpSyncDir, name); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	dir.settleNames(seq)
	return nil
}

type volume struct {
	d    *Disk
	name string
	seen int64 // failures that this one reports no more
}

// Volume is the whole disk. As Linux does since 5.8, it reports failed syncs of any file since it was made, once; and those before, if no
// Volume has reported them.
func (d *Disk) Volume(name string) (vfs.Volume, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &volume{d: d, name: name, seen: d.told}, nil
}

func (v *volume) Sync() error {
	d := v.d
	if err := d.enter(OpSyncFS, v.name); err != nil {
		return err
	}
	seq := d.seq
	if err := d.leave(OpSyncFS, v.name); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.root.every(func(n *node) {
		if n.dir {
			n.settleNames(seq)
		} else {
			n.settle(seq)
		}
	})
	if failed := d.failures > v.seen; !failed {
		return nil
	}
	v.seen, d.told = d.failures, d.failures
	return &fs.PathError{Op: OpSyncFS, Path: v.name, Err: syscall.EIO}
}

func (v *volume) Close() error { return nil }

// FailSync is that of all files.
func (v *volume) FailSync() {
	v.d.mu.Lock()
	defer v.d.mu.Unlock()
	v.d.root.every((*node).failSync)
	v.d.failures++
	v.seen, v.d.told = v.d.failures, v.d.failures
}

// defaultSize is that of a disk without end.
const defaultSize = 1 << 40

// SetSize gives the disk room for so many bytes of files; names take none. Clones and what a crash leaves are without end.
func (d *Disk) SetSize(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.size = bytes
}

// Space is what the size leaves free.
func (d *Disk) Space(string) (vfs.Space, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return vfs.Space{Total: d.size, Free: max(0, d.size-d.root.used())}, nil
}

// free is how much files may grow. It looks at all files of a small disk only. mu is held.
func (d *Disk) free() int64 {
	if d.size == defaultSize {
		return defaultSize
	}
	return max(0, d.size-d.root.used())
}

type lock struct {
	d    *Disk
	name string
}

func (l *lock) Unlock() error {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	delete(l.d.locks, l.name)
	return nil
}

// Lock makes no file: the locks of a process end with it, so a clone has none.
func (d *Disk) Lock(name string) (vfs.Unlocker, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name = path.Clean(name)
	if d.locks[name] {
		return nil, &fs.PathError{Op: "lock", Path: name, Err: vfs.ErrLocked}
	}
	d.locks[name] = true
	return &lock{d, name}, nil
}

func (d *Disk) Unmap(b []byte) error {
	if d.bare {
		return nil
	}
	return d.mirrors.Unmap(b)
}

// Files lists the files whose last part matches the pattern (path.Match), with their whole names, sorted.
func (d *Disk) Files(pattern string) (out []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.root.walk("", func(name string, n *node) {
		if ok, err := path.Match(pattern, path.Base(name)); err != nil {
			panic("BUG: " + err.Error())
		} else if ok {
			out = append(out, name)
		}
	})
	return out
}

// Lost lists the files, with their whole names, that have changes whose sync failed: readers see them, and no sync makes them durable.
func (d *Disk) Lost() (out []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.root.walk("", func(name string, n *node) {
		if slices.ContainsFunc(n.pending, func(c change) bool { return c.lost }) {
			out = append(out, name)
		}
	})
	return out
}

// Edit replaces the content of a file, durably and without an operation.
func (d *Disk) Edit(name string, edit func([]byte) []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.find(name)
	if n == nil || n.dir {
		return &fs.PathError{Op: "edit", Path: name, Err: syscall.ENOENT}
	}
	b := edit(slices.Clone(n.data.b))
	err := n.change(change{off: int64(len(b))})
	if err == nil && len(b) > 0 {
		err = n.change(change{data: b})
	}
	n.synced, n.pending = n.data.share(), nil
	return err
}

// Lose removes a file, durably and without an operation.
func (d *Disk) Lose(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	dir, base := d.parent(name)
	if dir == nil || dir.names[base] == nil {
		return &fs.PathError{Op: "lose", Path: name, Err: syscall.ENOENT}
	}
	dir.edit(edit{seq: d.seq, name: base})
	dir.settleNames(d.seq)
	return nil
}
