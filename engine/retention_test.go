package engine

import (
	"testing"
	"time"
)

// TestRetentionWithoutTimes: regressions 76. Records without a time do not stay for ever: their segment counts from its last append, as
// in Kafka, and after a restart, when nobody knows that any more, from the time it was opened.
func TestRetentionWithoutTimes(t *testing.T) {
	f := newFixture(t)
	minute := DefaultLogConfig
	minute.RetentionMs = 60_000
	l := f.log(true, &minute)
	start := func() int64 {
		f.e.Maintain()
		return l.Offsets().LogStart
	}
	f.append(l, spec{ts: -1})
	f.now = f.now.Add(50 * time.Second)
	f.append(l, spec{ts: -1})
	f.now = f.now.Add(50 * time.Second)
	if got := start(); got != 0 {
		t.Errorf("50 s after the last append: log start %d", got)
	}
	f.now = f.now.Add(11 * time.Second)
	if got := start(); got != 2 {
		t.Errorf("61 s after the last append: log start %d", got)
	}
	f.append(l, spec{ts: -1})
	f.close()
	f.now = f.now.Add(time.Hour)
	l = f.reopen(&minute)
	if got := start(); got != 2 {
		t.Errorf("at once after a restart: log start %d", got)
	}
	f.now = f.now.Add(61 * time.Second)
	if got := start(); got != 3 {
		t.Errorf("61 s after a restart: log start %d", got)
	}
}
