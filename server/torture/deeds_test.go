//go:build torture

package torture

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"golang.org/x/sys/unix"
)

// deed is what can be done to a broker in a round. It runs again at the end.
type deed struct {
	name string
	do   func(e *era)
}

var deeds = []deed{
	{"kill -9", kill},
	{"kill -9 twice", func(e *era) { kill(e); kill(e) }},
	{"SIGTERM", func(e *era) { e.rest(300 * time.Millisecond); e.must(e.process.Restart(false)) }},
	{"SIGSTOP and SIGCONT", pause},
	{"kill -9 while stopped", killStopped},
	{"unsynced data lost", loseUnsynced},
	{"unsynced data lost", loseUnsynced}, // the more often, the more chances of a moment that tells
	{"slow disk", slowDisk},
	{"failed sync", failedSync},
	{"no space by rule", noSpace},
	{"failed write", failedWrite},
}

var smallDiskDeeds = []deed{
	{"full disk", func(e *era) { fullDisk(e, false) }},
	{"kill -9 on a full disk", func(e *era) { fullDisk(e, true) }},
}

func (e *era) draw() deed {
	all := append(deeds[:len(deeds):len(deeds)], e.deedsHere()...)
	return all[e.rng.IntN(len(all))]
}

// deedsHere are those that only the place of the data directory makes possible; each is in it twice, to be drawn more often.
func (e *era) deedsHere() []deed {
	switch {
	case e.disk != nil:
		return append(smallDiskDeeds[:len(smallDiskDeeds):len(smallDiskDeeds)], smallDiskDeeds...)
	case e.volume != nil:
		return append(volumeDeeds[:len(volumeDeeds):len(volumeDeeds)], volumeDeeds...)
	}
	return nil
}

func kill(e *era) {
	e.t.Helper()
	e.rest(300 * time.Millisecond)
	e.must(e.process.Restart(true))
}

// stopped is longer, at times, than clients wait.
const stopped = 3 * time.Second

func pause(e *era) {
	e.rest(100 * time.Millisecond)
	e.must(syscall.Kill(e.process.PID(), syscall.SIGSTOP))
	e.rest(stopped)
	e.must(syscall.Kill(e.process.PID(), syscall.SIGCONT))
}

func killStopped(e *era) {
	e.rest(100 * time.Millisecond)
	e.must(syscall.Kill(e.process.PID(), syscall.SIGSTOP))
	e.rest(stopped / 3)
	e.must(e.process.Restart(true))
}

// slowDisk makes syncs slow, and kills the broker while they are, or not. A start on the slow disk is as any.
func slowDisk(e *era) {
	e.obey(fmt.Sprintf("sync of *.log: slow %dms", 1+e.rng.IntN(100)))
	if e.rng.IntN(2) == 0 {
		kill(e)
	}
	e.rest(time.Second)
	e.obey()
}

// loseUnsynced cuts the power of the broker alone. When syncs are slow there is much to lose.
func loseUnsynced(e *era) {
	e.t.Helper()
	if e.rng.IntN(2) == 0 {
		e.obey(fmt.Sprintf("sync of *.log: slow %dms", 1+e.rng.IntN(100)))
		e.write()
	}
	e.rest(300 * time.Millisecond)
	e.must(e.process.Die(syscall.SIGUSR2))
	e.must(e.process.Again())
}

func nth(n int) string {
	return fmt.Sprint(n) + map[int]string{1: "st", 2: "nd", 3: "rd"}[n] + map[bool]string{true: "th"}[n > 3]
}

// failedSync fails one sync of a segment. Its log must be offline until the broker starts again, though the disk is well: it refuses
// records with 56, and serves what is durable.
func failedSync(e *era) {
	e.t.Helper()
	e.obey(nth(1+e.rng.IntN(9)) + " fdatasync of *.log: EIO")
	var bad []int32
	var id [16]byte
	e.await("a log to go offline", func() bool {
		var err error
		bad, id, err = offline(e.ctx, e.admin, e.topic)
		e.must(err)
		return len(bad) > 0
	})
	e.obey()
	broker := e.admin.Broker(e.process.Ready.NodeID)
	for _, p := range bad {
		for range 2 {
			code, err := toOffline(e, p)
			e.must(err)
			if code != kerr.KafkaStorageError.Code {
				e.t.Errorf("partition %d is offline and answers error %d to Produce", p, code)
			}
		}
		_, end := e.h.acked(p)
		f, err := fetchStart(e.ctx, broker, e.topic, id, p)
		e.must(err)
		if f.ErrorCode != 0 || f.HighWatermark < end || end > 0 && len(f.RecordBatches) == 0 {
			e.t.Errorf("partition %d is offline and answers Fetch with error %d, high watermark %d, %d bytes; acknowledged up to %d",
				p, f.ErrorCode, f.HighWatermark, len(f.RecordBatches), end)
		}
	}
	now, _, err := offline(e.ctx, e.admin, e.topic)
	e.must(err)
	if len(now) < len(bad) {
		e.t.Errorf("offline were %v, then %v, without a restart", bad, now)
	}
	kill(e)
}

// noSpace refuses growth for a time. The broker gets over it by itself.
func noSpace(e *era) {
	e.obey([]string{
		"space of *.log: ENOSPC",
		"space: ENOSPC",
		nth(1+e.rng.IntN(9)) + " write of *.log: short ENOSPC",
		fmt.Sprintf("space of *.log after %d KiB: ENOSPC", 1+e.rng.IntN(500)),
	}[e.rng.IntN(4)])
	e.rest(time.Second)
	e.obey()
}

// failedWrite fails writes as a broken or a read-only disk does. What the broker makes of it before it is killed is its own affair.
func failedWrite(e *era) {
	n := nth(1 + e.rng.IntN(9))
	e.obey([]string{
		n + " write of *.log: EIO",
		n + " write of *.log: short EIO",
		n + "+ any: EROFS",
		n + "+ any of *.log: EIO",
	}[e.rng.IntN(4)])
	e.rest(time.Second)
	e.write()
	kill(e)
}

const (
	smallDiskBytes = 256 << 20
	pageBytes      = 4096 // what a file system in memory gives out at once
)

// smallDisk is a file system of its own. A ballast file takes what is to be in use.
type smallDisk struct{ root string }

// newSmallDisk needs the right to mount.
func newSmallDisk(t *testing.T, bytes int) (*smallDisk, error) {
	d := &smallDisk{root: t.TempDir()}
	if err := unix.Mount("tmpfs", d.root, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := unix.Unmount(d.root, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return d, nil
}

func (d *smallDisk) ballast() string { return filepath.Join(d.root, "ballast") }

// fill leaves about so many pages free.
func (d *smallDisk) fill(pages int) error {
	f, err := os.OpenFile(d.ballast(), os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	at := int64(0)
	for _, step := range []int64{1 << 20, pageBytes} {
		for err = nil; err == nil; at += step {
			if err = unix.Fallocate(int(f.Fd()), 0, at, step); err != nil {
				break
			}
		}
		if !errors.Is(err, unix.ENOSPC) {
			return err
		}
	}
	return f.Truncate(max(0, at-int64(pages)*pageBytes))
}

func (d *smallDisk) free() error { return os.Remove(d.ballast()) }

// fullDisk takes the space for a time. The broker gets over it by itself; when it is killed meanwhile, it starts, or says that there is
// no space.
func fullDisk(e *era, killed bool) {
	e.t.Helper()
	e.rest(300 * time.Millisecond)
	e.must(e.disk.fill(e.rng.IntN(100)))
	e.rest(time.Second)
	refused := false
	if killed {
		e.must(e.process.Kill())
		err := e.process.Again()
		if refused = err != nil; refused && !strings.Contains(err.Error(), syscall.ENOSPC.Error()) {
			e.t.Fatal(err)
		}
		e.rest(time.Second)
	}
	e.must(e.disk.free())
	if refused {
		e.must(e.process.Again())
	}
}
