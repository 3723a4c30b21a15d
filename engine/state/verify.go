package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/klauspost/crc32"

	"kaas/engine/vfs"
)

// Finding is a place in the files of a store that does not hold what it must.
type Finding struct {
	File   string
	Offset int64
	What   string
}

// Verify reads all files of the store in dir: headers, every frame with its CRC, sequence and operations, every value's checksum,
// the newest checkpoint, and the value of each of its entries. It changes nothing, and files that Open would only remove (older
// checkpoints, what was being written) are told in leftovers. The error is one of reading. May block.
func Verify(fs vfs.FS, dir string) (found []Finding, leftovers []string, err error) {
	v := &verifier{s: &Store{fs: fs, dir: path.Clean(dir), opts: Options{}.withDefaults(), files: map[uint32]*logFile{}, index: &tree{}}}
	defer func() {
		for _, l := range v.s.files {
			l.release()
		}
	}()
	r, err := v.s.survey()
	if err != nil {
		return nil, nil, err
	}
	v.leftovers = append(v.leftovers, r.stale...)
	for _, id := range r.ckpts[:max(len(r.ckpts)-1, 0)] {
		v.leftovers = append(v.leftovers, ckptName(id))
	}
	if n := len(r.ckpts); n > 0 {
		if err := v.corrupt(v.s.loadCheckpoint(r.ckpts[n-1], r)); err != nil {
			return nil, nil, err
		}
	}
	for i, id := range r.logs {
		if i == 0 || r.logs[i-1]+1 != id {
			v.seq = 0 // files between have been compacted away
			if id > r.replayFile {
				v.tell(path.Join(v.s.dir, logName(id-1)), 0, errMissing.Error())
			}
		}
		if err := v.log(id, r); err != nil {
			return nil, nil, err
		}
	}
	if len(r.ckpts) > 0 && v.s.files[r.replayFile] == nil {
		v.tell(path.Join(v.s.dir, logName(r.replayFile)), 0, errMissing.Error())
	}
	return v.found, v.leftovers, v.values()
}

type verifier struct {
	s         *Store
	found     []Finding
	leftovers []string
	seq       uint64 // of the next frame, 0: what the header of the next file says
}

func (v *verifier) tell(file string, off int64, what string) {
	v.found = append(v.found, Finding{file, off, what})
}

// corrupt takes down an error that is about content; others are returned.
func (v *verifier) corrupt(err error) error {
	var c *CorruptError
	if errors.As(err, &c) {
		v.tell(c.File, c.Offset, c.Err.Error())
		return nil
	}
	return err
}

// log reads one file of operations.
func (v *verifier) log(id uint32, r *recovery) error {
	name := path.Join(v.s.dir, logName(id))
	f, err := v.s.fs.Open(name, vfs.ReadOnly)
	if err != nil {
		return err
	}
	l := &logFile{id: id, name: name, f: f}
	l.refs.Store(1)
	v.s.files[id] = l
	if l.size, err = f.Size(); err != nil {
		return err
	}
	first, err := readLogHeader(f, id)
	if errors.Is(err, errNoHeader) || errors.Is(err, errVersion) {
		v.tell(name, 0, err.Error())
		v.seq = 0
		return nil
	}
	if err != nil {
		return err
	}
	if v.seq != 0 && first != v.seq {
		v.tell(name, 0, fmt.Sprintf("begins with frame %d, the file before ends with %d", first, v.seq-1))
	}
	v.seq = first
	w := newWindow(f, logHeader, l.size)
	for {
		if id == r.replayFile && w.off == r.replayOff && len(r.ckpts) > 0 && v.seq != r.seq {
			v.tell(name, w.off, fmt.Sprintf("frame %d, the checkpoint says %d", v.seq, r.seq))
		}
		frame, err := w.nextFrame(v.seq)
		if err == errFrameCut {
			v.tell(name, w.off, fmt.Sprintf("%v; %d bytes follow the last whole frame", err, l.size-w.off))
			v.seq = 0
			return nil
		}
		if err != nil || frame == nil {
			return err
		}
		v.operations(name, w.off, frame)
		w.skip(len(frame))
		v.seq++
	}
}

// operations checks what is in a frame whose CRC matches.
func (v *verifier) operations(name string, off int64, frame []byte) {
	for at := frameHeader; at < len(frame); {
		o, ok := nextOp(frame, at)
		if !ok {
			v.tell(name, off+int64(at), errFrameOps.Error())
			return
		}
		at += o.size
		if o.kind == opPut && crc32.Update(crc32.Checksum(o.key, castagnoli), castagnoli, o.value) != binary.LittleEndian.Uint32(frame[at-4:]) {
			v.tell(name, off+int64(o.off), errValueCRC.Error())
		}
	}
}

// values reads the value of each entry of the checkpoint.
func (v *verifier) values() (err error) {
	missing := map[uint32]bool{}
	v.s.index.ascend(nil, func(key []byte, p place) bool {
		l := v.s.files[p.file]
		if l == nil {
			if !missing[p.file] {
				missing[p.file] = true
				v.tell(path.Join(v.s.dir, logName(p.file)), 0, errMissing.Error())
			}
			return true
		}
		if int64(p.off)+int64(p.size)+4 > l.size {
			v.tell(l.name, int64(p.off), "a value of the checkpoint lies after the end of the file")
			return true
		}
		if _, err = l.readValue(key, p); err != nil {
			err = v.corrupt(err)
		}
		return err == nil
	})
	return err
}

// IsFile tells whether a store has files of that name in its directory.
func IsFile(name string) bool {
	_, ext, ok := parseName(strings.TrimSuffix(name, ".tmp"))
	return ok && (ext == ".log" || ext == ".ckp")
}
