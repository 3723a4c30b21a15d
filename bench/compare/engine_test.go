package compare

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"kaas/bench/record"
)

const goOutput = `goos: linux
pkg: kaas/engine/state
BenchmarkPut-2   	  320416	      1600 ns/op	      1500 cpu-ns/op	     610 B/op	       0 allocs/op
BenchmarkOpen-2   	       3	 333931026 ns/op	       109.7 B/key-filled	        93.53 B/key-opened	       330.0 ms/open
BenchmarkGet   	 1	 1250 ns/op
PASS
`

// TestEngineTable: what go test prints becomes lines of the table, judged; what was not run is said to be so.
func TestEngineTable(t *testing.T) {
	r := record.Record{Scenario: EngineScenario, Time: "2026-01-02T00:00:00Z", Commit: "abc", Subjects: map[string]record.Figures{}}
	for range 2 {
		if err := parseBenchmarks("engine/state", []byte(goOutput), r.Subjects); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.Subjects["engine/state.BenchmarkPut"]["cpu-ns/op"]; len(got) != 2 || got[0] != 1500 {
		t.Errorf("%v of two rounds", got)
	}
	dir := t.TempDir()
	results, document := filepath.Join(dir, "r.jsonl"), filepath.Join(dir, "B.md")
	if err := record.Append(results, []record.Record{r}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(document, []byte(markBegin+"\n"+markEnd+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Report(results, document); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| ≥ 500000 puts/s | 625000 (625000–625000) puts/s ✓ | `engine/state.BenchmarkPut` |",
		"| ≥ 1 million/s | 0.800 (0.800–0.800) million/s ✗ | `engine/state.BenchmarkGet` |",
		"| ≤ 1000 ms | 330 (330–330) ms ✓ | `engine/state.BenchmarkOpen` |",
		"| ≤ 160 bytes | 110 (110–110) bytes ✓ | `engine/state.BenchmarkOpen` |",
		"| compaction, one record in a batch | – | not measured | `engine/compact.BenchmarkCompact/codec=none/batch=1` |",
		"- 2026-01-02T00:00:00Z, commit abc: ",
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("want %q in\n%s", want, b)
		}
	}
	if err := parseBenchmarks("engine", []byte("ok\tkaas/engine\t0.1s\n"), r.Subjects); !errors.Is(err, errNoFigures) {
		t.Errorf("no benchmark: %v", err)
	}
	if err := parseBenchmarks("engine", []byte("BenchmarkX-2 1 fast ns/op\n"), r.Subjects); err == nil {
		t.Error("a value that is no number was taken")
	}
}

// TestTableRows: every line of a table is of a benchmark that is run.
func TestTableRows(t *testing.T) {
	for _, table := range goTables {
		for _, row := range table.rows {
			run := false
			for _, s := range table.suites {
				pkg, name, _ := strings.Cut(row.benchmark, ".Benchmark")
				run = run || pkg == s.pkg && matchesBenchmark(t, s.pattern, name)
			}
			if !run {
				t.Errorf("%s is not run", row.benchmark)
			}
		}
	}
}

// matchesBenchmark says whether -bench pattern runs the benchmark, part by part as go test does.
func matchesBenchmark(t *testing.T, pattern, name string) bool {
	t.Helper()
	parts := strings.Split(name, "/")
	for i, p := range strings.Split(pattern, "/") {
		r, err := regexp.Compile(p)
		if err != nil {
			t.Fatal(err)
		}
		if i < len(parts) && !r.MatchString(parts[i]) {
			return false
		}
	}
	return true
}

// TestUnknownTable: a name of no table is an error, before anything is run.
func TestUnknownTable(t *testing.T) {
	if err := RunTable(t.Context(), "engines", "", 1, io.Discard); err == nil || !strings.Contains(err.Error(), "engine, parsley") {
		t.Errorf("%v", err)
	}
}
