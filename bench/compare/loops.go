package compare

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"kaas/bench/load"
	"kaas/bench/process"
)

// loops measures the same load with one event loop held on one core and with two loops on two. What a request costs in the second form over the
// first is what loops take from each other by shared locks and cache lines; where that is 1, n cores serve n times what one does.
func (t *turn) loops() error {
	c := load.ProduceConfig{Topic: topicName, Partitions: 8, Connections: 64, Pipeline: 5, BatchBytes: 1, RecordBytes: kib, Acks: 1}
	var cost [3]float64
	for n := 1; n <= 2; n++ {
		err := t.with(pageCache, func(p *process.Process) error {
			if err := hold(p.PID(), n); err != nil {
				return err
			}
			c.Brokers, c.Bytes = []string{p.Address}, t.scaled(50*mib)
			if _, err := load.Produce(c); err != nil { // a warm-up
				return err
			}
			c.Bytes = t.scaled(300 * mib)
			return t.charge(p, func() (load.Result, error) { return load.Produce(c) })
		}, "--set", fmt.Sprint("kaas.loops=", n))
		if err != nil {
			return err
		}
		cost[n] = t.figures[cpuPerRequest]
	}
	t.figures[oneLoopCPU], t.figures[twoLoopsOfOne] = cost[1], cost[2]/cost[1]
	return nil
}

// hold keeps all threads of a process, and those that they will start, on its first n cores.
func hold(pid, n int) error {
	var may, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return err
	}
	if may.Count() < n {
		return fmt.Errorf("%d cores are wanted, %d may be used", n, may.Count())
	}
	for cpu := 0; set.Count() < n; cpu++ {
		if may.IsSet(cpu) {
			set.Set(cpu)
		}
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return err
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(id, &set); err != nil && err != unix.ESRCH { // one that ended meanwhile
			return err
		}
	}
	return nil
}
