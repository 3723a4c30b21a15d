package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"kaas/bench/load"
	"kaas/bench/report"
	"kaas/bench/work"
)

// output says where results go.
type output struct {
	json  bool
	file  string
	page  string
	hgrm  string
	hlog  string
	quiet bool
}

func (o *output) flags(f *pflag.FlagSet) {
	f.BoolVar(&o.json, "json", false, "print the report as JSON instead of text")
	f.StringVar(&o.file, "report", "", "write the report to this `file`, as JSON (for bench diff)")
	f.StringVar(&o.page, "html", "", "write the report to this `file`, as a page with charts")
	f.StringVar(&o.hgrm, "hgrm", "", "write the latencies of the first result to this `file`, as an HdrHistogram percentile distribution in µs")
	f.StringVar(&o.hlog, "hlog", "", "write the latencies of the first result to this `file`, second by second, as an HdrHistogram log")
	f.BoolVar(&o.quiet, "quiet", false, "no progress line")
}

// common are the flags of all loads over the wire.
func common(f *pflag.FlagSet, s *work.Spec) {
	f.StringSliceVar(&s.Bootstrap, "bootstrap", s.Bootstrap, "bootstrap `addresses`, host:port (--brokers is the same)")
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "brokers" { // as the other commands of kaas call it
			name = "bootstrap"
		}
		return pflag.NormalizedName(name)
	})
	f.IntVar(&s.PID, "pid", 0, "process of a broker on this machine: report its processor time and memory too")
	f.IntVar(&s.Rounds, "rounds", s.Rounds, "run it so many times; the spread is the noise for bench diff")
}

func limits(f *pflag.FlagSet, s *work.Spec) {
	f.StringVar(&s.Topic, "topic", s.Topic, "topic `name`")
	f.IntVar(&s.Clients, "clients", s.Clients, "number of clients; each has its own connections")
	f.StringVar(&s.Client, "client", s.Client, "client library: kaas (own generator, cheapest) or franz-go")
	f.DurationVar(&s.Duration, "duration", 0, "stop after this time (default 10s if there is no other limit)")
	f.Int64Var(&s.Records, "records", 0, "stop after so many records")
	f.Int64Var(&s.Bytes, "bytes", 0, "stop after so many bytes")
	f.Int64Var(&s.Requests, "requests", 0, "stop after so many requests (franz-go: produced records, polls)")
	f.DurationVar(&s.WarmUp, "warm-up", 0, "run for this time before anything counts")
	f.BoolVar(&s.TLS.Enable, "tls", false, "use TLS (franz-go)")
	f.StringVar(&s.TLS.CA, "tls-ca", "", "`file` of certificates to trust, PEM (default those of the system)")
	f.StringVar(&s.TLS.Cert, "tls-cert", "", "`file` of the client's own certificate, PEM")
	f.StringVar(&s.TLS.Key, "tls-key", "", "`file` of its key, PEM")
	f.StringVar(&s.TLS.ServerName, "tls-server-name", "", "`name` in the broker's certificate, if not that of its address")
}

func producing(f *pflag.FlagSet, s *work.Spec) {
	f.IntVar(&s.Partitions, "partitions", s.Partitions, "create the topic with so many partitions (0: it must exist)")
	f.IntVar(&s.RecordSize, "record-size", s.RecordSize, "bytes of a record's value")
	f.IntVar(&s.BatchBytes, "batch-bytes", s.BatchBytes, "most bytes of a batch before compression, at least one record (0: one record by kaas, the library's own by franz-go)")
	f.DurationVar(&s.Linger, "linger", 0, "how long a batch waits for more records (franz-go; kaas always sends full batches)")
	f.IntVar(&s.Acks, "acks", s.Acks, "acknowledgements: -1, 0 or 1")
	f.IntVar(&s.InFlight, "in-flight", s.InFlight, "requests in flight per client")
	f.Float64Var(&s.Rate, "rate", s.Rate, "records per second over all clients, each due at its time; latency counts from then (0: as fast as answers come)")
	f.StringVar(&s.Compression, "compression", s.Compression, "none, gzip, snappy, lz4 or zstd")
	f.BoolVar(&s.Idempotence, "idempotence", s.Idempotence, "idempotent producer (franz-go with acks -1; kaas has none)")
	f.IntVar(&s.Keys, "keys", 0, "so many different keys, which choose the partition (franz-go; 0: none)")
	f.IntVar(&s.Buffered, "buffered", 0, "most records that a client holds (franz-go; 0: its default)")
}

func loadCommand(kind, short, long string, flags ...func(*pflag.FlagSet, *work.Spec)) *cobra.Command {
	s := work.Defaults(kind)
	var out output
	cmd := &cobra.Command{
		Use: kind, Short: short, Long: long, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runSpecs(cmd, &out, []work.Spec{s}) },
	}
	common(cmd.Flags(), &s)
	for _, add := range flags {
		add(cmd.Flags(), &s)
	}
	out.flags(cmd.Flags())
	return cmd
}

func produceCommand() *cobra.Command {
	return loadCommand(work.Produce, "Write records as fast as the broker takes them, or at a fixed rate",
		"Write records. Without --rate every client keeps --in-flight requests under way. With --rate records are due at fixed times, and latency\n"+
			"counts from then even if the broker or a full window delays the sending. The own generator sends pre-encoded batches, one per\n"+
			"request. The run ends with an error at the first wrong answer.", limits, producing)
}

func consumeCommand() *cobra.Command {
	return loadCommand(work.Consume, "Read a topic from its beginning",
		"Read a topic from its beginning: the own generator again and again until a limit is reached, franz-go without a limit once.", limits,
		func(f *pflag.FlagSet, s *work.Spec) {
			f.IntVar(&s.MaxBytes, "max-bytes", s.MaxBytes, "most bytes of an answer")
			f.StringVar(&s.Group, "group", "", "consumer `group` (franz-go)")
			f.BoolVar(&s.FanOut, "fan-out", false, "every client reads everything, instead of a share (franz-go)")
			f.BoolVar(&s.Alike, "alike", false, "the batches are all alike (written by bench produce): discard them in the kernel")
		})
}

func endToEndCommand() *cobra.Command {
	return loadCommand(work.EndToEnd, "Write at a fixed rate and read at the end; latency from the due time until it is read",
		"Write at a fixed rate and read at the same time. The first result has the latency from the time at which a record was due until a\n"+
			"consumer has it, the second that of the acknowledgements. Nobody else may write to the topic.", limits, producing)
}

func mixedCommand() *cobra.Command {
	return loadCommand(work.Mixed, "An end-to-end load beside readers of old data",
		"An end-to-end load beside clients that read another topic from its beginning, again and again.", limits, producing,
		func(f *pflag.FlagSet, s *work.Spec) {
			f.IntVar(&s.ColdReaders, "cold-readers", 4, "so many clients that read --cold-topic")
			f.StringVar(&s.ColdTopic, "cold-topic", "", "`name` of a topic that has been filled")
			f.IntVar(&s.MaxBytes, "max-bytes", s.MaxBytes, "most bytes of an answer to them")
		})
}

func connectionsCommand() *cobra.Command {
	return loadCommand(work.Connections, "Open many connections that do nothing", "Open many connections, each asking for ApiVersions once, and keep them open for a while; then tell how many of them the broker has closed\n"+
		"(connections.max.idle.ms, max.connections). Where a broker takes no more and leaves one waiting for 10 s, the run ends with an error. Each\n"+
		"takes a descriptor here and in the broker: the hard limit of open files (ulimit -Hn) bounds them.",
		func(f *pflag.FlagSet, s *work.Spec) {
			f.IntVar(&s.Clients, "clients", s.Clients, "number of connections")
			f.DurationVar(&s.Hold, "hold", s.Hold, "how long to keep them open")
		})
}

func topicsCommand() *cobra.Command {
	return loadCommand(work.Topics, "Create topics, ask for each, and delete them", "Create topics, ask for the metadata of each until it has leaders, and delete them; one request at a time.",
		func(f *pflag.FlagSet, s *work.Spec) {
			f.StringVar(&s.Topic, "topic", s.Topic, "beginning of the topics' `names`")
			f.IntVar(&s.Topics, "topics", s.Topics, "number of topics")
			f.IntVar(&s.Partitions, "partitions", s.Partitions, "partitions of each")
			f.IntVar(&s.PerRequest, "per-request", s.PerRequest, "topics in one request")
			f.BoolVar(&s.Keep, "keep", false, "do not delete them")
		})
}

func runCommand() *cobra.Command {
	var out output
	var bootstrap []string
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Run the loads of a scenario file",
		Long: "Run the loads of a scenario file, one after the other. The file is YAML: a list of loads under `loads`, and under `defaults` what they\n" +
			"share. Each has a kind (produce, consume, e2e, mixed, connections, topics), a name, and settings named as the flags.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			specs, err := work.ReadFile(args[0])
			if err != nil {
				return err
			}
			for i := range specs {
				if len(bootstrap) > 0 {
					specs[i].Bootstrap = bootstrap
				}
			}
			return runSpecs(cmd, &out, specs)
		},
	}
	cmd.Flags().StringSliceVar(&bootstrap, "bootstrap", nil, "bootstrap `addresses`, instead of those in the file")
	out.flags(cmd.Flags())
	return cmd
}

// runSpecs runs loads in turn, in interleaved rounds, and writes what came out, even when a later one fails.
func runSpecs(cmd *cobra.Command, out *output, specs []work.Spec) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	rep, rounds := report.New(), 1
	for i := range specs {
		rounds = max(rounds, specs[i].Rounds)
	}
	err := func() error {
		for round := range rounds {
			for _, s := range specs {
				if round >= s.Rounds && s.Rounds > 0 || ctx.Err() != nil {
					continue
				}
				if err := runSpec(ctx, cmd, out, rep, s); err != nil {
					return err
				}
			}
		}
		return nil
	}()
	return errors.Join(err, out.write(cmd.OutOrStdout(), rep))
}

func runSpec(ctx context.Context, cmd *cobra.Command, out *output, rep *report.Report, s work.Spec) error {
	var show load.Progress
	if errs := cmd.ErrOrStderr(); !out.quiet && isTerminal(errs) {
		show = progress(errs)
		defer fmt.Fprint(errs, "\r\x1b[K")
	}
	begun := time.Now()
	results, err := s.Run(ctx, show)
	if err != nil {
		return err
	}
	rep.Add(begun, s, results)
	if out.json {
		return nil
	}
	if s.Name != "" {
		fmt.Fprintf(cmd.OutOrStdout(), "== %s\n", s.Name)
	}
	for i := range results {
		fmt.Fprint(cmd.OutOrStdout(), &results[i])
	}
	return nil
}

func (o *output) write(stdout io.Writer, rep *report.Report) error {
	if len(rep.Runs) == 0 {
		return nil
	}
	first := &rep.Runs[0]
	begun, err := time.Parse(time.RFC3339, first.Begun)
	if err != nil {
		return err
	}
	if o.json {
		err = rep.Write(stdout)
	}
	return errors.Join(err,
		toFile(o.file, rep.Write), toFile(o.page, rep.WriteHTML),
		toFile(o.hgrm, func(w io.Writer) error { return report.WriteHGRM(w, &first.Result) }),
		toFile(o.hlog, func(w io.Writer) error { return report.WriteHLog(w, begun, &first.Result) }))
}

func toFile(name string, write func(io.Writer) error) error {
	if name == "" {
		return nil
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// progress prints one line that is overwritten every second.
func progress(w io.Writer) load.Progress {
	var before, beforeRequests int64
	var at time.Duration
	return func(elapsed time.Duration, requests, bytes int64) {
		seconds := (elapsed - at).Seconds()
		fmt.Fprintf(w, "\r%4.0f s  %d requests  %.1f MB  %.0f requests/s  %.1f MB/s \x1b[K", elapsed.Seconds(), requests, float64(bytes)/1e6,
			float64(requests-beforeRequests)/seconds, float64(bytes-before)/1e6/seconds)
		before, beforeRequests, at = bytes, requests, elapsed
	}
}

// errWorse is returned when a comparison found something worse.
var errWorse = errors.New("worse beyond noise")
