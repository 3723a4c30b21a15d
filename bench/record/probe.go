package record

import (
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	probeSteps   = 64 // places of a file that are written in turn
	probeThreads = 16 // syncs at the same time, of many files
	probeTurns   = 3  // of each way, interleaved
)

// Probed is what a probe saw.
type Probed struct {
	PerSecond float64
	P50, P99  float64 // µs
}

// Ways are those in which many files can be made durable together, each by itself.
type Ways struct {
	Each   Probed // an fdatasync of each file, 16 at a time
	Volume Probed // one syncfs, of everything that the file system has
	Shared Probed // one file in place of many, with as many bytes, and one fdatasync
}

// Best is the way with the most rounds a second.
func (w *Ways) Best() Probed {
	best := w.Shared
	for _, p := range []Probed{w.Each, w.Volume} {
		if p.PerSecond > best.PerSecond {
			best = p
		}
	}
	return best
}

// Probe writes n bytes and calls fdatasync, one after the other, in a file that has been written and synced before: the
// cheapest durable write there is.
func Probe(dir string, n int, howLong time.Duration) (Probed, error) {
	p, err := newProbe(dir, 1, n)
	if err != nil {
		return Probed{}, err
	}
	defer p.close()
	err = p.run(howLong, p.each)
	return p.probed(), err
}

// ProbeWays makes n bytes in each of so many files durable, by every way in turn: in files that have been written and synced before.
func ProbeWays(dir string, files, n int, howLong time.Duration) (w Ways, err error) {
	many, err := newProbe(dir, files, n)
	if err != nil {
		return w, err
	}
	defer many.close()
	volume := *many
	one, err := newProbe(dir, 1, files*n)
	if err != nil {
		return w, err
	}
	defer one.close()
	part := howLong / (3 * probeTurns)
	for range probeTurns {
		err := errors.Join(many.run(part, many.each), volume.run(part, volume.syncfs), one.run(part, one.each))
		if err != nil {
			return w, err
		}
	}
	return Ways{Each: many.probed(), Volume: volume.probed(), Shared: one.probed()}, nil
}

// probe is one way and what it took.
type probe struct {
	files []*os.File
	buf   []byte
	step  int
	took  []time.Duration
}

func newProbe(dir string, files, n int) (*probe, error) {
	p := &probe{buf: make([]byte, n)}
	for range files {
		f, err := os.CreateTemp(dir, "probe")
		if err == nil {
			p.files = append(p.files, f)
			_, err = f.Write(make([]byte, probeSteps*n))
		}
		if err == nil {
			err = f.Sync()
		}
		if err != nil {
			p.close()
			return nil, err
		}
	}
	return p, nil
}

func (p *probe) close() {
	for _, f := range p.files {
		f.Close()
		os.Remove(f.Name())
	}
}

// run repeats a round.
func (p *probe) run(howLong time.Duration, round func() error) error {
	for start := time.Now(); ; {
		from := time.Now()
		for _, f := range p.files {
			if _, err := f.WriteAt(p.buf, int64(p.step*len(p.buf))); err != nil {
				return err
			}
		}
		if err := round(); err != nil {
			return err
		}
		p.step = (p.step + 1) % probeSteps
		p.took = append(p.took, time.Since(from))
		if time.Since(start) >= howLong {
			return nil
		}
	}
}

func (p *probe) syncfs() error { return unix.Syncfs(int(p.files[0].Fd())) }

// each syncs the files, several at the same time.
func (p *probe) each() error {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, min(probeThreads, len(p.files)))
	work := func(err *error) {
		for i := next.Add(1) - 1; i < int64(len(p.files)) && *err == nil; i = next.Add(1) - 1 {
			*err = unix.Fdatasync(int(p.files[i].Fd()))
		}
	}
	for i := range errs[1:] {
		wg.Go(func() { work(&errs[i+1]) })
	}
	work(&errs[0])
	wg.Wait()
	return errors.Join(errs...)
}

// probed is what the rounds took. There was at least one.
func (p *probe) probed() Probed {
	if len(p.took) == 0 {
		return Probed{}
	}
	var all time.Duration
	for _, d := range p.took {
		all += d
	}
	slices.Sort(p.took)
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	return Probed{PerSecond: float64(len(p.took)) / all.Seconds(), P50: us(p.took[len(p.took)/2]), P99: us(p.took[len(p.took)*99/100])}
}
