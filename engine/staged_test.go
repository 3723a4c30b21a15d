package engine

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"

	"kaas/engine/vfs/crashfs"
)

// TestStaged: what a round takes from memory is what the file has, what was not kept whole is read, and when the round has ended nothing is kept.
func TestStaged(t *testing.T) {
	for _, c := range []struct {
		sizes  []int // of the records of the appends to one log before a round
		staged bool  // all of them
	}{
		{[]int{100}, true},
		{[]int{100, 2000, 3000}, true},
		{[]int{stagedMax - 61}, true}, // the head of a batch is 61 bytes
		{[]int{stagedMax - 60}, false},
		{[]int{100, stagedMax - 61}, false},
		{[]int{100, 2 * stagedMax, 100}, false},
		{[]int{2 * stagedMax, 100, 100}, false},
	} {
		t.Run(fmt.Sprint(c.sizes), func(t *testing.T) {
			m := newMany(t, 2)
			m.settled()
			m.wantAll(nil, m.round(spec{n: 1})) // with this one the rounds go through the commit journal
			held, release := make(chan struct{}), make(chan struct{})
			var once sync.Once
			m.disk.OnOp(func(o crashfs.Op) {
				if o.Kind == crashfs.OpSync {
					once.Do(func() { close(held); <-release })
				}
			})
			m.append(m.logs[0], spec{n: 1})
			<-held
			l := m.logs[1]
			var last Entry
			for i, size := range c.sizes {
				last = m.append(l, spec{size: size, tag: byte(i + 1)})
			}
			p := l.pub.read()
			got, want := make([]byte, p.end.pos-p.hw.pos), make([]byte, p.end.pos-p.hw.pos)
			if !l.fromFile(want, &p) {
				t.Fatal("not read")
			}
			if ok := l.fromStaged(got, p.end.seg, p.hw.pos); ok != c.staged || ok && !bytes.Equal(got, want) {
				t.Errorf("staged %v, want %v; the bytes of the file: %v", ok, c.staged, bytes.Equal(got, want))
			}
			close(release)
			m.durable(l, last)
			m.disk.OnOp(nil)
			if l.syncMu.Lock(); l.staged != nil {
				t.Errorf("kept: %+v", l.staged)
			}
			l.syncMu.Unlock()
			m.disk = cutAll(m.disk)
			m.onDisk(t, 2, false)
			if got := m.readAll(m.logs[1], 0); len(got) != 2+len(c.sizes) {
				t.Errorf("after a power cut: %v", got)
			}
		})
	}
}

// TestStagedIsDropped: what is durable is dropped and the rest stays, in its place; without a commit journal nothing is kept; of very many logs some are
// read.
func TestStagedIsDropped(t *testing.T) {
	m := newMany(t, 1)
	m.settled()
	l, s := m.logs[0], m.e.shared
	s.running.Store(true)
	stage := func(b string, at int64) { l.stage(&run{bufs: [][]byte{[]byte(b)}, bytes: int64(len(b))}, 7, at) }
	want := func(b string, at int64, ok bool) {
		t.Helper()
		got := make([]byte, len(b))
		if l.fromStaged(got, 7, at) != ok || ok && string(got) != b {
			t.Errorf("%q at %d: got %q, want it staged: %v", b, at, got, ok)
		}
	}
	unstage := func(end place) {
		l.syncMu.Lock()
		l.unstage(end)
		l.syncMu.Unlock()
	}
	stage("abc", 10)
	stage("def", 13)
	want("abcdef", 10, true)
	want("cd", 12, true)
	want("abcdefg", 10, false)
	want("xa", 9, false)
	unstage(place{0, 7, 12})
	want("cdef", 12, true)
	want("bcdef", 11, false)
	unstage(place{0, 7, 5}) // of before
	want("cdef", 12, true)
	stage("xyz", 20) // what lies between was not kept
	want("xyz", 20, true)
	want("ef", 14, false)
	unstage(place{0, 8, 1})
	want("xyz", 20, false)
	if n := s.staging.Load(); n != 0 {
		t.Errorf("%d logs", n)
	}
	stage("abc", 10)
	m.e.group.Poison(&l.item, errors.New("test"))
	if want("abc", 10, false); s.staging.Load() != 0 {
		t.Errorf("%d logs when the only one is offline", s.staging.Load())
	}
	stage("abc", 10)
	want("abc", 10, false)
	m = newMany(t, 1)
	m.settled()
	l, s = m.logs[0], m.e.shared
	s.running.Store(true)
	s.staging.Store(stagedLogs)
	stage("abc", 10)
	want("abc", 10, false)
	s.staging.Store(0)
	s.running.Store(false)
	stage("abc", 10)
	want("abc", 10, false)
}
