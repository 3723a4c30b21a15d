package rivals

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"kaas/bench/chart"
	"kaas/bench/record"
)

// part is the name of the generated part of the document.
const part = "rivals"

// Report writes the tables and charts of the newest record of each scenario: the tables into the document, between its marks, the charts into a
// directory beside it. It returns whether the document changed. Without results it changes nothing.
func Report(results, document, charts string) (changed bool, err error) {
	records, err := record.Read(results)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	newest := record.Newest(records)
	drawn, err := draw(newest, filepath.Join(filepath.Dir(document), charts))
	if err != nil {
		return false, err
	}
	return record.Splice(document, part, tables(newest, drawn, charts))
}

// drawing is a chart of one figure over several scenarios.
type drawing struct {
	file, title, unit, figure string
	scenarios                 []string
}

var drawings = []drawing{
	{"produce-rate.svg", "Produce, by client", "bytes/s", bytesPerSecond, []string{"java-default", "java-256k", "franz-produce", "librdkafka-produce", "large-records"}},
	{"produce-cpu.svg", "Produce, processor time of the broker", "CPU-s/GB, less is better", cpuPerGB, []string{"java-default", "java-256k", "franz-produce", "librdkafka-produce", "large-records"}},
	{"consume-rate.svg", "Consume, by client", "bytes/s", bytesPerSecond, []string{"java-consume", "franz-consume", "librdkafka-consume", "fan-out"}},
	{"consume-cpu.svg", "Consume, processor time of the broker", "CPU-s/GB, less is better", cpuPerGB, []string{"java-consume", "franz-consume", "librdkafka-consume", "fan-out"}},
	{"small-rate.svg", "One record of 100 B per request", "requests/s", requestsPerSecond, []string{"small-1", "small-16", "small-64"}},
	{"sync-rate.svg", "A sync for every acknowledgement", "requests/s", requestsPerSecond, []string{"sync-16", "sync-64"}},
	{"open-p99.svg", "Open loop, p99", "µs, less is better", p99, []string{"open-1k", "open-10k", "end-to-end"}},
	{"memory.svg", "Memory under load, highest RssAnon", "MiB, less is better", rssPeak, []string{"java-256k", "franz-produce", "fan-out", "keyed-50", "sync-java"}},
}

// draw writes the charts that have something to show and returns them.
func draw(newest map[string]*record.Record, dir string) ([]drawing, error) {
	var drawn []drawing
	for _, d := range drawings {
		var groups []chart.Group
		for _, name := range d.scenarios {
			r := newest[name]
			if r == nil {
				continue
			}
			g := chart.Group{Name: name}
			for _, b := range Brokers {
				if s, ok := r.Figure(b, d.figure); ok {
					g.Bars = append(g.Bars, chart.Bar{Series: b, Value: s.Median, Min: s.Min, Max: s.Max})
				}
			}
			if len(g.Bars) > 0 {
				groups = append(groups, g)
			}
		}
		if len(groups) == 0 {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, d.file), []byte(chart.Bars(d.title, d.unit, groups)), 0o644); err != nil {
			return nil, err
		}
		drawn = append(drawn, d)
	}
	return drawn, nil
}

// tables are the bars, the figures and the charts, as Markdown.
func tables(newest map[string]*record.Record, drawn []drawing, charts string) string {
	var b strings.Builder
	b.WriteString("| scenario | what | bar | kaas | bar at this machine's speed |\n|---|---|---|---|---|\n")
	for i := range scenarios {
		s := &scenarios[i]
		if r := newest[s.name]; r != nil {
			for _, bar := range s.bars {
				fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", s.name, s.what, bar, bar.verdict(r), bar.scaled(r))
			}
		}
	}
	b.WriteString("\nMedians with the lowest and the highest round:\n\n")
	b.WriteString("| scenario | broker | MB/s | per s | CPU-s/GB | CPU-µs each | p50 / p99 / p99.9 ms | RssAnon MiB |\n|---|---|---|---|---|---|---|---|\n")
	for i := range scenarios {
		s := &scenarios[i]
		for _, broker := range s.brokers {
			if r := newest[s.name]; r != nil && len(r.Subjects[broker][bytesPerSecond]) > 0 {
				fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s / %s / %s | %s |\n", s.name, broker, r.Cell(broker, bytesPerSecond, 1e-6), r.Cell(broker, requestsPerSecond, 1),
					r.Cell(broker, cpuPerGB, 1), r.Cell(broker, cpuPerRequest, 1), r.Cell(broker, p50, 1e-3), r.Cell(broker, p99, 1e-3), r.Cell(broker, p999, 1e-3), r.Cell(broker, rssPeak, 1))
			}
		}
	}
	b.WriteString(otherTable(newest))
	if len(drawn) > 0 {
		b.WriteString("\n")
	}
	for _, d := range drawn {
		fmt.Fprintf(&b, "![%s, %s](%s)\n", d.title, d.unit, path.Join(filepath.ToSlash(charts), d.file))
	}
	b.WriteString("\nWhere and when:\n\n")
	seen := map[string]bool{}
	for i := range scenarios {
		if r := newest[scenarios[i].name]; r != nil && !seen[r.Time] {
			seen[r.Time] = true
			b.WriteString(r.Origin() + "\n")
		}
	}
	return b.String()
}

// otherTable has the figures that only some scenarios have.
func otherTable(newest map[string]*record.Record) string {
	figures := []string{startMs, idleRss, idleCPU, createMs, usableMs, restartMs, ackP99Quiet, ackP99Cold, ackP99Times, coldPerSecond, instructions}
	var b strings.Builder
	for i := range scenarios {
		r := newest[scenarios[i].name]
		for _, f := range figures {
			if r == nil {
				continue
			}
			if _, ok := r.Figure(Kaas, f); !ok {
				continue
			}
			fmt.Fprintf(&b, "| %s | %s |", scenarios[i].name, units[f].name)
			for _, broker := range three {
				fmt.Fprintf(&b, " %s |", r.Cell(broker, f, units[f].factor))
			}
			b.WriteString("\n")
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "\n| scenario | figure | " + strings.Join(three, " | ") + " |\n|---|---|---|---|---|\n" + b.String()
}
