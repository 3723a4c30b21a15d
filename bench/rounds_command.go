package bench

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"
)

// measuring are the flags that commands share which run brokers of their own in rounds.
type measuring struct {
	scenarios             []string
	rounds, least         int
	scale                 float64
	dir, results, program string
	quiet                 bool
}

// flags adds them. rounds is the default number of rounds, explained by roundsHelp; 0 leaves it to each scenario.
func (m *measuring) flags(f *pflag.FlagSet, rounds int, roundsHelp string) {
	m.least = min(rounds, 1)
	f.StringSliceVar(&m.scenarios, "scenario", nil, "`names` of scenarios (default all)")
	f.IntVar(&m.rounds, "rounds", rounds, roundsHelp)
	f.Float64Var(&m.scale, "scale", 1, "share of the work; less than 1 only to try it out")
	f.StringVar(&m.dir, "dir", ".", "`directory` on a disk for the data")
	f.StringVar(&m.results, "results", "", "`file` to append the results to, as JSON lines")
	f.StringVar(&m.program, "program", "", "`executable` of kaas to measure (default: this one)")
	f.BoolVar(&m.quiet, "quiet", false, "no progress line")
}

// check says what is wrong with them, and puts this program in the place of none.
func (m *measuring) check() (err error) {
	switch {
	case m.scale <= 0 || m.scale > 1:
		return errors.New("--scale: not above 0 and up to 1")
	case m.rounds < m.least:
		return fmt.Errorf("--rounds: at least %d", m.least)
	case m.program == "":
		m.program, err = os.Executable()
	}
	return err
}

// progress is where a run is told of: w, or nowhere.
func (m *measuring) progress(w io.Writer) io.Writer {
	if m.quiet {
		return io.Discard
	}
	return w
}
