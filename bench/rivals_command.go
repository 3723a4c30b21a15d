package bench

import (
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"kaas/bench/rivals"
)

func rivalsCommand() *cobra.Command {
	var m measuring
	var brokers []string
	var root string
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
			if err := m.check(); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return rivals.Run(ctx, rivals.Options{Scenarios: m.scenarios, Brokers: brokers, Rounds: m.rounds, Scale: m.scale, Dir: m.dir, Root: root, Results: m.results,
				Program: m.program, Out: cmd.OutOrStdout(), Progress: m.progress(cmd.ErrOrStderr())})
		},
	}
	m.flags(cmd.Flags(), 3, "rounds of each")
	cmd.Flags().StringSliceVar(&brokers, "brokers", nil, "`names` of brokers (default all)")
	cmd.Flags().StringVar(&root, "root", ".", "`directory` of the sources")
	return cmd
}
