package record

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/crc32"
	"golang.org/x/sys/unix"

	"kaas/bench/frames"
)

// Machine says where figures come from.
type Machine struct {
	CPU       string  `json:"cpu"`
	Cores     int     `json:"cores"`
	MemoryGiB float64 `json:"memory_gib"`
	Kernel    string  `json:"kernel"`
	Go        string  `json:"go"`
}

// Calibration says how fast the machine was when a run began, to tell a slow day from a slow program.
type Calibration struct {
	CPULoopMs     float64 `json:"cpu_loop_ms"`       // CRC-32C of 1 GiB in a hot buffer
	Load1         float64 `json:"load_1"`            // what else was running
	FdatasyncP50  float64 `json:"fdatasync_p50_us"`  // 4 KiB written into existing blocks, then synced
	FdatasyncRate float64 `json:"fdatasync_per_sec"` // of the same
}

// Begin makes what the records of one run have in common, says it on out, and touches memory once as scale, the share of the work, asks.
// dir is on the disk that is measured.
func Begin(out io.Writer, dir string, scale float64) (Record, error) {
	r := Record{Time: time.Now().UTC().Format(time.RFC3339), Commit: Commit(), Machine: ThisMachine()}
	var err error
	if r.Calibration, err = Calibrate(dir); err != nil {
		return r, err
	}
	if err := TouchMemory(dir, int64(2<<30*scale)); err != nil {
		return r, err
	}
	fmt.Fprintf(out, "commit %s, %d × %s, Linux %s, load %.1f; CPU loop %.0f ms, fdatasync %.0f µs\n", r.Commit, r.Machine.Cores, r.Machine.CPU,
		r.Machine.Kernel, r.Calibration.Load1, r.Calibration.CPULoopMs, r.Calibration.FdatasyncP50)
	return r, nil
}

// ThisMachine describes the machine that this process runs on.
func ThisMachine() Machine {
	m := Machine{Cores: runtime.NumCPU(), Go: runtime.Version()}
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan() && m.CPU == ""; {
			if name, value, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
				m.CPU = strings.TrimSpace(value)
			}
		}
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.MemoryGiB = float64(info.Totalram*uint64(info.Unit)>>20) / 1024
	}
	return m
}

// Commit is the revision that this program was built from, or else that of the working directory, with a + if it was changed since.
func Commit() string {
	revision, changed := "", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				revision = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				changed = "+"
			}
		}
	}
	if revision == "" {
		out, err := exec.Command("git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+").Output()
		if err != nil {
			return "unknown"
		}
		return strings.TrimSpace(string(out))
	}
	return revision[:min(len(revision), 12)] + changed
}

// Calibrate measures the machine; dir must be on the disk that the run will use.
func Calibrate(dir string) (Calibration, error) {
	c := Calibration{}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		first, _, _ := strings.Cut(string(b), " ")
		c.Load1, _ = strconv.ParseFloat(first, 64) // 0 when it is not to be had
	}
	buf := make([]byte, 64<<10)
	start, sum := time.Now(), uint32(0)
	for range 1 << 30 / len(buf) {
		sum = crc32.Update(sum, frames.Castagnoli, buf)
	}
	c.CPULoopMs = float64(time.Since(start).Microseconds()) / 1e3
	runtime.KeepAlive(sum)
	p, err := Probe(dir, 4<<10, 300*time.Millisecond)
	c.FdatasyncP50, c.FdatasyncRate = p.P50, p.PerSecond
	return c, err
}

// TouchMemory writes n bytes of a file and removes it, so that the page cache has had those pages before: in a young virtual
// machine the first touch of a page costs many times as much as all later ones.
func TouchMemory(dir string, n int64) error {
	f, err := os.CreateTemp(dir, "touch")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	buf := make([]byte, 1<<20)
	for ; n > 0; n -= int64(len(buf)) {
		if _, err := f.Write(buf); err != nil {
			return err
		}
	}
	return nil
}

// WorkDir makes an empty directory below parent, which must be on a real disk.
func WorkDir(parent string) (string, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(parent, &st); err != nil {
		return "", &os.PathError{Op: "statfs", Path: parent, Err: err}
	}
	if st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC {
		return "", fmt.Errorf("%s is in memory: %w", parent, errNoDisk)
	}
	dir, err := os.MkdirTemp(parent, "bench-")
	if err != nil {
		return "", err
	}
	return filepath.Abs(dir)
}

var errNoDisk = errors.New("figures need a directory on a disk")
