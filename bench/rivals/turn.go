package rivals

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"kaas/bench/frames"
	"kaas/bench/load"
	"kaas/bench/process"
)

const topic = "bench"

// turn is one broker's part of one round.
type turn struct {
	ctx     context.Context
	tools   *tools
	name    string
	dir     string
	scale   float64
	counted bool // perf can count instructions
	broker  *process.Process
	figures map[string]float64
}

func (t *turn) scaled(n int64) int64 { return max(int64(float64(n)*t.scale), 1) }

func (t *turn) pause(d time.Duration) time.Duration { return time.Duration(float64(d) * t.scale) }

// with runs the broker, calls do, and stops it.
func (t *turn) with(durability string, do func() error) error {
	var err error
	if t.broker, err = t.tools.start(t.name, t.dir, durability); err != nil {
		return err
	}
	if err := do(); err != nil {
		t.broker.Kill()
		return fmt.Errorf("%w; the broker said: %s", err, t.broker.Said())
	}
	return t.broker.Stop()
}

// usableMax is how long a broker may need from its first answer until it takes topics.
const usableMax = 30 * time.Second

// codeTooFewBrokers is what Apache answers to CreateTopics until its broker has registered with its controller.
const codeTooFewBrokers = 38

// codeNotLeader is what Apache answers for a partition that metadata knows and its log does not yet.
const codeNotLeader = 6

// createTopic waits until the broker has taken the topic and every partition answers.
func (t *turn) createTopic(name string, partitions int) error {
	return t.patiently(codeTooFewBrokers, func() error {
		if _, err := load.EnsureTopic([]string{t.broker.Address}, name, partitions); err != nil {
			return err
		}
		return t.ready(name, partitions)
	})
}

// askedMost: of more partitions only so many are asked, spread evenly, so that asking is not what is measured.
const askedMost = 100

// ready waits until every partition of a topic answers.
func (t *turn) ready(name string, partitions int) error {
	c, err := load.Dial(t.broker.Address, usableMax)
	if err != nil {
		return err
	}
	defer c.Close()
	for p := 0; p < partitions; p += max(partitions/askedMost, 1) {
		if err := t.patiently(codeNotLeader, func() error { _, err := c.Offset(name, p, -1); return err }); err != nil {
			return err
		}
	}
	return nil
}

// patiently repeats what fails with the given code, for a while.
func (t *turn) patiently(code int16, do func() error) error {
	deadline := time.Now().Add(usableMax)
	for {
		err := do()
		var said *frames.Error
		if err == nil || !errors.As(err, &said) || said.Code != code || time.Now().After(deadline) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// charge runs a client and notes its figures and what the broker used for it.
func (t *turn) charge(run func() (outcome, error)) error {
	_, err := t.charged(run)
	return err
}

func (t *turn) charged(run func() (outcome, error)) (outcome, error) {
	before, err := t.broker.CPU()
	if err != nil {
		return outcome{}, err
	}
	var counter *counter
	if t.counted {
		if counter, err = countInstructions(t.broker.PID()); err != nil {
			return outcome{}, err
		}
	}
	memory := t.broker.WatchMemory()
	o, err := run()
	peak := memory()
	if err != nil {
		return o, err
	}
	after, err := t.broker.CPU()
	if err != nil {
		return o, err
	}
	used, f := after-before, t.figures
	f[bytesPerSecond], f[requestsPerSecond] = float64(o.bytes)/o.seconds, float64(o.requests)/o.seconds
	f[cpuPerGB], f[cpuPerRequest] = used/(float64(o.bytes)/1e9), used*1e6/float64(o.requests)
	f[rssPeak], f[clientCPU] = peak/mib, o.clientCPU
	for name, v := range map[string]float64{p50: o.p50, p99: o.p99, p999: o.p999} {
		if v > 0 {
			f[name] = v
		}
	}
	for name, v := range o.more {
		f[name] = v
	}
	if counter != nil {
		n, err := counter.stop()
		if err != nil {
			return o, err
		}
		f[instructions] = n / float64(o.requests)
	}
	return o, nil
}

// fill writes so many bytes of 1 KiB records in batches of 64 KiB with the own generator, and returns the number of records.
func (t *turn) fill(name string, partitions int, bytes int64) (records int64, err error) {
	if err := t.createTopic(name, partitions); err != nil {
		return 0, err
	}
	r, err := load.Produce(load.ProduceConfig{
		Brokers: []string{t.broker.Address}, Topic: name, Partitions: partitions, Connections: max(partitions, 4), Pipeline: 4, BatchBytes: 64 << 10,
		RecordBytes: 1 << 10, Acks: -1, Limits: load.Limits{Bytes: bytes},
	})
	return r.Records, err
}

// dropCache writes back and drops from the page cache all files of the broker that hold much, so that reading them is cold.
func (t *turn) dropCache() error {
	return filepath.WalkDir(t.dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := d.Info(); err != nil || !info.Mode().IsRegular() || info.Size() < 8*mib {
			return err
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		return errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
	})
}

// counter is a perf that counts the instructions of a process.
type counter struct {
	cmd  *exec.Cmd
	errs bytes.Buffer
}

// canCount says whether this machine's perf has the counter.
func canCount() bool {
	out, err := exec.Command("perf", "stat", "-x,", "-e", "instructions:u", "true").CombinedOutput()
	if err != nil {
		return false
	}
	_, ok := parsePerf(out)
	return ok
}

func parsePerf(out []byte) (float64, bool) {
	for line := range strings.Lines(string(out)) {
		if f := strings.Split(line, ","); len(f) > 2 && strings.HasPrefix(f[2], "instructions") {
			v, err := strconv.ParseFloat(f[0], 64)
			return v, err == nil && v > 0
		}
	}
	return 0, false
}

func countInstructions(pid int) (*counter, error) {
	c := &counter{cmd: exec.Command("perf", "stat", "-x,", "-e", "instructions:u", "-p", strconv.Itoa(pid))}
	c.cmd.Stderr = &c.errs
	return c, c.cmd.Start()
}

func (c *counter) stop() (float64, error) {
	if err := c.cmd.Process.Signal(os.Interrupt); err != nil {
		return 0, err
	}
	_ = c.cmd.Wait() // ended by the signal
	n, ok := parsePerf(c.errs.Bytes())
	if !ok {
		return 0, fmt.Errorf("perf: %s", c.errs.Bytes())
	}
	return n, nil
}
