// Package vfs is the file seam of the engine: everything the engine does to a disk goes through FS and File.
//
// It is not an abstraction over operating systems. It names exactly the Linux operations on which the engine's promises
// rest (positional writes, allocation ahead, fdatasync, syncing of directories), so that a test file system that knows what
// was synced can stand in for the real one. OS is the real one; Memory keeps everything in memfd files, which have
// descriptors and so can be sent with sendfile like files on disk.
//
// Invariants: a write call either writes everything or returns an error and the number of bytes written; a name that was
// created, renamed or removed is durable only after SyncDir of its directory; data is durable only after Sync of its file, or of the Volume.
package vfs

import (
	"errors"
	"io/fs"
	"syscall"
)

// Mode says how FS.Open treats an existing or a missing file.
type Mode int

const (
	ReadOnly  Mode = iota // must exist
	ReadWrite             // must exist
	Create                // made empty when missing
	CreateNew             // must not exist (fs.ErrExist)
)

// ErrLocked is returned by FS.Lock when another process, or another lock of this one, holds the name.
var ErrLocked = errors.New("vfs: locked by another process")

// NoRoom reports that an error is one for lack of room: on the file system (ENOSPC), or for this user of it (EDQUOT).
func NoRoom(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// DirEntry is one name in a directory.
type DirEntry struct {
	Name string
	Dir  bool
}

// Space is the room on a file system, in bytes; Free is what an unprivileged process may still use.
type Space struct {
	Total, Free int64
}

// FS is a file system. All methods may be called from any goroutine. Errors wrap fs.ErrNotExist, fs.ErrExist and
// syscall.Errno values (ENOSPC, EIO), to be asked with errors.Is.
type FS interface {
	Open(name string, mode Mode) (File, error)
	Size(name string) (int64, error) // of a file; fs.ErrNotExist when there is none
	MkdirAll(dir string) error       // not durable until the parents are synced
	Rename(from, to string) error    // replaces a file; a directory only if to does not exist
	Remove(name string) error        // file or empty directory
	ReadDir(dir string) ([]DirEntry, error)
	SyncDir(dir string) error
	Space(dir string) (Space, error)
	Lock(name string) (Unlocker, error)
	// Unmap ends a map made by File.Map, given exactly as it was returned.
	Unmap(b []byte) error
}

// Unlocker releases what FS.Lock took.
type Unlocker interface {
	Unlock() error
}

// OpenVolume opens the file system that dir is on, to sync all of it at once. It is nil when f cannot do that.
func OpenVolume(f FS, dir string) (Volume, error) {
	if v, ok := f.(interface {
		Volume(dir string) (Volume, error)
	}); ok {
		return v.Volume(dir)
	}
	return nil, nil
}

// Volume is a file system as a whole.
type Volume interface {
	// Sync makes durable everything that was written to any file of it, and all names (syncfs). It reports failures of write-back since
	// the volume was opened; after one nothing is known about earlier writes to any file.
	Sync() error
	Close() error
}

// File is an open file. Reads and writes are positional and may run concurrently; Close must not race with them.
type File interface {
	// ReadAt reads len(p) bytes, or fewer with io.EOF at the end of the file.
	ReadAt(p []byte, off int64) (int, error)
	WriteAt(p []byte, off int64) (int, error)
	// WriteVAt writes all of bufs one after the other at off, in as few system calls as the kernel allows. It does not
	// allocate and does not keep or change bufs.
	WriteVAt(bufs [][]byte, off int64) (int, error)
	Size() (int64, error)
	Truncate(size int64) error
	// Allocate reserves room for [off, off+n) and grows the file to at least off+n, as zeros. It fails with ENOSPC before
	// anything of the file has changed that a reader would see.
	Allocate(off, n int64) error
	// ZeroFill writes zeros over [off, off+n): a later overwrite of written blocks needs no journal commit when synced.
	ZeroFill(off, n int64) error
	// Sync makes data and size durable (fdatasync). After an error nothing is known about earlier writes.
	Sync() error
	// Map maps the first n bytes read-only and shared: later writes are seen. n > 0. Touching a page past the end of a file
	// that was cut meanwhile is a fault; see runtime/debug.SetPanicOnFault.
	// The map outlives the File; FS.Unmap ends it.
	Map(n int) ([]byte, error)
	// FD is the descriptor, for sendfile; it is valid until Close.
	FD() int
	Close() error
}

// CachedReader is a File that can be read without waiting for the disk.
type CachedReader interface {
	// ReadCachedAt is ReadAt of what is in the page cache: it stops, with ErrNotCached, where something is not. Where the system cannot tell,
	// it is ReadAt.
	ReadCachedAt(p []byte, off int64) (int, error)
}

// ErrNotCached says that the bytes asked for are on the disk only.
var ErrNotCached = errors.New("vfs: not in the page cache")

// WriteFile replaces the file name by one that holds data: written beside it, synced, renamed over it, directory synced.
// After a crash the file has the old or the new content, whole.
func WriteFile(f FS, dir, name string, data []byte) error {
	if err := ReplaceFile(f, dir, name, data); err != nil {
		return err
	}
	return f.SyncDir(dir)
}

// ReplaceFile is WriteFile without the last step: the new content is durable under its name once the caller has synced the
// directory. After an error nothing is left beside the file, if that can be removed.
func ReplaceFile(f FS, dir, name string, data []byte) error {
	tmp := dir + "/" + name + ".tmp"
	if err := f.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := f.Open(tmp, CreateNew)
	if err != nil {
		return err
	}
	if _, err = file.WriteAt(data, 0); err == nil {
		err = file.Sync()
	}
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = f.Rename(tmp, dir+"/"+name)
	}
	if err != nil {
		_ = f.Remove(tmp) // on a full disk its room is missed; else the next ReplaceFile does it
	}
	return err
}

// ReadFile returns the whole content of a file, which must not be larger than max bytes (ErrTooLarge).
func ReadFile(f FS, name string, max int64) ([]byte, error) {
	file, err := f.Open(name, ReadOnly)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return nil, err
	}
	if size > max {
		return nil, &fs.PathError{Op: "read", Path: name, Err: ErrTooLarge}
	}
	b := make([]byte, size)
	n, err := file.ReadAt(b, 0)
	if n == len(b) {
		err = nil
	}
	return b[:n], err
}

// ErrTooLarge is returned by ReadFile for a file above the caller's bound.
var ErrTooLarge = errors.New("vfs: file larger than allowed")
