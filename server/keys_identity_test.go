package server

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/config"
)

// startFile runs a broker by a server.properties file with these lines, for the length of the test. dirKey says where its data directory is.
func startFile(t *testing.T, dirKey, text string) *Broker {
	t.Helper()
	dir := t.TempDir()
	file, data := filepath.Join(dir, "server.properties"), filepath.Join(dir, "data")
	if err := os.WriteFile(file, fmt.Appendf(nil, "%s=%s\n%s\n", dirKey, data, text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	b, err := Start(cfg, time.Now(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, b) })
	if _, err := os.Stat(filepath.Join(data, catalogDir)); err != nil || b.Ready().DataDir != data {
		t.Errorf("%s=%s: the data is in %s, %v", dirKey, data, b.Ready().DataDir, err)
	}
	return b
}

// cluster asks for metadata, naming a topic that may be made by that.
func (c *client) cluster(topic string) *api.MetadataResponse {
	c.t.Helper()
	q := api.MetadataRequest{AllowAutoTopicCreation: true, Topics: []api.MetadataRequestMetadataRequestTopic{{Name: wire.Some(topic)}}}
	var p api.MetadataResponse
	c.call(api.KeyMetadata, 9, &q, &p)
	return &p
}

// deleteTopic deletes a topic.
func (c *client) deleteTopic(topic string) api.ErrorCode {
	c.t.Helper()
	var p api.DeleteTopicsResponse
	c.call(api.KeyDeleteTopics, 5, &api.DeleteTopicsRequest{TopicNames: []string{topic}, TimeoutMs: 10_000}, &p)
	return p.Responses[0].ErrorCode
}

// coordinator asks for the coordinator of a group (kind 0) or a transactional id (1).
func (c *client) coordinator(kind int8) api.ErrorCode {
	c.t.Helper()
	var p api.FindCoordinatorResponse
	c.call(api.KeyFindCoordinator, 3, &api.FindCoordinatorRequest{Key: "x", KeyType: kind}, &p)
	return p.ErrorCode
}

// Who a broker is and what it lets clients make and remove: broker.id, node.id, broker.rack, default.replication.factor, auto.create.topics.enable, delete.topic.enable,
// offsets.topic.replication.factor, transaction.state.log.replication.factor; log.dirs and log.dir; and controller.listener.names, which it does not open.
func TestKeysOfIdentity(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0") // who opened the controller's listener would fail
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	b := startFile(t, "log.dirs", "listeners=PLAINTEXT://127.0.0.1:0,QUORUM://"+taken.Addr().String()+`
controller.listener.names=QUORUM
broker.id=7
broker.rack=cellar
auto.create.topics.enable=false
delete.topic.enable=false
offsets.topic.replication.factor=3
transaction.state.log.replication.factor=3`)
	c := dial(t, b)
	c.create("t", 1)
	got := c.cluster("auto")
	if who := got.Brokers[0]; b.Ready().NodeID != 7 || who.NodeId != 7 || who.Rack != wire.Some("cellar") || got.ControllerId != 7 {
		t.Errorf("broker %+v, controller %d", who, got.ControllerId)
	}
	if at := b.Ready().Listeners; len(at) != 1 || at["PLAINTEXT"] == "" {
		t.Errorf("listeners %v", at)
	}
	want(t, "auto.create.topics.enable=false", got.Topics[0].ErrorCode, api.ErrUnknownTopicOrPartition)
	want(t, "and once more", c.cluster("auto").Topics[0].ErrorCode, api.ErrUnknownTopicOrPartition)
	want(t, "delete.topic.enable=false", c.deleteTopic("t"), api.ErrTopicDeletionDisabled)
	want(t, "a topic that was not deleted", c.produce("t", 0, records("a")).ErrorCode, api.ErrNone)
	want(t, "offsets.topic.replication.factor=3", c.coordinator(0), api.ErrCoordinatorNotAvailable)
	want(t, "transaction.state.log.replication.factor=3", c.coordinator(1), api.ErrCoordinatorNotAvailable)

	b = startFile(t, "log.dir", `listeners=PLAINTEXT://127.0.0.1:0
node.id=9
default.replication.factor=2`)
	c = dial(t, b)
	got = c.cluster("auto")
	if who := got.Brokers[0]; b.Ready().NodeID != 9 || who.NodeId != 9 || who.Rack.Valid {
		t.Errorf("broker %+v with node.id=9", who)
	}
	want(t, "default.replication.factor=2", c.tryCreate("t", -1), api.ErrInvalidReplicationFactor)
	want(t, "one replica by name", c.tryCreate("t", 1), api.ErrNone)

	c = dial(t, startFile(t, "log.dirs", "listeners=PLAINTEXT://127.0.0.1:0"))
	if who := c.cluster("auto").Brokers[0]; who.NodeId != 1 {
		t.Errorf("broker %+v by default", who)
	}
	want(t, "default.replication.factor", c.tryCreate("t", -1), api.ErrNone)
	eventually(t, "auto.create.topics.enable", func() bool { return c.cluster("auto").Topics[0].ErrorCode == api.ErrNone })
	want(t, "delete.topic.enable", c.deleteTopic("auto"), api.ErrNone)
	want(t, "offsets.topic.replication.factor", c.coordinator(0), api.ErrNone)
	want(t, "transaction.state.log.replication.factor", c.coordinator(1), api.ErrNone)
}

// security.inter.broker.protocol says which listener is between brokers: at max.connections its peers are let in, at the cost of others; those of
// another wait.
func TestKeyOfInterBrokerProtocol(t *testing.T) {
	store := filepath.Join(t.TempDir(), "broker.pem")
	_, roots := newStore(t, store, "broker")
	trusting := &tls.Config{RootCAs: roots, ServerName: "localhost"}
	for _, protocol := range []string{"SSL", "PLAINTEXT"} {
		b := broker(t, "listeners", "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", "security.inter.broker.protocol", protocol,
			"ssl.keystore.type", "PEM", "ssl.keystore.location", store, "kaas.metrics.listen", "127.0.0.1:0")
		first := dial(t, b)
		first.brokerKeys(false, "max.connections", "1")
		waits := func() bool { return scrape(t, b)[`kaas_accept_pauses_total{reason="max_connections"}`] == 1 }
		if protocol == "SSL" {
			dial(t, b)
			eventually(t, "a second one on the other listener waits", waits)
			dialTLS(t, b, "SSL", trusting).address()
			first.closed()
			continue
		}
		second := dial(t, b)
		second.address()
		third := make(chan error, 1)
		go func() {
			c, err := tls.Dial("tcp", b.Ready().Listeners["SSL"], trusting)
			if err == nil {
				c.Close()
			}
			third <- err
		}()
		eventually(t, "one on the other listener waits", waits)
		first.address()
		first.c.Close()
		second.c.Close()
		if err := <-third; err != nil {
			t.Errorf("one on the other listener, when there is room: %v", err)
		}
	}
}
