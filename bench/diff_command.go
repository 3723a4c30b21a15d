package bench

import (
	"fmt"

	"github.com/spf13/cobra"

	"kaas/bench/record"
	"kaas/bench/report"
)

func diffCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Compare two reports, or two files of stored results",
		Long: "Compare two reports of bench, or the newest records of each scenario in two files of stored results. A figure is flagged when the\n" +
			"rounds of the new run lie more than 10 % of the old median away from all rounds of the old one. A load that was run once has the\n" +
			"seconds of its run for rounds. It exits with 1 when something is worse.",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			old, err := report.Read(args[0])
			if err != nil {
				return err
			}
			now, err := report.Read(args[1])
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			for name, n := range now {
				if o := old[name]; o != nil && (o.Machine.CPU != n.Machine.CPU || o.Machine.Cores != n.Machine.Cores) {
					fmt.Fprintf(w, "note: %s was measured on another machine (%d × %s, now %d × %s)\n", name, o.Machine.Cores, o.Machine.CPU, n.Machine.Cores, n.Machine.CPU)
				} else if o != nil && n.Calibration.CPULoopMs > 0 && o.Calibration.CPULoopMs > 0 &&
					(n.Calibration.CPULoopMs > 1.1*o.Calibration.CPULoopMs || o.Calibration.CPULoopMs > 1.1*n.Calibration.CPULoopMs) {
					fmt.Fprintf(w, "note: %s: the machine's own speed differs: CPU loop %.0f ms, now %.0f ms\n", name, o.Calibration.CPULoopMs, n.Calibration.CPULoopMs)
				}
			}
			worse, err := record.PrintChanges(w, record.Compare(old, now), all)
			if err == nil && worse > 0 {
				err = errWorse
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "show all figures, not only those that differ")
	return cmd
}
