package bench

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"kaas/bench/floor"
	"kaas/bench/report"
)

func run(args ...string) (stdout, stderr string, err error) {
	cmd := Command()
	var out, errs bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetArgs(args)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	err = cmd.Execute()
	return out.String(), errs.String(), err
}

func startFloor(t *testing.T) string {
	t.Helper()
	s, err := floor.Listen("127.0.0.1:0", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve() }()
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s.Address()
}

func TestProduceAndFetch(t *testing.T) {
	address := startFloor(t)
	out, _, err := run("produce", "--brokers", address, "--topic", "x", "--partitions", "2", "--clients", "3", "--requests", "90", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var page report.Report
	if err := json.Unmarshal([]byte(out), &page); err != nil || len(page.Runs) != 1 {
		t.Fatalf("%v in %s", err, out)
	}
	r := page.Runs[0].Result
	if r.Kind != "produce" || r.Requests != 90 || r.Records != 90*15 || r.Latency.P50 <= 0 || r.Seconds <= 0 || page.Runs[0].Rates.Bytes <= 0 {
		t.Errorf("want 90 requests of 15 records, got %s", out)
	}
	out, _, err = run("consume", "--brokers", address, "--topic", "x", "--clients", "2", "--max-bytes", "16384", "--alike", "--requests", "90")
	if err != nil || !strings.HasPrefix(out, "consume: 9") || !strings.Contains(out, "latency (closed loop, from sending): p50 ") {
		t.Errorf("want 90 or 91 answers read, got %q, %v", out, err)
	}
	out, _, err = run("produce", "--brokers", address, "--topic", "x", "--partitions", "0", "--rate", "1000", "--requests", "20")
	if err != nil || !strings.Contains(out, "latency (open loop, from the scheduled time): p50 ") || !strings.Contains(out, "generator's own delay: p50 ") {
		t.Errorf("want an open loop, got %q, %v", out, err)
	}
}

func TestConnections(t *testing.T) {
	out, _, err := run("connections", "--bootstrap", startFloor(t), "--clients", "20", "--hold", "1ms")
	if err != nil || !strings.HasPrefix(out, "connections: 20 opened in ") || !strings.Contains(out, "\nclosed by the broker before the end: 0\n") {
		t.Errorf("want 20 connections, got %q, %v", out, err)
	}
}

func TestWrongUse(t *testing.T) {
	address := startFloor(t)
	for _, c := range []struct {
		want string
		args []string
	}{
		{"Kafka error 3", []string{"produce", "--topic", "nonesuch", "--partitions", "0"}},
		{"Kafka error 3", []string{"consume", "--topic", "nonesuch"}},
		{"acks", []string{"produce", "--acks", "2"}},
		{"connections", []string{"produce", "--clients", "0"}},
		{"connections", []string{"consume", "--clients", "-1"}},
		{"pipeline", []string{"produce", "--in-flight", "0"}},
		{"max bytes", []string{"consume", "--max-bytes", "0"}},
		{"topic", []string{"produce", "--topic", strings.Repeat("x", 250)}},
		{"out of range", []string{"produce", "--record-size", "-1"}},
	} {
		_, _, err := run(append(c.args, "--brokers", address)...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: want an error with %q, got %v", c.args, c.want, err)
		}
	}
	for _, args := range [][]string{{"compare", "--scale", "2"}, {"rivals", "--scale", "0"}, {"compare", "--rounds", "-1"}, {"rivals", "--rounds", "0"}} {
		if _, _, err := run(args...); err == nil || !strings.HasPrefix(err.Error(), args[1]+": ") {
			t.Errorf("want %s of %s refused, got %v", args[1], args[0], err)
		}
	}
	if _, _, err := run("report", "--results", "nonesuch"); err == nil {
		t.Error("want missing results told")
	}
}

func TestProgressLine(t *testing.T) {
	var b bytes.Buffer
	p := progress(&b)
	p(time.Second, 10, 5_000_000)
	p(3*time.Second, 30, 25_000_000)
	want := "\r   1 s  10 requests  5.0 MB  10 requests/s  5.0 MB/s \x1b[K\r   3 s  30 requests  25.0 MB  10 requests/s  10.0 MB/s \x1b[K"
	if b.String() != want {
		t.Errorf("want %q, got %q", want, b.String())
	}
}
