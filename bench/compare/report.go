package compare

import (
	"fmt"
	"strings"

	"kaas/bench/record"
)

// part is the name of the generated part of a document.
const part = "results"

// Report writes the tables made from the newest record of each scenario in the results file into the document, between its
// marks. It returns whether the document changed.
func Report(results, document string) (changed bool, err error) {
	records, err := record.Read(results)
	if err != nil {
		return false, err
	}
	return record.Splice(document, part, tables(records))
}

// tables are the bars and the figures, as Markdown.
func tables(records []record.Record) string {
	newest := map[string]*record.Record{}
	for i := range records {
		newest[records[i].Scenario] = &records[i]
	}
	var b strings.Builder
	b.WriteString("| what | bar | measured |\n|---|---|---|\n")
	for i := range scenarios {
		s := &scenarios[i]
		if r := newest[s.name]; r != nil {
			for _, bar := range s.bars {
				fmt.Fprintf(&b, "| %s | %s | %s |\n", s.what, bar, bar.verdict(r))
			}
		}
	}
	b.WriteString("\nThe figures behind it: medians, with the lowest and the highest round.\n\n")
	b.WriteString("| scenario | subject | MB/s | requests/s | CPU-s/GB | CPU-µs/request | p50 / p99 ms | RssAnon MiB |\n|---|---|---|---|---|---|---|---|\n")
	for i := range scenarios {
		s := &scenarios[i]
		for _, subject := range s.subjects {
			if r := newest[s.name]; r != nil && len(r.Subjects[subject][bytesPerSecond]) > 0 {
				fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s / %s | %s |\n", s.name, subject, r.Cell(subject, bytesPerSecond, 1e-6),
					r.Cell(subject, requestsPerSecond, 1), r.Cell(subject, cpuPerGB, 1), r.Cell(subject, cpuPerRequest, 1),
					r.Cell(subject, latencyP50, 1e-3), r.Cell(subject, latencyP99, 1e-3), r.Cell(subject, rssAnonMiB, 1))
			}
		}
	}
	from := Names()
	for i := range goTables {
		t := &goTables[i]
		if r := newest[t.scenario]; r != nil {
			b.WriteString("\n" + t.markdown(r))
			from = append(from, t.scenario)
		}
	}
	b.WriteString("\nWhere and when:\n\n")
	seen := map[string]bool{}
	for _, name := range from {
		if r := newest[name]; r != nil && !seen[r.Time] {
			seen[r.Time] = true
			b.WriteString(r.Origin() + "\n")
		}
	}
	return b.String()
}
