package vfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"testing"
)

func each(t *testing.T, f func(t *testing.T, fsys FS, dir string)) {
	t.Run("os", func(t *testing.T) { f(t, OS, t.TempDir()) })
	t.Run("memory", func(t *testing.T) {
		m := Memory()
		if err := m.MkdirAll("/data/x"); err != nil {
			t.Fatal(err)
		}
		f(t, m, "/data/x")
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestFile(t *testing.T) {
	each(t, func(t *testing.T, fsys FS, dir string) {
		f, err := fsys.Open(dir+"/a", CreateNew)
		must(t, err)
		if _, err := fsys.Open(dir+"/a", CreateNew); !errors.Is(err, fs.ErrExist) {
			t.Errorf("second CreateNew: %v", err)
		}
		if _, err := fsys.Open(dir+"/b", ReadWrite); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("missing: %v", err)
		}
		must(t, f.Allocate(0, 4096))
		if n, _ := f.Size(); n != 4096 {
			t.Errorf("size after Allocate %d", n)
		}
		n, err := f.WriteVAt([][]byte{[]byte("ab"), nil, []byte("cde")}, 10)
		if n != 5 || err != nil {
			t.Errorf("WriteVAt %d %v", n, err)
		}
		m, err := f.Map(4096)
		must(t, err)
		if string(m[9:16]) != "\x00abcde\x00" {
			t.Errorf("mapped %q", m[9:16])
		}
		must(t, fsys.Unmap(m))
		must(t, f.ZeroFill(4096, 100_000))
		must(t, f.Truncate(15))
		must(t, f.Sync())
		b := make([]byte, 10)
		if n, err := f.ReadAt(b, 10); n != 5 || err != io.EOF || string(b[:n]) != "abcde" {
			t.Errorf("ReadAt %d %v %q", n, err, b[:n])
		}
		must(t, f.Close())
	})
}

// TestWriteVMany goes past the kernel's limit of buffers in one call.
func TestWriteVMany(t *testing.T) {
	each(t, func(t *testing.T, fsys FS, dir string) {
		f, err := fsys.Open(dir+"/a", Create)
		must(t, err)
		defer f.Close()
		var bufs [][]byte
		for i := range 3000 {
			bufs = append(bufs, bytes.Repeat([]byte{byte(i)}, i%7))
		}
		want := bytes.Join(bufs, nil)
		n, err := f.WriteVAt(bufs, 5)
		if n != len(want) || err != nil {
			t.Fatalf("%d %v", n, err)
		}
		got := make([]byte, len(want))
		_, err = f.ReadAt(got, 5)
		must(t, err)
		if !bytes.Equal(got, want) {
			t.Error("content differs")
		}
		if a := testing.AllocsPerRun(20, func() { f.WriteVAt(bufs, 5) }); a > 0 {
			t.Errorf("%v allocations", a)
		}
	})
}

func TestNames(t *testing.T) {
	each(t, func(t *testing.T, fsys FS, dir string) {
		must(t, fsys.MkdirAll(dir+"/p/q"))
		must(t, WriteFile(fsys, dir+"/p", "f", []byte("one")))
		must(t, WriteFile(fsys, dir+"/p", "f", []byte("two")))
		old, err := fsys.Open(dir+"/p/f", ReadOnly)
		must(t, err)
		must(t, fsys.Rename(dir+"/p", dir+"/r"))
		if b, err := ReadFile(fsys, dir+"/r/f", 3); string(b) != "two" || err != nil {
			t.Errorf("%q %v", b, err)
		}
		if _, err := ReadFile(fsys, dir+"/r/f", 2); !errors.Is(err, ErrTooLarge) {
			t.Errorf("bound: %v", err)
		}
		l, err := fsys.ReadDir(dir + "/r")
		if err != nil || len(l) != 2 || l[0] != (DirEntry{Name: "f"}) || l[1] != (DirEntry{Name: "q", Dir: true}) {
			t.Errorf("%v %v", l, err)
		}
		if err := fsys.Remove(dir + "/r"); err == nil {
			t.Error("removed a directory that is not empty")
		}
		must(t, fsys.Remove(dir+"/r/f"))
		b := make([]byte, 3)
		if _, err := old.ReadAt(b, 0); err != nil || string(b) != "two" {
			t.Errorf("a removed file stays readable while open: %q %v", b, err)
		}
		must(t, old.Close())
		must(t, fsys.Remove(dir+"/r/q"))
		must(t, fsys.Remove(dir+"/r"))
		if _, err := fsys.Size(dir + "/r/f"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v", err)
		}
		if s, err := fsys.Space(dir); err != nil || s.Total <= 0 || s.Free <= 0 || s.Free > s.Total {
			t.Errorf("%+v %v", s, err)
		}
	})
}

func TestLock(t *testing.T) {
	each(t, func(t *testing.T, fsys FS, dir string) {
		l, err := fsys.Lock(dir + "/.lock")
		must(t, err)
		if _, err := fsys.Lock(dir + "/.lock"); !errors.Is(err, ErrLocked) {
			t.Errorf("second lock: %v", err)
		}
		must(t, l.Unlock())
		l, err = fsys.Lock(dir + "/.lock")
		must(t, err)
		must(t, l.Unlock())
	})
}
