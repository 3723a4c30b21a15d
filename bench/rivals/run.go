package rivals

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"kaas/bench/record"
)

// Options of a run.
type Options struct {
	Program   string   // executable of kaas, the floor and the load generators: this program itself
	Root      string   // of the module's sources, where drivers are built
	Dir       string   // parent of the data directories, on a disk
	Scenarios []string // empty: all
	Brokers   []string // empty: all
	Rounds    int
	Scale     float64 // of the amounts of work; figures of a scale below 1 are for trying out only
	Results   string  // file that the results are appended to; empty: none
	Out       io.Writer
	Progress  io.Writer
}

// ErrBars is returned when everything was measured and a bar was missed.
var ErrBars = errors.New("not all bars are met")

// Run measures and prints. A broker or client that fails in a scenario is told, and everything else is measured all the same.
func Run(ctx context.Context, opt Options) error {
	chosen, err := choose(opt.Scenarios, opt.Brokers)
	if err != nil {
		return err
	}
	dir, err := record.WorkDir(opt.Dir)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	t, err := setUp(ctx, &opt, chosen, dir)
	if err != nil {
		return err
	}
	base, err := record.Begin(opt.Out, dir, opt.Scale)
	if err != nil {
		return err
	}
	counted := canCount()
	if !counted {
		fmt.Fprintln(opt.Out, "instructions are not counted: perf has no such counter on this machine")
	}
	fmt.Fprintln(opt.Out)
	records, failed, err := measure(ctx, &opt, chosen, t, base, counted)
	if err != nil {
		return err
	}
	met := true
	for _, s := range chosen {
		if r := records[s.name]; r != nil {
			met = s.print(opt.Out, r) && met
		}
	}
	switch {
	case failed > 0:
		return fmt.Errorf("%d turns failed", failed)
	case !met:
		return ErrBars
	}
	return nil
}

func setUp(ctx context.Context, opt *Options, chosen []*scenario, dir string) (*tools, error) {
	root, err := filepath.Abs(opt.Root)
	if err != nil {
		return nil, err
	}
	t := &tools{self: opt.Program, root: root, dir: dir}
	if err := os.WriteFile(filepath.Join(dir, "log4j.properties"), []byte(log4j), 0o644); err != nil {
		return nil, err
	}
	need := map[string]bool{}
	for _, s := range chosen {
		need[s.needs] = true
		for _, b := range s.brokers {
			need[b] = true
		}
	}
	need[Kfake] = need[Kfake] || need[Memory]
	return t, t.prepare(ctx, need, opt.Progress)
}

// measure runs rounds of all scenarios of all brokers. The results are written after the last round, and also when ctx ends early.
func measure(ctx context.Context, opt *Options, chosen []*scenario, t *tools, base record.Record, counted bool) (map[string]*record.Record, int, error) {
	records := map[string]*record.Record{}
	failed := 0
	for _, s := range chosen {
		r := base
		r.Scenario, r.Subjects = s.name, map[string]record.Figures{}
		order := slices.Clone(s.brokers)
		for round := range opt.Rounds {
			for _, name := range order {
				if err := ctx.Err(); err != nil {
					return nil, failed, err
				}
				fmt.Fprintf(opt.Progress, "%s %-20s round %d of %d: %s\n", time.Now().Format(time.TimeOnly), s.name, round+1, opt.Rounds, name)
				tn := turn{ctx: ctx, tools: t, name: name, scale: opt.Scale, counted: counted, figures: map[string]float64{}}
				if err := tn.run(s); err != nil {
					fmt.Fprintf(opt.Out, "%s, %s, round %d: %v\n", s.name, name, round+1, err)
					failed++
					continue
				}
				if r.Subjects[name] == nil {
					r.Subjects[name] = record.Figures{}
				}
				for figure, v := range tn.figures {
					r.Subjects[name][figure] = append(r.Subjects[name][figure], v)
				}
			}
			slices.Reverse(order) // nobody always goes first
		}
		if len(r.Subjects) == 0 {
			continue
		}
		records[s.name] = &r
		if opt.Results != "" {
			if err := record.Append(opt.Results, []record.Record{r}); err != nil {
				return nil, failed, err
			}
		}
	}
	return records, failed, nil
}

func (t *turn) run(s *scenario) (err error) {
	if t.dir, err = os.MkdirTemp(t.tools.dir, t.name+"-"); err != nil {
		return err
	}
	return errors.Join(s.measure(t), os.RemoveAll(t.dir))
}

// Names lists the scenarios.
func Names() []string {
	var names []string
	for i := range scenarios {
		names = append(names, scenarios[i].name)
	}
	return names
}

// choose picks scenarios, each with the brokers that were chosen.
func choose(names, brokers []string) ([]*scenario, error) {
	for _, n := range names {
		if !slices.Contains(Names(), n) {
			return nil, fmt.Errorf("there is no scenario %q; there are %s", n, strings.Join(Names(), ", "))
		}
	}
	for _, b := range brokers {
		if !slices.Contains(Brokers, b) {
			return nil, fmt.Errorf("%w: %q; there are %s", errUnknownBroker, b, strings.Join(Brokers, ", "))
		}
	}
	var chosen []*scenario
	for i := range scenarios {
		if len(names) > 0 && !slices.Contains(names, scenarios[i].name) {
			continue
		}
		s := scenarios[i]
		if len(brokers) > 0 {
			s.brokers = slices.DeleteFunc(slices.Clone(s.brokers), func(b string) bool { return !slices.Contains(brokers, b) })
		}
		if len(s.brokers) > 0 {
			chosen = append(chosen, &s)
		}
	}
	return chosen, nil
}

// print writes what was measured and judges it; false means that a bar is missed.
func (s *scenario) print(w io.Writer, r *record.Record) bool {
	fmt.Fprintf(w, "%s: %s\n", s.name, s.what)
	for _, name := range s.brokers {
		fmt.Fprintf(w, "  %-13s", name)
		for _, figure := range figureOrder {
			if _, ok := r.Figure(name, figure); ok {
				fmt.Fprintf(w, "  %s %s", r.Cell(name, figure, units[figure].factor), units[figure].name)
			}
		}
		fmt.Fprintln(w)
	}
	all := true
	for _, b := range s.bars {
		fmt.Fprintf(w, "  bar  %s: %s", b, b.verdict(r))
		if scaled := b.scaled(r); scaled != "–" {
			fmt.Fprintf(w, "; at this machine's speed %s", scaled)
		}
		fmt.Fprintln(w)
		if v, ok := b.value(r); !ok || !b.met(v) {
			all = false
		}
	}
	fmt.Fprintln(w)
	return all
}

// figureOrder is the order of figures in print.
var figureOrder = []string{
	bytesPerSecond, requestsPerSecond, cpuPerGB, cpuPerRequest, instructions, p50, p99, p999, ackP99Quiet, ackP99Cold, ackP99Times, coldPerSecond, rssPeak, startMs, idleRss,
	idleCPU, createMs, usableMs, restartMs,
}
