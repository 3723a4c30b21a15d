package bench

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"kaas/bench/compare"
	"kaas/bench/rivals"
)

func compareCommand() *cobra.Command {
	opt := compare.Options{}
	var quiet bool
	cmd := &cobra.Command{
		Use:   "compare",
		Short: "Measure this broker against the least work that the machine allows, and judge the bars",
		Long: "Run this program's broker and the floor in turn, on fresh directories, and print medians, ratios and processor time.\n" +
			"Scenarios: " + strings.Join(compare.Names(), ", ") + ".\n" +
			"At most 2 GiB are written at a time, below --dir, and removed again. It exits with 1 when a bar is missed.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opt.Out, opt.Progress = cmd.OutOrStdout(), cmd.ErrOrStderr()
			if quiet {
				opt.Progress = io.Discard
			}
			if opt.Scale <= 0 || opt.Scale > 1 {
				return errors.New("--scale: not above 0 and up to 1")
			}
			if opt.Program == "" {
				self, err := os.Executable()
				if err != nil {
					return err
				}
				opt.Program = self
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return compare.Run(ctx, opt)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&opt.Scenarios, "scenario", nil, "`names` of scenarios (default all)")
	f.IntVar(&opt.Rounds, "rounds", 0, "rounds of each (default its own number)")
	f.Float64Var(&opt.Scale, "scale", 1, "share of the work; less than 1 only to try it out")
	f.StringVar(&opt.Dir, "dir", ".", "`directory` on a disk for the data")
	f.StringVar(&opt.Results, "results", "", "`file` to append the results to, as JSON lines")
	f.StringVar(&opt.Program, "program", "", "`executable` to measure (default: this one)")
	f.BoolVar(&quiet, "quiet", false, "no progress line")
	return cmd
}

func engineCommand() *cobra.Command {
	var results, table string
	var rounds int
	cmd := &cobra.Command{
		Use:   "engine",
		Short: "Run the benchmarks of the storage engine or of causal delivery, for the tables that bench report makes",
		Long: "Run the Go benchmarks of the storage engine, or with --table parsley of causal delivery, that have a line in a table of bench\n" +
			"report, and append the figures to the results. It needs the go command and the sources: the working directory is the root of\n" +
			"the module.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if rounds < 1 {
				return errors.New("--rounds: at least 1")
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return compare.RunTable(ctx, table, results, rounds, cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&results, "results", "bench/results/compare.jsonl", "`file` to append the results to, as JSON lines")
	cmd.Flags().IntVar(&rounds, "rounds", 3, "rounds of each")
	cmd.Flags().StringVar(&table, "table", compare.EngineScenario, "`name` of the table: "+strings.Join(compare.GoTables(), " or "))
	return cmd
}

func reportCommand() *cobra.Command {
	var results, document, others, charts string
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Write the tables and charts of stored results into a document",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			changed, err := compare.Report(results, document)
			if err == nil {
				var more bool
				more, err = rivals.Report(others, document, charts)
				changed = changed || more
			}
			if err == nil && changed {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), document, "is new")
			}
			return err
		},
	}
	cmd.Flags().StringVar(&results, "results", "bench/results/compare.jsonl", "results `file`")
	cmd.Flags().StringVar(&others, "rivals", "bench/results/rivals.jsonl", "results `file` of bench rivals")
	cmd.Flags().StringVar(&charts, "charts", "bench/results/charts", "`directory` for the charts, from the document's own")
	cmd.Flags().StringVar(&document, "document", "BENCHMARKS.md", "`file` with the lines between which the tables stand")
	return cmd
}
