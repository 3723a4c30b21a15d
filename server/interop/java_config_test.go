//go:build interop

package interop

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// refused wants the tool to end with an error that it prints.
func refused(t *testing.T, want, class string, args ...string) {
	t.Helper()
	out, noise, err := runTool(t, "", class, args...)
	if err == nil && !strings.Contains(noise, "Exception") {
		t.Errorf("%s %s succeeded:\n%s", class, strings.Join(args, " "), out)
	}
	if !strings.Contains(out+noise, want) {
		t.Errorf("%s %s: want %q, got\n%s%s", class, strings.Join(args, " "), want, out, noise)
	}
}

// TestJavaConfigs: ConfigCommand changes a broker, the default of all brokers, and is refused what Apache refuses.
func TestJavaConfigs(t *testing.T) {
	t.Parallel()
	addr, _ := startBroker(t)
	const class = "kafka.admin.ConfigCommand"
	node := []string{"--bootstrap-server", addr, "--entity-type", "brokers", "--entity-name", "1"}
	all := []string{"--bootstrap-server", addr, "--entity-type", "brokers", "--entity-default"}
	cell(t, "ConfigCommand", "brokers", func(t *testing.T) {
		tool(t, "", class, append(node, "--alter", "--add-config", "log.cleaner.threads=2,background.threads=11")...)
		tool(t, "", class, append(all, "--alter", "--add-config", "message.max.bytes=2000000")...)
		out := tool(t, "", class, append(node, "--describe")...)
		wantMatch(t, "this broker", out, `^Dynamic configs for broker 1 are:
  background.threads=11 sensitive=false synonyms=\{DYNAMIC_BROKER_CONFIG:background.threads=11, DEFAULT_CONFIG:background.threads=10\}
  log.cleaner.threads=2 sensitive=false synonyms=\{DYNAMIC_BROKER_CONFIG:log.cleaner.threads=2, DEFAULT_CONFIG:log.cleaner.threads=1\}\s*$`)
		out = tool(t, "", class, append(all, "--describe")...)
		wantMatch(t, "all brokers", out, `^Default configs for brokers in the cluster are:
  message.max.bytes=2000000 sensitive=false synonyms=\{DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=2000000\}\s*$`)
		tool(t, "", class, append(node, "--alter", "--delete-config", "log.cleaner.threads,background.threads")...)
		tool(t, "", class, append(all, "--alter", "--delete-config", "message.max.bytes")...)
		wantMatch(t, "nothing left", tool(t, "", class, append(node, "--describe")...), `^Dynamic configs for broker 1 are:\s*$`)
		refused(t, "Cannot update these configs dynamically: Set(num.partitions)", class, append(node, "--alter", "--add-config", "num.partitions=7")...)
	})
	cell(t, "ConfigCommand", "topics", func(t *testing.T) {
		of := []string{"--bootstrap-server", addr, "--entity-type", "topics", "--entity-name", newTopic(t, addr, 1)}
		tool(t, "", class, append(of, "--alter", "--add-config", "retention.ms=3600000,segment.bytes=1048576")...)
		tool(t, "", class, append(of, "--alter", "--delete-config", "segment.bytes")...)
		out := tool(t, "", class, append(of, "--describe")...)
		wantMatch(t, "one is left", out, `^Dynamic configs for topic \S+ are:
  retention.ms=3600000 sensitive=false synonyms=\{DYNAMIC_TOPIC_CONFIG:retention.ms=3600000\}\s*$`)
		refused(t, "Invalid value abc for configuration retention.ms: Not a number of type LONG", class,
			append(of, "--alter", "--add-config", "retention.ms=abc")...)
	})
}

// TestJavaOffsets: readers that begin in the middle, questions about times, and what lies on the disk.
func TestJavaOffsets(t *testing.T) {
	t.Parallel()
	addr, _ := startBroker(t)
	topic := newTopic(t, addr, 2)
	c := newClient(t, addr, kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	first := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	const n = 20
	for i := range n {
		r := &kgo.Record{Partition: 1, Value: fmt.Append(nil, i), Timestamp: first.Add(time.Duration(i) * time.Second)}
		if err := c.ProduceSync(context.Background(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	cell(t, "ConsoleConsumer", "offset", func(t *testing.T) {
		const class = "kafka.tools.ConsoleConsumer"
		at := []string{"--bootstrap-server", addr, "--topic", topic, "--partition", "1", "--timeout-ms", "20000"}
		if got := tool(t, "", class, append(at, "--offset", "17", "--max-messages", "3")...); got != "17\n18\n19\n" {
			t.Errorf("from offset 17: got %q", got)
		}
	})
	cell(t, "GetOffsetShell", "offsets", func(t *testing.T) {
		for _, q := range []struct{ time, want string }{
			{"-2", "0"}, {"-1", fmt.Sprint(n)}, {"-3", fmt.Sprint(n - 1)}, {fmt.Sprint(first.Add(4500 * time.Millisecond).UnixMilli()), "5"},
		} {
			out := tool(t, "", "org.apache.kafka.tools.GetOffsetShell", "--bootstrap-server", addr, "--topic-partitions", topic+":1", "--time", q.time)
			if want := topic + ":1:" + q.want + "\n"; out != want {
				t.Errorf("time %s: want %q, got %q", q.time, want, out)
			}
		}
	})
	const describeLogDirs = 35
	cell(t, "LogDirsCommand", "describe", func(t *testing.T) {
		args := []string{"--bootstrap-server", addr, "--describe", "--topic-list", topic}
		if _, _, ok := served(t, addr, describeLogDirs); !ok {
			refused(t, "The node does not support DESCRIBE_LOG_DIRS", "org.apache.kafka.tools.LogDirsCommand", args...)
			results.note("LogDirsCommand", "describe", "unserved")
			return
		}
		out := tool(t, "", "org.apache.kafka.tools.LogDirsCommand", args...)
		wantMatch(t, "partition 1", out, `"partition":"`+topic+`-1","size":[1-9][0-9]*,"offsetLag":0,"isFuture":false`)
	})
}
