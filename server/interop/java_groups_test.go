//go:build interop

package interop

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestJavaGroups: the console consumer, the verifiable one and the benchmark consume with groups; ConsumerGroupCommand lists, describes, resets
// and deletes them; the dump tool decodes what the broker wrote.
func TestJavaGroups(t *testing.T) {
	t.Parallel()
	addr, process := startBroker(t, "--set", "group.initial.rebalance.delay.ms=0", "--set", "offsets.topic.num.partitions=1")
	topic := newTopic(t, addr, 2)
	c := newClient(t, addr, kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	first := time.Now().Add(-time.Hour).Truncate(time.Second)
	for i := range 20 {
		r := &kgo.Record{Partition: int32(i % 2), Value: fmt.Append(nil, "value-", i), Timestamp: first.Add(time.Duration(i) * time.Minute)}
		if err := c.ProduceSync(newContext(t), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	const command = "kafka.admin.ConsumerGroupCommand"
	groups := func(t *testing.T, args ...string) string {
		t.Helper()
		return tool(t, "", command, append([]string{"--bootstrap-server", addr, "--timeout", "60000"}, args...)...)
	}
	console := func(t *testing.T, group string, n int, args ...string) string {
		t.Helper()
		return tool(t, "", "kafka.tools.ConsoleConsumer", append([]string{"--bootstrap-server", addr, "--topic", topic, "--group", group,
			"--max-messages", fmt.Sprint(n), "--timeout-ms", "60000"}, args...)...)
	}
	cell(t, "ConsoleConsumer", "group", func(t *testing.T) {
		if got := strings.Count(console(t, "g1", 20, "--from-beginning"), "value-"); got != 20 {
			t.Errorf("%d records, want 20", got)
		}
	})
	cell(t, "ConsumerGroupCommand", "describe", func(t *testing.T) {
		wantMatch(t, "list", groups(t, "--list"), `(?m)^g1$`)
		wantMatch(t, "list of states", groups(t, "--list", "--state"), `(?m)^g1 +Empty`)
		wantMatch(t, "offsets", groups(t, "--describe", "--group", "g1", "--offsets"), `g1 +`+topic+` +1 +10 +10 +0`)
		wantMatch(t, "state", groups(t, "--describe", "--group", "g1", "--state", "--verbose"), `g1 +.*Empty +0`)
	})
	cell(t, "ConsumerGroupCommand", "members", func(t *testing.T) { javaMembers(t, addr, topic, groups) })
	cell(t, "ConsumerGroupCommand", "reset", func(t *testing.T) { javaResets(t, topic, first, groups) })
	cell(t, "ConsumerGroupCommand", "delete", func(t *testing.T) {
		wantMatch(t, "offsets", groups(t, "--delete-offsets", "--group", "g1", "--topic", topic), topic+` +1 +Successful`)
		console(t, "g2", 20, "--from-beginning")
		wantMatch(t, "delete", groups(t, "--delete", "--group", "g2"), `(?:was|were) successful`)
		if out := groups(t, "--list"); strings.Contains(out, "g2") {
			t.Errorf("listed after its deletion: %s", out)
		}
	})
	cell(t, "VerifiableConsumer", "group", func(t *testing.T) {
		out := tool(t, "", "org.apache.kafka.tools.VerifiableConsumer", "--bootstrap-server", addr, "--topic", topic, "--group-id", "verify",
			"--max-messages", "20", "--reset-policy", "earliest", "--enable-autocommit")
		wantMatch(t, "assigned", out, `"name":"partitions_assigned"`)
		wantMatch(t, "end", out, `"name":"shutdown_complete"`)
	})
	cell(t, "ConsumerPerformance", "group", func(t *testing.T) {
		out := tool(t, "", "org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server", addr, "--topic", topic, "--group", "perf", "--messages", "20")
		wantMatch(t, "records", out, `, 20, `)
	})
	if process == nil {
		return
	}
	cell(t, "DumpLogSegments", "offsets", func(t *testing.T) {
		if err := process.Restart(false); err != nil { // a stop cuts the files to their true length
			t.Fatal(err)
		}
		out := tool(t, "", "kafka.tools.DumpLogSegments", "--offsets-decoder", "--files",
			filepath.Join(process.Ready.DataDir, "__consumer_offsets-0", "00000000000000000000.log"))
		wantMatch(t, "offset", out, `key: offset_commit::group=g1,partition=`+topic+`-1 payload: offset=10\b`)
		wantMatch(t, "group", out, `key: group_metadata::group=g1 payload: \{"protocolType":"consumer","protocol":"range","generationId":1,`)
		wantMatch(t, "removal", out, `key: group_metadata::group=g2 payload: <DELETE>`)
	})
}

// javaMembers describes a group while a consumer of it runs.
func javaMembers(t *testing.T, addr, topic string, groups func(t *testing.T, args ...string) string) {
	home, err := javaHome()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), javaTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m",
		"-cp", filepath.Join(home, "lib-3.7.2", "*"), "org.apache.kafka.tools.VerifiableConsumer",
		"--bootstrap-server", addr, "--topic", topic, "--group-id", "live", "--group-instance-id", "static-1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	defer cancel()
	var out string
	for {
		out, _, _ = runTool(t, "", "kafka.admin.ConsumerGroupCommand", "--bootstrap-server", addr, "--timeout", "60000", "--describe", "--group", "live", "--members", "--verbose")
		if strings.Contains(out, "static-1") && strings.Contains(out, topic+"(0,1)") {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("no member is assigned: %s", out)
		}
	}
	wantMatch(t, "member", out, `live +static-1-\S+ +static-1 +/127.0.0.1 +consumer-live-\S+ +2 +`)
	wantMatch(t, "state", groups(t, "--describe", "--group", "live", "--state"), `range +Stable +1`)
}

// javaResets moves the offsets of g1 in every way there is; first is the time of the first record, and they are a minute apart.
func javaResets(t *testing.T, topic string, first time.Time, groups func(t *testing.T, args ...string) string) {
	for _, mode := range []struct{ args, want string }{
		{"--to-earliest", " +1 +0"}, {"--to-latest", " +1 +10"}, {"--shift-by -3", " +1 +7"}, {"--to-offset 4", " +1 +4"},
		{"--by-duration PT45M", " +1 +[789]"}, {"--to-current", " +1 +[789]"},
		{"--to-datetime " + first.Add(5*time.Minute).UTC().Format("2006-01-02T15:04:05.000Z"), " +1 +2"},
	} {
		args := append([]string{"--group", "g1", "--reset-offsets", "--execute", "--topic", topic}, strings.Fields(mode.args)...)
		wantMatch(t, mode.args, groups(t, args...), "g1 +"+topic+mode.want)
	}
	plan := filepath.Join(t.TempDir(), "plan.csv")
	if err := os.WriteFile(plan, fmt.Appendf(nil, "%s,0,3\n%s,1,6\n", topic, topic), 0o644); err != nil {
		t.Fatal(err)
	}
	wantMatch(t, "from a file", groups(t, "--group", "g1", "--reset-offsets", "--execute", "--from-file", plan), "g1 +"+topic+" +1 +6")
	out := groups(t, "--group", "g1", "--reset-offsets", "--dry-run", "--export", "--all-topics", "--to-current")
	wantMatch(t, "export", out, `(?m)^"?`+topic+`"?,1,6$`)
	wantMatch(t, "all topics", groups(t, "--group", "g1", "--reset-offsets", "--execute", "--all-topics", "--to-offset", "2"), "g1 +"+topic+" +1 +2")
	out = groups(t, "--group", "g1", "--reset-offsets", "--dry-run", "--all-topics", "--to-earliest")
	wantMatch(t, "dry run", out, topic+" +0 +0")
	wantMatch(t, "after a dry run", groups(t, "--describe", "--group", "g1"), "g1 +"+topic+" +1 +2 +10 +8")
}
