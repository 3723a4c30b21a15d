package engine

import (
	"encoding/hex"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	wire "kaas/codec/batch"
)

var updateExamples = flag.Bool("update-examples", false, "write the dumps of FORMAT.md §10 anew")

// examples reads the worked examples of FORMAT.md: under a heading "### `name`" a dump as hexdump -C has it. With the text of all else.
func examples(t *testing.T) (text string, dumps map[string][]byte) {
	t.Helper()
	b, err := os.ReadFile("FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	dumps = map[string][]byte{}
	name := ""
	for line := range strings.Lines(string(b)) {
		if h, ok := strings.CutPrefix(line, "### `"); ok {
			name, _, _ = strings.Cut(h, "`")
			dumps[name] = []byte{}
		}
		at, rest, ok := strings.Cut(strings.TrimPrefix(line, "    "), "  ")
		if name == "" || !ok || len(at) != 8 || !strings.HasPrefix(line, "    0") {
			continue
		}
		if at != fmt.Sprintf("%08x", len(dumps[name])) {
			t.Fatalf("%s: a line at %s, %d bytes before it", name, at, len(dumps[name]))
		}
		digits, _, _ := strings.Cut(rest, "|")
		raw, err := hex.DecodeString(strings.ReplaceAll(strings.ReplaceAll(digits, " ", ""), "\n", ""))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		dumps[name] = append(dumps[name], raw...)
	}
	return string(b), dumps
}

// exampleTopic is the topic id of the examples: bytes 1 to 16.
var exampleTopic = [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

func exampleEngine(t *testing.T, dir string) (*Engine, *Log) {
	t.Helper()
	e, err := Open(Config{Dir: dir, Format: testFormat{}, Durability: PageCache, Clock: func() time.Time { return time.UnixMilli(1714564800100) }})
	if err != nil {
		t.Fatal(err)
	}
	c := DefaultLogConfig
	c.RetentionMs, c.IndexIntervalBytes = -1, 100
	return e, e.OpenLog(LogSpec{Topic: "orders", TopicID: exampleTopic, LeaderEpoch: 3, Config: &c})
}

// exampleBatches are two records, a transaction of producer 7 that has one, and its abort.
func exampleBatches() (list []Entry) {
	const t0 = 1714564800000
	var b wire.Builder
	b.Begin(nil, wire.NewSpec())
	b.Append(t0, []byte("k1"), []byte("v1"), wire.Header{Key: "h", Value: []byte("x")})
	b.Append(t0+5, nil, []byte("v2"))
	raw := [][]byte{b.End(nil)}
	spec := wire.NewSpec()
	spec.ProducerID, spec.ProducerEpoch, spec.BaseSequence, spec.Transactional = 7, 1, 0, true
	b.Begin(nil, spec)
	b.Append(t0+10, []byte("k3"), []byte("v3"))
	raw = append(raw, b.End(nil), wire.AppendMarker(nil, wire.Marker{TimestampMs: t0 + 11, ProducerID: 7, ProducerEpoch: 1, Type: wire.ControlAbort, CoordinatorEpoch: 4}))
	for _, data := range raw {
		_, info, err := testFormat{}.Next(data)
		if err != nil {
			panic(err)
		}
		list = append(list, Entry{Data: data, Info: info})
	}
	return list
}

// TestExamples: the files of FORMAT.md §10 are those that the engine writes, byte for byte, and what it reads from them is what was written.
func TestExamples(t *testing.T) {
	dir := t.TempDir()
	e, l := exampleEngine(t, dir)
	list := exampleBatches()
	for i := range list {
		if l.Append(list[i : i+1]); list[i].Err != nil {
			t.Fatal(list[i].Err)
		}
	}
	if start, err := l.DeleteRecords(1); start != 1 || err != nil {
		t.Fatal(start, err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	text, dumps := examples(t)
	written := map[string][]byte{}
	for _, name := range append(must(filepath.Glob(dir+"/orders-0/*")), dir+"/"+journalName) {
		written[filepath.Base(name)] = must(os.ReadFile(name))
	}
	if *updateExamples {
		for name, b := range written {
			text = redump(text, name, b)
		}
		if err := os.WriteFile("FORMAT.md", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, dumps = examples(t)
	}
	for _, name := range slices.Sorted(maps.Keys(written)) {
		if b, ok := dumps[name]; !ok || string(b) != string(written[name]) {
			t.Errorf("%s is not as FORMAT.md has it (-update-examples writes the dumps):\n%s", name, hex.Dump(written[name]))
		}
	}
	const line = "e96dc73c dirty orders-0 4711 0" // of §3
	j := &journal{entries: map[string]journalEntry{}}
	j.apply([]byte(line))
	if !strings.Contains(text, line) || j.get("orders-0") != (journalEntry{dirty: true, recovery: 4711}) {
		t.Errorf("the journal's line of §3 is read as %+v", j.entries)
	}
	for name := range dumps {
		if _, ok := written[name]; !ok {
			delete(dumps, name) // of the store, which has a test of its own
		}
	}
	readExamples(t, dumps)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// redump replaces the dump under a heading.
func redump(text, name string, b []byte) string {
	head := "### `" + name + "`"
	at := strings.Index(text, head)
	if at < 0 {
		return text
	}
	at += strings.Index(text[at:], "\n") + 1
	end := at
	for line := range strings.Lines(text[at:]) {
		if line != "\n" && !strings.HasPrefix(line, "    0") {
			break
		}
		end += len(line)
	}
	dump := ""
	for line := range strings.Lines(hex.Dump(b)) {
		dump += "    " + line
	}
	return text[:at] + "\n" + dump + "\n" + text[end:]
}

// readExamples has an engine open the files of the text.
func readExamples(t *testing.T, dumps map[string][]byte) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/orders-0", 0o755); err != nil {
		t.Fatal(err)
	}
	for name, b := range dumps {
		to := dir + "/orders-0/" + name
		if name == journalName {
			to = dir + "/" + name
		}
		if err := os.WriteFile(to, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	e, l := exampleEngine(t, dir)
	defer e.Close()
	if err := l.Load(); err != nil {
		t.Fatal(err)
	}
	if o := l.Offsets(); o.LogStart != 1 || o.LogEnd != 4 || o.LastStable != 4 {
		t.Errorf("offsets %+v", o)
	}
	if got := l.AbortedIn(nil, 0, 4); len(got) != 1 || got[0] != (AbortedTxn{ProducerID: 7, FirstOffset: 2, LastOffset: 3, LastStable: 4}) {
		t.Errorf("aborted transactions %+v", got)
	}
	if epoch := l.EpochAt(2); epoch != 3 {
		t.Errorf("epoch %d", epoch)
	}
	if p, ok := l.st.producers.Get(7); !ok || p.Epoch != 1 || p.TxnFirst != -1 || l.st.producers.Len() != 1 {
		t.Errorf("producer %+v %v", p, ok)
	}
	if offset, ts, _, ok, err := l.OffsetForTime(1714564800010); offset != 2 || ts != 1714564800010 || !ok || err != nil {
		t.Errorf("offset for a time: %d %d %v %v", offset, ts, ok, err)
	}
	if l.st.marked {
		t.Error("the log was scanned")
	}
}
