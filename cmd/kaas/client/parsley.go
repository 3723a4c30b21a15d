package client

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kaas/cmd/kaas/cli"
	"kaas/codec/parsley"
)

func parsleyCommand() *cobra.Command {
	c := &cobra.Command{Use: "parsley", Short: "Look into what causal delivery writes"}
	c.AddCommand(parsleyDecodeCommand())
	return c
}

// decodeOptions are the flags of the command.
type decodeOptions struct {
	connection
	as, encoding string
	topic        string
	partition    int32
	offset       int64
	json, parity bool
}

const (
	inputMax       = 16 << 20           // characters of standard input
	stateChangelog = "-state-changelog" // how the names of topics end that hold a state store
	foldChangelog  = "-fold-changelog"  // and a fold store, whose values are those of the application
)

func parsleyDecodeCommand() *cobra.Command {
	var o decodeOptions
	c := &cobra.Command{
		Use:   "decode {BYTES | KEY VALUE | --topic TOPIC --offset N}",
		Short: "Print a clock, header, store entry or held record",
		Long: `Print what bytes of causal delivery say: a clock, a record header, a key of a node's state store, such a key with its value, or
a held record. BYTES and VALUE are hexadecimal or base64 digits, or - for standard input; a KEY may be its own text, as
in f/01020304-0506-0708-090a-0b0c0d0e0f10:7. Digits that could be both are taken for hexadecimal; --encoding decides.

With --topic the record at that offset is read from a broker, and topics of claims get their names. Its headers are
printed; of a topic whose name ends in -state-changelog, the store entry, in -fold-changelog, the key.

--as says what the bytes are; without it a store key, a clock or a held record is recognised:
  clock, vc          a clock: the header vc, and the values of the keys cc/... and ca
  vc-sender, vc-seq  the other two headers
  key                a key of a state store
  entry              KEY and VALUE of a state store
  held               a held record
  tick, fold         the key of a tick record, and of an entry of a fold store
  record             the headers of a record (with --topic)

What does not follow the layout exactly is corrupt: the command says where, and ends with 1.`,
		Example: `  kaas parsley decode 010000000000000000
  kaas parsley decode --as vc-seq AAAAAAAAAAk=
  kaas parsley decode f/01020304-0506-0708-090a-0b0c0d0e0f10:7 0000000000000029
  kaas parsley decode --topic orders --partition 2 --offset 1000 --json`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error { return o.run(c, args) },
	}
	f := c.Flags()
	o.flags(f)
	f.StringVar(&o.as, "as", "", "what the bytes are (default: find out)")
	f.StringVar(&o.encoding, "encoding", "", "digits of the arguments: hex, base64 or text (default: find out)")
	f.StringVar(&o.topic, "topic", "", "read a record of this topic")
	f.Int32Var(&o.partition, "partition", 0, "partition of the record")
	f.Int64Var(&o.offset, "offset", -1, "offset of the record")
	f.BoolVar(&o.json, "json", false, "print a JSON object")
	f.BoolVar(&o.parity, "parity", false, "read what the implementation on Kafka Streams reads, disorder and duplicates too")
	return c
}

func (o *decodeOptions) run(c *cobra.Command, args []string) error {
	if err := o.check(args); err != nil {
		return err
	}
	d := decoder{}
	if o.parity {
		d.rules = parsley.Parity
	}
	var f finding
	var err error
	if o.topic != "" {
		f, err = o.fetched(c, &d)
	} else {
		f, err = o.given(c.InOrStdin(), &d, args)
	}
	if err != nil {
		return err
	}
	if o.json {
		_, err = c.OutOrStdout().Write(encodeJSON(f))
		return err
	}
	return f.write(c.OutOrStdout())
}

// check refuses flags and arguments that do not go together.
func (o *decodeOptions) check(args []string) error {
	_, alone := kinds[o.as]
	switch {
	case o.topic != "" && len(args) > 0:
		return cli.Usagef("--topic and %q: want one of them", args[0])
	case o.topic != "" && (o.offset < 0 || o.partition < 0):
		return cli.Usagef("--topic wants --offset and --partition of 0 or more")
	case o.topic != "" && o.as != "" && !slices.Contains([]string{"record", "entry", "tick", "fold"}, o.as):
		return cli.Usagef("--as %s: of a record, want record, entry, tick or fold", o.as)
	case o.topic != "":
		return nil
	case len(args) == 0:
		return cli.Usagef("nothing to decode: give BYTES, KEY and VALUE, or --topic")
	case o.offset != -1 || o.partition != 0:
		return cli.Usagef("--offset and --partition want --topic")
	case !slices.Contains([]string{"", "hex", "base64", "text"}, o.encoding):
		return cli.Usagef("--encoding %s: want hex, base64 or text", o.encoding)
	case len(args) == 2 && o.as != "" && o.as != "entry":
		return cli.Usagef("--as %s: it takes one argument", o.as)
	case len(args) == 1 && o.as == "entry":
		return cli.Usagef("--as entry: it takes a key and a value")
	case o.as != "" && o.as != "entry" && !alone:
		return cli.Usagef("--as %s: want entry, %s", o.as, strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
	case len(args) == 2 && args[0] == "-" && args[1] == "-":
		return cli.Usagef("standard input can be one of key and value")
	}
	return nil
}

// given decodes the arguments.
func (o *decodeOptions) given(in io.Reader, d *decoder, args []string) (finding, error) {
	for i, a := range args {
		if a != "-" {
			continue
		}
		b, err := io.ReadAll(io.LimitReader(in, inputMax+1))
		if err != nil {
			return nil, err
		}
		if len(b) > inputMax {
			return nil, fmt.Errorf("standard input has more than %d characters", inputMax)
		}
		args[i] = strings.TrimSpace(string(b))
	}
	first, err := o.bytes(args[0], len(args) == 2 || o.as == "" || o.as == "key")
	if err != nil {
		return nil, err
	}
	if len(args) == 2 {
		value, err := o.bytes(args[1], false)
		if err != nil {
			return nil, err
		}
		return d.entry(first, value)
	}
	if decode, ok := kinds[o.as]; ok {
		return decode(d, first)
	}
	if f, err := d.storeKey(first); err == nil {
		return f, nil
	}
	f, clockErr := d.clock(first)
	if clockErr == nil {
		return f, nil
	}
	f, heldErr := d.held(first)
	if heldErr == nil {
		return f, nil
	}
	return nil, fmt.Errorf("not recognised, say --as what it is: no store key; %w; %w", clockErr, heldErr)
}

// bytes are what the digits stand for; never nil. key: the argument may be the text of a store key.
func (o *decodeOptions) bytes(s string, key bool) ([]byte, error) {
	digits := strings.Join(strings.Fields(s), "")
	_, notKey := parsley.ParseKey([]byte(s))
	switch {
	case o.encoding == "text", key && o.encoding == "" && notKey == nil:
		return []byte(s), nil
	case o.encoding != "base64":
		b, err := hex.DecodeString(digits)
		if err == nil {
			return b, nil
		}
		if o.encoding == "hex" {
			return nil, cli.Usagef("%q: %v", s, err)
		}
	}
	digits = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(digits, "="))
	b, err := base64.RawStdEncoding.DecodeString(digits)
	if err != nil {
		return nil, cli.Usagef("%q is neither hexadecimal nor base64", s)
	}
	return b, nil
}

// fetched decodes a record of a topic.
func (o *decodeOptions) fetched(c *cobra.Command, d *decoder) (finding, error) {
	ctx, release := cli.Interruptible(c)
	defer release()
	cl, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	r, id, err := o.fetch(ctx, cl)
	if err != nil {
		return nil, err
	}
	if d.names, err = topicNames(ctx, cl); err != nil {
		return nil, err
	}
	as := o.as
	switch {
	case as != "":
	case strings.HasSuffix(o.topic, stateChangelog):
		as = "entry"
	case strings.HasSuffix(o.topic, foldChangelog):
		as = "fold"
	}
	var f finding
	switch as {
	case "entry":
		f, err = d.entry(r.Key, r.Value)
	case "tick":
		f, err = d.tick(r.Key)
	case "fold":
		f, err = d.fold(r.Key)
	default:
		f, err = d.record(r, id)
	}
	if err != nil {
		return nil, fmt.Errorf("topic %s, partition %d, offset %d: %w", o.topic, o.partition, o.offset, err)
	}
	return f, nil
}

// fetch reads the record that has just that offset.
func (o *decodeOptions) fetch(ctx context.Context, cl *kgo.Client) (*kgo.Record, uuid.UUID, error) {
	var found *kgo.Record
	r := &reader{
		o:  &consumeOptions{connection: o.connection, topic: o.topic, partitions: []int32{o.partition}, count: 1},
		cl: cl, adm: kadm.NewClient(cl), out: io.Discard,
		print: func(b []byte, rec *kgo.Record) []byte { found = rec; return b },
	}
	if err := r.prepare(ctx, place{atOffset, o.offset}); err != nil {
		return nil, uuid.UUID{}, err
	}
	r.parts[0].end = min(r.parts[0].end, o.offset+1)
	if err := r.run(ctx); err != nil {
		return nil, uuid.UUID{}, err
	}
	switch {
	case ctx.Err() != nil:
		return nil, uuid.UUID{}, errors.New("interrupted")
	case found == nil:
		return nil, uuid.UUID{}, fmt.Errorf("topic %s, partition %d: no record at offset %d: it is not written yet, was compacted away, or is a marker of a transaction", o.topic, o.partition, o.offset)
	}
	return found, uuid.UUID(r.id), nil
}

// topicNames are the names of all topics there are.
func topicNames(ctx context.Context, cl *kgo.Client) (map[uuid.UUID]string, error) {
	topics, err := kadm.NewClient(cl).ListTopicsWithInternal(ctx)
	if err != nil {
		return nil, err
	}
	names := make(map[uuid.UUID]string, len(topics))
	for name, t := range topics {
		if t.ID != (kadm.TopicID{}) {
			names[uuid.UUID(t.ID)] = name
		}
	}
	return names, nil
}
