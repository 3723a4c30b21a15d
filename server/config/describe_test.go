package config

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// line writes an entry as one line: name=value source flags type [synonyms].
func line(e Entry) string {
	flags := ""
	if e.ReadOnly {
		flags += " read-only"
	}
	if e.Sensitive {
		flags += " sensitive"
	}
	v := e.Value
	if e.Null {
		v = "null" + v
	}
	var synonyms []string
	for _, s := range e.Synonyms {
		sv := s.Value
		if s.Null {
			sv = "null" + sv
		}
		synonyms = append(synonyms, fmt.Sprintf("%s=%s:%d", s.Name, sv, s.Source))
	}
	return fmt.Sprintf("%s=%s %d%s %v [%s]", e.Name, v, e.Source, flags, e.Type, strings.Join(synonyms, " "))
}

func lines(entries []Entry) []string {
	var out []string
	for _, e := range entries {
		out = append(out, line(e))
	}
	return out
}

func same(t *testing.T, what string, got []Entry, want ...string) {
	t.Helper()
	if g := lines(got); !slices.Equal(g, want) {
		t.Errorf("%s:\n got %s\nwant %s", what, strings.Join(g, "\n     "), strings.Join(want, "\n     "))
	}
}

// TestDescribeTopic holds the answers of Apache Kafka 3.7.2 to DescribeConfigs.
func TestDescribeTopic(t *testing.T) {
	b := mustLoad(t, "")
	own := map[string]string{"retention.ms": "-1", "cleanup.policy": "compact"}
	same(t, "topic", b.DescribeTopic(own, []string{"cleanup.policy", "retention.ms", "segment.bytes", "no.such", "max.message.bytes"}),
		"cleanup.policy=compact 1 LIST [cleanup.policy=compact:1 log.cleanup.policy=delete:5]",
		"max.message.bytes=1048588 5 INT [message.max.bytes=1048588:5]",
		"retention.ms=-1 1 LONG [retention.ms=-1:1]",
		"segment.bytes=1073741824 5 INT [log.segment.bytes=1073741824:5]")
	same(t, "no synonyms, no broker key", b.DescribeTopic(nil, []string{"retention.ms", "remote.storage.enable"}),
		"remote.storage.enable=false 5 BOOLEAN []", "retention.ms=604800000 5 LONG []")
	b, _ = b.WithDynamic(map[string]string{"log.segment.delete.delay.ms": "50000"}, nil)
	same(t, "dynamic default", b.DescribeTopic(own, []string{"file.delete.delay.ms"}),
		"file.delete.delay.ms=50000 3 LONG [log.segment.delete.delay.ms=50000:3 log.segment.delete.delay.ms=60000:5]")
	if got := b.DescribeTopic(nil, []string{}); len(got) != 0 {
		t.Errorf("an empty list of names gives %q", lines(got))
	}
	same(t, "a value that is no longer accepted", b.DescribeTopic(map[string]string{"segment.bytes": "1"}, []string{"segment.bytes"}),
		"segment.bytes=1 1 INT [segment.bytes=1:1 log.segment.bytes=1073741824:5]")
}

// TestCreatedTopic: all 31 entries in order, as CreateTopics v7 answers.
func TestCreatedTopic(t *testing.T) {
	got := mustLoad(t, "log.retention.hours=1\nlog.segment.bytes=99").CreatedTopic(map[string]string{"cleanup.policy": ""})
	want := map[string]string{"cleanup.policy": "=1", "retention.ms": "3600000=4", "segment.bytes": "99=4", "flush.ms": "9223372036854775807=5"}
	for _, e := range got {
		if w, ok := want[e.Name]; ok && fmt.Sprintf("%s=%d", e.Value, e.Source) != w {
			t.Errorf("%s: %s from %d, want %s", e.Name, e.Value, e.Source, w)
		}
	}
	if len(got) != 31 || !slices.IsSortedFunc(got, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("%d entries %q", len(got), lines(got))
	}
}

// TestDescribeAsApache compares every key with the answers of Apache Kafka 3.7.2
// to the same settings: apache-describe.tsv, whose lines are in the form of line.
// Left out there are the keys that describe the machine, and those whose default
// is another here.
func TestDescribeAsApache(t *testing.T) {
	data, err := os.ReadFile("testdata/apache-describe.tsv")
	if err != nil {
		t.Fatal(err)
	}
	b := mustLoad(t, "log.retention.hours=5\nlog.roll.hours=7\nmessage.max.bytes=2000000\nlog.message.timestamp.difference.max.ms=100000\n"+
		"compression.type=gzip\nlog.cleaner.min.cleanable.ratio=0.250\nlog.cleanup.policy=delete , compact\n"+
		"group.initial.rebalance.delay.ms=0\nunstable.api.versions.enable=false")
	b, bad := b.WithDynamic(map[string]string{"log.retention.ms": "9000000", "plugin.key": "s", "log.segment.delete.delay.ms": "50000",
		"max.connections": " 1000", "log.cleanup.policy": "compact"},
		map[string]string{"log.segment.delete.delay.ms": "40000", "message.max.bytes": "3000000", "own.key": "s"})
	if len(bad) != 0 {
		t.Fatal(bad)
	}
	topic := map[string]string{"cleanup.policy": "", "min.cleanable.dirty.ratio": "0.10", "segment.bytes": " 100"}
	got := map[string]string{}
	add := func(resource string, entries []Entry) {
		for _, e := range entries {
			got[resource+e.Name] = line(e)
		}
	}
	add("broker\t", b.DescribeBroker(nil))
	add("defaults\t", b.DescribeDefaults(nil))
	add("topic\t", b.DescribeTopic(topic, nil))
	for _, e := range b.CreatedTopic(topic) {
		got["created\t"+e.Name] = fmt.Sprintf("%s=%s %d", e.Name, e.Value, e.Source)
	}
	asked := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	for _, l := range asked {
		resource, want, _ := strings.Cut(l, "\t")
		name, _, _ := strings.Cut(want, "=")
		if g := got[resource+"\t"+name]; g != want {
			t.Errorf("%s:\n got %s\nwant %s", resource, g, want)
		}
		delete(got, resource+"\t"+name)
	}
	for at := range got {
		if _, name, _ := strings.Cut(at, "\t"); !strings.HasPrefix(name, "kaas.") && !strings.Contains(differ, " "+name+" ") {
			t.Errorf("%s is not in Apache's answer", at)
		}
	}
	if len(asked) < 320 {
		t.Errorf("only %d lines", len(asked))
	}
}

// differ names the keys that TestDescribeAsApache leaves out.
const differ = " log.dir log.dirs node.id broker.id listeners advertised.listeners listener.security.protocol.map " +
	"controller.listener.names controller.quorum.voters inter.broker.listener.name process.roles " +
	"offsets.topic.replication.factor transaction.state.log.replication.factor transaction.state.log.min.isr " +
	"socket.send.buffer.bytes socket.receive.buffer.bytes " +
	"super.users allow.everyone.if.no.acl.found " // the authorizer's own, not shown by Apache

// TestDescribeBroker holds the answers of Apache Kafka 3.7.2 and what follows
// from its rules.
func TestDescribeBroker(t *testing.T) {
	b := mustLoad(t, "num.partitions=1\ngroup.initial.rebalance.delay.ms=0\nunstable.api.versions.enable=false\nlog.roll.hours=5")
	same(t, "broker", b.DescribeBroker([]string{"log.retention.ms", "log.retention.hours", "num.partitions", "auto.create.topics.enable",
		"log.segment.bytes", "group.initial.rebalance.delay.ms", "no.such.key", "log.cleaner.threads", "ssl.key.password", "log.roll.ms", "log.roll.hours"}),
		"auto.create.topics.enable=true 5 read-only BOOLEAN [auto.create.topics.enable=true:5]",
		"group.initial.rebalance.delay.ms=0 4 read-only INT [group.initial.rebalance.delay.ms=0:4 group.initial.rebalance.delay.ms=3000:5]",
		"log.cleaner.threads=1 5 INT [log.cleaner.threads=1:5]",
		"log.retention.hours=168 5 read-only INT [log.retention.hours=168:5]",
		"log.retention.ms=null 5 LONG []",
		"log.roll.hours=5 4 read-only INT [log.roll.hours=5:4 log.roll.hours=168:5]",
		"log.roll.ms=null 5 LONG []",
		"log.segment.bytes=1073741824 5 INT [log.segment.bytes=1073741824:5]",
		"num.partitions=1 4 read-only INT [num.partitions=1:4 num.partitions=1:5]",
		"ssl.key.password=null 5 sensitive PASSWORD []")
	if got := b.DescribeDefaults(nil); len(got) != 0 {
		t.Errorf("dynamic defaults without any: %q", lines(got))
	}
	b, _ = b.WithDynamic(map[string]string{"log.retention.ms": " 7", "plugin.key": "s", "log.roll.ms": "9"}, map[string]string{"log.retention.ms": "8", "own.key": "s"})
	same(t, "dynamic", b.DescribeBroker([]string{"log.retention.ms", "log.roll.ms", "plugin.key", "own.key"}),
		"log.retention.ms=8 2 LONG [log.retention.ms=8:2 log.retention.ms= 7:3 log.retention.hours=168:5]",
		"log.roll.ms=9 3 LONG [log.roll.ms=9:3 log.roll.hours=5:4 log.roll.hours=168:5]",
		"own.key=null 2 read-only sensitive UNKNOWN [own.key=null:2]",
		"plugin.key=null 3 read-only sensitive UNKNOWN [plugin.key=null:3]")
	same(t, "defaults", b.DescribeDefaults(nil),
		"log.retention.ms= 7 3 LONG [log.retention.ms= 7:3]",
		"log.roll.ms=9 3 LONG [log.roll.ms=9:3]",
		"plugin.key=null 3 read-only sensitive UNKNOWN [plugin.key=null:3]")
	same(t, "selected defaults", b.DescribeDefaults([]string{"log.roll.ms"}), "log.roll.ms=9 3 LONG [log.roll.ms=9:3]")
}

func TestDescribeBrokerAll(t *testing.T) {
	got := mustLoad(t, "listener.name.x.ssl.client.auth=none\nunstable.api.versions.enable=false").DescribeBroker(nil)
	internal := 0
	for _, k := range BrokerKeys() {
		if k.Internal || k.Update == DynamicOnly {
			internal++
		}
	}
	if want := len(BrokerKeys()) - internal + 2; len(got) != want {
		t.Errorf("%d entries, want %d: the internal key and the listener's key that were set, no other internal or dynamic-only ones", len(got), want)
	}
	for _, e := range got {
		if e.Doc == "" {
			t.Errorf("%s has no documentation", e.Name)
		}
		if e.Sensitive && (e.Value != "" || !e.Null) {
			t.Errorf("%s shows its value", e.Name)
		}
	}
}

// TestTable checks what the code takes for granted about the rows.
func TestTable(t *testing.T) {
	for _, keys := range [][]Key{BrokerKeys(), TopicKeys()} {
		for i := range keys {
			k := &keys[i]
			if i > 0 && keys[i-1].Name >= k.Name {
				t.Errorf("%s is out of order", k.Name)
			}
			if (k.Class == Effective) != (k.Reason == "") {
				t.Errorf("%s: class %v, reason %q", k.Name, k.Class, k.Reason)
			}
			if !k.NoDefault {
				if _, err := k.read(k.Default); err != "" {
					t.Errorf("%s: default %q: %v", k.Name, k.Default, err)
				}
			}
			for _, s := range k.Synonyms {
				if BrokerKey(s.Name) == nil {
					t.Errorf("%s has the unknown synonym %s", k.Name, s.Name)
				}
			}
			if k.AllowedText() == "" || k.Help == "" {
				t.Errorf("%s lacks words", k.Name)
			}
		}
	}
	if len(BrokerKeys()) != 320 || len(TopicKeys()) != 31 {
		t.Errorf("%d broker and %d topic keys", len(BrokerKeys()), len(TopicKeys()))
	}
}

func TestNearest(t *testing.T) {
	for given, want := range map[string]string{
		"log.retnetion.ms": "log.retention.ms", "num.partition": "num.partitions", "kaas.durabilty": "kaas.durability",
		"advertised.listener": "advertised.listeners", "log.dirx": "log.dir", "x": "", "confluent.license.topic": "",
	} {
		if got := nearest(given); got != want {
			t.Errorf("%s: nearest is %q, want %q", given, got, want)
		}
	}
}
