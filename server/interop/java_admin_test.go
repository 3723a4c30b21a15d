//go:build interop

package interop

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
)

// TestJavaAdmin: the tools that ask about and change what exists.
func TestJavaAdmin(t *testing.T) {
	t.Parallel()
	addr, process := startBroker(t)
	topic := newTopic(t, addr, 1)
	at := []string{"--bootstrap-server", addr}
	cell(t, "VerifiableProducer", "none", func(t *testing.T) {
		const n = 50
		out := tool(t, "", "org.apache.kafka.tools.VerifiableProducer", append(at, "--topic", topic, "--max-messages", fmt.Sprint(n))...)
		acks := 0
		for line := range strings.Lines(out) {
			var event struct {
				Name   string
				Offset int64
				Value  string
			}
			if err := json.Unmarshal([]byte(line), &event); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if event.Name == "producer_send_success" {
				if event.Offset != int64(acks) || event.Value != fmt.Sprint(acks) {
					t.Errorf("want value %d at offset %d, got %+v", acks, acks, event)
				}
				acks++
			}
		}
		if acks != n {
			t.Errorf("want %d acknowledged, got %d:\n%s", n, acks, out)
		}
	})
	cell(t, "DeleteRecords", "admin", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "offsets.json")
		text := fmt.Sprintf(`{"partitions":[{"topic":"%s","partition":0,"offset":20}],"version":1}`, topic)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		out := tool(t, "", "org.apache.kafka.tools.DeleteRecordsCommand", append(at, "--offset-json-file", file)...)
		wantMatch(t, "low watermark", out, `partition: `+topic+`-0\s+low_watermark: 20`)
		starts, err := kadm.NewClient(newClient(t, addr)).ListStartOffsets(newContext(t), topic)
		if start, _ := starts.Lookup(topic, 0); err != nil || start.Offset != 20 {
			t.Errorf("log start: want 20, got %d %v", start.Offset, err)
		}
	})
	cell(t, "ConfigCommand", "admin", func(t *testing.T) {
		const class = "kafka.admin.ConfigCommand"
		of := append(at, "--entity-type", "topics", "--entity-name", topic)
		tool(t, "", class, append(of, "--alter", "--add-config", "retention.ms=3600000,cleanup.policy=[compact,delete]")...)
		out := tool(t, "", class, append(of, "--describe")...)
		wantMatch(t, "retention", out, `(?m)^  retention.ms=3600000 sensitive=false synonyms=\{DYNAMIC_TOPIC_CONFIG:retention.ms=3600000\}`)
		wantMatch(t, "cleanup", out, `(?m)^  cleanup.policy=compact,delete `)
		broker := tool(t, "", class, append(at, "--entity-type", "brokers", "--entity-name", "1", "--describe", "--all")...)
		wantMatch(t, "broker", broker, `(?m)^  num.partitions=1 sensitive=false `)
	})
	cell(t, "ClusterTool", "admin", func(t *testing.T) {
		out := tool(t, "", "org.apache.kafka.tools.ClusterTool", append([]string{"cluster-id"}, at...)...)
		wantMatch(t, "id", out, `^Cluster ID: [A-Za-z0-9_-]{22}\s*$`)
		if process != nil && !strings.Contains(out, process.Ready.ClusterID) {
			t.Errorf("want %s, got %s", process.Ready.ClusterID, out)
		}
	})
	cell(t, "BrokerApiVersions", "admin", func(t *testing.T) {
		out := tool(t, "", "kafka.admin.BrokerApiVersionsCommand", at...)
		wantMatch(t, "head", out, `^\S+ \(id: 1 rack: null\) -> \(`)
		wantMatch(t, "produce", out, `Produce\(0\): \d+ to 10 \[usable: 10\]`)
		if strings.Contains(out, "UNKNOWN") {
			t.Errorf("a key that Apache's tool does not know:\n%s", out)
		}
	})
}
