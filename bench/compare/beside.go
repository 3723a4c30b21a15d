package compare

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"kaas/bench/load"
	"kaas/bench/process"
)

// A latency beside other load has three causes: the broker, the processors that it shares with all clients, and the machine below, where a
// hypervisor may hold the processors back while it works for the disk. To tell the first from the others there is a control in the same
// moments: a floor in a process of its own, which serves one small open loop and nothing else. What its acknowledgements wait for, nothing in
// the broker can help against. The names of its figures:
const (
	quietControlP99  = "quiet_control_p99_us"
	warmControlP99   = "warm_control_p99_us"
	coldControlP99   = "cold_control_p99_us"
	warmAckOfControl = "warm_ack_p99_of_control"
	coldAckOfControl = "cold_ack_p99_of_control"
	quietStolen      = "quiet_stolen_percent"
	coldStolen       = "cold_stolen_percent"
)

// The open loop of the broker, and the control's.
const (
	liveRate  = 1000 // requests per second
	livePhase = 5 * time.Second
)

// latencies are 99th percentiles of a phase in µs, and the share of the processors' time that the hypervisor kept for itself, in percent.
type latencies struct{ ack, tail, control, stolen float64 }

// withControl starts the broker, with more flags, and the control, calls do, and stops both.
func (t *turn) withControl(do func(p *process.Process, control string) error, more ...string) error {
	dir := filepath.Join(t.dir, "control")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	c, err := process.Start(t.opt.Program, func(address string) []string {
		return []string{"bench", "floor", "--listen", address, "--data-dir", dir}
	})
	if err != nil {
		return fmt.Errorf("control: %w", err)
	}
	if err := t.with(pageCache, func(p *process.Process) error { return do(p, c.Address) }, more...); err != nil {
		c.Kill()
		return err
	}
	return c.Stop()
}

// live has the broker and the control written small records at a fixed rate, and the broker's read at the end of the log.
func (t *turn) live(broker, control string) (l latencies, err error) {
	c := load.ProduceConfig{
		Brokers: []string{control}, Topic: topicName, Partitions: 1, Connections: 1, Pipeline: 64, BatchBytes: 1, RecordBytes: kib, Acks: 1,
		Rate: liveRate, Limits: load.Limits{Duration: time.Duration(float64(livePhase) * t.opt.Scale)},
	}
	before, err := readTimes()
	if err != nil {
		return l, err
	}
	var group sync.WaitGroup
	var controlled load.Result
	var controlErr error
	group.Go(func() { controlled, controlErr = load.Produce(c) })
	b := c
	b.Brokers = []string{broker}
	written, read, err := load.EndToEnd(b)
	group.Wait()
	after, timesErr := readTimes()
	if err := errors.Join(err, controlErr, timesErr); err != nil {
		return l, err
	}
	return latencies{ack: written.Latency.P99, tail: read.Latency.P99, control: controlled.Latency.P99, stolen: before.stolenUntil(after)}, nil
}

// times are those of all processors since the machine's start, in ticks.
type times struct{ stolen, all int64 }

// stealAt is the place of the stolen time in the line; what follows it is counted elsewhere too.
const stealAt = 7

func readTimes() (times, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return times{}, err
	}
	return parseTimes(string(text))
}

func parseTimes(stat string) (t times, err error) {
	var ticks [stealAt + 1]int64
	args := make([]any, len(ticks))
	for i := range ticks {
		args[i] = &ticks[i]
	}
	if _, err := fmt.Sscanf(stat, "cpu %d %d %d %d %d %d %d %d", args...); err != nil {
		return t, fmt.Errorf("/proc/stat: %w", err)
	}
	for _, n := range ticks {
		t.all += n
	}
	t.stolen = ticks[stealAt]
	return t, nil
}

// stolenUntil is the stolen share of the time from t to u, in percent.
func (t times) stolenUntil(u times) float64 {
	return 100 * float64(u.stolen-t.stolen) / float64(max(1, u.all-t.all))
}
