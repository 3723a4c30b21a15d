package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"kaas/bench/floor"
	"kaas/bench/load"
)

// Command is `bench` with all that is below it, to be added to the command of the program.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure a Kafka-compatible broker",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(produceCommand(), fetchCommand(), connectionsCommand(), floorCommand(), compareCommand(), engineCommand(), reportCommand())
	return cmd
}

// target is what every load needs to know.
type target struct {
	brokers     []string
	topic       string
	connections int
	json        bool
	load.Limits
}

func (t *target) flags(f *pflag.FlagSet, connections int) {
	f.StringSliceVar(&t.brokers, "brokers", []string{"127.0.0.1:9092"}, "bootstrap `addresses`, host:port")
	f.StringVar(&t.topic, "topic", "bench", "topic `name`")
	f.IntVar(&t.connections, "connections", connections, "number of connections")
	f.BoolVar(&t.json, "json", false, "print the result as JSON")
	f.DurationVar(&t.Duration, "duration", 0, "stop after this time")
	f.Int64Var(&t.Bytes, "bytes", 0, "stop after so many bytes of record batches")
	f.Int64Var(&t.Requests, "requests", 0, "stop after so many requests")
}

// limits are the given ones, or ten seconds.
func (t *target) limits() load.Limits {
	if t.Limits == (load.Limits{}) {
		return load.Limits{Duration: 10 * time.Second}
	}
	return t.Limits
}

func produceCommand() *cobra.Command {
	var t target
	c := load.ProduceConfig{}
	cmd := &cobra.Command{
		Use:   "produce",
		Short: "Write pre-encoded batches as fast as the broker takes them, or at a fixed rate",
		Long: "Write pre-encoded record batches, one per request. Without --rate every connection keeps --pipeline requests in flight.\n" +
			"With --rate requests are due at fixed times, and latency counts from then even if the broker or a full window delays\n" +
			"the sending. The run ends with an error at the first wrong answer.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.Brokers, c.Topic, c.Connections, c.Limits = t.brokers, t.topic, t.connections, t.limits()
			c.Progress = progress(cmd.ErrOrStderr())
			r, err := load.Produce(c)
			return show(cmd, t.json, r, err)
		},
	}
	f := cmd.Flags()
	t.flags(f, 4)
	f.IntVar(&c.Partitions, "partitions", 1, "create the topic with so many partitions (0: it must exist)")
	f.IntVar(&c.Pipeline, "pipeline", 5, "requests in flight per connection")
	f.IntVar(&c.BatchBytes, "batch-bytes", 16<<10, "size of a batch; as many records as fit, at least one")
	f.IntVar(&c.RecordBytes, "record-bytes", 1<<10, "size of a record's value")
	f.IntVar(&c.Acks, "acks", -1, "acknowledgements: -1, 0 or 1")
	f.Float64Var(&c.Rate, "rate", 0, "requests per second over all connections (0: closed loop)")
	return cmd
}

func fetchCommand() *cobra.Command {
	var t target
	c := load.FetchConfig{}
	cmd := &cobra.Command{
		Use:   "fetch",
		Short: "Read a topic from beginning to end, again and again",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.Brokers, c.Topic, c.Connections, c.Limits = t.brokers, t.topic, t.connections, t.limits()
			c.Progress = progress(cmd.ErrOrStderr())
			r, err := load.Fetch(c)
			return show(cmd, t.json, r, err)
		},
	}
	f := cmd.Flags()
	t.flags(f, 4)
	f.IntVar(&c.MaxBytes, "max-bytes", 1<<20, "most bytes of an answer")
	f.BoolVar(&c.Alike, "alike", false, "the batches are all alike (written by bench produce): discard them in the kernel")
	return cmd
}

func connectionsCommand() *cobra.Command {
	var address string
	var count int
	var hold time.Duration
	cmd := &cobra.Command{
		Use:   "connections",
		Short: "Open many connections that do nothing",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			start := time.Now()
			idle, err := load.OpenIdle(address, count)
			if err != nil {
				return err
			}
			defer idle.Close()
			fmt.Fprintf(cmd.OutOrStdout(), "%d connections open after %.3f s\n", idle.Len(), time.Since(start).Seconds())
			interrupted, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			select {
			case <-interrupted.Done():
			case <-time.After(hold):
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&address, "broker", "127.0.0.1:9092", "`address` of the broker")
	f.IntVar(&count, "connections", 1000, "number of connections")
	f.DurationVar(&hold, "hold", time.Minute, "how long to keep them open")
	return cmd
}

func floorCommand() *cobra.Command {
	var listen, dir string
	cmd := &cobra.Command{
		Use:    "floor",
		Short:  "Serve the least work that a broker can do",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := floor.Listen(listen, dir)
			if err != nil {
				return err
			}
			interrupted, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			go func() {
				<-interrupted.Done()
				if err := s.Stop(); err != nil {
					os.Exit(1) // without the pipe the loop would never end
				}
			}()
			fmt.Fprintf(cmd.OutOrStdout(), "{\"address\":%q}\n", s.Address())
			return s.Serve()
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "`address` to listen on")
	cmd.Flags().StringVar(&dir, "data-dir", ".", "`directory` for its files")
	return cmd
}

// progress prints one line that is overwritten every second.
func progress(w io.Writer) load.Progress {
	var before int64
	var at time.Duration
	return func(elapsed time.Duration, requests, bytes int64) {
		fmt.Fprintf(w, "\r%4.0f s  %d requests  %.1f MB  %.1f MB/s ", elapsed.Seconds(), requests, float64(bytes)/1e6,
			float64(bytes-before)/1e6/(elapsed-at).Seconds())
		before, at = bytes, elapsed
	}
}

func show(cmd *cobra.Command, asJSON bool, r load.Result, err error) error {
	if r.Seconds > 1 || err != nil {
		fmt.Fprintln(cmd.ErrOrStderr())
	}
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(struct {
			load.Result
			BytesPerSecond    float64 `json:"bytes_per_second"`
			RequestsPerSecond float64 `json:"requests_per_second"`
		}{r, r.BytesPerSecond(), r.RequestsPerSecond()})
	}
	_, err = fmt.Fprint(cmd.OutOrStdout(), r)
	return err
}
