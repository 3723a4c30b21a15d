package compare

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"kaas/bench/record"
)

// EngineScenario is the name of the records of the engine's own benchmarks in a results file.
const EngineScenario = "engine"

// goTable is a table made from Go benchmarks.
type goTable struct {
	scenario, title string
	suites          []suite
	rows            []engineRow
}

var goTables = []goTable{
	{EngineScenario, "The engine by itself", engineSuites, engineRows},
	{ParsleyScenario, "Causal delivery by itself", parsleySuites, parsleyRows},
}

// GoTables are the names of the tables that RunTable makes.
func GoTables() (names []string) {
	for i := range goTables {
		names = append(names, goTables[i].scenario)
	}
	return names
}

// suite are Go benchmarks of one package.
type suite struct {
	pkg, pattern, time string // package below the module's root, -bench, -benchtime
}

// engineSuites are run by RunTable: those that engineRows show, and no more.
var engineSuites = []suite{
	{"engine", `Append/size=(1|16|256)k/sync=`, "2s"},
	{"engine", `Commit/via=goroutines/partitions=64/writers=64`, "1x"},
	{"engine", `Read/at=`, "1s"},
	{"engine", `Recover/batch=(1|16)k/idempotent=true/logs=1/pages=hot`, "2x"},
	{"engine", `ManyLogs/logs=100?000/sync=none`, "1x"},
	{"engine/compact", `Compact`, "2x"},
	{"engine/state", `(Put|Get)$`, "2000000x"},
	{"engine/state", `Open$`, "3x"},
	{"engine/state", `Durable/writers=64`, "2s"},
	{"server/catalog", `Open/`, "10x"},
}

// engineRow is a line of the engine's table: a figure of a benchmark, and perhaps a bar.
type engineRow struct {
	what      string
	benchmark string // package and name
	unit      string // as the benchmark has it
	show      string
	of        func(v float64) float64
	bar       Bar // without show: none
}

func same(v float64) float64       { return v }
func perSecond(ns float64) float64 { return 1e9 / ns }
func million(ns float64) float64   { return 1e3 / ns }
func inMs(ns float64) float64      { return ns / 1e6 }
func inverse(v float64) float64    { return 1 / v }

// benchCommit is the group commit without sockets: what of the bars of the broker's own is the engine's.
const benchCommit = "engine.BenchmarkCommit/via=goroutines/partitions=64/writers=64"

var engineRows = []engineRow{
	{"append, 1 KiB batches, page cache", "engine.BenchmarkAppend/size=1k/sync=none", "ns/op", "ns", same, Bar{}},
	{"append, 16 KiB batches, page cache", "engine.BenchmarkAppend/size=16k/sync=none", "MB/s", "MB/s", same, Bar{}},
	{"append, 256 KiB batches, page cache", "engine.BenchmarkAppend/size=256k/sync=none", "MB/s", "MB/s", same, Bar{}},
	{"append, 16 KiB batches, group commit behind them", "engine.BenchmarkAppend/size=16k/sync=group", "MB/s", "MB/s", same, Bar{}},
	{"group commit, 64 goroutines on 64 partitions: acknowledgements per round, of the writers", benchCommit, "acks-share", "of the writers", same, atLeast(0.8, "", "", "of the writers")},
	{"the same: rounds/s, of a bare probe in the same run with as many bytes in one file", benchCommit, "round-share", "of the probe", same, atLeast(0.6, "", "", "of the probe")},
	{"the same: p99 of an acknowledgement, of the probe's", benchCommit, "p99-share", "times", same, atMost(2, "", "times the probe's")},
	{"the same: acknowledgements", benchCommit, "acks/s", "acks/s", same, Bar{}},
	{"look up an offset, last batches", "engine.BenchmarkRead/at=tail", "ns/op", "ns", same, Bar{}},
	{"look up an offset, by the index of the segment in use", "engine.BenchmarkRead/at=active", "ns/op", "ns", same, Bar{}},
	{"look up an offset, by the index of a sealed segment", "engine.BenchmarkRead/at=sealed", "ns/op", "ns", same, Bar{}},
	{"recover, 1 KiB batches with producers", "engine.BenchmarkRecover/batch=1k/idempotent=true/logs=1/pages=hot", "cpu-s/GB", "GB/s per core", inverse, atLeast(1, "", "", "GB/s per core")},
	{"recover, 16 KiB batches with producers", "engine.BenchmarkRecover/batch=16k/idempotent=true/logs=1/pages=hot", "cpu-s/GB", "GB/s per core", inverse, atLeast(1, "", "", "GB/s per core")},
	{"10,000 logs written to, heap for each", "engine.BenchmarkManyLogs/logs=10000/sync=none", "heap-B", "bytes", same, atMost(2048, "", "bytes")},
	{"the same, closed, opened and read", "engine.BenchmarkManyLogs/logs=10000/sync=none", "loaded-heap-B", "bytes", same, atMost(2048, "", "bytes")},
	{"the same, open after a clean close", "engine.BenchmarkManyLogs/logs=10000/sync=none", "clean-ms", "ms", same, atMost(500, "", "ms")},
	{"the same, after a kill with a batch unsynced in each", "engine.BenchmarkManyLogs/logs=10000/sync=none", "killed-ms", "ms", same, Bar{}},
	{"100,000 logs written to, heap for each", "engine.BenchmarkManyLogs/logs=100000/sync=none", "heap-B", "bytes", same, atMost(2048, "", "bytes")},
	{"the same, closed, opened and read", "engine.BenchmarkManyLogs/logs=100000/sync=none", "loaded-heap-B", "bytes", same, atMost(2048, "", "bytes")},
	{"the same, open after a clean close", "engine.BenchmarkManyLogs/logs=100000/sync=none", "clean-ms", "ms", same, atMost(4000, "", "ms")},
	{"the same, after a kill with a batch unsynced in each", "engine.BenchmarkManyLogs/logs=100000/sync=none", "killed-ms", "ms", same, Bar{}},
	{"compaction, 100 records of 100 bytes in a batch", "engine/compact.BenchmarkCompact/codec=none/batch=100", "MB/s", "MB/s", same, Bar{}},
	{"the same, lz4", "engine/compact.BenchmarkCompact/codec=lz4/batch=100", "MB/s", "MB/s", same, Bar{}},
	{"the same, zstd", "engine/compact.BenchmarkCompact/codec=zstd/batch=100", "MB/s", "MB/s", same, Bar{}},
	{"compaction, one record in a batch", "engine/compact.BenchmarkCompact/codec=none/batch=1", "MB/s", "MB/s", same, Bar{}},
	{"state store, puts of 100 bytes in batches of 64", "engine/state.BenchmarkPut", "ns/op", "puts/s", perSecond, atLeast(500_000, "", "", "puts/s")},
	{"state store, the same by processor time", "engine/state.BenchmarkPut", "cpu-ns/op", "puts per CPU second", perSecond, Bar{}},
	{"state store, cached gets, one core", "engine/state.BenchmarkGet", "ns/op", "million/s", million, atLeast(1, "", "", "million/s")},
	{"state store, single durable puts of 64 writers", "engine/state.BenchmarkDurable/writers=64", "ns/op", "puts/s", perSecond, Bar{}},
	{"state store, open a million keys of 60 bytes", "engine/state.BenchmarkOpen", "ms/open", "ms", same, atMost(1000, "", "ms")},
	{"state store, heap for a key of 60 bytes, filled", "engine/state.BenchmarkOpen", "B/key-filled", "bytes", same, atMost(160, "", "bytes")},
	{"state store, the same, opened from a checkpoint", "engine/state.BenchmarkOpen", "B/key-opened", "bytes", same, atMost(160, "", "bytes")},
	{"catalog, open with 10,000 topics after a clean stop", "server/catalog.BenchmarkOpen/clean", "ns/op", "ms", inMs, atMost(100, "", "ms")},
	{"catalog, the same after a kill", "server/catalog.BenchmarkOpen/killed", "ns/op", "ms", inMs, atMost(100, "", "ms")},
}

// RunTable runs the benchmarks of one of GoTables, each rounds times, with the go command in the module that is the working directory, and
// appends a record to the results file.
func RunTable(ctx context.Context, name, results string, rounds int, progress io.Writer) error {
	i := slices.Index(GoTables(), name)
	if i < 0 {
		return fmt.Errorf("no table %q: there are %s", name, strings.Join(GoTables(), ", "))
	}
	t := &goTables[i]
	r := record.Record{Time: time.Now().UTC().Format(time.RFC3339), Commit: record.Commit(), Machine: record.ThisMachine(), Scenario: t.scenario, Subjects: map[string]record.Figures{}}
	var err error
	if r.Calibration, err = record.Calibrate("."); err != nil {
		return err
	}
	for round := range rounds { // interleaved: a slow minute meets all of them
		for _, s := range t.suites {
			fmt.Fprintf(progress, "round %d of %d: %s %s\n", round+1, rounds, s.pkg, s.pattern)
			cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", s.pattern, "-benchtime", s.time, "./"+s.pkg)
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err != nil {
				return fmt.Errorf("%s: %w\n%s", s.pkg, err, out)
			}
			if err := parseBenchmarks(s.pkg, out, r.Subjects); err != nil {
				return err
			}
		}
	}
	return record.Append(results, []record.Record{r})
}

var errNoFigures = errors.New("no benchmark in the output")

// parseBenchmarks adds the figures in what go test prints: lines of name, iterations, and pairs of value and unit.
func parseBenchmarks(pkg string, out []byte, to map[string]record.Figures) error {
	seen := false
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		f := strings.Fields(s.Text())
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		name := f[0]
		if i := strings.LastIndexByte(name, '-'); i > 0 { // GOMAXPROCS
			if _, err := strconv.Atoi(name[i+1:]); err == nil {
				name = name[:i]
			}
		}
		name = pkg + "." + name
		for i := 2; i+1 < len(f); i += 2 {
			v, err := strconv.ParseFloat(f[i], 64)
			if err != nil {
				return fmt.Errorf("%s: %w", s.Text(), err)
			}
			if to[name] == nil {
				to[name] = record.Figures{}
			}
			to[name][f[i+1]] = append(to[name][f[i+1]], v)
			seen = true
		}
	}
	if !seen {
		return fmt.Errorf("%s: %w", pkg, errNoFigures)
	}
	return nil
}

// markdown is the table of what r has.
func (t *goTable) markdown(r *record.Record) string {
	var b strings.Builder
	b.WriteString(t.title + " (Go benchmarks): medians, with the lowest and the highest round.\n\n")
	b.WriteString("| what | bar | measured | of |\n|---|---|---|---|\n")
	for _, row := range t.rows {
		var values []float64
		for _, v := range r.Subjects[row.benchmark][row.unit] {
			values = append(values, row.of(v))
		}
		cell, bar := "not measured", "–"
		s, ok := record.Of(values)
		if ok {
			cell = fmt.Sprintf("%s (%s–%s) %s", record.Short(s.Median), record.Short(s.Min), record.Short(s.Max), row.show)
		}
		if row.bar.show != "" {
			bar = row.bar.String()
			if ok && row.bar.met(s.Median) {
				cell += " ✓"
			} else if ok {
				cell += " ✗"
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | `%s` |\n", row.what, bar, cell, row.benchmark)
	}
	return b.String()
}
