package segment

import (
	"testing"
	"time"

	"kaas/engine/vfs"
	"kaas/engine/vfs/crashfs"
)

// onSmallDisk has so many empty segments on a disk of so many bytes.
func onSmallDisk(t *testing.T, bytes int64, n int) (*crashfs.Disk, *crashfs.Faults, []*Segment) {
	t.Helper()
	disk, faults := crashfs.NewBare(), crashfs.Rules("")
	disk.SetSize(bytes)
	files := NewFiles(faults.FS(disk), 100, 100, false)
	var segs []*Segment
	for i := range int64(n) {
		s := files.New(plain{}, "/", i, time.Unix(0, 0))
		if err := s.Create(); err != nil {
			t.Fatal(err)
		}
		segs = append(segs, s)
	}
	return disk, faults, segs
}

func room(t *testing.T, disk *crashfs.Disk) int64 {
	t.Helper()
	s, err := disk.Space("/")
	if err != nil {
		t.Fatal(err)
	}
	return s.Free
}

// TestAheadLeavesRoom: what is allocated ahead is a part of what is free, and where the room is less than that there is none ahead; all of a
// disk can be filled with data.
func TestAheadLeavesRoom(t *testing.T) {
	const bytes = 1 << 20
	disk, _, segs := onSmallDisk(t, bytes, 4)
	s := segs[0]
	put(t, s, record(0, 1, 100))
	if got := room(t, disk); got != bytes-allocFirst {
		t.Errorf("%d bytes free, want all but %d", got, allocFirst)
	}
	for range 100 {
		before, ended := room(t, disk), s.allocated
		put(t, s, record(0, 1, 9000))
		if s.allocated > max(ended, s.Size()+before/aheadShare) {
			t.Fatalf("%d allocated for %d with %d free", s.allocated, s.Size(), before)
		}
	}
	n := 0
	for i := 0; ; i++ {
		b := record(0, 1, 5000)
		if err := segs[i%4].Write([][]byte{b}, 5000, &options); err != nil {
			break
		}
		segs[i%4].Note(&BatchInfo{Size: 5000}, &options)
		n++
	}
	if got := room(t, disk); got >= 5000 || n < 10 {
		t.Errorf("refused with %d bytes free, after %d", got, n)
	}
}

// TestRefusedWriteGivesBack: an allocation that found too little has taken what there was. That is given back, at once, or before anything
// else is written.
func TestRefusedWriteGivesBack(t *testing.T) {
	for _, rule := range []string{"", "1st truncate: EIO"} {
		disk, faults, segs := onSmallDisk(t, 20_000, 2)
		put(t, segs[0], record(0, 1, 10_000))
		before := room(t, disk)
		if err := faults.Set(rule); err != nil {
			t.Fatal(err)
		}
		big := record(0, 1, 15_000)
		if err := segs[0].Write([][]byte{big}, 15_000, &options); !vfs.NoRoom(err) {
			t.Errorf("%q: %v", rule, err)
		}
		if err := segs[0].Mend(); err != nil {
			t.Errorf("%q: %v", rule, err)
		}
		if got := room(t, disk); got != before {
			t.Errorf("%q: %d bytes free after a write that was refused, %d before", rule, got, before)
		}
		put(t, segs[1], record(1, 1, int(before)))
	}
}
