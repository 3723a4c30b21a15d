package torture

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"kaas/engine/vfs"
)

// power is a file system that knows what was not synced when the power goes, so that it can be taken back once the process is no more.
// Names are kept: an operation on a directory is durable at once, so a file whose data was not synced before it was renamed shows it.
//
// It remembers what every change since the last sync of its file overwrote.
type power struct {
	vfs.FS
	on sync.RWMutex // read by every change, and taken for ever when the power goes

	mu    sync.Mutex // guards files
	files map[inode]*powered
}

type inode struct{ dev, ino uint64 }

func newPower(inner vfs.FS) *power { return &power{FS: inner, files: map[inode]*powered{}} }

// powered is a file, however many handles it has.
type powered struct {
	mu   sync.Mutex // guards what follows, and orders changes
	fd   int        // of our own, for as long as there are changes; otherwise -1
	undo []change   // what was not synced, in order
	seq  int64      // of the last change
}

// change is what one change overwrote.
type change struct {
	Seq  int64
	Off  int64
	Old  []byte
	Size int64 // of the file before
}

type poweredFile struct {
	vfs.File
	p *power
	f *powered
}

func inodeOf(st *unix.Stat_t) inode { return inode{uint64(st.Dev), st.Ino} }

func (p *power) Open(name string, mode vfs.Mode) (vfs.File, error) {
	p.on.RLock()
	defer p.on.RUnlock()
	file, err := p.FS.Open(name, mode)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(file.FD(), &st); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	at := inodeOf(&st)
	if p.files[at] == nil {
		p.files[at] = &powered{fd: -1}
	}
	return &poweredFile{file, p, p.files[at]}, nil
}

func (p *power) Rename(from, to string) error {
	p.on.RLock()
	defer p.on.RUnlock()
	p.forget(to)
	return p.FS.Rename(from, to)
}

func (p *power) Remove(name string) error {
	p.on.RLock()
	defer p.on.RUnlock()
	p.forget(name)
	return p.FS.Remove(name)
}

// forget gives up what is known of a file whose name goes.
func (p *power) forget(name string) {
	var st unix.Stat_t
	if unix.Stat(name, &st) != nil {
		return
	}
	p.mu.Lock()
	f := p.files[inodeOf(&st)]
	delete(p.files, inodeOf(&st))
	p.mu.Unlock()
	if f != nil {
		f.settle(1 << 62)
	}
}

func (p *power) MkdirAll(dir string) error {
	p.on.RLock()
	defer p.on.RUnlock()
	return p.FS.MkdirAll(dir)
}

// poweredVolume syncs every file.
type poweredVolume struct {
	vfs.Volume
	p *power
}

func (p *power) Volume(dir string) (vfs.Volume, error) {
	v, err := vfs.OpenVolume(p.FS, dir)
	if v == nil || err != nil {
		return nil, err
	}
	return &poweredVolume{v, p}, nil
}

func (v *poweredVolume) Sync() error {
	upTo := map[*powered]int64{}
	v.p.mu.Lock()
	for _, f := range v.p.files {
		upTo[f] = f.last()
	}
	v.p.mu.Unlock()
	if err := v.Volume.Sync(); err != nil {
		return err
	}
	v.p.on.RLock() // not while it syncs: the power may go meanwhile
	defer v.p.on.RUnlock()
	for f, seq := range upTo {
		f.settle(seq)
	}
	return nil
}

func (f *powered) last() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seq
}

// settle makes the changes up to one durable.
func (f *powered) settle(upTo int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.undo) > 0 && f.undo[0].Seq <= upTo {
		f.undo = f.undo[1:]
	}
	if len(f.undo) == 0 && f.fd >= 0 {
		_ = unix.Close(f.fd)
		f.undo, f.fd = nil, -1
	}
}

func (f *poweredFile) Sync() error {
	seq := f.f.last()
	if err := f.File.Sync(); err != nil {
		return err
	}
	f.p.on.RLock() // as in poweredVolume.Sync
	defer f.p.on.RUnlock()
	f.f.settle(seq)
	return nil
}

// change remembers what [off, off+n) holds and runs what changes it. What is only beyond the end is not remembered.
func (f *poweredFile) change(off, n int64, run func() error) error {
	f.p.on.RLock()
	defer f.p.on.RUnlock()
	f.f.mu.Lock()
	defer f.f.mu.Unlock()
	size, err := f.File.Size()
	if err != nil {
		return err
	}
	c := change{Off: off, Size: size, Old: make([]byte, max(0, min(n, size-off)))}
	if _, err := f.File.ReadAt(c.Old, off); err != nil && err != io.EOF {
		return err
	}
	if f.f.fd < 0 {
		if f.f.fd, err = unix.FcntlInt(uintptr(f.File.FD()), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			return err
		}
	}
	f.f.seq++
	c.Seq = f.f.seq
	f.f.undo = append(f.f.undo, c)
	return run()
}

func (f *poweredFile) WriteAt(b []byte, off int64) (n int, err error) {
	err = f.change(off, int64(len(b)), func() error { n, err = f.File.WriteAt(b, off); return err })
	return n, err
}

func (f *poweredFile) WriteVAt(bufs [][]byte, off int64) (n int, err error) {
	size := 0
	for _, b := range bufs {
		size += len(b)
	}
	err = f.change(off, int64(size), func() error { n, err = f.File.WriteVAt(bufs, off); return err })
	return n, err
}

func (f *poweredFile) Truncate(size int64) error {
	return f.change(size, 1<<62, func() error { return f.File.Truncate(size) })
}

func (f *poweredFile) Allocate(off, n int64) error {
	return f.change(off, 0, func() error { return f.File.Allocate(off, n) })
}

func (f *poweredFile) ZeroFill(off, n int64) error {
	return f.change(off, n, func() error { return f.File.ZeroFill(off, n) })
}

// loss is a file with what was not synced.
type loss struct {
	Name string
	Undo []change
}

// cut ends all changes, for ever, and returns what was not synced. Readers go on: what they find is not taken back before the process has
// ended.
func (p *power) cut() (losses []loss, err error) {
	p.on.Lock()
	for _, f := range p.files {
		if len(f.undo) == 0 {
			continue
		}
		name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.fd))
		if err != nil {
			return nil, err
		}
		losses = append(losses, loss{name, f.undo})
	}
	slices.SortFunc(losses, func(a, b loss) int { return strings.Compare(a.Name, b.Name) })
	return losses, nil
}

// takeBack takes back what was not synced, all of it or a part that the random numbers choose, file by file.
func takeBack(losses []loss, rng *rand.Rand) error {
	for _, l := range losses {
		fd, err := unix.Open(l.Name, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err == unix.ENOENT { // removed while it was open
			continue
		}
		if err != nil {
			return err
		}
		err = l.takeBack(fd, rng)
		if err := errors.Join(err, unix.Close(fd)); err != nil {
			return fmt.Errorf("%s: %w", l.Name, err)
		}
	}
	return nil
}

func (l loss) takeBack(fd int, rng *rand.Rand) error {
	from, scattered := 0, false
	switch rng.IntN(4) {
	case 0: // a prefix is there
		from = rng.IntN(len(l.Undo) + 1)
	case 1: // some are there
		scattered = true
	}
	for i := len(l.Undo) - 1; i >= from; i-- {
		if !scattered || rng.IntN(2) == 0 {
			if err := l.Undo[i].takeBack(fd); err != nil {
				return err
			}
		}
	}
	if scattered || from == len(l.Undo) {
		return nil
	}
	return unix.Ftruncate(fd, l.Undo[from].Size)
}

// takeBack undoes a change, but for the size. What was beyond the end before is zeros, and so is what comes after it.
func (c change) takeBack(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	now := make([]byte, len(c.Old))
	n, err := unix.Pread(fd, now, c.Off)
	if err == nil && !bytes.Equal(now[:n], c.Old) { // otherwise a full disk might want room for zeros
		_, err = unix.Pwrite(fd, c.Old, c.Off)
	}
	if err == nil && st.Size > c.Size && c.Off+int64(len(c.Old)) >= c.Size {
		if err = unix.Ftruncate(fd, max(c.Size, c.Off)); err == nil {
			err = unix.Ftruncate(fd, st.Size)
		}
	}
	return err
}

// A torture that cuts the power proves nothing if nothing is lost by it, or too much.
func TestPowerGoes(t *testing.T) {
	outcomes := map[string]int{}
	for seed := range uint64(40) {
		dir := t.TempDir()
		p := newPower(vfs.OS)
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		open := func(name string) vfs.File {
			f, err := p.Open(filepath.Join(dir, name), vfs.Create)
			must(err)
			return f
		}
		write := func(f vfs.File, text string, off int64) {
			_, err := f.WriteAt([]byte(text), off)
			must(err)
		}
		log, renamed, gone := open("log"), open("new"), open("gone")
		must(log.Allocate(0, 12))
		write(log, "abcd", 0)
		must(log.Sync())
		write(log, "ef", 4)
		write(open("log"), "X", 0) // by another handle
		must(open("log").Sync())
		write(log, "ghi", 6)
		write(log, "jkl", 9)
		write(log, "mno", 12)
		write(renamed, "data", 0)
		must(p.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "old")))
		write(gone, "data", 0)
		must(p.Remove(filepath.Join(dir, "gone")))
		must(renamed.Close())
		losses, err := p.cut()
		must(err)
		must(takeBack(losses, rand.New(rand.NewPCG(seed, 0))))
		if p.on.TryRLock() {
			t.Fatal("the power is still there")
		}
		got, err := vfs.ReadFile(vfs.OS, filepath.Join(dir, "log"), 100)
		must(err)
		if !bytes.HasPrefix(got, []byte("Xbcdef")) {
			t.Fatalf("seed %d: what was synced is %q", seed, got)
		}
		outcomes[fmt.Sprintf("%q", got[6:])]++
		got, err = vfs.ReadFile(vfs.OS, filepath.Join(dir, "old"), 100)
		must(err)
		outcomes[fmt.Sprintf("renamed %q", got)]++
		if _, err := vfs.OS.Size(filepath.Join(dir, "gone")); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("a removed file: %v", err)
		}
	}
	for _, want := range []string{`"\x00\x00\x00\x00\x00\x00"`, `"ghi\x00\x00\x00"`, `"ghijkl"`, `"ghijklmno"`, `"\x00\x00\x00jkl\x00\x00\x00"`,
		`renamed ""`, `renamed "data"`} {
		if outcomes[want] == 0 {
			t.Errorf("never %s: %v", want, outcomes)
		}
	}
}
