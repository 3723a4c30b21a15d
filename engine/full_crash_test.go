package engine

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"kaas/engine/vfs/crashfs"
)

// fullLoad is a load in which each kind of file is made and grows, on a disk that has no room for a while.
type fullLoad struct {
	t      *testing.T
	disk   *crashfs.Disk
	faults *crashfs.Faults
	f      *fixture
	rule   string
	cfg    *LogConfig
	logs   []*Log
	epoch  int32
	turn   int32
	seq    [3]int32            // of the next batch of the log's producer
	stored [3]map[int64][]byte // all that was appended, by offset
	sent   [3]map[int64]bool   // offsets of what was acknowledged as durable
	refuse int                 // appends that found no room
}

func newFullLoad(t *testing.T, rule string, d Durability) *fullLoad {
	w := &fullLoad{t: t, disk: crashfs.NewBare(), faults: crashfs.Rules(""), rule: rule, cfg: small(1000)}
	w.cfg.IndexIntervalBytes, w.cfg.RetentionMs, w.cfg.FileDeleteDelayMs = 200, -1, 0
	for i := range w.sent {
		w.stored[i], w.sent[i] = map[int64][]byte{}, map[int64]bool{}
	}
	w.f = newFixture(t, func(c *Config) {
		clock := c.Clock
		*c = modelConfig(w.faults.FS(w.disk), d, clock, false)
	})
	w.open(true)
	return w
}

func (w *fullLoad) set(rule string) {
	if err := w.faults.Set(rule); err != nil {
		w.t.Fatal(err)
	}
}

// open makes the logs known to the engine and recovers them.
func (w *fullLoad) open(isNew bool) {
	w.t.Helper()
	w.logs = nil
	for i := range int32(3) {
		w.logs = append(w.logs, w.f.e.OpenLog(LogSpec{Topic: "t", Partition: i, TopicID: [16]byte{byte(i + 1)}, Config: w.cfg, LeaderEpoch: w.epoch, New: isNew}))
	}
	w.epoch++
	if err := w.f.e.Recover(w.t.Context(), w.logs, nil); err != nil && !errors.Is(err, syscall.ENOSPC) {
		w.t.Fatalf("%s: recover: %v", w.rule, err)
	}
}

// spec is the next batch for a log: without a producer, idempotent, transactional with a marker now and then.
func (w *fullLoad) spec(i int) spec {
	s := spec{size: 200, tag: byte(w.turn), n: 1 + int(w.turn)%3}
	switch i {
	case 1:
		s.pid, s.seq = 7, w.seq[i]
	case 2:
		s.pid, s.seq, s.txn = 9, w.seq[i], true
		if w.turn%3 == 2 && w.logs[i].TxnOpen(9) {
			s.control, s.n = true, 1
		}
	}
	return s
}

// send appends a batch to each log and waits for it. It may be refused for want of room, for no other reason; nothing goes offline.
func (w *fullLoad) send() {
	w.t.Helper()
	w.turn++
	for i, l := range w.logs {
		s := w.spec(i)
		en := []Entry{batch(s)}
		l.Append(en)
		err := en[0].Err
		if err == nil {
			w.stored[i][en[0].BaseOffset] = bytes.Clone(en[0].Data)
			if s.pid != 0 && !s.control {
				w.seq[i] += int32(s.n)
			}
			wait := make(waiter, 1)
			var done bool
			if done, err = l.AwaitDurable(en[0].LastOffset+1, wait); !done && err == nil {
				err = <-wait
			}
			w.sent[i][en[0].BaseOffset] = err == nil
		}
		w.judge(l, "append", err)
	}
}

func (w *fullLoad) judge(l *Log, what string, err error) {
	w.t.Helper()
	if err != nil && (!errors.Is(err, syscall.ENOSPC) || !errors.Is(err, ErrStorage)) {
		w.t.Fatalf("%s: %s to %v: %v", w.rule, what, l, err)
	}
	if err != nil {
		w.refuse++
	}
	if l.Err() != nil {
		w.t.Fatalf("%s: %v is offline after %s: %v", w.rule, l, what, l.Err())
	}
}

// work is the load besides.
func (w *fullLoad) work(n int) {
	for i := range n {
		w.send()
		switch i {
		case 2:
			if o := w.logs[0].Offsets(); o.HighWatermark > 2 {
				_, err := w.logs[0].DeleteRecords(o.LogStart + 2)
				w.judge(w.logs[0], "DeleteRecords", err)
			}
		case 3:
			w.f.e.Maintain()
		}
		w.f.e.work.wait()
		w.f.e.reaper.wait()
	}
}

// roomAgain ends the fault, and what began under it: a commit round that did refuses those who come to wait for it.
func (w *fullLoad) roomAgain() {
	w.t.Helper()
	w.set("")
	w.work(1)
	w.refuse = 0
}

// check compares what the logs have with what was sent.
func (w *fullLoad) check(when string) {
	w.t.Helper()
	for i, l := range w.logs {
		if err := l.Load(); err != nil {
			w.t.Fatalf("%s, %s: %v: %v", w.rule, when, l, err)
		}
		start := l.Offsets().LogStart
		found := w.f.readAll(l, start)
		for offset, acked := range w.sent[i] {
			if acked && offset >= start && !slices.Contains(found, offset) {
				w.t.Fatalf("%s, %s: %v has %v, lost %d", w.rule, when, l, found, offset)
			}
		}
		for _, offset := range found {
			b := make([]byte, len(w.stored[i][offset]))
			if n, _, err := l.ReadBytes(b, max(offset, start), ReadUncommitted); err != nil || n == 0 || !bytes.Equal(b, w.stored[i][offset]) {
				w.t.Fatalf("%s, %s: %v: batch %d of %d is not what was sent: %d bytes, %v", w.rule, when, l, offset, len(b), n, err)
			}
		}
	}
}

// restart is one after a kill, or after a power cut.
func (w *fullLoad) restart(disk *crashfs.Disk, rule string) {
	w.t.Helper()
	old := w.f.e
	w.disk.CutAfter(0)
	_ = old.Close()
	w.f.e, w.disk = nil, disk
	w.set(rule)
	w.f.cfg.FS = w.faults.FS(disk)
	w.f.open()
	w.open(false)
}

// TestFullDiskAnywhere: regressions 33. Whatever the disk has no room for but a sync, once or for a while, appends are refused and nothing that was
// acknowledged is lost; so for syncs of the journal, whose content can go to another file. When there is room again all goes on without a restart.
func TestFullDiskAnywhere(t *testing.T) {
	for _, op := range []string{crashfs.OpCreate, crashfs.OpWrite, crashfs.OpAllocate, crashfs.OpTruncate, crashfs.OpRename, "mkdir of t-?", crashfs.OpZero, crashfs.OpRemove,
		"sync of kaas.journal*"} {
		for _, d := range []Durability{GroupCommit, PageCache} {
			for _, plus := range []string{"", "+"} {
				fullDisk(t, op, d, plus)
			}
		}
	}
}

func fullDisk(t *testing.T, op string, d Durability, plus string) {
	for n := 1; ; n++ {
		rule := fmt.Sprintf("%dth%s %s: ENOSPC", n, plus, op)
		w := newFullLoad(t, rule, d)
		if n%2 == 0 {
			w.send()
		}
		w.set(rule)
		w.work(6)
		fired := w.faults.Fired()
		if n%3 == 0 {
			w.check("while it is full")
		}
		w.roomAgain()
		w.work(6)
		if w.refuse > 0 {
			t.Fatalf("%s: %d appends refused with room", rule, w.refuse)
		}
		w.check("with room")
		if op == "sync of kaas.journal*" {
			rule = "" // a start that cannot sync does not take place
		}
		w.restart(w.disk.Clone(), rule)
		fired += w.faults.Fired()
		w.send()
		w.roomAgain()
		w.work(3)
		if w.refuse > 0 {
			t.Fatalf("%s: %d appends refused with room after a start", rule, w.refuse)
		}
		w.check("after a kill")
		if d == GroupCommit {
			w.restart(cutAll(w.disk), "")
			w.check("after a power cut")
		}
		w.f.close()
		if fired == 0 {
			break
		}
	}
}
