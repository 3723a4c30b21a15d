package bench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kaas/bench/frames"
	"kaas/bench/load"
	"kaas/bench/report"
	"kaas/server"
	"kaas/server/config"
)

// startBroker runs a broker in this process and returns its address.
func startBroker(t *testing.T) string {
	t.Helper()
	return startWith(t, map[string]string{"listeners": "PLAINTEXT://127.0.0.1:0"})["PLAINTEXT"]
}

// startWith runs a broker that stores in memory in this process, and returns the addresses of its listeners.
func startWith(t *testing.T, settings map[string]string) map[string]string {
	t.Helper()
	settings["log.dirs"], settings["kaas.storage"] = t.TempDir(), "memory"
	opts := config.Options{}
	for key, value := range settings {
		opts.Settings = append(opts.Settings, config.Setting{Key: key, Value: value, Origin: "test"})
	}
	cfg, err := config.Load(opts)
	if err != nil {
		t.Fatal(err)
	}
	b, err := server.Start(cfg, time.Now(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
	return b.Ready().Listeners
}

// bench runs a load against a broker and returns its runs.
func bench(t *testing.T, address string, args ...string) []report.Run {
	t.Helper()
	out, _, err := run(append(args, "--bootstrap", address, "--json")...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	var r report.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v: %v in %s", args, err, out)
	}
	return r.Runs
}

func TestLoadsOnABroker(t *testing.T) {
	address := startBroker(t)
	for _, codec := range frames.Compressions {
		for _, client := range []string{"kaas", "franz-go"} {
			topic := client + "-" + codec
			runs := bench(t, address, "produce", "--client", client, "--topic", topic, "--partitions", "2", "--clients", "2", "--compression", codec, "--record-size", "100",
				"--batch-bytes", "4000", "--records", "700")
			produced := runs[0].Result.Records
			if client == "franz-go" && produced != 700 || produced < 700 || produced > 740 { // the own generator sends whole batches
				t.Errorf("%s: %d records produced", topic, produced)
			}
			// Each client reads what the other wrote.
			if r := bench(t, address, "consume", "--client", "franz-go", "--topic", topic, "--clients", "2")[0].Result; r.Records != produced {
				t.Errorf("%s: franz-go read %d of %d", topic, r.Records, produced)
			}
			if r := bench(t, address, "consume", "--topic", topic, "--clients", "2", "--records", "700")[0].Result; r.Records < 700 {
				t.Errorf("%s: the own generator read %d", topic, r.Records)
			}
		}
	}
	if r := bench(t, address, "consume", "--client", "franz-go", "--topic", "franz-go-none", "--clients", "3", "--fan-out")[0].Result; r.Records != 3*700 {
		t.Errorf("fan-out: %d records read", r.Records)
	}
	if r := bench(t, address, "consume", "--client", "franz-go", "--topic", "franz-go-none", "--group", "g", "--clients", "1")[0].Result; r.Records != 700 {
		t.Errorf("group: %d records read", r.Records)
	}
	r := bench(t, address, "produce", "--client", "franz-go", "--topic", "keyed", "--keys", "10", "--linger", "1ms", "--acks", "1", "--record-size", "10", "--records", "100",
		"--rate", "5000", "--pid", pid())[0].Result
	if r.Records != 100 || !r.OpenLoop || r.Late.Max <= 0 || r.Broker == nil || r.Broker.RssAnonPeak <= 0 {
		t.Errorf("keyed: got %+v", r)
	}
}

func pid() string { b, _ := json.Marshal(os.Getpid()); return string(b) }

func TestEndToEndLoads(t *testing.T) {
	address := startBroker(t)
	for _, c := range []struct {
		client, partitions, clients, batch string
	}{
		{"kaas", "1", "1", "1"}, {"kaas", "5", "2", "1"}, {"kaas", "2", "8", "3000"}, {"franz-go", "3", "2", "1000"},
	} {
		topic := "e2e-" + c.client + c.partitions + c.clients
		runs := bench(t, address, "e2e", "--client", c.client, "--topic", topic, "--partitions", c.partitions, "--clients", c.clients, "--batch-bytes", c.batch,
			"--record-size", "100", "--rate", "2000", "--records", "300")
		if len(runs) != 2 || runs[0].Name != "e2e" || runs[1].Name != "e2e/produce" {
			t.Fatalf("%s: got %d runs", topic, len(runs))
		}
		read, written := runs[0].Result, runs[1].Result
		if read.Records < 300 || c.client == "kaas" && read.Records != written.Records || read.Latency.P50 <= 0 || !read.OpenLoop {
			t.Errorf("%s: %d records read, %d written: %+v", topic, read.Records, written.Records, read.Latency)
		}
	}
	bench(t, address, "produce", "--topic", "old", "--bytes", "300000")
	runs := bench(t, address, "mixed", "--topic", "new", "--cold-topic", "old", "--cold-readers", "2", "--rate", "1000", "--records", "200", "--record-size", "100")
	if len(runs) != 3 || runs[2].Name != "mixed/cold-consume" || runs[2].Result.Records == 0 || runs[0].Result.Records != 200 {
		t.Errorf("mixed: got %+v", runs)
	}
}

func TestTopicsLoad(t *testing.T) {
	address := startBroker(t)
	runs := bench(t, address, "topics", "--topic", "many", "--topics", "25", "--per-request", "10", "--partitions", "3")
	if len(runs) != 3 || runs[0].Result.Requests != 3 || runs[0].Result.Records != 25 || runs[1].Result.Requests != 25 || runs[2].Result.Requests != 3 {
		t.Errorf("got %+v", runs)
	}
	if _, _, err := run("consume", "--bootstrap", address, "--topic", "many-0"); err == nil || !strings.Contains(err.Error(), "Kafka error 3") {
		t.Errorf("the topics are not deleted: %v", err)
	}
}

func TestScenarioFile(t *testing.T) {
	address, dir := startBroker(t), t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	text := "defaults:\n  bootstrap: [" + address + "]\n  record-size: 100\n  rounds: 2\nloads:\n" +
		"- {kind: produce, name: write, topic: f, records: 300, batch-bytes: 1000}\n- {kind: consume, name: read, topic: f, requests: 5}\n"
	if err := os.WriteFile(file("s.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out, _, err := run("run", file("s.yaml"), "--report", file("r.json"), "--html", file("r.html"), "--hgrm", file("r.hgrm"), "--hlog", file("r.hlog"))
	if err != nil || strings.Count(out, "== write\n") != 2 || strings.Count(out, "== read\n") != 2 {
		t.Fatalf("got %v, %s", err, out)
	}
	for name, want := range map[string]string{"r.html": "<td>write</td>", "r.hgrm": "#[Mean", "r.hlog": "Interval_Max", "r.json": `"kaas_bench_report": 1`} {
		if b, err := os.ReadFile(file(name)); err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s: want %q in it: %v %s", name, want, err, b)
		}
	}
	out, _, err = run("diff", file("r.json"), file("r.json"), "--all")
	if err != nil || !strings.Contains(out, "0 worse, 0 better") || !strings.Contains(out, "bytes_per_second") {
		t.Errorf("diff of a report with itself: %v, %s", err, out)
	}
	var r report.Report
	b, err := os.ReadFile(file("r.json"))
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Runs {
		r.Runs[i].Rates.Bytes /= 1000
	}
	if b, err = json.Marshal(&r); err == nil {
		err = os.WriteFile(file("slow.json"), b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, _, err = run("diff", file("r.json"), file("slow.json")); err != errWorse || !strings.Contains(out, "WORSE  write") {
		t.Errorf("want the slow one told, got %v, %s", err, out)
	}
	if _, _, err := run("diff", file("r.json"), file("s.yaml")); err == nil {
		t.Error("a file that is no report was taken")
	}
}

func TestScenarioFilesRefused(t *testing.T) {
	name := filepath.Join(t.TempDir(), "s.yaml")
	for text, want := range map[string]string{
		"loads: []":                                      "no loads",
		"loads:\n- {kind: nonesuch}":                     "nonesuch",
		"loads:\n- {kind: produce, colour: red}":         "colour",
		"loads:\n- {kind: produce, linger: 5ms}":         "linger: only with client franz-go",
		"loads:\n- {kind: mixed, client: franz-go}":      "only with client kaas",
		"loads:\n- {kind: produce, compression: brotli}": "brotli",
		"loads:\n- {kind: produce, rounds: 0}":           "rounds",
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, _, err := run("run", name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want an error with %q, got %v", text, want, err)
		}
	}
}

// Connections that the broker closes are seen, and one that it leaves waiting ends a run instead of stopping it for ever.
func TestIdleConnectionsThatAreLost(t *testing.T) {
	address := startWith(t, map[string]string{"listeners": "PLAINTEXT://127.0.0.1:0", "connections.max.idle.ms": "20"})["PLAINTEXT"]
	idle, err := load.OpenIdle(address, 5)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	for end := time.Now().Add(time.Minute); idle.Lost() < 5; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d of 5 are lost", idle.Lost())
		}
	}
	got := load.Result{Kind: "connections", Held: 5, Lost: 2, Requests: 5, Seconds: 2, ClientCPU: 0.25, Broker: &load.BrokerUse{CPUSeconds: 0.5, RssAnonPeak: 3 << 20}}.String()
	if want := `connections: 5 opened in 2.000 s, 2 per second; generator CPU 0.25 s
latency (from connecting until ApiVersions is answered): p50 0, p90 0, p99 0, p99.9 0, p99.99 0, max 0 µs
closed by the broker before the end: 2
broker: 0.50 s CPU, RssAnon up to 3.0 MiB
`; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestConnectionsThatAreLeftWaiting(t *testing.T) {
	address := startWith(t, map[string]string{"listeners": "PLAINTEXT://127.0.0.1:0", "max.connections": "3"})["PLAINTEXT"]
	idle, err := load.OpenIdleTimed(address, 4, load.NewRecorder(), 50*time.Millisecond)
	if err == nil {
		idle.Close()
	}
	if want := "connection 4: connected, and no answer within 50ms: the broker may have as many connections as it allows (max.connections)"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
