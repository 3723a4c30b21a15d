package compare

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"kaas/bench/frames"
	"kaas/bench/load"
	"kaas/bench/process"
	"kaas/bench/record"
)

// syncsMetric is the broker's counter of the rounds of its group commit: each makes all logs durable that have something to sync.
const syncsMetric = "kaas_commit_rounds_total"

var errNoCounter = errors.New("the broker's metrics have no " + syncsMetric)

// countSyncs reads the counter from a broker's metrics listener.
func countSyncs(address string) (float64, error) {
	c := http.Client{Timeout: 10 * time.Second}
	r, err := c.Get("http://" + address + "/metrics")
	if err != nil {
		return 0, err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("metrics of the broker: %s", r.Status)
	}
	lines := bufio.NewScanner(r.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), syncsMetric+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, errors.Join(errNoCounter, lines.Err())
}

// commits are writers that each wait for their acknowledgement.
type commits struct{ writers, connections, partitions int }

// commit measures them after a warm-up of a third of the time: with it the broker has left its first rounds behind. The broker's turn is
// between two bare probes of the disk, with nothing beside them.
func (t *turn) commit(c commits) error {
	howLong := time.Duration(float64(3*time.Second) * t.opt.Scale)
	if t.subject == Floor {
		return t.with(groupCommit, func(p *process.Process) error {
			_, _, err := t.acknowledged(p, c, howLong, func() (float64, error) { return 0, nil })
			return err
		})
	}
	before, err := t.probe(c, howLong/3)
	if err != nil {
		return err
	}
	counter, err := process.FreePort()
	if err != nil {
		return err
	}
	var r load.Result
	var syncs float64
	err = t.with(groupCommit, func(p *process.Process) (err error) {
		r, syncs, err = t.acknowledged(p, c, howLong, func() (float64, error) { return countSyncs(counter) })
		return err
	}, "--metrics", counter)
	if err != nil {
		return err
	}
	after, err := t.probe(c, howLong/3)
	if err != nil {
		return err
	}
	if syncs == 0 {
		return fmt.Errorf("the broker counted no sync for %d acknowledgements", r.Requests)
	}
	f := t.figures
	f[probePerSecond], f[probeP99] = (before.PerSecond+after.PerSecond)/2, (before.P99+after.P99)/2
	f[syncsPerSecond], f[acksOfWriters] = syncs/r.Seconds, float64(r.Requests)/syncs/float64(c.writers)
	f[p99OfProbe], f[syncsOfProbe] = f[latencyP99]/f[probeP99], f[syncsPerSecond]/f[probePerSecond]
	return nil
}

// acknowledged runs the writers; syncs is how far count went meanwhile.
func (t *turn) acknowledged(p *process.Process, c commits, howLong time.Duration, count func() (float64, error)) (r load.Result, syncs float64, err error) {
	config := load.ProduceConfig{
		Brokers: []string{p.Address}, Topic: topicName, Partitions: c.partitions, Connections: c.connections, Pipeline: c.writers / c.connections, BatchBytes: 1,
		RecordBytes: kib, Acks: -1, Limits: load.Limits{Duration: howLong / 3},
	}
	if _, err := load.Produce(config); err != nil {
		return r, 0, err
	}
	config.Duration = howLong
	before, err := count()
	if err != nil {
		return r, 0, err
	}
	err = t.charge(p, func() (load.Result, error) {
		r, err = load.Produce(config)
		return r, err
	})
	if err != nil {
		return r, 0, err
	}
	after, err := count()
	return r, after - before, err
}

// probe makes as many bytes durable as one commit of all writers has, the best way that there is for as many files.
func (t *turn) probe(c commits, howLong time.Duration) (record.Probed, error) {
	batch, _, err := frames.Batch(1, kib, 0)
	if err != nil {
		return record.Probed{}, err
	}
	if c.partitions == 1 {
		return record.Probe(t.dir, c.writers*len(batch), howLong)
	}
	w, err := record.ProbeWays(t.dir, c.partitions, c.writers/c.partitions*len(batch), howLong)
	t.figures[probeEach], t.figures[probeVolume], t.figures[probeShared] = w.Each.PerSecond, w.Volume.PerSecond, w.Shared.PerSecond
	return w.Best(), err
}
