package engine

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

type fixture struct {
	t   testing.TB
	cfg Config
	e   *Engine
	now time.Time
}

func newFixture(t testing.TB, change ...func(*Config)) *fixture {
	f := &fixture{t: t, now: time.UnixMilli(1_700_000_000_000)}
	f.cfg = Config{Dir: t.TempDir(), Durability: PageCache, Format: testFormat{}, Logger: quiet, Clock: func() time.Time { return f.now }}
	for _, c := range change {
		c(&f.cfg)
	}
	f.open()
	t.Cleanup(func() {
		if f.e != nil {
			f.e.Close()
		}
	})
	return f
}

func (f *fixture) open() {
	f.t.Helper()
	e, err := Open(f.cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	f.e = e
}

func (f *fixture) close() {
	f.t.Helper()
	if err := f.e.Close(); err != nil {
		f.t.Fatal(err)
	}
	f.e = nil
}

// kill drops the engine as a killed process would: nothing is flushed, the lock is gone.
func (f *fixture) kill() {
	e := f.e
	e.closed.Store(true)
	close(e.stop)
	e.work.wait()
	e.group.Close()
	e.releaseShared()
	e.reaper.wait()
	e.lock.Unlock()
	f.e = nil
}

func small(bytes int64) *LogConfig {
	c := DefaultLogConfig
	c.SegmentBytes = bytes
	return &c
}

func (f *fixture) log(isNew bool, c *LogConfig) *Log {
	return f.e.OpenLog(LogSpec{Topic: "t", Partition: 0, TopicID: [16]byte{1}, Config: c, New: isNew})
}

func (f *fixture) reopen(c *LogConfig) *Log {
	f.t.Helper()
	f.open()
	l := f.log(false, c)
	if err := f.e.Recover(context.Background(), []*Log{l}, nil); err != nil {
		f.t.Fatal(err)
	}
	if err := l.Load(); err != nil {
		f.t.Fatal(err)
	}
	return l
}

func (f *fixture) append(l *Log, s spec) Entry {
	f.t.Helper()
	en := []Entry{batch(s)}
	l.Append(en)
	if en[0].Err != nil {
		f.t.Fatal(en[0].Err)
	}
	return en[0]
}

// readAll reads from offset to the end and returns the base offsets.
func (f *fixture) readAll(l *Log, offset int64) (bases []int64) {
	f.t.Helper()
	for {
		s, err := l.Read(offset, 1<<20, true, ReadUncommitted)
		if err != nil {
			f.t.Fatalf("read at %d: %v", offset, err)
		}
		if s.Len == 0 {
			return bases
		}
		b := make([]byte, s.Len)
		if _, err := s.Ref.File().ReadAt(b, s.Pos); err != nil {
			f.t.Fatal(err)
		}
		s.Ref.Release()
		for len(b) > 0 {
			n, info, err := testFormat{}.Next(b)
			if err != nil {
				f.t.Fatalf("batch after %d: %v", offset, err)
			}
			bases = append(bases, info.BaseOffset)
			offset = info.LastOffset() + 1
			b = b[n:]
		}
	}
}

func wantOffsets(t testing.TB, l *Log, want Offsets) {
	t.Helper()
	if got := l.Offsets(); got != want {
		t.Errorf("offsets %+v, want %+v", got, want)
	}
}

func TestAppendReadReopen(t *testing.T) {
	f := newFixture(t)
	l := f.log(true, nil)
	for i := range 10 {
		if e := f.append(l, spec{n: 3}); e.BaseOffset != int64(3*i) || e.LastOffset != int64(3*i+2) {
			t.Errorf("batch %d: offsets %d-%d", i, e.BaseOffset, e.LastOffset)
		}
	}
	want := Offsets{HighWatermark: 30, LastStable: 30, LogEnd: 30}
	wantOffsets(t, l, want)
	check := func(l *Log) {
		t.Helper()
		if got := f.readAll(l, 4); len(got) != 9 || got[0] != 3 || got[8] != 27 {
			t.Errorf("read from 4: %v", got)
		}
		if s, err := l.Read(30, 100, true, ReadUncommitted); s.Len != 0 || err != nil {
			t.Errorf("at the end: %+v %v", s, err)
		}
		if _, err := l.Read(31, 100, true, ReadUncommitted); !errors.Is(err, ErrOffsetOutOfRange) {
			t.Errorf("after the end: %v", err)
		}
	}
	check(l)
	f.close()
	l = f.reopen(nil)
	wantOffsets(t, l, want)
	check(l)
	f.append(l, spec{})
	f.kill()
	l = f.reopen(nil)
	want.HighWatermark, want.LastStable, want.LogEnd = 31, 31, 31
	wantOffsets(t, l, want)
	check2 := f.readAll(l, 0)
	if len(check2) != 11 {
		t.Errorf("after a kill: %v", check2)
	}
}

type waiter chan error

func (w waiter) Durable(err error) { w <- err }

func TestGroupCommit(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.Durability = GroupCommit })
	l := f.log(true, nil)
	e := f.append(l, spec{n: 2})
	w := make(waiter, 1)
	done, err := l.AwaitDurable(e.LastOffset+1, w)
	if err != nil {
		t.Fatal(err)
	}
	if !done {
		if err := <-w; err != nil {
			t.Fatal(err)
		}
	}
	wantOffsets(t, l, Offsets{HighWatermark: 2, LastStable: 2, LogEnd: 2})
	if done, err := l.AwaitDurable(2, w); !done || err != nil {
		t.Errorf("again: %v %v", done, err)
	}
	f.kill()
	l = f.reopen(nil)
	if got := f.readAll(l, 0); len(got) != 1 {
		t.Error(got)
	}
}
