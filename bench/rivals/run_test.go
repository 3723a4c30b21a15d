package rivals_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kaas/bench"
	"kaas/bench/floor"
	"kaas/bench/record"
	"kaas/bench/rivals"
)

// TestMain makes the test program a stand-in for kaas: `bench` is the real command, `serve` is the floor.
func TestMain(m *testing.M) {
	args := os.Args[1:]
	var err error
	switch {
	case len(args) > 0 && args[0] == "bench":
		cmd := bench.Command()
		cmd.SetArgs(args[1:])
		err = cmd.Execute()
	case len(args) > 0 && args[0] == "serve":
		err = serve(args)
	default:
		// The race detector sleeps for a second at the end of each process, to no purpose here.
		if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
			panic(err)
		}
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(args []string) error {
	value := func(flag string) string { return args[slices.Index(args, flag)+1] }
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
	return s.Serve()
}

func TestRun(t *testing.T) {
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
	opt := rivals.Options{
		Program: program, Root: "../..", Dir: dir, Scenarios: []string{"own-produce", "sync-16", "start-idle"}, Brokers: []string{rivals.Kaas, rivals.Floor}, Rounds: 2, Scale: 0.001,
		Results: results, Out: &out, Progress: io.Discard,
	}
	if err := rivals.Run(context.Background(), opt); err != nil && !errors.Is(err, rivals.ErrBars) {
		t.Fatalf("%v: %s", err, out.String())
	}
	records, err := record.Read(results)
	if err != nil || len(records) != 3 {
		t.Fatalf("got %d records, %v", len(records), err)
	}
	newest := record.Newest(records)
	for scenario, brokers := range map[string][]string{"own-produce": {"kaas", "floor"}, "sync-16": {"kaas"}} {
		for _, b := range brokers {
			for _, figure := range []string{"bytes_per_second", "requests_per_second", "cpu_us_per_request", "p50_us", "p99.9_us", "rss_anon_peak_mib"} {
				if got := newest[scenario].Subjects[b][figure]; len(got) != 2 || got[0] <= 0 {
					t.Errorf("%s, %s, %s: got %v", scenario, b, figure, got)
				}
			}
		}
		if got := len(newest[scenario].Subjects); got != len(brokers) {
			t.Errorf("%s: got %d brokers", scenario, got)
		}
	}
	if got := newest["start-idle"].Subjects["kaas"]["start_ms"]; len(got) != 2 || got[0] <= 0 {
		t.Errorf("start: got %v", got)
	}
	if !strings.Contains(out.String(), "bar  ≥ 0.65× floor's MB/s: ") {
		t.Errorf("no bar in %s", out.String())
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("want the data removed, found %v (%v)", left, err)
	}
	opt.Program, opt.Scenarios = "/nonesuch", []string{"sync-16"}
	if err := rivals.Run(context.Background(), opt); err == nil || !strings.Contains(err.Error(), "turns failed") {
		t.Errorf("want a program that is missing told, got %v", err)
	}
}
