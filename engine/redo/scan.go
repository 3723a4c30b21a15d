package redo

import (
	"bytes"
	"cmp"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"slices"

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

// Where is the file that has the record's bytes, by its name in the data directory, and where in it they begin.
func (r *Record) Where() (name string, at int64) { return names[r.file], r.offset }

// Damage is a frame that was written whole once, and is not any more, so that those after it are not found either; or that says of itself what
// cannot be.
type Damage struct {
	File string // name in the data directory
	At   int64  // of the frame
	What string
}

// Old is what an earlier life left.
type Old struct {
	files  [2]vfs.File // nil when there is none
	logs   map[string][]Record
	damage []Damage
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
		if crc32.Checksum(b[4:], castagnoli) != be.Uint32(b) {
			return o.follows(i, at, n, size, head[8:20], seq)
		}
		if !o.frame(b, i, at) {
			o.damage = append(o.damage, Damage{names[i], at, "the checksum of the frame is right, and its pieces do not fill it"})
			return nil
		}
		at += n
	}
	return nil
}

// follows notes damage if a whole frame of the same use of the file comes after the one of n bytes at that does not verify: otherwise that one
// was cut short, or is what an earlier use has left.
func (o *Old) follows(i int, at, n, size int64, use []byte, seq uint32) error {
	next := at + n
	if next+frameHead > size {
		return nil
	}
	var head [frameHead]byte
	if err := readFull(o.files[i], head[:], next); err != nil {
		return err
	}
	m := int64(be.Uint32(head[4:]))
	if !bytes.Equal(head[8:20], use) || be.Uint32(head[20:]) != seq+1 || m < frameHead || m > min(size-next, frameMax) {
		return nil
	}
	b := make([]byte, m) // the file has as many
	if err := readFull(o.files[i], b, next); err != nil {
		return err
	}
	if crc32.Checksum(b[4:], castagnoli) == be.Uint32(b) {
		o.damage = append(o.damage, Damage{names[i], at, "the checksum of the frame does not match, and a whole one follows it"})
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

// All lists the records as they lie in the files.
func (o *Old) All() (all []*Record) {
	for _, list := range o.logs {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	slices.SortFunc(all, func(a, b *Record) int { return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.offset, b.offset)) })
	return all
}

// Damage is what is wrong.
func (o *Old) Damage() []Damage { return o.damage }

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
