package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"kaas/cmd/kaas/cli"
	"kaas/server/kraft"
)

func TestImportReport(t *testing.T) {
	r := &kraft.Report{Dir: "data", ClusterID: "c", NodeID: 3, MetadataOffset: 175, NextProducerID: 1000, TornMetadata: true,
		Topics: []kraft.TopicReport{
			{Name: "__consumer_offsets", ID: "i1", Partitions: 50, LastEpoch: 2, Internal: true},
			{Name: "orders", ID: "i2", Partitions: 2, Bytes: 7788, Configs: map[string]string{"b": "2", "a": "1"}},
		},
		BrokerConfigs: map[string]map[string]string{"": {"x": "y"}, "3": {"z": ""}},
		Stored:        kraft.Stored{ACLs: 2, ScramUsers: []string{"alice SCRAM-SHA-256"}, Quotas: 1, Features: 1},
		Removed:       []string{"gone-0"}, LeftAlone: []string{"meta.properties"}, Warnings: []string{"beware"},
	}
	want := `data is imported
  cluster c, node 3, metadata up to offset 175, next producer id 1000
  it was not stopped cleanly: the first start verifies the logs from their recovery points on
  the metadata log ended inside a batch, which never counted
  internal topic __consumer_offsets: id i1, partitions 50, bytes 0, last leader epoch 2
  topic orders: id i2, partitions 2, bytes 7788, last leader epoch 0
    a=1
    b=2
  settings of all brokers
    x=y
  settings of broker 3
    z=
  quotas of 1 entities
  kept, not yet used: 2 ACLs, 1 SCRAM credentials, 1 features, 0 delegation tokens, 0 client metrics subscriptions
  removed at the next start (its topic was deleted): gone-0
  left alone: meta.properties
WARNING beware
`
	var out bytes.Buffer
	if err := writeReport(&out, r); err != nil || out.String() != want {
		t.Errorf("%v\n%s\nwant\n%s", err, out.String(), want)
	}
	out.Reset()
	again := &kraft.Report{Dir: "data", Already: true, MetadataOffset: 175}
	if err := writeReport(&out, again); err != nil || out.String() != "data was imported before, when the metadata log ended at offset 175: nothing to do\n" {
		t.Errorf("%v %q", err, out.String())
	}
	r.DryRun, r.Clean = true, true
	out.Reset()
	if err := writeReport(&out, r); err != nil || !strings.HasPrefix(out.String(), "data would be imported (nothing was changed)\n") ||
		!strings.Contains(out.String(), "  it was stopped cleanly: the logs are taken as they are\n") {
		t.Errorf("%v %q", err, out.String())
	}
}

func TestImportExitCodes(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"import", dir}, cli.Failed, "kaas: " + dir + " holds no meta.properties: it is not a data directory of Apache Kafka"},
		{[]string{"import", "--json", dir + "/none"}, cli.Failed, "no such file or directory"},
		{[]string{"import"}, cli.BadUsage, "accepts 1 arg(s), received 0"},
	} {
		root := rootCommand(time.Now())
		var out, errs bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&errs)
		if code := cli.Run(context.Background(), root, c.args); code != c.code || !strings.Contains(errs.String(), c.says) || out.Len() > 0 {
			t.Errorf("%v: exit %d, %q %q; want %d, %q", c.args, code, out.String(), errs.String(), c.code, c.says)
		}
	}
}
