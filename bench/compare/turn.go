package compare

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"kaas/bench/load"
	"kaas/bench/process"
	"kaas/bench/record"
)

const topicName = "bench"

// turn is one subject's part of one round.
type turn struct {
	opt     *Options
	subject string
	dir     string
	figures map[string]float64
}

// start runs the subject of this turn on its directory.
func (t *turn) start(durability string, more ...string) (*process.Process, error) {
	data := filepath.Join(t.dir, "data")
	if err := os.MkdirAll(data, 0o755); err != nil {
		return nil, err
	}
	return process.Start(t.opt.Program, func(address string) []string {
		if t.subject == Floor {
			floor := []string{"bench", "floor", "--listen", address, "--data-dir", data}
			if durability == groupCommit {
				floor = append(floor, "--synced")
			}
			return floor
		}
		return append([]string{"serve", "--listen", address, "--data-dir", data, "--durability", durability}, more...)
	})
}

// with starts the subject, calls do, and stops it.
func (t *turn) with(durability string, do func(p *process.Process) error, more ...string) error {
	p, err := t.start(durability, more...)
	if err != nil {
		return err
	}
	if err := do(p); err != nil {
		p.Kill()
		return fmt.Errorf("%w; it said: %s", err, p.Said())
	}
	return p.Stop()
}

func (t *turn) scaled(n int64) int64 { return max(int64(float64(n)*t.opt.Scale), 1) }

// spent runs a load; cpu is what the subject used for it, in seconds.
func spent(p *process.Process, run func() (load.Result, error)) (r load.Result, cpu float64, err error) {
	before, err := p.CPU()
	if err != nil {
		return r, 0, err
	}
	if r, err = run(); err != nil {
		return r, 0, err
	}
	after, err := p.CPU()
	return r, after - before, err
}

// charge runs a load and notes its figures and what the subject used for it.
func (t *turn) charge(p *process.Process, run func() (load.Result, error)) error {
	r, used, err := spent(p, run)
	if err != nil {
		return err
	}
	f := t.figures
	f[bytesPerSecond], f[requestsPerSecond] = r.BytesPerSecond(), r.RequestsPerSecond()
	f[cpuPerGB], f[cpuPerRequest] = used/(float64(r.Bytes)/1e9), used*1e6/float64(r.Requests)
	f[latencyP50], f[latencyP99], f[clientCPU] = r.Latency.P50, r.Latency.P99, r.ClientCPU
	rss, err := p.RssAnon()
	f[rssAnonMiB] = rss / mib
	return err
}

// produce writes bytes in batches, after a tenth of that as a warm-up. What is stored at the end must be what was acknowledged.
func (t *turn) produce(c load.ProduceConfig, bytes int64) error {
	return t.with(pageCache, func(p *process.Process) error {
		c.Brokers, c.Topic, c.Partitions = []string{p.Address}, topicName, 1
		c.Bytes = t.scaled(bytes / 10)
		warm, err := load.Produce(c)
		if err != nil {
			return err
		}
		c.Bytes = t.scaled(bytes)
		records := warm.Records
		err = t.charge(p, func() (load.Result, error) {
			r, err := load.Produce(c)
			records += r.Records
			return r, err
		})
		if err != nil {
			return err
		}
		return checkEnd(p.Address, records)
	})
}

// checkEnd makes sure that the partition holds as many records as were acknowledged.
func checkEnd(address string, want int64) error {
	c, err := load.Dial(address, 30*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	got, err := c.Offset(topicName, 0, -1)
	if err == nil && got != want {
		err = fmt.Errorf("%d records acknowledged, the log ends at %d", want, got)
	}
	return err
}

// fetch writes half a gigabyte and reads it eight times over.
func (t *turn) fetch(maxBytes int) error {
	const fill, read = 512 * mib, 8 * 512 * mib
	return t.with(pageCache, func(p *process.Process) error {
		_, err := load.Produce(load.ProduceConfig{
			Brokers: []string{p.Address}, Topic: topicName, Partitions: 1, Connections: 4, Pipeline: 8, BatchBytes: 16 * kib, RecordBytes: kib,
			Acks: 1, Limits: load.Limits{Bytes: t.scaled(fill)},
		})
		if err != nil {
			return err
		}
		c := load.FetchConfig{
			Brokers: []string{p.Address}, Topic: topicName, Connections: 4, MaxBytes: maxBytes, Alike: true, Limits: load.Limits{Bytes: t.scaled(fill)},
		}
		if _, err := load.Fetch(c); err != nil {
			return err
		}
		c.Bytes = t.scaled(read)
		return t.charge(p, func() (load.Result, error) { return load.Fetch(c) })
	})
}

func (t *turn) startUp() error {
	return t.with(groupCommit, func(p *process.Process) error {
		t.figures[startMs] = p.StartMs
		return nil
	})
}

// settle is how long a subject is left alone before its memory is read.
func (t *turn) settle() { time.Sleep(time.Duration(float64(2*time.Second) * t.opt.Scale)) }

func (t *turn) idle() error {
	return t.with(groupCommit, func(p *process.Process) error {
		t.settle()
		before, err := p.CPU()
		if err != nil {
			return err
		}
		pause := time.Duration(float64(5*time.Second) * t.opt.Scale)
		time.Sleep(pause)
		after, err := p.CPU()
		if err != nil {
			return err
		}
		t.figures[idleCPU] = 100 * (after - before) / pause.Seconds()
		rss, err := p.RssAnon()
		t.figures[rssAnonMiB] = rss / mib
		return err
	})
}

func (t *turn) connections() error {
	return t.with(groupCommit, func(p *process.Process) error {
		t.settle()
		before, err := p.RssAnon()
		if err != nil {
			return err
		}
		n := int(t.scaled(5000))
		idle, err := load.OpenIdle(p.Address, n)
		if err != nil {
			return err
		}
		defer idle.Close()
		t.settle()
		after, err := p.RssAnon()
		t.figures[bytesPerConn] = (after - before) / float64(n)
		return err
	})
}

// partitions creates topics of 1,000 partitions, restarts, and compares the memory with that of an empty broker.
func partitions(topics int) func(*turn) error {
	return func(t *turn) error { return t.partitions(int(t.scaled(int64(topics)))) }
}

func (t *turn) partitions(topics int) error {
	const each = 1000
	var empty float64
	err := t.with(groupCommit, func(p *process.Process) (err error) {
		t.settle()
		if empty, err = p.RssAnon(); err != nil {
			return err
		}
		c, err := load.Dial(p.Address, 60*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		var took []float64
		for i := range topics {
			began := time.Now()
			if err := c.CreateTopics(each, fmt.Sprintf("bench-%d", i)); err != nil {
				return err
			}
			took = append(took, float64(time.Since(began).Microseconds())/1e3)
		}
		s, _ := record.Of(took)
		t.figures[create1000Ms] = s.Median
		return nil
	})
	if err != nil {
		return err
	}
	return t.with(groupCommit, func(p *process.Process) error {
		t.figures[restartMs] = p.StartMs
		t.settle()
		full, err := p.RssAnon()
		if err != nil {
			return err
		}
		t.figures[bytesPerPart] = (full - empty) / float64(topics*each)
		leaders, err := load.EnsureTopic([]string{p.Address}, fmt.Sprintf("bench-%d", topics-1), 0)
		if err == nil && len(leaders) != each {
			err = fmt.Errorf("after the restart a topic has %d partitions, not %d", len(leaders), each)
		}
		return err
	})
}
