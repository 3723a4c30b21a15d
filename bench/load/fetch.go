package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"kaas/bench/frames"
)

const (
	dropBytes   = 32 << 10 // batch bytes from this many on are discarded in the kernel and not copied
	batchPeek   = frames.BatchLastDeltaAt + 4
	fetchWaitMs = 500
)

// FetchConfig describes a fetch run. Every connection reads its partitions from beginning to end, one request at a time,
// and begins anew.
type FetchConfig struct {
	Brokers     []string
	Topic       string
	Connections int
	MaxBytes    int // per answer
	// Alike says that all batches of a partition have the same size and number of records, as Produce writes them. Then only the
	// first batch of an answer is looked at, and the rest is discarded in the kernel; that the next answer begins with
	// exactly the batch that was expected is checked.
	Alike bool
	// Rate, if not 0, is how many requests per second are due over all connections; latency counts from when one was due. 0: each connection asks
	// again as soon as it has its answer.
	Rate float64
	// Consumed, if set, is told after each answer how many bytes of a partition have been read since its beginning; 0 when it is begun anew.
	Consumed func(partition int, bytes int64)
	Limits
	Progress Progress
}

func (c *FetchConfig) check() error {
	switch {
	case c.Connections < 1 || c.Connections > 60_000:
		return fmt.Errorf("connections: %d is not within 1 and 60000", c.Connections)
	case c.MaxBytes < 1 || c.MaxBytes > 1<<30:
		return fmt.Errorf("max bytes: %d is not within 1 and %d", c.MaxBytes, 1<<30)
	case len(c.Topic) == 0 || len(c.Topic) > 249:
		return errors.New("topic: no legal name")
	case c.Rate < 0:
		return errors.New("rate: negative")
	}
	return c.Limits.check()
}

type fetchPart struct {
	frame     []byte
	offsetAt  int
	first     int64
	partition int
	consumed  int64 // bytes since its beginning
}

type fetchConn struct {
	fd    int
	parts []fetchPart
	part  int   // index of the partition being read
	next  int64 // offset asked for
	open  bool  // a request is under way
	due   bool  // the next one waits for its time
	begun int64
	asked int32 // correlation id of that request
	sent  int   // bytes of it that are sent

	head     []byte // of the answer, until it is complete
	inBody   bool
	high     int64
	left     int // bytes of the record set still to come
	size     int // of the record set
	peek     []byte
	skip     int   // bytes of the current batch still to come
	batchEnd int64 // offset after the current batch
	records  int64
	bytes    int64 // of whole batches
}

type fetcher struct {
	cfg       FetchConfig
	poll      *poller
	conns     []fetchConn
	headBytes int
	requests  int64
	records   int64
	bytes     int64
	idle      int // connections that have stopped
	start     int64
	deadline  int64
	due       int64 // requests asked that had a time
	latency   *Recorder
}

// Fetch runs the load. It fails when there is nothing to read.
func Fetch(cfg FetchConfig) (Result, error) {
	f, err := newFetcher(cfg)
	if err != nil {
		return Result{}, err
	}
	defer f.close()
	cpu := CPUSeconds()
	if err := f.run(); err != nil {
		return Result{}, err
	}
	r := Result{
		Kind: "consume", Connections: len(f.conns), Seconds: float64(f.poll.now()-f.start) / 1e9, Requests: f.requests,
		Records: f.records, Bytes: f.bytes, ClientCPU: CPUSeconds() - cpu,
	}
	f.latency.Finish(&r)
	return r, nil
}

func newFetcher(cfg FetchConfig) (*fetcher, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	leaders, err := EnsureTopic(cfg.Brokers, cfg.Topic, 0)
	if err != nil {
		return nil, err
	}
	f := &fetcher{cfg: cfg, headBytes: frames.FetchAnswerBytes(len(cfg.Topic)), latency: NewRecorder()}
	first, filled, err := f.beginnings(leaders)
	if err != nil {
		return nil, err
	}
	if f.poll, err = newPoller(); err != nil {
		return nil, err
	}
	f.conns = make([]fetchConn, cfg.Connections)
	for i := range f.conns {
		c := &f.conns[i]
		c.fd = -1
		c.head, c.peek = make([]byte, 0, f.headBytes), make([]byte, 0, batchPeek)
		address := leaders[filled[i%len(filled)]]
		for n := i % len(filled); n < len(filled); n += len(f.conns) {
			p := filled[n]
			if leaders[p] != address {
				f.close()
				return nil, fmt.Errorf("partition %d has a leader of its own: use a connection for each", p)
			}
			frame, at := frames.Fetch(cfg.Topic, int32(p), fetchWaitMs, 1, int32(cfg.MaxBytes))
			c.parts = append(c.parts, fetchPart{frame: frame, offsetAt: at, first: first[p], partition: p})
		}
		c.next = c.parts[0].first
		if c.fd, err = f.poll.connect(address, i); err != nil {
			f.close()
			return nil, err
		}
	}
	return f, nil
}

// beginnings returns the log start of every partition, and the numbers of those that are not empty, at least one.
func (f *fetcher) beginnings(leaders []string) (first []int64, filled []int, err error) {
	first = make([]int64, len(leaders))
	controls := map[string]*Control{}
	for p, address := range leaders {
		if controls[address] == nil {
			c, err := Dial(address, 30*time.Second)
			if err != nil {
				return nil, nil, err
			}
			defer c.Close()
			controls[address] = c
		}
		last, err := controls[address].Offset(f.cfg.Topic, p, -1)
		if err == nil {
			first[p], err = controls[address].Offset(f.cfg.Topic, p, -2)
		}
		if err != nil {
			return nil, nil, err
		}
		if last > first[p] {
			filled = append(filled, p)
		}
	}
	if len(filled) == 0 {
		return nil, nil, fmt.Errorf("topic %s is empty", f.cfg.Topic)
	}
	return first, filled, nil
}

func (f *fetcher) close() {
	for i := range f.conns {
		if f.conns[i].fd > 0 {
			unix.Close(f.conns[i].fd)
		}
	}
	unix.Close(f.poll.fd)
}

func (f *fetcher) begin() error {
	f.start = f.poll.now()
	f.deadline = 1<<63 - 1
	if f.cfg.Duration > 0 {
		f.deadline = f.start + int64(f.cfg.Duration)
	}
	for i := range f.conns {
		if err := f.ask(&f.conns[i], f.start); err != nil {
			return err
		}
	}
	return nil
}

func (f *fetcher) run() error {
	if err := f.begin(); err != nil {
		return err
	}
	tick, lastBytes, lastMove := f.start, int64(0), f.start
	for f.idle < len(f.conns) {
		if err := f.turn(f.pause()); err != nil {
			return err
		}
		now := f.poll.now()
		if err := f.askDue(now); err != nil {
			return err
		}
		if now-tick > int64(time.Second) {
			tick = now
			f.latency.Sample(now-f.start, f.requests, f.bytes)
			if f.cfg.Stop != nil && f.cfg.Stop.Load() {
				f.deadline = now
			}
			if f.cfg.Progress != nil {
				f.cfg.Progress(time.Duration(now-f.start), f.requests, f.bytes)
			}
		}
		if f.bytes != lastBytes {
			lastBytes, lastMove = f.bytes, now
		} else if now-lastMove > int64(stallTimeout) {
			return fmt.Errorf("nothing read for %v", stallTimeout)
		}
	}
	return nil
}

// dueAt is when the next request is due.
func (f *fetcher) dueAt() int64 { return f.start + int64(float64(f.due)/f.cfg.Rate*1e9) }

// pause is how long turn may wait.
func (f *fetcher) pause() int64 {
	pause := int64(time.Second)
	if f.cfg.Rate > 0 {
		pause = min(pause, f.dueAt()-f.poll.now())
	}
	return pause
}

// askDue sends the requests whose time has come, by connections that have their answers.
func (f *fetcher) askDue(now int64) error {
	if f.cfg.Rate == 0 {
		return nil
	}
	for i := range f.conns {
		if c := &f.conns[i]; c.due && (f.dueAt() <= now || f.over(now)) {
			c.due = false
			if err := f.ask(c, now); err != nil {
				return err
			}
		}
	}
	return nil
}

// over tells whether a limit is reached.
func (f *fetcher) over(now int64) bool {
	l := &f.cfg.Limits
	return l.Requests > 0 && f.requests >= l.Requests || l.Bytes > 0 && f.bytes >= l.Bytes || l.Records > 0 && f.records >= l.Records || now >= f.deadline
}

// turn waits once and handles what happened.
func (f *fetcher) turn(pause int64) error {
	n, err := f.poll.wait(pause)
	if err != nil {
		return err
	}
	now := f.poll.now()
	for i := range f.poll.events[:n] {
		ev := &f.poll.events[i]
		c := &f.conns[ev.Fd]
		if c.open && c.sent < len(c.parts[c.part].frame) {
			if err := f.send(c); err != nil {
				return fmt.Errorf("connection %d: %w", ev.Fd, err)
			}
		}
		if ev.Events&^unix.EPOLLOUT != 0 {
			if err := f.read(c, now); err != nil {
				return fmt.Errorf("connection %d: %w", ev.Fd, err)
			}
		}
	}
	return nil
}

// ask sends the next request of c, or lets c rest when a limit is reached.
func (f *fetcher) ask(c *fetchConn, now int64) error {
	if f.over(now) {
		f.idle++
		return nil
	}
	if f.cfg.Rate > 0 {
		due := f.dueAt()
		if c.due = due > now; c.due {
			return nil
		}
		now = due
		f.due++
	}
	p := &c.parts[c.part]
	c.asked++
	frames.SetCorrelation(p.frame, c.asked)
	binary.BigEndian.PutUint64(p.frame[p.offsetAt:], uint64(c.next))
	c.open, c.begun, c.sent = true, now, 0
	c.head, c.inBody = c.head[:0], false
	return f.send(c)
}

func (f *fetcher) send(c *fetchConn) error {
	f.poll.setIov(0, c.parts[c.part].frame[c.sent:])
	n, err := f.poll.writev(c.fd, 1)
	c.sent += n
	return err
}

// read takes what has arrived.
func (f *fetcher) read(c *fetchConn, now int64) error {
	for more := true; more; {
		buf, drop := f.poll.buf, 0
		switch {
		case !c.open: // nothing may come; take says so
		case c.skip >= dropBytes || f.cfg.Alike && c.skip > 0:
			drop = c.skip
		case f.cfg.Alike && !c.inBody:
			buf = buf[:f.headBytes-len(c.head)+batchPeek]
		case f.cfg.Alike:
			buf = buf[:batchPeek-len(c.peek)]
		}
		n, again, err := recv(c.fd, buf, drop)
		if err != nil {
			return err
		}
		more = again
		if drop > 0 {
			f.pass(c, n)
		} else if err := f.take(c, buf[:n]); err != nil {
			return err
		}
		if c.open && c.inBody && c.left == 0 {
			if err := f.finish(c, now); err != nil {
				return err
			}
		}
	}
	return nil
}

// take reads bytes of one answer: its head, then the heads of its batches.
func (f *fetcher) take(c *fetchConn, b []byte) error {
	if len(b) > 0 && !c.open {
		return fmt.Errorf("bytes that nobody asked for: %w", frames.ErrMalformed)
	}
	if !c.inBody {
		n := min(len(b), f.headBytes-len(c.head))
		c.head = append(c.head, b[:n]...)
		b = b[n:]
		if len(c.head) < f.headBytes {
			return f.checkShort(c)
		}
		if err := f.openBody(c); err != nil {
			return err
		}
	}
	if len(b) > c.left {
		return fmt.Errorf("%d bytes after the answer: %w", len(b)-c.left, frames.ErrMalformed)
	}
	for len(b) > 0 {
		if c.skip > 0 {
			n := min(len(b), c.skip)
			f.pass(c, n)
			b = b[n:]
			continue
		}
		n := min(len(b), batchPeek-len(c.peek))
		c.peek = append(c.peek, b[:n]...)
		c.left -= n
		b = b[n:]
		if len(c.peek) == batchPeek {
			if err := f.openBatch(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkShort refuses an answer that is too short to have a partition in it.
func (f *fetcher) checkShort(c *fetchConn) error {
	if len(c.head) >= 4 && int(binary.BigEndian.Uint32(c.head)) < f.headBytes-4 {
		return fmt.Errorf("answer of %d bytes: %w", binary.BigEndian.Uint32(c.head), frames.ErrMalformed)
	}
	return nil
}

func (f *fetcher) openBody(c *fetchConn) (err error) {
	if id := int32(binary.BigEndian.Uint32(c.head[4:])); id != c.asked {
		return fmt.Errorf("answer %d to request %d: %w", id, c.asked, frames.ErrMalformed)
	}
	if c.high, c.size, err = frames.FetchHead(c.head, f.cfg.Topic); err != nil {
		return err
	}
	c.inBody, c.left, c.skip = true, c.size, 0
	c.peek, c.records, c.bytes, c.batchEnd = c.peek[:0], 0, 0, c.next
	return nil
}

func (f *fetcher) openBatch(c *fetchConn) error {
	be := binary.BigEndian
	base := int64(be.Uint64(c.peek))
	length := frames.BatchLengthEnd + int(int32(be.Uint32(c.peek[frames.BatchLengthAt:])))
	count := int64(be.Uint32(c.peek[frames.BatchLastDeltaAt:])) + 1
	if length < frames.BatchHeader || c.peek[frames.BatchMagicAt] != 2 || base+count <= c.next || base < c.batchEnd && c.batchEnd > c.next {
		return fmt.Errorf("batch at %d of %d bytes and %d records, asked for %d: %w", base, length, count, c.next, frames.ErrMalformed)
	}
	if f.cfg.Alike {
		whole := int64(c.size / length)
		if base != c.next || whole == 0 {
			return fmt.Errorf("batches are not alike: one of %d bytes begins at %d, %d was asked for, in %d bytes", length, base, c.next, c.size)
		}
		c.records, c.bytes, c.batchEnd, c.skip = whole*count, whole*int64(length), base+whole*count, c.left
		return nil
	}
	if c.skip = length - batchPeek; c.skip <= c.left { // else the rest of this batch was cut off
		c.batchEnd = base + count
		c.records += count
		c.bytes += int64(length)
	} else {
		c.skip = c.left
	}
	c.peek = c.peek[:0]
	return nil
}

// pass skips n bytes of the current batch.
func (f *fetcher) pass(c *fetchConn, n int) {
	c.skip -= n
	c.left -= n
}

// finish counts a whole answer and asks again.
func (f *fetcher) finish(c *fetchConn, now int64) error {
	if c.size > 0 && c.batchEnd == c.next {
		return fmt.Errorf("no whole batch in %d bytes at offset %d: %w", c.size, c.next, frames.ErrMalformed)
	}
	c.open = false
	f.requests++
	f.records += c.records
	f.bytes += c.bytes
	f.latency.Record(now - c.begun)
	c.next = c.batchEnd
	f.consumed(c, c.bytes)
	if c.next >= c.high {
		c.part = (c.part + 1) % len(c.parts)
		c.next = c.parts[c.part].first
		c.parts[c.part].consumed = 0
		f.consumed(c, 0)
	}
	return f.ask(c, now)
}

// consumed tells of so many more bytes of the partition that is being read.
func (f *fetcher) consumed(c *fetchConn, more int64) {
	p := &c.parts[c.part]
	p.consumed += more
	if f.cfg.Consumed != nil {
		f.cfg.Consumed(p.partition, p.consumed)
	}
}
