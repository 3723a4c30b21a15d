package regress

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"
)

// pageBytes is what a file system in memory gives out at once.
const pageBytes = 4096

// smallDisk is a file system of a few MiB. A ballast file leaves as little of it free as is wanted.
type smallDisk struct {
	t    *testing.T
	root string
}

func newSmallDisk(t *testing.T, bytes int) *smallDisk {
	t.Helper()
	d := &smallDisk{t: t, root: t.TempDir()}
	if err := unix.Mount("tmpfs", d.root, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		t.Skipf("a file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(d.root, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return d
}

// dir is the data directory.
func (d *smallDisk) dir() string { return filepath.Join(d.root, "data") }

func (d *smallDisk) ballast() string { return filepath.Join(d.root, "ballast") }

// leave makes the ballast so large that so many pages are free.
func (d *smallDisk) leave(pages int) {
	d.t.Helper()
	f, err := os.OpenFile(d.ballast(), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	at := int64(0)
	for _, step := range []int64{1 << 20, pageBytes} {
		for err = nil; err == nil; {
			if err = unix.Fallocate(int(f.Fd()), 0, at, step); err == nil {
				at += step
			}
		}
		if !errors.Is(err, unix.ENOSPC) {
			d.t.Fatal(err)
		}
	}
	if err := f.Truncate(max(0, at-int64(pages)*pageBytes)); err != nil {
		d.t.Fatal(err)
	}
}

// free gives the space back.
func (d *smallDisk) free() {
	d.t.Helper()
	if err := os.Remove(d.ballast()); err != nil {
		d.t.Fatal(err)
	}
}

// A full disk fails the partitions that need room, with 56, and nothing else; reads go on; what was refused left nothing behind; and
// writes come back by themselves with the space (fault 33).
func TestFullDisk(t *testing.T) {
	for _, durability := range []string{"group-commit", "page-cache"} {
		for _, segment := range []string{"1073741824", "40000"} { // the smaller ones roll while the disk is full
			t.Run(durability+" "+segment, func(t *testing.T) { fullDisk(t, durability, segment) })
		}
	}
}

func fullDisk(t *testing.T, durability, segment string) {
	d := newSmallDisk(t, 4<<20)
	b := start(t, d.dir(), "kaas.durability", durability)
	c := b.dial()
	c.create("t", 3, "segment.bytes", segment)
	c.create("empty", 1)
	big := func(i int32) batch {
		return batch{values: []string{fmt.Sprintf("%d %s", i, make([]byte, 30_000))}, producer: 3, sequence: i}
	}
	c.stored("t", 0, big(0), 0)
	c.stored("t", 1, batch{values: []string{"small"}}, 0)
	d.leave(0)
	stored := int32(1)
	for ; ; stored++ { // what was allocated ahead is used up first
		p := c.produce("t", 0, big(stored))
		if p.ErrorCode == storageError && p.BaseOffset == -1 {
			break
		}
		if p.ErrorCode != none || p.BaseOffset != int64(stored) || stored > 200 {
			t.Fatalf("batch %d on a full disk: error %d, offset %d", stored, p.ErrorCode, p.BaseOffset)
		}
	}
	check := func(c *client) {
		t.Helper()
		if got := c.all("t", 0); len(got) != int(stored) {
			t.Fatalf("%d records of %d", len(got), stored)
		}
		if got := c.all("t", 1); !slices.Equal(got, []string{"small"}) {
			t.Errorf("partition 1 holds %q", got)
		}
	}
	check(c)
	// In one request: no room, room allocated before, no such partition.
	q := produceRequest("t", -1, big(stored).bytes(), 0, 1, 9)
	q.Topics[0].Partitions[1].Records = batch{values: []string{"small too"}}.bytes()
	for i, p := range c.call(q, 9).(*kmsg.ProduceResponse).Topics[0].Partitions {
		if want := []int16{storageError, none, unknownPartition}[i]; p.ErrorCode != want {
			t.Errorf("partition %d: error %d, want %d", p.Partition, p.ErrorCode, want)
		}
	}
	if p := c.produce("empty", 0, batch{values: []string{"x"}}); p.ErrorCode != storageError {
		t.Errorf("first batch of a partition: error %d", p.ErrorCode)
	}
	if p := c.tryCreate("new", 1); p.ErrorCode != none && p.ErrorCode != storageError {
		t.Errorf("CreateTopics on a full disk: error %d", p.ErrorCode)
	}
	if got := c.all("t", 1); !slices.Equal(got, []string{"small", "small too"}) {
		t.Errorf("partition 1 holds %q", got)
	}
	killed := b.killed()
	d.free()
	c.stored("t", 0, big(stored), int64(stored)) // the producer's sequence has not moved either
	stored++
	c.stored("t", 1, batch{values: []string{"and on"}}, 2)
	c.stored("empty", 0, batch{values: []string{"x"}}, 0)
	if p := c.tryCreate("new", 1); p.ErrorCode != none && p.ErrorCode != 36 {
		t.Errorf("CreateTopics with space again: error %d", p.ErrorCode)
	}
	c.stored("new", 0, batch{values: []string{"x"}}, 0)
	if got := c.all("t", 0); len(got) != int(stored) {
		t.Errorf("%d records of %d", len(got), stored)
	}
	restartsOfFullDisk(t, d, b, killed, int(stored), big)
}

// restartsOfFullDisk starts what was killed while the disk was full, and what is stopped while it is; big makes the batches.
func restartsOfFullDisk(t *testing.T, d *smallDisk, b *broker, killed string, stored int, big func(i int32) batch) {
	t.Helper()
	durability := b.Ready().Durability
	startOnFullDisk(t, killed, stored-1, big(int32(stored)-1))
	again := start(t, killed, "kaas.durability", durability).dial()
	if got := again.all("t", 0); len(got) != stored-1 {
		t.Errorf("killed while the disk was full: %d records of %d", len(got), stored-1)
	}
	again.stored("t", 0, big(int32(stored)-1), int64(stored)-1)

	// A stop on a full disk may not leave all behind that a clean one does; the next start makes up for it.
	d.leave(0)
	b.down = true
	_ = b.Stop()
	d.free()
	c := start(t, d.dir(), "kaas.durability", durability).dial()
	if got := c.all("t", 0); len(got) != stored {
		t.Errorf("stopped while the disk was full: %d records of %d", len(got), stored)
	}
	c.stored("t", 0, big(int32(stored)), int64(stored))
}

// startOnFullDisk starts what was killed with hardly any room. Either the start is refused, saying why, or reads work, and writes do as
// soon as there is room.
func startOnFullDisk(t *testing.T, killed string, stored int, next batch) {
	t.Helper()
	started := 0
	for pages := 0; pages < 40 && started < 12; pages++ {
		d := newSmallDisk(t, 8<<20)
		if err := os.CopyFS(d.dir(), os.DirFS(killed)); err != nil {
			t.Fatal(err)
		}
		d.leave(pages)
		b, err := tryStart(t, d.dir())
		if err != nil {
			if !errors.Is(err, unix.ENOSPC) {
				t.Errorf("%d pages free: %v", pages, err)
			}
			d.free()
			b = start(t, d.dir())
		} else {
			started++
			d.free()
		}
		c := b.dial()
		if got := c.all("t", 0); len(got) != stored {
			t.Errorf("started with %d pages free: %d records of %d", pages, len(got), stored)
		}
		c.stored("t", 0, next, int64(stored))
		if t.Failed() {
			t.Fatalf("started with %d pages free; logged: %.2000s", pages, b.log)
		}
		b.stop()
	}
	if started == 0 {
		t.Error("never started: the sizes tried prove nothing")
	}
}

// Whichever of the files of a new partition finds no room, the partition is as good as any when the space returns, and holds exactly
// what was acknowledged (fault 33).
func TestLittleRoomForANewPartition(t *testing.T) {
	for _, durability := range []string{"group-commit", "page-cache"} {
		t.Run(durability, func(t *testing.T) {
			const most = 40              // pages; more than a new partition takes
			d := newSmallDisk(t, 16<<20) // partitions with enough room take some ahead
			b := start(t, d.dir(), "kaas.durability", durability)
			c := b.dial()
			c.create("t", most)
			ends := map[int16]int{}
			for pages := range most {
				var want []string
				d.leave(pages)
				p := c.produce("t", int32(pages), batch{values: []string{"little room"}, producer: 9})
				ends[p.ErrorCode]++
				switch p.ErrorCode {
				case none:
					want = append(want, "little room")
				case storageError:
				default:
					t.Fatalf("%d pages free: error %d", pages, p.ErrorCode)
				}
				d.free()
				p = c.produce("t", int32(pages), batch{values: []string{"enough"}, producer: 9, sequence: int32(len(want))})
				if p.ErrorCode != none || p.BaseOffset != int64(len(want)) {
					t.Errorf("%d pages free, then enough: error %d, offset %d, want %d", pages, p.ErrorCode, p.BaseOffset, len(want))
					continue
				}
				if got := c.all("t", int32(pages)); !slices.Equal(got, append(want, "enough")) {
					t.Errorf("%d pages free, then enough: %q, want %q and what came then", pages, got, want)
				}
			}
			if ends[none] == 0 || ends[storageError] == 0 {
				t.Errorf("errors %v: the sizes tried prove nothing", ends)
			}
			if s := b.log.String(); s != "" {
				t.Logf("logged: %.2000s", s)
			}
		})
	}
}
