package logtool

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"kaas/engine/vfs"
)

// overlay is a file system that keeps what is written to it for itself: files below it are only read. The engine recovers a directory on
// it, and what it would have changed is known before anything is.
//
// A file that is only cut shorter is not copied; one that is written to is, into memory. Directories are neither renamed nor removed.
type overlay struct {
	below vfs.FS
	room  vfs.FS // memory

	mu    sync.Mutex       // guards what follows, and the nodes
	names map[string]*node // names that were opened for writing, renamed or removed; a nil node was removed
	dirs  map[string]bool  // made
	made  int
}

// node is the content of a file.
type node struct {
	from string   // of what it was opened: a name below, "" for none
	size int64    // how much of from counts, when upper is nil
	up   vfs.File // copy, nil until it is written to
}

func newOverlay(below vfs.FS) *overlay {
	return &overlay{below: below, room: vfs.Memory(), names: map[string]*node{}, dirs: map[string]bool{}}
}

// close frees the memory.
func (o *overlay) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range o.names {
		if n != nil && n.up != nil {
			n.up.Close()
		}
	}
}

func notExist(op, name string) error { return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist} }

// node finds a name; mu is held.
func (o *overlay) node(name string) (*node, error) {
	if n, ok := o.names[name]; ok {
		if n == nil {
			return nil, notExist("open", name)
		}
		return n, nil
	}
	size, err := o.below.Size(name)
	if err != nil {
		return nil, err
	}
	n := &node{from: name, size: size}
	o.names[name] = n
	return n, nil
}

// fresh makes an empty file in memory; mu is held.
func (o *overlay) fresh() (vfs.File, error) {
	o.made++
	name := fmt.Sprintf("/%d", o.made)
	f, err := o.room.Open(name, vfs.CreateNew)
	if err == nil {
		err = o.room.Remove(name) // the handle keeps it
	}
	return f, err
}

func (o *overlay) Open(name string, mode vfs.Mode) (vfs.File, error) {
	name = path.Clean(name)
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.node(name)
	switch {
	case err == nil && mode == vfs.CreateNew:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrExist}
	case errors.Is(err, fs.ErrNotExist) && (mode == vfs.Create || mode == vfs.CreateNew):
		var up vfs.File
		if up, err = o.fresh(); err != nil {
			return nil, err
		}
		n = &node{up: up}
		o.names[name] = n
	case err != nil:
		return nil, err
	}
	f := &overlayFile{o: o, n: n}
	if n.from != "" {
		f.low, err = o.below.Open(n.from, vfs.ReadOnly)
	}
	return f, err
}

func (o *overlay) Size(name string) (int64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.node(path.Clean(name))
	if err != nil {
		return 0, err
	}
	if n.up != nil {
		return n.up.Size()
	}
	return n.size, nil
}

func (o *overlay) MkdirAll(dir string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dirs[path.Clean(dir)] = true
	return nil
}

func (o *overlay) Rename(from, to string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.node(path.Clean(from))
	if err != nil {
		return err
	}
	o.names[path.Clean(from)], o.names[path.Clean(to)] = nil, n
	return nil
}

func (o *overlay) Remove(name string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, err := o.node(path.Clean(name)); err != nil {
		return err
	}
	o.names[path.Clean(name)] = nil
	return nil
}

func (o *overlay) ReadDir(dir string) ([]vfs.DirEntry, error) {
	dir = path.Clean(dir)
	o.mu.Lock()
	defer o.mu.Unlock()
	list, err := o.below.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) && o.dirs[dir] {
		err = nil
	}
	list = slices.DeleteFunc(list, func(d vfs.DirEntry) bool {
		_, ours := o.names[path.Join(dir, d.Name)]
		return ours
	})
	for name, n := range o.names {
		if n != nil && path.Dir(name) == dir {
			list = append(list, vfs.DirEntry{Name: path.Base(name)})
		}
	}
	slices.SortFunc(list, func(a, b vfs.DirEntry) int { return strings.Compare(a.Name, b.Name) })
	return list, err
}

func (o *overlay) SyncDir(string) error                { return nil }
func (o *overlay) Space(dir string) (vfs.Space, error) { return o.below.Space(dir) }
func (o *overlay) Unmap(b []byte) error                { return o.below.Unmap(b) }

// Lock takes none: who makes an overlay holds the lock of the directory.
func (o *overlay) Lock(string) (vfs.Unlocker, error) { return noLock{}, nil }

type noLock struct{}

func (noLock) Unlock() error { return nil }

// overlayFile is a handle.
type overlayFile struct {
	o   *overlay
	n   *node
	low vfs.File // nil: there is nothing below
}

// top is what is read, and how much of it; -1 is all.
func (f *overlayFile) top() (vfs.File, int64) {
	f.o.mu.Lock()
	defer f.o.mu.Unlock()
	if f.n.up != nil {
		return f.n.up, -1
	}
	return f.low, f.n.size
}

// own makes the copy that is written to.
func (f *overlayFile) own() (vfs.File, error) {
	f.o.mu.Lock()
	defer f.o.mu.Unlock()
	if f.n.up != nil {
		return f.n.up, nil
	}
	up, err := f.o.fresh()
	if err != nil {
		return nil, err
	}
	if err := copyFile(up, f.low, f.n.size); err != nil {
		up.Close()
		return nil, err
	}
	f.n.up = up
	return up, nil
}

// copyFile copies the first size bytes.
func copyFile(to, from vfs.File, size int64) error {
	buf := make([]byte, min(size, readWindow))
	for at := int64(0); at < size; {
		b := buf[:min(size-at, readWindow)]
		if _, err := from.ReadAt(b, at); err != nil {
			return err
		}
		if _, err := to.WriteAt(b, at); err != nil {
			return err
		}
		at += int64(len(b))
	}
	return nil
}

func (f *overlayFile) ReadAt(p []byte, off int64) (int, error) {
	file, size := f.top()
	if size < 0 || off+int64(len(p)) <= size {
		return file.ReadAt(p, off)
	}
	n, err := file.ReadAt(p[:max(size-off, 0)], off)
	if err == nil {
		err = io.EOF
	}
	return n, err
}

func (f *overlayFile) WriteAt(p []byte, off int64) (int, error) {
	up, err := f.own()
	if err != nil {
		return 0, err
	}
	return up.WriteAt(p, off)
}

func (f *overlayFile) WriteVAt(bufs [][]byte, off int64) (int, error) {
	return f.WriteAt(bytes.Join(bufs, nil), off)
}

func (f *overlayFile) Size() (int64, error) {
	file, size := f.top()
	if size < 0 {
		return file.Size()
	}
	return size, nil
}

func (f *overlayFile) Truncate(size int64) error {
	f.o.mu.Lock()
	if f.n.up == nil && size <= f.n.size {
		f.n.size = size
		f.o.mu.Unlock()
		return nil
	}
	f.o.mu.Unlock()
	up, err := f.own()
	if err != nil {
		return err
	}
	return up.Truncate(size)
}

func (f *overlayFile) Allocate(off, n int64) error {
	up, err := f.own()
	if err != nil {
		return err
	}
	return up.Allocate(off, n)
}

func (f *overlayFile) ZeroFill(off, n int64) error {
	up, err := f.own()
	if err != nil {
		return err
	}
	return up.ZeroFill(off, n)
}

func (f *overlayFile) Sync() error { return nil }

func (f *overlayFile) Map(n int) ([]byte, error) {
	file, _ := f.top()
	return file.Map(n)
}

func (f *overlayFile) FD() int {
	file, _ := f.top()
	return file.FD()
}

func (f *overlayFile) Close() error {
	if f.low != nil {
		return f.low.Close()
	}
	return nil
}

// edit is what is different above.
type edit struct {
	name string // of the file
	kind editKind
	old  int64 // size below, -1: there is none
	size int64 // above; meaningless when removed
	node *node // content above, nil when removed
}

type editKind string

const (
	removed  editKind = "remove"
	cut      editKind = "cut"
	written  editKind = "rewrite"
	appeared editKind = "create"
)

// edits lists what differs, in order of names. Files with the same content do not.
func (o *overlay) edits() (list []*edit, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, n := range o.names {
		c := &edit{name: name, kind: removed, old: -1, node: n}
		if size, err := o.below.Size(name); err == nil {
			c.old = size
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		switch {
		case n == nil && c.old < 0:
			continue
		case n == nil:
		case n.up == nil && n.from == name:
			if c.kind, c.size = cut, n.size; n.size == c.old {
				continue
			}
		default:
			if c.size, err = o.sizeOf(n); err != nil {
				return nil, err
			}
			if c.kind = written; c.old < 0 {
				c.kind = appeared
			} else if same, err := o.same(name, c); err != nil || same {
				if err != nil {
					return nil, err
				}
				continue
			}
		}
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b *edit) int { return strings.Compare(a.name, b.name) })
	return list, nil
}

func (o *overlay) sizeOf(n *node) (int64, error) {
	if n.up != nil {
		return n.up.Size()
	}
	return n.size, nil
}

// content opens what an edit leaves, to be read.
func (o *overlay) content(c *edit) (file vfs.File, release func(), err error) {
	if c.node.up != nil {
		return c.node.up, func() {}, nil
	}
	f, err := o.below.Open(c.node.from, vfs.ReadOnly)
	if err != nil {
		return nil, nil, err
	}
	return f, func() { f.Close() }, nil
}

// same compares a file above with the one below.
func (o *overlay) same(name string, c *edit) (bool, error) {
	if c.size != c.old {
		return false, nil
	}
	above, release, err := o.content(c)
	if err != nil {
		return false, err
	}
	defer release()
	low, err := o.below.Open(name, vfs.ReadOnly)
	if err != nil {
		return false, err
	}
	defer low.Close()
	a, b := make([]byte, 64<<10), make([]byte, 64<<10)
	for at := int64(0); at < c.size; {
		n := min(c.size-at, int64(len(a)))
		if _, err := above.ReadAt(a[:n], at); err != nil {
			return false, err
		}
		if _, err := low.ReadAt(b[:n], at); err != nil {
			return false, err
		}
		if !bytes.Equal(a[:n], b[:n]) {
			return false, nil
		}
		at += n
	}
	return true, nil
}
