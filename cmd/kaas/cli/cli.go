// Package cli is what all commands of kaas share: exit codes, the difference between bad usage and failure, the end by a
// signal, and the reference page made from the commands.
//
// It knows no command. Invariants: an error that a command's RunE returns means failure unless it was made by Usage or Usagef; every
// other error that cobra reports (flags, arguments, unknown commands) is bad usage.
package cli

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	OK       = 0
	Failed   = 1 // the command could not do, or did not find in order, what it was asked for
	BadUsage = 2 // the command line makes no sense; nothing was done
)

type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usagef makes an error that says that the command line is at fault.
func Usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Usage says of an error that the command line, or a file of settings that it names, is at fault.
func Usage(err error) error { return usageError{err} }

// failure marks what RunE returned.
type failure struct{ error }

func (e failure) Unwrap() error { return e.error }

// Run executes root with args and returns the exit code. An error is told on root's standard error.
func Run(ctx context.Context, root *cobra.Command, args []string) int {
	prepare(root)
	root.SetArgs(args)
	c, err := root.ExecuteContextC(ctx)
	if err == nil {
		return OK
	}
	fmt.Fprintln(root.ErrOrStderr(), "kaas:", err)
	var f failure
	var u usageError
	if errors.As(err, &f) && !errors.As(err, &u) {
		return Failed
	}
	fmt.Fprintf(root.ErrOrStderr(), "Run '%s --help' for usage.\n", c.CommandPath())
	return BadUsage
}

// prepare gives root its help and completion commands and all commands the rules of this package.
func prepare(root *cobra.Command) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetHelpCommand(helpCommand())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		apply(c)
	}
}

func apply(c *cobra.Command) {
	run := c.RunE
	switch {
	case run != nil:
	case c.Run != nil:
		plain := c.Run
		run = func(c *cobra.Command, args []string) error {
			plain(c, args)
			return nil
		}
	case c.HasSubCommands():
		// cobra would print the help and exit with 0, whatever was asked for.
		c.Args = cobra.ArbitraryArgs
		run = missing
	}
	if run != nil {
		c.RunE = func(c *cobra.Command, args []string) error {
			if err := run(c, args); err != nil {
				return failure{err}
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		apply(sub)
	}
}

// missing is what a command does that only has commands below it.
func missing(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usagef("unknown command %q for %q", args[0], c.CommandPath())
	}
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return Usagef("%s needs a command: %s", c.CommandPath(), strings.Join(names, ", "))
}

// helpCommand is cobra's, except that an unknown command is an error.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Help about any command",
		RunE: func(c *cobra.Command, args []string) error {
			target, _, err := c.Root().Find(args)
			if target == nil || err != nil {
				return Usagef("unknown command %q", strings.Join(args, " "))
			}
			target.InitDefaultHelpFlag()
			return target.Help()
		},
	}
}

// Interruptible is the context of a command that ends in good order at SIGINT or SIGTERM; a second signal ends the process
// at once. release must be called.
func Interruptible(c *cobra.Command) (ctx context.Context, release func()) {
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// WriteReference writes the page docs/commands.md: every command below root with its flags and examples.
func WriteReference(w io.Writer, root *cobra.Command) error {
	prepare(root)
	var b strings.Builder
	b.WriteString("<!-- Made by go generate ./cmd/kaas from the commands themselves. Do not edit. -->\n\n# Commands\n\n")
	b.WriteString(root.Long + "\n")
	reference(&b, root)
	_, err := io.WriteString(w, b.String())
	return err
}

func reference(b *strings.Builder, parent *cobra.Command) {
	for _, c := range parent.Commands() {
		if !c.IsAvailableCommand() || c.Name() == "completion" || c.Name() == "help" {
			continue
		}
		c.InitDefaultHelpFlag()
		if c.HasAvailableSubCommands() {
			reference(b, c)
			continue
		}
		text := c.Long
		if text == "" {
			text = c.Short + "."
		}
		fmt.Fprintf(b, "\n## %s\n", c.CommandPath())
		for paragraph := range strings.SplitSeq(text, "\n\n") {
			if strings.Contains(paragraph, "\n  ") { // columns
				paragraph = "    " + strings.ReplaceAll(paragraph, "\n", "\n    ")
			}
			fmt.Fprintf(b, "\n%s\n", paragraph)
		}
		fmt.Fprintf(b, "\n    %s\n", c.UseLine())
		if c.Example != "" {
			fmt.Fprintf(b, "\nExamples:\n\n%s\n", indent(c.Example, "    "))
		}
		if flags := c.LocalFlags().FlagUsages(); c.LocalFlags().HasAvailableFlags() {
			fmt.Fprintf(b, "\nFlags:\n\n%s\n", indent(strings.TrimRight(flags, "\n"), "    "))
		}
	}
}

// indent makes a Markdown code block of lines that begin with two spaces already.
func indent(text, by string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) != "" {
			b.WriteString(by + strings.TrimPrefix(line, "  "))
		} else {
			b.WriteString("\n")
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

// Content is how bytes stand in JSON: as text where they are UTF-8, null where they are nil, else as base64 in a field of
// its own.
func Content(b []byte) (text *string, base string) {
	switch {
	case b == nil:
		return nil, ""
	case utf8.Valid(b):
		s := string(b)
		return &s, ""
	}
	return nil, base64.StdEncoding.EncodeToString(b)
}
