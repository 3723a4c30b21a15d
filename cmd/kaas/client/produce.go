package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"kaas/cmd/kaas/cli"
)

// lineMax bounds one line of the input, in bytes: a broker takes about 1 MiB unless it is told otherwise.
const lineMax = 256 << 20

// produceOptions are the flags of the command.
type produceOptions struct {
	connection
	topic, separator, nullMarker, format string
	compression, acks                    string
	headers                              []string
	partition                            int32
	create, json, quiet                  bool
}

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func produceCommand() *cobra.Command {
	var o produceOptions
	c := &cobra.Command{
		Use:   "produce --topic TOPIC",
		Short: "Write the lines of standard input to a topic, one record each",
		Long: `Write the lines of standard input to a topic, one record each. Without --key-separator records have no key. Records with a
key go to the partition that Kafka's own clients choose, others to any, all to one with --partition.

--format reads other input than lines, by a layout with %k key, %v value, %K %V their lengths, %p partition, %d timestamp,
%h{%k=%v } headers and \n \t; as franz-go's RecordReader has it. Examples: "%k\t%v\n", "%V{big32}%v", "%v{base64}\n".

The command ends at the end of the input, or at SIGINT, when the broker has acknowledged all that was read. At the first
record that fails, or that cannot be read, it stops reading, waits for those before it and ends with exit code 1.`,
		Example: `  echo hello | kaas produce --topic greetings
  kaas produce --topic orders --key-separator : --header source=test --compression zstd < orders.txt
  kaas produce --topic orders --format '%k\t%v\n' --json < orders.tsv`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	f := c.Flags()
	o.flags(f)
	f.StringVar(&o.topic, "topic", "", "topic to write to (required)")
	f.BoolVar(&o.create, "create", false, "have the broker create a topic that does not exist (auto.create.topics.enable)")
	f.StringVar(&o.separator, "key-separator", "", "what stands between key and value in each line")
	f.StringVar(&o.nullMarker, "null-marker", "", "a key or value that is exactly this is null (a null value deletes its key in a compacted topic)")
	f.StringVar(&o.format, "format", "", "layout of the input instead of lines")
	f.StringArrayVar(&o.headers, "header", nil, "a header for every record, `key=value`; may be given again")
	f.StringVar(&o.compression, "compression", "none", "none, gzip, snappy, lz4 or zstd")
	f.StringVar(&o.acks, "acks", "all", "all: the broker answers when the record is as durable as it is set to make it; 1: when it is written; 0: not at all")
	f.Int32Var(&o.partition, "partition", -1, "write to this partition")
	f.BoolVar(&o.json, "json", false, "print partition and offset of every record, one JSON object a line, in the order of acknowledgement")
	f.BoolVar(&o.quiet, "quiet", false, "no summary on standard error")
	required(c, "topic")
	return c
}

// required marks a flag that must be given.
func required(c *cobra.Command, flag string) {
	if err := c.MarkFlagRequired(flag); err != nil {
		panic("BUG: " + err.Error())
	}
}

// clientOptions turns flags into options of the client.
func (o *produceOptions) clientOptions() ([]kgo.Opt, error) {
	codec, ok := codecs[o.compression]
	if !ok {
		return nil, cli.Usagef("--compression %s: want none, gzip, snappy, lz4 or zstd", o.compression)
	}
	opts := []kgo.Opt{kgo.DefaultProduceTopic(o.topic), kgo.ProducerBatchCompression(codec), kgo.UnknownTopicRetries(1)}
	switch o.acks {
	case "all", "-1":
		// Otherwise a record that was sent before the broker went away is waited for for ever. Nothing is sent after a
		// failure, so sequences do not matter any more.
		opts = append(opts, kgo.AllowIdempotentProduceCancellation())
	case "1":
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	case "0":
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	default:
		return nil, cli.Usagef("--acks %s: want all, 1 or 0", o.acks)
	}
	if o.partition >= 0 || strings.Contains(o.format, "%p") {
		opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	if o.create {
		opts = append(opts, kgo.AllowAutoTopicCreation())
	}
	return opts, nil
}

// source returns the function that reads the next record; io.EOF after the last.
func (o *produceOptions) source(in io.Reader) (func() (*kgo.Record, error), error) {
	keys, values, err := assignments("header", o.headers)
	if err != nil {
		return nil, err
	}
	next := o.lines(in)
	if o.format != "" {
		if o.separator != "" {
			return nil, cli.Usagef("--format and --key-separator exclude each other")
		}
		r, err := kgo.NewRecordReader(bufio.NewReader(in), o.format)
		if err != nil {
			return nil, cli.Usagef("--format: %v", err)
		}
		next = r.ReadRecord
	}
	return func() (*kgo.Record, error) {
		r, err := next()
		if err != nil {
			return nil, err
		}
		if o.nullMarker != "" {
			r.Key, r.Value = o.null(r.Key), o.null(r.Value)
		}
		if o.partition >= 0 {
			r.Partition = o.partition
		}
		for i := range keys {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: keys[i], Value: []byte(values[i])})
		}
		return r, nil
	}, nil
}

func (o *produceOptions) null(b []byte) []byte {
	if string(b) == o.nullMarker {
		return nil
	}
	return b
}

// lines reads records from lines. Only the \n ends a line: a \r belongs to the value.
func (o *produceOptions) lines(in io.Reader) func() (*kgo.Record, error) {
	s := bufio.NewScanner(in)
	s.Buffer(nil, lineMax)
	s.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			return i + 1, data[:i], nil
		}
		if atEOF && len(data) > 0 {
			return len(data), data, nil
		}
		return 0, nil, nil
	})
	number := 0
	return func() (*kgo.Record, error) {
		number++
		if !s.Scan() {
			if err := s.Err(); err != nil {
				return nil, fmt.Errorf("line %d: %w", number, err)
			}
			return nil, io.EOF
		}
		line := bytes.Clone(s.Bytes())
		if line == nil {
			line = []byte{} // an empty line is an empty value, not a null one
		}
		if o.separator == "" {
			return &kgo.Record{Value: line}, nil
		}
		key, value, ok := bytes.Cut(line, []byte(o.separator))
		if !ok {
			return nil, fmt.Errorf("line %d has no %q between key and value", number, o.separator)
		}
		return &kgo.Record{Key: key, Value: value}, nil
	}
}

func (o *produceOptions) run(c *cobra.Command) error {
	opts, err := o.clientOptions()
	if err != nil {
		return err
	}
	next, err := o.source(c.InOrStdin())
	if err != nil {
		return err
	}
	if o.topic == "" {
		return cli.Usagef("--topic is empty")
	}
	ctx, release := cli.Interruptible(c)
	defer release()
	cl, err := o.open(ctx, opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	p := &producing{o: o, cl: cl, out: c.OutOrStdout(), failed: make(chan struct{})}
	return p.run(ctx, next, c.ErrOrStderr())
}

// producing is one run of the command.
type producing struct {
	o      *produceOptions
	cl     *kgo.Client
	failed chan struct{} // closed at the first record that failed

	mu    sync.Mutex // guards what follows: acknowledgements come on goroutines of the client
	out   io.Writer  // not buffered: who waits for an acknowledgement gets it
	acked int
	err   error
}

type input struct {
	record *kgo.Record
	err    error
}

// read hands over records until the input or ctx ends. It is a goroutine of its own, as a read of standard input cannot be
// interrupted; it may outlive the run.
func read(ctx context.Context, next func() (*kgo.Record, error)) <-chan input {
	ch := make(chan input)
	go func() {
		for {
			r, err := next()
			select {
			case ch <- input{r, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return ch
}

func (p *producing) run(ctx context.Context, next func() (*kgo.Record, error), progress io.Writer) error {
	readCtx, stop := context.WithCancel(ctx)
	defer stop()
	records := read(readCtx, next)
	// Not derived from ctx: what was read is still delivered after a signal.
	sendCtx, giveUp := context.WithCancelCause(context.WithoutCancel(ctx))
	defer giveUp(nil)
	go p.watch(sendCtx, giveUp)
	var bad error
	for more := true; more; {
		select {
		case in := <-records:
			switch {
			case in.err == nil:
				p.cl.Produce(sendCtx, in.record, func(r *kgo.Record, err error) {
					if errors.Is(err, context.Canceled) {
						err = context.Cause(sendCtx)
					}
					p.answered(r, err)
				})
			case errors.Is(in.err, io.EOF):
				more = false
			default:
				bad, more = in.err, false
			}
		case <-ctx.Done():
			more = false
		case <-p.failed:
			more = false
		}
	}
	flushed := p.cl.Flush(context.WithoutCancel(ctx)) // every record is acknowledged, or has failed
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.o.quiet {
		fmt.Fprintf(progress, "%d records written to %s\n", p.acked, p.o.topic)
	}
	return errors.Join(bad, p.err, flushed)
}

// watch gives up when records wait and none has been acknowledged for the time of --timeout. (The library's own delivery
// timeout counts from the timestamp of the record, which may be an old one from the input.)
func (p *producing) watch(ctx context.Context, giveUp context.CancelCauseFunc) {
	tick := time.NewTicker(p.o.timeout/10 + 1)
	defer tick.Stop()
	last, since := -1, time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			p.mu.Lock()
			acked := p.acked
			p.mu.Unlock()
			if acked != last || p.cl.BufferedProduceRecords() == 0 {
				last, since = acked, now
			} else if now.Sub(since) > p.o.timeout {
				giveUp(fmt.Errorf("no acknowledgement for %s", p.o.timeout))
			}
		}
	}
}

// answered takes the acknowledgement of a record.
func (p *producing) answered(r *kgo.Record, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		if p.err == nil { // those behind it fail of the same
			p.err = fmt.Errorf("a record for %s was not written: %w", r.Topic, err)
			close(p.failed)
		}
		return
	}
	p.acked++
	if p.o.acks == "0" {
		r.Offset = -1 // nobody said
	}
	if p.o.json {
		writeJSON(p.out, struct {
			Topic     string `json:"topic"`
			Partition int32  `json:"partition"`
			Offset    int64  `json:"offset"`
		}{r.Topic, r.Partition, r.Offset})
	}
}
