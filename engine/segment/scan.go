package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"kaas/engine/vfs"
)

// scanWindow is what a scan reads at a time: it stays in the cache of the core between the read and the CRC; 1 MiB was up to a tenth slower.
const scanWindow = 256 << 10

var scanBuffers = sync.Pool{New: func() any { b := make([]byte, scanWindow); return &b }}

// ScanOptions say what a scan does besides finding the end of the good data.
type ScanOptions struct {
	Verify   bool  // check CRCs; without it headers only
	Index    bool  // empty the indexes and build them again
	Interval int   // bytes between index entries
	From     int64 // position to begin at; 0 with Index
	// Batch, if set, sees every good batch. data is the batch with Verify, its header without; valid during the call.
	Batch func(info *BatchInfo, pos int64, data []byte) error
}

// ScanResult is where the good data ends and why.
type ScanResult struct {
	End     int64 // position after the last good batch
	Next    int64 // offset after it
	File    int64 // length of the file
	Torn    bool  // what follows End is not all zeros
	Damage  error // what is wrong at End, when Torn
	Batches int64
}

// Open takes over an existing file without reading it: everything in it counts, up to offset next. For segments that were
// sealed or closed cleanly. ErrTxnIndex: it has to be scanned instead.
func (s *Segment) Open(next int64) error {
	size, err := s.files.FS.Size(s.path(LogSuffix))
	if err != nil {
		return err
	}
	s.allocated = size
	s.size.Store(size)
	s.next.Store(next)
	s.sealed.Store(true)
	s.index.adopt()
	s.times.adopt()
	return s.txns.load(s, next)
}

// Scan reads batches until the data ends: at the end of the file, at a batch that does not verify, is not whole, or goes
// back in offsets. It sets the segment's size, next offset and timestamps to what it found. Writer.
func (s *Segment) Scan(o ScanOptions) (ScanResult, error) {
	r, err := s.Acquire()
	if err != nil {
		return ScanResult{}, err
	}
	defer r.Release()
	size, err := r.file.Size()
	if err != nil {
		return ScanResult{}, err
	}
	res := ScanResult{End: o.From, Next: s.next.Load(), File: size}
	if o.From == 0 {
		res.Next = s.base
		s.firstTime.Store(-1)
		s.maxTime.Store(-1)
		s.maxTimeAt.Store(-1)
	}
	if o.Index {
		s.index.reset()
		s.times.reset()
		s.sinceIndex, s.lastTime = 0, -1<<63
		s.resetAborted()
	}
	s.recent.reset()
	s.hints.reset()
	s.sealed.Store(false)
	s.allocated = size
	s.size.Store(o.From)
	buf := scanBuffers.Get().(*[]byte)
	defer scanBuffers.Put(buf)
	sc := scanner{file: r.file, size: size, buf: *buf}
	var info BatchInfo // one for all: it escapes
	for {
		var data []byte
		data, info, err = s.scanOne(&sc, res.End, res.Next, o.Verify)
		if err != nil {
			if err != io.EOF {
				res.Damage = &CorruptError{File: s.path(LogSuffix), Offset: res.End, Err: err}
			}
			break
		}
		if o.Batch != nil {
			if err := o.Batch(&info, res.End, data); err != nil {
				return res, err
			}
		}
		s.noteScanned(&info, &o)
		res.End += int64(info.Size)
		res.Next = info.LastOffset() + 1
		res.Batches++
	}
	s.next.Store(res.Next)
	if sc.err != nil {
		return res, sc.err
	}
	if res.Damage != nil {
		zero, err := sc.zeros(res.End)
		if err != nil {
			return res, err
		}
		res.Torn = !zero
		if zero {
			res.Damage = nil
		}
	}
	return res, nil
}

func (s *Segment) noteScanned(info *BatchInfo, o *ScanOptions) {
	opt := Options{IndexInterval: o.Interval}
	if !o.Index && o.From == 0 {
		opt.IndexInterval = int(^uint(0) >> 1) // the entries exist
	}
	s.Note(info, &opt)
}

var errBack = errors.New("offset goes back")

// scanOne reads the batch at pos. io.EOF: the file ends there exactly. Other errors: no good batch there.
func (s *Segment) scanOne(sc *scanner, pos, next int64, verify bool) ([]byte, BatchInfo, error) {
	if pos == sc.size {
		return nil, BatchInfo{}, io.EOF
	}
	head := sc.at(pos, HeaderSize)
	if head == nil {
		return nil, BatchInfo{}, ErrShort
	}
	size, info, err := s.format.Peek(head)
	if err != nil {
		return nil, info, err
	}
	if size < HeaderSize || int64(size) > sc.size-pos {
		return nil, info, fmt.Errorf("batch size %d, %d bytes left", size, sc.size-pos)
	}
	if verify {
		data := sc.at(pos, size)
		if data == nil {
			return nil, info, ErrShort
		}
		if size, info, err = s.format.Next(data); err != nil {
			return nil, info, err
		}
		head = data[:size]
	}
	info.Size = size
	if info.BaseOffset < next || info.LastOffsetDelta < 0 {
		return nil, info, fmt.Errorf("%w: %d after %d", errBack, info.BaseOffset, next-1)
	}
	return head, info, nil
}

// scanner reads a file through a window.
type scanner struct {
	file vfs.File
	size int64
	buf  []byte
	from int64
	n    int
	err  error             // of a read: not damage of the data, and so not to be cut away
	ask  func(n int) error // if set, asked before each read
}

// at returns n bytes at pos, or nil when the file has fewer or cannot be read.
func (c *scanner) at(pos int64, n int) []byte {
	if pos >= c.from && pos+int64(n) <= c.from+int64(c.n) {
		return c.buf[pos-c.from:][:n]
	}
	if int64(n) > c.size-pos {
		return nil
	}
	if n > len(c.buf) {
		c.buf = make([]byte, n) // a batch larger than the window; it is in the file, so this is bounded by what is there
	}
	want := c.buf[:min(int64(len(c.buf)), c.size-pos)]
	if c.ask != nil {
		if c.err = c.ask(len(want)); c.err != nil {
			return nil
		}
	}
	got, err := c.file.ReadAt(want, pos)
	c.from, c.n = pos, got
	if got < n {
		if err != io.EOF {
			c.err = err
		}
		return nil
	}
	return c.buf[:n]
}

// zeros reports whether the file has only zeros from pos on.
func (c *scanner) zeros(pos int64) (bool, error) {
	for pos < c.size {
		n := int(min(int64(len(c.buf)), c.size-pos))
		b := c.at(pos, n)
		if b == nil {
			return false, c.err
		}
		for _, x := range b {
			if x != 0 {
				return false, nil
			}
		}
		pos += int64(n)
	}
	return true, nil
}

// rebuildIndex makes the offset and time index anew from the log while others read and the writer may append.
func (s *Segment) rebuildIndex() error {
	s.rebuildMu.Lock()
	defer s.rebuildMu.Unlock()
	if s.rebuilt.Load() {
		return nil
	}
	fresh := s.files.New(s.format, s.dir, s.base, time.UnixMilli(s.createdMs))
	r, err := s.Acquire()
	if err != nil {
		return err
	}
	defer r.Release()
	w := walk{s: s, r: r, end: s.size.Load(), win: windows.Get().(*window)}
	defer windows.Put(w.win)
	o := Options{IndexInterval: indexRebuildInterval}
	for {
		p, info, err := w.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		info.Size = p.Size
		fresh.noteInMemory(&info, &o)
	}
	if s.sealed.Load() {
		fresh.timeEntry() // the segment's greatest is the last entry: look-ups by time pass a segment over by it
	}
	s.index.replace(fresh.index.tail)
	s.times.replace(fresh.times.tail)
	s.rebuilt.Store(true)
	if !s.sealed.Load() || s.retired.Load() || s.stage.Load() != stageNone {
		return nil
	}
	if err := s.times.flush(true, false, false); err != nil { // first, as in save
		return err
	}
	return s.index.flush(true, false, false)
}

// indexRebuildInterval is Kafka's default for index.interval.bytes; a rebuilt index may be denser than the topic asks.
const indexRebuildInterval = 4096

func (s *Segment) noteInMemory(info *BatchInfo, o *Options) {
	at, last := s.size.Load(), info.LastOffset()
	if info.MaxTimestamp > s.maxTime.Load() {
		s.maxTime.Store(info.MaxTimestamp)
		s.maxTimeAt.Store(last)
	}
	if s.sinceIndex > o.IndexInterval {
		var e entry
		binary.BigEndian.PutUint32(e[:], uint32(last-s.base))
		binary.BigEndian.PutUint32(e[4:], uint32(at))
		s.index.add(e[:offsetEntry])
		s.timeEntry()
		s.sinceIndex = 0
	}
	s.sinceIndex += info.Size
	s.size.Store(at + int64(info.Size))
}

// OpenTail takes over the last segment of a log that was closed cleanly: it verifies from the last index entry on, or all
// of it when the index does not fit. ErrTxnIndex: it has to be scanned instead. Writer.
func (s *Segment) OpenTail(interval int) (ScanResult, error) {
	s.index.adopt()
	s.times.adopt()
	full := ScanOptions{Verify: true, Index: true, Interval: interval}
	if err := s.txns.load(s, math.MaxInt64); err != nil {
		return ScanResult{}, err
	}
	e, ok, err := s.index.last()
	t, tok, terr := s.times.last()
	if err != nil || terr != nil || !ok || !tok {
		return s.scanKeepingAborted(full)
	}
	last := s.base + int64(binary.BigEndian.Uint32(e[:]))
	fits := false
	tail := ScanOptions{Verify: true, Interval: interval, From: int64(binary.BigEndian.Uint32(e[4:]))}
	tail.Batch = func(info *BatchInfo, pos int64, _ []byte) error {
		if pos == tail.From {
			fits = info.LastOffset() == last
		}
		return nil
	}
	s.lastTime = int64(binary.BigEndian.Uint64(t[:]))
	s.maxTime.Store(s.lastTime)
	s.maxTimeAt.Store(s.base + int64(int32(binary.BigEndian.Uint32(t[8:]))))
	s.sinceIndex = 0
	res, err := s.Scan(tail)
	if err == nil && (!fits || s.checkTime(s.maxTime.Load(), s.maxTimeAt.Load()) != nil) {
		return s.scanKeepingAborted(full)
	}
	return res, err
}

// scanKeepingAborted scans from the start: the transaction index was loaded and is as true as before.
func (s *Segment) scanKeepingAborted(o ScanOptions) (ScanResult, error) {
	s.txns.mu.Lock()
	list, saved := s.txns.list, s.txns.saved
	s.txns.mu.Unlock()
	res, err := s.Scan(o)
	s.txns.mu.Lock()
	s.txns.list, s.txns.saved = list, saved
	s.txns.mu.Unlock()
	return res, err
}

// Rewrite writes the data that a scan found to where it is, and sets the size of the file anew, so that the next sync brings both to the disk
// whatever the kernel believes to be there. Writer.
func (s *Segment) Rewrite() error {
	r, err := s.Acquire()
	if err != nil {
		return err
	}
	defer r.Release()
	s.writes.Add(1)
	defer s.writes.Add(1)
	buf := scanBuffers.Get().(*[]byte)
	defer scanBuffers.Put(buf)
	end := s.size.Load()
	for at := int64(0); at < end; {
		b := (*buf)[:min(int64(len(*buf)), end-at)]
		if n, err := r.file.ReadAt(b, at); n < len(b) {
			return err
		}
		if _, err := r.file.WriteAt(b, at); err != nil {
			return err
		}
		at += int64(len(b))
	}
	// A size that is what it was would be no change.
	if err := r.file.Truncate(end + 1); err != nil {
		return err
	}
	return r.file.Truncate(end)
}

// Recovered makes durable what a scan found: what the process wrote before it died may be in the page cache only. The file
// is cut to it first. With later it is not synced, but Dirty: a sync of the whole file system is to follow. Writer.
func (s *Segment) Recovered(later bool) error {
	s.writes.Add(1)
	return s.trim(later)
}

// Walk calls f for each batch whose last offset is not below from, by headers only; batch reads the whole of it.
func (s *Segment) Walk(from int64, f func(info *BatchInfo, batch func() ([]byte, error)) error) error {
	var at int64
	if from > s.base {
		p, err := s.Locate(from)
		if err == ErrEnd {
			return nil
		}
		if err != nil {
			return err
		}
		at = p.Pos
	}
	r, err := s.Acquire()
	if err != nil {
		return err
	}
	defer r.Release()
	w := walk{s: s, r: r, at: at, end: s.size.Load(), win: windows.Get().(*window)}
	defer windows.Put(w.win)
	for {
		p, info, err := w.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		info.Size = p.Size
		err = f(&info, func() ([]byte, error) {
			b := make([]byte, p.Size)
			_, err := r.file.ReadAt(b, p.Pos)
			return b, err
		})
		if err != nil {
			return err
		}
	}
}
