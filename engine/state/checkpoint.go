package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/klauspost/crc32"

	"kaas/engine/vfs"
)

const (
	ckptMagic   = "kaassckp"
	ckptVersion = 1
	ckptBlock   = 64 << 10 // entries are put into blocks of about this size
	ckptMax     = 16 << 20 // no block is larger
	blockHeader = 8
)

func ckptName(id uint32) string { return fmt.Sprintf("%010d.ckp", id) }

// Checkpoint writes the index to a file, so that the next Open replays only what comes after, and removes files that are no
// longer needed. Reads and writes go on meanwhile. May block.
func (s *Store) Checkpoint() error {
	s.maintain.Lock()
	defer s.maintain.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	return s.checkpoint()
}

// checkpoint does it, with maintain held.
func (s *Store) checkpoint() error {
	s.appendMu.Lock()
	a := s.active.Load()
	fileAt, offAt, seqAt, since := a.id, a.size, s.nextSeq, s.sinceCkpt
	s.appendMu.Unlock()
	dead := s.dead(fileAt)
	name := path.Join(s.dir, ckptName(s.ckpt+1))
	size, err := s.writeCheckpoint(name+".tmp", fileAt, offAt, seqAt)
	if err == nil {
		err = s.fs.Rename(name+".tmp", name)
	}
	if err != nil {
		s.fs.Remove(name + ".tmp")
		return err
	}
	// After a failure here the old or the new checkpoint may be what survives: both are right, and nothing is removed yet.
	if err := s.fs.SyncDir(s.dir); err != nil {
		return err
	}
	old := s.ckpt
	s.ckpt++
	s.ckptSize.Store(size)
	s.appendMu.Lock()
	s.sinceCkpt -= since
	s.ckptDue = max(s.opts.CheckpointBytes, size)
	s.appendMu.Unlock()
	if old > 0 {
		err = s.fs.Remove(path.Join(s.dir, ckptName(old)))
	}
	errs := []error{err}
	for _, l := range dead {
		s.mu.Lock()
		delete(s.files, l.id)
		s.mu.Unlock()
		errs = append(errs, s.fs.Remove(l.name), l.release())
	}
	return errors.Join(errs...)
}

// dead lists the files before the replay file without a live value. It is asked before the index is walked: a file that
// dies later may be named by the checkpoint. Sealed files never come alive again.
func (s *Store) dead(replayFile uint32) (list []*logFile) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for id, l := range s.files {
		if id < replayFile && l.live == 0 {
			list = append(list, l)
		}
	}
	return list
}

// ckptWriter writes blocks one after the other.
type ckptWriter struct {
	f   vfs.File
	off int64
	buf []byte // the block being filled, with room for its header
	err error
}

func (w *ckptWriter) begin(kind byte) {
	w.buf = append(append(w.buf[:0], make([]byte, blockHeader)...), kind)
}

func (w *ckptWriter) end() {
	if w.err != nil {
		return
	}
	binary.LittleEndian.PutUint32(w.buf, uint32(len(w.buf)-blockHeader))
	binary.LittleEndian.PutUint32(w.buf[4:], blockCRC(w.buf))
	_, w.err = w.f.WriteAt(w.buf, w.off)
	w.off += int64(len(w.buf))
}

func blockCRC(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:4], castagnoli), castagnoli, b[blockHeader:])
}

func (s *Store) writeCheckpoint(name string, file uint32, off int64, seq uint64) (size int64, err error) {
	f, err := s.fs.Open(name, vfs.CreateNew)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	le := binary.LittleEndian
	w := &ckptWriter{f: f}
	w.begin('H')
	w.buf = append(w.buf, ckptMagic...)
	w.buf = le.AppendUint32(w.buf, ckptVersion)
	w.buf = le.AppendUint32(w.buf, file)
	w.buf = le.AppendUint32(w.buf, uint32(off))
	w.buf = le.AppendUint64(w.buf, seq)
	w.end()
	count := s.writeEntries(w)
	if w.err != nil {
		return 0, w.err
	}
	// Every change that the walk may have seen was written before this place, and is durable before the checkpoint counts;
	// so are the names of the files, which is more than waiting for the last sequence would say of a file just rolled to.
	s.appendMu.Lock()
	a := s.active.Load()
	endFile, endOff, endSeq := a.id, a.size, s.nextSeq-1
	s.appendMu.Unlock()
	if err := s.sync.file(s, a); err != nil {
		return 0, err
	}
	raise(&s.sync.durable, endSeq)
	w.begin('Z')
	w.buf = le.AppendUint64(w.buf, uint64(count))
	w.buf = le.AppendUint32(w.buf, endFile)
	w.buf = le.AppendUint32(w.buf, uint32(endOff))
	if w.end(); w.err != nil {
		return 0, w.err
	}
	return w.off, f.Sync()
}

// ckptPage is how many entries are taken under the lock at a time: some 50 µs.
const ckptPage = 1024

func (s *Store) writeEntries(w *ckptWriter) (count int) {
	var last, from []byte
	w.begin('E')
	for more := true; more && w.err == nil; {
		n := 0
		s.mu.RLock()
		s.index.ascend(from, func(key []byte, p place) bool {
			shared := 0
			for shared < len(key) && shared < len(last) && key[shared] == last[shared] {
				shared++
			}
			w.buf = binary.AppendUvarint(w.buf, uint64(shared))
			w.buf = binary.AppendUvarint(w.buf, uint64(len(key)-shared))
			w.buf = append(w.buf, key[shared:]...)
			w.buf = binary.AppendUvarint(w.buf, uint64(p.file))
			w.buf = binary.AppendUvarint(w.buf, uint64(p.off))
			w.buf = binary.AppendUvarint(w.buf, uint64(p.size))
			last = append(last[:0], key...)
			n++
			return n < ckptPage && len(w.buf) < ckptBlock
		})
		s.mu.RUnlock()
		count += n
		from = append(append(from[:0], last...), 0)
		more = n == ckptPage || len(w.buf) >= ckptBlock
		if len(w.buf) >= ckptBlock || !more && len(w.buf) > blockHeader+1 {
			w.end()
			w.begin('E')
			last = last[:0]
		}
	}
	return count
}

var errCheckpoint = errors.New("checkpoint damaged")

// loadCheckpoint fills the index and the places of recovery.
func (s *Store) loadCheckpoint(id uint32, r *recovery) error {
	name := path.Join(s.dir, ckptName(id))
	f, err := s.fs.Open(name, vfs.ReadOnly)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return err
	}
	w := newWindow(f, 0, size)
	var b builder
	for first := true; ; first = false {
		off := w.off
		block, err := w.nextBlock()
		if err != nil && err != errCheckpoint {
			return err
		}
		ok, end := false, false
		if err == nil && (block[0] == 'H') == first {
			switch block[0] {
			case 'H':
				ok = r.head(block[1:])
			case 'E':
				ok = loadEntries(block[1:], &b)
			case 'Z':
				ok, end = w.off == size && r.tail(block[1:], b.n), true
			}
		}
		if !ok {
			return &CorruptError{File: name, Offset: off, Err: errCheckpoint}
		}
		if end {
			break
		}
	}
	s.index, s.ckpt = b.tree(), id
	s.ckptSize.Store(size)
	s.ckptDue = max(s.opts.CheckpointBytes, size)
	return nil
}

// nextBlock returns the payload of the next block and passes it. It is valid until the next call.
func (w *window) nextBlock() ([]byte, error) {
	header, err := w.peek(blockHeader)
	if err != nil {
		return nil, err
	}
	if header == nil {
		return nil, errCheckpoint
	}
	n := binary.LittleEndian.Uint32(header)
	if n == 0 || n > ckptMax {
		return nil, errCheckpoint
	}
	b, err := w.peek(blockHeader + int(n))
	if err == io.EOF || err == nil && (b == nil || binary.LittleEndian.Uint32(b[4:]) != blockCRC(b)) {
		return nil, errCheckpoint
	}
	if err != nil {
		return nil, err
	}
	w.skip(len(b))
	return b[blockHeader:], nil
}

func (r *recovery) head(b []byte) bool {
	le := binary.LittleEndian
	if len(b) != 28 || string(b[:8]) != ckptMagic || le.Uint32(b[8:]) != ckptVersion {
		return false
	}
	r.replayFile, r.replayOff, r.seq = le.Uint32(b[12:]), int64(le.Uint32(b[16:])), le.Uint64(b[20:])
	return r.replayFile > 0 && r.replayOff >= logHeader && r.seq > 0
}

func (r *recovery) tail(b []byte, entries int) bool {
	le := binary.LittleEndian
	if len(b) != 16 || le.Uint64(b) != uint64(entries) {
		return false
	}
	r.syncedFile, r.syncedOff = le.Uint32(b[8:]), int64(le.Uint32(b[12:]))
	return true
}

func loadEntries(b []byte, to *builder) bool {
	var key []byte
	var v [3]uint64
	for len(b) > 0 {
		shared, n := binary.Uvarint(b)
		if n <= 0 || shared > uint64(len(key)) {
			return false
		}
		b = b[n:]
		rest, n := binary.Uvarint(b)
		if n <= 0 || rest > uint64(len(b)-n) || shared+rest > MaxKeyBytes {
			return false
		}
		key = append(key[:shared], b[n:n+int(rest)]...)
		b = b[n+int(rest):]
		for i := range v {
			if v[i], n = binary.Uvarint(b); n <= 0 || v[i] > 0xffffffff {
				return false
			}
			b = b[n:]
		}
		if !to.add(key, place{uint32(v[0]), uint32(v[1]), uint32(v[2])}) {
			return false
		}
	}
	return true
}
