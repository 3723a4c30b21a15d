package crashfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kaas/engine/vfs"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, f vfs.FS, name, content string) vfs.File {
	t.Helper()
	file, err := f.Open(name, vfs.CreateNew)
	must(t, err)
	_, err = file.WriteAt([]byte(content), 0)
	must(t, err)
	return file
}

// content is what a file holds, "-" when there is none.
func content(t *testing.T, f vfs.FS, name string) string {
	t.Helper()
	b, err := vfs.ReadFile(f, name, 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return "-"
	}
	must(t, err)
	return string(b)
}

func newRand(seed int) *rand.Rand { return rand.New(rand.NewPCG(uint64(seed), 0)) }

var (
	keepNone = Cut{Sector: 512}
	keepAll  = Cut{Names: All, Sizes: All, Data: All, Sector: 512}
)

func TestFile(t *testing.T) {
	d := New()
	must(t, d.MkdirAll("/a/b"))
	f := create(t, d, "/a/b/f", "")
	if _, err := d.Open("/a/b/f", vfs.CreateNew); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second CreateNew: %v", err)
	}
	if _, err := d.Open("/a/b/g", vfs.ReadWrite); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	must(t, f.Allocate(0, 4096))
	n, err := f.WriteVAt([][]byte{[]byte("ab"), nil, []byte("cde")}, 10)
	if n != 5 || err != nil {
		t.Errorf("WriteVAt %d %v", n, err)
	}
	m, err := f.Map(4096)
	must(t, err)
	must(t, f.ZeroFill(11, 2))
	_, err = f.WriteAt([]byte("x"), 15)
	must(t, err)
	if string(m[9:17]) != "\x00a\x00\x00dex\x00" {
		t.Errorf("mapped %q", m[9:17])
	}
	must(t, d.Unmap(m))
	b := make([]byte, 6)
	if _, err := syscall.Pread(f.FD(), b, 10); err != nil || string(b) != "a\x00\x00dex" {
		t.Errorf("by descriptor %q %v", b, err)
	}
	must(t, f.Truncate(15))
	must(t, f.Truncate(17))
	b = make([]byte, 10)
	if n, err := f.ReadAt(b, 13); n != 4 || err != io.EOF || string(b[:n]) != "de\x00\x00" {
		t.Errorf("ReadAt %q %v", b[:n], err)
	}
	must(t, f.Close())
	if _, err := f.WriteAt(b, 0); !errors.Is(err, syscall.EBADF) {
		t.Errorf("write after close: %v", err)
	}
	if r, err := d.Open("/a/b/f", vfs.ReadOnly); err != nil {
		t.Error(err)
	} else if err := r.Truncate(0); !errors.Is(err, syscall.EBADF) {
		t.Errorf("write to a file opened for reading: %v", err)
	}
	l, err := d.Lock("/a/.lock")
	must(t, err)
	if _, err := d.Lock("/a/.lock"); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("second lock: %v", err)
	}
	if _, err := d.Clone().Lock("/a/.lock"); err != nil {
		t.Errorf("lock of a killed process: %v", err)
	}
	must(t, l.Unlock())
}

func TestNames(t *testing.T) {
	d := New()
	must(t, d.MkdirAll("/p/q"))
	must(t, vfs.WriteFile(d, "/p", "f", []byte("one")))
	must(t, vfs.WriteFile(d, "/p", "f", []byte("two")))
	old, err := d.Open("/p/f", vfs.ReadOnly)
	must(t, err)
	must(t, d.Rename("/p", "/r"))
	l, err := d.ReadDir("/r")
	if err != nil || !slices.Equal(l, []vfs.DirEntry{{Name: "f"}, {Name: "q", Dir: true}}) {
		t.Errorf("%v %v", l, err)
	}
	if got := d.Files("f"); !slices.Equal(got, []string{"/r/f"}) {
		t.Errorf("files %q", got)
	}
	for what, err := range map[string]error{
		"removed a directory that is not empty": d.Remove("/r"),
		"renamed over a directory":              d.Rename("/r/f", "/r/q"),
		"renamed what is not there":             d.Rename("/p", "/x"),
		"renamed between directories":           d.Rename("/r/f", "/f"),
	} {
		if err == nil {
			t.Error(what)
		}
	}
	must(t, d.Remove("/r/f"))
	b := make([]byte, 3)
	if _, err := old.ReadAt(b, 0); err != nil || string(b) != "two" {
		t.Errorf("a removed file stays readable while open: %q %v", b, err)
	}
	must(t, d.Remove("/r/q"))
	must(t, d.Remove("/r"))
	if _, err := d.ReadDir("/r"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// TestCutNames: each change of a name may be lost until its directory is synced, and not after.
func TestCutNames(t *testing.T) {
	d := New()
	must(t, d.MkdirAll("/d"))
	f := create(t, d, "/d/a", "one")
	must(t, f.Sync())
	must(t, d.SyncDir("/d"))
	if got := content(t, d.CrashAs(newRand(1), keepNone), "/d/a"); got != "-" {
		t.Errorf("the directory itself was not synced: %q", got)
	}
	must(t, d.SyncDir("/"))
	if got := content(t, d.CrashAs(newRand(1), keepNone), "/d/a"); got != "one" {
		t.Errorf("synced: %q", got)
	}
	must(t, vfs.ReplaceFile(d, "/d", "a", []byte("two")))
	must(t, create(t, d, "/d/b", "b").Sync())
	must(t, d.Remove("/d/b"))
	seen := map[string]bool{}
	for seed := range 300 {
		c := d.CrashAs(newRand(seed), Cut{Names: Some, Data: All, Percent: 50, Sector: 512})
		seen[content(t, c, "/d/a")+content(t, c, "/d/b")+content(t, c, "/d/a.tmp")] = true
		if c.find("/d/a") == c.find("/d/a.tmp") {
			t.Fatal("a file with two names")
		}
	}
	for _, want := range []string{"one--", "two--", "oneb-", "twob-", "one-two", "onebtwo"} {
		if !seen[want] {
			t.Errorf("never seen: %s of %v", want, seen)
		}
		delete(seen, want)
	}
	if len(seen) > 0 {
		t.Errorf("impossible: %v", seen)
	}
	must(t, d.SyncDir("/d"))
	if c := d.CrashAs(newRand(1), keepNone); content(t, c, "/d/a") != "two" || content(t, c, "/d/b") != "-" {
		t.Errorf("synced: %q %q", content(t, c, "/d/a"), content(t, c, "/d/b"))
	}
}

// TestCutData: unsynced writes are kept by the sector, synced ones always.
func TestCutData(t *testing.T) {
	for _, sector := range []int{512, 4096} {
		d := New()
		f := create(t, d, "/f", strings.Repeat("o", 3*sector))
		must(t, f.Sync())
		must(t, d.SyncDir("/"))
		_, err := f.WriteAt(bytes.Repeat([]byte("n"), 3*sector), int64(sector/2))
		must(t, err)
		seen := map[string]bool{}
		for seed := range 300 {
			b := content(t, d.CrashAs(newRand(seed), Cut{Data: Some, Percent: 50, Sector: sector}), "/f")
			var kinds []byte
			for i := 0; i < len(b); {
				n := min(len(b), i+sector/2)
				if strings.Count(b[i:n], b[i:i+1]) != n-i {
					t.Fatalf("torn inside a sector of %d, at %d", sector, i)
				}
				kinds = append(kinds, b[i])
				i = n
			}
			seen[string(kinds)] = true
		}
		for _, want := range []string{"oooooo", "onnnnnn", "onnnoo", "oooonn", "onoooon", "oooooon"} {
			if !seen[want] {
				t.Errorf("sectors of %d, never seen: %s", sector, want)
			}
		}
		if len(seen) > 16 { // four sectors
			t.Errorf("torn inside sectors of %d: %v", sector, seen)
		}
		must(t, f.Sync())
		if got := content(t, d.CrashAs(newRand(1), keepNone), "/f"); got != content(t, d, "/f") {
			t.Error("lost what was synced")
		}
	}
}

// TestCutSizes: growing and cutting are lost or kept apart from data; what was cut off does not come back by growing.
func TestCutSizes(t *testing.T) {
	d := New()
	f := create(t, d, "/f", "abcdef")
	must(t, f.Sync())
	must(t, d.SyncDir("/"))
	must(t, f.Truncate(3))
	must(t, f.Allocate(0, 5))
	seen := map[string]bool{}
	for seed := range 100 {
		seen[content(t, d.CrashAs(newRand(seed), Cut{Sizes: Some, Percent: 50, Sector: 512}), "/f")] = true
	}
	if len(seen) != 3 || !seen["abcdef"] || !seen["abc"] || !seen["abc\x00\x00"] {
		t.Errorf("seen %v", seen)
	}
	_, err := f.WriteAt([]byte("xyz"), 4)
	must(t, err)
	if got := content(t, d.CrashAs(newRand(1), Cut{Data: All, Sector: 512}), "/f"); got != "abcdxy" {
		t.Errorf("grew without the sizes before: %q", got)
	}
	must(t, f.Truncate(5))
	must(t, f.ZeroFill(4, 1))
	must(t, f.Sync())
	if got := content(t, d.CrashAs(newRand(1), keepNone), "/f"); got != "abc\x00\x00" {
		t.Errorf("synced: %q", got)
	}
}

// TestCutPrefix: as one journal has it, nothing is there without what came before it.
func TestCutPrefix(t *testing.T) {
	d := New()
	for i := range 8 {
		create(t, d, fmt.Sprint("/", i), "x")
	}
	sizes := map[int]bool{}
	for seed := range 200 {
		c := d.CrashAs(newRand(seed), Cut{Names: Prefix, Data: Prefix, Sector: 512})
		files := c.Files("*")
		for i, name := range files {
			if name != fmt.Sprint("/", i) || i < len(files)-1 && content(t, c, name) != "x" {
				t.Fatalf("seed %d: %q", seed, files)
			}
		}
		sizes[len(files)] = true
	}
	if len(sizes) != 9 {
		t.Errorf("numbers of files seen: %v", sizes)
	}
}

// TestFailedSync: what a failed sync has lost does not become durable by a later one, and what that one covers does.
func TestFailedSync(t *testing.T) {
	d := New()
	faults := Rules("1st fdatasync of f: EIO")
	f := create(t, faults.FS(d), "/f", "lost")
	must(t, d.SyncDir("/"))
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("%v", err)
	}
	_, err := f.WriteAt([]byte("later"), 2)
	must(t, err)
	must(t, f.Sync())
	if got := content(t, d, "/f"); got != "lolater" {
		t.Errorf("readers see %q", got)
	}
	if got := content(t, d.CrashAs(newRand(1), keepNone), "/f"); got != "\x00\x00later" {
		t.Errorf("after a cut %q", got)
	}
	if got := content(t, d.CrashAs(newRand(1), keepAll), "/f"); got != "lolater" {
		t.Errorf("after a cut that keeps all %q", got)
	}
}

// TestSyncCoversWhatWasBefore: a write that runs beside a sync is not covered by it.
func TestSyncCoversWhatWasBefore(t *testing.T) {
	d := New()
	f := create(t, d, "/f", "before")
	must(t, d.SyncDir("/"))
	var ops []Op
	d.OnOp(func(o Op) {
		if ops = append(ops, o); o.Kind != OpSync {
			return
		}
		if got := content(t, d.CrashAs(newRand(1), keepNone), "/f"); got != "" {
			t.Errorf("durable before the sync was done: %q", got)
		}
		_, err := f.WriteAt([]byte("X"), 0)
		must(t, err)
	})
	must(t, f.Sync())
	if got := content(t, d.CrashAs(newRand(1), keepNone), "/f"); got != "before" {
		t.Errorf("after the sync: %q", got)
	}
	if want := []Op{{4, OpSync, "/f"}, {5, OpWrite, "/f"}}; !slices.Equal(ops, want) || d.Ops() != 5 {
		t.Errorf("operations %v of %d", ops, d.Ops())
	}
}

// TestCutAfter: the operation at which the power goes may be on the disk, later ones are not.
func TestCutAfter(t *testing.T) {
	d := New()
	f := create(t, d, "/f", "a")
	d.CutAfter(1)
	_, err := f.WriteAt([]byte("b"), 1)
	must(t, err)
	if _, err := f.WriteAt([]byte("c"), 2); !errors.Is(err, ErrPower) {
		t.Errorf("at the cut: %v", err)
	}
	_, werr := f.WriteAt([]byte("d"), 3)
	_, cerr := d.Open("/g", vfs.Create)
	for what, err := range map[string]error{"write": werr, "create": cerr, "sync": f.Sync(), "syncdir": d.SyncDir("/"), "mkdir": d.MkdirAll("/x")} {
		if !errors.Is(err, ErrPower) {
			t.Errorf("%s without power: %v", what, err)
		}
	}
	if got := content(t, d.CrashAs(newRand(1), keepAll), "/f"); got != "abc" {
		t.Errorf("after the cut: %q", got)
	}
	d.CutAfter(-1)
	must(t, f.Sync())
}

// TestClone: a killed process loses nothing, a cut after it may; the clone does not change with the original.
func TestClone(t *testing.T) {
	d := New()
	f := create(t, d, "/f", "a")
	c := d.Clone()
	_, err := f.WriteAt([]byte("b"), 0)
	must(t, err)
	must(t, d.Remove("/f"))
	if got := content(t, c, "/f"); got != "a" {
		t.Errorf("clone has %q", got)
	}
	if got := content(t, c.CrashAs(newRand(1), keepNone), "/f"); got != "-" {
		t.Errorf("cut after a kill: %q", got)
	}
	must(t, c.SyncDir("/"))
	if got := content(t, c.CrashAs(newRand(1), keepNone), "/f"); got != "" {
		t.Errorf("cut after a kill and a sync of the directory: %q", got)
	}
	must(t, c.Edit("/f", func(b []byte) []byte { return append(b, '!') }))
	if got := content(t, c.CrashAs(newRand(1), keepNone), "/f"); got != "a!" {
		t.Errorf("edited: %q", got)
	}
	must(t, c.Lose("/f"))
	if got := content(t, c.CrashAs(newRand(1), keepNone), "/f"); got != "-" {
		t.Errorf("lost: %q", got)
	}
}

// TestSameSeed: the same disk, seed and kind of cut give the same disk.
func TestSameSeed(t *testing.T) {
	d := New()
	for i := range 20 {
		create(t, d, fmt.Sprint("/", i), strings.Repeat("x", 3000))
	}
	image := func(d *Disk) (s string) {
		for _, name := range d.Files("*") {
			s += name + content(t, d, name)
		}
		return s
	}
	different := 0
	for seed := range 20 {
		a := image(d.Crash(newRand(seed)))
		if a != image(d.Crash(newRand(seed))) {
			t.Fatalf("seed %d: two disks", seed)
		}
		if a != image(d) {
			different++
		}
	}
	if different < 5 {
		t.Errorf("%d of 20 cuts lost something", different)
	}
}

// What TestRules calls again and again: each opens its file anew.
func writeFresh(n int) func(f vfs.FS) error {
	return func(f vfs.FS) error {
		file, err := f.Open("/d/x.log", vfs.Create)
		if err != nil {
			return err
		}
		_, err = file.WriteAt(make([]byte, n), 0)
		return err
	}
}

func appendTo(name string, n int) func(f vfs.FS) error {
	return func(f vfs.FS) error {
		file, err := f.Open(name, vfs.Create)
		if err != nil {
			return err
		}
		size, _ := file.Size()
		_, err = file.WriteVAt([][]byte{make([]byte, n)}, size)
		return err
	}
}

func onFile(op func(f vfs.File) error) func(f vfs.FS) error {
	return func(f vfs.FS) error {
		file, err := f.Open("/d/x.log", vfs.Create)
		if err != nil {
			return err
		}
		return op(file)
	}
}

func TestRules(t *testing.T) {
	sync := onFile(vfs.File.Sync)
	for _, c := range []struct {
		rules string
		do    func(f vfs.FS) error
		want  string // one letter for each of six calls: . for nil, the first letter after E of an errno, else
	}{
		{"3rd fdatasync of *.log: EIO", sync, "..I..."},
		{"2nd+ sync: EIO", sync, ".IIIII"},
		{"sync of *.index: EIO", sync, "......"},
		{"sync of d/*.log: EROFS", sync, "RRRRRR"},
		{"sync of e/*.log: EROFS", sync, "......"},
		{"1st sync: EIO; 2nd sync: ENOSPC\n 1st open: EMFILE", sync, "MIN..."}, // a rule counts what it sees
		{"short write", writeFresh(10), "N....."},
		{"short write of *.index", writeFresh(10), "......"},
		{"ENOSPC after 10 KiB", appendTo("/d/x.log", 4096), "..NNNN"},
		{"ENOSPC after 1 MiB of *.log", appendTo("/d/x.log", 300<<10), "...NNN"},
		{"space after 9: EDQUOT", onFile(func(f vfs.File) error { return f.Allocate(0, 10) }), "DDDDDD"},
		{"any of x.log: EIO", writeFresh(1), "IIIIII"},
		{"1st truncate: EIO", onFile(func(f vfs.File) error { return f.Truncate(3) }), "I....."},
		{"1st zero: EIO", onFile(func(f vfs.File) error { return f.ZeroFill(0, 3) }), "I....."},
		{"1st map: EIO", onFile(func(f vfs.File) error { f.Truncate(5); _, err := f.Map(5); return err }), "I....."},
		{"1st read: EIO", onFile(func(f vfs.File) error { _, err := f.ReadAt(nil, 0); return err }), "I....."},
		{"2nd create: EACCES", func(f vfs.FS) error {
			f.Remove("/d/c")
			_, err := f.Open("/d/c", vfs.CreateNew)
			return err
		}, ".A...."},
		{"1st syncdir: EIO", func(f vfs.FS) error { return f.SyncDir("/d") }, "I....."},
		{"1st mkdir of x: EIO", func(f vfs.FS) error { return f.MkdirAll("/x") }, "I....."},
		{"1st remove: EIO", func(f vfs.FS) error { return f.Remove("/d/none") }, "INNNNN"},
		{"rename of a.tmp: EIO", func(f vfs.FS) error { return vfs.ReplaceFile(f, "/d", "a", nil) }, "IIIIII"},
		{"rename of a: EIO", func(f vfs.FS) error { return vfs.ReplaceFile(f, "/d", "a", nil) }, "IIIIII"},
	} {
		d := New()
		must(t, d.MkdirAll("/d"))
		must(t, create(t, d, "/d/x.log", "").Close())
		f := Rules(c.rules).FS(d)
		got := ""
		for range 6 {
			got += letter(c.do(f))
		}
		if got != c.want {
			t.Errorf("%q: %s, want %s", c.rules, got, c.want)
		}
	}
}

func letter(err error) string {
	for name, errno := range errnos {
		if errors.Is(err, errno) {
			return name[1:2]
		}
	}
	if err != nil {
		return err.Error()
	}
	return "."
}

func TestShortWriteAndSlow(t *testing.T) {
	d := New()
	faults := Rules("short write of f; write: slow 1ms")
	f, err := faults.FS(d).Open("/f", vfs.Create)
	must(t, err)
	start := time.Now()
	if n, err := f.WriteVAt([][]byte{[]byte("abc"), []byte("def")}, 0); n != 3 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%d %v", n, err)
	}
	if took := time.Since(start); took < time.Millisecond {
		t.Errorf("slow took %v", took)
	}
	if got := content(t, d, "/f"); got != "abc" {
		t.Errorf("written %q", got)
	}
	if n := faults.Fired(); n != 1 {
		t.Errorf("fired %d", n)
	}
	must(t, faults.Set("slow sync of f 2ms"))
	start = time.Now()
	must(t, f.Sync())
	if took := time.Since(start); took < 2*time.Millisecond || faults.Fired() != 1 {
		t.Errorf("slow took %v, fired %d", took, faults.Fired())
	}
	must(t, faults.Set(""))
	_, err = f.WriteAt([]byte("abcdef"), 0)
	must(t, err)
}

// TestSmallDisk: what there is of the room is taken, and then ENOSPC; files that go give it back.
func TestSmallDisk(t *testing.T) {
	d := New()
	d.SetSize(1000)
	f, g := create(t, d, "/f", strings.Repeat("x", 300)), create(t, d, "/g", "")
	free := func(want int64) {
		t.Helper()
		if s, err := d.Space("/"); err != nil || s != (vfs.Space{Total: 1000, Free: want}) {
			t.Errorf("%+v, %v, want %d free", s, err, want)
		}
	}
	size := func(f vfs.File, want int64) {
		t.Helper()
		if n, err := f.Size(); n != want || err != nil {
			t.Errorf("size %d, %v, want %d", n, err, want)
		}
	}
	free(700)
	if err := g.Allocate(0, 800); !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	size(g, 700)
	free(0)
	if n, err := f.WriteAt(make([]byte, 200), 100); n != 200 || err != nil {
		t.Errorf("within a file: %d, %v", n, err)
	}
	if n, err := f.WriteAt([]byte("abcd"), 298); n != 2 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("over its end: %d, %v", n, err)
	}
	if n, err := f.WriteAt([]byte("abcd"), 400); n != 0 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("behind its end: %d, %v", n, err)
	}
	size(f, 300)
	must(t, g.Truncate(10))
	must(t, f.ZeroFill(300, 90))
	free(600)
	must(t, d.Remove("/f"))
	free(990)
}

func TestBadRules(t *testing.T) {
	for _, text := range []string{"sync", "sync EIO", "sync: EWHAT", "frobnicate: EIO", "0th sync: EIO", "x", "sync of: EIO", "sync after x: EIO",
		"sync of [: EIO", "sync: short", "sync: slow", "sync: slow x", "sync: slow -1s", ": EIO", "3rd : EIO", "write: short EWHAT", "9x9 sync: EIO"} {
		if _, err := ParseRules(text); err == nil {
			t.Errorf("accepted %q", text)
		}
	}
	f := Rules("sync: EIO")
	if err := f.Set("nonsense"); err == nil || len(f.rules) != 1 {
		t.Errorf("bad rules replaced good ones: %v", err)
	}
}

// TestConcurrent is for the race detector.
func TestConcurrent(t *testing.T) {
	d := New()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			f := create(t, d, fmt.Sprint("/", i), "x")
			for range 50 {
				f.WriteAt([]byte("y"), 3)
				f.Sync()
				d.SyncDir("/")
				if m, err := f.Map(4); err != nil || m[3] != 'y' {
					t.Error("map", err)
				} else {
					d.Unmap(m)
				}
				if c := d.Clone().Crash(newRand(i)); len(c.Files("*")) > 4 {
					t.Error("too many files")
				}
			}
		})
	}
	wg.Wait()
}

// TestBare: without descriptors a map is a copy; clones are bare too, and share nothing that changes.
func TestBare(t *testing.T) {
	d := NewBare()
	f := create(t, d, "/f", "abc")
	must(t, f.Sync())
	must(t, d.SyncDir("/"))
	if f.FD() != -1 {
		t.Errorf("descriptor %d", f.FD())
	}
	m, err := f.Map(3)
	must(t, err)
	killed, cut := d.Clone(), d.CrashAs(newRand(1), keepNone)
	_, err = f.WriteAt([]byte("X"), 1)
	must(t, err)
	if string(m) != "abc" || content(t, d, "/f") != "aXc" {
		t.Errorf("mapped %q, file %q", m, content(t, d, "/f"))
	}
	must(t, d.Unmap(m))
	for _, c := range []*Disk{killed, cut} {
		g, err := c.Open("/f", vfs.ReadWrite)
		must(t, err)
		if g.FD() != -1 || content(t, c, "/f") != "abc" {
			t.Errorf("clone: descriptor %d, %q", g.FD(), content(t, c, "/f"))
		}
		_, err = g.WriteAt([]byte("Y"), 0)
		must(t, err)
		if got := content(t, c.CrashAs(newRand(1), keepNone), "/f"); got != "abc" {
			t.Errorf("a write that was not synced survived: %q", got)
		}
	}
	must(t, f.Sync())
	if got := content(t, d.CrashAs(newRand(1), keepNone), "/f") + content(t, killed, "/f"); got != "aXcYbc" {
		t.Errorf("synced and killed: %q", got)
	}
}

// TestVolumeTellsOfFailedSyncs: once to each that was there, and to the first that comes later if nobody was told; not after a power cut.
func TestVolumeTellsOfFailedSyncs(t *testing.T) {
	d := NewBare()
	f := create(t, d, "/f", "a")
	volume := func(d *Disk) vfs.Volume {
		v, err := d.Volume("/")
		must(t, err)
		return v
	}
	before, other := volume(d), volume(d)
	must(t, before.Sync())
	f.(*file).FailSync()
	killed, cut := d.Clone(), d.CrashAs(newRand(1), keepAll)
	for i, want := range []bool{true, false} {
		for _, v := range []vfs.Volume{before, other} {
			if err := v.Sync(); errors.Is(err, syscall.EIO) != want {
				t.Errorf("sync %d: %v", i, err)
			}
		}
	}
	must(t, volume(d).Sync())
	must(t, volume(cut).Sync())
	if err := volume(killed).Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("the first to ask after a kill: %v", err)
	}
	must(t, volume(killed).Sync())
}
