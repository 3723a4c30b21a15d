//go:build interop

package interop

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"kaas/codec/batch"
	"kaas/engine"
	"kaas/server"
)

// TestDumpLogSegments: Apache's tool reads every kind of file that the engine writes, and finds what it compares in order. The log has two
// segments, indexes of several entries, and transactions of which one is aborted and one open. (The decoders of the groups' and the
// transactions' topics are used by the tests of those.)
func TestDumpLogSegments(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	second := dumpedLog(t, dir)
	const class, first = "kafka.tools.DumpLogSegments", int64(0)
	file := func(base int64, suffix string) string {
		return filepath.Join(dir, "dumped-0", fmt.Sprintf("%020d.%s", base, suffix))
	}
	for _, base := range []int64{first, second} {
		cell(t, "DumpLogSegments", fmt.Sprintf("deep iteration of %d", base), func(t *testing.T) {
			out := tool(t, "", class, "--deep-iteration", "--print-data-log", "--files", file(base, "log"))
			if strings.Contains(out, "isvalid: false") || strings.Contains(out, "isTransactional: true") != (base == second) {
				t.Errorf("%.3000s", out)
			}
			wantMatch(t, "record", out, `(?m)^\| offset: \d+ .*payload: value \d+$`)
		})
		for what, args := range map[string][]string{
			"index":              {"--files", file(base, "index")},
			"verify index only":  {"--verify-index-only", "--deep-iteration", "--files", file(base, "index") + "," + file(base, "timeindex")},
			"index sanity check": {"--index-sanity-check", "--files", file(base, "index") + "," + file(base, "timeindex")},
		} {
			cell(t, "DumpLogSegments", fmt.Sprintf("%s of %d", what, base), func(t *testing.T) {
				out := tool(t, "", class, args...)
				for _, complaint := range []string{"Mismatches in", "Index timestamp mismatch", "Index offset", "not found", "error", "Exception"} {
					if strings.Contains(out, complaint) {
						t.Errorf("%.3000s", out)
					}
				}
				if what == "index" && len(regexp.MustCompile(`(?m)^offset: \d+ position: \d+$`).FindAllString(out, -1)) < 3 {
					t.Errorf("too few entries\n%.3000s", out)
				}
				if what == "index sanity check" && strings.Count(out, "passed sanity check.") != 2 {
					t.Errorf("%.3000s", out)
				}
			})
		}
	}
	cell(t, "DumpLogSegments", "transaction index", func(t *testing.T) {
		out := tool(t, "", class, "--files", file(second, "txnindex"))
		wantMatch(t, "aborted transaction", out, fmt.Sprintf(`(?m)^version: 0 producerId: 7 firstOffset: %d lastOffset: %d lastStableOffset: %d$`, second+1, second+3, second+2))
	})
	cell(t, "DumpLogSegments", "snapshot", func(t *testing.T) {
		out := tool(t, "", class, "--files", file(second+24, "snapshot"))
		wantMatch(t, "producer", out, `(?m)^producerId: 7 producerEpoch: 1 .*currentTxnFirstOffset: (None|OptionalLong\.empty) `)
		wantMatch(t, "open transaction", out, fmt.Sprintf(`(?m)^producerId: 8 producerEpoch: 0 .*currentTxnFirstOffset: \D*%d`, second+2))
	})
}

// dumpedLog writes the log and returns where its second segment begins: with a plain record, and then a transaction that is aborted beside
// one that stays open.
func dumpedLog(t *testing.T, dir string) (second int64) {
	t.Helper()
	e, err := engine.Open(engine.Config{Dir: dir, Format: server.BatchFormat(), Durability: engine.PageCache})
	if err != nil {
		t.Fatal(err)
	}
	config := engine.DefaultLogConfig
	config.SegmentBytes, config.IndexIntervalBytes, config.RetentionMs = 4096, 200, -1
	l := e.OpenLog(engine.LogSpec{Topic: "dumped", TopicID: [16]byte{1}, Config: &config, New: true})
	n := 0
	add := func(data []byte) {
		_, info, err := server.BatchFormat().Next(data)
		if err != nil {
			t.Fatal(err)
		}
		entries := []engine.Entry{{Data: data, Info: info}}
		if l.Append(entries); entries[0].Err != nil {
			t.Fatal(entries[0].Err)
		}
	}
	record := func(spec batch.Spec) {
		var b batch.Builder
		b.Begin(nil, spec)
		n++
		b.Append(1714564800000+int64(n), fmt.Appendf(nil, "key %d", n), fmt.Appendf(nil, "value %d", n))
		add(b.End(nil))
	}
	for len(l.Segments()) < 2 {
		second = l.Offsets().LogEnd
		record(batch.NewSpec())
	}
	spec := batch.NewSpec()
	spec.ProducerID, spec.ProducerEpoch, spec.BaseSequence, spec.Transactional = 7, 1, 0, true
	record(spec)
	spec.ProducerID, spec.ProducerEpoch = 8, 0
	record(spec)
	add(batch.AppendMarker(nil, batch.Marker{TimestampMs: 1714564800000, ProducerID: 7, ProducerEpoch: 1, Type: batch.ControlAbort}))
	for range 20 {
		record(batch.NewSpec())
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	return second
}
