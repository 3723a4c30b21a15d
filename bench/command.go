package bench

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"kaas/bench/floor"
)

// Command is `bench` with all that is below it, to be added to the command of the program.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure a Kafka-compatible broker",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(produceCommand(), consumeCommand(), endToEndCommand(), mixedCommand(), connectionsCommand(), topicsCommand(), runCommand(), diffCommand(),
		floorCommand(), compareCommand(), rivalsCommand(), engineCommand(), reportCommand())
	return cmd
}

func floorCommand() *cobra.Command {
	var listen, dir string
	var synced bool
	cmd := &cobra.Command{
		Use:    "floor",
		Short:  "Serve the least work that a broker can do",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			open := floor.Listen
			if synced {
				open = floor.ListenSynced
			}
			s, err := open(listen, dir)
			if err != nil {
				return err
			}
			interrupted, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			go func() {
				<-interrupted.Done()
				if err := s.Stop(); err != nil {
					os.Exit(1) // without the pipe the loop would never end
				}
			}()
			fmt.Fprintf(cmd.OutOrStdout(), "{\"address\":%q}\n", s.Address())
			return s.Serve()
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "`address` to listen on")
	cmd.Flags().StringVar(&dir, "data-dir", ".", "`directory` for its files")
	cmd.Flags().BoolVar(&synced, "synced", false, "answer a Produce when it is durable")
	return cmd
}
