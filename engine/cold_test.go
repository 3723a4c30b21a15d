package engine

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// dropPages puts all log files below dir out of the page cache.
func dropPages(t *testing.T, dir string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*", "*.log"))
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		f, err := os.Open(name)
		if err == nil {
			err = f.Sync()
		}
		if err == nil {
			err = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
		}
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
}

// Who must not wait for the disk is told so where Read would wait, finds what Read has found, and always finds the end of the log.
func TestReadCached(t *testing.T) {
	f := newFixture(t)
	l := f.log(true, small(100_000))
	const end = 1040 // the last segment begins at 970
	for range end {
		f.append(l, spec{size: 1024 - 61})
	}
	now := f.now.UnixMilli()
	cached := func(offset int64) (Slice, error) {
		s, err := l.ReadCached(offset, 10_000, true, ReadUncommitted)
		if s.Ref != nil {
			s.Ref.Release()
			s.Ref = nil
		}
		return s, err
	}
	if s, err := cached(end - 10); err != nil || s.FirstOffset != end-10 || s.Lag != 10*1024 || s.AppendedMs != now {
		t.Errorf("at the end: %+v, %v", s, err)
	}
	if _, err := cached(end + 1); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Errorf("after the end: %v", err)
	}
	dropPages(t, f.cfg.Dir)
	if _, err := cached(5); !errors.Is(err, ErrCold) {
		t.Skipf("the file system does not drop pages (%v)", err)
	}
	if s, err := cached(end - 1); err != nil || s.FirstOffset != end-1 {
		t.Errorf("the last batch: %+v, %v", s, err)
	}
	for _, offset := range []int64{5, 600, 975} { // of sealed segments, and of the last one, but not of its last batches
		var err error
		for range 100 { // dropping is advice: what is being read or written back stays
			dropPages(t, f.cfg.Dir)
			if _, err = cached(offset); errors.Is(err, ErrCold) {
				break
			}
		}
		if !errors.Is(err, ErrCold) {
			t.Errorf("offset %d: want ErrCold, got %v", offset, err)
		}
		want, err := l.Read(offset, 10_000, true, ReadUncommitted)
		if err != nil {
			t.Fatal(err)
		}
		want.Ref.Release()
		want.Ref = nil
		if s, err := cached(offset); err != nil || s.FirstOffset != offset || s.Pos != want.Pos || s.Len != want.Len || s.FD != want.FD {
			t.Errorf("offset %d: got %+v, %v after Read has found %+v", offset, s, err, want)
		}
	}
	f.close()
	l = f.reopen(small(100_000))
	if _, err := l.Read(end-1, 10_000, true, ReadUncommitted); err != nil {
		t.Fatal(err)
	}
	if s, err := cached(end - 1); err != nil || s.Lag != math.MaxInt64 || s.AppendedMs != 0 {
		t.Errorf("of another process: %+v, %v", s, err)
	}
	f.append(l, spec{size: 1024 - 61})
	if s, err := cached(end - 1); err != nil || s.Lag != math.MaxInt64 {
		t.Errorf("of another process before an append: %+v, %v", s, err)
	}
	if s, err := cached(end); err != nil || s.Lag != 1024 || s.AppendedMs != now {
		t.Errorf("of this process: %+v, %v", s, err)
	}
}
