//go:build interop

package interop

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const javaTimeout = 3 * time.Minute // for one tool

var javaHome = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", err
	}
	home := filepath.Join(filepath.Dir(strings.TrimSpace(string(out))), ".oracle")
	if set := os.Getenv("ORACLE_HOME"); set != "" {
		home = set
	}
	if _, err := os.Stat(filepath.Join(home, "lib-3.7.2", ".complete")); err != nil {
		return "", fmt.Errorf("Apache's tools are not there, run .ci/java: %w", err)
	}
	quiet := "log4j.rootLogger=WARN, stderr\nlog4j.appender.stderr=org.apache.log4j.ConsoleAppender\n" +
		"log4j.appender.stderr.target=System.err\nlog4j.appender.stderr.layout=org.apache.log4j.PatternLayout\n" +
		"log4j.appender.stderr.layout.ConversionPattern=%d %p %m (%c)%n\n"
	return home, os.WriteFile(filepath.Join(home, "tools-log4j.properties"), []byte(quiet), 0o644)
})

// complaint is what tools say on standard error and then exit with 0.
var complaint = regexp.MustCompile(` ERROR |Exception|ismatch|out of order`)

// tool runs one of Apache's tools by class name and returns its standard output; it must succeed.
func tool(t *testing.T, stdin, class string, args ...string) string {
	t.Helper()
	out, noise, err := runTool(t, stdin, class, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", class, strings.Join(args, " "), err, out, noise)
	}
	if complaint.MatchString(noise) {
		t.Fatalf("%s %s complains:\n%s", class, strings.Join(args, " "), noise)
	}
	return out
}

// runTool returns what the tool wrote and how it ended.
func runTool(t *testing.T, stdin, class string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	home, err := javaHome()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), javaTimeout)
	defer cancel()
	java := append([]string{
		"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", // half the start time
		"-Dlog4j.configuration=file:" + filepath.Join(home, "tools-log4j.properties"),
		"-cp", filepath.Join(home, "lib-3.7.2", "*"), class,
	}, args...)
	cmd := exec.CommandContext(ctx, "java", java...)
	cmd.Stdin = strings.NewReader(stdin)
	var noise strings.Builder
	cmd.Stderr = &noise
	out, err := cmd.Output()
	return string(out), noise.String(), err
}

func wantMatch(t *testing.T, what, text, pattern string) {
	t.Helper()
	if !regexp.MustCompile(pattern).MatchString(text) {
		t.Errorf("%s: want %s, got\n%s", what, pattern, text)
	}
}

// TestJavaTopics: create, list, describe, alter and delete.
func TestJavaTopics(t *testing.T) {
	t.Parallel()
	addr, _ := startBroker(t)
	const client, class = "TopicCommand", "org.apache.kafka.tools.TopicCommand"
	topic := fmt.Sprintf("java-%d", time.Now().UnixNano())
	run := func(t *testing.T, args ...string) string {
		t.Helper()
		return tool(t, "", class, append([]string{"--bootstrap-server", addr}, args...)...)
	}
	listed := regexp.MustCompile(`(?m)^` + topic + `$`)
	cell(t, client, "create", func(t *testing.T) {
		out := run(t, "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=3600000")
		wantMatch(t, "create", out, `Created topic `+topic)
	})
	cell(t, client, "list", func(t *testing.T) {
		if out := run(t, "--list"); !listed.MatchString(out) {
			t.Errorf("%s is not in\n%s", topic, out)
		}
	})
	cell(t, client, "describe", func(t *testing.T) {
		out := run(t, "--describe", "--topic", topic)
		wantMatch(t, "head", out, `TopicId: [A-Za-z0-9_-]{22}\s+PartitionCount: 2\s+ReplicationFactor: 1\s+Configs: .*retention.ms=3600000`)
		wantMatch(t, "partition 1", out, `Partition: 1\s+Leader: (\d+)\s+Replicas: \d+\s+Isr: \d+\s*\n`)
	})
	cell(t, client, "alter", func(t *testing.T) {
		run(t, "--alter", "--topic", topic, "--partitions", "4")
		wantMatch(t, "head", run(t, "--describe", "--topic", topic), `PartitionCount: 4\s`)
	})
	cell(t, client, "delete", func(t *testing.T) {
		run(t, "--delete", "--topic", topic)
		if out := run(t, "--list"); listed.MatchString(out) {
			t.Errorf("the deleted topic is in\n%s", out)
		}
	})
}

// TestJavaProduceAndConsume: the console tools and the producer benchmark, in every compression; the files are read by
// Apache's own dump tool afterwards.
func TestJavaProduceAndConsume(t *testing.T) {
	t.Parallel()
	addr, process := startBroker(t)
	perfRecords := 200_000
	if testing.Short() {
		perfRecords = 20_000
	}
	topics := map[string]string{} // by codec
	perfTopic := ""
	for _, codec := range codecs {
		topic := newTopic(t, addr, 1)
		topics[codec.name] = topic
		consoleRoundTrip(t, addr, topic, codec.name)
		perfTopic = perfRoundTrip(t, addr, codec.name, codec.id, perfRecords)
	}
	if process == nil {
		return
	}
	// Cleanly closed files are trimmed; those of a running broker end in zeros.
	if err := process.Restart(false); err != nil {
		t.Fatal(err)
	}
	for _, codec := range codecs {
		cell(t, "DumpLogSegments", codec.name, func(t *testing.T) {
			dir := filepath.Join(process.Ready.DataDir, topics[codec.name]+"-0")
			out := tool(t, "", "kafka.tools.DumpLogSegments", "--print-data-log", "--files", filepath.Join(dir, "00000000000000000000.log"))
			wantMatch(t, "batch", out, `(?m)^baseOffset: 0 .* magic: 2 compresscodec: `+codec.name+` .* isvalid: true$`)
			if strings.Contains(out, "isvalid: false") {
				t.Errorf("a batch is not valid:\n%.2000s", out)
			}
			if n := strings.Count(out, "payload: "); n != consoleLines {
				t.Errorf("want %d records, got %d", consoleLines, n)
			}
		})
	}
	cell(t, "DumpLogSegments", "indexes", func(t *testing.T) {
		dumpIndexes(t, filepath.Join(process.Ready.DataDir, perfTopic+"-0"))
	})
}

// dumpIndexes: the dump tool compares both indexes with the log, and reads the snapshot of producers.
func dumpIndexes(t *testing.T, dir string) {
	const class, base = "kafka.tools.DumpLogSegments", "00000000000000000000"
	for suffix, pattern := range map[string]string{
		"index":     `(?m)^offset: \d+ position: [1-9]\d*$`,
		"timeindex": `(?m)^timestamp: [1-9]\d* offset: \d+$`,
	} {
		out := tool(t, "", class, "--files", filepath.Join(dir, base+"."+suffix))
		wantMatch(t, suffix, out, pattern)
	}
	snapshots, err := filepath.Glob(filepath.Join(dir, "*.snapshot"))
	if err != nil || len(snapshots) == 0 {
		t.Fatalf("no snapshot in %s %v", dir, err)
	}
	out := tool(t, "", class, "--files", snapshots[len(snapshots)-1])
	wantMatch(t, "snapshot", out, `(?m)^producerId: \d+ producerEpoch: 0 .*lastSequence: [1-9]\d* `)
}

const consoleLines = 200

// consoleRoundTrip writes lines by the console producer and reads them by the console consumer, without a group.
func consoleRoundTrip(t *testing.T, addr, topic, codec string) {
	var in strings.Builder
	want := make([]string, consoleLines) // what the consumer prints
	for i := range want {
		value := fmt.Sprintf("line %d %s", i, strings.Repeat("äx", i%40))
		fmt.Fprintf(&in, "k%d:%s\n", i, value)
		want[i] = fmt.Sprintf("Offset:%d\tk%d\t%s", i, i, value)
	}
	cell(t, "ConsoleProducer", codec, func(t *testing.T) {
		tool(t, in.String(), "kafka.tools.ConsoleProducer", "--bootstrap-server", addr, "--topic", topic,
			"--compression-codec", codec, "--property", "parse.key=true", "--property", "key.separator=:",
			"--producer-property", "batch.size=2000")
	})
	cell(t, "ConsoleConsumer", codec, func(t *testing.T) {
		out := tool(t, "", "kafka.tools.ConsoleConsumer", "--bootstrap-server", addr, "--topic", topic, "--partition", "0", "--offset", "earliest",
			"--max-messages", strconv.Itoa(len(want)), "--timeout-ms", "20000", "--property", "print.key=true", "--property", "print.offset=true")
		if got := strings.TrimSuffix(out, "\n"); got != strings.Join(want, "\n") {
			t.Errorf("what was read is not what was written:\n%.2000s", got)
		}
	})
}

// perfRoundTrip writes by the producer benchmark and counts with GetOffsetShell; franz-go looks at every record. It returns the topic.
func perfRoundTrip(t *testing.T, addr, codec string, id uint8, n int) (topic string) {
	topic = newTopic(t, addr, 3)
	const size = 100
	cell(t, "ProducerPerformance", codec, func(t *testing.T) {
		out := tool(t, "", "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", strconv.Itoa(n),
			"--record-size", strconv.Itoa(size), "--throughput", "-1",
			"--producer-props", "bootstrap.servers="+addr, "acks=all", "compression.type="+codec)
		wantMatch(t, "summary", out, fmt.Sprintf(`(?m)^%d records sent, .* 99\.9th\.$`, n))
		seen := 0
		for p, rs := range readAll(t, addr, topic) {
			for i, r := range rs {
				if r.Offset != int64(i) || len(r.Value) != size || r.Attrs.CompressionType() != id {
					t.Fatalf("partition %d offset %d: %d bytes, codec %d; want offset %d, %d bytes, codec %d",
						p, r.Offset, len(r.Value), r.Attrs.CompressionType(), i, size, id)
				}
			}
			seen += len(rs)
		}
		if seen != n {
			t.Errorf("want %d records, got %d", n, seen)
		}
	})
	cell(t, "GetOffsetShell", "offsets", func(t *testing.T) {
		out := tool(t, "", "org.apache.kafka.tools.GetOffsetShell", "--bootstrap-server", addr, "--topic", topic)
		sum := 0
		for line := range strings.Lines(out) {
			var offset int
			if _, err := fmt.Sscanf(strings.TrimPrefix(line[strings.LastIndex(line, ":"):], ":"), "%d", &offset); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			sum += offset
		}
		if sum != n {
			t.Errorf("ends add up to %d, want %d:\n%s", sum, n, out)
		}
	})
	return topic
}
