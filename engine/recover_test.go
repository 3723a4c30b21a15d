package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"kaas/engine/segment"
)

func (f *fixture) path(base int64, suffix string) string {
	return filepath.Join(f.cfg.Dir, "t-0", segment.FileName(base, suffix))
}

func (f *fixture) edit(path string, change func(b []byte) []byte) {
	f.t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(path, change(b), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// TestTornTail: whatever follows the last batch whose CRC matches is cut, at every length of a torn batch.
func TestTornTail(t *testing.T) {
	whole := batch(spec{size: 40})
	testFormat{}.Stamp(whole.Data, 2, 0)
	n := len(whole.Data)
	tails := map[string]func() []byte{
		"nothing": func() []byte { return nil },
		"zeros":   func() []byte { return make([]byte, 5000) },
		"garbage": func() []byte { return bytes.Repeat([]byte{0xa5}, 300) },
		"stale offset": func() []byte {
			b := bytes.Clone(whole.Data)
			testFormat{}.Stamp(b, 1, 0)
			return b
		},
		"bad crc":        func() []byte { b := bytes.Clone(whole.Data); b[n-1]++; return b },
		"huge size":      func() []byte { b := bytes.Clone(whole.Data); b[8] = 0x7f; return b },
		"negative size":  func() []byte { b := bytes.Clone(whole.Data); b[8] = 0xff; return b },
		"header, zeros":  func() []byte { return append(bytes.Clone(whole.Data[:61]), make([]byte, 4096)...) },
		"bad, then good": func() []byte { b := bytes.Clone(whole.Data); b[70]++; return append(b, whole.Data...) },
	}
	for i := 1; i < n; i += 7 {
		tails[fmt.Sprintf("first %d bytes", i)] = func() []byte { return whole.Data[:i] }
	}
	for name, tail := range tails {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			l := f.log(true, nil)
			f.append(l, spec{})
			f.append(l, spec{})
			size := l.SizeBytes()
			f.kill()
			f.edit(f.path(0, ".log"), func(b []byte) []byte { return append(b[:size:size], tail()...) })
			l = f.reopen(nil)
			wantOffsets(t, l, Offsets{HighWatermark: 2, LastStable: 2, LogEnd: 2})
			if st, err := os.Stat(f.path(0, ".log")); err != nil || st.Size() != size {
				t.Errorf("file has %d bytes, want %d (%v)", st.Size(), size, err)
			}
			if e := f.append(l, spec{}); e.BaseOffset != 2 {
				t.Errorf("next offset %d", e.BaseOffset)
			}
			if got := f.readAll(l, 0); !slices.Equal(got, []int64{0, 1, 2}) {
				t.Errorf("read %v", got)
			}
		})
	}
}

// fill appends batches of about 1 KiB until the log has n segments.
func (f *fixture) fill(l *Log, n int) {
	for i := 0; len(l.Segments()) < n; i++ {
		f.append(l, spec{n: 2, size: 900, ts: f.now.UnixMilli() + int64(i), tag: byte(i)})
	}
}

// TestDamagedSealedSegment: a bad batch in the unrecovered range ends the log there; later segments go.
func TestDamagedSealedSegment(t *testing.T) {
	f := newFixture(t)
	l := f.log(true, small(10_000))
	f.fill(l, 4)
	segs := l.Segments()
	f.kill()
	f.open()
	if err := f.e.journal.update("t-0", func(e *journalEntry) { e.dirty, e.recovery = true, 0 }); err != nil {
		t.Fatal(err)
	}
	f.kill()
	f.edit(f.path(segs[1].BaseOffset, ".log"), func(b []byte) []byte { b[2*961+100]++; return b })
	l = f.reopen(small(10_000))
	want := segs[1].BaseOffset + 4
	if got := l.Offsets().LogEnd; got != want || len(l.Segments()) != 2 {
		t.Errorf("log end %d in %d segments, want %d in 2", got, len(l.Segments()), want)
	}
	if _, err := os.Stat(f.path(segs[2].BaseOffset, ".log")); !os.IsNotExist(err) {
		t.Errorf("segment after the damage: %v", err)
	}
	if got := f.readAll(l, 0); int64(len(got)) != want/2 {
		t.Errorf("read %d batches", len(got))
	}
}

// TestRecoveryPoint: after a kill only what the recovery point does not cover is scanned: damage before it is not looked
// at (reads of it find it), damage after it is cut.
func TestRecoveryPoint(t *testing.T) {
	f := newFixture(t)
	l := f.log(true, small(10_000))
	f.fill(l, 4)
	segs := l.Segments()
	f.e.work.wait()
	if got := f.e.journal.get("t-0"); !got.dirty || got.recovery != segs[3].BaseOffset {
		t.Errorf("journal %+v, want recovery from %d", got, segs[3].BaseOffset)
	}
	end := l.Offsets().LogEnd
	f.kill()
	f.edit(f.path(segs[0].BaseOffset, ".log"), func(b []byte) []byte { b[100]++; return b })
	l = f.reopen(small(10_000))
	if got := l.Offsets().LogEnd; got != end || len(l.Segments()) != 4 {
		t.Errorf("log end %d, want %d", got, end)
	}
}

// TestCleanLogsAreSkipped: a start after a kill loads only logs that may be dirty.
func TestCleanLogsAreSkipped(t *testing.T) {
	f := newFixture(t)
	var logs []*Log
	for i := range int32(3) {
		l := f.e.OpenLog(LogSpec{Topic: "s", Partition: i, New: true})
		f.append(l, spec{})
	}
	f.close()
	f.open()
	for i := range int32(3) {
		logs = append(logs, f.e.OpenLog(LogSpec{Topic: "s", Partition: i}))
	}
	f.append(logs[1], spec{})
	f.kill()
	f.open()
	logs = nil
	for i := range int32(3) {
		logs = append(logs, f.e.OpenLog(LogSpec{Topic: "s", Partition: i}))
	}
	var last, total int64
	if err := f.e.Recover(t.Context(), logs, func(d, n int64) { last, total = d, n }); err != nil {
		t.Fatal(err)
	}
	if logs[0].Loaded() || !logs[1].Loaded() || logs[2].Loaded() {
		t.Errorf("loaded %v %v %v, want only the dirty one", logs[0].Loaded(), logs[1].Loaded(), logs[2].Loaded())
	}
	if last != total || total == 0 {
		t.Errorf("progress %d of %d", last, total)
	}
	if got := logs[1].Offsets().LogEnd; got != 2 {
		t.Errorf("log end %d", got)
	}
	if got := f.readAll(logs[2], 0); len(got) != 1 {
		t.Errorf("a skipped log reads %v", got)
	}
}

// TestRecoveryOfOneLog: progress is told within a log too, never goes back, and ends at all there is to scan; the scan is one pass that
// allocates nothing for a batch.
func TestRecoveryOfOneLog(t *testing.T) {
	f := newFixture(t)
	l := f.log(true, nil)
	const batches = 4000
	for i := range int32(batches) {
		f.append(l, spec{size: 1024 - 61, pid: 9, seq: i})
	}
	f.kill()
	f.open()
	l = f.log(false, nil)
	var told []int64
	var total int64
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := f.e.Recover(t.Context(), []*Log{l}, func(d, n int64) { told, total = append(told, d), n })
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	if len(told) < 4 || !slices.IsSorted(told) || told[len(told)-1] != total || total < batches<<10 {
		t.Errorf("progress %v of %d", told, total)
	}
	if n := after.Mallocs - before.Mallocs; n > batches/4 {
		t.Errorf("%d allocations for %d batches", n, batches)
	}
	if p, ok := l.st.producers.Get(9); l.Offsets().LogEnd != batches || !ok || p.Epoch != 0 {
		t.Errorf("%+v, producer %+v", l.Offsets(), p)
	}
}

// TestIndexesAreRebuilt: regressions 79. A damaged index never loses data, whether the log was closed cleanly or not.
func TestIndexesAreRebuilt(t *testing.T) {
	damage := map[string]func(b []byte) []byte{
		"missing": nil,
		"empty":   func([]byte) []byte { return nil },
		"short":   func(b []byte) []byte { return b[:len(b)/16*8] },
		"odd":     func(b []byte) []byte { return b[:len(b)-3] },
		"garbage": func(b []byte) []byte { return bytes.Repeat([]byte{0x11}, len(b)) },
		"zeros":   func(b []byte) []byte { return make([]byte, len(b)) },
		"shifted": func(b []byte) []byte { return append(b[4:], 0, 0, 0, 0) },
	}
	for name, change := range damage {
		for _, suffix := range []string{".index", ".timeindex"} {
			for _, clean := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s%s/clean=%v", name, suffix, clean), func(t *testing.T) {
					f := newFixture(t)
					cfg := small(60_000)
					cfg.IndexIntervalBytes = 1000
					l := f.log(true, cfg)
					f.fill(l, 2)
					for range 30 {
						f.append(l, spec{n: 2, size: 900, ts: f.now.UnixMilli() + 1000})
					}
					end, segs := l.Offsets().LogEnd, l.Segments()
					f.close()
					if !clean {
						f.open()
						f.append(f.log(false, cfg), spec{n: 2, size: 900, ts: f.now.UnixMilli() + 1000})
						f.kill()
						end += 2
					}
					for _, s := range segs {
						if change == nil {
							os.Remove(f.path(s.BaseOffset, suffix))
						} else {
							f.edit(f.path(s.BaseOffset, suffix), change)
						}
					}
					l = f.reopen(cfg)
					f.checkEveryOffset(l, end)
				})
			}
		}
	}
}

// checkEveryOffset looks up each offset and each time of a log made by fill.
func (f *fixture) checkEveryOffset(l *Log, end int64) {
	f.t.Helper()
	if got := l.Offsets().LogEnd; got != end {
		f.t.Fatalf("log end %d, want %d", got, end)
	}
	for o := range end {
		s, err := l.Read(o, 61, true, ReadUncommitted)
		if err != nil || s.FirstOffset != o&^1 {
			f.t.Fatalf("read at %d gives %d, %v", o, s.FirstOffset, err)
		}
		s.Ref.Release()
	}
	start := f.now.UnixMilli()
	for _, i := range []int64{0, 1, 2, 17, 40} {
		o, ts, epoch, found, err := l.OffsetForTime(start + i)
		if err != nil || !found || ts != start+i || epoch != 0 {
			f.t.Fatalf("time +%d: offset %d, time %d, epoch %d, %v, %v", i, o, ts-start, epoch, found, err)
		}
		if want := 2*i - 1; i > 0 && o != want {
			f.t.Fatalf("time +%d: offset %d, want %d", i, o, want)
		}
	}
}

// TestCleanCloseTrims: no file is longer than what it has, and the indexes are as Kafka has them.
func TestCleanCloseTrims(t *testing.T) {
	f := newFixture(t)
	cfg := small(30_000)
	l := f.log(true, cfg)
	f.fill(l, 2)
	f.append(l, spec{n: 2, size: 900})
	segs := l.Segments()
	f.close()
	for _, s := range segs {
		st, err := os.Stat(f.path(s.BaseOffset, ".log"))
		if err != nil || st.Size() != s.Size {
			t.Errorf("segment %d: file of %d bytes, data %d, %v", s.BaseOffset, st.Size(), s.Size, err)
		}
		if x, err := os.ReadFile(f.path(s.BaseOffset, ".index")); err != nil || len(x)%8 != 0 {
			t.Errorf("index of %d: %d bytes, %v", s.BaseOffset, len(x), err)
		}
	}
	meta, err := os.ReadFile(filepath.Join(f.cfg.Dir, "t-0", "partition.metadata"))
	if string(meta) != "version: 0\ntopic_id: AQAAAAAAAAAAAAAAAAAAAA" {
		t.Errorf("partition.metadata %q %v", meta, err)
	}
	ep, err := os.ReadFile(filepath.Join(f.cfg.Dir, "t-0", "leader-epoch-checkpoint"))
	if string(ep) != "0\n1\n0 0\n" {
		t.Errorf("epochs %q %v", ep, err)
	}
	j, err := os.ReadFile(filepath.Join(f.cfg.Dir, journalName))
	if len(j) != 0 || err != nil {
		t.Errorf("journal after a clean close: %q %v", j, err)
	}
}

// TestJournal: lines that do not verify are passed over; the last good one of a log counts.
func TestJournal(t *testing.T) {
	f := newFixture(t)
	up := func(name string, e journalEntry) {
		if err := f.e.journal.update(name, func(p *journalEntry) { *p = e }); err != nil {
			t.Fatal(err)
		}
	}
	up("a-0", journalEntry{dirty: true, recovery: 5})
	up("b-0", journalEntry{start: 7})
	up("a-0", journalEntry{dirty: true, recovery: 9, start: 2})
	up("c-0", journalEntry{dirty: true})
	up("c-0", journalEntry{})
	f.kill()
	f.edit(filepath.Join(f.cfg.Dir, journalName), func(b []byte) []byte {
		bad := strings.Replace(string(b), "dirty a-0 9 2", "dirty a-0 8 2", 1) // CRC does not match
		return []byte(string(b) + bad[strings.LastIndex(bad, "\n")-5:] + "\x00\x00\x00\ndirty")
	})
	f.open()
	for name, want := range map[string]journalEntry{"a-0": {dirty: true, recovery: 9, start: 2}, "b-0": {start: 7}, "c-0": {}} {
		if got := f.e.journal.get(name); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	for i := range 3 * journalSlack {
		up("a-0", journalEntry{dirty: true, recovery: int64(i)})
		if i%1000 == 0 {
			if err := f.e.journal.compact(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := f.e.journal.compact(); err != nil {
		t.Fatal(err)
	}
	if f.e.journal.lines > journalSlack+10 {
		t.Errorf("%d lines after compaction", f.e.journal.lines)
	}
}

// TestKillAnywhere appends at random, kills, cuts or damages the unsynced tail, and checks that what is left is a prefix.
func TestKillAnywhere(t *testing.T) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 1))
		f := newFixture(t)
		cfg := small(20_000)
		l := f.log(true, cfg)
		var want []int64
		for range 3 {
			for range rng.IntN(60) {
				var run []spec
				for range 1 + rng.IntN(5) {
					run = append(run, spec{n: 1 + rng.IntN(4), size: 20 + rng.IntN(1500)})
				}
				for _, e := range tryAppend(l, run...) {
					if e.Err != nil {
						t.Fatal(e.Err)
					}
					want = append(want, e.BaseOffset)
				}
			}
			segs := l.Segments()
			f.kill()
			if len(segs) > 0 {
				last := segs[len(segs)-1]
				f.edit(f.path(last.BaseOffset, ".log"), func(b []byte) []byte {
					n := int64(rng.IntN(int(last.Size) + 1))
					if rng.IntN(2) == 0 {
						return b[:n]
					}
					for i := n; i < min(n+8, last.Size); i++ {
						b[i] ^= 0xff
					}
					return b
				})
			}
			l = f.reopen(cfg)
			got := f.readAll(l, 0)
			if len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
				t.Fatalf("seed %d: read %v of %v", seed, got, want)
			}
			if len(segs) > 0 && len(got) > 0 && got[len(got)-1] < segs[len(segs)-1].BaseOffset-4 {
				t.Fatalf("seed %d: lost sealed data: end %d, last segment %d", seed, got[len(got)-1], segs[len(segs)-1].BaseOffset)
			}
			want = want[:len(got)]
		}
		f.close()
	}
}

// TestFormatExample parses the journal line that FORMAT.md shows.
func TestFormatExample(t *testing.T) {
	doc, err := os.ReadFile("FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	j := &journal{entries: map[string]journalEntry{}}
	for line := range bytes.Lines(doc) {
		j.apply(bytes.TrimSpace(line))
	}
	if got := j.entries["orders-0"]; len(j.entries) != 1 || got != (journalEntry{dirty: true, recovery: 4711}) {
		t.Errorf("%+v", j.entries)
	}
}
