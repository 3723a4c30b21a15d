package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"kaas/bench/frames"
)

// tailPartitionsMax bounds the threads of an end-to-end run, one for each partition.
const tailPartitionsMax = 256

// tailWaitMs is how long a tail reader's request may stay parked; it ends its run within this time of the last record.
const tailWaitMs = 200

// EndToEnd produces at a rate of cfg, one of which must be set, and reads each partition at its end, by a connection and a thread of its own. It
// returns the result of the producing side, with the latency of acknowledgements, and that of the reading side, whose latency
// counts from the time at which a batch was due until it has been read.
//
// No record carries a time: a partition is written by one connection in a known order, so that an offset tells when its record
// was due. Hence nobody else may write to the topic, and there are at most as many connections as partitions.
func EndToEnd(cfg ProduceConfig) (written, read Result, err error) {
	if cfg.Rate <= 0 && cfg.RecordRate <= 0 {
		return written, read, errors.New("end to end: needs a rate")
	}
	if cfg.Acks == 0 {
		return written, read, errors.New("end to end: needs acknowledgements, else a lost record would not be noticed")
	}
	leaders, err := EnsureTopic(cfg.Brokers, cfg.Topic, cfg.Partitions)
	if err != nil {
		return written, read, err
	}
	if len(leaders) > tailPartitionsMax {
		return written, read, fmt.Errorf("end to end: %d partitions, more than %d", len(leaders), tailPartitionsMax)
	}
	cfg.Connections = min(cfg.Connections, len(leaders))
	p, err := newProducer(cfg)
	if err != nil {
		return written, read, err
	}
	defer p.close()
	t := &tails{p: p, begun: make(chan struct{}), latency: NewRecorder()}
	if err := t.open(leaders); err != nil {
		t.close()
		return written, read, err
	}
	cpu := CPUSeconds()
	for i := range t.readers {
		t.group.Add(1)
		go t.follow(&t.readers[i])
	}
	err = p.runWith(func() { close(t.begun) })
	t.finish(err)
	if err := errors.Join(err, t.err); err != nil {
		return written, read, err
	}
	used := CPUSeconds() - cpu
	read = Result{
		Kind: "e2e", Connections: len(t.readers), Seconds: float64(p.poll.now()-p.start) / 1e9, Requests: t.batches, Records: t.records, Bytes: t.bytes,
		ClientCPU: used, OpenLoop: true, Late: p.late.Percentiles(),
	}
	t.latency.Finish(&read)
	return p.result(used), read, nil
}

// tail reads one partition.
type tail struct {
	fd        int
	partition int
	frame     []byte
	offsetAt  int
	from      int64 // end of the partition when the run began
	next      int64
	buf       []byte
}

type tails struct {
	p       *producer
	begun   chan struct{}
	readers []tail
	group   sync.WaitGroup
	ended   atomic.Bool // the producer is done

	mu      sync.Mutex // guards what follows
	latency *Recorder
	batches int64
	records int64
	bytes   int64
	err     error
}

func (t *tails) open(leaders []string) error {
	t.readers = make([]tail, 0, len(leaders))
	for i, address := range leaders {
		c, err := Dial(address, 30*time.Second)
		if err != nil {
			return err
		}
		r := tail{partition: i}
		r.from, err = c.Offset(t.p.cfg.Topic, i, -1)
		c.Close()
		if err != nil {
			return err
		}
		r.next = r.from
		r.frame, r.offsetAt = frames.Fetch(t.p.cfg.Topic, int32(i), tailWaitMs, 1, 1<<20)
		if r.fd, err = connect(address); err != nil {
			return err
		}
		t.readers = append(t.readers, r)
	}
	return nil
}

// finish waits for the readers: with an error of the producer they are cut off.
func (t *tails) finish(failed error) {
	t.ended.Store(true)
	if failed != nil {
		select {
		case <-t.begun:
		default:
			close(t.begun)
		}
		for i := range t.readers {
			// Wakes the reader; that its call then fails is no news.
			_ = unix.Shutdown(t.readers[i].fd, unix.SHUT_RDWR)
		}
	}
	t.group.Wait()
	t.close()
}

func (t *tails) close() {
	for i := range t.readers {
		unix.Close(t.readers[i].fd)
	}
}

// wanted is the offset at which the partition ends once all that was acknowledged is in it. Valid when the producer is done.
func (t *tails) wanted(r *tail) int64 {
	conns := len(t.p.conns)
	c := &t.p.conns[r.partition%conns]
	n := int64(partitionsOf(len(t.readers), conns, r.partition%conns))
	j := int64(r.partition / conns)
	return r.from + (c.acked-j+n-1)/n*int64(t.p.records)
}

// partitionsOf is how many of so many partitions the given connection writes.
func partitionsOf(partitions, conns, conn int) int { return (partitions - conn + conns - 1) / conns }

// dueOf is when the batch with the given offset was due.
func (t *tails) dueOf(r *tail, offset int64) int64 {
	conns := len(t.p.conns)
	n := int64(partitionsOf(len(t.readers), conns, r.partition%conns))
	frame := (offset-r.from)/int64(t.p.records)*n + int64(r.partition/conns)
	return t.p.dueOf(&t.p.conns[r.partition%conns], frame)
}

func (t *tails) follow(r *tail) {
	defer t.group.Done()
	<-t.begun
	for !t.ended.Load() || r.next < t.wanted(r) {
		if err := t.step(r); err != nil {
			t.mu.Lock()
			t.err = errors.Join(t.err, fmt.Errorf("reading partition %d: %w", r.partition, err))
			t.mu.Unlock()
			return
		}
	}
}

// step asks once and takes the answer. Its socket blocks, in a thread of its own: a wake-up by the scheduler would be measured too.
func (t *tails) step(r *tail) error {
	binary.BigEndian.PutUint64(r.frame[r.offsetAt:], uint64(r.next))
	if _, err := unix.Write(r.fd, r.frame); err != nil {
		return err
	}
	head, err := r.receive(frames.FetchAnswerBytes(len(t.p.cfg.Topic)))
	if err != nil {
		return err
	}
	_, size, err := frames.FetchHead(head, t.p.cfg.Topic)
	if err != nil || size == 0 {
		return err
	}
	set, err := r.receive(size)
	if err != nil {
		return err
	}
	now := t.p.poll.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(set) >= frames.BatchHeader {
		be := binary.BigEndian
		base, length := int64(be.Uint64(set)), frames.BatchLengthEnd+int(be.Uint32(set[frames.BatchLengthAt:]))
		count := int64(be.Uint32(set[frames.BatchLastDeltaAt:])) + 1
		if length > len(set) {
			break
		}
		if base != r.next || count != int64(t.p.records) {
			return fmt.Errorf("batch at %d of %d records where one of %d at %d was next: %w", base, count, t.p.records, r.next, frames.ErrMalformed)
		}
		t.latency.Record(now - t.dueOf(r, base))
		t.batches++
		t.records += count
		t.bytes += int64(length)
		r.next += count
		set = set[length:]
	}
	t.sample(now - t.p.start)
	return nil
}

// sample ends an interval of the reading side once a second. t.mu is held.
func (t *tails) sample(at int64) {
	if at-t.latency.at >= int64(time.Second) {
		t.latency.Sample(at, t.batches, t.bytes)
	}
}

// receive reads n bytes; they are valid until the next call.
func (r *tail) receive(n int) ([]byte, error) {
	if n > answerBytesMax {
		return nil, fmt.Errorf("%d bytes: %w", n, frames.ErrMalformed)
	}
	if n > len(r.buf) {
		r.buf = make([]byte, n)
	}
	for have := 0; have < n; {
		got, err := unix.Read(r.fd, r.buf[have:n])
		switch {
		case err == unix.EINTR:
		case err != nil:
			return nil, err
		case got == 0:
			return nil, errClosed
		default:
			have += got
		}
	}
	return r.buf[:n], nil
}
