package compare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"kaas/bench/floor"
	"kaas/bench/process"
	"kaas/bench/record"
	"kaas/server"
	"kaas/server/config"
)

// The marks of the generated part.
var markBegin, markEnd = record.Marks(part)

// TestMain makes the test program a stand-in for kaas: `serve` and `bench floor` are both the floor. It ignores all flags
// but those for its address and directory, and for its stats file.
func TestMain(m *testing.M) {
	args := os.Args[1:]
	if len(args) > 0 && (args[0] == "serve" || args[0] == "bench") {
		if err := standIn(args); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// The race detector sleeps for a second at the end of each process, to no purpose here.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func standIn(args []string) error {
	if slices.Contains(args, "--help") {
		return nil
	}
	value := func(flag string) string {
		if i := slices.Index(args, flag); i >= 0 && i+1 < len(args) {
			return args[i+1]
		}
		return ""
	}
	if os.Getenv(realBroker) != "" && args[0] == "serve" {
		return serveReally(args, value)
	}
	s, err := floor.Listen(value("--listen"), value("--data-dir"))
	if err != nil {
		return err
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	go func() {
		<-term
		if s.Stop() != nil {
			os.Exit(1)
		}
	}()
	if at := value("--metrics"); at != "" {
		l, err := net.Listen("tcp", at)
		if err != nil {
			return err
		}
		var syncs atomic.Int64
		go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, "# HELP %[1]s syncs\n%[1]s %[2]d\n", syncsMetric, syncs.Add(7))
		}))
	}
	return s.Serve()
}

// realBroker in the environment makes the stand-in a broker.
const realBroker = "COMPARE_REAL_BROKER"

func serveReally(args []string, value func(string) string) error {
	opts := config.Options{Settings: []config.Setting{{Key: "log.dirs", Value: value("--data-dir")}, {Key: "kaas.durability", Value: value("--durability")}}}
	listen := value("--listen")
	if !strings.Contains(listen, "://") {
		listen = "PLAINTEXT://" + listen
	}
	opts.Settings = append(opts.Settings, config.Setting{Key: "listeners", Value: listen})
	if at := value("--metrics"); at != "" {
		opts.Settings = append(opts.Settings, config.Setting{Key: "kaas.metrics.listen", Value: at})
	}
	for i := range args {
		if args[i] == "--set" {
			key, v, _ := strings.Cut(args[i+1], "=")
			opts.Settings = append(opts.Settings, config.Setting{Key: key, Value: v})
		}
	}
	cfg, err := config.Load(opts)
	if err != nil {
		return err
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	b, err := server.Start(cfg, time.Now(), os.Stderr)
	if err != nil {
		return err
	}
	<-term
	return b.Stop()
}

func tiny(t *testing.T, names ...string) ([]record.Record, string) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The temporary directory of the system may be in memory; the package's own is where the sources are.
	dir, err := os.MkdirTemp(".", "test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	results := filepath.Join(t.TempDir(), "r.jsonl")
	var out bytes.Buffer
	err = Run(context.Background(), Options{
		Program: program, Dir: dir, Scenarios: names, Rounds: 2, Scale: 0.001, Results: results, Out: &out, Progress: io.Discard,
	})
	if err != nil && !errors.Is(err, ErrBars) {
		t.Fatalf("%v; it said:\n%s", err, out.String())
	}
	records, err := record.Read(results)
	if err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 0 {
		t.Errorf("want the data removed, found %v (%v)", left, err)
	}
	return records, out.String()
}

func TestProduceScenario(t *testing.T) {
	records, out := tiny(t, "produce-16k", "produce-1-record")
	if len(records) != 2 || records[0].Scenario != "produce-16k" || records[1].Scenario != "produce-1-record" {
		t.Fatalf("want a record of each scenario, got %+v", records)
	}
	for _, r := range records {
		if r.Commit == "" || r.Machine.Cores < 1 || r.Machine.Kernel == "" || r.Calibration.CPULoopMs <= 0 || r.Calibration.FdatasyncP50 <= 0 {
			t.Errorf("want commit, machine and calibration, got %+v", r)
		}
		for _, subject := range []string{Broker, Floor} {
			for _, name := range []string{bytesPerSecond, requestsPerSecond, cpuPerGB, cpuPerRequest, rssAnonMiB, latencyP50} {
				if got := r.Subjects[subject][name]; len(got) != 2 || got[0] <= 0 || got[1] <= 0 {
					t.Errorf("%s %s of %s: want two rounds with a figure, got %v", r.Scenario, name, subject, got)
				}
			}
		}
	}
	if !strings.Contains(out, "bar    ≥ 50 % of the floor's bytes/s: ") {
		t.Errorf("want the bars judged, got\n%s", out)
	}
}

// Scenarios that the floor cannot stand in for, with a broker.
func TestScenariosOfBroker(t *testing.T) {
	t.Setenv(realBroker, "yes")
	records, _ := tiny(t, "cold-readers", "dirty-limits", "tls")
	want := map[string][]string{
		"cold-readers": {bytesPerSecond, quietAckP99, quietTailP99, warmAckP99, warmTailP99, coldAckP99, coldTailP99, coldAckOfQuiet, coldTailOfQuiet,
			quietControlP99, warmControlP99, coldControlP99, coldAckOfControl, warmAckOfControl},
		"dirty-limits": {quietFetchP99, withinFetchP99, beyondFetchP99, beyondFetchOfQuiet, beyondFetchOfControl, beyondControlP99},
		"tls":          {plainProduce, plainProduceCPU, plainFetch, plainFetchCPU, tlsProduce, tlsProduceCPU, tlsFetch, tlsFetchCPU, tlsProduceOfPlain, tlsFetchOfPlain},
	}
	if len(records) != len(want) {
		t.Fatalf("want %d records, got %d", len(want), len(records))
	}
	for _, r := range records {
		for _, name := range want[r.Scenario] {
			if got := r.Subjects[Broker][name]; len(got) != 2 || got[0] <= 0 {
				t.Errorf("%s: want two rounds of %s, got %v", r.Scenario, name, got)
			}
		}
	}
}

func TestOtherScenarios(t *testing.T) {
	records, out := tiny(t, "fetch-64k", "commit-64", "commit-64-partitions", "start", "idle", "connections")
	want := map[string][]string{
		"fetch-64k": {bytesPerSecond, cpuPerGB}, "commit-64": {syncsPerSecond, probePerSecond, acksOfWriters, syncsOfProbe, probeP99, p99OfProbe},
		"commit-64-partitions": {syncsPerSecond, probePerSecond, acksOfWriters, syncsOfProbe, p99OfProbe, probeEach, probeVolume, probeShared},
		"start":                {startMs}, "idle": {rssAnonMiB}, "connections": nil,
	}
	if len(records) != len(want) {
		t.Fatalf("want %d records, got %d", len(want), len(records))
	}
	for _, r := range records {
		for _, name := range want[r.Scenario] {
			if got := r.Subjects[Broker][name]; len(got) != 2 || got[0] <= 0 {
				t.Errorf("%s: want two rounds of %s, got %v", r.Scenario, name, got)
			}
		}
	}
	for _, r := range records[1:3] {
		if got := r.Subjects[Floor]; len(got[requestsPerSecond]) != 2 || len(got[latencyP99]) != 2 || len(got[syncsPerSecond]) != 0 {
			t.Errorf("%s: the floor has %v", r.Scenario, got)
		}
		if got := r.Subjects[Broker]; got[syncsPerSecond][0]*got[acksOfWriters][0]*64 < got[requestsPerSecond][0]*0.99 || got[syncsPerSecond][0]*got[acksOfWriters][0]*64 > got[requestsPerSecond][0]*1.01 {
			t.Errorf("%s: syncs, acknowledgements and requests do not agree: %v", r.Scenario, got)
		}
	}
	if !strings.Contains(out, "bar    ≥ 65 % of the floor's acks/s: ") {
		t.Errorf("want the bars judged, got\n%s", out)
	}
	if r := records[len(records)-1]; len(r.Subjects[Broker][bytesPerConn]) != 2 {
		t.Errorf("want growth per connection, got %v", r.Subjects)
	}
}

func TestUnknownScenario(t *testing.T) {
	err := Run(context.Background(), Options{Scenarios: []string{"nonesuch"}})
	if err == nil || !strings.Contains(err.Error(), "produce-16k") {
		t.Errorf("want the names listed, got %v", err)
	}
}

func TestBars(t *testing.T) {
	r := &record.Record{Subjects: map[string]record.Figures{
		Broker: {bytesPerSecond: {40, 61, 60}, cpuPerGB: {0.5, 0.7}},
		Floor:  {bytesPerSecond: {100, 90, 110}},
	}}
	for _, c := range []struct {
		bar     Bar
		text    string
		verdict string
	}{
		{atLeast(0.6, bytesPerSecond, Floor, "bytes/s"), "≥ 60 % of the floor's bytes/s", "60 % ✓"},
		{atLeast(0.61, bytesPerSecond, Floor, "bytes/s"), "≥ 61 % of the floor's bytes/s", "60 % ✗"},
		{atMost(0.6, cpuPerGB, "CPU-s/GB"), "≤ 0.6 CPU-s/GB", "0.6 ✓"},
		{atMost(0.59, cpuPerGB, "CPU-s/GB"), "≤ 0.59 CPU-s/GB", "0.6 ✗"},
		{atMost(1, startMs, "ms"), "≤ 1 ms", "not measured"},
	} {
		if c.bar.String() != c.text || c.bar.verdict(r) != c.verdict {
			t.Errorf("want %q: %q, got %q: %q", c.text, c.verdict, c.bar, c.bar.verdict(r))
		}
	}
}

func TestReport(t *testing.T) {
	dir := t.TempDir()
	results, document := filepath.Join(dir, "r.jsonl"), filepath.Join(dir, "B.md")
	old := record.Record{Scenario: "produce-16k", Time: "2026-01-01T00:00:00Z", Subjects: map[string]record.Figures{Broker: {cpuPerGB: {9}}}}
	fresh := record.Record{Scenario: "produce-16k", Time: "2026-01-02T00:00:00Z", Commit: "abc", Subjects: map[string]record.Figures{
		Broker: {bytesPerSecond: {1e9, 2e9, 3e9}, cpuPerGB: {0.5}}, Floor: {bytesPerSecond: {2.5e9}},
	}}
	if err := record.Append(results, []record.Record{old}); err != nil {
		t.Fatal(err)
	}
	if err := record.Append(results, []record.Record{fresh}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(document, []byte("above\n"+markBegin+"\nstale\n"+markEnd+"\nbelow\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} {
		if changed, err := Report(results, document); err != nil || changed != want {
			t.Fatalf("want changed %v, got %v, %v", want, changed, err)
		}
	}
	b, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"above\n" + markBegin, markEnd + "\nbelow\n", "| ≥ 50 % of the floor's bytes/s | 80 % ✓ |", "| ≤ 0.8 CPU-s/GB | 0.5 ✓ |",
		"| produce-16k | kaas | 2000 (1000–3000) |", "2026-01-02T00:00:00Z, commit abc",
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("want %q in\n%s", want, b)
		}
	}
	if strings.Contains(string(b), "stale") {
		t.Error("the old tables are still there")
	}
	if err := os.WriteFile(document, []byte(markEnd+markBegin), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Report(results, document); !errors.Is(err, record.ErrNoMarks) {
		t.Errorf("want the missing marks told, got %v", err)
	}
}

func TestProcess(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p, err := process.Start(program, func(address string) []string { return []string{"serve", "--listen", address, "--data-dir", dir} })
	if err != nil {
		t.Fatal(err)
	}
	cpu, err := p.CPU()
	if err != nil || cpu <= 0 {
		t.Errorf("want processor time of another process, got %v, %v", cpu, err)
	}
	if rss, err := p.RssAnon(); err != nil || rss < 100*kib {
		t.Errorf("want its memory, got %v, %v", rss, err)
	}
	if p.StartMs <= 0 {
		t.Errorf("want a start time, got %v", p.StartMs)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	_, err = process.Start(program, func(string) []string { return []string{"serve", "--listen", "nonesuch"} })
	if err == nil || !strings.Contains(err.Error(), "nonesuch") {
		t.Errorf("want what the program said when it could not start, got %v", err)
	}
}

func TestCountSyncs(t *testing.T) {
	page := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, page) }))
	defer s.Close()
	address := s.Listener.Addr().String()
	if _, err := countSyncs(address); !errors.Is(err, errNoCounter) {
		t.Errorf("a page without the counter: %v", err)
	}
	page = "other 1\n" + syncsMetric + " 12\n"
	if n, err := countSyncs(address); n != 12 || err != nil {
		t.Errorf("got %v, %v", n, err)
	}
}
