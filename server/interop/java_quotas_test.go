//go:build interop

package interop

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// throttled tells of answers that ask their client to wait.
type throttled chan time.Duration

func (c throttled) OnBrokerThrottle(_ kgo.BrokerMetadata, d time.Duration, _ bool) {
	select {
	case c <- d:
	default:
	}
}

// TestJavaQuotas: ConfigCommand adds, shows and deletes quotas of a user, a client id, both, and the defaults; they outlive a kill of the broker.
func TestJavaQuotas(t *testing.T) {
	t.Parallel()
	addr, process := startBroker(t)
	if process == nil {
		t.Skip("the broker is not to be killed")
	}
	const class = "kafka.admin.ConfigCommand"
	config := func(args ...string) string {
		t.Helper()
		return tool(t, "", class, append([]string{"--bootstrap-server", addr}, args...)...)
	}
	loader := []string{"--entity-type", "clients", "--entity-name", "loader"}
	anyClient := []string{"--entity-type", "clients", "--entity-default"}
	anyUser := []string{"--entity-type", "users", "--entity-default"}
	aliceAny := []string{"--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients", "--entity-default"}
	of := func(entity []string, more ...string) []string { return append(append([]string{}, entity...), more...) }
	cell(t, "ConfigCommand", "quotas", func(t *testing.T) {
		config(of(loader, "--alter", "--add-config", "producer_byte_rate=1000,consumer_byte_rate=2000")...)
		config(of(anyClient, "--alter", "--add-config", "request_percentage=250")...)
		config(of(anyUser, "--alter", "--add-config", "controller_mutation_rate=7.5")...)
		config(of(aliceAny, "--alter", "--add-config", "producer_byte_rate=3000")...)
		shown := func(when string) {
			t.Helper()
			wantMatch(t, when+", a client id", config(of(loader, "--describe")...),
				`^Quota configs for client-id 'loader' are (consumer_byte_rate=2000.0, producer_byte_rate=1000.0|producer_byte_rate=1000.0, consumer_byte_rate=2000.0)\s*$`)
			wantMatch(t, when+", the default of client ids", config(of(anyClient, "--describe")...), `^Quota configs for the default client-id are request_percentage=250.0\s*$`)
			wantMatch(t, when+", the default of users", config(of(anyUser, "--describe")...), `Quota configs for the default user-principal are controller_mutation_rate=7.5`)
			wantMatch(t, when+", a user with any client id", config(of(aliceAny, "--describe")...),
				`Quota configs for user-principal 'alice', the default client-id are producer_byte_rate=3000.0`)
		}
		shown("added")
		if err := process.Restart(true); err != nil {
			t.Fatal(err)
		}
		addr = process.Addr
		shown("after a kill")
		refused(t, "Cannot parse quota configuration value for producer_byte_rate: abc", class, append([]string{"--bootstrap-server", addr}, of(loader, "--alter", "--add-config", "producer_byte_rate=abc")...)...)
	})
	cell(t, "ConfigCommand", "quotas deleted", func(t *testing.T) {
		config(of(loader, "--alter", "--delete-config", "producer_byte_rate,consumer_byte_rate")...)
		config(of(anyClient, "--alter", "--delete-config", "request_percentage")...)
		for _, entity := range [][]string{loader, anyClient} {
			wantMatch(t, "deleted", config(of(entity, "--describe")...), `^\s*$`)
		}
	})
}

// TestQuotasAfterKill: a quota that was set before the broker was killed is in force afterwards.
func TestQuotasAfterKill(t *testing.T) {
	t.Parallel()
	addr, process := startBroker(t)
	if process == nil {
		t.Skip("the broker is not to be killed")
	}
	name := "loader"
	set, err := kadm.NewClient(newClient(t, addr)).AlterClientQuotas(context.Background(), []kadm.AlterClientQuotaEntry{
		{Entity: kadm.ClientQuotaEntity{{Type: "client-id", Name: &name}}, Ops: []kadm.AlterClientQuotaOp{{Key: "producer_byte_rate", Value: 1000}}}})
	if err != nil || len(set) != 1 || set[0].Err != nil {
		t.Fatal(set, err)
	}
	if err := process.Restart(true); err != nil {
		t.Fatal(err)
	}
	waits := make(throttled, 1)
	c := newClient(t, process.Addr, kgo.DefaultProduceTopic(newTopic(t, process.Addr, 1)), kgo.ClientID(name), kgo.WithHooks(waits),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err := c.ProduceSync(context.Background(), &kgo.Record{Value: make([]byte, 15_000)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	select {
	case d := <-waits: // 15 s worth of bytes, of which a window of some 10 may come at once
		if d < time.Second || d > 15*time.Second {
			t.Errorf("throttled for %v", d)
		}
	case <-time.After(time.Minute):
		t.Error("a client 15 times over its quota was not told to wait")
	}
}
