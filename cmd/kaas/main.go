// Command kaas is the broker, and the tools around it, in one binary. `kaas serve`, which is the default, runs the broker.
//
// The commands only read flags and print; what they do is in server, bench, and the packages below this one.
package main

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"

	"kaas/bench"
	"kaas/cmd/kaas/cli"
	"kaas/cmd/kaas/client"
	"kaas/cmd/kaas/logtool"
)

//go:generate go run . reference ../../docs/commands.md

func main() {
	os.Exit(cli.Run(context.Background(), rootCommand(time.Now()), withDefault(os.Args[1:])))
}

// rootCommand is `kaas` with all that is below it.
func rootCommand(began time.Time) *cobra.Command {
	root := &cobra.Command{
		Use:   "kaas",
		Short: "A broker that speaks Apache Kafka's protocol, storage engine first",
		Long: `A broker that speaks Apache Kafka's protocol, and the tools around it, in one binary.

Without a command, and with flags alone, kaas serves. Exit codes: 0 done, 1 failed, 2 bad usage. The client commands take
--brokers, or the variable KAAS_BROKERS, and talk to any broker of the protocol. "kaas completion bash" (zsh, fish,
powershell) prints what makes a shell complete commands and flags.`,
	}
	root.AddCommand(serveCommand(began), versionCommand(), importCommand(), logtool.Command(), bench.Command(), referenceCommand())
	root.AddCommand(client.Commands()...)
	return root
}

// withDefault puts the command in front of arguments that are flags alone.
func withDefault(args []string) []string {
	if len(args) == 0 || args[0] != "-h" && args[0] != "--help" && args[0][:min(1, len(args[0]))] == "-" {
		return append([]string{"serve"}, args...)
	}
	return args
}

// referenceCommand writes the page of the documentation.
func referenceCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "reference FILE",
		Short:  "Write the reference of all commands, as Markdown",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			f, err := os.Create(args[0])
			if err != nil {
				return err
			}
			if err := cli.WriteReference(f, rootCommand(time.Now())); err != nil {
				f.Close()
				return err
			}
			return f.Close()
		},
	}
}
