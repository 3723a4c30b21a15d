package compare

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"kaas/bench/load"
	"kaas/bench/process"
)

// A fetch-only client beside a producer that is faster than the disk. The limits of dirty pages are those of the machine, as they are found: the
// producer writes until the kernel holds writers back, floodMax at most, and then floodPhase longer. That takes gigabytes, so it runs only when
// it is named.
const (
	warmTopic   = "warm"
	warmBytes   = 64 * mib
	fetchRate   = 500 // requests per second
	floodChunk  = 512 * mib
	floodMax    = 16 << 30
	floodWithin = 1024 * mib
	floodPhase  = 5 * time.Second
)

// Names of its figures.
const (
	quietFetchP99        = "quiet_fetch_p99_us"
	withinFetchP99       = "within_limits_fetch_p99_us"
	beyondFetchP99       = "beyond_limits_fetch_p99_us"
	beyondFetchOfQuiet   = "beyond_limits_fetch_p99_of_quiet"
	beyondControlP99     = "beyond_limits_control_p99_us"
	beyondFetchOfControl = "beyond_limits_fetch_p99_of_control"
	beyondStolen         = "beyond_limits_stolen_percent"
	writesOver8ms        = "writes_over_8_ms"
	writesOver67ms       = "writes_over_67_ms"
	writesOver268ms      = "writes_over_268_ms"
	stalledAppends       = "stalled_appends"
)

// dirtyLimits measures the latency of fetches in three phases: alone, beside a producer within the limits (what is then lost is lost to its use
// of the processor), and beside one beyond them.
func (t *turn) dirtyLimits() error {
	metrics, err := process.FreePort()
	if err != nil {
		return err
	}
	return t.withControl(func(p *process.Process, control string) error {
		_, err := load.Produce(load.ProduceConfig{
			Brokers: []string{p.Address}, Topic: warmTopic, Partitions: 1, Connections: 1, Pipeline: 4, BatchBytes: 64 * kib,
			RecordBytes: kib, Acks: 1, Limits: load.Limits{Bytes: t.scaled(warmBytes)},
		})
		if err != nil {
			return err
		}
		f, pause := t.figures, func() error {
			time.Sleep(time.Duration(float64(floodPhase) * t.opt.Scale))
			return nil
		}
		quiet, err := t.fetchBeside(p.Address, control, pause)
		if err != nil {
			return err
		}
		written := t.scaled(floodWithin)
		within, err := t.fetchBeside(p.Address, control, func() error { return t.flood(p.Address, load.Limits{Bytes: written}) })
		if err != nil {
			return err
		}
		for !pressed() && t.opt.Scale == 1 {
			if written += floodChunk; written > floodMax {
				return fmt.Errorf("the disk takes what the producer writes: %d bytes, and the kernel never held it back", written)
			}
			if err := t.flood(p.Address, load.Limits{Bytes: floodChunk}); err != nil {
				return err
			}
		}
		beyond, err := t.fetchBeside(p.Address, control, func() error {
			return t.flood(p.Address, load.Limits{Duration: time.Duration(float64(floodPhase) * t.opt.Scale)})
		})
		if err != nil {
			return err
		}
		f[quietFetchP99], f[withinFetchP99], f[beyondFetchP99] = quiet.ack, within.ack, beyond.ack
		f[beyondControlP99], f[beyondStolen] = beyond.control, beyond.stolen
		f[beyondFetchOfQuiet], f[beyondFetchOfControl] = beyond.ack/quiet.ack, beyond.ack/beyond.control
		return t.writeStalls(metrics)
	}, "--metrics", metrics)
}

// flood has a producer write as fast as it can.
func (t *turn) flood(broker string, limits load.Limits) error {
	_, err := load.Produce(load.ProduceConfig{
		Brokers: []string{broker}, Topic: topicName, Partitions: 1, Connections: 4, Pipeline: 2, BatchBytes: mib, RecordBytes: kib, Acks: 1, Limits: limits,
	})
	return err
}

// fetchBeside has fetches due at a fixed rate, and as a control acknowledgements of a floor, as long as other goes on; latencies.ack are the
// fetches.
func (t *turn) fetchBeside(broker, control string, other func() error) (l latencies, err error) {
	before, err := readTimes()
	if err != nil {
		return l, err
	}
	var stop atomic.Bool
	var group sync.WaitGroup
	var fetched, controlled load.Result
	var fetchErr, controlErr error
	group.Go(func() {
		fetched, fetchErr = load.Fetch(load.FetchConfig{
			Brokers: []string{broker}, Topic: warmTopic, Connections: 1, MaxBytes: 64 * kib, Alike: true, Rate: fetchRate,
			Limits: load.Limits{Duration: longestRead, Stop: &stop},
		})
	})
	group.Go(func() {
		controlled, controlErr = load.Produce(load.ProduceConfig{
			Brokers: []string{control}, Topic: topicName, Partitions: 1, Connections: 1, Pipeline: 64, BatchBytes: 1, RecordBytes: kib, Acks: 1,
			Rate: fetchRate, Limits: load.Limits{Duration: longestRead, Stop: &stop},
		})
	})
	err = other()
	stop.Store(true)
	group.Wait()
	after, timesErr := readTimes()
	if err := errors.Join(err, fetchErr, controlErr, timesErr); err != nil {
		return l, err
	}
	return latencies{ack: fetched.Latency.P99, control: controlled.Latency.P99, stolen: before.stolenUntil(after)}, nil
}

// pressed tells whether the kernel holds writers back: half way between its two limits it begins to.
func pressed() bool {
	text, err := os.ReadFile("/proc/vmstat")
	return err == nil && pressedBy(string(text))
}

func pressedBy(vmstat string) bool {
	var dirty, limits int64
	for line := range strings.Lines(vmstat) {
		name, number, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		n, _ := strconv.ParseInt(number, 10, 64)
		switch name {
		case "nr_dirty", "nr_writeback":
			dirty += n
		case "nr_dirty_threshold", "nr_dirty_background_threshold":
			limits += n
		}
	}
	return limits > 0 && dirty > limits/2
}

// Names of the broker's metrics: how long its writes of records took, and how many appends stalled.
const (
	writesMetric = "kaas_log_write_duration_seconds"
	stallsMetric = "kaas_append_stalls_total"
)

// writeStalls notes how many writes took how long since the broker's start.
func (t *turn) writeStalls(address string) error {
	c := http.Client{Timeout: 10 * time.Second}
	r, err := c.Get("http://" + address + "/metrics")
	if err != nil {
		return err
	}
	defer r.Body.Close()
	lines := bufio.NewScanner(r.Body)
	for lines.Scan() {
		t.noteStalls(lines.Text())
	}
	return lines.Err()
}

// noteStalls takes one line of the metrics into account. Buckets count what took their bound at most.
func (t *turn) noteStalls(line string) {
	name, text, _ := strings.Cut(line, " ")
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return
	}
	if name == stallsMetric {
		t.figures[stalledAppends] = n
	}
	over := map[string]float64{writesOver8ms: 0.0083, writesOver67ms: 0.0672, writesOver268ms: 0.2685}
	if bound, ok := strings.CutPrefix(name, writesMetric+`_bucket{le="`); ok {
		le, err := strconv.ParseFloat(strings.TrimSuffix(bound, `"}`), 64)
		for figure, least := range over {
			if err == nil && le <= least {
				t.figures[figure] = -n // the last one below counts
			}
		}
	}
	if name == writesMetric+"_count" {
		for figure := range over {
			t.figures[figure] += n
		}
	}
}
