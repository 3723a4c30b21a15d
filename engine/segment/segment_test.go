package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"kaas/engine/vfs"
)

// plain is a format without CRC: size and offset alone.
type plain struct{}

func (plain) Peek(b []byte) (int, BatchInfo, error) {
	size := int(int32(binary.BigEndian.Uint32(b[8:]))) + 12
	if size < HeaderSize {
		return 0, BatchInfo{}, errors.New("too small")
	}
	return size, BatchInfo{BaseOffset: int64(binary.BigEndian.Uint64(b)), Size: size, MaxTimestamp: int64(binary.BigEndian.Uint64(b[35:])), ProducerID: -1, Count: 1}, nil
}

func (p plain) Next(b []byte) (int, BatchInfo, error) {
	size, info, err := p.Peek(b)
	if err == nil && size > len(b) {
		err = ErrShort
	}
	return size, info, err
}

func (plain) Stamp([]byte, int64, int32) {}

func (p plain) FirstAtOrAfter(b []byte, ts, from int64) (int64, int64, bool, error) {
	_, info, err := p.Peek(b)
	return info.BaseOffset, info.MaxTimestamp, info.MaxTimestamp >= ts && info.BaseOffset >= from, err
}

func (plain) ControlType([]byte) (bool, int32, bool) { return false, 0, false }

func record(offset, ts int64, size int) []byte {
	b := make([]byte, size)
	binary.BigEndian.PutUint64(b, uint64(offset))
	binary.BigEndian.PutUint32(b[8:], uint32(size-12))
	binary.BigEndian.PutUint64(b[35:], uint64(ts))
	return b
}

var options = Options{IndexInterval: 100, MaxIndex: 1 << 20, MaxBytes: 1 << 24}

func put(t *testing.T, s *Segment, b []byte) {
	t.Helper()
	if err := s.Write([][]byte{b}, int64(len(b)), &options); err != nil {
		t.Fatal(err)
	}
	_, info, err := plain{}.Peek(b)
	if err != nil {
		t.Fatal(err)
	}
	s.Note(&info, &options)
}

func sealed(t *testing.T, f *Files, dir string, base int64, n int) *Segment {
	t.Helper()
	s := f.New(plain{}, dir, base, time.Unix(0, 0))
	if err := s.Create(); err != nil {
		t.Fatal(err)
	}
	for i := range int64(n) {
		put(t, s, record(base+i, 1000+i, 100))
	}
	if err := s.Seal(); err != nil {
		t.Fatal(err)
	}
	return s
}

func wantLocate(t *testing.T, s *Segment, offset, pos int64) {
	t.Helper()
	p, err := s.Locate(offset)
	if err != nil || p.Pos != pos || p.Base != offset {
		t.Errorf("Locate(%d) = %+v, %v; want position %d", offset, p, err, pos)
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"00000000000000000000.log":         "0 .log true",
		"00000000000000012345.timeindex":   "12345 .timeindex true",
		"00000000000000012345.log.deleted": "0  false",
		"0000000000000012345.log":          "0  false",
		"0000000000000000000x.log":         "0  false",
		"99999999999999999999.log":         "0  false",
		"00000000000000000000":             "0  false",
		"leader-epoch-checkpoint":          "0  false",
		FileName(1<<62, SnapshotSuffix):    "4611686018427387904 .snapshot true",
	} {
		base, suffix, ok := ParseName(name)
		if got := fmt.Sprint(base, " ", suffix, " ", ok); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// TestMaps: indexes of sealed segments are mapped within the budget, and read with calls beyond it.
func TestMaps(t *testing.T) {
	dir := t.TempDir()
	f := NewFiles(vfs.OS, 100, 3, false)
	var segs []*Segment
	for i := range int64(5) {
		segs = append(segs, sealed(t, f, dir, 1000*i, 200))
	}
	for _, s := range segs {
		for _, i := range []int64{0, 1, 57, 199} {
			wantLocate(t, s, s.base+i, 100*i)
		}
		if _, err := s.Locate(s.base + 200); err != ErrEnd {
			t.Errorf("after the end: %v", err)
		}
	}
	if n := f.maps.Load(); n != 3 {
		t.Errorf("%d maps, budget 3", n)
	}
	for _, s := range segs {
		s.Close()
	}
	if n := f.maps.Load(); n != 0 || f.OpenCount() != 0 {
		t.Errorf("%d maps, %d files after closing", n, f.OpenCount())
	}
	wantLocate(t, segs[4], 4100, 10_000) // opened again
}

// TestFault: an index that is cut while it is mapped does not end the process; it is built again.
func TestFault(t *testing.T) {
	dir := t.TempDir()
	f := NewFiles(vfs.OS, 100, 10, false)
	s := sealed(t, f, dir, 0, 3000)
	wantLocate(t, s, 2900, 290_000)
	for _, suffix := range []string{IndexSuffix, TimeIndexSuffix} {
		if err := os.Truncate(dir+"/"+FileName(0, suffix), 0); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := s.index.floor(2900)
	var corrupt *CorruptError
	if !errors.As(err, &corrupt) || corrupt.File != dir+"/"+FileName(0, IndexSuffix) {
		t.Errorf("look-up in a cut index: %v", err)
	}
	wantLocate(t, s, 2900, 290_000)
	if o, ts, _, found, err := s.OffsetForTime(3500, 0); o != 2500 || ts != 3500 || !found || err != nil {
		t.Errorf("time: %d %d %v %v", o, ts, found, err)
	}
	if !s.rebuilt.Load() {
		t.Error("not rebuilt")
	}
}

// TestMisleadingIndex: an entry that points at another batch than it says would hide what lies before.
func TestMisleadingIndex(t *testing.T) {
	dir := t.TempDir()
	f := NewFiles(vfs.OS, 100, 10, false)
	s := sealed(t, f, dir, 0, 300)
	name := dir + "/" + FileName(0, IndexSuffix)
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for i := 4; i < len(b); i += 8 {
		binary.BigEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:])+200)
	}
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
	last := int64(binary.BigEndian.Uint32(b[len(b)/16*8:]))
	wantLocate(t, s, last, 100*last)
}

// TestCutLog: a log file that lost its end gives an error that says where, not a panic.
func TestCutLog(t *testing.T) {
	dir := t.TempDir()
	f := NewFiles(vfs.OS, 100, 10, false)
	s := sealed(t, f, dir, 0, 300)
	if err := os.Truncate(dir+"/"+FileName(0, LogSuffix), 10_050); err != nil {
		t.Fatal(err)
	}
	_, err := s.Locate(250)
	var corrupt *CorruptError
	if !errors.As(err, &corrupt) {
		t.Errorf("%v", err)
	}
	wantLocate(t, s, 99, 9900)
}

// TestReferences: a slice outlives eviction and removal, and the descriptor goes with the last reference.
func TestReferences(t *testing.T) {
	dir := t.TempDir()
	f := NewFiles(vfs.OS, 1, 10, false)
	a, b := sealed(t, f, dir, 0, 10), sealed(t, f, dir, 100, 10)
	r, err := a.Acquire()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		rb, err := b.Acquire()
		if err != nil {
			t.Fatal(err)
		}
		rb.Release()
	}
	if err := a.Remove(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	if _, err := r.File().ReadAt(buf, 100); err != nil || buf[7] != 1 {
		t.Errorf("%v %x", err, buf[:8])
	}
	r.Release()
	if err := os.WriteFile(dir+"/"+FileName(0, LogSuffix), []byte("another's"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Acquire(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a removed segment opens: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a second Release passes")
		}
	}()
	r.Release()
}

// TestZerosAndAppends: zeros written ahead never land on data.
func TestZerosAndAppends(t *testing.T) {
	dir := t.TempDir()
	f := NewFiles(vfs.OS, 10, 10, false)
	s := f.New(plain{}, dir, 0, time.Unix(0, 0))
	if err := s.Create(); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	fills := 0
	const n, size = 6000, 1000
	for i := range int64(n) {
		put(t, s, record(i, 1, size))
		if s.WantsZeros() {
			fills++
			wg.Go(func() {
				if err := s.ZeroAhead(); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	if fills == 0 || s.zero.done.Load() == 0 {
		t.Errorf("%d fills, zeros to %d", fills, s.zero.done.Load())
	}
	res, err := s.Scan(ScanOptions{Verify: true, Index: true, Interval: 4096})
	if err != nil || res.Batches != n || res.End != n*size || res.Torn {
		t.Errorf("%+v %v", res, err)
	}
	if err := s.Seal(); err != nil {
		t.Fatal(err)
	}
	if size, err := vfs.OS.Size(dir + "/" + FileName(0, LogSuffix)); size != n*1000 || err != nil {
		t.Errorf("sealed file of %d bytes, %v", size, err)
	}
}
