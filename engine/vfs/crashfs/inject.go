package crashfs

import (
	"bytes"
	"io/fs"
	"time"

	"kaas/engine/vfs"
)

// FS is a file system before which the faults stand.
func (f *Faults) FS(inner vfs.FS) vfs.FS { return &faultFS{FS: inner, faults: f} }

type faultFS struct {
	vfs.FS
	faults *Faults
}

// do runs an operation that the rules let through.
func (f *Faults) do(op string, growth func() int64, run func() error, names ...string) error {
	v := f.judge(op, growth, names...)
	if v.slow > 0 {
		time.Sleep(v.slow)
	}
	if v.err != nil {
		return &fs.PathError{Op: op, Path: names[len(names)-1], Err: v.err}
	}
	return run()
}

func (f *faultFS) Open(name string, mode vfs.Mode) (file vfs.File, err error) {
	op := "open"
	if mode == vfs.Create || mode == vfs.CreateNew {
		if _, err := f.FS.Size(name); err != nil {
			op = OpCreate
		}
	}
	err = f.faults.do(op, nil, func() error {
		file, err = f.FS.Open(name, mode)
		return err
	}, name)
	if err != nil {
		return nil, err
	}
	return &faultFile{file, f.faults, name}, nil
}

func (f *faultFS) MkdirAll(dir string) error {
	return f.faults.do(OpMkdir, nil, func() error { return f.FS.MkdirAll(dir) }, dir)
}

func (f *faultFS) Rename(from, to string) error {
	return f.faults.do(OpRename, nil, func() error { return f.FS.Rename(from, to) }, from, to)
}

func (f *faultFS) Remove(name string) error {
	return f.faults.do(OpRemove, nil, func() error { return f.FS.Remove(name) }, name)
}

func (f *faultFS) SyncDir(dir string) error {
	return f.faults.do(OpSyncDir, nil, func() error { return f.FS.SyncDir(dir) }, dir)
}

type faultVolume struct {
	vfs.Volume
	faults *Faults
	name   string
}

func (f *faultFS) Volume(dir string) (vfs.Volume, error) {
	v, err := vfs.OpenVolume(f.FS, dir)
	if v == nil || err != nil {
		return nil, err
	}
	return &faultVolume{v, f.faults, dir}, nil
}

func (f *faultVolume) Sync() error {
	done := false
	err := f.faults.do(OpSyncFS, nil, func() error { done = true; return f.Volume.Sync() }, f.name)
	if d, ok := f.Volume.(interface{ FailSync() }); ok && !done {
		d.FailSync()
	}
	return err
}

type faultFile struct {
	vfs.File
	faults *Faults
	name   string
}

func (f *faultFile) do(op string, growth func() int64, run func() error) error {
	return f.faults.do(op, growth, run, f.name)
}

// growth is by how much the file grows when it reaches end.
func (f *faultFile) growth(end int64) func() int64 {
	return func() int64 {
		size, err := f.File.Size()
		if err != nil {
			return 0
		}
		return max(0, end-size)
	}
}

func (f *faultFile) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.do("read", nil, func() error {
		n, err = f.File.ReadAt(p, off)
		return err
	})
	return n, err
}

func (f *faultFile) WriteAt(p []byte, off int64) (n int, err error) {
	return f.write(len(p), off, func() (int, error) { return f.File.WriteAt(p, off) }, func() []byte { return p })
}

func (f *faultFile) WriteVAt(bufs [][]byte, off int64) (n int, err error) {
	size := 0
	for _, b := range bufs {
		size += len(b)
	}
	return f.write(size, off, func() (int, error) { return f.File.WriteVAt(bufs, off) }, func() []byte { return bytes.Join(bufs, nil) })
}

func (f *faultFile) write(size int, off int64, run func() (int, error), all func() []byte) (n int, err error) {
	v := f.faults.judge(OpWrite, f.growth(off+int64(size)), f.name)
	if v.slow > 0 {
		time.Sleep(v.slow)
	}
	if v.err == nil {
		return run()
	}
	if v.short {
		if n, err = f.File.WriteAt(all()[:size/2], off); err != nil {
			return n, err
		}
	}
	return n, &fs.PathError{Op: OpWrite, Path: f.name, Err: v.err}
}

func (f *faultFile) Truncate(size int64) error {
	return f.do(OpTruncate, nil, func() error { return f.File.Truncate(size) })
}

func (f *faultFile) Allocate(off, n int64) error {
	return f.do(OpAllocate, f.growth(off+n), func() error { return f.File.Allocate(off, n) })
}

func (f *faultFile) ZeroFill(off, n int64) error {
	return f.do(OpZero, nil, func() error { return f.File.ZeroFill(off, n) })
}

func (f *faultFile) Sync() error {
	done := false
	err := f.do(OpSync, nil, func() error { done = true; return f.File.Sync() })
	if d, ok := f.File.(interface{ FailSync() }); ok && !done {
		d.FailSync()
	}
	return err
}

func (f *faultFile) Map(n int) (b []byte, err error) {
	err = f.do("map", nil, func() error {
		b, err = f.File.Map(n)
		return err
	})
	return b, err
}
