package compare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"kaas/bench/record"
)

// Options of a run.
type Options struct {
	Program   string   // executable of the broker and the floor: this program itself
	Dir       string   // parent of the data directories, on a disk
	Scenarios []string // empty: all
	Rounds    int      // 0: as many as each scenario wants
	Scale     float64  // of the amounts of work; figures of a scale below 1 are for trying out only
	Results   string   // file that the results are appended to; empty: none
	Out       io.Writer
	Progress  io.Writer
}

// ErrBars is returned when everything was measured and a bar was missed.
var ErrBars = errors.New("not all bars are met")

// Run measures and prints. It returns ErrBars when a bar is missed, other errors when something could not be measured; the
// other scenarios are measured all the same.
func Run(ctx context.Context, opt Options) error {
	chosen, err := choose(opt.Scenarios)
	if err != nil {
		return err
	}
	dir, err := record.WorkDir(opt.Dir)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	base, err := record.Begin(opt.Out, dir, opt.Scale)
	if err != nil {
		return err
	}
	fmt.Fprintln(opt.Out)
	failed := 0
	missed := false
	for _, s := range chosen {
		r := base
		r.Scenario = s.name
		if r.Subjects, err = s.run(ctx, &opt, dir); err != nil {
			if ctx.Err() != nil {
				return err
			}
			fmt.Fprintf(opt.Out, "%s: could not be measured: %v\n\n", s.name, err)
			failed++
			continue
		}
		missed = !s.print(opt.Out, &r) || missed
		if opt.Results != "" {
			if err := record.Append(opt.Results, []record.Record{r}); err != nil {
				return err
			}
		}
	}
	switch {
	case failed > 0:
		return fmt.Errorf("%d of %d scenarios could not be measured", failed, len(chosen))
	case missed:
		return ErrBars
	}
	return nil
}

func choose(names []string) ([]*scenario, error) {
	var chosen []*scenario
	for i := range scenarios {
		if len(names) == 0 && !scenarios[i].named || slices.Contains(names, scenarios[i].name) {
			chosen = append(chosen, &scenarios[i])
		}
	}
	for _, n := range names {
		if !slices.Contains(Names(), n) {
			return nil, fmt.Errorf("there is no scenario %q; there are %s", n, strings.Join(Names(), ", "))
		}
	}
	return chosen, nil
}

// run measures one scenario in interleaved rounds.
func (s *scenario) run(ctx context.Context, opt *Options, dir string) (map[string]record.Figures, error) {
	subjects := map[string]record.Figures{}
	for _, name := range s.subjects {
		subjects[name] = record.Figures{}
	}
	rounds := s.rounds
	if opt.Rounds > 0 {
		rounds = opt.Rounds
	}
	order := slices.Clone(s.subjects)
	for i := range rounds {
		for _, name := range order {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			fmt.Fprintf(opt.Progress, "\r%-20s round %d of %d: %-10s", s.name, i+1, rounds, name)
			t := turn{opt: opt, subject: name, figures: map[string]float64{}}
			if err := t.run(s, dir); err != nil {
				return nil, fmt.Errorf("%s, round %d: %w", name, i+1, err)
			}
			for figure, v := range t.figures {
				subjects[name][figure] = append(subjects[name][figure], v)
			}
		}
		slices.Reverse(order) // nobody always goes first
	}
	fmt.Fprintf(opt.Progress, "\r%60s\r", "")
	return subjects, nil
}

func (t *turn) run(s *scenario, parent string) (err error) {
	if t.dir, err = os.MkdirTemp(parent, t.subject+"-"); err != nil {
		return err
	}
	return errors.Join(s.measure(t), os.RemoveAll(t.dir))
}

// print writes what was measured and judges it; false means that a bar is missed.
func (s *scenario) print(w io.Writer, r *record.Record) bool {
	fmt.Fprintf(w, "%s: %s\n", s.name, s.what)
	for _, subject := range s.subjects {
		figures := make([]string, 0, len(r.Subjects[subject]))
		for name := range r.Subjects[subject] {
			figures = append(figures, name)
		}
		slices.Sort(figures)
		for _, name := range figures {
			if sp, ok := r.Figure(subject, name); ok {
				fmt.Fprintf(w, "  %-6s %-26s %14.4g  (%.4g – %.4g)\n", subject, name, sp.Median, sp.Min, sp.Max)
			}
		}
	}
	for _, name := range []string{bytesPerSecond, cpuPerGB} {
		if ratio, ok := (Bar{figure: name, over: Floor}).value(r); ok {
			fmt.Fprintf(w, "  kaas / floor, %s: %.2f\n", name, ratio)
		}
	}
	all := true
	for _, b := range s.bars {
		fmt.Fprintf(w, "  bar    %s: %s\n", b, b.verdict(r))
		if v, ok := b.value(r); !ok || !b.met(v) {
			all = false
		}
	}
	fmt.Fprintln(w)
	return all
}
