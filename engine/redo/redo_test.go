package redo

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"kaas/engine/vfs"
	"kaas/engine/vfs/crashfs"
)

const dir = "/data"

func newDisk(t *testing.T) *crashfs.Disk {
	t.Helper()
	d := crashfs.New()
	if err := errors.Join(d.MkdirAll(dir), d.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	return d
}

func prepared(t *testing.T, fsys vfs.FS, limit int64) *Journal {
	t.Helper()
	j := New(fsys, dir, limit)
	if err := j.Prepare(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	return j
}

// frame has one piece for each log name, whose bytes say which.
func frame(at int64, logs ...string) *Frame {
	f := &Frame{}
	for _, name := range logs {
		copy(f.Add(&Piece{Log: name, Topic: [16]byte{7}, Segment: 100, At: at}, 40), content(name, at))
	}
	return f
}

func content(name string, at int64) []byte {
	return bytes.Repeat([]byte(fmt.Sprintf("%s@%d ", name, at)), 40)[:40]
}

// write appends a frame and says what Turn said.
func write(t *testing.T, j *Journal, f *Frame) (part, left int) {
	t.Helper()
	part, left, ok := j.Turn(f.Size(), false)
	if !ok {
		t.Fatalf("no room for %d bytes", f.Size())
	}
	if err := errors.Join(j.Write(f), j.Sync()); err != nil {
		t.Fatal(err)
	}
	return part, left
}

func scan(t *testing.T, fsys vfs.FS) *Old {
	t.Helper()
	o, err := Scan(fsys, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	return o
}

// places are the positions of the records of a log, after their bytes were looked at.
func places(t *testing.T, o *Old, log string) (at []int64) {
	t.Helper()
	for _, r := range o.Records(log) {
		b, err := o.Read(&r, nil)
		if err != nil || !bytes.Equal(b, content(log, r.At)) || r.Segment != 100 || r.Topic != [16]byte{7} {
			t.Errorf("record %+v: %q, %v", r, b, err)
		}
		at = append(at, r.At)
	}
	return at
}

func equal(a []int64, b ...int64) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

// TestScan: what was synced survives the worst power cut, from both files, and Discard removes it for good.
func TestScan(t *testing.T) {
	d := newDisk(t)
	j := prepared(t, d, 2048)
	f := frame(0, "a-0", "b-12")
	n := 1024/f.Size() + 1 // one more than the first file takes
	for i := range n {
		_, left := write(t, j, frame(i, "a-0", "b-12"))
		if want := i == n-1; (left >= 0) != want {
			t.Errorf("frame %d of %d: left %d", i, n, left)
		}
	}
	after := d.CrashAs(rand.New(rand.NewPCG(1, 1)), crashfs.Cut{Sector: 512})
	o := scan(t, after)
	for _, log := range []string{"a-0", "b-12"} {
		if got := places(t, o, log); len(got) != int(n) || got[0] != 0 || got[n-1] != n-1 {
			t.Errorf("%s: %v, want 0 to %d", log, got, n-1)
		}
	}
	if err := Discard(after, dir); err != nil {
		t.Fatal(err)
	}
	after = after.CrashAs(rand.New(rand.NewPCG(1, 1)), crashfs.Cut{Sector: 512})
	if !scan(t, after).Empty() || len(after.Files("*")) != 0 {
		t.Errorf("left: %v", after.Files("*"))
	}
}

// TestStaleFrames: of a file that is used again nothing counts that an earlier use has left behind the new frames, though the old ones
// are whole and continue the sequence.
func TestStaleFrames(t *testing.T) {
	d := newDisk(t)
	j := prepared(t, d, 1024)
	use := func(at int64) (part int) {
		part, _ = write(t, j, frame(at, "a-0"))
		return part
	}
	first := use(0)
	use(1)
	use(2)
	for at := int64(3); use(at) == first; at++ {
	}
	if got := places(t, scan(t, d), "a-0"); len(got) < 4 {
		t.Fatal(got)
	}
	if err := j.Recycle(first); err != nil {
		t.Fatal(err)
	}
	if _, left, ok := j.Turn(1, true); !ok || left == first {
		t.Fatal("no turn")
	}
	use(50)
	other := j.parts[1-first]
	got := places(t, scan(t, d), "a-0")
	for _, at := range got {
		if at < 3 {
			t.Errorf("%v: %d is of an earlier use", got, at)
		}
	}
	if got[len(got)-1] != 50 && got[0] != 50 || other.state != full {
		t.Errorf("%v, the other file is in state %d", got, other.state)
	}
}

// TestTurn: neither file takes more than it has room for, and none that is not recycled is written over.
func TestTurn(t *testing.T) {
	j := prepared(t, newDisk(t), 1024)
	if _, _, ok := j.Turn(513, false); ok {
		t.Error("a frame larger than a file")
	}
	for range 2 {
		if _, _, ok := j.Turn(512, false); !ok {
			t.Error("no room")
		}
		write(t, j, frame(0, "a-0", "b-0", "c-0", "d-0"))
	}
	if _, _, ok := j.Turn(512, false); ok {
		t.Error("room in a file that is not recycled")
	}
	if err := j.Write(frame(0, "a-0", "b-0", "c-0", "d-0")); !errors.Is(err, ErrBroken) {
		t.Errorf("a write without room: %v", err)
	}
}

// TestGrowth: a file begins small and doubles each time it is recycled, up to its share of the limit.
func TestGrowth(t *testing.T) {
	d := newDisk(t)
	j := New(d, dir, 10<<10)
	j.first = 1 << 10
	if err := j.Prepare(); err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for _, want := range []int64{2 << 10, 4 << 10, 5 << 10, 5 << 10} {
		if err := j.Recycle(0); err != nil {
			t.Fatal(err)
		}
		if size, err := d.Size(dir + "/" + nameA); size != want || err != nil || j.parts[0].size != want {
			t.Errorf("size %d, %v, want %d", size, err, want)
		}
	}
}

// TestFailures: after any error but for lack of room nothing more is taken.
func TestFailures(t *testing.T) {
	for _, rule := range []string{"zero of kaas.redo.0: EIO", "allocate: EIO", "sync of kaas.redo.1: EIO", "syncdir: EIO", "create of kaas.redo.*: EMFILE"} {
		f := crashfs.Rules("")
		disk := newDisk(t)
		if err := f.Set(rule); err != nil {
			t.Fatal(err)
		}
		j := New(f.FS(disk), dir, 1024)
		if err := j.Prepare(); err == nil || !j.Broken() {
			t.Errorf("%s: %v", rule, err)
		}
		if _, _, ok := j.Turn(1, false); ok {
			t.Errorf("%s: room", rule)
		}
		j.Close()
	}
	for _, rule := range []string{"write of kaas.redo.*: short EIO", "sync of kaas.redo.*: EIO", "sync of kaas.redo.*: ENOSPC"} {
		f := crashfs.Rules("")
		disk := newDisk(t)
		j := prepared(t, f.FS(disk), 4096)
		write(t, j, frame(1, "a-0"))
		if err := f.Set(rule); err != nil {
			t.Fatal(err)
		}
		fr := frame(2, "a-0")
		j.Turn(fr.Size(), false)
		err := j.Write(fr)
		if err == nil {
			err = j.Sync()
		}
		if !errors.Is(err, syscall.EIO) && !errors.Is(err, syscall.ENOSPC) || !j.Broken() {
			t.Errorf("%s: %v", rule, err)
		}
		cut := disk.CrashAs(rand.New(rand.NewPCG(1, 1)), crashfs.Cut{Sector: 512})
		if got := places(t, scan(t, cut), "a-0"); !equal(got, 1) {
			t.Errorf("%s: %v is left", rule, got)
		}
	}
}

// TestDamage: bytes that anybody changed end the scan before their frame, and never more than that.
func TestDamage(t *testing.T) {
	d := newDisk(t)
	j := prepared(t, d, 4096)
	for at := range int64(3) {
		write(t, j, frame(at, "a-0"))
	}
	size := int(frame(0, "a-0").Size())
	for at := range 3 * size {
		c := d.Clone()
		if err := c.Edit(dir+"/"+nameA, func(b []byte) []byte { b[at] ^= 0x55; return b }); err != nil {
			t.Fatal(err)
		}
		if got := places(t, scan(t, c), "a-0"); len(got) != at/size {
			t.Fatalf("byte %d changed: %v", at, got)
		}
	}
	for end := range 3*size + 1 {
		c := d.Clone()
		if err := c.Edit(dir+"/"+nameA, func(b []byte) []byte { return b[:end] }); err != nil {
			t.Fatal(err)
		}
		if got := places(t, scan(t, c), "a-0"); len(got) != end/size {
			t.Fatalf("cut at %d: %v", end, got)
		}
	}
}

func TestUndo(t *testing.T) {
	d := newDisk(t)
	j := prepared(t, d, 4096)
	f := frame(1, "a-0", "b-0")
	f.Undo()
	copy(f.Add(&Piece{Log: "c-0", Topic: [16]byte{7}, Segment: 100, At: 1}, 40), content("c-0", 1))
	if f.Pieces() != 2 {
		t.Error(f.Pieces())
	}
	write(t, j, f)
	o := scan(t, d)
	if !equal(places(t, o, "a-0"), 1) || !equal(places(t, o, "b-0")) || !equal(places(t, o, "c-0"), 1) {
		t.Error("not what was left")
	}
}
