//go:build interop

package interop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// buildConfluentGo builds clients/confluentgo, a module of its own as it wants cgo.
var buildConfluentGo = sync.OnceValues(func() (string, error) {
	bin := filepath.Join(workDir, "confluentgo")
	cmd := exec.Command("go", "build", "-o", bin, ".")
	cmd.Dir = filepath.Join("clients", "confluentgo")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("clients/confluentgo: %w\n%s", err, out)
	}
	return bin, nil
})

func confluentGo(t *testing.T, args ...string) string {
	t.Helper()
	bin, err := buildConfluentGo()
	if err != nil {
		t.Fatal(err)
	}
	return string(program(t, nil, nil, bin, args...))
}

// filledTopic is a topic of 40 records in 4 partitions.
func filledTopic(t *testing.T, addr string) string {
	t.Helper()
	topic := newTopic(t, addr, 4)
	c := newClient(t, addr, kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := range 40 {
		if err := c.ProduceSync(newContext(t), &kgo.Record{Partition: int32(i % 4), Value: fmt.Append(nil, i)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	return topic
}

func wantText(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("want\n%s\ngot\n%s", want, got)
	}
}

// TestConfluentGo: confluent-kafka for Go in groups (eager and cooperative: rebalance callbacks, commit, pause, seek) and with transactions. The
// consumer protocol is left out: librdkafka (2.11.1, and 2.16.0 of the Python client) wants ConsumerGroupHeartbeat v1, which Apache 3.7 does not have.
func TestConfluentGo(t *testing.T) {
	t.Parallel()
	addr, _ := startBroker(t, "--set", "group.initial.rebalance.delay.ms=0")
	const client = "confluent-kafka-go"
	for strategy, steps := range map[string]struct {
		protocol string
		revoked  int
	}{"range": {"EAGER", 4}, "roundrobin": {"EAGER", 4}, "cooperative-sticky": {"COOPERATIVE", 2}} {
		cell(t, client, "group, "+strategy, func(t *testing.T) {
			wantText(t, confluentGo(t, "group", addr, filledTopic(t, addr), strategy), fmt.Sprintf(`read 40 of [0 1 2 3] assigned 4 by %s
committed [0:10 1:10 2:10 3:10]
after seek [1] from 5
resumed [0] from 5
shared 2 2 revoked %d
left alone 4
`, steps.protocol, steps.revoked))
		})
	}
	cell(t, client, "transactions", func(t *testing.T) {
		wantText(t, confluentGo(t, "txn", addr, filledTopic(t, addr), newTopic(t, addr, 4)), `copied 40 commit false offsets [0:-1 1:-1 2:-1 3:-1]
copied 40 commit true offsets [0:10 1:10 2:10 3:10]
fenced true fatal true
read_committed after 10 copy-true- 40 kept 10 distinct 60
read_uncommitted aborted 10 after 10 copy-false- 40 copy-true- 40 kept 10 torn 10 distinct 120
`)
	})
}
