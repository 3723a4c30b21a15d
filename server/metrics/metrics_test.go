package metrics

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"kaas/engine/vfs"
)

func TestPageIsCurrent(t *testing.T) {
	var want bytes.Buffer
	if err := WriteDocs(&want); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Error("docs/metrics.md is stale: run go generate ./server/metrics")
	}
}

// checkMetric returns what is wrong with a row: Prometheus' rules for names, and ours.
func checkMetric(m Metric) (faults []string) {
	fail := func(ok bool, text string) {
		if !ok {
			faults = append(faults, m.Name+": "+text)
		}
	}
	fail(regexp.MustCompile(`^kaas_[a-z0-9]+(_[a-z0-9]+)*$`).MatchString(m.Name), "not kaas_lower_case")
	fail(strings.HasSuffix(m.Name, "_total") == (m.Type == Counter), "counters, and they alone, end in _total")
	base := strings.TrimSuffix(m.Name, "_total")
	fail(strings.HasSuffix(base, "_"+m.Unit) == (m.Unit != ""), "the name does not end with the unit")
	fail(m.Unit != "" || !strings.HasSuffix(base, "_bytes") && !strings.HasSuffix(base, "_seconds"), "the unit is not given")
	fail(strings.HasSuffix(m.Help, "."), "the help is no sentence")
	for _, l := range m.Labels {
		fail(l != "topic" && l != "client" && l != "partition" && l != "group", "clients choose the values of label "+l)
	}
	return faults
}

func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range Table() {
		for _, f := range checkMetric(m) {
			t.Error(f)
		}
		if seen[m.Name] {
			t.Errorf("%s stands there twice", m.Name)
		}
		seen[m.Name] = true
	}
	for _, name := range []string{"kaas_commit_rounds_total", "kaas_commit_syncs_total", "kaas_commit_released_total"} {
		if !seen[name] {
			t.Errorf("%s, which benchmarks read, is gone", name)
		}
	}
	for _, bad := range []Metric{
		{Name: "kaas_Bad", Type: Gauge, Help: "."}, {Name: "kaas_n", Type: Counter, Help: "."}, {Name: "kaas_n_total", Type: Gauge, Help: "."},
		{Name: "kaas_n", Type: Gauge, Unit: "bytes", Help: "."}, {Name: "kaas_n_bytes", Type: Gauge, Help: "."}, {Name: "kaas_n", Type: Gauge, Help: "n"},
		{Name: "kaas_n", Type: Gauge, Labels: []string{"topic"}, Help: "."},
	} {
		if got := checkMetric(bad); len(got) != 1 {
			t.Errorf("%+v: faults %q, want one", bad, got)
		}
	}
}

// listen opens a listener for the length of the test and returns a function that asks it.
func listen(t *testing.T, profiles bool) (*Server, func(path string) (int, string)) {
	t.Helper()
	s, err := Listen("127.0.0.1:0", profiles, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	client := http.Client{Timeout: 30 * time.Second}
	return s, func(path string) (int, string) {
		t.Helper()
		r, err := client.Get("http://" + s.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(b)
	}
}

// While the broker starts, and when it stops, it is alive and not ready.
func TestStartingAndStopping(t *testing.T) {
	s, get := listen(t, false)
	reasons := func(want string) {
		t.Helper()
		status, body := get("/readyz")
		var h health
		if err := json.Unmarshal([]byte(body), &h); err != nil {
			t.Fatal(err)
		}
		if status != http.StatusServiceUnavailable || h.OK || len(h.Reasons) != 1 || h.Reasons[0] != want {
			t.Errorf("/readyz: %d %+v, want 503 and %q", status, h, want)
		}
	}
	reasons("the broker starts: its ports are not open yet")
	if status, body := get("/healthz"); status != http.StatusOK || body != "{\"ok\":true}\n" {
		t.Errorf("/healthz: %d %q", status, body)
	}
	if s.metrics != nil {
		t.Error("the registry was made before the first scrape")
	}
	status, body := get("/metrics")
	if status != http.StatusOK || !strings.Contains(body, "\nkaas_build_info{") || strings.Contains(body, "kaas_connections") || !strings.Contains(body, "\ngo_goroutines ") {
		t.Errorf("/metrics: %d %s", status, body)
	}
	s.Stopping()
	reasons("the broker stops")
}

func TestProfilesAreOffByDefault(t *testing.T) {
	_, off := listen(t, false)
	_, on := listen(t, true)
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap?debug=1", "/debug/pprof/cmdline", "/debug/pprof/symbol"} {
		if status, _ := off(path); status != http.StatusNotFound {
			t.Errorf("%s is served without the setting: %d", path, status)
		}
		if status, _ := on(path); status != http.StatusOK {
			t.Errorf("%s with the setting: %d", path, status)
		}
	}
}

// A file system that hangs costs a scrape a moment and one goroutine, not the scrape.
func TestSpaceOfADiskThatHangs(t *testing.T) {
	var p space
	answer := make(chan vfs.Space)
	var asked atomic.Int32
	ask := func() (vfs.Space, error) { asked.Add(1); return <-answer, nil }
	if got := p.read(ask); got != nil {
		t.Fatalf("got %+v of a disk that hangs", got)
	}
	if got := p.read(ask); got != nil || asked.Load() != 1 {
		t.Errorf("asked %d times while the first question is open", asked.Load())
	}
	answer <- vfs.Space{Total: 9}
	for p.asking.Load() {
		time.Sleep(time.Millisecond)
	}
	if got := p.read(func() (vfs.Space, error) { return vfs.Space{Total: 7, Free: 3}, nil }); got == nil || got.Total != 7 || got.Free != 3 {
		t.Errorf("after it answered: %+v", got)
	}
	for p.asking.Load() {
		time.Sleep(time.Millisecond)
	}
	if got := p.read(func() (vfs.Space, error) { return vfs.Space{}, errors.New("no") }); got != nil {
		t.Errorf("of a disk that cannot tell: %+v", got)
	}
}
