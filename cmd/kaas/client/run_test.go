package client

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"kaas/cmd/kaas/cli"
	"kaas/server"
	"kaas/server/config"
)

// deadline bounds every wait of these tests; nothing is measured by it.
const deadline = 30 * time.Second

// broker runs one for the length of the test and returns its address. settings are key, value, key, value…
func broker(t *testing.T, settings ...string) string {
	t.Helper()
	b := startBroker(t, settings...)
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
	return b.Ready().Listeners["PLAINTEXT"]
}

func startBroker(t *testing.T, settings ...string) *server.Broker {
	t.Helper()
	opts := config.Options{}
	settings = append([]string{"log.dirs", t.TempDir(), "listeners", "PLAINTEXT://127.0.0.1:0", "kaas.storage", "memory"}, settings...)
	for i := 0; i < len(settings); i += 2 {
		opts.Settings = append(opts.Settings, config.Setting{Key: settings[i], Value: settings[i+1], Origin: "test"})
	}
	cfg, err := config.Load(opts)
	if err != nil {
		t.Fatal(err)
	}
	b, err := server.Start(cfg, time.Now(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// buffer is written by a command and read by a test.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// session is a broker's address and what runs commands against it.
type session struct {
	t    *testing.T
	addr string
}

// start runs a command in the background; end waits for its exit code.
func (s session) start(ctx context.Context, in io.Reader, out io.Writer, args ...string) (errs *buffer, end func() int) {
	s.t.Helper()
	root := &cobra.Command{Use: "kaas"}
	root.AddCommand(Commands()...)
	errs = &buffer{}
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	if s.addr != "" {
		args = append(args, "--brokers", s.addr)
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	code := make(chan int, 1)
	go func() {
		defer cancel()
		code <- cli.Run(ctx, root, args)
	}()
	return errs, func() int { return <-code }
}

// run runs a command.
func (s session) run(in string, args ...string) (code int, stdout, stderr string) {
	s.t.Helper()
	var out buffer
	errs, end := s.start(context.Background(), strings.NewReader(in), &out, args...)
	code = end()
	return code, out.String(), errs.String()
}

// want runs a command that must succeed and print that.
func (s session) want(in, stdout string, args ...string) {
	s.t.Helper()
	if code, out, errs := s.run(in, args...); code != cli.OK || out != stdout {
		s.t.Errorf("%q: code %d, %s\n%s\nwant\n%s", args, code, errs, out, stdout)
	}
}

// fails runs a command that must end with that code and error.
func (s session) fails(in string, code int, stderr string, args ...string) {
	s.t.Helper()
	if got, _, errs := s.run(in, args...); got != code || !strings.Contains(errs, stderr) {
		s.t.Errorf("%q: code %d, want %d; %q, want %q", args, got, code, errs, stderr)
	}
}

func TestUsage(t *testing.T) {
	s := session{t, "127.0.0.1:1"} // nothing listens there: usage is checked before anything is dialled
	for _, c := range []struct{ args, said string }{
		{"topic create", "requires at least 1 arg(s)"},
		{"topic create x --config novalue", "--config novalue: want key=value"},
		{"topic create x --config =v", "--config =v: want key=value"},
		{"topic create x --partitions 0", "--partitions and --replication-factor: want 1 or more"},
		{"topic create x --partitions many", "invalid argument"},
		{"topic create x --replication-factor -1", "want 1 or more"},
		{"topic list x", "unknown command"},
		{"topic alter x", "nothing to change: give --config, --delete-config or --partitions"},
		{"topic alter x --partitions 0", "--partitions 0: want 1 or more"},
		{"topic delete", "requires at least 1 arg(s)"},
		{"produce", `required flag(s) "topic" not set`},
		{"produce --topic=", "--topic is empty"},
		{"produce --topic x --compression brotli", "--compression brotli: want none, gzip, snappy, lz4 or zstd"},
		{"produce --topic x --acks 2", "--acks 2: want all, 1 or 0"},
		{"produce --topic x --header h", "--header h: want key=value"},
		{"produce --topic x --format %k --key-separator :", "--format and --key-separator exclude each other"},
		{"produce --topic x --format %q", "--format: "},
		{"produce --topic x --timeout 0s", "--timeout 0s: want more than 0"},
		{"produce --topic x y", "unknown command"},
		{"consume", `required flag(s) "topic" not set`},
		{"consume --topic=", "--topic is empty"},
		{"consume --topic x --offset middle", "--offset middle: want start, end, N, -N or @TIME"},
		{"consume --topic x --offset @soon", "--offset @soon: want"},
		{"consume --topic x --offset @15m", "--offset @15m: want"},
		{"consume --topic x --count -1", "--count is below 0"},
		{"consume --topic x --format value,colour", `"colour" is no field: topic, partition, offset, timestamp, key, value or headers`},
		{"consume --topic x --format %", "--format: "},
		{"consume --topic x --json --format key", "none of the others can be"},
		{"consume --topic x --partition one", "invalid argument"},
	} {
		s.fails("", cli.BadUsage, c.said, strings.Fields(c.args)...)
	}
	s.addr = ""
	s.fails("", cli.BadUsage, `unknown command "what" for "kaas topic"`, "topic", "what")
	s.fails("", cli.BadUsage, "kaas topic needs a command: alter, create, delete, describe, list", "topic")
	for _, addr := range []string{"host", "host:", ":9092", "a:1,b"} {
		s.fails("", cli.BadUsage, "want host:port", "topic", "list", "--brokers", addr)
	}
}

func TestBrokerAddress(t *testing.T) {
	addr := broker(t)
	s := session{t: t}
	t.Setenv(brokersVariable, "127.0.0.1:1, "+addr)
	s.want("", "TOPIC  PARTITIONS  ID\n", "topic", "list")
	t.Setenv(brokersVariable, "127.0.0.1:1")
	for _, args := range []string{"topic list", "produce --topic x", "consume --topic x"} {
		s.fails("", cli.Failed, "no broker at 127.0.0.1:1: ", strings.Fields(args)...)
	}
	s.want("", "TOPIC  PARTITIONS  ID\n", "topic", "list", "--brokers", addr)
}
