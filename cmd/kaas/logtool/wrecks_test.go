package logtool

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kaas/codec/batch"
	"kaas/engine/producer"
	"kaas/engine/vfs"
)

const (
	snap6 = "00000000000000000006.snapshot"
	snap7 = "00000000000000000007.snapshot"
)

// sealed adds a segment after the sample, so that the first one is sealed.
func sealed(t *testing.T, dir string) { write(t, dir, "00000000000000000008.log", second(8, 1)) }

// replayWrecks are files that are sound by themselves and do not fit the log.
func replayWrecks() []wreck {
	of := func(name string, b func() []byte, problem string) wreck {
		return wreck{problem, func(t *testing.T, dir string) { write(t, dir, name, b()) }, []string{name + ": byte 0: " + problem}}
	}
	return []wreck{
		of(snap7, func() []byte {
			return honest(func(s *producer.State) { s.Append(3, 0, 0, 0, 2, t0, 0, false) })
		}, "producer 3 wrote offset 2; no batch of the log is its"),
		of(snap7, func() []byte {
			var s producer.State
			s.Append(9, 2, 7, 0, 4, t0+20, 0, false)
			return s.Snapshot(true)
		}, "last offset of producer 9 is 4; the log says 5"),
		of(snap7, func() []byte {
			var s producer.State
			s.Append(9, 2, 8, 0, 5, t0+20, 0, false)
			return s.Snapshot(true)
		}, "last sequence of producer 9 is 8, of a batch of 1; the log says 7 and 1"),
		of(snap7, func() []byte {
			var s producer.State
			s.Append(9, 1, 7, 0, 5, t0+20, 0, false)
			return s.Snapshot(true)
		}, "epoch of producer 9 is 1; the log says 2"),
		of(snap7, func() []byte {
			var s producer.State
			s.Append(9, 2, 7, 0, 5, t0+20, 0, true)
			return s.Snapshot(true)
		}, "open transaction of producer 9 begins at 5; the log says -1"),
		of(snap6, func() []byte {
			var s producer.State
			return s.Snapshot(true)
		}, "producer 9, with an open transaction from offset 5, is missing"),
		{"an aborted transaction that begins elsewhere", func(t *testing.T, dir string) {
			change(t, dir, txnFile, func(b []byte) []byte { b[17] = 4; return b })
		}, []string{txnFile + ": byte 0: aborted transaction of producer 9 at offset 6 begins at 4; the log says 5"}},
		{"another last stable offset", func(t *testing.T, dir string) {
			change(t, dir, txnFile, func(b []byte) []byte { b[33] = 6; return b })
		}, []string{txnFile + ": byte 0: last stable offset 6 after the aborted transaction at offset 6; the log says 7"}},
		{"an aborted transaction that is missing", func(t *testing.T, dir string) {
			sealed(t, dir)
			if err := os.Remove(filepath.Join(dir, txnFile)); err != nil {
				t.Fatal(err)
			}
		}, []string{txnFile + ": byte 0: aborted transaction of producer 9, offsets 5-6, is missing"}},
		{"an epoch that is missing", func(t *testing.T, dir string) {
			sealed(t, dir)
			write(t, dir, epochsName, []byte("0\n1\n0 0\n"))
		}, []string{logFile + ": byte 212: offset 5 has leader epoch 1, which leader-epoch-checkpoint lacks"}},
		{"an epoch that begins too early", func(t *testing.T, dir string) {
			sealed(t, dir)
			write(t, dir, epochsName, []byte("0\n2\n0 0\n1 3\n"))
		}, []string{logFile + ": byte 115: offset 4 has leader epoch 0, but epoch 1 begins at 3 by leader-epoch-checkpoint"}},
		{"a damaged segment that is to be put in place", func(t *testing.T, dir string) {
			write(t, dir, logFile+".swap", flip(sample(), 70))
		}, []string{logFile + ".swap: byte 0: batch of offsets 0-2: CRC does not match"}},
	}
}

// TestVerifyAfterKill: what the newest files may lack after a kill is a note, and a problem once the journal says that all is clean.
func TestVerifyAfterKill(t *testing.T) {
	for journal, want := range map[string]string{
		"e96dc73c dirty orders-0 4711 0\n": "", // a kill: the newest segment is not sealed
		"":                                 "PROBLEM",
	} {
		dir := sampleDir(t)
		if err := os.Remove(filepath.Join(dir, txnFile)); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Dir(dir), "kaas.journal", []byte(journal))
		code, out, _ := command("verify", dir)
		if problem := strings.Contains(out, "PROBLEM"); problem != (want != "") || code != 0 != problem {
			t.Errorf("journal %q: code %d\n%s", journal, code, out)
		}
		if want == "" && !strings.Contains(out, "note    "+filepath.Join(dir, txnFile)+": 1 aborted transactions of the log are not in it; the next start finds them\n") {
			t.Errorf("no note\n%s", out)
		}
	}
}

// TestVerifyDataDir breaks what belongs to all partitions.
func TestVerifyDataDir(t *testing.T) {
	for _, c := range []struct {
		name, file string
		do         func(b []byte) []byte
		want       string // of the problem, after the file's name
	}{
		{"a line of the journal", "kaas.journal", func([]byte) []byte { return []byte("e96dc73c dirty orders-0 4711 0\n00000000 clean x 0 0\n") }, ": byte 31: line does not verify"},
		{"an unfinished line of the journal", "kaas.journal", func([]byte) []byte { return []byte("e96dc73c dirty ord") }, ": byte 0: line does not verify"},
		{"the count of the cleaner's checkpoint", cleanerName, func([]byte) []byte { return []byte("0\n2\norders 0 5\n") }, `: byte 2: 1 entries, the count says "2"`},
		{"a line of the cleaner's checkpoint", cleanerName, func([]byte) []byte { return []byte("0\n2\norders 0 5\norders 1 -5\n") }, ": byte 15: want a topic, a partition and an offset"},
		{"the version of the cleaner's checkpoint", cleanerName, func([]byte) []byte { return []byte("1\n0\n") }, ": byte 0: no version 0 and count"},
		{"the store's log", storeDir + "/0000000001.log", func(b []byte) []byte { return flip(b, 60) }, ": byte 32: frame cut, damaged or out of turn"},
		{"the store's checkpoint", storeDir + "/0000000001.ckp", func(b []byte) []byte { return flip(b, 60) }, ": byte 37: checkpoint damaged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			data := filled(t)
			path := filepath.Join(data, c.file)
			b, err := os.ReadFile(path)
			if err != nil && strings.HasPrefix(c.file, storeDir) {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, c.do(b), 0o644); err != nil {
				t.Fatal(err)
			}
			code, out, _ := command("verify", data)
			if code != 1 || !strings.Contains(out, "PROBLEM "+path+c.want) {
				t.Errorf("code %d, want %s\n%s", code, path+c.want, out)
			}
		})
	}
}

// TestVerifyParallel: the output does not depend on how many partitions are checked at a time, or which is ready first.
func TestVerifyParallel(t *testing.T) {
	data := filled(t)
	for _, name := range []string{"a-0", "b-0", "c-0", "z-0"} {
		if err := os.CopyFS(filepath.Join(data, name), os.DirFS(filepath.Join(data, "orders-"+string(name[2])))); err != nil {
			t.Fatal(err)
		}
	}
	l := logs(t, filepath.Join(data, "b-0"))
	alter(t, l[1], func(b []byte) []byte { return flip(b, 100) })
	_, want, _ := command("verify", "--json", "--parallel", "1", data)
	if strings.Count(want, `"type":"partition"`) != 6 || strings.Count(want, `"type":"problem"`) != 1 {
		t.Fatalf("of one\n%s", want)
	}
	for _, n := range []string{"2", "5", "100"} {
		if _, out, _ := command("verify", "--json", "--parallel", n, data); out != want {
			t.Errorf("of %s\n%s\nwant\n%s", n, out, want)
		}
	}
}

// TestSeek: sound batches are found behind damage of any length.
func TestSeek(t *testing.T) {
	log := sample()
	at := positions(t, log)
	for _, c := range []struct {
		b    []byte
		want int
	}{
		{log, 5},
		{flip(sample(), at[1]+9), 4},
		{append([]byte{1, 2, 3}, log...), 5},
		{log[at[1]+1:], 3},
		{log[:at[4]+20], 4},
		{make([]byte, 300), 0},
		{nil, 0},
	} {
		path := filepath.Join(t.TempDir(), logFile)
		if err := os.WriteFile(path, c.b, 0o644); err != nil {
			t.Fatal(err)
		}
		n := 0
		if err := soundBatches(vfs.OS, path, func(batch.View) { n++ }); err != nil || n != c.want {
			t.Errorf("%d bytes: %d batches, want %d, %v", len(c.b), n, c.want, err)
		}
	}
}
