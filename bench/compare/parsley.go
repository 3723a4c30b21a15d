package compare

import "fmt"

// ParsleyScenario is the name of the records of the benchmarks of causal delivery in a results file.
const ParsleyScenario = "parsley"

// parsleySuites are run by RunTable: those that parsleyRows show, and no more.
var parsleySuites = []suite{
	{"codec/parsley", `DecodeMerge/claims=mixed`, "300ms"},
	{"server/causal", `Gate/width=/claims=mixed/consumed=(5|8|20|68|260)$`, "300ms"},
	{"server/causal", `Stamp/width=/claims=mixed`, "300ms"},
	{"server/causal", `Cascade/shape=chain/width=4/depth=`, "100000x"},
	{"server/causal", `Cascade/shape=chain/width=(1|16|64|256)/depth=1000$`, "20000x"},
	{"server/causal", `Deliver/store=`, "500000x"},
	{"server/causal", `HeldHeap`, "1x"},
}

var parsleyRows = makeParsleyRows()

func makeParsleyRows() (rows []engineRow) {
	us := func(ns float64) float64 { return ns / 1e3 }
	for _, op := range []struct {
		what, benchmark, unit string
		most                  float64 // µs at 64 claims
	}{
		{"gate, claims that are all met: %d", "server/causal.BenchmarkGate/width=%d/claims=mixed/consumed=%[2]d", "cpu-ns/op", 1},
		{"decode and merge a clock, claims: %d", "codec/parsley.BenchmarkDecodeMerge/claims=mixed/width=%d", "cpu-ns/op", 2},
		{"stamp with its headers, claims: %d", "server/causal.BenchmarkStamp/width=%d/claims=mixed", "cpu-ns/op", 3},
	} {
		for _, width := range []int{1, 4, 16, 64, 256} {
			bar := Bar{}
			if width == 64 {
				bar = atMost(op.most, "", "µs")
			}
			name := fmt.Sprintf(op.benchmark, width)
			if op.most == 1 {
				name = fmt.Sprintf(op.benchmark, width, width+4)
			}
			rows = append(rows, engineRow{fmt.Sprintf(op.what, width), name, op.unit, "µs", us, bar})
		}
	}
	for _, depth := range []int{1, 10, 100, 1000, 10_000, 100_000} {
		rows = append(rows, engineRow{fmt.Sprintf("a release in a cascade of %d, 4 claims", depth),
			fmt.Sprintf("server/causal.BenchmarkCascade/shape=chain/width=4/depth=%d", depth), "ns/release", "µs", us, Bar{}})
	}
	for _, width := range []int{1, 16, 64, 256} {
		rows = append(rows, engineRow{fmt.Sprintf("a release in a cascade of 1000, %d claims", width),
			fmt.Sprintf("server/causal.BenchmarkCascade/shape=chain/width=%d/depth=1000", width), "ns/release", "µs", us, Bar{}})
	}
	for _, d := range []struct {
		what, store string
		least       float64
	}{{"in memory", "memory", 500_000}, {"in the engine", "engine", 100_000}} {
		for _, held := range []bool{false, true} {
			for _, commit := range []int{1, 100} {
				what := "deliver, store " + d.what
				if held {
					what += ", three of four held"
				}
				bar := Bar{}
				if !held {
					bar = atLeast(d.least, "", "", "records per CPU second")
				}
				rows = append(rows, engineRow{fmt.Sprintf("%s, a commit for %d", what, commit),
					fmt.Sprintf("server/causal.BenchmarkDeliver/store=%s/held=%v/width=4/commit=%d", d.store, held, commit), "cpu-ns/op", "records per CPU second", perSecond, bar})
			}
		}
	}
	return append(rows, engineRow{"heap for each of a million held records", "server/causal.BenchmarkHeldHeap", "B/record", "bytes", same, atMost(200, "", "bytes")})
}
