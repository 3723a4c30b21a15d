package vfs

import (
	"io/fs"
	"path"
	"sort"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Memory returns an empty file system whose files are memfd files: they have descriptors, maps and offsets like files on
// disk, and are gone with the process. Every file costs one descriptor for as long as it exists or is open.
func Memory() FS {
	return &memFS{files: map[string]*memNode{}, dirs: map[string]bool{"/": true, ".": true}, locks: map[string]bool{}}
}

type memFS struct {
	mu    sync.Mutex // guards everything below and memNode.refs
	files map[string]*memNode
	dirs  map[string]bool
	locks map[string]bool
}

// memNode is the content of a file; refs counts its name and its handles, and the last one closes the descriptor.
type memNode struct {
	fdFile
	refs int
}

type memFile struct {
	*memNode
	fs *memFS
}

func (m *memFS) Open(name string, mode Mode) (File, error) {
	name = path.Clean(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.files[name]
	if n == nil {
		if mode != Create && mode != CreateNew || !m.dirs[path.Dir(name)] {
			return nil, pathErr("open", name, syscall.ENOENT)
		}
		fd, err := unix.MemfdCreate(path.Base(name), unix.MFD_CLOEXEC)
		if err != nil {
			return nil, pathErr("open", name, err)
		}
		n = &memNode{fdFile: fdFile{fd: fd, name: name}, refs: 1}
		m.files[name] = n
	} else if mode == CreateNew {
		return nil, pathErr("open", name, syscall.EEXIST)
	}
	n.refs++
	return &memFile{memNode: n, fs: m}, nil
}

func (m *memFS) unref(n *memNode) error {
	if n.refs--; n.refs == 0 {
		return n.fdFile.Close()
	}
	return nil
}

func (f *memFile) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return f.fs.unref(f.memNode)
}

// Sync has nothing to do: nothing survives the process, and fdatasync of a memfd would only cost the call.
func (f *memFile) Sync() error { return nil }

// Allocate only grows the file: memory reserved ahead would be taken from the machine without being used.
func (f *memFile) Allocate(off, n int64) error {
	size, err := f.Size()
	if err == nil && size < off+n {
		err = f.Truncate(off + n)
	}
	return err
}

// ZeroFill has nothing to do either: what was never written reads as zeros and costs no memory.
func (f *memFile) ZeroFill(off, n int64) error { return nil }

func (m *memFS) Size(name string) (int64, error) {
	m.mu.Lock()
	n := m.files[path.Clean(name)]
	m.mu.Unlock()
	if n == nil {
		return 0, pathErr("stat", name, syscall.ENOENT)
	}
	return n.Size()
}

func (m *memFS) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for dir = path.Clean(dir); !m.dirs[dir]; dir = path.Dir(dir) {
		m.dirs[dir] = true
	}
	return nil
}

func (m *memFS) Rename(from, to string) error {
	from, to = path.Clean(from), path.Clean(to)
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.files[from]; n != nil {
		old := m.files[to]
		m.files[to] = n
		delete(m.files, from)
		if old != nil && old != n {
			return m.unref(old)
		}
		return nil
	}
	if !m.dirs[from] {
		return pathErr("rename", from, syscall.ENOENT)
	}
	if m.dirs[to] {
		return pathErr("rename", to, syscall.EEXIST)
	}
	for name, n := range m.files {
		if rest, ok := strings.CutPrefix(name, from+"/"); ok {
			delete(m.files, name)
			m.files[to+"/"+rest] = n
		}
	}
	for name := range m.dirs {
		if rest, ok := strings.CutPrefix(name, from+"/"); ok {
			delete(m.dirs, name)
			m.dirs[to+"/"+rest] = true
		}
	}
	delete(m.dirs, from)
	m.dirs[to] = true
	return nil
}

func (m *memFS) Remove(name string) error {
	name = path.Clean(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.files[name]; n != nil {
		delete(m.files, name)
		return m.unref(n)
	}
	if !m.dirs[name] {
		return pathErr("remove", name, syscall.ENOENT)
	}
	if len(m.list(name)) > 0 {
		return pathErr("remove", name, syscall.ENOTEMPTY)
	}
	delete(m.dirs, name)
	return nil
}

// list is ReadDir under the lock.
func (m *memFS) list(dir string) (out []DirEntry) {
	for name := range m.files {
		if path.Dir(name) == dir {
			out = append(out, DirEntry{Name: path.Base(name)})
		}
	}
	for name := range m.dirs {
		if name != dir && path.Dir(name) == dir {
			out = append(out, DirEntry{Name: path.Base(name), Dir: true})
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

func (m *memFS) ReadDir(dir string) ([]DirEntry, error) {
	dir = path.Clean(dir)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.dirs[dir] {
		return nil, pathErr("open", dir, fs.ErrNotExist)
	}
	return m.list(dir), nil
}

func (m *memFS) SyncDir(string) error { return nil }

type memVolume struct{}

func (m *memFS) Volume(string) (Volume, error) { return memVolume{}, nil }
func (memVolume) Sync() error                  { return nil }
func (memVolume) Close() error                 { return nil }

func (m *memFS) Unmap(b []byte) error { return unix.Munmap(b) }

// Space reports the machine's memory: that is what these files fill.
func (m *memFS) Space(string) (Space, error) {
	var si unix.Sysinfo_t
	if err := unix.Sysinfo(&si); err != nil {
		return Space{}, pathErr("sysinfo", "memory", err)
	}
	unit := int64(si.Unit)
	return Space{Total: int64(si.Totalram) * unit, Free: int64(si.Freeram) * unit}, nil
}

type memLock struct {
	m    *memFS
	name string
}

func (l *memLock) Unlock() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	delete(l.m.locks, l.name)
	return nil
}

func (m *memFS) Lock(name string) (Unlocker, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locks[name] {
		return nil, pathErr("lock", name, ErrLocked)
	}
	m.locks[name] = true
	return &memLock{m, name}, nil
}
