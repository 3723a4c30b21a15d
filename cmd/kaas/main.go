// Command kaas is the broker, and the tools around it, in one binary. `kaas serve`, which is the default, runs the broker.
//
// The commands only read flags and print; what they do is in server and bench.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"kaas/bench"
)

func main() {
	began := time.Now()
	root := &cobra.Command{
		Use:           "kaas",
		Short:         "A broker that speaks Apache Kafka's protocol, storage engine first",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	serve := serveCommand(began)
	root.AddCommand(serve, versionCommand(), bench.Command())
	// Without a command, and with flags alone, kaas serves.
	if args := os.Args[1:]; len(args) == 0 || args[0] != "-h" && args[0] != "--help" && args[0][:min(1, len(args[0]))] == "-" {
		root.SetArgs(append([]string{"serve"}, args...))
	}
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "kaas:", err)
		os.Exit(1)
	}
}
