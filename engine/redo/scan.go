package redo

import (
	"errors"
	"hash/crc32"
	"io"
	"io/fs"

	"kaas/engine/vfs"
)

// Record is a piece in a journal of an earlier life.
type Record struct {
	Piece
	file   int
	offset int64 // of its bytes in that file
	size   int
}

// Size is the number of bytes.
func (r *Record) Size() int { return r.size }

// Old is what an earlier life left.
type Old struct {
	files [2]vfs.File // nil when there is none
	logs  map[string][]Record
}

// frameMax bounds what a frame may claim to be.
const frameMax = 1 << 30

// Scan reads what an earlier life left: every frame up to the first that does not fit. Missing files are empty ones.
func Scan(fsys vfs.FS, dir string) (*Old, error) {
	o := &Old{logs: map[string][]Record{}}
	for i, name := range names {
		file, err := fsys.Open(dir+"/"+name, vfs.ReadOnly)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			o.files[i] = file
			err = o.scan(i)
		}
		if err != nil {
			o.Close()
			return nil, err
		}
	}
	return o, nil
}

// Close closes the files.
func (o *Old) Close() {
	for i, f := range o.files {
		if f != nil {
			f.Close()
			o.files[i] = nil
		}
	}
}

func (o *Old) scan(i int) error {
	file := o.files[i]
	size, err := file.Size()
	if err != nil {
		return err
	}
	var head [frameHead]byte
	var life uint64
	var gen uint32
	var buf []byte
	for at, seq := int64(0), uint32(0); at+frameHead <= size; seq++ {
		if err := readFull(file, head[:], at); err != nil {
			return err
		}
		n := int64(be.Uint32(head[4:]))
		if n < frameHead || n > min(size-at, frameMax) || be.Uint32(head[20:]) != seq {
			return nil
		}
		if seq == 0 {
			life, gen = be.Uint64(head[8:]), be.Uint32(head[16:])
		}
		if be.Uint64(head[8:]) != life || be.Uint32(head[16:]) != gen {
			return nil // of an earlier use of the file
		}
		if int64(cap(buf)) < n {
			buf = make([]byte, n)
		}
		b := buf[:n]
		if err := readFull(file, b, at); err != nil {
			return err
		}
		if crc32.Checksum(b[4:], castagnoli) != be.Uint32(b) || !o.frame(b, i, at) {
			return nil
		}
		at += n
	}
	return nil
}

// frame takes the pieces of a frame whose checksum is right; false if they do not fill it.
func (o *Old) frame(b []byte, file int, at int64) bool {
	n := be.Uint32(b[24:])
	pos := frameHead
	if int64(n) > int64(len(b)/pieceMin) {
		return false
	}
	for range n {
		if len(b)-pos < pieceHead {
			return false
		}
		name := int(be.Uint16(b[pos:]))
		if name > nameMax || len(b)-pos < pieceHead+name {
			return false
		}
		r := Record{file: file, Piece: Piece{Log: string(b[pos+2 : pos+2+name])}}
		pos += 2 + name
		pos += copy(r.Topic[:], b[pos:])
		r.Segment, r.At = int64(be.Uint64(b[pos:])), int64(be.Uint64(b[pos+8:]))
		size := int64(be.Uint32(b[pos+16:]))
		pos += 20
		if size > int64(len(b)-pos) {
			return false
		}
		r.offset, r.size = at+int64(pos), int(size)
		pos += int(size)
		o.logs[r.Log] = append(o.logs[r.Log], r)
	}
	return pos == len(b)
}

// Records are the pieces of a log, in the order in which they were written to each file; where two have bytes of the same place,
// these are the same bytes.
func (o *Old) Records(log string) []Record { return o.logs[log] }

// Empty reports that there are no records.
func (o *Old) Empty() bool { return len(o.logs) == 0 }

// Read returns the bytes of a record, in buf if that is large enough.
func (o *Old) Read(r *Record, buf []byte) ([]byte, error) {
	if cap(buf) < r.size {
		buf = make([]byte, r.size)
	}
	buf = buf[:r.size]
	file := o.files[r.file]
	if file == nil {
		return nil, ErrBroken
	}
	return buf, readFull(file, buf, r.offset)
}

func readFull(file vfs.File, b []byte, at int64) error {
	n, err := file.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return err
}
