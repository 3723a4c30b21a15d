// Package logtool looks into the files of a data directory: `kaas log dump` prints one, `kaas log verify` checks a whole
// directory, `kaas log repair` mends one.
//
// Dump and verify only read, and do not trust what they read: no size in a file is believed before it is compared with the file.
// They open files by themselves instead of asking the engine, whose recovery would repair what is to be seen; what the bytes
// mean is codec/batch's and the engine packages' business. They read what Apache Kafka wrote as well, message format 2 only.
//
// Repair has the engine recover a log on an overlay of the file system, so that there is one recovery and what it would change is
// known before anything is; then it copies those files, and changes them.
//
// Invariants: whatever is wrong is told as a Problem with file and position; a run that told one returns an error;
// repair changes no file of which it has not made a durable copy, and drops no sound batch without being told to.
package logtool

import "github.com/spf13/cobra"

// Command is `log` with all that is below it.
func Command() *cobra.Command {
	c := &cobra.Command{Use: "log", Short: "Look into the files of a data directory"}
	c.AddCommand(dumpCommand(), verifyCommand(), repairCommand())
	return c
}
