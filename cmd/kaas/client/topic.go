package client

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kaas/cmd/kaas/cli"
)

func topicCommand() *cobra.Command {
	c := &cobra.Command{Use: "topic", Short: "Create, list, describe, change and delete topics"}
	c.AddCommand(topicCreateCommand(), topicListCommand(), topicDescribeCommand(), topicAlterCommand(), topicDeleteCommand())
	return c
}

// admin is one run of a topic command.
type admin struct {
	connection
	json bool
	out  io.Writer
	adm  *kadm.Client
	err  error // what failed so far
}

func (a *admin) jsonFlag(c *cobra.Command) {
	c.Flags().BoolVar(&a.json, "json", false, "one JSON object a line")
}

// with runs f with a client.
func (a *admin) with(c *cobra.Command, f func(ctx context.Context) error) error {
	a.out = c.OutOrStdout()
	ctx, release := cli.Interruptible(c)
	defer release()
	cl, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer cl.Close()
	a.adm = kadm.NewClient(cl)
	a.adm.SetTimeoutMillis(int32(min(a.timeout.Milliseconds(), 1<<31-1)))
	ctx, cancel := context.WithTimeout(ctx, 2*a.timeout) // the broker's own time, and the way there
	defer cancel()
	return errors.Join(f(ctx), a.err)
}

// done tells what became of one topic.
func (a *admin) done(topic, did string, err error) {
	if a.json {
		o := struct {
			Topic string `json:"topic"`
			Done  string `json:"done,omitempty"`
			Error string `json:"error,omitempty"`
		}{topic, did, ""}
		if err != nil {
			o.Done, o.Error = "", err.Error()
		}
		writeJSON(a.out, o)
	} else if err == nil {
		fmt.Fprintf(a.out, "%s: %s\n", topic, did)
	}
	if err != nil {
		a.err = errors.Join(a.err, fmt.Errorf("topic %s: %w", topic, err))
	}
}

func writeJSON(w io.Writer, v any) { w.Write(encodeJSON(v)) }

// encodeJSON makes a line.
func encodeJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("BUG: %T cannot be written as JSON: %v", v, err))
	}
	return append(b, '\n')
}

// assignments reads key=value arguments of a flag.
func assignments(flag string, args []string) (keys, values []string, err error) {
	for _, a := range args {
		k, v, ok := strings.Cut(a, "=")
		if !ok || k == "" {
			return nil, nil, cli.Usagef("--%s %s: want key=value", flag, a)
		}
		keys, values = append(keys, k), append(values, v)
	}
	return keys, values, nil
}

func topicCreateCommand() *cobra.Command {
	var a admin
	var partitions int32
	var replication int16
	var settings []string
	var ifNotExists bool
	c := &cobra.Command{
		Use:   "create TOPIC...",
		Short: "Create topics",
		Example: `  kaas topic create orders --partitions 3
  kaas topic create state --config cleanup.policy=compact --config segment.ms=3600000 --if-not-exists`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, topics []string) error {
			keys, values, err := assignments("config", settings)
			if err != nil {
				return err
			}
			if f := c.Flags(); f.Changed("partitions") && partitions < 1 || f.Changed("replication-factor") && replication < 1 {
				return cli.Usagef("--partitions and --replication-factor: want 1 or more")
			}
			configs := map[string]*string{}
			for i := range keys {
				configs[keys[i]] = &values[i]
			}
			return a.with(c, func(ctx context.Context) error {
				return a.create(ctx, topics, partitions, replication, configs, ifNotExists)
			})
		},
	}
	a.flags(c.Flags())
	a.jsonFlag(c)
	c.Flags().Int32Var(&partitions, "partitions", -1, "number of partitions; -1: the broker's num.partitions")
	c.Flags().Int16Var(&replication, "replication-factor", -1, "replicas of each partition; -1: the broker's default")
	c.Flags().StringArrayVar(&settings, "config", nil, "a topic setting as `key=value`; may be given again")
	c.Flags().BoolVar(&ifNotExists, "if-not-exists", false, "a topic that exists already is no failure")
	return c
}

func (a *admin) create(ctx context.Context, topics []string, partitions int32, replication int16, configs map[string]*string, ifNotExists bool) error {
	answers, err := a.adm.CreateTopics(ctx, partitions, replication, configs, topics...)
	if err != nil {
		return err
	}
	for _, topic := range topics {
		r := answers[topic]
		did := "created"
		if r.NumPartitions > 0 {
			did = fmt.Sprintf("created with %d partitions", r.NumPartitions)
		}
		if ifNotExists && errors.Is(r.Err, kerr.TopicAlreadyExists) {
			r.Err, did = nil, "exists already"
		}
		a.done(topic, did, said(r.Err, r.ErrMessage))
	}
	return nil
}

func topicDeleteCommand() *cobra.Command {
	var a admin
	var ifExists bool
	c := &cobra.Command{
		Use:     "delete TOPIC...",
		Short:   "Delete topics and all their records",
		Example: `  kaas topic delete orders state --if-exists`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, topics []string) error {
			return a.with(c, func(ctx context.Context) error {
				answers, err := a.adm.DeleteTopics(ctx, topics...)
				if err != nil {
					return err
				}
				for _, topic := range topics {
					r := answers[topic]
					did := "deleted"
					if ifExists && errors.Is(r.Err, kerr.UnknownTopicOrPartition) {
						r.Err, did = nil, "does not exist"
					}
					a.done(topic, did, said(r.Err, r.ErrMessage))
				}
				return nil
			})
		},
	}
	a.flags(c.Flags())
	a.jsonFlag(c)
	c.Flags().BoolVar(&ifExists, "if-exists", false, "a topic that does not exist is no failure")
	return c
}

func topicAlterCommand() *cobra.Command {
	var a admin
	var partitions int
	var set, unset []string
	c := &cobra.Command{
		Use:   "alter TOPIC...",
		Short: "Change settings of topics, or add partitions",
		Example: `  kaas topic alter orders --config retention.ms=86400000 --delete-config segment.bytes
  kaas topic alter orders --partitions 6`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, topics []string) error {
			keys, values, err := assignments("config", set)
			if err != nil {
				return err
			}
			var changes []kadm.AlterConfig
			for i := range keys {
				changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: keys[i], Value: &values[i]})
			}
			for _, k := range unset {
				changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: k})
			}
			grow := c.Flags().Changed("partitions")
			if grow && partitions < 1 {
				return cli.Usagef("--partitions %d: want 1 or more", partitions)
			}
			if !grow && len(changes) == 0 {
				return cli.Usagef("nothing to change: give --config, --delete-config or --partitions")
			}
			if !grow {
				partitions = 0
			}
			return a.with(c, func(ctx context.Context) error { return a.alter(ctx, topics, changes, partitions) })
		},
	}
	a.flags(c.Flags())
	a.jsonFlag(c)
	c.Flags().StringArrayVar(&set, "config", nil, "set a topic setting, `key=value`; may be given again")
	c.Flags().StringArrayVar(&unset, "delete-config", nil, "give a setting its default again, `key`; may be given again")
	c.Flags().IntVar(&partitions, "partitions", 0, "raise the number of partitions to this")
	return c
}

func (a *admin) alter(ctx context.Context, topics []string, changes []kadm.AlterConfig, partitions int) error {
	if len(changes) > 0 {
		answers, err := a.adm.AlterTopicConfigs(ctx, changes, topics...)
		if err != nil {
			return err
		}
		for _, r := range answers {
			a.done(r.Name, "settings changed", said(r.Err, r.ErrMessage))
		}
	}
	if partitions > 0 {
		answers, err := a.adm.UpdatePartitions(ctx, partitions, topics...)
		if err != nil {
			return err
		}
		for _, topic := range topics {
			r := answers[topic]
			a.done(topic, fmt.Sprintf("has %d partitions", partitions), said(r.Err, r.ErrMessage))
		}
	}
	return nil
}

func topicListCommand() *cobra.Command {
	var a admin
	var internal bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List topics",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.with(c, func(ctx context.Context) error { return a.list(ctx, internal) })
		},
	}
	a.flags(c.Flags())
	a.jsonFlag(c)
	c.Flags().BoolVar(&internal, "internal", false, "internal topics too")
	return c
}

func (a *admin) list(ctx context.Context, internal bool) error {
	all, err := a.adm.ListTopicsWithInternal(ctx)
	if err != nil {
		return err
	}
	return a.table(func(w io.Writer) {
		fmt.Fprintln(w, "TOPIC\tPARTITIONS\tID")
		for _, t := range all.Sorted() {
			if t.IsInternal && !internal {
				continue
			}
			if a.json {
				writeJSON(a.out, struct {
					Topic      string `json:"topic"`
					ID         string `json:"id"`
					Partitions int    `json:"partitions"`
					Internal   bool   `json:"internal"`
				}{t.Topic, topicID(t.ID), len(t.Partitions), t.IsInternal})
			}
			fmt.Fprintf(w, "%s\t%d\t%s\n", t.Topic, len(t.Partitions), topicID(t.ID))
		}
	})
}

// topicID is the id as Kafka's own tools write it.
func topicID(id kadm.TopicID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// table prints aligned columns, unless the output is JSON.
func (a *admin) table(rows func(w io.Writer)) error {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	rows(w)
	w.Flush()
	if a.json {
		return nil
	}
	_, err := a.out.Write(b.Bytes())
	return err
}

func topicDescribeCommand() *cobra.Command {
	var a admin
	var allConfigs bool
	c := &cobra.Command{
		Use:   "describe [TOPIC...]",
		Short: "Show partitions, offsets and settings of topics (without a name: of all)",
		Example: `  kaas topic describe orders
  kaas topic describe --json | jq '.configs'`,
		RunE: func(c *cobra.Command, topics []string) error {
			return a.with(c, func(ctx context.Context) error { return a.describe(ctx, topics, allConfigs) })
		},
	}
	a.flags(c.Flags())
	a.jsonFlag(c)
	c.Flags().BoolVar(&allConfigs, "all-configs", false, "settings at their defaults too")
	return c
}

type partitionObject struct {
	Partition   int32   `json:"partition"`
	Leader      int32   `json:"leader"`
	LeaderEpoch int32   `json:"leaderEpoch"`
	Replicas    []int32 `json:"replicas"`
	InSync      []int32 `json:"inSyncReplicas"`
	Start       int64   `json:"startOffset"` // -1: not known
	End         int64   `json:"endOffset"`
}

type topicObject struct {
	Topic      string            `json:"topic"`
	ID         string            `json:"id"`
	Internal   bool              `json:"internal"`
	Partitions []partitionObject `json:"partitions"`
	Configs    []configObject    `json:"configs"`
}

type configObject struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

func (a *admin) describe(ctx context.Context, topics []string, allConfigs bool) error {
	details, err := a.adm.ListTopicsWithInternal(ctx, topics...)
	if err != nil {
		return err
	}
	var good []string
	for _, t := range details.Sorted() {
		if t.Err != nil {
			a.done(t.Topic, "", t.Err)
			continue
		}
		good = append(good, t.Topic)
	}
	if len(good) == 0 {
		return nil
	}
	starts, err := a.adm.ListStartOffsets(ctx, good...)
	if err != nil {
		return err
	}
	ends, err := a.adm.ListEndOffsets(ctx, good...)
	if err != nil {
		return err
	}
	configs, err := a.adm.DescribeTopicConfigs(ctx, good...)
	if err != nil {
		return err
	}
	for i, topic := range good {
		t := details[topic]
		o := topicObject{Topic: topic, ID: topicID(t.ID), Internal: t.IsInternal, Configs: []configObject{}}
		for _, p := range t.Partitions.Sorted() {
			o.Partitions = append(o.Partitions, partitionObject{p.Partition, p.Leader, p.LeaderEpoch, p.Replicas, p.ISR, offsetOf(starts, p), offsetOf(ends, p)})
		}
		c, err := configs.On(topic, nil)
		if err = errors.Join(err, said(c.Err, c.ErrMessage)); err != nil {
			a.err = errors.Join(a.err, fmt.Errorf("settings of topic %s: %w", topic, err))
		}
		for _, x := range c.Configs {
			if allConfigs || x.Source == kmsg.ConfigSourceDynamicTopicConfig {
				o.Configs = append(o.Configs, configObject{x.Key, x.MaybeValue(), strings.ToLower(x.Source.String())})
			}
		}
		if i > 0 && !a.json {
			fmt.Fprintln(a.out)
		}
		if err := a.show(o); err != nil {
			return err
		}
	}
	return nil
}

func offsetOf(list kadm.ListedOffsets, p kadm.PartitionDetail) int64 {
	if o, ok := list.Lookup(p.Topic, p.Partition); ok && o.Err == nil {
		return o.Offset
	}
	return -1
}

// show prints one topic.
func (a *admin) show(o topicObject) error {
	if a.json {
		writeJSON(a.out, o)
		return nil
	}
	fmt.Fprintf(a.out, "%s  id %s\n", o.Topic, o.ID)
	for _, c := range o.Configs {
		fmt.Fprintf(a.out, "  %s=%s  (%s)\n", c.Key, c.Value, strings.ReplaceAll(c.Source, "_", " "))
	}
	return a.table(func(w io.Writer) {
		fmt.Fprintln(w, "PARTITION\tLEADER\tEPOCH\tREPLICAS\tIN-SYNC\tSTART\tEND")
		for _, p := range o.Partitions {
			fmt.Fprintf(w, "%d\t%d\t%d\t%s\t%s\t%d\t%d\n", p.Partition, p.Leader, p.LeaderEpoch, list(p.Replicas), list(p.InSync), p.Start, p.End)
		}
	})
}

func list(ids []int32) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ","), "[]")
}
