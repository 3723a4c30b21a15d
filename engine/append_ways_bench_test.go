package engine

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkAppendWays puts batches at the end of a segment file by every way that the engine could choose, taken in turn in one run; the figures
// are the processor time of one append, on average, and the 99th percentile of how long it took. With sync=running a goroutine syncs the file without a pause meanwhile, as
// the committer does under load. Every way writes the same bytes to a file of its own:
//
//   - pwrite: to a file that grows; pwrite-allocated: to space that fallocate(2) promised; pwrite-zeroed: to space that was written and synced;
//   - mapped-cold: a copy into a shared mapping of allocated space, whose pages fault one by one; mapped-ahead: the pages of an append are
//     populated for writing by one madvise(2) each 256 KiB; mapped-recycled: pages that were written before.
//
// The engine writes by pwrite(2) into zeroed space while there is traffic. A mapping costs a fault per page until it is populated, writing to a
// page under write-back waits for it (stable pages) in the middle of a copy, where a goroutine cannot be told to do something else, and a full disk
// is a SIGBUS instead of ENOSPC.
func BenchmarkAppendWays(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 256 << 10} {
		for _, sync := range []string{"none", "running"} {
			b.Run(fmt.Sprintf("bytes=%d/sync=%s", size, sync), func(b *testing.B) { benchmarkAppendWays(b, size, sync == "running") })
		}
	}
}

const (
	appendFile    = 16 << 20
	appendTurns   = 9 // of each way; the first is not counted
	appendAhead   = 256 << 10
	appendsAtMost = 1024 // in one turn
)

// appendWay is a way to append: prepare makes what the file needs, put writes buf at off.
type appendWay struct {
	name    string
	prepare func(f *os.File) error
	mapped  bool
	put     func(f *os.File, m, buf []byte, off int) error
}

func allocated(f *os.File) error { return unix.Fallocate(int(f.Fd()), 0, 0, appendFile) }

func zeroed(f *os.File) error {
	_, err := f.Write(make([]byte, appendFile))
	return errors.Join(err, f.Sync())
}

func pwrite(f *os.File, _, buf []byte, off int) error {
	_, err := f.WriteAt(buf, int64(off))
	return err
}

func copied(_ *os.File, m, buf []byte, off int) error {
	copy(m[off:], buf)
	return nil
}

func copiedAhead(f *os.File, m, buf []byte, off int) error {
	if at := (off + len(buf) - 1) / appendAhead * appendAhead; off <= at { // the first append that reaches into it
		if err := unix.Madvise(m[at:min(at+appendAhead, len(m))], unix.MADV_POPULATE_WRITE); err != nil {
			return err
		}
	}
	return copied(f, m, buf, off)
}

var appendWays = []appendWay{
	{"pwrite", func(*os.File) error { return nil }, false, pwrite},
	{"pwrite-allocated", allocated, false, pwrite},
	{"pwrite-zeroed", zeroed, false, pwrite},
	{"mapped-cold", allocated, true, copied},
	{"mapped-ahead", allocated, true, copiedAhead},
	{"mapped-recycled", zeroed, true, copied},
}

func benchmarkAppendWays(b *testing.B, size int, syncing bool) {
	buf := slices.Repeat([]byte{7}, size)
	runtime.LockOSThread() // its clock of processor time is read
	defer runtime.UnlockOSThread()
	took, spent := make([][]time.Duration, len(appendWays)), make([]time.Duration, len(appendWays))
	for turn := range appendTurns {
		for i, way := range appendWays {
			times, cpu, err := appendTurn(b.TempDir(), way, buf, syncing)
			if err != nil {
				b.Fatal(way.name, err)
			}
			if turn > 0 {
				took[i] = append(took[i], times...)
				spent[i] += cpu
			}
		}
	}
	for b.Loop() { // the turns above are the measurement
	}
	b.ReportMetric(0, "ns/op")
	for i, way := range appendWays {
		slices.Sort(took[i])
		b.ReportMetric(float64(spent[i].Nanoseconds())/float64(len(took[i])), way.name+"-cpu-ns")
		b.ReportMetric(float64(took[i][len(took[i])*99/100].Nanoseconds()), way.name+"-p99-ns")
	}
}

// appendTurn fills a new file, and returns how long each append took and the thread's processor time of all.
func appendTurn(dir string, way appendWay, buf []byte, syncing bool) (times []time.Duration, cpu time.Duration, err error) {
	f, err := os.Create(dir + "/" + way.name)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	if err := way.prepare(f); err != nil {
		return nil, 0, err
	}
	var m []byte
	if way.mapped {
		if m, err = unix.Mmap(int(f.Fd()), 0, appendFile, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
			return nil, 0, err
		}
		defer func() { err = errors.Join(err, unix.Munmap(m)) }()
	}
	if syncing {
		end, ended := make(chan struct{}), make(chan error, 1)
		go func() { ended <- syncUntil(f, end) }()
		defer func() { close(end); err = errors.Join(err, <-ended) }()
	}
	before := threadTime()
	for n := range min(appendFile/len(buf), appendsAtMost) {
		start := time.Now()
		if err := way.put(f, m, buf, n*len(buf)); err != nil {
			return nil, 0, err
		}
		times = append(times, time.Since(start))
	}
	return times, threadTime() - before, nil
}

func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // Linux has it
	return time.Duration(t.Nano())
}

func syncUntil(f *os.File, end <-chan struct{}) error {
	for {
		select {
		case <-end:
			return nil
		default:
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return err
		}
	}
}
