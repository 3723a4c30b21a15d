package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"kaas/cmd/kaas/cli"
)

// deadline bounds every wait of these tests; nothing is measured by it.
const deadline = 30 * time.Second

// asProgram makes the test's binary the program: tests of signals and exit codes need a process.
const asProgram = "KAAS_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// program prepares a process that is the program.
func program(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, os.Args[0], args...)
	c.Env = append(os.Environ(), asProgram+"=1")
	return c
}

func TestWithDefault(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", "serve"},
		{"--data-dir x", "serve --data-dir x"},
		{"-h", "-h"},
		{"--help", "--help"},
		{"topic list", "topic list"},
		{"serve --listen :1", "serve --listen :1"},
	} {
		if got := withDefault(strings.Fields(c.args)); strings.Join(got, " ") != c.want {
			t.Errorf("%q becomes %q, want %q", c.args, got, c.want)
		}
	}
	if got := withDefault([]string{""}); !slices.Equal(got, []string{""}) {
		t.Errorf("an empty argument becomes %q", got)
	}
}

// TestReferenceIsFresh: docs/commands.md is what the commands say now.
func TestReferenceIsFresh(t *testing.T) {
	var b bytes.Buffer
	if err := cli.WriteReference(&b, rootCommand(time.Now())); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(page, b.Bytes()) {
		t.Error("docs/commands.md is stale: run go generate ./cmd/kaas")
	}
}

// TestBadUsage: whatever the command, a flag that does not exist is bad usage.
func TestBadUsage(t *testing.T) {
	var paths [][]string
	var walk func(c *cobra.Command, path []string)
	walk = func(c *cobra.Command, path []string) {
		for _, sub := range c.Commands() {
			p := append(slices.Clone(path), sub.Name())
			paths = append(paths, p)
			walk(sub, p)
		}
	}
	walk(rootCommand(time.Now()), nil)
	if len(paths) < 15 {
		t.Fatalf("only %d commands", len(paths))
	}
	for _, p := range append(paths, nil) {
		root := rootCommand(time.Now())
		var errs bytes.Buffer
		root.SetErr(&errs)
		root.SetOut(io.Discard)
		if code := cli.Run(context.Background(), root, append(p, "--no-such-flag")); code != cli.BadUsage || !strings.Contains(errs.String(), "unknown flag: --no-such-flag") {
			t.Errorf("%v: code %d, %q", p, code, errs.String())
		}
	}
}

// TestServeRefusesSettings: settings that cannot be are bad usage, told before anything is done.
func TestServeRefusesSettings(t *testing.T) {
	for _, arg := range []string{"--set=num.partitions=none", "--set=nothing", "--config=/no/such/file"} {
		root := rootCommand(time.Now())
		root.SetErr(io.Discard)
		dir := t.TempDir() + "/data"
		if code := cli.Run(context.Background(), root, []string{"serve", "--data-dir", dir, arg}); code != cli.BadUsage {
			t.Errorf("%s: code %d", arg, code)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s: the data directory was made", arg)
		}
	}
}

// TestProgram runs a broker and its clients as processes and ends them by signals.
func TestProgram(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	broker := program(ctx, "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--storage", "memory")
	out, err := broker.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := broker.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := broker.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := broker.Wait(); err != nil {
			t.Errorf("the broker ends with %v", err)
		}
	}()
	var ready struct{ Listeners map[string]string }
	if err := json.NewDecoder(out).Decode(&ready); err != nil {
		t.Fatal(err)
	}
	addr := ready.Listeners["PLAINTEXT"]
	t.Setenv("KAAS_BROKERS", addr)

	if got, err := program(ctx, "topic", "create", "orders", "--partitions", "1").Output(); err != nil || string(got) != "orders: created with 1 partitions\n" {
		t.Fatalf("topic create: %v, %q", err, got)
	}
	// A producer that was read from and interrupted has written what it read.
	produce := program(ctx, "produce", "--topic", "orders", "--json")
	in, err := produce.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	acks, err := produce.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := produce.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, "one\ntwo\n"); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(acks)
	for _, want := range []string{`{"topic":"orders","partition":0,"offset":0}`, `{"topic":"orders","partition":0,"offset":1}`} {
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("acknowledged %q, want %q", lines.Text(), want)
		}
	}
	interrupt(t, produce)

	consume := program(ctx, "consume", "--topic", "orders", "--follow")
	records, err := consume.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := consume.Start(); err != nil {
		t.Fatal(err)
	}
	lines = bufio.NewScanner(records)
	for _, want := range []string{"one", "two"} {
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("consumed %q, want %q", lines.Text(), want)
		}
	}
	interrupt(t, consume)
}

// interrupt sends SIGINT, after which the process must end with 0.
func interrupt(t *testing.T, c *exec.Cmd) {
	t.Helper()
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("%v after SIGINT: %v", c.Args[1:], err)
	}
}
