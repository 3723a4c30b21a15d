package record

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCompare(t *testing.T) {
	old := map[string]*Record{"s": {Scenario: "s", Subjects: map[string]Figures{"kaas": {
		"bytes_per_second": {100, 102, 98}, "p99_us": {10, 11, 9}, "cpu_s_per_gb": {1}, "only_old": {1}, "client_cpu_s": {1}, "requests_per_second": {100, 50, 150},
	}}}}
	now := map[string]*Record{"s": {Scenario: "s", Subjects: map[string]Figures{"kaas": {
		"bytes_per_second": {80, 82, 87}, "p99_us": {7, 7.9, 7}, "cpu_s_per_gb": {1.09}, "only_new": {1}, "client_cpu_s": {9}, "requests_per_second": {60, 60, 60},
	}}}, "new": {Scenario: "new"}}
	got := map[string]float64{}
	changes := Compare(old, now)
	for _, c := range changes {
		got[c.Figure] = c.Beyond
	}
	want := map[string]float64{
		"bytes_per_second": 0.11, // 98 to 87: worse
		"p99_us":           -0.11, "cpu_s_per_gb": 0.09, "requests_per_second": 0,
	}
	for figure, w := range want {
		if g, ok := got[figure]; !ok || g < w-1e-9 || g > w+1e-9 {
			t.Errorf("%s: got %v, want %v", figure, g, w)
		}
	}
	if len(changes) != len(want) {
		t.Errorf("got %d changes: %v", len(changes), got)
	}
	var b strings.Builder
	worse, err := PrintChanges(&b, changes, false)
	if err != nil || worse != 1 || strings.Count(b.String(), "\n") != 3 || !strings.HasPrefix(b.String(), "WORSE  s ") ||
		!strings.Contains(b.String(), "4 figures compared: 1 worse, 1 better") {
		t.Errorf("got %d, %v, %s", worse, err, b.String())
	}
	b.Reset()
	if _, err := PrintChanges(&b, changes, true); err != nil || strings.Count(b.String(), "\n") != 5 {
		t.Errorf("got %v, %s", err, b.String())
	}
}

func TestSplice(t *testing.T) {
	name := filepath.Join(t.TempDir(), "d.md")
	begin, end := Marks("p")
	if err := os.WriteFile(name, []byte("a\n"+begin+"\nold\n"+end+"\nz\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	changed, err := Splice(name, "p", "new")
	if !changed || err != nil {
		t.Fatalf("got %v, %v", changed, err)
	}
	b, err := os.ReadFile(name)
	if want := "a\n" + begin + "\n\nnew\n" + end + "\nz\n"; err != nil || string(b) != want {
		t.Errorf("got %q, want %q", b, want)
	}
	if changed, err := Splice(name, "p", "new"); changed || err != nil {
		t.Errorf("the same again: %v, %v", changed, err)
	}
	if _, err := Splice(name, "q", "new"); err == nil {
		t.Error("a part that is not there was taken")
	}
}

// TestProbes: every way is measured, its rounds leave no file behind, and the best is the one with the most rounds a second.
func TestProbes(t *testing.T) {
	dir := t.TempDir()
	one, err := Probe(dir, 100, 0)
	if err != nil {
		t.Fatal(err)
	}
	w, err := ProbeWays(dir, 20, 100, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range []Probed{one, w.Each, w.Volume, w.Shared, w.Best()} {
		if p.PerSecond <= 0 || p.P50 <= 0 || p.P99 < p.P50 {
			t.Errorf("probe %d: %+v", i, p)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	w = Ways{Each: Probed{PerSecond: 3}, Volume: Probed{PerSecond: 4}, Shared: Probed{PerSecond: 2}}
	if got := w.Best().PerSecond; got != 4 {
		t.Errorf("best: %v", got)
	}
	if _, err := Probe(dir+"/none", 100, 0); !os.IsNotExist(err) {
		t.Errorf("without a directory: %v", err)
	}
}
