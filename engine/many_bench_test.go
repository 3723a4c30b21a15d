package engine

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// BenchmarkManyLogs writes to each of many logs, reads from each, and starts again from what a clean close and a kill leave, with the default
// bound of descriptors. The figures are for each log, but for close-ms, clean-ms and killed-ms: the close, and Open to the end of Recover.
func BenchmarkManyLogs(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		for _, d := range []Durability{PageCache, GroupCommit} {
			b.Run(fmt.Sprintf("logs=%d/sync=%s", n, []string{"group", "none"}[d]), func(b *testing.B) {
				for b.Loop() {
					m := &manyLogs{b: b, n: n, f: newFixture(b, func(c *Config) { c.Durability, c.Clock = d, nil })}
					m.run()
				}
			})
		}
	}
}

// manyLogs is one run.
type manyLogs struct {
	b    *testing.B
	f    *fixture
	n    int
	logs []*Log
}

func (m *manyLogs) run() {
	heap := heapNow()
	m.known(true)
	began := time.Now()
	m.append()
	for _, l := range m.logs {
		if m.f.cfg.Durability == GroupCommit {
			m.f.durable(l, Entry{LastOffset: 0})
		}
	}
	m.report("append-us", time.Since(began).Seconds()*1e6/float64(m.n))
	m.report("disk-KiB", m.disk()/1024)
	m.read("read")
	m.report("heap-B", (heapNow()-heap)/float64(m.n))
	began = time.Now()
	m.f.close()
	m.report("close-ms", time.Since(began).Seconds()*1e3)

	m.start("clean")
	m.read("first-read") // loads each
	m.report("loaded-heap-B", (heapNow()-heap)/float64(m.n))
	m.append()
	m.f.kill()
	m.start("killed")
	m.read("last-read")
	m.f.close()
	runtime.KeepAlive(m.logs)
}

func (m *manyLogs) report(figure string, v float64) { m.b.ReportMetric(v, figure) }

func (m *manyLogs) known(isNew bool) {
	cfg := DefaultLogConfig
	m.logs = make([]*Log, m.n)
	for i := range m.logs {
		m.logs[i] = m.f.e.OpenLog(LogSpec{Topic: "many", Partition: int32(i), TopicID: [16]byte{1}, Config: &cfg, New: isNew})
	}
}

// append writes one batch to each log, as a worker of the server does.
func (m *manyLogs) append() {
	for _, l := range m.logs {
		if err := l.MakeReady(); err != nil {
			m.b.Fatal(err)
		}
		m.f.append(l, spec{size: 100, ts: time.Now().UnixMilli()})
	}
}

func (m *manyLogs) read(figure string) {
	began := time.Now()
	for _, l := range m.logs {
		if got := m.f.readAll(l, 0); len(got) == 0 || len(got) > 2 {
			m.b.Fatalf("%v: read %v", l, got)
		}
	}
	m.report(figure+"-us", time.Since(began).Seconds()*1e6/float64(m.n))
	if s := m.f.e.Stats(); s.OpenFiles > 2*m.f.e.cfg.MaxOpenFiles || s.Maps > maxMaps {
		m.b.Errorf("%+v", s)
	}
}

func (m *manyLogs) start(figure string) {
	m.logs = nil
	began := time.Now()
	m.f.open()
	m.known(false)
	if err := m.f.e.Recover(m.b.Context(), m.logs, nil); err != nil {
		m.b.Fatal(err)
	}
	m.report(figure+"-ms", time.Since(began).Seconds()*1e3)
}

// disk is what each log takes on the disk, in bytes.
func (m *manyLogs) disk() float64 {
	var blocks int64
	err := filepath.WalkDir(m.f.cfg.Dir, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := os.Stat(name)
		if err == nil {
			blocks += st.Sys().(*syscall.Stat_t).Blocks
		}
		return err
	})
	if err != nil {
		m.b.Fatal(err)
	}
	return float64(blocks*512) / float64(m.n)
}

func heapNow() float64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return float64(s.HeapAlloc)
}
