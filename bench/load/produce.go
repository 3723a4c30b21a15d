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
	pipelineMax  = 1 << 14
	inlineBytes  = 8 << 10 // frames up to this size are laid out in a row, so that one piece of a writev covers many
	stallTimeout = 60 * time.Second
	produceWait  = 30_000 // ms, the timeout in the requests
)

// ProduceConfig describes a produce run.
type ProduceConfig struct {
	Brokers     []string
	Topic       string
	Partitions  int // the topic is created with so many; 0: it must exist
	Connections int
	Pipeline    int // requests in flight per connection
	BatchBytes  int // one batch per request, as many records as fit
	RecordBytes int // of the value
	Acks        int
	Rate        float64 // requests per second over all connections; 0: as fast as the answers come
	RecordRate  float64 // records per second, instead of Rate
	Compression string  // one of frames.Compressions; empty: none
	Limits
	Progress Progress
}

func (c *ProduceConfig) check() error {
	switch {
	case c.Connections < 1 || c.Connections > 60_000:
		return fmt.Errorf("connections: %d is not within 1 and 60000", c.Connections)
	case c.Pipeline < 1 || c.Pipeline > pipelineMax:
		return fmt.Errorf("pipeline: %d is not within 1 and %d", c.Pipeline, pipelineMax)
	case c.Acks < -1 || c.Acks > 1:
		return fmt.Errorf("acks: %d is not -1, 0 or 1", c.Acks)
	case c.Rate < 0 || c.RecordRate < 0:
		return errors.New("rate: negative")
	case len(c.Topic) == 0 || len(c.Topic) > 249:
		return errors.New("topic: no legal name")
	}
	return c.Limits.check()
}

func (l Limits) check() error {
	if l.Requests <= 0 && l.Bytes <= 0 && l.Records <= 0 && l.Duration <= 0 {
		return errors.New("no limit: give a number of requests, of records, of bytes, or a duration")
	}
	return nil
}

// slots are the request frames of the connections that write the same partitions: slot i, with correlation id i, is
// frame i, i+count, i+2·count, … of a connection. They are never changed.
type slots struct {
	bytes []byte
	each  int // head alone, or head and batch when inline
	count int
}

type produceConn struct {
	fd                   int
	slots                *slots
	started, sent, acked int64 // frames: begun, wholly sent, answered
	sentPart             int   // bytes of frame number sent that are sent already
	due                  int64 // open loop: frames that the schedule has released
	index                int64
	begun                []int64 // by slot: when it was sent
	rest                 []byte  // of an answer not yet complete
	throttledMs          int64
}

type producer struct {
	cfg        ProduceConfig
	poll       *poller
	conns      []produceConn
	batch      []byte
	records    int
	inline     bool
	frameBytes int
	answer     int // bytes
	errorAt    int
	launched   int64 // frames begun by all connections
	acked      int64
	limit      int64
	deadline   int64 // ns
	start      int64
	scheduled  int64 // open loop: frames released
	interval   float64
	latency    *Recorder
	late       Histogram
}

// Produce runs the load and returns when everything sent is answered (acks 0: sent).
func Produce(cfg ProduceConfig) (Result, error) {
	p, err := newProducer(cfg)
	if err != nil {
		return Result{}, err
	}
	defer p.close()
	cpu := CPUSeconds()
	if err := p.run(); err != nil {
		return Result{}, err
	}
	return p.result(CPUSeconds() - cpu), nil
}

func newProducer(cfg ProduceConfig) (*producer, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	leaders, err := EnsureTopic(cfg.Brokers, cfg.Topic, cfg.Partitions)
	if err != nil {
		return nil, err
	}
	p := &producer{cfg: cfg, latency: NewRecorder(), late: newHistogram()}
	if p.batch, p.records, err = frames.CompressedBatch(cfg.BatchBytes, cfg.RecordBytes, time.Now().UnixMilli(), cfg.Compression); err != nil {
		return nil, err
	}
	p.frameBytes = frames.ProduceHeadBytes(len(cfg.Topic)) + len(p.batch)
	p.inline = p.frameBytes <= inlineBytes
	p.answer, p.errorAt = frames.ProduceAnswerBytes(len(cfg.Topic)), frames.ProduceErrorAt(len(cfg.Topic))
	p.limit = 1<<63 - 1
	if cfg.Requests > 0 {
		p.limit = cfg.Requests
	}
	if cfg.Bytes > 0 {
		p.limit = min(p.limit, max((cfg.Bytes+int64(len(p.batch))-1)/int64(len(p.batch)), 1))
	}
	if cfg.Records > 0 {
		p.limit = min(p.limit, max((cfg.Records+int64(p.records)-1)/int64(p.records), 1))
	}
	if cfg.RecordRate > 0 {
		cfg.Rate = cfg.RecordRate / float64(p.records)
	}
	if cfg.Rate > 0 {
		p.interval = 1e9 / cfg.Rate
	}
	if p.poll, err = newPoller(); err != nil {
		return nil, err
	}
	if err := p.connect(leaders); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// connect opens the connections. With more connections than partitions several write the same one, else each writes every
// n-th partition in turn.
func (p *producer) connect(leaders []string) error {
	p.conns = make([]produceConn, p.cfg.Connections)
	for i := range p.conns {
		p.conns[i].fd = -1
	}
	made := map[int]*slots{}
	for i := range p.conns {
		first := i % len(leaders)
		if made[first] == nil {
			var own []int
			for part := first; part < len(leaders); part += len(p.conns) {
				own = append(own, part)
				if leaders[part] != leaders[first] || leaders[part] == "" {
					return fmt.Errorf("partitions %d and %d have different leaders or none: use a connection for each", first, part)
				}
			}
			made[first] = p.makeSlots(own)
		}
		fd, err := p.poll.connect(leaders[first], i)
		if err != nil {
			return err
		}
		s := made[first]
		p.conns[i] = produceConn{fd: fd, index: int64(i), slots: s, begun: make([]int64, s.count), rest: make([]byte, 0, p.answer)}
	}
	return nil
}

func (p *producer) makeSlots(partitions []int) *slots {
	n := len(partitions)
	s := &slots{count: (p.cfg.Pipeline + n - 1) / n * n}
	for i := range s.count {
		head := frames.ProduceHead(p.cfg.Topic, int32(partitions[i%n]), int16(p.cfg.Acks), produceWait, len(p.batch))
		frames.SetCorrelation(head, int32(i))
		s.bytes = append(s.bytes, head...)
		if p.inline {
			s.bytes = append(s.bytes, p.batch...)
		}
	}
	s.each = len(s.bytes) / s.count
	return s
}

func (p *producer) close() {
	for i := range p.conns {
		if p.conns[i].fd >= 0 {
			unix.Close(p.conns[i].fd)
		}
	}
	unix.Close(p.poll.fd)
}

func (p *producer) result(cpu float64) Result {
	r := Result{
		Kind: "produce", Connections: len(p.conns), Seconds: float64(p.poll.now()-p.start) / 1e9, Requests: p.acked,
		Records: p.acked * int64(p.records), Bytes: p.acked * int64(len(p.batch)), ClientCPU: cpu,
		OpenLoop: p.interval > 0, Late: p.late.Percentiles(),
	}
	p.latency.Finish(&r)
	for i := range p.conns {
		r.ThrottledMs += p.conns[i].throttledMs
	}
	return r
}

// begin starts the clock and fills the windows.
func (p *producer) begin(begun func()) error {
	p.start = p.poll.now()
	begun()
	p.deadline = 1<<63 - 1
	if p.cfg.Duration > 0 {
		p.deadline = p.start + int64(p.cfg.Duration)
	}
	if p.interval > 0 {
		return p.release(p.start)
	}
	for i := range p.conns {
		if err := p.pump(&p.conns[i], p.start); err != nil {
			return err
		}
	}
	return nil
}

func (p *producer) run() error { return p.runWith(func() {}) }

// runWith is run with a function that is called when the clock has been started.
func (p *producer) runWith(begun func()) error {
	if err := p.begin(begun); err != nil {
		return err
	}
	tick, lastAcked, lastMove := p.start, int64(0), p.start
	for {
		now := p.poll.now()
		if p.done(now) {
			return nil
		}
		if err := p.turn(p.pause(now)); err != nil {
			return err
		}
		if now-tick > int64(time.Second) {
			tick = now
			p.latency.Sample(now-p.start, p.acked, p.acked*int64(len(p.batch)))
			if p.cfg.Stop != nil && p.cfg.Stop.Load() {
				p.deadline = now
			}
			if p.cfg.Progress != nil {
				p.cfg.Progress(time.Duration(now-p.start), p.acked, p.acked*int64(len(p.batch)))
			}
		}
		if p.acked != lastAcked || p.acked == p.launched {
			lastAcked, lastMove = p.acked, now
		} else if now-lastMove > int64(stallTimeout) {
			return fmt.Errorf("no answer for %v; %d requests are open", stallTimeout, p.launched-p.acked)
		}
	}
}

func (p *producer) done(now int64) bool {
	return p.acked == p.launched && (p.launched >= p.limit || now >= p.deadline)
}

// pause is how long the loop may wait for events.
func (p *producer) pause(now int64) int64 {
	until := min(now+int64(time.Second), max(p.deadline, now+int64(time.Millisecond)))
	if p.interval > 0 && p.scheduled < p.limit && now < p.deadline {
		until = min(until, p.dueAt(p.scheduled))
	}
	return until - now
}

func (p *producer) dueAt(frame int64) int64 { return p.start + int64(float64(frame)*p.interval) }

// turn waits once and handles what happened.
func (p *producer) turn(pause int64) error {
	n, err := p.poll.wait(pause)
	if err != nil {
		return err
	}
	now := p.poll.now()
	for i := range p.poll.events[:n] {
		ev := &p.poll.events[i]
		c := &p.conns[ev.Fd]
		if ev.Events&(unix.EPOLLIN|unix.EPOLLHUP|unix.EPOLLERR|unix.EPOLLRDHUP) != 0 {
			if err := p.read(c, now); err != nil {
				return fmt.Errorf("connection %d: %w", ev.Fd, err)
			}
		}
		if err := p.pump(c, now); err != nil {
			return fmt.Errorf("connection %d: %w", ev.Fd, err)
		}
	}
	if p.interval > 0 {
		return p.release(now)
	}
	return nil
}

// release hands every frame that is due by now to its connection: frame i belongs to connection i mod n.
func (p *producer) release(now int64) error {
	for p.scheduled < p.limit && now < p.deadline && p.dueAt(p.scheduled) <= now {
		c := &p.conns[p.scheduled%int64(len(p.conns))]
		p.late.Record(now - p.dueAt(p.scheduled))
		p.scheduled++
		c.due++
		if err := p.pump(c, now); err != nil {
			return err
		}
	}
	return nil
}

// pump begins as many frames as window and schedule allow, and sends what the socket takes. With acks 0 a frame is done when
// it is sent, so that there is always room for more until the socket is full.
func (p *producer) pump(c *produceConn, now int64) error {
	for p.fill(c, now); c.sent < c.started; p.fill(c, now) {
		n, err := p.poll.writev(c.fd, p.gather(c))
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		n += c.sentPart
		c.sent += int64(n / p.frameBytes)
		c.sentPart = n % p.frameBytes
		if p.cfg.Acks == 0 {
			for now = p.poll.now(); c.acked < c.sent; {
				p.answered(c, now)
			}
		}
	}
	return nil
}

// fill begins frames of c.
func (p *producer) fill(c *produceConn, now int64) {
	for c.started-c.acked < int64(p.cfg.Pipeline) {
		if p.interval > 0 {
			if c.started >= c.due {
				return
			}
		} else if p.launched >= p.limit || now >= p.deadline {
			return
		}
		c.begun[c.started%int64(c.slots.count)] = now
		c.started++
		p.launched++
	}
}

// dueOf is when frame number k of c is due.
func (p *producer) dueOf(c *produceConn, k int64) int64 {
	return p.dueAt(k*int64(len(p.conns)) + c.index)
}

// gather sets the pieces of what c has to send, and returns their number.
func (p *producer) gather(c *produceConn) (pieces int) {
	s := c.slots
	for frame, part := c.sent, c.sentPart; frame < c.started && pieces+2 <= len(p.poll.iov); part = 0 {
		slot := int(frame % int64(s.count))
		if p.inline {
			run := min(s.count-slot, int(c.started-frame))
			p.poll.setIov(pieces, s.bytes[slot*s.each+part:(slot+run)*s.each])
			pieces++
			frame += int64(run)
			continue
		}
		if part < s.each {
			p.poll.setIov(pieces, s.bytes[slot*s.each+part:(slot+1)*s.each])
			pieces++
			part = s.each
		}
		p.poll.setIov(pieces, p.batch[part-s.each:])
		pieces++
		frame++
	}
	return pieces
}

// read takes the answers that have arrived.
func (p *producer) read(c *produceConn, now int64) error {
	for more := true; more; {
		buf := p.poll.buf
		kept := copy(buf, c.rest)
		n, again, err := recv(c.fd, buf[kept:], 0)
		if err != nil {
			return err
		}
		more = again
		data := buf[:kept+n]
		for len(data) >= p.answer {
			if err := p.take(c, data[:p.answer], now); err != nil {
				return err
			}
			data = data[p.answer:]
		}
		if len(data) >= 4 && int(binary.BigEndian.Uint32(data)) != p.answer-4 {
			return fmt.Errorf("answer of %d bytes, not %d: %w", binary.BigEndian.Uint32(data), p.answer-4, frames.ErrMalformed)
		}
		c.rest = append(c.rest[:0], data...)
	}
	return nil
}

// take checks one answer.
func (p *producer) take(c *produceConn, b []byte, now int64) error {
	be := binary.BigEndian
	if int(be.Uint32(b)) != p.answer-4 || c.acked >= c.started {
		return fmt.Errorf("answer of %d bytes to request %d of %d: %w", be.Uint32(b), c.acked, c.started, frames.ErrMalformed)
	}
	slot := c.acked % int64(c.slots.count)
	if id := be.Uint32(b[4:]); int64(id) != slot {
		return fmt.Errorf("answer %d where %d was next: %w", id, slot, frames.ErrMalformed)
	}
	if code := int16(be.Uint16(b[p.errorAt:])); code != 0 {
		return &frames.Error{What: "produce", Code: code}
	}
	c.throttledMs += int64(be.Uint32(b[p.answer-4:]))
	p.answered(c, now)
	return nil
}

// answered counts the oldest open frame of c as done.
func (p *producer) answered(c *produceConn, now int64) {
	from := c.begun[c.acked%int64(c.slots.count)]
	if p.interval > 0 {
		from = p.dueOf(c, c.acked)
	}
	p.latency.Record(now - from)
	c.acked++
	p.acked++
}
