package report

import (
	"fmt"
	"html"
	"io"
	"strings"

	"github.com/HdrHistogram/hdrhistogram-go"

	"kaas/bench/chart"
)

const page = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>kaas bench</title><style>
body { font-family: sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #24292f; background: #fff }
table { border-collapse: collapse } td, th { border: 1px solid #d0d7de; padding: 4px 8px; text-align: right }
td:first-child, th:first-child { text-align: left } svg { max-width: 100%%; height: auto; border: 1px solid #d0d7de; margin: 6px 0 }
details { margin: 6px 0 } code { white-space: pre-wrap }
</style></head><body>
<h1>kaas bench</h1>
<p>%s, commit %s, %d × %s, Linux %s</p>
`

// WriteHTML writes the report as a page that needs nothing else: a table of all runs, and for each what happened over time and how latency is distributed.
func (r *Report) WriteHTML(w io.Writer) error {
	var b strings.Builder
	e := html.EscapeString
	fmt.Fprintf(&b, page, e(r.Time), e(r.Commit), r.Machine.Cores, e(r.Machine.CPU), e(r.Machine.Kernel))
	b.WriteString("<table><tr><th>run</th><th>client</th><th>s</th><th>records/s</th><th>requests/s</th><th>MB/s</th><th>p50 ms</th><th>p99 ms</th><th>p99.9 ms</th><th>max ms</th><th>broker CPU-s/GB</th></tr>\n")
	for i := range r.Runs {
		run := &r.Runs[i]
		res, l := &run.Result, &run.Result.Latency
		cpu := "–"
		if res.Broker != nil && res.Bytes > 0 {
			cpu = fmt.Sprintf("%.3f", res.Broker.CPUSeconds/(float64(res.Bytes)/1e9))
		}
		fmt.Fprintf(&b, "<tr><td>%s</td><td>%s</td><td>%.1f</td><td>%.0f</td><td>%.0f</td><td>%.1f</td><td>%.3f</td><td>%.3f</td><td>%.3f</td><td>%.3f</td><td>%s</td></tr>\n",
			e(run.Name), e(run.Spec.Client), res.Seconds, run.Rates.Records, run.Rates.Requests, run.Rates.Bytes/1e6, l.P50/1e3, l.P99/1e3, l.P999/1e3, l.Max/1e3, cpu)
	}
	b.WriteString("</table>\n<p>Latency of a load with a rate counts from the time at which a record was due, else from sending.</p>\n")
	if len(r.Runs) > 1 {
		b.WriteString(r.overview())
	}
	for i := range r.Runs {
		if err := r.Runs[i].writeHTML(&b); err != nil {
			return fmt.Errorf("run %s: %w", r.Runs[i].Name, err)
		}
	}
	b.WriteString("</body></html>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// overview draws the rates of all runs that moved bytes.
func (r *Report) overview() string {
	var groups []chart.Group
	for i := range r.Runs {
		if run := &r.Runs[i]; run.Result.Bytes > 0 {
			groups = append(groups, chart.Group{Name: run.Name, Bars: []chart.Bar{{Series: run.Spec.Client, Value: run.Rates.Bytes}}})
		}
	}
	if len(groups) == 0 {
		return ""
	}
	return chart.Bars("Rate", "bytes per second", groups)
}

func (run *Run) writeHTML(b *strings.Builder) error {
	fmt.Fprintf(b, "<h2>%s</h2>\n<details><summary>load</summary><code>%s</code></details>\n", html.EscapeString(run.Name), html.EscapeString(fmt.Sprintf("%+v", run.Spec)))
	if s := run.Result.Samples; len(s) > 1 {
		rate, p50, p99 := chart.Line{Name: "requests/s"}, chart.Line{Name: "p50"}, chart.Line{Name: "p99"}
		for _, x := range s {
			rate.Points = append(rate.Points, chart.Point{X: x.At, Y: float64(x.Requests) / x.Seconds})
			p50.Points = append(p50.Points, chart.Point{X: x.At, Y: x.P50 / 1e3})
			p99.Points = append(p99.Points, chart.Point{X: x.At, Y: x.P99 / 1e3})
		}
		b.WriteString(chart.Lines("Requests per second over time", "seconds", "", []chart.Line{rate}, false))
		b.WriteString(chart.Lines("Latency over time", "seconds", "ms", []chart.Line{p50, p99}, false))
	}
	if run.Result.HDR == "" {
		return nil
	}
	h, err := hdrhistogram.Decode([]byte(run.Result.HDR))
	if err != nil || h.TotalCount() == 0 {
		return err
	}
	l := chart.Line{Name: run.Name}
	for _, q := range h.CumulativeDistributionWithTicks(5) {
		if q.Quantile < 100 {
			l.Points = append(l.Points, chart.Point{X: q.Quantile / 100, Y: float64(q.ValueAt) / 1e6})
		}
	}
	b.WriteString(chart.Lines("Latency by quantile", "quantile", "ms", []chart.Line{l}, true))
	return nil
}
