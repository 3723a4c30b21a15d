package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// OS is the file system of the machine.
var OS FS = osFS{}

type osFS struct{}

// fdFile is a file with a descriptor: of a file on disk, or of a memfd (which is why it lives apart from osFS).
type fdFile struct {
	fd   int
	name string
}

func pathErr(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// retry repeats a call that a signal interrupted: the Go runtime preempts goroutines with signals.
func retry(f func() error) error {
	for {
		if err := f(); err != syscall.EINTR {
			return err
		}
	}
}

func (osFS) Open(name string, mode Mode) (File, error) {
	flag := unix.O_RDWR | unix.O_CLOEXEC
	switch mode {
	case ReadOnly:
		flag = unix.O_RDONLY | unix.O_CLOEXEC
	case Create:
		flag |= unix.O_CREAT
	case CreateNew:
		flag |= unix.O_CREAT | unix.O_EXCL
	}
	var fd int
	err := retry(func() (err error) {
		fd, err = unix.Open(name, flag, 0o644)
		return err
	})
	if err != nil {
		return nil, pathErr("open", name, err)
	}
	return &fdFile{fd: fd, name: name}, nil
}

func (osFS) Size(name string) (int64, error) {
	var st unix.Stat_t
	if err := retry(func() error { return unix.Stat(name, &st) }); err != nil {
		return 0, pathErr("stat", name, err)
	}
	return st.Size, nil
}

func (osFS) MkdirAll(dir string) error    { return os.MkdirAll(dir, 0o755) }
func (osFS) Rename(from, to string) error { return os.Rename(from, to) }
func (osFS) Remove(name string) error     { return os.Remove(name) }

func (osFS) ReadDir(dir string) ([]DirEntry, error) {
	d, err := os.ReadDir(dir)
	out := make([]DirEntry, len(d))
	for i, e := range d {
		out[i] = DirEntry{Name: e.Name(), Dir: e.IsDir()}
	}
	return out, err
}

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

type osVolume struct{ f *os.File }

func (osFS) Volume(dir string) (Volume, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	return osVolume{f}, nil
}

func (v osVolume) Sync() error  { return pathErr("syncfs", v.f.Name(), unix.Syncfs(int(v.f.Fd()))) }
func (v osVolume) Close() error { return v.f.Close() }

func (osFS) Space(dir string) (Space, error) {
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Statfs(dir, &st) }); err != nil {
		return Space{}, pathErr("statfs", dir, err)
	}
	return Space{Total: int64(st.Blocks) * st.Bsize, Free: int64(st.Bavail) * st.Bsize}, nil
}

type osLock struct{ f *os.File }

func (l osLock) Unlock() error { return l.f.Close() }

// Lock takes a lock of the open file description (fcntl), not flock: it keeps out other descriptions of this process too, and it is
// in the way of the record lock that a Java broker takes on the same file.
func (osFS) Lock(name string) (Unlocker, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	whole := unix.Flock_t{Type: unix.F_WRLCK}
	if err := retry(func() error { return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &whole) }); err != nil {
		f.Close()
		if err == unix.EAGAIN || err == unix.EACCES {
			err = ErrLocked
		}
		return nil, pathErr("lock", name, err)
	}
	return osLock{f}, nil
}

func (f *fdFile) FD() int { return f.fd }

func (f *fdFile) ReadAt(p []byte, off int64) (int, error) {
	done := 0
	for done < len(p) {
		n, err := unix.Pread(f.fd, p[done:], off+int64(done))
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return done, pathErr("read", f.name, err)
		case n == 0:
			return done, io.EOF
		default:
			done += n
		}
	}
	return done, nil
}

// ReadCachedAt does not use unix.Preadv2, which allocates.
func (f *fdFile) ReadCachedAt(p []byte, off int64) (int, error) {
	for done := 0; done < len(p); {
		iov := unix.Iovec{Base: &p[done]}
		iov.SetLen(len(p) - done)
		n, _, errno := unix.Syscall6(unix.SYS_PREADV2, uintptr(f.fd), uintptr(unsafe.Pointer(&iov)), 1, uintptr(off)+uintptr(done), 0, unix.RWF_NOWAIT)
		switch {
		case errno == syscall.EINTR:
		case errno == syscall.EAGAIN:
			return done, ErrNotCached
		case errno == syscall.EOPNOTSUPP || errno == syscall.ENOSYS:
			n, err := f.ReadAt(p[done:], off+int64(done))
			return done + n, err
		case errno != 0:
			return done, pathErr("read", f.name, errno)
		case n == 0:
			return done, io.EOF
		default:
			done += int(n)
		}
	}
	return len(p), nil
}

func (f *fdFile) WriteAt(p []byte, off int64) (int, error) {
	done := 0
	for done < len(p) {
		n, err := unix.Pwrite(f.fd, p[done:], off+int64(done))
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return done, pathErr("write", f.name, err)
		case n == 0:
			return done, pathErr("write", f.name, io.ErrShortWrite)
		default:
			done += n
		}
	}
	return done, nil
}

// iovMax is the kernel's limit on buffers in one pwritev.
const iovMax = 1024

type iovecs struct{ v [iovMax]unix.Iovec }

var iovPool = sync.Pool{New: func() any { return new(iovecs) }}

// WriteVAt does not use unix.Pwritev: that allocates for more than 8 buffers.
func (f *fdFile) WriteVAt(bufs [][]byte, off int64) (int, error) {
	if len(bufs) == 1 {
		return f.WriteAt(bufs[0], off)
	}
	io := iovPool.Get().(*iovecs)
	defer iovPool.Put(io)
	done, first, skip := 0, 0, 0 // skip: bytes of bufs[first] already written
	for {
		n, want := 0, 0
		for i := first; i < len(bufs) && n < iovMax; i++ {
			b := bufs[i]
			if i == first {
				b = b[skip:]
			}
			if len(b) == 0 {
				continue
			}
			io.v[n].Base = &b[0]
			io.v[n].SetLen(len(b))
			n++
			want += len(b)
		}
		if want == 0 {
			return done, nil
		}
		at := off + int64(done)
		w, _, errno := unix.Syscall6(unix.SYS_PWRITEV, uintptr(f.fd), uintptr(unsafe.Pointer(&io.v[0])), uintptr(n), uintptr(at), 0, 0)
		for i := range n {
			io.v[i].Base = nil
		}
		if errno == syscall.EINTR {
			continue
		}
		if errno != 0 {
			return done, pathErr("write", f.name, errno)
		}
		if w == 0 {
			return done, pathErr("write", f.name, errShortWrite)
		}
		done += int(w)
		for left := int(w); left > 0; {
			if rest := len(bufs[first]) - skip; left >= rest {
				left, first, skip = left-rest, first+1, 0
			} else {
				skip += left
				left = 0
			}
		}
	}
}

var errShortWrite = errors.New("nothing written")

func (f *fdFile) Size() (int64, error) {
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstat(f.fd, &st) }); err != nil {
		return 0, pathErr("stat", f.name, err)
	}
	return st.Size, nil
}

func (f *fdFile) Truncate(size int64) error {
	return pathErr("truncate", f.name, retry(func() error { return unix.Ftruncate(f.fd, size) }))
}

func (f *fdFile) Allocate(off, n int64) error {
	err := retry(func() error { return unix.Fallocate(f.fd, 0, off, n) })
	if err != unix.EOPNOTSUPP {
		return pathErr("allocate", f.name, err)
	}
	// A file system without fallocate: the file grows sparse, and a full disk is an error of the write itself.
	size, err := f.Size()
	if err == nil && size < off+n {
		err = f.Truncate(off + n)
	}
	return err
}

var zeros [64 << 10]byte

func (f *fdFile) ZeroFill(off, n int64) error {
	for n > 0 {
		w, err := f.WriteAt(zeros[:min(n, int64(len(zeros)))], off)
		if err != nil {
			return err
		}
		off, n = off+int64(w), n-int64(w)
	}
	return nil
}

// Sync is not repeated after an interruption: only the kernel knows what was reported by then, and EINTR is not an answer
// that fdatasync gives on the file systems in use.
func (f *fdFile) Sync() error { return pathErr("fdatasync", f.name, unix.Fdatasync(f.fd)) }

func (f *fdFile) Map(n int) ([]byte, error) {
	b, err := unix.Mmap(f.fd, 0, n, unix.PROT_READ, unix.MAP_SHARED)
	return b, pathErr("mmap", f.name, err)
}

func (osFS) Unmap(b []byte) error { return unix.Munmap(b) }

func (f *fdFile) Close() error { return pathErr("close", f.name, unix.Close(f.fd)) }
