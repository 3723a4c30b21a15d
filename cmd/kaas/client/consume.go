package client

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kaas/cmd/kaas/cli"
)

// consumeOptions are the flags of the command.
type consumeOptions struct {
	connection
	topic, offset, format   string
	partitions              []int32
	count                   int64
	json, follow, committed bool
}

func consumeCommand() *cobra.Command {
	var o consumeOptions
	c := &cobra.Command{
		Use:   "consume --topic TOPIC",
		Short: "Print the records of a topic",
		Long: `Print the records of a topic, one a line. Partitions are read directly, without a consumer group: nothing is committed.
The command ends when it has printed what was there when it began; with --follow it waits for more until SIGINT, or until it
has printed --count records. Within a partition records come in order, between partitions in any.

--offset says where to begin, in each partition:
  start, end       the first record there is, or behind the last one
  N, -N            offset N, or the last N offsets
  @TIME            the first record with that timestamp or a later one: milliseconds since 1970, 2006-01-02,
                   2006-01-02T15:04:05Z, or a time ago, as in @-15m

--format is a list of fields, printed with tabs between: topic, partition, offset, timestamp, key, value, headers; or a
layout with %t topic, %p partition, %o offset, %d timestamp, %k key, %v value, %K %V their lengths, %h{%k=%v } headers and
\n \t, as franz-go's RecordFormatter has it: '%k\t%v\n', '%d{go#RFC3339#} %v\n', '%v{hex}\n'. A null prints as nothing.
With --json every record is an object; keys and values that are no UTF-8 stand in base64, in keyBase64 and valueBase64.`,
		Example: `  kaas consume --topic orders
  kaas consume --topic orders --offset end --follow --json
  kaas consume --topic orders --partition 2 --offset 1000 --count 10 --format offset,key,value
  kaas consume --topic orders --offset @-1h --format '%p %o %k: %v\n'`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	f := c.Flags()
	o.flags(f)
	f.StringVar(&o.topic, "topic", "", "topic to read (required)")
	f.Int32SliceVar(&o.partitions, "partition", nil, "read these partitions only; may be given again, or with commas")
	f.StringVar(&o.offset, "offset", "start", "where to begin: start, end, N, -N or @TIME")
	f.Int64Var(&o.count, "count", 0, "end after so many records; 0: no limit")
	f.StringVar(&o.format, "format", "value", "fields with commas between, or a layout with %")
	f.BoolVar(&o.json, "json", false, "one JSON object a line")
	f.BoolVar(&o.follow, "follow", false, "wait for more records at the end")
	f.BoolVar(&o.committed, "read-committed", false, "no records of transactions that are open or were aborted")
	required(c, "topic")
	c.MarkFlagsMutuallyExclusive("json", "format")
	return c
}

// fieldLayouts are the fields of --format as layouts of the client library.
var fieldLayouts = map[string]string{
	"topic": "%t", "partition": "%p", "offset": "%o", "timestamp": "%d", "key": "%k", "value": "%v", "headers": "%h{%k=%v,}",
}

// printer returns what turns a record into output.
func (o *consumeOptions) printer() (func(b []byte, r *kgo.Record) []byte, error) {
	if o.json {
		return appendJSON, nil
	}
	layout := o.format
	if !strings.Contains(layout, "%") {
		var parts []string
		for name := range strings.SplitSeq(layout, ",") {
			l, ok := fieldLayouts[strings.TrimSpace(name)]
			if !ok {
				return nil, cli.Usagef("--format %s: %q is no field: topic, partition, offset, timestamp, key, value or headers", o.format, name)
			}
			parts = append(parts, l)
		}
		layout = strings.Join(parts, `\t`) + `\n`
	}
	f, err := kgo.NewRecordFormatter(layout)
	if err != nil {
		return nil, cli.Usagef("--format: %v", err)
	}
	return f.AppendRecord, nil
}

// place is where to begin.
type place struct {
	kind placeKind
	n    int64 // offset, number of offsets, or milliseconds since 1970
}

type placeKind int

const (
	atStart placeKind = iota
	atEnd
	atOffset
	atLast // n offsets before the end
	atTime
)

// parsePlace reads --offset; now is for times ago.
func parsePlace(s string, now time.Time) (place, error) {
	bad := cli.Usagef("--offset %s: want start, end, N, -N or @TIME", s)
	switch s {
	case "start", "earliest", "beginning":
		return place{kind: atStart}, nil
	case "end", "latest":
		return place{kind: atEnd}, nil
	}
	if at, ok := strings.CutPrefix(s, "@"); ok {
		if ms, err := strconv.ParseInt(at, 10, 64); err == nil && ms >= 0 {
			return place{atTime, ms}, nil
		}
		for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
			if t, err := time.Parse(layout, at); err == nil {
				return place{atTime, t.UnixMilli()}, nil
			}
		}
		if d, err := time.ParseDuration(at); err == nil && d <= 0 {
			return place{atTime, now.Add(d).UnixMilli()}, nil
		}
		return place{}, bad
	}
	n, err := strconv.ParseInt(s, 10, 64)
	switch {
	case err != nil:
		return place{}, bad
	case strings.HasPrefix(s, "-"):
		return place{atLast, -n}, nil
	}
	return place{atOffset, n}, nil
}

func (o *consumeOptions) run(c *cobra.Command) error {
	print, err := o.printer()
	if err != nil {
		return err
	}
	from, err := parsePlace(o.offset, time.Now())
	if err != nil {
		return err
	}
	if o.count < 0 || o.topic == "" {
		return cli.Usagef("--count is below 0, or --topic is empty")
	}
	ctx, release := cli.Interruptible(c)
	defer release()
	cl, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer cl.Close()
	r := &reader{o: o, cl: cl, adm: kadm.NewClient(cl), print: print, out: c.OutOrStdout()}
	if err = r.prepare(ctx, from); err == nil {
		err = r.run(ctx)
	}
	if ctx.Err() != nil {
		return nil // the signal is the usual end of --follow
	}
	return err
}

// prepare finds out leaders, where to begin and, without --follow, where to end.
func (r *reader) prepare(ctx context.Context, from place) error {
	ctx, cancel := context.WithTimeout(ctx, r.o.timeout)
	defer cancel()
	if err := r.locate(ctx); err != nil {
		return err
	}
	topic := r.o.topic
	starts, err := r.adm.ListStartOffsets(ctx, topic)
	if err != nil {
		return err
	}
	ends, err := r.adm.ListEndOffsets(ctx, topic)
	if r.o.committed && err == nil {
		ends, err = r.adm.ListCommittedOffsets(ctx, topic)
	}
	if err != nil {
		return err
	}
	var times kadm.ListedOffsets
	if from.kind == atTime {
		if times, err = r.adm.ListOffsetsAfterMilli(ctx, from.n, topic); err != nil {
			return err
		}
	}
	for _, p := range r.parts {
		s, _ := starts.Lookup(topic, p.id)
		e, _ := ends.Lookup(topic, p.id)
		t, _ := times.Lookup(topic, p.id)
		if err := errors.Join(s.Err, e.Err, t.Err); err != nil {
			return fmt.Errorf("partition %d: %w", p.id, err)
		}
		if err := p.place(from, s.Offset, e.Offset, t.Offset); err != nil {
			return err
		}
		p.end = e.Offset
		if r.o.follow {
			p.end = -1
		}
	}
	return nil
}

// place sets where the partition is read from; it holds offsets start to end, and atTime is the answer for that time.
func (p *part) place(from place, start, end, atTimeOffset int64) error {
	switch from.kind {
	case atStart:
		p.next = start
	case atEnd:
		p.next = end
	case atLast:
		p.next = max(start, end-from.n)
	case atTime:
		p.next = max(start, atTimeOffset)
	case atOffset:
		if from.n < start || from.n > end {
			return fmt.Errorf("partition %d: offset %d is out of range, it has %d to %d", p.id, from.n, start, end)
		}
		p.next = from.n
	}
	return nil
}

type recordObject struct {
	Topic       string         `json:"topic"`
	Partition   int32          `json:"partition"`
	Offset      int64          `json:"offset"`
	Timestamp   int64          `json:"timestamp"` // milliseconds since 1970
	Key         *string        `json:"key"`
	KeyBase64   string         `json:"keyBase64,omitempty"`
	Value       *string        `json:"value"`
	ValueBase64 string         `json:"valueBase64,omitempty"`
	Headers     []headerObject `json:"headers"`
}

type headerObject struct {
	Key         string  `json:"key"`
	Value       *string `json:"value"`
	ValueBase64 string  `json:"valueBase64,omitempty"`
}

func appendJSON(b []byte, r *kgo.Record) []byte {
	o := recordObject{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), Headers: make([]headerObject, len(r.Headers))}
	o.Key, o.KeyBase64 = cli.Content(r.Key)
	o.Value, o.ValueBase64 = cli.Content(r.Value)
	for i, h := range r.Headers {
		o.Headers[i].Key = h.Key
		o.Headers[i].Value, o.Headers[i].ValueBase64 = cli.Content(h.Value)
	}
	return append(b, encodeJSON(o)...)
}
