package record

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
)

// Tolerance is how far apart two runs may be beyond their own spread before that is told: a tenth of the old median.
const Tolerance = 0.10

// higherIsBetter holds for figures with one of these in their names; of all others less is better.
var higherIsBetter = []string{"per_second", "per_sec", "MB/s", "GB/s", "puts/s", "syncs_of_probe", "acks_per_sync", "ratio_to_floor"}

// HigherIsBetter says in which direction a figure of that name is good.
func HigherIsBetter(figure string) bool {
	return slices.ContainsFunc(higherIsBetter, func(part string) bool { return strings.Contains(figure, part) })
}

// notCompared are figures that say nothing about the subject.
var notCompared = []string{"client_cpu", "iterations", "probe_"}

// Change is how a figure differs between two runs.
type Change struct {
	Scenario, Subject, Figure string
	Old, New                  Spread
	// Beyond is the gap between the two spreads as a share of the old median: 0 if they overlap, positive if the new is worse.
	Beyond float64
}

// Flagged says that the new is worse, or better, by more than the tolerance beyond the spread of both.
func (c Change) Flagged() bool { return math.Abs(c.Beyond) > Tolerance }

func change(figure string, old, now Spread) float64 {
	if old.Median == 0 {
		return 0
	}
	gap := 0.0
	switch { // how far the new lies above the old
	case now.Min > old.Max:
		gap = (now.Min - old.Max) / math.Abs(old.Median)
	case now.Max < old.Min:
		gap = (now.Max - old.Min) / math.Abs(old.Median)
	}
	if HigherIsBetter(figure) {
		gap = -gap
	}
	return gap
}

// Newest is the last record of each scenario.
func Newest(records []Record) map[string]*Record {
	newest := map[string]*Record{}
	for i := range records {
		newest[records[i].Scenario] = &records[i]
	}
	return newest
}

// Compare returns the changes from old to now of all figures that both have, in the order of their names.
func Compare(old, now map[string]*Record) []Change {
	var all []Change
	for _, scenario := range slices.Sorted(maps.Keys(now)) {
		before := old[scenario]
		if before == nil {
			continue
		}
		for _, subject := range slices.Sorted(maps.Keys(now[scenario].Subjects)) {
			for _, figure := range slices.Sorted(maps.Keys(now[scenario].Subjects[subject])) {
				if slices.ContainsFunc(notCompared, func(part string) bool { return strings.HasPrefix(figure, part) }) {
					continue
				}
				o, ok := before.Figure(subject, figure)
				n, ok2 := now[scenario].Figure(subject, figure)
				if ok && ok2 {
					all = append(all, Change{scenario, subject, figure, o, n, change(figure, o, n)})
				}
			}
		}
	}
	return all
}

// PrintChanges writes a table of the changes, those within the tolerance only with all set, and returns how many are worse.
func PrintChanges(w io.Writer, changes []Change, all bool) (worse int, err error) {
	better := 0
	for _, c := range changes {
		word := ""
		switch {
		case !c.Flagged():
		case c.Beyond > 0:
			word = "WORSE"
			worse++
		default:
			word = "better"
			better++
		}
		if word == "" && !all {
			continue
		}
		percent := 100 * (c.New.Median/c.Old.Median - 1)
		if c.Old.Median == 0 {
			percent = 0
		}
		if _, err := fmt.Fprintf(w, "%-6s %-22s %-12s %-24s %10s -> %10s  %+6.1f %%  (%s–%s -> %s–%s)\n", word, c.Scenario, c.Subject, c.Figure,
			Short(c.Old.Median), Short(c.New.Median), percent, Short(c.Old.Min), Short(c.Old.Max), Short(c.New.Min), Short(c.New.Max)); err != nil {
			return worse, err
		}
	}
	_, err = fmt.Fprintf(w, "%d figures compared: %d worse, %d better by more than %.0f %% beyond the spread of both\n", len(changes), worse, better, 100*Tolerance)
	return worse, err
}
