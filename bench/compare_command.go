package bench

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"kaas/bench/compare"
	"kaas/bench/rivals"
)

func compareCommand() *cobra.Command {
	var m measuring
	cmd := &cobra.Command{
		Use:   "compare",
		Short: "Measure this broker against the least work that the machine allows, and judge the bars",
		Long: "Run this program's broker and the floor in turn, on fresh directories, and print medians, ratios and processor time.\n" +
			"Scenarios: " + strings.Join(compare.Names(), ", ") + ".\n" +
			"At most 3 GiB are written at a time, below --dir, and removed again. It exits with 1 when a bar is missed.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := m.check(); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return compare.Run(ctx, compare.Options{Scenarios: m.scenarios, Rounds: m.rounds, Scale: m.scale, Dir: m.dir, Results: m.results, Program: m.program,
				Out: cmd.OutOrStdout(), Progress: m.progress(cmd.ErrOrStderr())})
		},
	}
	m.flags(cmd.Flags(), 0, "rounds of each (default its own number)")
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
