// Package logtool looks into the files of a data directory: `kaas log dump` prints one, `kaas log verify` checks a whole
// directory.
//
// It only reads, and it does not trust what it reads: no size in a file is believed before it is compared with the file.
// It opens files by itself instead of asking the engine, whose recovery would repair what is to be seen; what the bytes
// mean is codec/batch's and the engine packages' business. It reads what Apache Kafka wrote as well, message format 2 only.
//
// Invariants: whatever is wrong is told as a Problem with file and position; a run that told one returns an error.
package logtool

import "github.com/spf13/cobra"

// Command is `log` with all that is below it.
func Command() *cobra.Command {
	c := &cobra.Command{Use: "log", Short: "Look into the files of a data directory"}
	c.AddCommand(dumpCommand(), verifyCommand())
	return c
}
