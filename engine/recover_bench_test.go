package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkRecover recovers 512 MiB that a killed process left in the page cache: the scan, not the disk. With pages=cold they are on the
// disk only. cpu-s/GB says what it costs where others use the machine too; its reciprocal is GB/s per core.
func BenchmarkRecover(b *testing.B) {
	for _, c := range []struct {
		batch, logs int
		idempotent  bool
		pages       string
	}{
		{1 << 10, 1, true, "hot"}, {16 << 10, 1, false, "hot"}, {16 << 10, 1, true, "hot"}, {256 << 10, 1, true, "hot"}, {16 << 10, 4, true, "hot"},
		{16 << 10, 1, true, "cold"}, {16 << 10, 4, true, "cold"},
	} {
		b.Run(fmt.Sprintf("batch=%dk/idempotent=%v/logs=%d/pages=%s", c.batch>>10, c.idempotent, c.logs, c.pages), func(b *testing.B) {
			benchmarkRecover(b, c.batch, c.logs, c.idempotent, c.pages == "cold")
		})
	}
}

func benchmarkRecover(b *testing.B, size, logs int, idempotent, cold bool) {
	f := newFixture(b)
	const total = 512 << 20
	open := func(isNew bool) (out []*Log) {
		for i := range logs {
			out = append(out, f.e.OpenLog(LogSpec{Topic: "r", Partition: int32(i), Config: small(256 << 20), New: isNew}))
		}
		return out
	}
	for _, l := range open(true) {
		s := spec{size: size - 61}
		if idempotent {
			s.pid = 7
		}
		for n := 0; n < total/logs; n += size {
			f.append(l, s)
			s.seq++
		}
		if err := l.syncSegment(l.active()); err != nil {
			b.Fatal(err)
		}
	}
	f.e.work.wait()
	f.kill()
	b.SetBytes(total)
	b.ReportAllocs()
	var cpu int64
	for b.Loop() {
		b.StopTimer()
		f.open()
		ls := open(false)
		for _, l := range ls {
			if err := f.e.journal.update(l.name(), func(e *journalEntry) { e.dirty, e.recovery = true, 0 }); err != nil {
				b.Fatal(err)
			}
		}
		if cold {
			evict(b, f.cfg.Dir)
		}
		before := cpuTime()
		b.StartTimer()
		if err := f.e.Recover(b.Context(), ls, nil); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		cpu += cpuTime() - before
		sum := int64(0)
		for _, l := range ls {
			sum += l.SizeBytes()
		}
		if sum != total {
			b.Fatalf("recovered %d bytes", sum)
		}
		f.kill()
		b.StartTimer()
	}
	b.ReportMetric(float64(cpu)/float64(b.N)/total, "cpu-s/GB")
}

// cpuTime is what the process has used, in ns.
func cpuTime() int64 {
	var r unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &r)
	return r.Utime.Nano() + r.Stime.Nano()
}

// evict has the kernel forget the pages of all segments.
func evict(b *testing.B, dir string) {
	b.Helper()
	names, _ := filepath.Glob(dir + "/*/*.log")
	for _, name := range names {
		file, err := os.Open(name)
		if err != nil {
			b.Fatal(err)
		}
		if err := unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
			b.Fatal(err)
		}
		file.Close()
	}
}
