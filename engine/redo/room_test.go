package redo

import (
	"errors"
	"math/rand/v2"
	"testing"

	"kaas/engine/vfs"
	"kaas/engine/vfs/crashfs"
)

// sizes are those of the two files, -1 for one that is not there.
func sizes(d *crashfs.Disk) [2]int64 {
	var out [2]int64
	for i, name := range names {
		n, err := d.Size(dir + "/" + name)
		if err != nil {
			n = -1
		}
		out[i] = n
	}
	return out
}

func wantSizes(t *testing.T, d *crashfs.Disk, what string, want ...int64) {
	t.Helper()
	if got := sizes(d); got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%s: the files have %d bytes, want %d", what, got, want)
	}
}

// TestRoomToSpare: the journal takes room where what it takes is left once more, and the spare, and nothing at all otherwise.
func TestRoomToSpare(t *testing.T) {
	const files, spare = 2 * 1024, 5000
	for _, c := range []struct {
		free  int64
		ready bool
	}{{0, false}, {files, false}, {2*files + spare - 1, false}, {2*files + spare, true}} {
		d := newDisk(t)
		d.SetSize(c.free)
		j := New(d, dir, files)
		j.spare = spare
		err := j.Prepare()
		if c.ready && err != nil || !c.ready && err != ErrNoRoom || j.Broken() {
			t.Errorf("%d bytes free: %v", c.free, err)
		}
		if _, _, ok := j.Turn(1, false); ok != c.ready {
			t.Errorf("%d bytes free: takes frames %v", c.free, ok)
		}
		if want := (map[bool]int64{true: 1024, false: -1})[c.ready]; true {
			wantSizes(t, d, "prepared", want, want)
		}
		if c.ready {
			continue
		}
		d.SetSize(2*files + spare)
		if err := j.Prepare(); err != nil {
			t.Errorf("with room: %v", err)
		}
		wantSizes(t, d, "with room", 1024, 1024)
		write(t, j, frame(1, "a-0"))
	}
	// A file that is recycled grows likewise.
	d := newDisk(t)
	j := New(d, dir, 1<<20)
	j.first, j.spare = 1024, spare
	d.SetSize(2*files + spare)
	if err := j.Prepare(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ free, want int64 }{{2*1024 + spare - 1, 1024}, {2*1024 + spare, 2048}, {2*2048 + spare - 1, 2048}, {2*2048 + spare, 4096}} {
		d.SetSize(sizes(d)[0] + 1024 + c.free)
		if err := j.Recycle(0); err != nil {
			t.Error(err)
		}
		wantSizes(t, d, "recycled", c.want, 1024)
	}
}

// TestNoRoomForTheFiles: whatever finds no room while the files are made, nothing is left of them, and they are made later.
func TestNoRoomForTheFiles(t *testing.T) {
	for _, rule := range []string{"create: ENOSPC", "create of kaas.redo.1: EDQUOT", "syncdir: ENOSPC", "allocate: ENOSPC", "2nd allocate: EDQUOT",
		"zero: ENOSPC", "2nd zero: ENOSPC", "sync: ENOSPC", "2nd sync: EDQUOT"} {
		disk, f := newDisk(t), crashfs.Rules("")
		j := New(f.FS(disk), dir, 2048)
		if err := f.Set(rule); err != nil {
			t.Fatal(err)
		}
		if err := j.Prepare(); !vfs.NoRoom(err) || j.Broken() {
			t.Errorf("%s: %v", rule, err)
		}
		if _, _, ok := j.Turn(1, false); ok {
			t.Errorf("%s: takes frames", rule)
		}
		if got := sizes(disk); got[0] > 0 || got[1] > 0 {
			t.Errorf("%s: left %d bytes", rule, got)
		}
		if err := f.Set(""); err != nil {
			t.Fatal(err)
		}
		if err := j.Prepare(); err != nil {
			t.Errorf("%s, with room: %v", rule, err)
		}
		wantSizes(t, disk, rule, 1024, 1024)
		write(t, j, frame(1, "a-0"))
		cut := disk.CrashAs(rand.New(rand.NewPCG(1, 1)), crashfs.Cut{Sector: 512})
		if got := places(t, scan(t, cut), "a-0"); !equal(got, 1) {
			t.Errorf("%s: %v is left", rule, got)
		}
		j.Close()
	}
}

// TestNoRoomToGrow: a file that finds no room to grow is used on as it is, has taken nothing, and grows another time.
func TestNoRoomToGrow(t *testing.T) {
	for _, rule := range []string{"allocate: ENOSPC", "zero: EDQUOT", "2nd zero: ENOSPC", "sync of kaas.redo.0: ENOSPC"} {
		disk, f := newDisk(t), crashfs.Rules("")
		j := New(f.FS(disk), dir, 20<<20)
		j.first = 2 << 20
		if err := j.Prepare(); err != nil {
			t.Fatal(err)
		}
		if err := f.Set(rule); err != nil {
			t.Fatal(err)
		}
		if err := j.Recycle(0); err != nil || j.Broken() || f.Fired() == 0 {
			t.Errorf("%s: %v", rule, err)
		}
		wantSizes(t, disk, rule, 2<<20, 2<<20)
		if j.spare != 2*spareFree {
			t.Errorf("%s: leaves %d free the next time", rule, j.spare)
		}
		if err := f.Set(""); err != nil {
			t.Fatal(err)
		}
		write(t, j, frame(1, "a-0"))
		if got := places(t, scan(t, disk), "a-0"); !equal(got, 1) {
			t.Errorf("%s: %v", rule, got)
		}
		if err := j.Recycle(1); err != nil {
			t.Error(err)
		}
		wantSizes(t, disk, rule, 2<<20, 4<<20)
		j.Close()
	}
}

// TestGrowthGivesBack: the disk fills up while the journal grows. It keeps nothing of what it took, not even for a while if that cannot be
// cut away at once.
func TestGrowthGivesBack(t *testing.T) {
	for _, kind := range []string{crashfs.OpAllocate, crashfs.OpZero} {
		disk, f := newDisk(t), crashfs.Rules("")
		disk.SetSize(20 << 20)
		j := New(f.FS(disk), dir, 64<<20)
		j.first, j.spare = 1<<20, 1<<20
		if err := j.Prepare(); err != nil {
			t.Fatal(err)
		}
		j.parts[0].size, j.first = 0, 6<<20
		if err := j.parts[0].file.Truncate(0); err != nil {
			t.Fatal(err)
		}
		took := false
		disk.OnOp(func(o crashfs.Op) {
			if o.Kind == kind && !took { // somebody else takes what the journal has left free
				took = true
				disk.SetSize(7<<20 + 1<<19)
			}
		})
		if err := f.Set("1st truncate: EIO"); err != nil {
			t.Fatal(err)
		}
		if err := j.Recycle(0); err != nil {
			t.Error(err)
		}
		if kind == crashfs.OpZero {
			wantSizes(t, disk, "not cut", 6<<20, 1<<20)
		}
		disk.OnOp(nil)
		if err := j.Recycle(0); err != nil {
			t.Error(err)
		}
		wantSizes(t, disk, kind, 0, 1<<20)
		j.Close()
	}
}

// TestNoRoomToWrite: a frame that a file system without room refuses, though it goes over another, is forgotten, and the next takes its place.
func TestNoRoomToWrite(t *testing.T) {
	f, disk := crashfs.Rules(""), newDisk(t)
	j := prepared(t, f.FS(disk), 4096)
	write(t, j, frame(1, "a-0"))
	if err := f.Set("1st write of kaas.redo.*: short"); err != nil {
		t.Fatal(err)
	}
	fr := frame(2, "a-0", "b-0")
	j.Turn(fr.Size(), false)
	if err := j.Write(fr); !vfs.NoRoom(err) || errors.Is(err, ErrBroken) || j.Broken() {
		t.Error(err)
	}
	write(t, j, frame(3, "a-0"))
	write(t, j, frame(4, "a-0"))
	if got := places(t, scan(t, disk), "a-0"); !equal(got, 1, 3, 4) {
		t.Errorf("%v is left", got)
	}
}
