package logtool

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kaas/codec/batch"
	"kaas/engine/producer"
)

// names are the dumpable files of sampleDir, and a snapshot, as relative paths.
var names = []string{"00000000000000000000.log", "00000000000000000000.index", "00000000000000000000.timeindex",
	"00000000000000000000.txnindex", "00000000000000000007.snapshot", epochsName}

func snapshot() []byte {
	var s producer.State
	s.Append(9, 2, 7, 0, 5, t0+20, 0, true)
	s.Marker(9, 2, 4, t0+21, 0)
	s.Append(3, 0, 1<<31-2, 3, 4, t0+11, 0, true) // sequences that begin again at 0, and a transaction that is open
	return s.Snapshot(true)
}

func TestDumpGolden(t *testing.T) {
	dir := sampleDir(t)
	write(t, dir, "00000000000000000007.snapshot", snapshot())
	t.Chdir(dir)
	for _, c := range []struct {
		golden string
		args   []string
	}{
		{"dump.txt", append([]string{"dump"}, names...)},
		{"dump-records.txt", []string{"dump", "--records", names[0]}},
		{"dump.jsonl", append([]string{"dump", "--json", "--records"}, names...)},
	} {
		code, out, stderr := command(c.args...)
		if code != 0 || stderr != "" {
			t.Errorf("%v: code %d, %q", c.args, code, stderr)
		}
		golden(t, c.golden, out)
	}
}

// TestDumpApache dumps files that Apache Kafka 3.7 wrote: transactions, and what compaction leaves.
func TestDumpApache(t *testing.T) {
	t.Chdir(filepath.Join("testdata", "apache"))
	for _, c := range []struct{ golden, glob string }{
		{"apache-orders.txt", "orders-0/*"},
		{"apache-compacted.txt", "compacted-0/*.log"},
	} {
		files, err := filepath.Glob(c.glob)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", c.glob, files, err)
		}
		var args []string
		for _, f := range files {
			if filepath.Base(f) != metadataName {
				args = append(args, f)
			}
		}
		code, out, stderr := command(append([]string{"dump", "--records"}, args...)...)
		if code != 0 || stderr != "" {
			t.Errorf("%s: code %d, %q", c.glob, code, stderr)
		}
		golden(t, c.golden, out)
	}
}

// objects parses JSON lines.
func objects(t *testing.T, out string) (list []map[string]any) {
	t.Helper()
	for line := range strings.Lines(out) {
		var o map[string]any
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		list = append(list, o)
	}
	return list
}

// TestDumpDamage tells every kind of damage by file and position, with exit code 1, and goes on where that is possible.
func TestDumpDamage(t *testing.T) {
	log := sample()
	at := positions(t, log)
	for _, c := range []struct {
		name, file string
		data       []byte
		problem    string // what comes after "PROBLEM <file>: "
		lines      int    // batches or entries that are printed all the same
	}{
		{"a bit of a record", "0.log", flip(log, at[1]+70), "byte 115: batch of offsets 3-4: CRC does not match", 5},
		{"torn batch", "0.log", log[:at[4]+65], "byte 364: batch: bytes end inside a batch: 65 bytes of 72", 4},
		{"torn header", "0.log", log[:at[4]+20], "byte 364: batch: bytes end inside a batch", 4},
		{"garbage after the batches", "0.log", append(bytes.Clone(log), bytes.Repeat([]byte{1}, 99)...), "byte 436: batch: not a record batch of format 2, 99 bytes follow", 5},
		{"garbage after zeros", "0.log", append(append(bytes.Clone(log), make([]byte, 2<<20)...), 1), "byte 436: batch: not a record batch of format 2, 2097153 bytes follow", 5},
		{"huge length", "0.log", flip(log, at[2]+8), "byte 212: batch: bytes end inside a batch: 224 bytes of 1073741898", 2},
		{"records that do not hold together", "0.log", badRecords(), "byte 0: record 0 of the batch: batch: bad record frames", 1},
		{"index that goes back", "00000000000000000010.index", []byte{0, 0, 0, 5, 0, 0, 1, 0, 0, 0, 0, 4, 0, 0, 2, 0}, "byte 8: index entry goes back: offset 14 at 512 after offset 15 at 256", 2},
		{"index that ends inside an entry", "0.index", []byte{0, 0, 0, 5, 0, 0, 1, 0, 7, 7}, "byte 8: the file ends inside an entry: 2 bytes are left", 1},
		{"time index that goes back", "0.timeindex", []byte{0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 2}, "byte 12: time index entry goes back: 8 at offset 2 after 9 at offset 1", 2},
		{"transaction index of another version", "0.txnindex", bytes.Repeat([]byte{1}, 34), "byte 0: transaction index entry of version 257", 0},
		{"transaction that ends before it begins", "0.txnindex", append(append(make([]byte, 17), 9), make([]byte, 16)...), "byte 0: transaction of producer 0 ends at 0 before it begins at 9", 1},
		{"snapshot", "7.snapshot", flip(snapshot(), 20), "byte 0: producer: bad snapshot: CRC does not match", 0},
		{"epochs of another version", epochsName, []byte("1\n0\n"), `byte 0: version "1", want 0`, 0},
		{"epochs without a count", epochsName, []byte("0\nx\n"), "byte 2: no count of entries", 0},
		{"an epoch that is no number", epochsName, []byte("0\n2\n0 0\nx 1\n"), "byte 8: want an epoch and an offset", 1},
		{"an epoch that goes back", epochsName, []byte("0\n2\n3 9\n2 10\n"), "byte 8: entry goes back: epoch 2 at 10 after epoch 3 at 9", 1},
		{"fewer epochs than counted", epochsName, []byte("0\n2\n0 0\n"), "byte 8: 1 entries, the count says 2", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), c.file)
			if err := os.WriteFile(path, c.data, 0o644); err != nil {
				t.Fatal(err)
			}
			code, out, stderr := command("dump", "--records", path)
			if code != 1 || stderr != "kaas: 1 problem found\n" {
				t.Errorf("code %d, %q", code, stderr)
			}
			if !strings.Contains(out, "PROBLEM "+path+": "+c.problem) {
				t.Errorf("no %q in\n%s", c.problem, out)
			}
			_, out, _ = command("dump", "--json", path)
			lines, problems := 0, 0
			for _, o := range objects(t, out) {
				switch o["type"] {
				case "problem":
					problems++
					if o["file"] != path {
						t.Errorf("problem of %v", o["file"])
					}
				case "end":
				default:
					lines++
				}
			}
			want := 1
			if c.name == "records that do not hold together" {
				want = 0 // not looked into without --records
			}
			if lines != c.lines || problems != want {
				t.Errorf("%d lines and %d problems, want %d and %d", lines, problems, c.lines, want)
			}
		})
	}
}

func flip(b []byte, at int64) []byte {
	b = bytes.Clone(b)
	b[at] ^= 0x40
	return b
}

// badRecords is a batch whose CRC matches but whose record says that it is longer.
func badRecords() []byte {
	var b batch.Builder
	b.Begin(nil, batch.NewSpec())
	b.Append(t0, nil, []byte("value"))
	v := batch.View(b.End(nil))
	v[batch.HeaderSize] = 0x7e
	v.SetMaxTimestamp(t0 + 1) // makes a new CRC
	return v
}

func TestDumpUsage(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "0.log", nil)
	for _, c := range []struct {
		args []string
		code int
		said string
	}{
		{[]string{"dump"}, 2, "kaas: requires at least 1 arg(s)"},
		{[]string{"dump", filepath.Join(dir, "x.txt")}, 2, "kaas: " + filepath.Join(dir, "x.txt") + ": not a .log"},
		{[]string{"dump", filepath.Join(dir, "0.log"), filepath.Join(dir, "1.log")}, 1, "kaas: open " + filepath.Join(dir, "1.log") + ": no such file"},
		{[]string{"dump", "--what"}, 2, "kaas: unknown flag"},
		{[]string{"what"}, 2, `kaas: unknown command "what" for "kaas log"`},
		{[]string{"verify"}, 2, "kaas: accepts 1 arg(s), received 0"},
		{[]string{"verify", filepath.Join(dir, "none")}, 1, "kaas: open "},
		{[]string{"verify", t.TempDir()}, 1, "kaas: "},
	} {
		code, _, stderr := command(c.args...)
		if code != c.code || !strings.HasPrefix(stderr, c.said) {
			t.Errorf("%v: code %d, want %d; %q, want %q", c.args, code, c.code, stderr, c.said)
		}
	}
	if _, out, _ := command("dump", filepath.Join(dir, "0.log")); !strings.HasSuffix(out, "\n0 batches, 0 records, 0 bytes\n") {
		t.Errorf("an empty log is dumped as %q", out)
	}
}
