package compare

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"kaas/bench/load"
	"kaas/bench/process"
)

// Readers of old data beside a producer and a consumer that keeps up. The old topic is in files that are synced, and put out of the page
// cache before and all the time while they are read, so that every byte comes from the disk.
const (
	oldTopic    = "old"
	oldReaders  = 4
	oldBytes    = 1024 * mib
	dropPause   = 20 * time.Millisecond
	liveRate    = 1000 // requests per second
	livePhase   = 5 * time.Second
	longestRead = 1000 * time.Hour // another part ends it
)

// coldReaders measures the acknowledgements and the tail in three phases: alone, beside readers of old data that is in the page cache (what
// is then lost is lost to their use of the processor), and beside readers of data that is not.
func (t *turn) coldReaders() error {
	return t.with(pageCache, func(p *process.Process) error {
		if err := t.fillOld(p.Address); err != nil {
			return err
		}
		old, err := openOld(filepath.Join(t.dir, "data"))
		if err != nil {
			return err
		}
		defer old.close()
		if _, _, err := t.live(p.Address); err != nil { // a warm-up
			return err
		}
		f := t.figures
		if f[quietAckP99], f[quietTailP99], err = t.live(p.Address); err != nil {
			return err
		}
		if f[warmAckP99], f[warmTailP99], _, err = t.liveBeside(p, nil); err != nil {
			return err
		}
		if err := old.drop(); err != nil {
			return err
		}
		if f[coldAckP99], f[coldTailP99], f[bytesPerSecond], err = t.liveBeside(p, old.drop); err != nil {
			return err
		}
		f[coldAckOfQuiet], f[coldTailOfQuiet] = f[coldAckP99]/f[quietAckP99], f[coldTailP99]/f[quietTailP99]
		return nil
	})
}

// fillOld writes the old topic.
func (t *turn) fillOld(address string) error {
	_, err := load.Produce(load.ProduceConfig{
		Brokers: []string{address}, Topic: oldTopic, Partitions: oldReaders, Connections: oldReaders, Pipeline: 4, BatchBytes: 64 * kib,
		RecordBytes: kib, Acks: 1, Limits: load.Limits{Bytes: t.scaled(oldBytes)},
	})
	return err
}

// live produces small records at a fixed rate and reads them at the end of the log; it returns the 99th percentiles of the acknowledgements
// and of reading, in µs.
func (t *turn) live(address string) (ack, tail float64, err error) {
	written, read, err := load.EndToEnd(load.ProduceConfig{
		Brokers: []string{address}, Topic: topicName, Partitions: 1, Connections: 1, Pipeline: 64, BatchBytes: 1, RecordBytes: kib, Acks: 1,
		Rate: liveRate, Limits: load.Limits{Duration: time.Duration(float64(livePhase) * t.opt.Scale)},
	})
	return written.Latency.P99, read.Latency.P99, err
}

// liveBeside is live beside readers of the old topic; drop is called again and again meanwhile. It returns the rate of the readers besides.
func (t *turn) liveBeside(p *process.Process, drop func() error) (ack, tail, rate float64, err error) {
	var group sync.WaitGroup
	var stop atomic.Bool
	var old load.Result
	var oldErr, dropErr error
	group.Go(func() {
		old, oldErr = load.Fetch(load.FetchConfig{
			Brokers: []string{p.Address}, Topic: oldTopic, Connections: oldReaders, MaxBytes: mib, Alike: true,
			Limits: load.Limits{Duration: longestRead, Stop: &stop},
		})
	})
	if drop != nil {
		group.Go(func() {
			for !stop.Load() && dropErr == nil {
				dropErr = drop()
				time.Sleep(dropPause)
			}
		})
	}
	ack, tail, err = t.live(p.Address)
	stop.Store(true)
	group.Wait()
	if err := errors.Join(err, oldErr, dropErr); err != nil {
		return 0, 0, 0, err
	}
	return ack, tail, old.BytesPerSecond(), nil
}

// oldFiles are the log files of the old topic.
type oldFiles []*os.File

// openOld opens them and makes what is in them durable, for only clean pages can be dropped.
func openOld(data string) (old oldFiles, err error) {
	names, err := filepath.Glob(filepath.Join(data, oldTopic+"-*", "*.log"))
	for _, name := range names {
		f, ferr := os.Open(name)
		if ferr == nil {
			old = append(old, f)
			ferr = f.Sync()
		}
		err = errors.Join(err, ferr)
	}
	if err != nil {
		old.close()
		return nil, fmt.Errorf("old data: %w", err)
	}
	return old, nil
}

// drop puts the files out of the page cache.
func (o oldFiles) drop() error {
	for _, f := range o {
		if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
			return err
		}
	}
	return nil
}

func (o oldFiles) close() {
	for _, f := range o {
		f.Close()
	}
}
