package engine

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
)

// bomb is a Format, and a RecordFormat, that panics while it is armed.
type bomb struct {
	testFormat
	keys
	armed *atomic.Pointer[string]
}

func (b bomb) Next(p []byte) (int, BatchInfo, error) {
	if s := b.armed.Load(); s != nil {
		panic(*s)
	}
	return b.testFormat.Next(p)
}

// TestPanicInOneLog: a Format that panics over a log's batches takes that log offline in a start, and ends its compaction; the others go on. A
// panic that says BUG goes on.
func TestPanicInOneLog(t *testing.T) {
	b := bomb{armed: new(atomic.Pointer[string])}
	what := "index out of range"
	f := newFixture(t, func(c *Config) { c.Format, c.Records = b, keys{} })
	cfg := small(1000)
	cfg.Compact, cfg.Delete, cfg.MinCleanableRatio = true, false, 0
	l := f.log(true, cfg)
	for range 4 {
		f.append(l, spec{size: 500})
	}
	f.e.work.wait()
	b.armed.Store(&what)
	if n := f.e.Clean(); n != 0 || l.Err() != nil || !f.e.cleaner.bad[l] {
		t.Errorf("%d cleans, %v, bad %v", n, l.Err(), f.e.cleaner.bad[l])
	}
	f.append(l, spec{size: 500})
	b.armed.Store(nil)
	f.kill()
	f.open()
	l = f.log(false, cfg)
	other := f.e.OpenLog(LogSpec{Topic: "other", New: true})
	b.armed.Store(&what)
	if err := f.e.Recover(context.Background(), []*Log{l}, nil); err != nil {
		t.Error(err)
	}
	if err := l.Err(); !errors.Is(err, ErrStorage) || !strings.Contains(err.Error(), what) {
		t.Errorf("offline: %v", err)
	}
	f.append(other, spec{})
	b.armed.Store(nil)
	f.kill()
	if got := f.readAll(f.reopen(cfg), 0); len(got) != 5 {
		t.Errorf("the next start: %v", got)
	}

	defer func() {
		if v := recover(); v != "BUG: no" {
			t.Errorf("recovered %v", v)
		}
	}()
	_ = other.contained(func() error { panic("BUG: no") })
}
