package server

import (
	"strings"
	"testing"

	"kaas/codec/api"
)

// fetch.max.bytes bounds the records of one answer, however many its client asks for; the first batch comes whole.
func TestKeyOfFetchSize(t *testing.T) {
	for most, want := range map[string]int{"1024": 1, "3300": 3, "57671680": 8} {
		c := dial(t, broker(t, "fetch.max.bytes", most))
		c.create("t", 1)
		for range 8 {
			c.must(api.ErrNone, "produce", recordAt(0))
		}
		got := c.fetch("t", 0, 0).Records.Bytes
		if n := len(got) / len(recordAt(0)); n != want {
			t.Errorf("fetch.max.bytes=%s: %d batches in %d bytes, want %d", most, n, len(got), want)
		}
	}
}

// begin asks for a fetch session and returns its id; 0: there is none.
func (c *client) begin() int32 {
	c.t.Helper()
	q := fetchRequest("t", 0, 0, 0, 0)
	q.SessionId, q.SessionEpoch = 0, 0
	var p api.FetchResponse
	c.call(api.KeyFetch, 12, q, &p)
	if p.ErrorCode != api.ErrNone || p.Responses[0].Partitions[0].ErrorCode != api.ErrNone {
		c.t.Fatalf("fetch: %v", p.ErrorCode)
	}
	return p.SessionId
}

// max.incremental.fetch.session.cache.slots is how many fetch sessions there are; who gets none is answered all the same.
func TestKeyOfFetchSessions(t *testing.T) {
	b := broker(t, "max.incremental.fetch.session.cache.slots", "2", "kaas.metrics.listen", "127.0.0.1:0")
	c := dial(t, b)
	c.create("t", 1)
	for i, there := range []bool{true, true, false, false} {
		if id := dial(t, b).begin(); (id != 0) != there {
			t.Errorf("session %d: id %d", i, id)
		}
	}
	wantSeries(t, scrape(t, b), map[string]float64{"kaas_fetch_sessions": 2})
}

// setQuota sets a quota of all client ids.
func (c *client) setQuota(key string, value float64) {
	c.t.Helper()
	q := api.AlterClientQuotasRequest{Entries: []api.AlterClientQuotasRequestEntryData{{
		Entity: []api.AlterClientQuotasRequestEntityData{{EntityType: "client-id"}}, Ops: []api.AlterClientQuotasRequestOpData{{Key: key, Value: value}}}}}
	var p api.AlterClientQuotasResponse
	if c.call(api.KeyAlterClientQuotas, 1, &q, &p); p.Entries[0].ErrorCode != api.ErrNone {
		c.t.Fatalf("quota: %v", p.Entries[0].ErrorCode)
	}
}

// quota.window.num and quota.window.size.seconds are the time over which a rate is measured: at first that is all windows but one, however
// little of it has passed, and what was used beyond them is waited for.
func TestKeysOfQuotaWindows(t *testing.T) {
	for _, k := range []struct {
		num, size string
		seconds   int32
	}{{"11", "1", 10}, {"3", "1", 2}, {"3", "5", 10}, {"21", "2", 40}} {
		b := broker(t, "quota.window.num", k.num, "quota.window.size.seconds", k.size)
		c := dial(t, b)
		c.create("t", 1)
		c.setQuota("producer_byte_rate", 1000)
		var p api.ProduceResponse
		c.call(api.KeyProduce, 9, produceRequest("t", 0, 1, made0(60_000)), &p) // a minute's worth, and a little
		if want := 1000 * (60 - k.seconds); p.ThrottleTimeMs < want || p.ThrottleTimeMs > want+1000 {
			t.Errorf("%s windows of %s s: throttled for %d ms, want %d", k.num, k.size, p.ThrottleTimeMs, want)
		}
	}
}

// tryCreate makes a topic of one partition and so many replicas; -1: as the broker likes.
func (c *client) tryCreate(name string, replicas int16) api.ErrorCode {
	c.t.Helper()
	var q api.CreateTopicsRequest
	q.Default()
	t := api.Next(&q.Topics)
	t.Name, t.NumPartitions, t.ReplicationFactor = name, 1, replicas
	var p api.CreateTopicsResponse
	c.call(api.KeyCreateTopics, 7, &q, &p)
	return p.Topics[0].ErrorCode
}

// controller.quota.window.num and controller.quota.window.size.seconds are how long a client may save up partitions to make: at a rate of one
// in ten thousand seconds hours do, which this test does not take, so that what it makes does not depend on time.
func TestKeysOfMutationWindows(t *testing.T) {
	for _, k := range []struct {
		num, size string
		topics    int // those saved up, and one on credit
	}{{"3", "10000", 4}, {"1", "10000", 2}, {"1", "30000", 4}, {"2", "30000", 7}} {
		b := broker(t, "controller.quota.window.num", k.num, "controller.quota.window.size.seconds", k.size)
		dial(t, b).setQuota("controller_mutation_rate", 0.0001)
		made := 0
		for made < 10 && dial(t, b).tryCreate(strings.Repeat("x", made+1), 1) == api.ErrNone {
			made++
		}
		want(t, k.num+" windows of "+k.size+" s: topics", made, k.topics)
		want(t, "one more", dial(t, b).tryCreate("more", 1), api.ErrThrottlingQuotaExceeded)
	}
}

// describeProducers lists the producers that partition 0 of t knows.
func (c *client) describeProducers() (ids []int64) {
	c.t.Helper()
	q := api.DescribeProducersRequest{Topics: []api.DescribeProducersRequestTopicRequest{{Name: "t", PartitionIndexes: []int32{0}}}}
	var p api.DescribeProducersResponse
	c.call(api.KeyDescribeProducers, 0, &q, &p)
	for _, s := range p.Topics[0].Partitions[0].ActiveProducers {
		ids = append(ids, s.ProducerId)
	}
	return ids
}

// idempotentProducer takes a producer id and writes to partition 0 of t with it.
func (c *client) idempotentProducer() {
	c.t.Helper()
	q := api.InitProducerIdRequest{TransactionTimeoutMs: 10_000, ProducerId: -1, ProducerEpoch: -1}
	var p api.InitProducerIdResponse
	if c.call(api.KeyInitProducerId, 4, &q, &p); p.ErrorCode != api.ErrNone {
		c.t.Fatalf("producer id: %v", p.ErrorCode)
	}
	set := idempotent(p.ProducerId, 0, "x")
	c.must(api.ErrNone, "an idempotent batch", set)
}

// producer.id.expiration.ms, altered in a running broker, is how long an idle producer is known, and producer.id.expiration.check.interval.ms
// how often the broker looks for those that are not any more: by default every ten minutes, longer than any wait of these tests.
func TestKeysOfProducerIDs(t *testing.T) {
	b := broker(t)
	c := dial(t, b)
	c.create("t", 1)
	c.idempotentProducer()
	b.engine.ExpireProducers()
	want(t, "producers within producer.id.expiration.ms of a day", len(c.describeProducers()), 1)
	c.brokerKeys(false, "producer.id.expiration.ms", "1")
	eventually(t, "the producer is forgotten", func() bool {
		b.engine.ExpireProducers()
		return len(c.describeProducers()) == 0
	})
	c.brokerKeys(true, "producer.id.expiration.ms", "86400000")
	c.idempotentProducer()
	b.engine.ExpireProducers()
	want(t, "producers within producer.id.expiration.ms of this broker", len(c.describeProducers()), 1)

	c = dial(t, broker(t, "producer.id.expiration.ms", "1", "producer.id.expiration.check.interval.ms", "5"))
	c.create("t", 1)
	c.idempotentProducer()
	eventually(t, "the producer is forgotten by itself", func() bool { return len(c.describeProducers()) == 0 })
}
