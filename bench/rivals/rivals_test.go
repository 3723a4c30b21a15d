package rivals

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kaas/bench/record"
)

func TestParseClients(t *testing.T) {
	out := []byte("10 records sent, 2.0 records/sec (0.00 MB/sec), 2065.0 ms avg latency, 2399.0 ms max latency.\n" +
		"12000 records sent, 1500.500000 records/sec (1.46 MB/sec), 12.25 ms avg latency, 300.00 ms max latency, 1 ms 50th, 5 ms 95th, 9 ms 99th, 20 ms 99.9th.\n")
	o, err := parseProducerPerformance(out, 1024)
	if err != nil || math.Abs(o.seconds-7.9973) > 1e-3 || o.requests != 12000 || o.bytes != 12000*1024 || o.p50 != 1000 || o.p99 != 9000 || o.p999 != 20000 {
		t.Errorf("got %+v, %v", o, err)
	}
	o, err = parseConsumerPerformance([]byte("2026-11-30 09:05:10:123, 2026-11-30 09:05:14:456, 29.2969, 6.7614, 30000, 6923.6095, 3120, 1213, 24.1524, 24732.0692\n"))
	if err != nil || o.seconds != 1.213 || o.requests != 30000 || o.bytes != 30_720_026 {
		t.Errorf("got %+v, %v", o, err)
	}
	o, err = parseBench([]byte(`{"runs":[{"result":{"kind":"e2e","seconds":2,"requests":5,"records":50,"bytes":7,"client":"franz-go","latency_us":{"P50":3}}},
		{"result":{"kind":"produce","latency_us":{"P99":8}}},{"result":{"kind":"cold-consume","seconds":2,"bytes":10}}]}`))
	if err != nil || o.seconds != 2 || o.requests != 50 || o.p50 != 3 || o.acknowledgementP99 != 8 || o.more[coldPerSecond] != 5 {
		t.Errorf("got %+v, %v", o, err)
	}
	if n, ok := parsePerf([]byte("12345,,instructions:u,100,100.00,,\n")); n != 12345 || !ok {
		t.Errorf("got %v, %v", n, ok)
	}
	if _, ok := parsePerf([]byte("<not supported>,,instructions:u,0,100.00,,\n")); ok {
		t.Error("a counter that is not there was taken")
	}
	for _, bad := range []string{"", "nothing"} {
		if _, err := parseProducerPerformance([]byte(bad), 1); err == nil {
			t.Errorf("ProducerPerformance %q was taken", bad)
		}
		if _, err := parseConsumerPerformance([]byte(bad)); err == nil {
			t.Errorf("ConsumerPerformance %q was taken", bad)
		}
		if _, err := parseBench([]byte(bad)); err == nil {
			t.Errorf("bench %q was taken", bad)
		}
	}
}

func TestBars(t *testing.T) {
	r := &record.Record{Subjects: map[string]record.Figures{
		Kaas: {bytesPerSecond: {130e6}, cpuPerGB: {0.5}}, Kfake: {bytesPerSecond: {100e6}}, Apache: {bytesPerSecond: {50e6}, cpuPerGB: {1}}, Floor: {bytesPerSecond: {900e6}},
	}}
	for _, c := range []struct {
		bar     bar
		text    string
		verdict string
	}{
		{atLeast(1.3, bytesPerSecond, Kfake), "≥ 1.3× kfake's MB/s", "1.30× ✓"},
		{atLeast(1.5, bytesPerSecond, best), "≥ 1.5× the best's MB/s", "1.30× ✗"},
		{atMost(0.4, cpuPerGB), "≤ 0.4 CPU-s/GB", "0.500 ✗"},
		{atMostOf(0.8, cpuPerGB, Apache), "≤ 0.8× apache's CPU-s/GB", "0.500× ✓"},
		{atMost(0.12e3, p50), "≤ 0.12 ms p50", "not measured"},
		{atLeast(1, cpuPerGB, Kfake), "≥ 1× kfake's CPU-s/GB", "not measured"},
	} {
		if c.bar.String() != c.text || c.bar.verdict(r) != c.verdict {
			t.Errorf("got %q, %q, want %q, %q", c.bar, c.bar.verdict(r), c.text, c.verdict)
		}
	}
	slow := &record.Record{Subjects: map[string]record.Figures{Kaas: {cpuPerGB: {0.5}}, Kfake: {cpuPerGB: {3, 4, 5}}}}
	for _, c := range []struct {
		bar         bar
		text, plain string
	}{
		{atMost(0.3, cpuPerGB).where(Kfake, 2), "≤ 0.6 CPU-s/GB ✓", "0.500 ✗"},
		{atMost(0.3, cpuPerGB).where(Kfake, 8), "≤ 0.15 CPU-s/GB ✗", "0.500 ✗"},
		{atMost(0.3, cpuPerGB), "–", "0.500 ✗"},
		{atMost(0.3, cpuPerGB).where(Apache, 2), "–", "0.500 ✗"},
		{atMost(0.3, p50).where(Kfake, 2), "–", "not measured"},
	} {
		if c.bar.scaled(slow) != c.text || c.bar.verdict(slow) != c.plain {
			t.Errorf("got %q and %q, want %q and %q", c.bar.scaled(slow), c.bar.verdict(slow), c.text, c.plain)
		}
	}
	for _, s := range scenarios {
		for _, b := range s.bars {
			if b.rival != "" && (b.there <= 0 || b.over != "" || !slices.Contains(s.brokers, b.rival)) {
				t.Errorf("%s: %s cannot be scaled by what %s took, %v", s.name, b, b.rival, b.there)
			}
			if units[b.figure].factor == 0 {
				t.Errorf("%s: no unit for %s", s.name, b.figure)
			}
		}
	}
}

func TestChoose(t *testing.T) {
	chosen, err := choose([]string{"own-produce", "small-16"}, []string{Kaas, Floor})
	if err != nil || len(chosen) != 2 || chosen[0].name != "small-16" || strings.Join(chosen[0].brokers, " ") != "kaas" || strings.Join(chosen[1].brokers, " ") != "kaas floor" {
		t.Errorf("got %+v, %v", chosen, err)
	}
	if _, err := choose([]string{"nonesuch"}, nil); err == nil || !strings.Contains(err.Error(), "java-default") {
		t.Errorf("an unknown scenario: %v", err)
	}
	if _, err := choose(nil, []string{"nonesuch"}); err == nil {
		t.Error("an unknown broker was taken")
	}
}

func TestReport(t *testing.T) {
	dir := t.TempDir()
	results, document := filepath.Join(dir, "r.jsonl"), filepath.Join(dir, "d.md")
	begin, end := record.Marks(part)
	if err := os.WriteFile(document, []byte(begin+"\n"+end+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if changed, err := Report(results, document, "c"); changed || err != nil {
		t.Errorf("without results: %v, %v", changed, err)
	}
	if err := record.Append(results, []record.Record{
		{Time: "T1", Scenario: "small-16", Subjects: map[string]record.Figures{Kaas: {bytesPerSecond: {2e6, 1e6, 3e6}, requestsPerSecond: {2e4}, cpuPerRequest: {7}}, Kfake: {bytesPerSecond: {1e6}, requestsPerSecond: {1e4}}}},
		{Time: "T2", Scenario: "start-idle", Subjects: map[string]record.Figures{Kaas: {startMs: {12.5}}, Apache: {startMs: {1600}}}},
	}); err != nil {
		t.Fatal(err)
	}
	if changed, err := Report(results, document, "c"); !changed || err != nil {
		t.Fatalf("got %v, %v", changed, err)
	}
	b, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| ≥ 1.3× kfake's per s | 2.00× ✓ |", "| ≤ 8 CPU-µs per request | 7.00 ✓ |", "| small-16 | kaas | 2.00 (1.00–3.00) |", "| start-idle | ms to start | 12.5 (12.5–12.5) | 1600 (1600–1600) | – |",
		"](c/small-rate.svg)", "- T1, commit", "- T2, commit",
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %q in %s", want, b)
		}
	}
	if svg, err := os.ReadFile(filepath.Join(dir, "c", "small-rate.svg")); err != nil || !strings.Contains(string(svg), ">small-16<") {
		t.Errorf("no chart: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "c", "memory.svg")); err == nil {
		t.Error("an empty chart was drawn")
	}
}
