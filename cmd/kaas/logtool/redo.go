package logtool

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"kaas/codec/batch"
	"kaas/engine/redo"
	"kaas/engine/segment"
	"kaas/engine/vfs"
)

// checkRedo checks the commit journal: that its frames are whole, and that what the next start would write from it goes with what the logs have.
func (c *dataDir) checkRedo(data string, s *sink) error {
	old, err := redo.Scan(vfs.OS, data)
	if err != nil {
		return err
	}
	defer old.Close()
	for _, d := range old.Damage() {
		s.doubt(&Problem{filepath.Join(data, d.File), d.At, d.What})
	}
	var missing []*redo.Record
	var buf []byte
	for _, r := range old.All() {
		if !c.wants(r) {
			continue
		}
		if buf, err = old.Read(r, buf); err != nil {
			return err
		}
		has, err := compareRedo(data, r, buf, s)
		if err != nil {
			return err
		}
		if !has {
			missing = append(missing, r)
		}
	}
	if len(missing) > 0 {
		name, _ := missing[0].Where()
		s.note(filepath.Join(data, name), fmt.Sprintf("%d pieces are not in their logs, the first of %s: the next start writes them", len(missing), missing[0].Log))
	}
	return nil
}

// wants reports that the next start would write a piece: its log is dirty, of the topic it was written for, and scanned there.
func (c *dataDir) wants(r *redo.Record) bool {
	line, ok := c.lines[r.Log]
	return ok && line.Dirty && r.Segment >= line.Recovery && (line.TopicID == r.Topic || line.TopicID == [16]byte{}) && partitionName(r.Log)
}

// compareRedo checks a piece. has is false if the log lacks some of it, as after a power cut; a log without the segment, which was deleted, lacks
// nothing.
func compareRedo(data string, r *redo.Record, want []byte, s *sink) (has bool, err error) {
	file, at := r.Where()
	tell := func(what string) {
		s.doubt(&Problem{filepath.Join(data, file), at, fmt.Sprintf("piece of %s, segment %d, position %d: %s", r.Log, r.Segment, r.At, what)})
	}
	for b := want; len(b) > 0; {
		v, err := batch.Peek(b)
		if err != nil || !v.CheckCRC() || v.BaseOffset() < r.Segment {
			tell("not whole batches of that segment")
			return true, nil
		}
		b = b[v.Size():]
	}
	f, err := os.Open(filepath.Join(data, r.Log, segment.FileName(r.Segment, segment.LogSuffix)))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	got := make([]byte, len(want))
	if _, err := f.ReadAt(got, r.At); err != nil && err != io.EOF {
		return false, err
	}
	has = true
	for i, x := range got {
		if x == want[i] {
			continue
		}
		if has = false; x != 0 { // lost sectors read as zeros
			tell("the log has something else there")
			return true, nil
		}
	}
	return has, nil
}
