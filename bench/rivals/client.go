package rivals

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"kaas/bench/load"
)

// outcome is what a client says about its run.
type outcome struct {
	seconds            float64
	requests           int64 // of the own generator: requests; of others: records
	bytes              int64
	p50, p99, p999     float64 // µs; 0: not told
	clientCPU          float64
	more               map[string]float64
	acknowledgementP99 float64 // of end-to-end loads
}

// clientMax bounds every run of a client.
const clientMax = 5 * time.Minute

// output runs a client and returns what it printed. What it used of the processor is its own and its children's.
func output(ctx context.Context, cmd *exec.Cmd) (out []byte, cpu float64, err error) {
	var errs bytes.Buffer
	cmd.Stderr = &errs
	cmd.WaitDelay = time.Second
	ended := context.AfterFunc(ctx, func() {
		if cmd.Process != nil {
			_ = cmd.Process.Kill() // it may have ended
		}
	})
	defer ended()
	out, err = cmd.Output()
	if err != nil {
		said := bytes.TrimSpace(append(errs.Bytes(), out...))
		return nil, 0, fmt.Errorf("%s: %w: %s", cmd.Args[0], errors.Join(err, ctx.Err()), said[:min(len(said), 600)])
	}
	return out, (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(), nil
}

// bench runs a load of this program in a process of its own.
func (t *turn) bench(args ...string) (outcome, error) {
	ctx, cancel := context.WithTimeout(t.ctx, clientMax)
	defer cancel()
	out, _, err := output(ctx, exec.Command(t.tools.self, append(append([]string{"bench"}, args...), "--bootstrap", t.broker.Address, "--topic", topic, "--json", "--quiet")...))
	if err != nil {
		return outcome{}, err
	}
	return parseBench(out)
}

func parseBench(out []byte) (outcome, error) {
	var r struct {
		Runs []struct{ Result load.Result }
	}
	if err := json.Unmarshal(out, &r); err != nil || len(r.Runs) == 0 {
		return outcome{}, fmt.Errorf("output of bench: %w", errors.Join(err, errNoFigures))
	}
	res := &r.Runs[0].Result
	o := outcome{
		seconds: res.Seconds, requests: res.Requests, bytes: res.Bytes, p50: res.Latency.P50, p99: res.Latency.P99, p999: res.Latency.P999,
		clientCPU: res.ClientCPU, more: map[string]float64{},
	}
	if res.Client != "" { // what a library calls a request is its own affair
		o.requests = res.Records
	}
	for _, run := range r.Runs[1:] {
		switch run.Result.Kind {
		case "produce":
			o.acknowledgementP99 = run.Result.Latency.P99
		case "cold-consume":
			o.more[coldPerSecond] = run.Result.BytesPerSecond()
		}
	}
	return o, nil
}

var errNoFigures = errors.New("no figures in a client's output")

var toolJava = []string{"-Xmx512M"}

// javaProduce runs Apache's ProducerPerformance.
func (t *turn) javaProduce(records int64, size int, properties ...string) (outcome, error) {
	ctx, cancel := context.WithTimeout(t.ctx, clientMax)
	defer cancel()
	args := []string{
		"--topic", topic, "--num-records", strconv.FormatInt(records, 10), "--record-size", strconv.Itoa(size), "--throughput", "-1",
		"--producer-props", "bootstrap.servers=" + t.broker.Address,
	}
	out, cpu, err := output(ctx, t.tools.java(ctx, toolJava, "org.apache.kafka.tools.ProducerPerformance", append(args, properties...)...))
	if err != nil {
		return outcome{}, err
	}
	o, err := parseProducerPerformance(out, size)
	o.clientCPU = cpu
	return o, err
}

var producerLine = regexp.MustCompile(`(\d+) records sent, ([\d.]+) records/sec .* ([\d.]+) ms max latency, (\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th, (\d+) ms 99\.9th`)

// parseProducerPerformance reads the last line, which is about the whole run.
func parseProducerPerformance(out []byte, size int) (outcome, error) {
	all := producerLine.FindAllSubmatch(out, -1)
	if len(all) == 0 {
		return outcome{}, fmt.Errorf("ProducerPerformance: %w: %s", errNoFigures, out)
	}
	v := make([]float64, len(all[0]))
	for i, text := range all[len(all)-1][1:] {
		var err error
		if v[i], err = strconv.ParseFloat(string(text), 64); err != nil {
			return outcome{}, err
		}
	}
	if v[1] == 0 {
		return outcome{}, fmt.Errorf("ProducerPerformance: %w: %s", errNoFigures, out)
	}
	return outcome{seconds: v[0] / v[1], requests: int64(v[0]), bytes: int64(v[0]) * int64(size), p50: v[3] * 1e3, p99: v[5] * 1e3, p999: v[6] * 1e3}, nil
}

// javaConsume runs Apache's ConsumerPerformance with a group of its own.
func (t *turn) javaConsume(records int64) (outcome, error) {
	ctx, cancel := context.WithTimeout(t.ctx, clientMax)
	defer cancel()
	out, cpu, err := output(ctx, t.tools.java(ctx, toolJava, "org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server", t.broker.Address, "--topic", topic,
		"--messages", strconv.FormatInt(records, 10), "--hide-header", "--timeout", "60000"))
	if err != nil {
		return outcome{}, err
	}
	o, err := parseConsumerPerformance(out)
	o.clientCPU = cpu
	return o, err
}

// parseConsumerPerformance reads the line of figures. Its time is that of fetching: joining the group is left out.
func parseConsumerPerformance(out []byte) (outcome, error) {
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSpace(line), ", ")
		if len(f) != 10 {
			continue
		}
		mibs, err1 := strconv.ParseFloat(f[2], 64)
		records, err2 := strconv.ParseInt(f[4], 10, 64)
		fetchMs, err3 := strconv.ParseFloat(f[7], 64)
		if errors.Join(err1, err2, err3) == nil && fetchMs > 0 {
			return outcome{seconds: fetchMs / 1e3, requests: records, bytes: int64(mibs * mib)}, nil
		}
	}
	return outcome{}, fmt.Errorf("ConsumerPerformance: %w: %s", errNoFigures, out)
}

// rdkafka runs drivers/librdkafka.
func (t *turn) rdkafka(what string, records int64, size, partitions int, settings ...string) (outcome, error) {
	ctx, cancel := context.WithTimeout(t.ctx, clientMax)
	defer cancel()
	args := []string{
		"-bootstrap", t.broker.Address, "-topic", topic, "-records", strconv.FormatInt(records, 10), "-record-size", strconv.Itoa(size),
		"-partitions", strconv.Itoa(partitions),
	}
	for _, s := range settings {
		args = append(args, "-set", s)
	}
	out, cpu, err := output(ctx, exec.Command(t.tools.librdkafka, append(args, what)...))
	if err != nil {
		return outcome{}, err
	}
	var r struct {
		Seconds        float64
		Records, Bytes int64
	}
	if err := json.Unmarshal(out, &r); err != nil || r.Records == 0 || r.Seconds == 0 {
		return outcome{}, fmt.Errorf("librdkafka: %w: %s", errors.Join(err, errNoFigures), out)
	}
	return outcome{seconds: r.Seconds, requests: r.Records, bytes: r.Bytes, clientCPU: cpu}, nil
}
