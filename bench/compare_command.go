package bench

import "github.com/spf13/cobra"

func compareCommand() *cobra.Command { return &cobra.Command{Use: "compare"} }
func reportCommand() *cobra.Command  { return &cobra.Command{Use: "report"} }
