//go:build torture

package torture

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// volume is an ext4 of its own in a file, so that the kernel itself can lose what was not synced.
type volume struct{ image, root string }

const volumeBytes = 512 << 20

// newVolume needs the right to mount, a loop device and mkfs.ext4.
func newVolume(t *testing.T) (*volume, error) {
	dir := t.TempDir()
	v := &volume{image: filepath.Join(dir, "image"), root: filepath.Join(dir, "root")}
	if err := os.Mkdir(v.root, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(v.image, nil, 0o600); err != nil {
		return nil, err
	}
	if err := os.Truncate(v.image, volumeBytes); err != nil {
		return nil, err
	}
	if err := run("mkfs.ext4", "-q", "-F", v.image); err != nil {
		return nil, err
	}
	if err := v.mount(); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := unix.Unmount(v.root, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return v, nil
}

func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

func (v *volume) mount() error { return run("mount", "-o", "loop", v.image, v.root) }

// again mounts it as after a start of the machine: the journal is replayed, and nothing is left of the page cache.
func (v *volume) again() error {
	if err := unix.Unmount(v.root, 0); err != nil {
		return err
	}
	return v.mount()
}

// EXT4_IOC_SHUTDOWN and its flag that nothing is written any more, not even the journal.
const (
	ext4Shutdown   = 0x8004587d
	ext4NoLogFlush = 2
)

// cut ends all writing to the disk at once, as a power cut does: what was not synced is lost, wherever the kernel had got with it.
func (v *volume) cut() error {
	d, err := os.Open(v.root)
	if err != nil {
		return err
	}
	defer d.Close()
	flag := uint32(ext4NoLogFlush)
	if _, _, no := unix.Syscall(unix.SYS_IOCTL, d.Fd(), ext4Shutdown, uintptr(unsafe.Pointer(&flag))); no != 0 {
		return fmt.Errorf("shutting down %s: %w", v.root, no)
	}
	return nil
}

var volumeDeeds = []deed{
	{"power cut", func(e *era) { e.lose(e.volume.cut) }},
	// What ext4 does by itself when it finds the disk or its own structures bad.
	{"read-only remount", func(e *era) {
		e.lose(func() error { return run("mount", "-o", "remount,abort", e.volume.root) })
	}},
}

// lose takes the disk from the broker, lets it go on for a moment with what is left, and starts it on what the disk has. The broker stands still
// while the disk goes: a sync that runs beside that is answered with success, and its data lost, by the kernel (6.18, where the blocks were
// allocated and never written; a loop of write and fdatasync shows it), which no power cut does, as nobody is there any more to hear the answer.
func (e *era) lose(take func() error) {
	e.t.Helper()
	e.rest(300 * time.Millisecond)
	e.must(syscall.Kill(e.process.PID(), syscall.SIGSTOP))
	e.await("the broker to stand still", func() bool { return standsStill(e.process.PID()) })
	e.must(take())
	e.must(syscall.Kill(e.process.PID(), syscall.SIGCONT))
	e.rest(300 * time.Millisecond)
	e.must(e.process.Kill())
	e.must(e.volume.again())
	e.must(e.process.Again())
}

// standsStill reports whether every thread of a process is stopped, none still in a system call.
func standsStill(pid int) bool {
	all, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(all) == 0 {
		return false
	}
	for _, file := range all {
		stat, err := os.ReadFile(file)
		if err != nil {
			return false
		}
		_, state, _ := strings.Cut(string(stat), ") ")
		if !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return true
}
