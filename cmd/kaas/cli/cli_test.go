package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// tree is a root with a command that needs a flag and an argument, and a group.
func tree() *cobra.Command {
	root := &cobra.Command{Use: "kaas", Long: "All commands."}
	var fail string
	work := &cobra.Command{
		Use:     "work NAME",
		Short:   "Do it",
		Long:    "Do it.\n\nIn columns:\n  a  b",
		Example: "  kaas group work x --need y",
		Args:    cobra.ExactArgs(1),
		RunE: func(*cobra.Command, []string) error {
			switch fail {
			case "usage":
				return fmt.Errorf("wrapped: %w", Usagef("bad %d", 1))
			case "failure":
				return errors.New("it broke")
			}
			return nil
		},
	}
	work.Flags().StringVar(&fail, "fail", "", "how to fail")
	work.Flags().Int("need", 0, "must be given")
	if err := work.MarkFlagRequired("need"); err != nil {
		panic(err)
	}
	group := &cobra.Command{Use: "group", Short: "A group"}
	group.AddCommand(work, &cobra.Command{Use: "plain", Short: "Print", Args: cobra.NoArgs, Run: func(c *cobra.Command, _ []string) { fmt.Fprintln(c.OutOrStdout(), "plain") }})
	root.AddCommand(group, &cobra.Command{Use: "secret", Hidden: true, RunE: func(*cobra.Command, []string) error { return nil }})
	return root
}

func run(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	root := tree()
	root.SetOut(&out)
	root.SetErr(&errs)
	code = Run(context.Background(), root, args)
	return code, out.String(), errs.String()
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		said string // on standard error
	}{
		{"group plain", OK, ""},
		{"group work x --need 1", OK, ""},
		{"group work x --need 1 --fail failure", Failed, "kaas: it broke\n"},
		{"group work x --need 1 --fail usage", BadUsage, "kaas: wrapped: bad 1\nRun 'kaas group work --help' for usage.\n"},
		{"group work x", BadUsage, `kaas: required flag(s) "need" not set`},
		{"group work --need 1", BadUsage, "kaas: accepts 1 arg(s), received 0\nRun 'kaas group work --help' for usage.\n"},
		{"group work x --need one", BadUsage, `kaas: invalid argument "one" for "--need" flag`},
		{"group work x --what", BadUsage, "kaas: unknown flag: --what"},
		{"group plain x", BadUsage, `kaas: unknown command "x" for "kaas group plain"`},
		{"group", BadUsage, "kaas: kaas group needs a command: plain, work\n"},
		{"group wrok", BadUsage, `kaas: unknown command "wrok" for "kaas group"`},
		{"gruop", BadUsage, `kaas: unknown command "gruop" for "kaas"`},
		{"help wrok", BadUsage, `kaas: unknown command "wrok"`},
		{"help group", OK, ""},
		{"group --help", OK, ""},
		{"completion", BadUsage, "kaas: kaas completion needs a command: bash, fish, powershell, zsh\n"},
		{"completion bash", OK, ""},
	} {
		code, _, stderr := run(strings.Fields(c.args)...)
		if code != c.code || !strings.HasPrefix(stderr, c.said) || c.said == "" && stderr != "" {
			t.Errorf("%s: code %d, want %d; stderr %q, want %q", c.args, code, c.code, stderr, c.said)
		}
	}
	if _, out, _ := run("group", "plain"); out != "plain\n" {
		t.Errorf("a command without an error prints %q", out)
	}
	if _, out, _ := run("help", "group", "work"); !strings.Contains(out, "kaas group work NAME [flags]") {
		t.Errorf("help prints %q", out)
	}
	if err := Usage(errors.New("x")); err.Error() != "x" {
		t.Error("Usage changes what the error says")
	}
}

func TestInterruptible(t *testing.T) {
	c := &cobra.Command{}
	c.SetContext(context.Background())
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		ctx, release := Interruptible(c)
		if ctx.Err() != nil {
			t.Fatal("ended before the signal")
		}
		if err := syscall.Kill(syscall.Getpid(), s); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(30 * time.Second):
			t.Fatalf("%v does not end the context", s)
		}
		release()
	}
}

func TestReference(t *testing.T) {
	var b bytes.Buffer
	if err := WriteReference(&b, tree()); err != nil {
		t.Fatal(err)
	}
	const want = `<!-- Made by go generate ./cmd/kaas from the commands themselves. Do not edit. -->

# Commands

All commands.

## kaas group plain

Print.

    kaas group plain [flags]

Flags:

    -h, --help   help for plain

## kaas group work

Do it.

    In columns:
      a  b

    kaas group work NAME [flags]

Examples:

    kaas group work x --need y

Flags:

        --fail string   how to fail
    -h, --help          help for work
        --need int      must be given
`
	if b.String() != want {
		t.Errorf("the page is\n%s\nwant\n%s", b.String(), want)
	}
}

func TestContent(t *testing.T) {
	for _, c := range []struct {
		b    []byte
		text string // "-" for null
		base string
	}{{nil, "-", ""}, {[]byte{}, "", ""}, {[]byte("héllo"), "héllo", ""}, {[]byte{0xff, 0}, "-", "/wA="}} {
		text, base := Content(c.b)
		got := "-"
		if text != nil {
			got = *text
		}
		if got != c.text || base != c.base {
			t.Errorf("%q: %q and %q, want %q and %q", c.b, got, base, c.text, c.base)
		}
	}
}
