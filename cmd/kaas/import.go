package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"kaas/server"
	"kaas/server/kraft"
)

// importCommand takes over a data directory of Apache Kafka's.
func importCommand() *cobra.Command {
	var opts kraft.Options
	var asJSON bool
	c := &cobra.Command{
		Use:   "import DIR",
		Short: "Take over a data directory that Apache Kafka wrote",
		Long: `Take over a data directory that Apache Kafka 3.7 wrote in KRaft mode, one node that is both broker and controller, so that
kaas serve opens it: topics with their ids and settings, logs, groups' offsets, transactions, broker settings, cluster id. The metadata
log is read once; from then on __kaas in the directory says what exists. Logs stay as they are: nothing is copied.

Client quotas are taken over; ACLs and SCRAM credentials are kept too, but not yet used; with ACLs or credentials the import is refused unless --unprotected
is given, since everybody who reaches the port could then read and write. docs/import.md says what is taken, what is left alone, and how to
go back.

The broker must be stopped. If the import is refused or fails the directory is as it was; run again it says that there is nothing to
do.`,
		Example: `  kaas import --dry-run /var/lib/kafka/data
  kaas import /var/lib/kafka/data && kaas serve --data-dir /var/lib/kafka/data`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			r, err := server.ImportDir(args[0], opts)
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(r)
			}
			return writeReport(c.OutOrStdout(), r)
		},
	}
	c.Flags().BoolVar(&opts.DryRun, "dry-run", false, "say what would be done and change nothing")
	c.Flags().BoolVar(&opts.Unprotected, "unprotected", false, "import although there are ACLs or SCRAM credentials, which are not enforced yet")
	c.Flags().BoolVar(&asJSON, "json", false, "the report as one JSON object")
	return c
}

// lines writes lines and remembers the first error.
type lines struct {
	w   io.Writer
	err error
}

func (l *lines) line(format string, args ...any) {
	if l.err == nil {
		_, l.err = fmt.Fprintf(l.w, format+"\n", args...)
	}
}

// writeReport writes a report for people.
func writeReport(w io.Writer, r *kraft.Report) error {
	l := &lines{w: w}
	if r.Already {
		l.line("%s was imported before, when the metadata log ended at offset %d: nothing to do", r.Dir, r.MetadataOffset)
		return l.err
	}
	switch {
	case r.DryRun:
		l.line("%s would be imported (nothing was changed)", r.Dir)
	default:
		l.line("%s is imported", r.Dir)
	}
	l.line("  cluster %s, node %d, metadata up to offset %d, next producer id %d", r.ClusterID, r.NodeID, r.MetadataOffset, r.NextProducerID)
	if r.Clean {
		l.line("  it was stopped cleanly: the logs are taken as they are")
	} else {
		l.line("  it was not stopped cleanly: the first start verifies the logs from their recovery points on")
	}
	if r.TornMetadata {
		l.line("  the metadata log ended inside a batch, which never counted")
	}
	for i := range r.Topics {
		t := &r.Topics[i]
		kind := "topic"
		if t.Internal {
			kind = "internal topic"
		}
		l.line("  %s %s: id %s, partitions %d, bytes %d, last leader epoch %d", kind, t.Name, t.ID, t.Partitions, t.Bytes, t.LastEpoch)
		l.settings("    ", t.Configs)
	}
	for _, node := range slices.Sorted(maps.Keys(r.BrokerConfigs)) {
		if node == "" {
			l.line("  settings of all brokers")
		} else {
			l.line("  settings of broker %s", node)
		}
		l.settings("    ", r.BrokerConfigs[node])
	}
	s := r.Stored
	l.line("  quotas of %d entities", s.Quotas)
	l.line("  kept, not yet used: %d ACLs, %d SCRAM credentials, %d features, %d delegation tokens, %d client metrics subscriptions",
		s.ACLs, len(s.ScramUsers), s.Features, s.Tokens, s.ClientMetrics)
	for _, name := range r.Removed {
		l.line("  removed at the next start (its topic was deleted): %s", name)
	}
	for _, name := range r.LeftAlone {
		l.line("  left alone: %s", name)
	}
	for _, text := range r.Warnings {
		l.line("WARNING %s", text)
	}
	return l.err
}

func (l *lines) settings(indent string, m map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		l.line("%s%s=%s", indent, key, m[key])
	}
}
