package logtool

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lockName is the file by whose lock a broker, this one or Apache's, has a data directory for itself.
const lockName = ".lock"

// shareLock keeps brokers out of a data directory while it is read; other readers may come in. It needs no right to write. inUse: a
// broker has it. Nobody can have a directory without the file.
func shareLock(dir string) (release func(), inUse bool, err error) {
	f, err := os.Open(filepath.Join(dir, lockName))
	if errors.Is(err, fs.ErrNotExist) {
		return func() {}, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	whole := unix.Flock_t{Type: unix.F_RDLCK}
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &whole)
	if err == nil {
		return func() { f.Close() }, false, nil
	}
	f.Close()
	if err == unix.EAGAIN || err == unix.EACCES {
		return func() {}, true, nil
	}
	return nil, false, err
}
