// Package redo is the commit journal: one sequential place where a commit round of many logs becomes durable with one sync.
//
// It is not a log of operations and knows no offsets: a piece says which bytes belong at which position of which file, and
// replaying it writes them there. It does not know either when those files are durable themselves: whoever uses it says so
// (Recycle), and what it wrote before is overwritten then.
//
// It has two files, so that one takes rounds while what the other covers is synced in the background. Both are zeros before they are
// used and are written over again and again, so a sync of them changes no metadata. FORMAT.md §9 has the bytes.
//
// Invariants: a frame is replayed only if its checksum, life, generation and sequence fit, so that one of an earlier use of the file
// is never taken for one of this use; a file is written only while it is the active one or nobody's; after any error but a lack of room
// nothing is written any more and the files stay as they are. It grows only where much more room is free than it takes, and a growth that
// fails for lack of room is cut away again.
package redo

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"math/rand/v2"
	"sync"

	"kaas/engine/vfs"
)

const (
	// Names are the two files, in the data directory.
	nameA, nameB = "kaas.redo.0", "kaas.redo.1"

	frameHead = 4 + 4 + 8 + 4 + 4 + 4       // CRC, length, life, generation, sequence, number of pieces
	pieceHead = 2 + 16 + 8 + 8 + 4          // length of the name, topic id, segment, position, length of the data
	firstSize = 16 << 20                    // of a file; it doubles each time that it is full, up to the limit
	spareFree = 64 << 20                    // of the file system that a growth leaves free at first, besides its own size again; doubles each time that it was not enough
	zeroStep  = 1 << 20                     // of the zeros that are written between two looks at what is free
	pieceMin  = pieceHead + 1               // of a piece on disk
	nameMax   = 249 + 1 + len("2147483647") // of a partition's directory
)

// Overhead is at most what a frame adds, and what each piece adds to its bytes.
const Overhead int64 = pieceHead + int64(nameMax)

var names = [2]string{nameA, nameB}

var (
	be         = binary.BigEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// ErrBroken says that an earlier error ended the use of the journal.
var ErrBroken = errors.New("redo: not in use any more after an error")

// ErrNoRoom says that the file system has too little room left for a file of the journal to grow. Nothing was taken of it.
var ErrNoRoom = errors.New("redo: too little room on the file system")

// Piece says what a run of bytes is.
type Piece struct {
	Log     string   // name of its directory
	Topic   [16]byte // id
	Segment int64    // base offset: which file of the log
	At      int64    // position in that file
}

// Frame collects the pieces of one round. The zero value is ready; it is used again after Reset.
type Frame struct {
	b      []byte
	pieces uint32
	last   int // where the last piece begins
}

// Reset empties the frame.
func (f *Frame) Reset() {
	f.b, f.pieces = append(f.b[:0], make([]byte, frameHead)...), 0
}

// Add makes room for a piece of n bytes and returns the place for them.
func (f *Frame) Add(p *Piece, n int) []byte {
	if len(f.b) == 0 {
		f.Reset()
	}
	f.last = len(f.b)
	f.b = be.AppendUint16(f.b, uint16(len(p.Log)))
	f.b = append(f.b, p.Log...)
	f.b = append(f.b, p.Topic[:]...)
	f.b = be.AppendUint64(f.b, uint64(p.Segment))
	f.b = be.AppendUint64(f.b, uint64(p.At))
	f.b = be.AppendUint32(f.b, uint32(n))
	at := len(f.b)
	if at+n <= cap(f.b) {
		f.b = f.b[:at+n]
	} else {
		f.b = append(f.b, make([]byte, n)...)
	}
	f.pieces++
	return f.b[at:]
}

// Undo takes the piece back that was added last.
func (f *Frame) Undo() {
	f.b = f.b[:f.last]
	f.pieces--
}

// Size is the length of the frame in bytes, and Pieces how many it has.
func (f *Frame) Size() int64 { return int64(len(f.b)) }
func (f *Frame) Pieces() int { return int(f.pieces) }

func (f *Frame) seal(life uint64, generation, sequence uint32) {
	be.PutUint32(f.b[4:], uint32(len(f.b)))
	be.PutUint64(f.b[8:], life)
	be.PutUint32(f.b[16:], generation)
	be.PutUint32(f.b[20:], sequence)
	be.PutUint32(f.b[24:], f.pieces)
	be.PutUint32(f.b, crc32.Checksum(f.b[4:], castagnoli))
}

type state int

const (
	empty  state = iota // not yet made, or being made
	free                // may be written from its start
	active              // takes rounds
	full                // has rounds that are not yet durable elsewhere
)

// part is one of the files.
type part struct {
	file  vfs.File
	state state
	size  int64 // of the zeros or old frames that are written and synced
	long  bool  // a growth that failed could not be cut away
	at    int64 // where the next frame goes
	seq   uint32
}

// Journal is the pair of files of one life of a process. Turn, Write and Sync are for one goroutine at a time, the others for any.
type Journal struct {
	fs    vfs.FS
	dir   string
	limit int64 // of each file
	first int64 // size of a file at first
	life  uint64
	named bool // the names of the files are durable; Prepare's

	mu     sync.Mutex // guards what follows; held for moments
	parts  [2]part
	cur    int // the active one, if any is
	gen    uint32
	spare  int64 // see spareFree
	broken bool
}

// New describes a journal of at most limit bytes in both files together. It does no I/O; files of an earlier life must be gone
// (Discard).
func New(fsys vfs.FS, dir string, limit int64) *Journal {
	return &Journal{fs: fsys, dir: dir, limit: limit / 2, first: min(firstSize, limit/2), spare: spareFree, life: rand.Uint64()}
}

// Prepare makes the files and the first of them ready. It blocks. For lack of room (ErrNoRoom, ENOSPC, EDQUOT) nothing is taken, and it
// may be tried again; after any other error the journal is broken. It is for one goroutine at a time.
func (j *Journal) Prepare() error {
	if !j.named {
		if err := j.room(int64(len(j.parts)) * j.first); err != nil {
			return err
		}
		if err := j.create(); err != nil {
			return j.fail(err)
		}
		j.named = true
	}
	for i := range j.parts {
		if err := j.grow(i, j.first); err != nil {
			for i := range j.parts {
				j.cut(i, 0)
			}
			return j.fail(err)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range j.parts {
		j.parts[i].state = free
	}
	return nil
}

// create makes the names of the files, durably.
func (j *Journal) create() error {
	for i := range j.parts {
		j.mu.Lock()
		made := j.parts[i].file != nil
		j.mu.Unlock()
		if made {
			continue
		}
		file, err := j.fs.Open(j.dir+"/"+names[i], vfs.CreateNew)
		if err != nil {
			return err
		}
		j.mu.Lock()
		j.parts[i].file = file
		j.mu.Unlock()
	}
	return j.fs.SyncDir(j.dir)
}

// Recycle makes a file free again, all of whose pieces are durable in their own files. It grows first if it may, and blocks.
// Without room it stays as large as it is.
func (j *Journal) Recycle(i int) error {
	j.mu.Lock()
	size := j.parts[i].size
	j.mu.Unlock()
	if err := j.grow(i, min(max(j.first, 2*size), j.limit)); err != nil && !lacksRoom(err) {
		return j.fail(err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.parts[i].state = free
	return nil
}

// room is nil if the file system has room for a growth of n bytes: so much that others do not miss it.
func (j *Journal) room(n int64) error {
	s, err := j.fs.Space(j.dir)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if s.Free < 2*n+j.spare {
		return ErrNoRoom
	}
	return nil
}

// grow has the file that nobody uses end at to, with synced zeros, or as it was before if it lacks room.
func (j *Journal) grow(i int, to int64) error {
	j.mu.Lock()
	file, size, long := j.parts[i].file, j.parts[i].size, j.parts[i].long
	j.mu.Unlock()
	if long {
		j.cut(i, size) // else it is what takes the room
	}
	if size >= to {
		return nil
	}
	if err := j.room(to - size); err != nil {
		return err
	}
	// Allocated first, and at once: zeros take seconds, in which those who append would find the disk fuller and fuller.
	err := file.Allocate(size, to-size)
	for at := size; err == nil && at < to; at += zeroStep {
		if err = j.room(0); err == nil { // it is still so; and there are file systems that cannot allocate
			err = file.ZeroFill(at, min(zeroStep, to-at))
		}
	}
	if err == nil {
		err = file.Sync()
	}
	j.mu.Lock()
	switch {
	case err == nil:
		j.parts[i].size = to
	case lacksRoom(err): // what is free was told wrong, or not for us
		j.spare = min(2*j.spare, math.MaxInt64/4)
	}
	j.mu.Unlock()
	if err != nil {
		j.cut(i, size)
	}
	return err
}

// cut gives back what the file that nobody uses has behind size. What cannot be cut is tried again when it is to grow.
func (j *Journal) cut(i int, size int64) {
	j.mu.Lock()
	file := j.parts[i].file
	j.mu.Unlock()
	if file == nil {
		return
	}
	err := file.Truncate(size)
	if err == nil {
		// So that no round does it. Nothing depends on it: all that the file has is durable elsewhere, and each round syncs what it writes.
		_ = file.Sync()
	}
	j.mu.Lock()
	j.parts[i].size, j.parts[i].long = size, err != nil
	j.mu.Unlock()
}

// lacksRoom tells an error for lack of room from others.
func lacksRoom(err error) bool { return errors.Is(err, ErrNoRoom) || vfs.NoRoom(err) }

// fail ends the use of the journal, unless all that lacks is room.
func (j *Journal) fail(err error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.broken = j.broken || !lacksRoom(err)
	return err
}

// Turn makes sure that a frame of n bytes can be written: in the active file, or, when that is full or rest is set, in the other. It
// reports which file takes it, and which was left for that (-1: none): the pieces in that one are to be made durable now, and then it
// is to be recycled. ok is false when neither has room.
func (j *Journal) Turn(n int64, rest bool) (part, left int, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken {
		return 0, -1, false
	}
	p := &j.parts[j.cur]
	if p.state == active && p.at+n <= p.size && !rest {
		return j.cur, -1, true
	}
	for i := range j.parts {
		o := &j.parts[i]
		if o.state != free || n > o.size {
			continue
		}
		left := -1
		if p.state == active {
			p.state, left = full, j.cur
		}
		j.cur = i
		j.gen++
		o.state, o.at, o.seq = active, 0, 0
		return i, left, true
	}
	return 0, -1, false
}

// Current is the file that takes rounds, if one does.
func (j *Journal) Current() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.cur
}

// Write puts the frame behind the others; Turn has made room for it. After an error nothing of it counts, and nothing was done to what
// is durable in the journal. After one for lack of room, which a file system has that writes nothing in place, the next frame takes the place
// of this one.
func (j *Journal) Write(f *Frame) error {
	j.mu.Lock()
	p := &j.parts[j.cur]
	if j.broken || p.state != active || p.at+f.Size() > p.size {
		j.mu.Unlock()
		return ErrBroken
	}
	f.seal(j.life, j.gen, p.seq)
	file, at := p.file, p.at
	p.at += f.Size()
	p.seq++
	j.mu.Unlock()
	if _, err := file.WriteAt(f.b, at); err != nil {
		j.mu.Lock()
		p.at, p.seq = at, p.seq-1
		j.mu.Unlock()
		return j.fail(fmt.Errorf("commit journal: %w", err))
	}
	return nil
}

// Sync makes durable what was written.
func (j *Journal) Sync() error {
	j.mu.Lock()
	file := j.parts[j.cur].file
	j.mu.Unlock()
	if file == nil {
		return ErrBroken
	}
	if err := file.Sync(); err != nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.broken = true // for lack of room too: what it has left is unknown
		return fmt.Errorf("commit journal: %w", err)
	}
	return nil
}

// Broken reports that an error ended the use of the journal.
func (j *Journal) Broken() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.broken
}

// Close closes the files. They stay: Discard removes them.
func (j *Journal) Close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.broken = true
	for i := range j.parts {
		if f := j.parts[i].file; f != nil {
			f.Close()
			j.parts[i].file = nil
		}
	}
}

// Discard removes the files of an earlier life, durably: nothing in them may be needed any more.
func Discard(fsys vfs.FS, dir string) error {
	gone := false
	for _, name := range names {
		err := fsys.Remove(dir + "/" + name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		gone = gone || err == nil
	}
	if !gone {
		return nil
	}
	return fsys.SyncDir(dir)
}
