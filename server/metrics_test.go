package server

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"kaas/codec/api"
	"kaas/engine/vfs"
)

// get asks the broker's listener of metrics.
func get(t testing.TB, b *Broker, path string) (status int, body string) {
	t.Helper()
	c := http.Client{Timeout: deadline}
	r, err := c.Get("http://" + b.Ready().Metrics + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	all, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(all)
}

// scrape reads all series: name with labels to value.
func scrape(t testing.TB, b *Broker) map[string]float64 {
	t.Helper()
	status, body := get(t, b, "/metrics")
	if status != http.StatusOK {
		t.Fatalf("/metrics: %d %s", status, body)
	}
	out := map[string]float64{}
	for s := bufio.NewScanner(strings.NewReader(body)); s.Scan(); {
		line := s.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out[line[:at]] = v
	}
	return out
}

// wantSeries compares series; those with a negative value must be absent.
func wantSeries(t testing.TB, got, want map[string]float64) {
	t.Helper()
	for name, v := range want {
		if g, ok := got[name]; v < 0 && ok || v >= 0 && (!ok || g != v) {
			t.Errorf("%s = %v (there: %v), want %v", name, g, ok, v)
		}
	}
}

// health asks for the health of a broker.
func health(t testing.TB, b *Broker, path string) (ok bool, reasons []string) {
	t.Helper()
	status, body := get(t, b, path)
	var h struct {
		OK      bool
		Reasons []string
	}
	if err := json.Unmarshal([]byte(body), &h); err != nil {
		t.Fatalf("%s: %q: %v", path, body, err)
	}
	if want := map[bool]int{true: 200, false: 503}[h.OK]; status != want {
		t.Errorf("%s: status %d with %s", path, status, body)
	}
	return h.OK, h.Reasons
}

func TestMetricsOfKnownTraffic(t *testing.T) {
	b := broker(t, "kaas.metrics.listen", "127.0.0.1:0")
	c := dial(t, b)
	c.create("t", 3)
	set := records("a", "b", "c")
	frame := c.frame(api.KeyProduce, 9, produceRequest("t", 1, -1, set))
	buf := make([]byte, 1<<20)
	answer := 4 + len(c.roundTrip(frame, buf))
	c.roundTrip(frame, buf)
	c.produce("unknown", 0, set)
	c.send(api.KeyProduce, 9, produceRequest("t", 2, 0, set)) // acks=0
	got := c.fetch("t", 1, 0)
	c.fetch("t", 1, 99)
	want := map[string]float64{
		`kaas_requests_total{api="CreateTopics"}`:                                     1,
		`kaas_requests_total{api="Produce"}`:                                          4,
		`kaas_requests_total{api="Fetch"}`:                                            2,
		`kaas_requests_total{api="Metadata"}`:                                         -1,
		`kaas_request_duration_seconds_count{api="Produce"}`:                          4,
		`kaas_request_duration_seconds_bucket{api="Produce",le="+Inf"}`:               4,
		`kaas_request_errors_total{api="Produce",error="UNKNOWN_TOPIC_OR_PARTITION"}`: 1,
		`kaas_request_errors_total{api="Fetch",error="OFFSET_OUT_OF_RANGE"}`:          1,
		`kaas_request_errors_total{api="CreateTopics",error="NONE"}`:                  -1,
		`kaas_produce_batches_total`:                                                  3,
		`kaas_produce_records_total`:                                                  9,
		`kaas_produce_bytes_total`:                                                    float64(3 * len(set)),
		`kaas_fetch_bytes_total`:                                                      float64(got.Records.Len()),
		`kaas_log_writes_total`:                                                       3,
		`kaas_log_write_bytes_total`:                                                  float64(3 * len(set)),

		`kaas_log_write_duration_seconds_count`:        3,
		`kaas_topics`:                                  1,
		`kaas_partitions`:                              3,
		`kaas_logs_offline`:                            0,
		`kaas_log_bytes`:                               float64(3 * len(set)),
		`kaas_log_files_open`:                          2,
		`kaas_memory_storage_bytes`:                    -1,
		`kaas_connections`:                             1,
		`kaas_connections_accepted_total`:              1,
		`kaas_connections_closed_total{reason="peer"}`: 0,
		`kaas_connections_rejected_total{reason="max_connections_per_ip"}`: 0,
		`kaas_frames_total`:         7,
		`kaas_parked_fetches`:       0,
		`kaas_handler_panics_total`: 0,
	}
	var s map[string]float64
	// The last answer can be here before the loop has counted it, and the sync of acks=0 is nobody's to wait for.
	eventually(t, "all requests counted, all logs synced", func() bool {
		s = scrape(t, b)
		return s[`kaas_requests_total{api="Fetch"}`] == 2 && s["kaas_frames_total"] == 7 && s["kaas_commit_syncs_total"] == 3 &&
			s["kaas_commit_round_duration_seconds_count"] == s["kaas_commit_rounds_total"]
	})
	wantSeries(t, s, want)
	// An append that a round made durable before it came to wait is not among those released.
	rounds, released := s["kaas_commit_rounds_total"], s["kaas_commit_released_total"]
	if rounds < 2 || rounds > 3 || s["kaas_commit_round_logs_sum"] != 3 || s["kaas_commit_round_logs_count"] != rounds ||
		released > 2 || s["kaas_commit_round_released_sum"] != released || s["kaas_commit_round_duration_seconds_count"] != rounds || s["kaas_commit_round_duration_seconds_sum"] <= 0 {
		t.Errorf("rounds %v, logs in them %v, released %v", rounds, s["kaas_commit_round_logs_sum"], released)
	}
	if out := s[`kaas_response_bytes_total{api="Produce"}`]; out < float64(2*answer) || out > float64(4*answer) {
		t.Errorf("%v response bytes, each is about %d", out, answer)
	}
	if in := s[`kaas_request_bytes_total{api="Produce"}`]; in < float64(2*(len(frame)-4)) || s["kaas_network_received_bytes_total"] < in {
		t.Errorf("%v request bytes of %v received", in, s["kaas_network_received_bytes_total"])
	}
	if s[`kaas_request_duration_seconds_sum{api="Produce"}`] <= 0 || s["kaas_disk_size_bytes"] <= s["kaas_disk_free_bytes"] || s["go_goroutines"] < 1 || s["process_open_fds"] < 1 {
		t.Error("durations, disk, Go's or the process's own numbers are not there")
	}
}

// Every way in which a peer misbehaves is counted under its name (regressions 2, 7).
func TestMetricsOfBadInput(t *testing.T) {
	b := broker(t, "kaas.metrics.listen", "127.0.0.1:0")
	sized := func(body ...byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	}
	for _, bad := range [][]byte{
		sized(0, 18, 0, 0),                      // short_frame
		sized(0x7f, 0, 0, 0, 0, 0, 0, 1, 0, 0),  // unknown_api
		sized(0, 3, 0x7f, 0, 0, 0, 0, 1, 0, 0),  // unknown_version
		sized(0, 3, 0, 0, 0, 0, 0, 1, 0, 99),    // malformed
		{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0}, // frame_size
	} {
		c := dial(t, b)
		c.write(bad)
		c.closed()
	}
	half := dial(t, b)
	half.write([]byte{0, 0, 1, 0, 0, 3})
	half.c.Close()
	want := map[string]float64{`kaas_connections_closed_total{reason="half_frame"}`: 1, `kaas_connections_closed_total{reason="peer"}`: 0,
		`kaas_connections_accepted_total`: 6, `kaas_connections`: 0, `kaas_protocol_errors_total{reason="half_frame"}`: -1}
	for _, reason := range []string{"short_frame", "unknown_api", "unknown_version", "malformed", "frame_size"} {
		want[`kaas_protocol_errors_total{reason="`+reason+`"}`] = 1
		want[`kaas_connections_closed_total{reason="`+reason+`"}`] = 1
	}
	var s map[string]float64
	eventually(t, "the end of every connection", func() bool {
		s = scrape(t, b)
		closed := 0.0
		for name, n := range s {
			if strings.HasPrefix(name, "kaas_connections_closed_total") {
				closed += n
			}
		}
		return closed == 6 && s["kaas_connections_accepted_total"] == 6 && s["kaas_connections"] == 0 // which are not read at one moment
	})
	wantSeries(t, s, want)
}

// gatedFS lets a test stop writes of log segments, and make their syncs fail.
type gatedFS struct {
	vfs.FS
	gate    sync.Mutex // held: writes wait
	blocked chan struct{}
	syncErr error // set before use
}

type gatedFile struct {
	vfs.File
	fs *gatedFS
}

func (f *gatedFS) Open(name string, mode vfs.Mode) (vfs.File, error) {
	file, err := f.FS.Open(name, mode)
	if err != nil || !strings.HasSuffix(name, ".log") {
		return file, err
	}
	return &gatedFile{file, f}, nil
}

func (f *gatedFile) WriteVAt(bufs [][]byte, off int64) (int, error) {
	if !f.fs.gate.TryLock() {
		f.fs.blocked <- struct{}{}
		f.fs.gate.Lock()
	}
	defer f.fs.gate.Unlock()
	return f.File.WriteVAt(bufs, off)
}

func (f *gatedFile) Sync() error {
	if f.fs.syncErr != nil {
		return f.fs.syncErr
	}
	return f.File.Sync()
}

// While a write hangs, with the log's mutex held and the loop in it, metrics and readiness answer, and liveness says which loop hangs
// (regression 80).
func TestMetricsWaitForNoWrite(t *testing.T) {
	fs := &gatedFS{FS: vfs.OS, blocked: make(chan struct{}, 1)}
	b := startWith(t, fs, t.TempDir(), "kaas.metrics.listen", "127.0.0.1:0", "kaas.loops", "1")
	defer stop(t, b)
	c := dial(t, b)
	c.create("t", 1)
	c.produce("t", 0, records("a"))
	eventually(t, "a sign of life", func() bool { ok, _ := health(t, b, "/healthz"); return ok })
	fs.gate.Lock()
	open := sync.OnceFunc(fs.gate.Unlock)
	defer open()
	c.send(api.KeyProduce, 9, produceRequest("t", 0, -1, records("b")))
	<-fs.blocked
	s := scrape(t, b)
	wantSeries(t, s, map[string]float64{"kaas_partitions": 1, "kaas_produce_batches_total": 1, "kaas_logs_offline": 0})
	if ok, reasons := health(t, b, "/readyz"); !ok {
		t.Errorf("readiness while a write hangs: %q", reasons)
	}
	for range 2 { // the second question finds the first one unanswered
		ok, reasons := health(t, b, "/healthz")
		if ok || len(reasons) != 1 || !strings.HasPrefix(reasons[0], "event loop 0 does not answer") {
			t.Errorf("liveness while a write hangs: %v, %q", ok, reasons)
		}
	}
	open()
	var p api.ProduceResponse
	c.receive(api.KeyProduce, 9, &p)
	eventually(t, "a sign of life after the write", func() bool { ok, _ := health(t, b, "/healthz"); return ok })
}

// A log whose sync failed makes the broker unready, by name; the others go on.
func TestOfflineLogIsNotReady(t *testing.T) {
	fs := &gatedFS{FS: vfs.OS, syncErr: syscall.EIO}
	b := startWith(t, fs, t.TempDir(), "kaas.metrics.listen", "127.0.0.1:0")
	defer func() {
		if err := b.Stop(); err != nil && !errors.Is(err, syscall.EIO) {
			t.Error(err)
		}
	}()
	c := dial(t, b)
	c.create("t", 2)
	if ok, reasons := health(t, b, "/readyz"); !ok {
		t.Fatalf("before the failure: %q", reasons)
	}
	if p := c.produce("t", 1, records("a")); p.ErrorCode != api.ErrKafkaStorageError {
		t.Fatalf("an append whose sync fails: %v", p.ErrorCode)
	}
	ok, reasons := health(t, b, "/readyz")
	if ok || len(reasons) != 1 || !strings.HasPrefix(reasons[0], "log t-1 is offline: ") {
		t.Errorf("ready %v, %q", ok, reasons)
	}
	eventually(t, "a sign of life: an offline log is no reason to restart", func() bool { ok, _ := health(t, b, "/healthz"); return ok })
	wantSeries(t, scrape(t, b), map[string]float64{"kaas_logs_offline": 1,
		`kaas_request_errors_total{api="Produce",error="KAFKA_STORAGE_ERROR"}`: 1})
}

func TestMetricsAreOffByDefault(t *testing.T) {
	b := broker(t)
	if b.metrics != nil || b.storage != nil || b.Ready().Metrics != "" {
		t.Error("a listener nobody asked for")
	}
	ready, err := json.Marshal(b.Ready())
	if err != nil || strings.Contains(string(ready), "metrics") {
		t.Errorf("ready line %s, %v", ready, err)
	}
	c := dial(t, b)
	c.create("t", 1)
	c.produce("t", 0, records("a"))
	for _, a := range b.api.Counters().APIs() {
		if a.Requests != 0 {
			t.Errorf("%s was counted, for nobody", a.Name)
		}
	}
}

func TestMetricsOfMemoryStorage(t *testing.T) {
	b := broker(t, "kaas.metrics.listen", "127.0.0.1:0", "kaas.storage", "memory")
	c := dial(t, b)
	c.create("t", 1)
	set := records("a")
	c.produce("t", 0, set)
	wantSeries(t, scrape(t, b), map[string]float64{"kaas_memory_storage_bytes": float64(len(set)), "kaas_disk_size_bytes": -1, "kaas_disk_free_bytes": -1})
}
