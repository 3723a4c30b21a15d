package state

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"sort"
	"strings"
	"sync"
	"syscall"
	"testing"

	"kaas/engine/vfs"
)

var errPower = errors.New("power cut")

// diskFS is a disk in memory that knows what was synced. After limit operations every call fails with errPower; afterCut
// then gives a disk as a power cut may leave it.
type diskFS struct {
	mu      sync.Mutex
	now     map[string]*inode // names as processes see them
	durable map[string]*inode // names on the disk
	pending []nameOp
	ops     int
	limit   int
	rules   map[string]error // operation ("sync", "write", "truncate", "syncdir") → error of the next call, then removed
}

type nameOp struct {
	name, from string // from: of a rename
	node       *inode // nil: removal
}

type inode struct {
	data, synced []byte
	writes       []write // since the last sync, in order
}

type write struct {
	off  int64
	data []byte // nil: truncation to off
}

func newDisk() *diskFS {
	return &diskFS{now: map[string]*inode{}, durable: map[string]*inode{}, limit: 1 << 30, rules: map[string]error{}}
}

// step counts an operation. cut: it is the one during which the power goes, so it may happen in part.
func (d *diskFS) step(op string) (cut bool, err error) {
	if d.ops++; d.ops > d.limit {
		return d.ops == d.limit+1, errPower
	}
	if err := d.rules[op]; err != nil {
		delete(d.rules, op)
		return false, err
	}
	return false, nil
}

const sector = 512

// afterCut returns what a power cut now leaves: of the unsynced changes to names and of the unsynced sectors, a random part
// (keep: chance of each in percent).
func (d *diskFS) afterCut(rng *rand.Rand, keep int) *diskFS {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := map[string]*inode{}
	for n, i := range d.durable {
		names[n] = i
	}
	for _, op := range d.pending {
		if rng.IntN(100) >= keep {
			continue
		}
		if op.node == nil {
			delete(names, op.name)
			continue
		}
		if op.from != "" {
			delete(names, op.from)
		}
		names[op.name] = op.node
	}
	after := newDisk()
	for n, i := range names {
		data := i.torn(rng, keep)
		c := &inode{data: data, synced: bytes.Clone(data)}
		after.now[n], after.durable[n] = c, c
	}
	return after
}

// afterKill returns the disk as the next process sees it: nothing is lost, and what was not synced still is not.
func (d *diskFS) afterKill() *diskFS {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.limit = 0 // what still runs on it is dead
	after := newDisk()
	after.now, after.durable, after.pending = maps.Clone(d.now), maps.Clone(d.durable), slices.Clone(d.pending)
	return after
}

func (i *inode) torn(rng *rand.Rand, keep int) []byte {
	data := bytes.Clone(i.synced)
	for _, w := range i.writes {
		if w.data == nil {
			if rng.IntN(100) < keep {
				data = resize(data, w.off)
			}
			continue
		}
		for at := 0; at < len(w.data); {
			n := min(len(w.data)-at, sector-int((w.off+int64(at))%sector))
			if rng.IntN(100) < keep {
				data = splice(data, w.off+int64(at), w.data[at:at+n])
			}
			at += n
		}
	}
	return data
}

func resize(b []byte, n int64) []byte {
	if int64(len(b)) >= n {
		return b[:n:n]
	}
	return append(b, make([]byte, n-int64(len(b)))...)
}

func splice(b []byte, off int64, p []byte) []byte {
	if end := off + int64(len(p)); int64(len(b)) < end {
		b = resize(b, end)
	}
	copy(b[off:], p)
	return b
}

type diskFile struct {
	d *diskFS
	i *inode
}

func (d *diskFS) Open(name string, mode vfs.Mode) (vfs.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := d.now[name]
	switch {
	case i == nil && mode != vfs.Create && mode != vfs.CreateNew:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	case i != nil && mode == vfs.CreateNew:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrExist}
	case i == nil:
		cut, err := d.step("create")
		if err != nil && !cut {
			return nil, err
		}
		i = &inode{}
		d.now[name] = i
		d.pending = append(d.pending, nameOp{name: name, node: i})
		if err != nil {
			return nil, err
		}
	}
	return &diskFile{d, i}, nil
}

func (d *diskFS) Size(name string) (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := d.now[name]; i != nil {
		return int64(len(i.data)), nil
	}
	return 0, fs.ErrNotExist
}

func (d *diskFS) MkdirAll(string) error                   { return nil }
func (d *diskFS) Space(string) (vfs.Space, error)         { return vfs.Space{}, nil }
func (d *diskFS) Lock(name string) (vfs.Unlocker, error)  { return nil, errors.ErrUnsupported }
func (f *diskFile) Map(int) ([]byte, error)               { return nil, errors.ErrUnsupported }
func (d *diskFS) Unmap([]byte) error                      { return errors.ErrUnsupported }
func (f *diskFile) WriteVAt([][]byte, int64) (int, error) { return 0, errors.ErrUnsupported }
func (f *diskFile) Allocate(_, _ int64) error             { return errors.ErrUnsupported }
func (f *diskFile) ZeroFill(_, _ int64) error             { return errors.ErrUnsupported }
func (f *diskFile) FD() int                               { return -1 }
func (f *diskFile) Close() error                          { return nil }

func (d *diskFS) Rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	cut, err := d.step("rename")
	if err != nil && !cut {
		return err
	}
	i := d.now[from]
	delete(d.now, from)
	d.now[to] = i
	d.pending = append(d.pending, nameOp{name: to, from: from, node: i})
	return err
}

func (d *diskFS) Remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.now[name] == nil {
		return fs.ErrNotExist
	}
	cut, err := d.step("remove")
	if err != nil && !cut {
		return err
	}
	delete(d.now, name)
	d.pending = append(d.pending, nameOp{name: name})
	return err
}

func (d *diskFS) ReadDir(dir string) (out []vfs.DirEntry, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for n := range d.now {
		if path.Dir(n) == dir {
			out = append(out, vfs.DirEntry{Name: path.Base(n)})
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, nil
}

func (d *diskFS) SyncDir(string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.step("syncdir"); err != nil {
		return err
	}
	d.durable = map[string]*inode{}
	for n, i := range d.now {
		d.durable[n] = i
	}
	d.pending = nil
	return nil
}

func (f *diskFile) ReadAt(p []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if off >= int64(len(f.i.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.i.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *diskFile) WriteAt(p []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	cut, err := f.d.step("write")
	if cut || errors.Is(err, syscall.ENOSPC) { // half of it fits
		p = p[:len(p)/2]
	} else if err != nil {
		return 0, err
	}
	f.i.data = splice(f.i.data, off, p)
	f.i.writes = append(f.i.writes, write{off, bytes.Clone(p)})
	return len(p), err
}

func (f *diskFile) Size() (int64, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return int64(len(f.i.data)), nil
}

func (f *diskFile) Truncate(n int64) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	cut, err := f.d.step("truncate")
	if err != nil && !cut {
		return err
	}
	f.i.data = resize(f.i.data, n)
	f.i.writes = append(f.i.writes, write{off: n})
	return err
}

func (f *diskFile) Sync() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if _, err := f.d.step("sync"); err != nil {
		return err
	}
	f.i.synced, f.i.writes = bytes.Clone(f.i.data), nil
	return nil
}

// files lists the names that end in ext.
func (d *diskFS) files(ext string) (out []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for n := range d.now {
		if strings.HasSuffix(n, ext) {
			out = append(out, n)
		}
	}
	sort.Strings(out)
	return out
}

// TestDisk keeps the disk honest: what is not synced can be lost, what is synced cannot.
func TestDisk(t *testing.T) {
	d := newDisk()
	f, err := d.Open("/a", vfs.CreateNew)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteAt([]byte("synced"), 0)
	f.Sync()
	rng := rand.New(rand.NewPCG(1, 2))
	if n := len(d.afterCut(rng, 0).now); n != 0 {
		t.Errorf("%d names survive without a sync of the directory", n)
	}
	d.SyncDir("/")
	f.WriteAt([]byte("lost"), 6)
	if got := string(d.afterCut(rng, 0).now["/a"].data); got != "synced" {
		t.Errorf("after a cut: %q", got)
	}
	if got := string(d.afterCut(rng, 100).now["/a"].data); got != "syncedlost" {
		t.Errorf("after a cut that keeps all: %q", got)
	}
	d.limit = d.ops
	if _, err := f.WriteAt([]byte("x"), 0); err != errPower {
		t.Errorf("write without power: %v", err)
	}
}
