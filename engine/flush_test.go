package engine

import (
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"kaas/engine/vfs"
)

// heldFS lets a test decide when a sync of a segment ends.
type heldFS struct {
	vfs.FS
	began chan struct{} // told of each sync
	let   chan struct{} // taken from by each sync
}

type heldFile struct {
	vfs.File
	fs *heldFS
}

func (f *heldFS) Open(name string, mode vfs.Mode) (vfs.File, error) {
	file, err := f.FS.Open(name, mode)
	if err != nil || !strings.HasSuffix(name, ".log") {
		return file, err
	}
	return &heldFile{file, f}, nil
}

func (f *heldFile) Sync() error {
	f.fs.began <- struct{}{}
	<-f.fs.let
	return f.File.Sync()
}

// flushFixture has a log under PageCache whose syncs the test lets go.
func flushFixture(t *testing.T, change func(*LogConfig)) (*fixture, *Log, *heldFS) {
	fs := &heldFS{FS: vfs.OS, began: make(chan struct{}, 100), let: make(chan struct{})}
	f := newFixture(t, func(c *Config) { c.FS = fs })
	t.Cleanup(func() { close(fs.let) }) // before the fixture's: its close syncs
	cfg := DefaultLogConfig
	change(&cfg)
	return f, f.log(true, &cfg), fs
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

type told chan error

func (w told) Durable(err error) { w <- err }

// TestFlushEachMessage: with flush.messages=1 the high watermark follows the sync and waiters wait for it, until the setting is altered;
// what was appended before it was set is synced for who waits.
func TestFlushEachMessage(t *testing.T) {
	f, l, fs := flushFixture(t, func(c *LogConfig) { c.FlushMessages = 1 })
	wait := make(told, 1)
	e := f.append(l, spec{n: 3})
	wantOffsets(t, l, Offsets{LogEnd: 3})
	if done, err := l.AwaitDurable(e.LastOffset+1, wait); done || err != nil || !l.FlushesEach() {
		t.Fatalf("before the sync: %v %v, %v", done, err, l.FlushesEach())
	}
	<-fs.began
	wantOffsets(t, l, Offsets{LogEnd: 3})
	fs.let <- struct{}{}
	if err := <-wait; err != nil {
		t.Fatal(err)
	}
	wantOffsets(t, l, Offsets{HighWatermark: 3, LastStable: 3, LogEnd: 3})

	never := DefaultLogConfig
	l.SetConfig(&never)
	e = f.append(l, spec{n: 2})
	wantOffsets(t, l, Offsets{HighWatermark: 5, LastStable: 5, LogEnd: 5})
	if done, err := l.AwaitDurable(e.LastOffset+1, nil); !done || err != nil {
		t.Errorf("page-cache: %v %v", done, err)
	}
	each := DefaultLogConfig
	each.FlushMessages = 1
	l.SetConfig(&each)
	if done, err := l.AwaitDurable(e.LastOffset+1, wait); done || err != nil {
		t.Fatalf("appended before: %v %v", done, err)
	}
	fs.let <- struct{}{}
	if err := <-wait; err != nil || l.item.Durable() != 5 {
		t.Errorf("durable %d, %v", l.item.Durable(), err)
	}
}

// TestFlushMessages: a commit begins with the append that makes N messages unsynced, nobody waits for it, and the next begins N later.
func TestFlushMessages(t *testing.T) {
	f, l, fs := flushFixture(t, func(c *LogConfig) { c.FlushMessages = 10 })
	f.append(l, spec{n: 9})
	if l.item.Durable() != 0 || l.st.asked != 0 {
		t.Fatalf("9 messages: durable %d, asked %d", l.item.Durable(), l.st.asked)
	}
	e := f.append(l, spec{n: 2})
	wantOffsets(t, l, Offsets{HighWatermark: 11, LastStable: 11, LogEnd: 11})
	if done, err := l.AwaitDurable(e.LastOffset+1, nil); !done || err != nil {
		t.Errorf("somebody waits: %v %v", done, err)
	}
	<-fs.began
	f.append(l, spec{n: 9})
	if l.st.asked != 11 {
		t.Errorf("9 messages while a sync runs: asked for %d", l.st.asked)
	}
	fs.let <- struct{}{}
	until(t, "durable", func() bool { return l.item.Durable() >= 11 })
	f.append(l, spec{})
	fs.let <- struct{}{}
	until(t, "the second commit", func() bool { return l.item.Durable() == 21 })
	if l.st.asked != 21 {
		t.Errorf("asked for %d", l.st.asked)
	}
}

// TestFlushMs: a commit begins by itself after flush.ms, again after the next append, and for what was appended before it was set.
func TestFlushMs(t *testing.T) {
	f, l, fs := flushFixture(t, func(c *LogConfig) { c.FlushMs = time.Hour.Milliseconds() })
	f.append(l, spec{n: 3})
	f.append(l, spec{n: 3})
	if n := len(f.e.flusher.logs); n != 1 || !l.listed.Load() || len(fs.began) != 0 {
		t.Fatalf("%d logs wait, %d syncs", n, len(fs.began))
	}
	soon := DefaultLogConfig
	soon.FlushMs = 1
	l.SetConfig(&soon)
	fs.let <- struct{}{}
	until(t, "durable after the change", func() bool { return l.item.Durable() == 6 })
	f.append(l, spec{})
	fs.let <- struct{}{}
	until(t, "durable after the next append", func() bool { return l.item.Durable() == 7 })
	wantOffsets(t, l, Offsets{HighWatermark: 7, LastStable: 7, LogEnd: 7})

	never := DefaultLogConfig
	l.SetConfig(&never)
	f.append(l, spec{n: 2})
	if l.listed.Load() {
		t.Error("it waits for a flush.ms that it has not")
	}
	soon.FlushMs = 0
	l.SetConfig(&soon)
	fs.let <- struct{}{}
	until(t, "durable without an append", func() bool { return l.item.Durable() == 9 })

	soon.FlushMs = math.MaxInt64 - 1 // no overflow, and a log that is gone is let go of
	far := soon
	l.SetConfig(&far)
	f.append(l, spec{})
	if !l.listed.Load() {
		t.Error("not listed")
	}
	f.e.Remove(l)
	f.e.flushWaiting()
	if n := len(f.e.flusher.logs); n != 0 {
		t.Errorf("%d logs wait", n)
	}
}
