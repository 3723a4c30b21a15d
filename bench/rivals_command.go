package bench

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"kaas/bench/rivals"
)

func rivalsCommand() *cobra.Command {
	opt := rivals.Options{}
	var quiet bool
	cmd := &cobra.Command{
		Use:   "rivals",
		Short: "Measure this broker beside Apache Kafka and kfake, with real clients, and judge the bars",
		Long: "Run kaas, Apache Kafka, kfake and the floor in interleaved rounds, one alive at a time on a fresh directory, with Apache's own tools,\n" +
			"franz-go, librdkafka and the own generator as clients, and print medians with the lowest and the highest round. It needs Java, Maven, Go\n" +
			"and a C compiler, and the sources (--root): what is missing of the rivals is fetched and built. It exits with 1 when a bar is missed.\n" +
			"Scenarios: " + strings.Join(rivals.Names(), ", ") + ".\n" +
			"Brokers: " + strings.Join(rivals.Brokers, ", ") + ".",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opt.Out, opt.Progress = cmd.OutOrStdout(), cmd.ErrOrStderr()
			if quiet {
				opt.Progress = io.Discard
			}
			if opt.Scale <= 0 || opt.Scale > 1 {
				return errors.New("--scale: not above 0 and up to 1")
			}
			if opt.Rounds < 1 {
				return errors.New("--rounds: at least 1")
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
			return rivals.Run(ctx, opt)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&opt.Scenarios, "scenario", nil, "`names` of scenarios (default all)")
	f.StringSliceVar(&opt.Brokers, "brokers", nil, "`names` of brokers (default all)")
	f.IntVar(&opt.Rounds, "rounds", 3, "rounds of each")
	f.Float64Var(&opt.Scale, "scale", 1, "share of the work; less than 1 only to try it out")
	f.StringVar(&opt.Dir, "dir", ".", "`directory` on a disk for the data")
	f.StringVar(&opt.Root, "root", ".", "`directory` of the sources")
	f.StringVar(&opt.Results, "results", "", "`file` to append the results to, as JSON lines")
	f.StringVar(&opt.Program, "program", "", "`executable` of kaas to measure (default: this one)")
	f.BoolVar(&quiet, "quiet", false, "no progress")
	return cmd
}
