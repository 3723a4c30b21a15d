package compare

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"kaas/bench/frames"
	"kaas/bench/load"
	"kaas/bench/process"
)

// Figures of partitions with a record each. The last restart is after a kill -9, when a tenth of the partitions has unsynced writes.
const (
	writeEachUs      = "write_us_per_partition"
	writtenBytes     = "bytes_per_written_partition"
	readBytes        = "bytes_per_partition_read_after_restart"
	descriptors      = "descriptors"
	memoryMaps       = "memory_maps"
	stopMs           = "stop_ms"
	killedTenthMs    = "restart_ms_killed_with_a_tenth_unsynced"
	partitionsOfEach = 1000
)

// writtenTimeout bounds a stop, and each request.
const writtenTimeout = 15 * time.Minute

// written is a scenario of topics of 1,000 partitions that all hold records.
func written(topics int) func(*turn) error {
	return func(t *turn) error {
		w := &writtenTurn{turn: t, topics: int(t.scaled(int64(topics))), each: int(t.scaled(partitionsOfEach))}
		return w.run()
	}
}

type writtenTurn struct {
	*turn
	topics, each int // partitions of each topic
	empty        float64
}

// run writes a record into each partition, stops, starts, reads how many each has, writes another into each tenth, kills, starts, and reads
// again.
func (w *writtenTurn) run() error {
	p, err := w.start(pageCache)
	if err != nil {
		return err
	}
	if err = w.fill(p); err != nil {
		return w.end(p, err)
	}
	began := time.Now()
	if err := p.StopWithin(writtenTimeout); err != nil {
		return err
	}
	w.figures[stopMs] = msSince(began)
	if p, err = w.start(pageCache); err != nil {
		return err
	}
	w.figures[restartMs] = p.StartMs
	if err = w.counts(p, func(int) int64 { return 1 }); err == nil {
		err = w.use(p, readBytes)
	}
	if err == nil {
		err = w.write(p, func(n int) bool { return n%10 == 0 })
	}
	if err != nil {
		return w.end(p, err)
	}
	p.Kill()
	if p, err = w.start(pageCache); err != nil {
		return err
	}
	w.figures[killedTenthMs] = p.StartMs
	return w.end(p, w.counts(p, func(n int) int64 {
		if n%10 == 0 {
			return 2
		}
		return 1
	}))
}

// end kills the broker: its directory goes.
func (w *writtenTurn) end(p *process.Process, err error) error {
	p.Kill()
	if err != nil {
		err = fmt.Errorf("%w; it said: %s", err, p.Said())
	}
	return err
}

func msSince(t time.Time) float64 { return float64(time.Since(t).Microseconds()) / 1e3 }

func (w *writtenTurn) topic(i int) string { return fmt.Sprintf("bench-%d", i) }

// fill creates the topics and writes a record into each partition.
func (w *writtenTurn) fill(p *process.Process) error {
	w.settle()
	var err error
	if w.empty, err = p.RssAnon(); err != nil {
		return err
	}
	c, err := load.Dial(p.Address, 60*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	for i := range w.topics {
		if err := c.CreateTopics(w.each, w.topic(i)); err != nil {
			return err
		}
	}
	began := time.Now()
	if err := w.write(p, func(int) bool { return true }); err != nil {
		return err
	}
	w.figures[writeEachUs] = 1e3 * msSince(began) / float64(w.topics*w.each)
	return w.use(p, writtenBytes)
}

// write appends one record to each partition, counted over all topics, that which chooses.
func (w *writtenTurn) write(p *process.Process, which func(n int) bool) error {
	batch, _, err := frames.Batch(1, 100, time.Now().UnixMilli())
	if err != nil {
		return err
	}
	return w.forEach(p, func(c *load.Control, n int) error {
		if !which(n) {
			return nil
		}
		topic := w.topic(n / w.each)
		body, err := c.Ask(append(frames.ProduceHead(topic, int32(n%w.each), 1, 30_000, len(batch)), batch...))
		if err != nil {
			return err
		}
		at := frames.ProduceErrorAt(len(topic)) - frames.ResponseHead
		if len(body) < at+2 || !bytes.Equal(body[at:at+2], []byte{0, 0}) {
			return fmt.Errorf("produce to %s-%d: %w: %x", topic, n%w.each, frames.ErrMalformed, body)
		}
		return nil
	})
}

// counts makes sure that each partition has as many records as want says.
func (w *writtenTurn) counts(p *process.Process, want func(n int) int64) error {
	return w.forEach(p, func(c *load.Control, n int) error {
		got, err := c.Offset(w.topic(n/w.each), n%w.each, -1)
		if err == nil && got != want(n) {
			err = fmt.Errorf("%s-%d has %d records, want %d", w.topic(n/w.each), n%w.each, got, want(n))
		}
		return err
	})
}

// forEach calls do for each partition, on a few connections.
func (w *writtenTurn) forEach(p *process.Process, do func(c *load.Control, n int) error) error {
	const connections = 8
	errs := make([]error, connections)
	var wg sync.WaitGroup
	for i := range connections {
		wg.Go(func() { errs[i] = w.everyNth(p, i, connections, do) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// everyNth calls do for each partition from first on, one in step, one after the other.
func (w *writtenTurn) everyNth(p *process.Process, first, step int, do func(c *load.Control, n int) error) error {
	c, err := load.Dial(p.Address, writtenTimeout)
	if err != nil {
		return err
	}
	defer c.Close()
	for n := first; n < w.topics*w.each; n += step {
		err := c.SetDeadline(time.Now().Add(writtenTimeout))
		if err == nil {
			err = do(c, n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// use notes what the broker takes now: memory beside that of an empty one, descriptors, maps.
func (w *writtenTurn) use(p *process.Process, memory string) error {
	w.settle()
	rss, err := p.RssAnon()
	if err != nil {
		return err
	}
	w.figures[memory] = (rss - w.empty) / float64(w.topics*w.each)
	proc := fmt.Sprintf("/proc/%d/", p.PID())
	files, err := os.ReadDir(proc + "fd")
	if err != nil {
		return err
	}
	maps, err := os.ReadFile(proc + "maps")
	w.figures[descriptors] = max(w.figures[descriptors], float64(len(files)))
	w.figures[memoryMaps] = max(w.figures[memoryMaps], float64(bytes.Count(maps, []byte{'\n'})))
	return err
}
