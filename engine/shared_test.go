package engine

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"kaas/engine/redo"
	"kaas/engine/segment"
	"kaas/engine/vfs"
	"kaas/engine/vfs/crashfs"
)

// many is a fixture with logs on a crashfs disk behind faults, and the commit journal from the first round on.
type many struct {
	*fixture
	disk   *crashfs.Disk
	faults *crashfs.Faults
	logs   []*Log
}

func newMany(t *testing.T, n int, change ...func(*Config)) *many {
	m := &many{disk: crashfs.New()}
	m.onDisk(t, n, true, change...)
	return m
}

// onDisk opens an engine on the disk, with n logs; unless they are new, as a start does.
func (m *many) onDisk(t *testing.T, n int, isNew bool, change ...func(*Config)) {
	t.Helper()
	m.faults, m.logs = crashfs.Rules(""), nil
	m.fixture = newFixture(t, append([]func(*Config){func(c *Config) {
		c.FS, c.Dir, c.Durability, c.sharedAfter, c.Maintenance = m.faults.FS(m.disk), modelDir, GroupCommit, 1, 1<<40
	}}, change...)...)
	for i := range n {
		m.logs = append(m.logs, m.e.OpenLog(LogSpec{Topic: "t", Partition: int32(i), TopicID: [16]byte{1}, Config: small(1 << 20), New: isNew}))
	}
	if isNew {
		return
	}
	if err := m.e.Recover(t.Context(), m.logs, nil); err != nil {
		t.Fatal(err)
	}
}

// settled appends to every log until it is durable, and waits until the commit journal may be used.
func (m *many) settled() {
	m.t.Helper()
	for _, l := range m.logs {
		m.durable(l, m.append(l, spec{n: 1}))
	}
	m.e.shared.work.Wait()
}

// round appends a batch to every log so that one commit round takes them all, and returns how each ended: a first append holds the
// committer in its sync meanwhile.
func (m *many) round(s spec) []error {
	m.t.Helper()
	held, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	m.disk.OnOp(func(o crashfs.Op) {
		if o.Kind == crashfs.OpSync {
			once.Do(func() { close(held); <-release })
		}
	})
	m.append(m.logs[0], s)
	<-held
	waits := make([]waiter, len(m.logs))
	errs := make([]error, len(m.logs))
	for i, l := range m.logs {
		waits[i] = make(waiter, 1)
		e := m.append(l, s)
		if done, err := l.AwaitDurable(e.LastOffset+1, waits[i]); done || err != nil {
			m.t.Fatal(done, err)
		}
	}
	close(release)
	for i := range waits {
		errs[i] = <-waits[i]
	}
	m.disk.OnOp(nil)
	return errs
}

func (m *many) wantAll(want error, errs []error) {
	m.t.Helper()
	for i, err := range errs {
		if !errors.Is(err, want) {
			m.t.Fatalf("log %d: %v, want %v", i, err, want)
		}
	}
}

// wantEnds starts from the disk as it is, without a reboot, and then again after the worst power cut: what the first start shows must
// be there for the second.
func (m *many) wantEnds(t *testing.T, end int64) {
	t.Helper()
	m.disk = m.disk.Clone()
	for _, what := range []string{"a start", "a power cut after it"} {
		m.onDisk(t, len(m.logs), false)
		for _, l := range m.logs {
			if err := l.Load(); err != nil || l.Offsets().HighWatermark != end {
				t.Errorf("after %s: %v has %+v, want the end %d, %v", what, l, l.Offsets(), end, err)
			}
			if got := m.readAll(l, 0); l.Err() == nil && len(got) != int(end) {
				t.Errorf("after %s: %v has %v", what, l, got)
			}
		}
		m.disk = cutAll(m.disk)
	}
}

// TestOneRequestOverManyLogs: a round of 100 logs is one sync, of the commit journal; without it there is one for each.
func TestOneRequestOverManyLogs(t *testing.T) {
	for _, journal := range []int64{0, -1} {
		m := newMany(t, 100, func(c *Config) { c.CommitJournalBytes = journal })
		if journal == 0 {
			m.settled()
		} else {
			for _, l := range m.logs {
				m.durable(l, m.append(l, spec{n: 1}))
			}
		}
		var syncs, others atomic.Int64
		held, release := make(chan struct{}), make(chan struct{})
		var once sync.Once
		m.disk.OnOp(func(o crashfs.Op) {
			if o.Kind != crashfs.OpSync {
				return
			}
			if syncs.Add(1); journal == 0 && !strings.Contains(o.Name, "/kaas.redo.") {
				others.Add(1)
			}
			once.Do(func() { close(held); <-release })
		})
		m.append(m.logs[0], spec{n: 1})
		<-held
		for _, l := range m.logs {
			m.append(l, spec{n: 1})
		}
		close(release)
		for _, l := range m.logs {
			m.durable(l, Entry{LastOffset: l.Offsets().LogEnd - 1})
		}
		m.disk.OnOp(nil)
		want := int64(2) // the one that was held, and one for all
		if journal < 0 {
			want = 101
		}
		if syncs.Load() != want || others.Load() != 0 {
			t.Errorf("journal %d: %d syncs, %d of other files, want %d", journal, syncs.Load(), others.Load(), want)
		}
	}
}

// TestCommitJournalIsReplayed: what is durable in the commit journal only outlives the power, and a life that uses the journal anew.
func TestCommitJournalIsReplayed(t *testing.T) {
	m := newMany(t, 40)
	m.settled()
	m.wantAll(nil, m.round(spec{n: 1}))
	m.disk = cutAll(m.disk)
	m.onDisk(t, 40, false)
	for _, name := range m.disk.Files("kaas.redo.*") {
		t.Errorf("%s is left after the recovery", name)
	}
	m.settled()
	m.wantAll(nil, m.round(spec{n: 1}))
	m.disk = cutAll(m.disk)
	m.onDisk(t, 40, false)
	for i, l := range m.logs {
		end := int64(4) // two of each life; the first log has one more each time
		if i == 0 {
			end = 6
		}
		if l.Offsets().LogEnd != end {
			t.Errorf("%v: %+v, want the end %d", l, l.Offsets(), end)
		}
	}
}

// TestCommitJournalFails: a failed sync of it takes the logs of its round, a failed write none.
func TestCommitJournalFails(t *testing.T) {
	m := newMany(t, 3)
	m.settled()
	if err := m.faults.Set("2nd write of kaas.redo.*: short EIO"); err != nil {
		t.Fatal(err)
	}
	m.wantAll(nil, m.round(spec{n: 1}))
	if !m.e.shared.j.Broken() {
		t.Error("the journal is used on")
	}
	m.wantAll(nil, m.round(spec{n: 1}))

	m = newMany(t, 3)
	m.settled()
	if err := m.faults.Set("2nd fdatasync of kaas.redo.*: EIO"); err != nil {
		t.Fatal(err)
	}
	m.wantAll(errIO, m.round(spec{n: 1}))
	for _, l := range m.logs {
		if !errors.Is(l.Err(), errIO) {
			t.Errorf("%v: %v", l, l.Err())
		}
	}
}

// TestCommitJournalLeavesRoom: on a disk with little room the commit journal takes none of it, and appends have all; with room it comes into
// use without a restart.
func TestCommitJournalLeavesRoom(t *testing.T) {
	m := newMany(t, 3)
	m.disk.SetSize(1 << 20)
	refused := false
	for range 100 {
		en := []Entry{batch(spec{n: 1, size: 30_000})}
		if m.logs[0].Append(en); en[0].Err != nil {
			refused = errors.Is(en[0].Err, ErrStorage)
			break
		}
		m.durable(m.logs[0], en[0])
		m.e.shared.work.Wait()
	}
	room, err := m.disk.Space(modelDir)
	if !refused || err != nil || room.Free > 30_000 {
		t.Errorf("refused %v with %d bytes free, %v", refused, room.Free, err)
	}
	if names := m.disk.Files("kaas.redo.*"); len(names) != 0 || m.e.shared.made.Load() || m.e.shared.j.Broken() {
		t.Errorf("the journal has %v", names)
	}
	m.disk.SetSize(1 << 30)
	m.settled()
	if !m.e.shared.made.Load() {
		t.Error("no commit journal with room")
	}
	var seen []string
	m.disk.OnOp(func(o crashfs.Op) {
		if o.Kind == crashfs.OpSync {
			seen = append(seen, o.Name)
		}
	})
	m.durable(m.logs[0], m.append(m.logs[0], spec{n: 1, size: 30_000}))
	m.disk.OnOp(nil)
	if len(seen) != 1 || seen[0] != modelDir+"/kaas.redo.0" {
		t.Errorf("synced %v", seen)
	}
}

// TestFailedCheckpoint: when the logs behind a full file of the commit journal cannot be synced, they go offline and the file
// stays; a start without a reboot, to which the page cache shows all as written, makes it so.
func TestFailedCheckpoint(t *testing.T) {
	for _, c := range []struct {
		logs int
		rule string
	}{{3, "fdatasync of *.log: EIO"}, {2 * settleVolumeMin, "syncfs: EIO"}} {
		t.Run(c.rule, func(t *testing.T) {
			m := newMany(t, c.logs, func(cfg *Config) { cfg.CommitJournalBytes, cfg.volumeMin = int64(c.logs)*2000, 2 })
			m.settled()
			if err := m.faults.Set(c.rule); err != nil {
				t.Fatal(err)
			}
			acked := map[*Log]int64{}
			for range 20 {
				for _, l := range m.logs {
					en := []Entry{batch(spec{n: 1, size: 100})}
					if l.Append(en); en[0].Err != nil {
						continue
					}
					w := make(waiter, 1)
					done, err := l.AwaitDurable(en[0].LastOffset+1, w)
					if !done && err == nil {
						err = <-w
					}
					if err == nil {
						acked[l] = en[0].LastOffset + 1
					}
				}
				m.e.shared.work.Wait()
			}
			for _, l := range m.logs {
				if !errors.Is(l.Err(), errIO) || acked[l] == 0 {
					t.Errorf("%v: acknowledged up to %d, %v", l, acked[l], l.Err())
				}
			}
			logs := m.logs
			shown := make([]int64, len(logs))
			m.disk = m.disk.Clone()
			m.onDisk(t, c.logs, false)
			for i, l := range m.logs {
				if shown[i] = l.Offsets().HighWatermark; shown[i] < acked[logs[i]] {
					t.Errorf("%v: %d is left of %d", l, shown[i], acked[logs[i]])
				}
			}
			m.disk = cutAll(m.disk)
			m.onDisk(t, c.logs, false)
			for i, l := range m.logs {
				if end := l.Offsets().LogEnd; end < shown[i] {
					t.Errorf("%v: %d is left of %d that was shown", l, end, shown[i])
				}
			}
		})
	}
}

// TestFailedCheckpointKeepsTheJournal: one log cannot be synced any more, the others go on and fill the journal again and again. What it
// has of the one stays.
func TestFailedCheckpointKeepsTheJournal(t *testing.T) {
	m := newMany(t, 3, func(cfg *Config) { cfg.CommitJournalBytes = 8000 })
	m.settled()
	if err := m.faults.Set("fdatasync of t-0/*.log: EIO"); err != nil {
		t.Fatal(err)
	}
	acked := make([]int64, len(m.logs))
	for range 100 {
		for i, l := range m.logs {
			en := []Entry{batch(spec{n: 1, size: 100})}
			if l.Append(en); en[0].Err == nil {
				w := make(waiter, 1)
				if done, err := l.AwaitDurable(en[0].LastOffset+1, w); done || err == nil && <-w == nil {
					acked[i] = en[0].LastOffset + 1
				}
			}
		}
	}
	if m.logs[0].Err() == nil || acked[0] == 0 || acked[1] != 101 {
		t.Fatalf("acknowledged %v, %v", acked, m.logs[0].Err())
	}
	m.disk = cutAll(m.disk)
	m.onDisk(t, 3, false)
	for i, l := range m.logs {
		if l.Offsets().LogEnd < acked[i] {
			t.Errorf("%v: %d is left of %d", l, l.Offsets().LogEnd, acked[i])
		}
	}
}

// TestReplayLeavesAlone: pieces of a log of another id, of a segment below the recovery point, which compaction may have replaced, and of
// one that was deleted.
func TestReplayLeavesAlone(t *testing.T) {
	m := newMany(t, 1)
	l := m.logs[0]
	for range 3 {
		m.durable(l, m.append(l, spec{n: 1, size: 100}))
	}
	m.close()
	name := modelDir + "/t-0/" + segment.FileName(0, segment.LogSuffix)
	closed := m.disk
	want, err := vfs.ReadFile(closed, name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what     string
		piece    redo.Piece
		recovery int64
		written  bool
	}{
		{"its own", redo.Piece{Log: "t-0", Topic: [16]byte{1}}, 0, true},
		{"another id", redo.Piece{Log: "t-0", Topic: [16]byte{2}}, 0, false},
		{"another log", redo.Piece{Log: "t-1", Topic: [16]byte{1}}, 0, false},
		{"below the recovery point", redo.Piece{Log: "t-0", Topic: [16]byte{1}}, 3, false},
		{"a deleted segment", redo.Piece{Log: "t-0", Topic: [16]byte{1}, Segment: 3}, 0, false},
	} {
		m.disk = closed.Clone()
		if err := m.disk.Edit(name, func(b []byte) []byte { b[200]++; return b }); err != nil { // the second batch is damaged
			t.Fatal(err)
		}
		line := appendLine(nil, "t-0", journalEntry{dirty: true, recovery: c.recovery, topic: [16]byte{1}})
		if err := m.disk.Edit(modelDir+"/"+journalName, func([]byte) []byte { return line }); err != nil {
			t.Fatal(err)
		}
		j := redo.New(m.disk, modelDir, 1<<20)
		if err := j.Prepare(); err != nil {
			t.Fatal(err)
		}
		f := &redo.Frame{}
		copy(f.Add(&c.piece, len(want)), want)
		j.Turn(f.Size(), false)
		if err := errors.Join(j.Write(f), j.Sync()); err != nil {
			t.Fatal(err)
		}
		j.Close()
		m.onDisk(t, 1, false)
		got, err := vfs.ReadFile(m.disk, name, 1<<20)
		if err != nil || bytes.Equal(got, want) != c.written {
			t.Errorf("%s: written %v, %v", c.what, !c.written, err)
		}
		if n := len(m.disk.Files(segment.FileName(3, segment.LogSuffix))); n != 0 {
			t.Errorf("%s: a segment was made", c.what)
		}
		m.kill()
	}
}

// TestFailedSyncThenRestart: the process ends after a failed sync and begins again without a reboot. The kernel shows what was not
// written as if it were; the start writes it again before it shows it to anybody.
func TestFailedSyncThenRestart(t *testing.T) {
	m := newMany(t, 1, func(c *Config) { c.CommitJournalBytes = -1 })
	l := m.logs[0]
	for range 3 {
		m.durable(l, m.append(l, spec{n: 1}))
	}
	if err := m.faults.Set("fdatasync of *.log: EIO"); err != nil {
		t.Fatal(err)
	}
	e := m.append(l, spec{n: 1})
	w := make(waiter, 1)
	done, err := l.AwaitDurable(e.LastOffset+1, w)
	if !done && err == nil {
		err = <-w
	}
	if !errors.Is(err, errIO) {
		t.Fatalf("done %v, %v", done, err)
	}
	if got := m.e.journal.get("t-0"); !got.failed || !got.dirty {
		t.Errorf("journal %+v", got)
	}
	m.wantEnds(t, 4)
	if got := m.e.journal.get("t-0"); got != (journalEntry{}) {
		t.Errorf("journal after the recovery %+v", got)
	}
}

// TestCommitJournalIsOptional: who has nothing to sync through it makes none.
func TestCommitJournalIsOptional(t *testing.T) {
	for _, c := range []Config{{Storage: Memory, Durability: GroupCommit}, {Durability: PageCache}, {Durability: GroupCommit, CommitJournalBytes: -1}} {
		f := newFixture(t, func(cfg *Config) {
			cfg.Storage, cfg.Durability, cfg.CommitJournalBytes = c.Storage, c.Durability, c.CommitJournalBytes
		})
		if f.e.shared != nil {
			t.Errorf("%+v", c)
		}
	}
	// A log without an id syncs its own file.
	m := newMany(t, 1)
	l := m.e.OpenLog(LogSpec{Topic: "u", New: true})
	m.durable(l, m.append(l, spec{n: 1}))
	m.settled()
	seen := ""
	m.disk.OnOp(func(o crashfs.Op) {
		if o.Kind == crashfs.OpSync {
			seen = fmt.Sprint(seen, " ", o.Name)
		}
	})
	m.durable(l, m.append(l, spec{n: 1}))
	m.disk.OnOp(nil)
	if !strings.HasSuffix(seen, "/u-0/00000000000000000000.log") {
		t.Errorf("synced:%s", seen)
	}
}
