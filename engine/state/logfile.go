package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"sync/atomic"

	"github.com/klauspost/crc32"

	"kaas/engine/vfs"
)

const (
	logMagic   = "kaasslog"
	logVersion = 1
	logHeader  = 32
)

// logFile is one file of operations. It is closed when the last reference goes; the store holds one.
type logFile struct {
	id   uint32
	name string
	f    vfs.File
	refs atomic.Int32
	size int64 // bytes written; guarded by Store.appendMu, constant once the file is sealed
	live int64 // bytes of put operations that the index names; guarded by Store.mu
}

func logName(id uint32) string { return fmt.Sprintf("%010d.log", id) }

// parseName splits "0000000012.log" into 12 and ".log"; ok is false for any other form.
func parseName(name string) (id uint32, ext string, ok bool) {
	if len(name) != 14 {
		return 0, "", false
	}
	var n uint64
	for _, c := range name[:10] {
		if c < '0' || c > '9' {
			return 0, "", false
		}
		n = n*10 + uint64(c-'0')
	}
	return uint32(n), name[10:], n > 0 && n <= 0xffffffff
}

func appendLogHeader(id uint32, firstSeq uint64) []byte {
	le := binary.LittleEndian
	b := append(make([]byte, 0, logHeader), logMagic...)
	b = le.AppendUint32(b, logVersion)
	b = le.AppendUint32(b, id)
	b = le.AppendUint64(b, firstSeq)
	b = le.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return le.AppendUint32(b, 0)
}

var (
	errNoHeader = errors.New("file header damaged or missing")
	errVersion  = errors.New("file header of an unknown version")
	errFrameCut = errors.New("frame cut, damaged or out of turn")
	errFrameOps = errors.New("operations in a frame with a right checksum make no sense")
	errValueCRC = errors.New("value does not match its checksum")
)

// readLogHeader returns the sequence of the first frame.
func readLogHeader(f vfs.File, id uint32) (uint64, error) {
	le := binary.LittleEndian
	b := make([]byte, logHeader)
	if _, err := f.ReadAt(b, 0); err == io.EOF {
		return 0, errNoHeader
	} else if err != nil {
		return 0, err
	}
	if string(b[:8]) != logMagic || le.Uint32(b[24:]) != crc32.Checksum(b[:24], castagnoli) {
		return 0, errNoHeader
	}
	if le.Uint32(b[8:]) != logVersion {
		return 0, errVersion
	}
	if le.Uint32(b[12:]) != id {
		return 0, errNoHeader
	}
	return le.Uint64(b[16:]), nil
}

// createLog makes the next file. Neither it nor its name is durable yet.
func createLog(fs vfs.FS, dir string, id uint32, firstSeq uint64) (*logFile, error) {
	name := path.Join(dir, logName(id))
	f, err := fs.Open(name, vfs.CreateNew)
	if err != nil {
		return nil, err
	}
	if _, err := f.WriteAt(appendLogHeader(id, firstSeq), 0); err != nil {
		f.Close()
		fs.Remove(name)
		return nil, err
	}
	l := &logFile{id: id, name: name, f: f, size: logHeader}
	l.refs.Store(1)
	return l, nil
}

// acquire takes a reference unless the file is already closed.
func (l *logFile) acquire() bool {
	for {
		n := l.refs.Load()
		if n == 0 {
			return false
		}
		if l.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (l *logFile) release() error {
	if l.refs.Add(-1) == 0 {
		return l.f.Close()
	}
	return nil
}

// readValue reads the value of key at p and checks it.
func (l *logFile) readValue(key []byte, p place) ([]byte, error) {
	b := make([]byte, int(p.size)+4)
	if _, err := l.f.ReadAt(b, int64(p.off)); err == io.EOF {
		return nil, &CorruptError{File: l.name, Offset: int64(p.off), Err: io.ErrUnexpectedEOF}
	} else if err != nil {
		return nil, err
	}
	return l.checkValue(key, p, b)
}

// checkValue takes the value of key at p from b, which holds it and its checksum.
func (l *logFile) checkValue(key []byte, p place, b []byte) ([]byte, error) {
	v := b[:p.size:p.size]
	if crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, v) != binary.LittleEndian.Uint32(b[p.size:]) {
		return nil, &CorruptError{File: l.name, Offset: int64(p.off), Err: errValueCRC}
	}
	return v, nil
}

// window reads a file from front to back through one buffer.
type window struct {
	f         vfs.File
	off, size int64 // the buffer begins at off; the file ends at size
	buf       []byte
	from, to  int // valid part of buf; buf[from] is at off
}

const windowBytes = 256 << 10

func newWindow(f vfs.File, off, size int64) *window {
	return &window{f: f, off: off, size: size, buf: make([]byte, min(windowBytes, max(size-off, 0)))}
}

// peek returns the next n bytes, or nil if the file ends before.
func (w *window) peek(n int) ([]byte, error) {
	if w.to-w.from >= n {
		return w.buf[w.from : w.from+n], nil
	}
	if int64(n) > w.size-w.off {
		return nil, nil
	}
	old := w.buf[w.from:w.to]
	if n > len(w.buf) {
		w.buf = make([]byte, n)
	}
	have := copy(w.buf, old)
	want := int(min(int64(len(w.buf)), w.size-w.off))
	if _, err := w.f.ReadAt(w.buf[have:want], w.off+int64(have)); err != nil {
		return nil, err
	}
	w.from, w.to = 0, want
	return w.buf[:n], nil
}

func (w *window) skip(n int) { w.from, w.off = w.from+n, w.off+int64(n) }

// nextFrame returns the whole frame at the front, valid until the next call; nil without error at the end of the file.
// errFrameCut: there are bytes that are not the frame of that sequence.
func (w *window) nextFrame(seq uint64) ([]byte, error) {
	if w.off >= w.size {
		return nil, nil
	}
	frame, err := w.frameAt()
	if err != nil {
		return nil, err
	}
	if frame == nil || binary.LittleEndian.Uint64(frame[8:]) != seq {
		return nil, errFrameCut
	}
	return frame, nil
}

// frameAt returns the frame at the front, or nil if its length or checksum is wrong.
func (w *window) frameAt() ([]byte, error) {
	header, err := w.peek(frameHeader)
	if header == nil || err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(header)
	if n == 0 || n > MaxBatchBytes {
		return nil, nil
	}
	frame, err := w.peek(frameHeader + int(n))
	if frame == nil || err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint32(frame[4:]) != frameCRC(frame) {
		return nil, nil
	}
	return frame, nil
}

// syncedBeyond searches the rest of the file, byte by byte, for a whole frame whose lag says that sequence seq was durable
// when it was written.
func (w *window) syncedBeyond(seq uint64) (bool, error) {
	for {
		header, err := w.peek(frameHeader)
		if header == nil || err != nil {
			return false, err
		}
		s, lag := binary.LittleEndian.Uint64(header[8:]), uint64(binary.LittleEndian.Uint32(header[16:]))
		// Cheap tests first: the sequence of a frame farther on is only a little above seq.
		if s > seq && s-seq <= 1<<40 && s-lag >= seq && lag < 0xffffffff && lag <= s {
			frame, err := w.frameAt()
			if err != nil {
				return false, err
			}
			if frame != nil {
				return true, nil
			}
		}
		w.skip(1)
	}
}
