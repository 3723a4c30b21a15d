package server

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/engine"
	"kaas/server/config"
)

func TestProduceThenFetch(t *testing.T) {
	for _, durability := range []string{"group-commit", "page-cache"} {
		t.Run(durability, func(t *testing.T) {
			c := dial(t, broker(t, "kaas.durability", durability))
			c.create("t", 2)
			if p := c.produce("t", 1, records("a", "b")); p.ErrorCode != api.ErrNone || p.BaseOffset != 0 {
				t.Fatalf("first: %+v", p)
			}
			if p := c.produce("t", 1, records("c")); p.ErrorCode != api.ErrNone || p.BaseOffset != 2 {
				t.Fatalf("second: %+v", p)
			}
			p := c.fetch("t", 1, 1)
			if p.ErrorCode != api.ErrNone || p.HighWatermark != 3 || p.LastStableOffset != 3 || p.LogStartOffset != 0 {
				t.Fatalf("fetch: %+v", p)
			}
			want := []record{{0, "a"}, {1, "b"}, {2, "c"}} // the whole batch that contains the offset
			if got := values(t, p.Records.Bytes); !reflect.DeepEqual(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			if p := c.fetch("t", 0, 0); p.HighWatermark != 0 || p.Records.Len() != 0 || p.Records.Null() {
				t.Errorf("empty partition: %+v", p)
			}
		})
	}
}

// Answers come in the order of the requests, whatever each has to wait for (regression 8).
func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	c := dial(t, broker(t))
	c.create("t", 1)
	var keys []int16
	first := c.corr + 1
	for i := range 16 {
		switch i % 4 {
		case 0:
			c.send(api.KeyProduce, 9, produceRequest("t", 0, -1, records(fmt.Sprint(i))))
			keys = append(keys, api.KeyProduce)
		case 1:
			c.send(api.KeyFetch, 12, fetchRequest("t", 0, int64(i/4), 0, 0))
			keys = append(keys, api.KeyFetch)
		case 2:
			c.send(api.KeyProduce, 9, produceRequest("t", 0, 1, records(fmt.Sprint(i))))
			keys = append(keys, api.KeyProduce)
		case 3:
			var q api.MetadataRequest
			q.Default()
			c.send(api.KeyMetadata, 9, &q)
			keys = append(keys, api.KeyMetadata)
		}
	}
	next := int64(0)
	for i, key := range keys {
		version := map[int16]int16{api.KeyProduce: 9, api.KeyFetch: 12, api.KeyMetadata: 9}[key]
		m := api.NewResponse(key)
		if corr := c.receive(key, version, m); corr != first+int32(i) {
			t.Fatalf("answer %d has correlation id %d, want %d", i, corr, first+int32(i))
		}
		if p, ok := m.(*api.ProduceResponse); ok {
			if got := p.Responses[0].PartitionResponses[0].BaseOffset; got != next {
				t.Fatalf("answer %d: base offset %d, want %d", i, got, next)
			}
			next++
		}
	}
}

// A long poll is woken by new data, and waits for min_bytes (regression 35).
func TestLongPoll(t *testing.T) {
	b := broker(t)
	reader, writer := dial(t, b), dial(t, b)
	writer.create("t", 1)
	set := records("first")
	reader.send(api.KeyFetch, 12, fetchRequest("t", 0, 0, 29_000, int32(len(set))+1))
	writer.produce("t", 0, set)
	waitParked(t, b, 1)
	writer.produce("t", 0, records("second"))
	var p api.FetchResponse
	reader.receive(api.KeyFetch, 12, &p)
	want := []record{{0, "first"}, {1, "second"}}
	if got := values(t, p.Responses[0].Partitions[0].Records.Bytes); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	waitParked(t, b, 0)
}

// A parked fetch ends with its connection and with its topic.
func TestParkedFetchIsGivenUp(t *testing.T) {
	b := broker(t)
	reader, other, admin := dial(t, b), dial(t, b), dial(t, b)
	admin.create("t", 1)
	reader.send(api.KeyFetch, 12, fetchRequest("t", 0, 0, 29_000, 1))
	other.send(api.KeyFetch, 12, fetchRequest("t", 0, 0, 29_000, 1))
	waitParked(t, b, 2)
	reader.c.Close()
	waitParked(t, b, 1)
	var q api.DeleteTopicsRequest
	q.TopicNames = []string{"t"}
	var d api.DeleteTopicsResponse
	admin.call(api.KeyDeleteTopics, 5, &q, &d)
	var p api.FetchResponse
	other.receive(api.KeyFetch, 12, &p)
	if got := p.Responses[0].Partitions[0].ErrorCode; got != api.ErrUnknownTopicOrPartition {
		t.Errorf("a deleted topic's fetch: %v", got)
	}
}

// waitParked waits until so many fetches wait for data.
func waitParked(t *testing.T, b *Broker, n int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d parked fetches", n), func() bool { return b.api.Stats().ParkedFetches == n })
}

// What was acknowledged is there after a restart, with its offsets, ids and settings; leader epochs grow (regression 16).
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	b := start(t, dir)
	c := dial(t, b)
	c.create("t", 2, "max.message.bytes", "2000")
	c.create("gone", 1)
	id := b.topics.ByName("t").ID
	c.produce("t", 1, records("a", "b"))
	var d api.DeleteTopicsResponse
	c.call(api.KeyDeleteTopics, 5, &api.DeleteTopicsRequest{TopicNames: []string{"gone"}}, &d)
	cluster := b.Ready().ClusterID
	stop(t, b)

	b = start(t, dir)
	defer stop(t, b)
	c = dial(t, b)
	if got := b.Ready().ClusterID; got != cluster {
		t.Errorf("cluster id %s, was %s", got, cluster)
	}
	topic := b.topics.ByName("t")
	if topic == nil || topic.ID != id || topic.Partition(1).LeaderEpoch != 2 || topic.Settings().Config.MaxMessageBytes != 2000 {
		t.Fatalf("after the restart: %+v", topic)
	}
	if b.topics.ByName("gone") != nil {
		t.Error("a deleted topic is back")
	}
	if p := c.produce("t", 1, records("c")); p.BaseOffset != 2 {
		t.Errorf("base offset %d, want 2", p.BaseOffset)
	}
	want := []record{{0, "a"}, {1, "b"}, {2, "c"}}
	if got := values(t, c.fetch("t", 1, 0).Records.Bytes); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Partitions that no catalog of ours knows are never touched: the start is refused.
func TestForeignDataIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(dir+"/orders-0", 0o755); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Options{Settings: []config.Setting{{Key: "log.dirs", Value: dir}, {Key: "listeners", Value: "PLAINTEXT://127.0.0.1:0"}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Start(cfg, time.Now(), os.Stderr); err == nil || !strings.Contains(err.Error(), "orders-0") {
		t.Fatalf("started, or without saying why: %v", err)
	}
	if _, err := os.Stat(dir + "/orders-0"); err != nil {
		t.Error(err)
	}
}

// A second process on the same data directory is refused.
func TestSecondBrokerIsRefused(t *testing.T) {
	dir := t.TempDir()
	b := start(t, dir)
	defer stop(t, b)
	cfg, err := config.Load(config.Options{Settings: []config.Setting{{Key: "log.dirs", Value: dir}, {Key: "listeners", Value: "PLAINTEXT://127.0.0.1:0"}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Start(cfg, time.Now(), os.Stderr); !errors.Is(err, engine.ErrLocked) {
		t.Fatalf("got %v", err)
	}
}

// max.connections.per.ip is altered in a running broker: it counts for the next connection, those that are open stay.
func TestConnectionLimitTakesEffectLive(t *testing.T) {
	b := broker(t)
	c, other := dial(t, b), dial(t, b)
	other.create("t", 1)
	alter := func(value string) {
		var q api.IncrementalAlterConfigsRequest
		q.Default()
		r := api.Next(&q.Resources)
		r.ResourceType = 4 // broker; the empty name stands for the default of all
		k := api.Next(&r.Configs)
		k.Name, k.Value = "max.connections.per.ip", wire.Some(value)
		var p api.IncrementalAlterConfigsResponse
		c.call(api.KeyIncrementalAlterConfigs, 1, &q, &p)
		if p.Responses[0].ErrorCode != api.ErrNone {
			t.Fatalf("alter: %+v", p.Responses[0])
		}
	}
	alter("2")
	dial(t, b).closed()
	if p := other.produce("t", 0, records("a")); p.ErrorCode != api.ErrNone {
		t.Errorf("an open connection: %v", p.ErrorCode)
	}
	alter("3")
	if p := dial(t, b).produce("t", 0, records("b")); p.BaseOffset != 1 {
		t.Errorf("after the limit was raised: %+v", p)
	}
}
