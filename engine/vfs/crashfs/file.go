package crashfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"sync/atomic"
	"syscall"

	"kaas/engine/vfs"
)

// file is an open file. Use after Close fails with EBADF.
type file struct {
	d        *Disk
	n        *node
	name     string
	readOnly bool
	closed   atomic.Bool
}

func (f *file) pathErr(op string, err error) error {
	return &fs.PathError{Op: op, Path: f.name, Err: err}
}

func (f *file) usable(op string, change bool) error {
	if f.closed.Load() || change && f.readOnly {
		return f.pathErr(op, syscall.EBADF)
	}
	return nil
}

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	if err := f.usable("read", false); err != nil {
		return 0, err
	}
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if off < 0 {
		return 0, f.pathErr("read", syscall.EINVAL)
	}
	if len(p) == 0 {
		return 0, nil
	}
	if off >= int64(len(f.n.data.b)) {
		return 0, io.EOF
	}
	n := copy(p, f.n.data.b[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// mutate makes one change of content as an operation: cut to the part that a full disk has room for, if need be (ENOSPC).
func (f *file) mutate(kind string, c *change) error {
	if err := f.usable(kind, true); err != nil {
		return err
	}
	if c.off < 0 {
		return f.pathErr(kind, syscall.EINVAL)
	}
	if err := f.d.enter(kind, f.name); err != nil {
		return err
	}
	c.seq = f.d.seq
	fits := f.n.fit(c, f.d.free())
	if err := f.n.change(*c); err != nil {
		return f.d.fail(kind, f.name, err)
	}
	if err := f.d.leave(kind, f.name); err != nil {
		return err
	}
	if !fits {
		return f.pathErr(kind, syscall.ENOSPC)
	}
	return nil
}

func (f *file) WriteAt(p []byte, off int64) (int, error) {
	if len(p) == 0 {
		return 0, f.usable(OpWrite, true)
	}
	c := change{off: off, data: bytes.Clone(p)}
	if err := f.mutate(OpWrite, &c); errors.Is(err, syscall.ENOSPC) {
		return len(c.data), err
	} else if err != nil {
		return 0, err
	}
	return len(p), nil
}

func (f *file) WriteVAt(bufs [][]byte, off int64) (int, error) {
	return f.WriteAt(bytes.Join(bufs, nil), off)
}

func (f *file) Size() (int64, error) {
	if err := f.usable("stat", false); err != nil {
		return 0, err
	}
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return int64(len(f.n.data.b)), nil
}

func (f *file) Truncate(size int64) error { return f.mutate(OpTruncate, &change{off: size}) }

func (f *file) Allocate(off, n int64) error {
	return f.mutate(OpAllocate, &change{off: off + n, grow: true})
}

func (f *file) ZeroFill(off, n int64) error {
	if n <= 0 {
		return f.usable(OpZero, true)
	}
	return f.mutate(OpZero, &change{off: off, data: make([]byte, n)})
}

func (f *file) Sync() error {
	if err := f.usable(OpSync, false); err != nil {
		return err
	}
	if err := f.d.enter(OpSync, f.name); err != nil {
		return err
	}
	seq := f.d.seq
	if err := f.d.leave(OpSync, f.name); err != nil {
		return err
	}
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	f.n.settle(seq)
	return nil
}

// FailSync does what the kernel does when fdatasync fails: the changes so far are taken for written, so that no later sync
// makes them durable, though they may be on the disk.
func (f *file) FailSync() {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	f.n.failSync()
	f.d.failures++
}

func (f *file) shared(op string) (vfs.File, error) {
	if err := f.usable(op, false); err != nil {
		return nil, err
	}
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return f.d.share(f.n)
}

func (f *file) Map(n int) ([]byte, error) {
	if f.d.bare {
		b := make([]byte, n)
		if _, err := f.ReadAt(b, 0); err != nil && err != io.EOF {
			return nil, err
		}
		return b, nil
	}
	m, err := f.shared("mmap")
	if err != nil {
		return nil, err
	}
	return m.Map(n)
}

// FD is -1 when there is no memfd to be had.
func (f *file) FD() int {
	if f.d.bare {
		return -1
	}
	m, err := f.shared("fd")
	if err != nil {
		return -1
	}
	return m.FD()
}

func (f *file) Close() error {
	if f.closed.Swap(true) {
		return f.pathErr("close", syscall.EBADF)
	}
	return nil
}
