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

// Readers of old data beside a producer and a consumer that keeps up. The old topic is in files that are synced and put out of the page cache
// before; while it is read, what a reader has behind it is put out again, so that every byte comes from the disk in every lap. Nothing is
// dropped before a reader: dropping whole files fifty times a second, as was done once, took pages away between the read-ahead and the sending,
// and measured that (two thirds of all calls of sendfile that took over 2 ms).
const (
	oldTopic    = "old"
	oldReaders  = 4
	oldBytes    = 1024 * mib       // a quarter for each partition: one segment
	dropBytes   = 8 * mib          // dropped at a time
	longestRead = 1000 * time.Hour // another part ends it
)

// coldReaders measures the acknowledgements and the tail in three phases: alone, beside readers of old data that is in the page cache (what
// is then lost is lost to their use of the processor), and beside readers of data that is not.
func (t *turn) coldReaders() error {
	return t.withControl(func(p *process.Process, control string) error {
		if err := t.fillOld(p.Address); err != nil {
			return err
		}
		old, err := openOld(filepath.Join(t.dir, "data"))
		if err != nil {
			return err
		}
		defer old.close()
		if _, err := t.live(p.Address, control); err != nil { // a warm-up
			return err
		}
		quiet, err := t.live(p.Address, control)
		if err != nil {
			return err
		}
		warm, _, err := t.liveBeside(p, control, nil)
		if err != nil {
			return err
		}
		if err := old.dropAll(); err != nil {
			return err
		}
		cold, rate, err := t.liveBeside(p, control, old)
		if err != nil {
			return err
		}
		f := t.figures
		f[quietAckP99], f[quietTailP99], f[quietControlP99] = quiet.ack, quiet.tail, quiet.control
		f[warmAckP99], f[warmTailP99], f[warmControlP99] = warm.ack, warm.tail, warm.control
		f[coldAckP99], f[coldTailP99], f[coldControlP99] = cold.ack, cold.tail, cold.control
		f[coldAckOfQuiet], f[coldTailOfQuiet] = cold.ack/quiet.ack, cold.tail/quiet.tail
		f[coldAckOfControl], f[warmAckOfControl] = cold.ack/cold.control, warm.ack/warm.control
		f[bytesPerSecond], f[quietStolen], f[coldStolen] = rate, quiet.stolen, cold.stolen
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

// liveBeside is live beside readers of the old topic, who have it dropped behind them if its files are given. It returns their rate besides.
func (t *turn) liveBeside(p *process.Process, control string, files *oldFiles) (l latencies, rate float64, err error) {
	var group sync.WaitGroup
	var stop atomic.Bool
	var old load.Result
	var oldErr, dropErr error
	c := load.FetchConfig{
		Brokers: []string{p.Address}, Topic: oldTopic, Connections: oldReaders, MaxBytes: mib, Alike: true,
		Limits: load.Limits{Duration: longestRead, Stop: &stop},
	}
	if files != nil {
		c.Consumed = func(partition int, bytes int64) {
			if dropErr == nil {
				dropErr = files.dropBehind(partition, bytes)
			}
		}
	}
	group.Go(func() { old, oldErr = load.Fetch(c) })
	l, err = t.live(p.Address, control)
	stop.Store(true)
	group.Wait()
	return l, old.BytesPerSecond(), errors.Join(err, oldErr, dropErr)
}

// oldFiles are the log files of the old topic, one for each partition, and how far each was dropped.
type oldFiles struct {
	files   [oldReaders]*os.File
	dropped [oldReaders]int64
}

// openOld opens them and makes what is in them durable, for only clean pages can be dropped.
func openOld(data string) (*oldFiles, error) {
	o := &oldFiles{}
	for i := range o.files {
		names, err := filepath.Glob(filepath.Join(data, fmt.Sprintf("%s-%d", oldTopic, i), "*.log"))
		if err == nil && len(names) != 1 {
			err = fmt.Errorf("partition %d is in %d files, not one", i, len(names))
		}
		if err == nil {
			if o.files[i], err = os.Open(names[0]); err == nil {
				err = o.files[i].Sync()
			}
		}
		if err != nil {
			o.close()
			return nil, fmt.Errorf("old data: %w", err)
		}
	}
	return o, nil
}

// dropAll puts all of the files out of the page cache.
func (o *oldFiles) dropAll() error {
	for _, f := range o.files {
		if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
			return err
		}
	}
	return nil
}

// dropBehind puts out what a reader that has come so far has read, dropBytes at a time, and all of the file when it begins anew.
func (o *oldFiles) dropBehind(partition int, bytes int64) error {
	from, n := o.dropped[partition], bytes-o.dropped[partition]
	switch {
	case bytes == 0:
		from, n = 0, 0 // to the end
	case n < dropBytes:
		return nil
	}
	o.dropped[partition] = bytes
	return unix.Fadvise(int(o.files[partition].Fd()), from, n, unix.FADV_DONTNEED)
}

func (o *oldFiles) close() {
	for _, f := range o.files {
		if f != nil {
			f.Close()
		}
	}
}
