package logtool

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"kaas/codec/batch"
	"kaas/engine/producer"
	"kaas/server"
	"kaas/server/config"
)

func TestVerifySample(t *testing.T) {
	dir := sampleDir(t)
	write(t, dir, "00000000000000000007.snapshot", honest(func(*producer.State) {}))
	code, out, stderr := command("verify", "--records", dir)
	want := dir + ": 1 segments, 5 batches, 8 records, 436 bytes, offsets 0-7: ok\n" +
		"1 partitions, 1 segments, 5 batches, 8 records, 436 bytes: 0 problems\n"
	if code != 0 || out != want || stderr != "" {
		t.Errorf("code %d, %q,\n%s\nwant\n%s", code, stderr, out, want)
	}
	code, out, _ = command("verify", "--json", filepath.Dir(dir))
	want = fmt.Sprintf(`{"type":"partition","dir":%q,"segments":1,"batches":5,"records":8,"bytes":436,"firstOffset":0,"nextOffset":8,"problems":0}
{"type":"total","partitions":1,"segments":1,"batches":5,"records":8,"bytes":436,"problems":0}
`, dir)
	if code != 0 || out != want {
		t.Errorf("code %d,\n%s\nwant\n%s", code, out, want)
	}
}

// TestVerifyApache: what Apache Kafka wrote, with transactions and after compaction, is in order.
func TestVerifyApache(t *testing.T) {
	for dir, want := range map[string]string{
		"orders-0":    ": 2 segments, 47 batches, 47 records, 3894 bytes, offsets 0-46: ok\n",
		"compacted-0": ": 3 segments, 30 batches, 26 records, 3103 bytes, offsets 199-999: ok\n",
	} {
		dir = filepath.Join("testdata", "apache", dir)
		code, out, stderr := command("verify", "--records", dir)
		if code != 0 || stderr != "" || !strings.HasPrefix(out, dir+want) {
			t.Errorf("code %d, %q,\n%s", code, stderr, out)
		}
	}
}

// honest is the snapshot of offset 7 that the sample gives, but for what change does to it.
func honest(change func(s *producer.State)) []byte {
	var s producer.State
	s.Append(9, 2, 7, 0, 5, t0+20, 0, true)
	s.Marker(9, 2, 4, t0+21, 0)
	change(&s)
	return s.Snapshot(true)
}

// second is another segment for the sample: one batch at offset 8.
func second(base int64, epoch int32) []byte {
	var b batch.Builder
	spec := batch.NewSpec()
	spec.BaseOffset, spec.LeaderEpoch = base, epoch
	b.Begin(nil, spec)
	b.Append(t0+40, nil, []byte("later"))
	b.Append(t0+41, nil, []byte("later"))
	return b.End(nil)
}

// header changes a header field of the batch at pos and makes the CRC fit.
func header(log []byte, pos int64, f func(v batch.View)) []byte {
	v, err := batch.Peek(log[pos:])
	if err != nil {
		panic(err)
	}
	f(v)
	ms := v.MaxTimestamp()
	v.SetMaxTimestamp(ms + 1)
	v.SetMaxTimestamp(ms)
	return log
}

func put32(b []byte, at int, x uint32) []byte {
	binary.BigEndian.PutUint32(b[at:], x)
	return b
}

const (
	logFile   = "00000000000000000000.log"
	indexFile = "00000000000000000000.index"
	timeFile  = "00000000000000000000.timeindex"
	txnFile   = "00000000000000000000.txnindex"
)

// wreck is a way to damage sampleDir.
type wreck struct {
	name string
	do   func(t *testing.T, dir string)
	want []string // problems: file and what follows
}

// logWrecks damage the log; at are the positions of its batches.
func logWrecks(at []int64) []wreck {
	return []wreck{
		{"a flipped bit", func(t *testing.T, dir string) {
			change(t, dir, logFile, func(b []byte) []byte { return flip(b, at[4]+66) })
		}, []string{logFile + ": byte 364: batch of offsets 7: CRC does not match"}},
		{"a torn tail", func(t *testing.T, dir string) {
			change(t, dir, logFile, func(b []byte) []byte { return b[:at[4]+30] })
		}, []string{logFile + ": byte 364: batch: bytes end inside a batch"}},
		{"an offset that goes back", func(t *testing.T, dir string) {
			change(t, dir, logFile, func(b []byte) []byte { batch.View(b[at[4]:]).SetBaseOffset(6); return b })
		}, []string{logFile + ": byte 364: offset 6 after 6"}},
		{"an offset before the segment", func(t *testing.T, dir string) {
			write(t, dir, "00000000000000000009.log", second(8, 1))
		}, []string{"00000000000000000009.log: byte 0: offset 8 in the segment of 9"}},
		{"a segment that reaches into the next", func(t *testing.T, dir string) {
			write(t, dir, "00000000000000000007.log", second(7, 1))
		}, []string{logFile + ": byte 364: offset 7 reaches into the next segment, which begins at 7", "00000000000000000007.log: byte 0: offset 7 after 7"}},
		{"an offset out of reach of the index", func(t *testing.T, dir string) {
			change(t, dir, logFile, func(b []byte) []byte { batch.View(b[at[4]:]).SetBaseOffset(1 << 31); return b })
		}, []string{logFile + ": byte 364: offset 2147483648 is out of reach of the segment's index"}},
		{"more records than offsets", func(t *testing.T, dir string) {
			change(t, dir, logFile, func(b []byte) []byte {
				return header(b, at[2], func(v batch.View) { put32(v, 57, 2) })
			})
		}, []string{logFile + ": byte 212: 2 records in offsets 5", logFile + ": byte 212: record 1 of the batch: batch: bad record frames"}},
		{"records that cannot be decompressed", func(t *testing.T, dir string) {
			change(t, dir, logFile, func(b []byte) []byte {
				return header(b, at[1], func(v batch.View) { v[batch.HeaderSize] ^= 0xff })
			})
		}, []string{logFile + ": byte 115: batch: payload cannot be decompressed"}},
		{"a record after the last offset", func(t *testing.T, dir string) {
			change(t, dir, logFile, func(b []byte) []byte {
				return header(b, 0, func(v batch.View) { put32(v, 23, 1); put32(v, 57, 2); put32(v, 57, 3) })
			})
		}, []string{logFile + ": byte 0: 3 records in offsets 0-1", logFile + ": byte 0: record 2 of the batch: offset 2 after 1, the batch ends at 1"}},
		{"a leader epoch that goes back", func(t *testing.T, dir string) {
			change(t, dir, logFile, func(b []byte) []byte { batch.View(b[at[4]:]).SetPartitionLeaderEpoch(0); return b })
		}, []string{logFile + ": byte 364: leader epoch 0 after 1"}},
		{"an epoch that begins too late", func(t *testing.T, dir string) {
			write(t, dir, epochsName, []byte("0\n2\n0 0\n1 6\n"))
		}, []string{logFile + ": byte 212: offset 5 has leader epoch 1, which begins at 6 by leader-epoch-checkpoint"}},
	}
}

// indexWrecks damage the indexes.
func indexWrecks(at []int64) []wreck {
	return []wreck{
		{"an index entry inside a batch", func(t *testing.T, dir string) {
			change(t, dir, indexFile, func(b []byte) []byte { return put32(b, 12, 290) })
		}, []string{indexFile + ": byte 8: index entry says that offset 6 is at byte 290; the batch of offsets 6 is at byte 286"}},
		{"an index entry that points too far", func(t *testing.T, dir string) {
			change(t, dir, indexFile, func(b []byte) []byte { return put32(b, 4, 212) })
		}, []string{indexFile + ": byte 0: index entry says that offset 4 is at byte 212; the batch of offsets 3-4 is at byte 115"}},
		{"an index entry after the end", func(t *testing.T, dir string) {
			change(t, dir, indexFile, func(b []byte) []byte { return put32(b, 8, 60) })
		}, []string{indexFile + ": byte 8: index entry says that offset 60 is at byte 286; the segment ends before"}},
		{"an index entry for an offset that is not there", func(t *testing.T, dir string) {
			change(t, dir, logFile, func(b []byte) []byte { batch.View(b[at[4]:]).SetBaseOffset(9); return b })
			change(t, dir, indexFile, func(b []byte) []byte { return put32(put32(b, 8, 8), 12, 364) })
		}, []string{indexFile + ": byte 8: index entry says that offset 8 is at byte 364; the batch of offsets 9 is at byte 364"}},
		{"such an entry that points to an earlier batch", func(t *testing.T, dir string) {
			change(t, dir, logFile, func(b []byte) []byte { batch.View(b[at[4]:]).SetBaseOffset(9); return b })
			change(t, dir, indexFile, func(b []byte) []byte { return put32(b, 8, 8) })
		}, []string{indexFile + ": byte 8: index entry says that offset 8 is at byte 286; the batch of offsets 9 is at byte 364"}},
		{"an index that goes back", func(t *testing.T, dir string) {
			change(t, dir, indexFile, func(b []byte) []byte { return append(b[8:16:16], b[:8]...) })
		}, []string{indexFile + ": byte 8: index entry goes back: offset 4 at 115 after offset 6 at 286", indexFile + ": byte 8: index entry says that offset 4 is at byte 115; the batch of offsets 6 is at byte 286"}},
		{"a time that no batch has", func(t *testing.T, dir string) {
			change(t, dir, timeFile, func(b []byte) []byte { b[7]++; return b })
		}, []string{timeFile + ": byte 0: time index entry says that 1714564800012 is the greatest timestamp up to offset 4; its batch has 1714564800011"}},
		{"a time that is not the greatest", func(t *testing.T, dir string) {
			change(t, dir, logFile, func(b []byte) []byte {
				return header(b, 0, func(v batch.View) { v.SetMaxTimestamp(t0 + 12) })
			})
		}, []string{timeFile + ": byte 0: time index entry says that 1714564800011 is the greatest timestamp up to offset 4; a batch before it has 1714564800012"}},
		{"a time after the end", func(t *testing.T, dir string) {
			change(t, dir, timeFile, func(b []byte) []byte { return put32(b, 20, 99) })
		}, []string{timeFile + ": byte 12: time index entry says that 1714564800021 is the greatest timestamp up to offset 99; the segment ends before"}},
		{"a time index that ends inside an entry", func(t *testing.T, dir string) {
			change(t, dir, timeFile, func(b []byte) []byte { return append(b[:24:24], 5, 5) })
		}, []string{timeFile + ": byte 24: the file ends inside an entry: 2 bytes are left"}},
		{"an aborted transaction without its marker", func(t *testing.T, dir string) {
			change(t, dir, txnFile, func(b []byte) []byte { b[9] = 8; return b })
		}, []string{txnFile + ": byte 0: no abort marker of producer 8 at offset 6"}},
		{"an aborted transaction after the end", func(t *testing.T, dir string) {
			change(t, dir, txnFile, func(b []byte) []byte { b[25] = 66; return b })
		}, []string{txnFile + ": byte 0: no abort marker of producer 9 at offset 66"}},
	}
}

// fileWrecks damage the other files.
func fileWrecks() []wreck {
	return []wreck{
		{"unreadable epochs", func(t *testing.T, dir string) {
			write(t, dir, epochsName, []byte("0\n2\n0 0\n"))
		}, []string{epochsName + ": byte 8: 1 entries, the count says 2"}},
		{"unreadable metadata", func(t *testing.T, dir string) {
			write(t, dir, metadataName, []byte("version: 0\n"))
		}, []string{metadataName + `: byte 0: version "0" and topic id "": want 0 and 22 characters`}},
		{"a damaged snapshot", func(t *testing.T, dir string) {
			write(t, dir, "00000000000000000007.snapshot", flip(snapshot(), 30))
		}, []string{"00000000000000000007.snapshot: byte 0: producer: bad snapshot: CRC does not match"}},
		{"a snapshot after the end", func(t *testing.T, dir string) {
			write(t, dir, "00000000000000000009.snapshot", snapshot())
		}, []string{"00000000000000000009.snapshot: byte 0: snapshot of offset 9, but the log ends at 8"}},
		{"a snapshot that knows the future", func(t *testing.T, dir string) {
			var s producer.State
			s.Append(9, 2, 7, 0, 7, t0, 0, true)
			write(t, dir, "00000000000000000007.snapshot", s.Snapshot(true))
		}, []string{"00000000000000000007.snapshot: byte 0: producer 9 wrote offset 7, after the snapshot's 7", "00000000000000000007.snapshot: byte 0: transaction of producer 9 begins at 7, after the snapshot's 7"}},
	}
}

// TestVerifyFinds breaks one thing at a time, each of which must be found, and nothing else.
func TestVerifyFinds(t *testing.T) {
	at := positions(t, sample())
	for _, c := range slices.Concat(logWrecks(at), indexWrecks(at), fileWrecks(), replayWrecks()) {
		t.Run(c.name, func(t *testing.T) {
			dir := sampleDir(t)
			c.do(t, dir)
			code, out, stderr := command("verify", "--records", dir)
			var got []string
			for line := range strings.Lines(out) {
				if p, ok := strings.CutPrefix(line, "PROBLEM "+dir+"/"); ok {
					got = append(got, strings.TrimSpace(p))
				}
			}
			if len(got) != len(c.want) {
				t.Fatalf("problems\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			for i := range got {
				if !strings.HasPrefix(got[i], c.want[i]) {
					t.Errorf("problem %q, want %q", got[i], c.want[i])
				}
			}
			if code != 1 || stderr != "kaas: "+found(len(c.want)).Error()+"\n" {
				t.Errorf("code %d, %q", code, stderr)
			}
		})
	}
}

// TestVerifyNotes: oddities that harm nobody are told and change nothing.
func TestVerifyNotes(t *testing.T) {
	dir := sampleDir(t)
	data := filepath.Dir(dir)
	write(t, dir, "00000000000000000099.index", nil)
	write(t, dir, "x.tmp", nil)
	write(t, dir, "x.cleaned", nil)
	write(t, dir, "x.odd", nil)
	write(t, dir, "00000000000000000008.log", second(8, 1))
	// The log start has moved up to 2: the batch before it is still there, but the first epoch begins with the log.
	write(t, dir, epochsName, []byte("0\n2\n0 2\n1 5\n"))
	// As a replica of Apache Kafka writes it: the position of the first of several batches.
	change(t, dir, indexFile, func(b []byte) []byte { return put32(b, 12, 212) })
	for _, d := range []string{"orders-1", "orders-1.ab12.deleted", "orders-2.ab-delete", "orders-01", "-1", "plain", "__kaas", "bad name-0"} {
		if err := os.Mkdir(filepath.Join(data, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	code, out, _ := command("verify", data)
	want := []string{
		"note    DATA/-1: not named as the directory of a partition; not checked",
		"note    DATA/bad name-0: not named as the directory of a partition; not checked",
		"note    DATA/orders-01: not named as the directory of a partition; not checked",
		"note    DATA/orders-1.ab12.deleted: set aside to be removed; not checked",
		"note    DATA/orders-2.ab-delete: set aside to be removed; not checked",
		"note    DATA/plain: not named as the directory of a partition; not checked",
		"DATA/__kaas: 0 topics: ok",
		"note    DATA/orders-0/x.cleaned: left by a compaction that was cut short; the next start removes it",
		"note    DATA/orders-0/x.odd: not a file of a partition; not checked",
		"note    DATA/orders-0/x.tmp: left by a write that was cut short; the next start removes it",
		"note    DATA/orders-0/00000000000000000099.index: without its .log; not checked",
		"note    DATA/orders-0/00000000000000000000.index: entry for offset 6 points to byte 212, before the batch at byte 286",
		"note    DATA/orders-0/00000000000000000000.log: 4096 bytes of zeros after the last batch of a segment that is not the last one",
		"DATA/orders-0: 2 segments, 6 batches, 10 records, 521 bytes, offsets 0-9: ok",
		"DATA/orders-1: 0 segments, 0 batches, 0 records, 0 bytes, empty: ok",
		"2 partitions, 2 segments, 6 batches, 10 records, 521 bytes: 0 problems",
	}
	if got := strings.Split(strings.TrimSpace(strings.ReplaceAll(out, data, "DATA")), "\n"); code != 0 || strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("code %d\n%s\nwant\n%s", code, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestProgress(t *testing.T) {
	if progressTo(&bytes.Buffer{}) != nil {
		t.Error("progress goes to what is no terminal")
	}
	var lines []string
	v := &verify{output: newOutput(&bytes.Buffer{}, false), progress: func(line string) { lines = append(lines, line) }, parallel: 2}
	dir := sampleDir(t)
	if err := v.run(dir); err != nil {
		t.Fatal(err)
	}
	if got := bar(1, 3); got != "[##########--------------------]  33 %" {
		t.Errorf("bar %q", got)
	}
	if len(lines) == 0 || lines[0] != "[##############################] 100 % 0 of 1 partitions, 0 of 0 MiB" || lines[len(lines)-1] != "" {
		t.Errorf("progress %q", lines)
	}
}

// TestVerifyBroker: what this broker writes is in order, with indexes of many entries, while it is at rest and when it was
// stopped.
func TestVerifyBroker(t *testing.T) {
	data := t.TempDir()
	orders := regexp.MustCompile(`orders-[01]: [2-9] segments, \d+ batches, 2000 records, \d+ bytes, offsets 0-1999: ok\n`)
	check := func(state string, flags ...string) {
		code, out, stderr := command(append([]string{"verify", "--records", data}, flags...)...)
		if code != 0 || stderr != "" || len(orders.FindAllString(out, -1)) != 2 || !strings.HasSuffix(out, ": 0 problems\n") {
			t.Errorf("%s: code %d, %q\n%s", state, code, stderr, out)
		}
	}
	fill(t, data, func() {
		code, _, stderr := command("verify", data)
		if code != 1 || stderr != "kaas: "+data+" is in use by a broker: stop it, or check it as it is with --running\n" {
			t.Errorf("in use: code %d, %q", code, stderr)
		}
		check("at rest", "--running")
	})
	check("stopped")
	code, out, _ := command("dump", filepath.Join(data, "orders-0", indexFile))
	if entries := strings.Count(out, "\n") - 3; code != 0 || entries < 10 {
		t.Errorf("code %d: the index has %d entries\n%s", code, entries, out)
	}
}

// broker starts one on dir.
func broker(t *testing.T, dir string) *server.Broker {
	t.Helper()
	cfg, err := config.Load(config.Options{Settings: []config.Setting{
		{Key: "log.dirs", Value: dir, Origin: "test"}, {Key: "listeners", Value: "PLAINTEXT://127.0.0.1:0", Origin: "test"}}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := server.Start(cfg, time.Now(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
