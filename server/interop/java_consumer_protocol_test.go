//go:build interop

package interop

import (
	"bufio"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// newProtocol turns the consumer protocol (KIP-848) on, as Apache 3.7 has it. Sessions are short, so that a killed member is missed soon.
var newProtocol = []string{"--set", "group.coordinator.new.enable=true", "--set", "group.coordinator.rebalance.protocols=classic,consumer",
	"--set", "offsets.topic.num.partitions=1",
	"--set", "group.consumer.min.session.timeout.ms=6000", "--set", "group.consumer.session.timeout.ms=6000",
	"--set", "group.consumer.min.heartbeat.interval.ms=500", "--set", "group.consumer.heartbeat.interval.ms=500"}

// values counts the lines that consumers print.
type values struct {
	mu   sync.Mutex // guards seen
	seen map[string]int
}

// any says whether anything was seen.
func (v *values) any() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.seen) > 0
}

// all says whether the values from one number up to another were seen.
func (v *values) all(from, to int) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := from; i < to; i++ {
		if v.seen[fmt.Sprint("value-", i)] == 0 {
			return false
		}
	}
	return true
}

// console runs a ConsoleConsumer of the consumer protocol until it is killed.
func (v *values) console(t *testing.T, addr, topic, group string, args ...string) (kill func()) {
	t.Helper()
	home, err := javaHome()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("java", append([]string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m",
		"-Dlog4j.configuration=file:" + filepath.Join(home, "tools-log4j.properties"),
		"-cp", filepath.Join(home, "lib-3.7.2", "*"), "kafka.tools.ConsoleConsumer", "--bootstrap-server", addr, "--topic", topic,
		"--group", group, "--from-beginning", "--consumer-property", "group.protocol=consumer", "--consumer-property", "auto.commit.interval.ms=200"}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			v.mu.Lock()
			v.seen[lines.Text()]++
			v.mu.Unlock()
		}
	}()
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		<-done
		_ = cmd.Wait()
	})
	t.Cleanup(kill)
	return kill
}

// poll waits until something is so.
func poll(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited for %s in vain", what)
		}
	}
}

// TestJavaConsumerProtocol: two members of Apache's own consumer share a topic by the consumer protocol; one is killed, then the broker; the
// other one reads everything.
func TestJavaConsumerProtocol(t *testing.T) {
	t.Parallel()
	addr, process := startBroker(t, newProtocol...)
	if process == nil {
		t.Skip("it needs settings of its own")
	}
	topic := newTopic(t, addr, 2)
	c := newClient(t, addr, kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	sent := 0
	produce := func(t *testing.T) {
		t.Helper()
		for range 20 {
			r := &kgo.Record{Partition: int32(sent % 2), Value: fmt.Append(nil, "value-", sent)}
			if err := c.ProduceSync(newContext(t), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
			sent++
		}
	}
	for _, assignor := range []string{"uniform", "range"} {
		cell(t, "ConsoleConsumer", "consumer protocol, "+assignor, func(t *testing.T) {
			a, b := &values{seen: make(map[string]int)}, &values{seen: make(map[string]int)}
			wish := []string{"--consumer-property", "group.remote.assignor=" + assignor}
			kill := a.console(t, addr, topic, assignor, wish...)
			b.console(t, addr, topic, assignor, wish...)
			poll(t, "records that both read", func() bool {
				produce(t)
				return a.any() && b.any()
			})
			kill()
			from := sent
			produce(t)
			poll(t, "the rest of a killed member", func() bool { return b.all(from, sent) })
			if err := process.Restart(true); err != nil {
				t.Fatal(err)
			}
			produce(t)
			poll(t, "what is read after a restart", func() bool { return b.all(from, sent) })
		})
	}
}
