package segment

import (
	"encoding/binary"
	"testing"
	"time"

	"kaas/engine/vfs"
)

// countingFS counts the reads of its files.
type countingFS struct {
	vfs.FS
	reads int
}

type countingFile struct {
	vfs.File
	fs *countingFS
}

func (fs *countingFS) Open(name string, mode vfs.Mode) (vfs.File, error) {
	f, err := fs.FS.Open(name, mode)
	return &countingFile{f, fs}, err
}

func (f *countingFile) ReadAt(p []byte, off int64) (int, error) {
	f.fs.reads++
	return f.File.ReadAt(p, off)
}

// tens is plain with ten records in each batch.
type tens struct{ plain }

func (p tens) Peek(b []byte) (int, BatchInfo, error) {
	size, info, err := p.plain.Peek(b)
	info.LastOffsetDelta, info.Count = 9, 10
	return size, info, err
}

// tenfold makes a segment of such batches, with an entry in the index for each of 100 bytes or more.
func tenfold(t *testing.T, fs vfs.FS, batches, size int) *Segment {
	t.Helper()
	s := NewFiles(fs, 100, 3, false).New(tens{}, t.TempDir(), 50, time.Unix(0, 0))
	if err := s.Create(); err != nil {
		t.Fatal(err)
	}
	for i := range int64(batches) {
		b := record(50+10*i, 1000+i, size)
		if err := s.Write([][]byte{b}, int64(size), &options); err != nil {
			t.Fatal(err)
		}
		_, info, err := tens{}.Peek(b)
		if err != nil {
			t.Fatal(err)
		}
		s.Note(&info, &options)
	}
	return s
}

// TestLocateReads: a large batch that has an entry of its own is found by one read of its header, whether the entries are in memory or in the
// file; small ones by one read of several.
func TestLocateReads(t *testing.T) {
	const batches = 100
	for _, size := range []int{20_000, 9_000, 1000, 100} {
		fs := &countingFS{FS: vfs.OS}
		s := tenfold(t, fs, batches, size)
		for _, where := range []string{"memory", "file"} {
			for i := batches - recentMax - 1; i > 1; i -= 3 { // backwards, so that no hint helps; the first batch has no entry
				for _, offset := range []int{0, 4, 9} {
					fs.reads = 0
					p, err := s.Locate(int64(50 + 10*i + offset))
					if err != nil || p.Pos != int64(i*size) || p.Base != int64(50+10*i) || p.Last != p.Base+9 || p.Size != size {
						t.Errorf("record %d of batch %d of %d bytes: %+v, %v", offset, i, size, p, err)
					}
					if fs.reads != 1 {
						t.Errorf("entries in %s: %d reads for record %d of batch %d of %d bytes", where, fs.reads, offset, i, size)
					}
				}
			}
			if where == "memory" {
				if err := s.Seal(); err != nil {
					t.Fatal(err)
				}
			}
		}
		s.Close()
	}
}

// TestLocateWrongEntry: an entry that does not fit the log is not believed, whether it is the one before the batch or its own.
func TestLocateWrongEntry(t *testing.T) {
	for _, entry := range []int{3, 4} {
		for _, shift := range []int64{-20_000, 20_000, 7, 1 << 30} {
			s := tenfold(t, vfs.OS, 50, 20_000)
			at := s.index.tail[(entry-1)*offsetEntry:] // the first batch has none
			if key := binary.BigEndian.Uint32(at); key != uint32(10*entry+9) {
				t.Fatalf("entry %d is that of %d", entry, key)
			}
			binary.BigEndian.PutUint32(at[4:], uint32(int64(binary.BigEndian.Uint32(at[4:]))+shift))
			for i := int64(3); i < 6; i++ {
				p, err := s.Locate(50 + 10*i + 2)
				if err != nil || p.Pos != i*20_000 || p.Base != 50+10*i {
					t.Errorf("entry %d is %d off: batch %d: %+v, %v", entry, shift, i, p, err)
				}
			}
			s.Close()
		}
	}
}
