package engine

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"kaas/engine/vfs"
)

// BenchmarkRecoverMany starts after a kill of a process that had written one batch to each of many logs since the last start, from Open to the
// end of Recover. ns/op has the kill's preparation left out; cpu-us is for each log, syncs/log counts fdatasync and fsync of directories,
// syncfs those of the whole file system,
// which take syncfs-ms: they write what others have written too.
func BenchmarkRecoverMany(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		for _, d := range []Durability{GroupCommit, PageCache} {
			b.Run(fmt.Sprintf("logs=%d/sync=%s", n, []string{"group", "none"}[d]), func(b *testing.B) { benchmarkRecoverMany(b, n, d) })
		}
	}
}

func benchmarkRecoverMany(b *testing.B, n int, d Durability) {
	f := newFixture(b, func(c *Config) { c.FS, c.Durability = hasty{vfs.OS}, d })
	open := func(isNew bool) []*Log {
		logs := make([]*Log, n)
		for i := range logs {
			logs[i] = f.e.OpenLog(LogSpec{Topic: "r", Partition: int32(i), TopicID: [16]byte{1}, New: isNew})
		}
		return logs
	}
	var cpu, syncs, volume, took int64
	logs := open(true)
	for i := int32(0); b.Loop(); i++ {
		b.StopTimer()
		for _, l := range logs {
			if err := l.MakeReady(); err != nil {
				b.Fatal(err)
			}
			e := f.append(l, spec{pid: 7, seq: i, size: 500})
			if d == GroupCommit {
				f.durable(l, e)
			}
		}
		f.kill()
		for _, l := range logs { // as the end of a process does
			l.active().Close()
		}
		counts := &syncCounter{FS: vfs.OS}
		f.cfg.FS = counts
		before := cpuTime()
		b.StartTimer()
		f.open()
		logs = open(false)
		if err := f.e.Recover(b.Context(), logs, nil); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		cpu += cpuTime() - before
		for _, l := range logs {
			if o := l.Offsets(); l.Err() != nil || o.LogEnd != int64(i)+1 {
				b.Fatalf("%v: %+v, %v", l, o, l.Err())
			}
		}
		syncs += counts.syncs.Load()
		volume += counts.volume.Load()
		took += counts.took.Load()
		f.close()
		f.cfg.FS = hasty{vfs.OS}
		f.open()
		logs = open(false)
		b.StartTimer()
	}
	all := float64(b.N)
	b.ReportMetric(float64(cpu)/1e3/all/float64(n), "cpu-us")
	b.ReportMetric(float64(syncs)/all/float64(n), "syncs/log")
	b.ReportMetric(float64(volume)/all, "syncfs")
	b.ReportMetric(float64(took)/1e6/all, "syncfs-ms")
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/all, "ms")
}

// syncCounter counts the syncs of a file system.
type syncCounter struct {
	vfs.FS
	syncs, volume, took atomic.Int64
}

type countedFile struct {
	vfs.File
	n *atomic.Int64
}

type countedVolume struct {
	vfs.Volume
	c *syncCounter
}

func (c *syncCounter) Open(name string, mode vfs.Mode) (vfs.File, error) {
	file, err := c.FS.Open(name, mode)
	if err != nil {
		return nil, err
	}
	return countedFile{file, &c.syncs}, nil
}

func (c *syncCounter) SyncDir(dir string) error { c.syncs.Add(1); return c.FS.SyncDir(dir) }
func (f countedFile) Sync() error               { f.n.Add(1); return f.File.Sync() }

func (c *syncCounter) Volume(dir string) (vfs.Volume, error) {
	v, err := vfs.OpenVolume(c.FS, dir)
	return countedVolume{v, c}, err
}

func (v countedVolume) Sync() error {
	began := time.Now()
	err := v.Volume.Sync()
	v.c.volume.Add(1)
	v.c.took.Add(time.Since(began).Nanoseconds())
	return err
}
