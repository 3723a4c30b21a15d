package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strconv"
	"sync"
	"time"

	"kaas/engine/vfs"
)

// CleanerConfig are the settings of compaction. Zero values of numbers but Threads mean the defaults named.
type CleanerConfig struct {
	Threads        int           // logs compacted at the same time; 0: none
	DedupeBytes    int64         // log.cleaner.dedupe.buffer.size, of all threads together; 128 MiB
	LoadFactor     float64       // log.cleaner.io.buffer.load.factor; 0.9
	BufferBytes    int           // log.cleaner.io.buffer.size, of all threads together; 512 KiB
	BytesPerSecond float64       // log.cleaner.io.max.bytes.per.second, read and written; no bound
	Backoff        time.Duration // log.cleaner.backoff.ms: wait when there is nothing to clean; 15 s
}

func (c *CleanerConfig) setDefaults() {
	if c.DedupeBytes <= 0 {
		c.DedupeBytes = 128 << 20
	}
	if c.LoadFactor <= 0 {
		c.LoadFactor = 0.9
	}
	if c.BufferBytes <= 0 {
		c.BufferBytes = 512 << 10
	}
	if c.BytesPerSecond <= 0 {
		c.BytesPerSecond = math.MaxFloat64
	}
	if c.Backoff == 0 {
		c.Backoff = 15 * time.Second
	}
}

// share is one thread's part of what all have together.
func (c CleanerConfig) share() (dedupe int64, buffer int) {
	n := max(c.Threads, 1)
	return max(c.DedupeBytes/int64(n), 1), max(c.BufferBytes/n/2, 1)
}

// cleaner decides which log is compacted next, and remembers how far each is.
type cleaner struct {
	e    *Engine
	rate throttle
	idle sync.WaitGroup // of the threads

	mu      sync.Mutex // guards what follows; held over nothing that may block
	cfg     CleanerConfig
	changed chan struct{} // closed when cfg is replaced
	threads int           // that run
	closed  bool
	busy    map[*Log]bool
	bad     map[*Log]bool      // not to be tried again before the next start
	halves  map[*Log]*swapping // what lacked room to be finished
	clean   map[string]int64   // by name of the log: first dirty offset
	unsaved bool               // the file lacks something

	saveMu sync.Mutex // one write of the file at a time; taken before mu
}

const (
	cleanedName = "cleaner-offset-checkpoint"
	cleanedMax  = 1 << 30
)

func (c *cleaner) open(e *Engine) error {
	c.e, c.changed = e, make(chan struct{})
	c.busy, c.bad, c.clean, c.halves = map[*Log]bool{}, map[*Log]bool{}, map[string]int64{}, map[*Log]*swapping{}
	if e.cfg.Storage == Memory {
		return nil
	}
	return c.load()
}

// load reads Kafka's checkpoint format: version 0, count, then "topic partition offset" lines. What does not parse counts as
// missing: those logs are cleaned from their start.
func (c *cleaner) load() error {
	b, err := vfs.ReadFile(c.e.cfg.FS, c.e.cfg.Dir+"/"+cleanedName, cleanedMax)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	version, rest, _ := bytes.Cut(b, []byte{'\n'})
	if string(version) != "0" {
		return nil
	}
	_, rest, _ = bytes.Cut(rest, []byte{'\n'})
	for line := range bytes.Lines(rest) {
		f := bytes.Fields(line)
		if len(f) != 3 {
			continue
		}
		partition, perr := strconv.ParseInt(string(f[1]), 10, 32)
		offset, err := strconv.ParseInt(string(f[2]), 10, 64)
		if perr == nil && err == nil && partition >= 0 && offset >= 0 {
			c.clean[fmt.Sprintf("%s-%d", f[0], partition)] = offset
		}
	}
	return nil
}

// save writes the file if it lacks something. It is never ahead of the logs, and being behind costs only work.
func (c *cleaner) save() error {
	c.saveMu.Lock()
	defer c.saveMu.Unlock()
	c.mu.Lock()
	if !c.unsaved || c.e.cfg.Storage == Memory {
		c.mu.Unlock()
		return nil
	}
	c.unsaved = false
	b := fmt.Appendf(nil, "0\n%d\n", len(c.clean))
	for name, offset := range c.clean {
		i := bytes.LastIndexByte([]byte(name), '-')
		b = fmt.Appendf(b, "%s %s %d\n", name[:i], name[i+1:], offset)
	}
	c.mu.Unlock()
	err := vfs.WriteFile(c.e.cfg.FS, c.e.cfg.Dir, cleanedName, b)
	if err != nil {
		c.mu.Lock()
		c.unsaved = true
		c.mu.Unlock()
	}
	return err
}

// firstDirty is the offset up to which a log was cleaned; ok is false if it never was.
func (c *cleaner) firstDirty(l *Log) (offset int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	offset, ok = c.clean[l.name()]
	return offset, ok
}

func (c *cleaner) setDirty(l *Log, offset int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.Err() == nil {
		c.clean[l.name()], c.unsaved = offset, true
	}
}

// forget drops what is remembered of a log that is gone.
func (c *cleaner) forget(l *Log) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.bad, l)
	if s := c.halves[l]; s != nil {
		delete(c.halves, l)
		s.cleaned.Retire()
	}
	if _, ok := c.clean[l.name()]; ok {
		delete(c.clean, l.name())
		c.unsaved = true
	}
}

// SetCleaner changes the settings of compaction. A clean that runs keeps its buffers.
func (e *Engine) SetCleaner(cfg CleanerConfig) {
	cfg.setDefaults()
	c := &e.cleaner
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || e.cfg.Records == nil {
		return
	}
	c.cfg = cfg
	close(c.changed)
	c.changed = make(chan struct{})
	c.rate.set(cfg.BytesPerSecond)
	for ; c.threads < cfg.Threads; c.threads++ {
		c.idle.Add(1)
		go c.run(c.threads)
	}
}

// run is one thread: the one with the highest number ends when there are to be fewer.
func (c *cleaner) run(id int) {
	defer c.idle.Done()
	for {
		c.mu.Lock()
		cfg, changed := c.cfg, c.changed
		if id == c.threads-1 && id >= cfg.Threads {
			c.threads--
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		if id < cfg.Threads && c.e.cleanOne() {
			continue
		}
		wait := time.NewTimer(cfg.Backoff)
		if id >= cfg.Threads {
			wait.Reset(time.Millisecond) // until those with higher numbers are gone
		}
		select {
		case <-c.e.stop:
			wait.Stop()
			return
		case <-changed:
		case <-wait.C:
		}
		wait.Stop()
	}
}

// close waits for the threads, once the engine's stop is closed. None is started after it. A swap that still lacks room is left to the next
// start.
func (c *cleaner) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.idle.Wait()
	c.finishSwaps()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.halves {
		s.cleaned.Retire()
	}
	clear(c.halves)
}

// putOff keeps a swap that lacks room until finishSwaps.
func (c *cleaner) putOff(l *Log, s *swapping) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.Err() == ErrDeleted {
		s.cleaned.Retire()
		return
	}
	c.halves[l] = s
}

// finishSwaps tries to finish the swaps that were put off. Until then their logs are not compacted.
func (c *cleaner) finishSwaps() {
	c.mu.Lock()
	all := map[*Log]*swapping{}
	for l, s := range c.halves {
		if !c.busy[l] && l.Err() == nil { // of a log that is offline the next start does it
			all[l], c.busy[l] = s, true
			delete(c.halves, l)
		}
	}
	c.mu.Unlock()
	for l, s := range all {
		if err := l.finishSwap(s); err != nil && err != ErrDeleted {
			c.e.cfg.Logger.Warn("a swap after compaction is not finished", "log", l.name(), "error", err)
		}
		c.mu.Lock()
		delete(c.busy, l)
		c.mu.Unlock()
	}
}

// Clean compacts all logs that are due, one after the other, and returns how many cleans that took. The threads of
// CleanerConfig do the same in the background.
func (e *Engine) Clean() int {
	n := 0
	for e.cleanOne() {
		n++
	}
	return n
}

// cleanOne compacts the log that needs it most, and reports whether there was one and it went well.
func (e *Engine) cleanOne() bool {
	c := &e.cleaner
	c.finishSwaps()
	t := c.pick()
	if t == nil {
		return false
	}
	err := c.cleanLog(t)
	c.mu.Lock()
	delete(c.busy, t.log)
	c.mu.Unlock()
	switch {
	case err == nil:
		if err := c.save(); err != nil {
			e.cfg.Logger.Warn("how far logs are compacted could not be saved", "error", err)
			return false
		}
		return true
	case errors.Is(err, ErrDeleted), errors.Is(err, ErrClosed), errors.Is(err, errGone):
	case errors.Is(err, fs.ErrNotExist) && t.log.pub.read().start > t.segs[0].Base(): // retention took it
	case vfs.NoRoom(err):
		e.cfg.Logger.Warn("no room to compact a log", "log", t.log.name(), "error", err)
	default:
		e.cfg.Logger.Error("log could not be compacted; it is left as it is until the next start", "log", t.log.name(), "error", err)
		c.mu.Lock()
		c.bad[t.log] = true
		c.mu.Unlock()
	}
	return false
}

// throttle spreads bytes over time.
type throttle struct {
	mu   sync.Mutex // guards what follows
	rate float64    // bytes per second
	free time.Time  // when what was let through so far is paid for
}

func (t *throttle) set(rate float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rate, t.free = rate, time.Time{}
}

// debt lets n bytes through and returns how long to wait before.
func (t *throttle) debt(n int, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.free.Before(now) {
		t.free = now
	}
	wait := t.free.Sub(now)
	if d := float64(n) / t.rate * float64(time.Second); d < math.MaxInt64/2 {
		t.free = t.free.Add(time.Duration(d))
	}
	return wait
}
