// Package client is the commands that talk to a broker as any client does: `kaas topic`, `kaas produce`, `kaas consume`, and
// `kaas parsley`, which can also do without one.
//
// They are for people and scripts, not for load (that is bench): lines in, lines out. They speak to any broker of Kafka's
// protocol through franz-go and know nothing of the kaas broker's inside. The client library is set up only when a
// command runs, as the broker is in the same binary.
//
// Invariants: what was acknowledged or printed was so for each record; a signal ends a command in good order with what it
// had accepted or printed; a failure of one topic or record gives exit code 1 and does not hide what was done.
package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kaas/cmd/kaas/cli"
)

// Commands are the commands to be added to the command of the program.
func Commands() []*cobra.Command {
	return []*cobra.Command{topicCommand(), produceCommand(), consumeCommand(), parsleyCommand()}
}

const (
	brokersVariable = "KAAS_BROKERS"
	defaultBrokers  = "127.0.0.1:9092"
)

// connection is how a command reaches the broker.
type connection struct {
	brokers string
	timeout time.Duration
}

func (c *connection) flags(f *pflag.FlagSet) {
	f.StringVar(&c.brokers, "brokers", "", "bootstrap `addresses`, host:port with commas between (default $"+brokersVariable+", or "+defaultBrokers+")")
	f.DurationVar(&c.timeout, "timeout", 10*time.Second, "how long to wait for the broker before giving up")
}

// addresses are the bootstrap addresses.
func (c *connection) addresses() ([]string, error) {
	given := c.brokers
	if given == "" {
		given = os.Getenv(brokersVariable)
	}
	if given == "" {
		given = defaultBrokers
	}
	list := strings.Split(given, ",")
	for i, a := range list {
		list[i] = strings.TrimSpace(a)
		if host, port, err := net.SplitHostPort(list[i]); err != nil || host == "" || port == "" {
			return nil, cli.Usagef("broker address %q: want host:port", a)
		}
	}
	return list, nil
}

// open connects: a broker that cannot be reached is told at once, and not after all the retries of the library.
func (c *connection) open(ctx context.Context, opts ...kgo.Opt) (*kgo.Client, error) {
	if c.timeout <= 0 {
		return nil, cli.Usagef("--timeout %s: want more than 0", c.timeout)
	}
	list, err := c.addresses()
	if err != nil {
		return nil, err
	}
	// The library's own pauses grow to seconds, in which neither a signal nor the end of --timeout is noticed.
	backoff := func(int) time.Duration { return pause }
	opts = append([]kgo.Opt{kgo.SeedBrokers(list...), kgo.ClientID("kaas"), kgo.RetryTimeout(c.timeout), kgo.RetryBackoffFn(backoff), kgo.MetadataMinAge(pause),
		kgo.DialTimeout(c.timeout), kgo.DisableClientMetrics()}, opts...)
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if err := cl.Ping(ctx); err != nil {
		cl.Close()
		return nil, fmt.Errorf("no broker at %s: %w", strings.Join(list, ", "), err)
	}
	return cl, nil
}

// said is an error of the broker in its own words where it gave some.
func said(err error, message string) error {
	var k *kerr.Error
	if err == nil || message == "" || !errors.As(err, &k) {
		return err
	}
	return fmt.Errorf("%s: %s", k.Message, message)
}
