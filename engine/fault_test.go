package engine

import (
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"kaas/engine/vfs"
)

// faultFS makes chosen operations on .log files fail. Its zero hooks do nothing.
type faultFS struct {
	vfs.FS
	mu       sync.Mutex
	allocate error
	write    error // after half of the bytes
	truncate error
	sync     error
	noRoom   string       // files with this in their names take no data
	opens    atomic.Int64 // log files opened and not closed
	syncs    []string     // base names of what was synced
}

func (f *faultFS) set(change func(f *faultFS)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *faultFS) get(p *error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return *p
}

func (f *faultFS) Open(name string, mode vfs.Mode) (vfs.File, error) {
	file, err := f.FS.Open(name, mode)
	if err != nil {
		return nil, err
	}
	if !strings.HasSuffix(name, ".log") {
		return &namedFile{file, f, name}, nil
	}
	f.opens.Add(1)
	return &faultFile{namedFile{file, f, name}}, nil
}

func (f *faultFS) SyncDir(dir string) error {
	f.set(func(f *faultFS) { f.syncs = append(f.syncs, dir[strings.LastIndexByte(dir, '/')+1:]+"/") })
	return f.FS.SyncDir(dir)
}

type namedFile struct {
	vfs.File
	fs   *faultFS
	name string
}

func (f *namedFile) Sync() error {
	f.fs.set(func(fs *faultFS) { fs.syncs = append(fs.syncs, f.name[strings.LastIndexByte(f.name, '/')+1:]) })
	return f.File.Sync()
}

func (f *namedFile) WriteAt(p []byte, off int64) (n int, err error) {
	f.fs.set(func(fs *faultFS) {
		if fs.noRoom != "" && strings.Contains(f.name, fs.noRoom) {
			err = errNoSpace
		}
	})
	if err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

type faultFile struct{ namedFile }

func (f *faultFile) Close() error {
	f.fs.opens.Add(-1)
	return f.File.Close()
}

func (f *faultFile) Allocate(off, n int64) error {
	if err := f.fs.get(&f.fs.allocate); err != nil {
		return err
	}
	return f.File.Allocate(off, n)
}

func (f *faultFile) WriteVAt(bufs [][]byte, off int64) (int, error) {
	if err := f.fs.get(&f.fs.write); err != nil {
		n, _ := f.File.WriteAt(bufs[0][:len(bufs[0])/2], off)
		return n, err
	}
	return f.File.WriteVAt(bufs, off)
}

func (f *faultFile) Truncate(size int64) error {
	if err := f.fs.get(&f.fs.truncate); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *faultFile) Sync() error {
	if err := f.fs.get(&f.fs.sync); err != nil {
		return err
	}
	return f.namedFile.Sync()
}

var (
	errNoSpace error = syscall.ENOSPC
	errIO      error = syscall.EIO
)
