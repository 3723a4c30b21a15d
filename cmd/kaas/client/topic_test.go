package client

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"kaas/cmd/kaas/cli"
)

var topicIDs = regexp.MustCompile(`[A-Za-z0-9_-]{22}`)

// withoutIDs puts ID in the place of topic ids.
func withoutIDs(s string) string { return topicIDs.ReplaceAllString(s, "ID") }

func TestTopics(t *testing.T) {
	s := session{t, broker(t)}
	s.want("", "orders: created with 3 partitions\n", "topic", "create", "orders", "--partitions", "3", "--config", "retention.ms=1000", "--config", "cleanup.policy=compact,delete")
	s.want("", `{"topic":"state","done":"created with 1 partitions"}`+"\n", "topic", "create", "state", "--json")
	s.want("", "orders: exists already\nmore: created with 1 partitions\n", "topic", "create", "orders", "more", "--if-not-exists")

	code, out, _ := s.run("", "topic", "list")
	if want := "TOPIC   PARTITIONS  ID\nmore    1           ID\norders  3           ID\nstate   1           ID\n"; code != 0 || withoutIDs(out) != want {
		t.Errorf("list: code %d\n%s\nwant\n%s", code, out, want)
	}
	code, out, _ = s.run("", "topic", "list", "--json")
	if want := `{"topic":"orders","id":"ID","partitions":3,"internal":false}`; code != 0 || strings.Split(withoutIDs(out), "\n")[1] != want {
		t.Errorf("list --json: code %d\n%s", code, out)
	}

	s.want("k a\nk b\n", "", "produce", "--topic", "orders", "--partition", "1", "--key-separator", " ")
	code, out, _ = s.run("", "topic", "describe", "orders")
	want := `orders  id ID
  cleanup.policy=compact,delete  (dynamic topic config)
  retention.ms=1000  (dynamic topic config)
PARTITION  LEADER  EPOCH  REPLICAS  IN-SYNC  START  END
0          1       0      1         1        0      0
1          1       0      1         1        0      2
2          1       0      1         1        0      0
`
	if code != 0 || withoutIDs(out) != want {
		t.Errorf("describe: code %d\n%s\nwant\n%s", code, out, want)
	}

	s.want("", "orders: settings changed\norders: has 4 partitions\n", "topic", "alter", "orders", "--config", "retention.ms=2000", "--delete-config", "cleanup.policy", "--partitions", "4")
	code, out, _ = s.run("", "topic", "describe", "orders", "--json")
	var d struct {
		Partitions []struct{ Partition, EndOffset, StartOffset, Leader int }
		Configs    []struct{ Key, Value, Source string }
	}
	if err := json.Unmarshal([]byte(out), &d); err != nil || code != 0 {
		t.Fatalf("describe --json: code %d, %v: %s", code, err, out)
	}
	if len(d.Partitions) != 4 || d.Partitions[1].EndOffset != 2 || d.Partitions[1].Leader != 1 || len(d.Configs) != 1 || d.Configs[0].Key != "retention.ms" || d.Configs[0].Value != "2000" {
		t.Errorf("describe --json: %+v", d)
	}
	_, out, _ = s.run("", "topic", "describe", "orders", "--all-configs")
	if !strings.Contains(out, "  cleanup.policy=delete  (default config)\n") {
		t.Errorf("describe --all-configs lacks a default:\n%s", out)
	}
	_, out, _ = s.run("", "topic", "describe")
	if strings.Count(out, "  id ") != 3 {
		t.Errorf("describe of all:\n%s", out)
	}

	s.want("", "state: deleted\nnever: does not exist\n", "topic", "delete", "state", "never", "--if-exists")
	code, out, _ = s.run("", "topic", "list")
	if code != 0 || strings.Contains(out, "state") {
		t.Errorf("the deleted topic is listed: %s", out)
	}
}

// TestTopicFailures: each failure is told with the broker's words, the others are done, and the exit code is 1.
func TestTopicFailures(t *testing.T) {
	s := session{t, broker(t)}
	s.want("", "orders: created with 1 partitions\n", "topic", "create", "orders")
	code, out, errs := s.run("", "topic", "create", "orders", "other")
	if code != cli.Failed || out != "other: created with 1 partitions\n" || errs != "kaas: topic orders: TOPIC_ALREADY_EXISTS: Topic 'orders' already exists.\n" {
		t.Errorf("code %d, %q, %q", code, out, errs)
	}
	code, out, errs = s.run("", "topic", "delete", "never", "other", "--json")
	if want := `{"topic":"never","error":"UNKNOWN_TOPIC_OR_PARTITION: This server does not host this topic-partition."}` + "\n" + `{"topic":"other","done":"deleted"}` + "\n"; code != cli.Failed || out != want {
		t.Errorf("code %d, %s, %q", code, out, errs)
	}
	s.fails("", cli.Failed, "topic bad/name: INVALID_TOPIC_EXCEPTION", "topic", "create", "bad/name")
	s.fails("", cli.Failed, "topic x: INVALID_CONFIG", "topic", "create", "x", "--config", "no.such.setting=1")
	s.fails("", cli.Failed, "topic x: INVALID_REPLICATION_FACTOR", "topic", "create", "x", "--replication-factor", "3")
	s.fails("", cli.Failed, "topic orders: INVALID_PARTITIONS", "topic", "alter", "orders", "--partitions", "1")
	s.fails("", cli.Failed, "topic orders: INVALID_CONFIG", "topic", "alter", "orders", "--config", "retention.ms=soon")
	s.fails("", cli.Failed, "topic never: UNKNOWN_TOPIC_OR_PARTITION", "topic", "alter", "never", "--partitions", "3")
	s.fails("", cli.Failed, "topic never: UNKNOWN_TOPIC_OR_PARTITION", "topic", "describe", "never", "orders")
	if _, out, _ := s.run("", "topic", "describe", "never", "orders"); !strings.HasPrefix(out, "orders  id ") {
		t.Errorf("the other topic is not described: %q", out)
	}
}
