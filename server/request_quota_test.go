package server

import (
	"net"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"kaas/codec/api"
	"kaas/codec/wire"
)

// limitTime sets request_percentage of a client id; "" means all that have none of their own.
func (c *client) limitTime(clientID string, percent float64) {
	c.t.Helper()
	q := api.AlterClientQuotasRequest{Entries: []api.AlterClientQuotasRequestEntryData{{
		Entity: []api.AlterClientQuotasRequestEntityData{{EntityType: "client-id", EntityName: wire.NullString{String: clientID, Valid: clientID != ""}}},
		Ops:    []api.AlterClientQuotasRequestOpData{{Key: "request_percentage", Value: percent}}}}}
	var p api.AlterClientQuotasResponse
	if c.call(api.KeyAlterClientQuotas, 1, &q, &p); p.Entries[0].ErrorCode != api.ErrNone {
		c.t.Fatalf("quota: %v", p.Entries[0].ErrorCode)
	}
}

// dialAs is dial with a client id.
func dialAs(t testing.TB, b *Broker, clientID string) *client {
	c := dial(t, b)
	c.id = clientID
	return c
}

// noneCame tells whether nothing has come from the broker: the bytes that have are left there.
func (c *client) noneCame() bool {
	c.t.Helper()
	raw, err := c.c.(*net.TCPConn).SyscallConn()
	if err != nil {
		c.t.Fatal(err)
	}
	var e error
	if err := raw.Read(func(fd uintptr) bool {
		_, _, e = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_DONTWAIT|unix.MSG_PEEK)
		return true
	}); err != nil {
		c.t.Fatal(err)
	}
	return e == unix.EAGAIN
}

// timedRequest is a request and what its answer is to be decoded into.
type timedRequest struct {
	name         string
	key, version int16
	q, p         api.Message
}

// timedRequests is one request of each way through the broker: on the loop, on a worker, on the shard of a group or of a transaction, on several
// shards, with records and without.
func timedRequests(t *testing.T, admin *client) []timedRequest {
	admin.findGroup("g")
	admin.create("t", 1)
	admin.create("packed", 1, "compression.type", "gzip")
	admin.must(api.ErrNone, "produce", records("a"))
	x := admin.producer("x")
	want(t, "add", x.add("t", 0), api.ErrNone)
	var joined api.JoinGroupResponse
	admin.call(api.KeyJoinGroup, 3, joinRequest("sync"), &joined)
	want(t, "join", joined.ErrorCode, api.ErrNone)
	member, generation := joined.MemberId, joined.GenerationId
	var metadata api.MetadataRequest
	metadata.Default()
	var list api.ListOffsetsRequest
	list.Default()
	topic := api.Next(&list.Topics)
	topic.Name = "t"
	api.Next(&topic.Partitions).Timestamp = -1
	var create api.CreateTopicsRequest
	create.Default()
	made := api.Next(&create.Topics)
	made.Name, made.NumPartitions, made.ReplicationFactor = "made", 1, 1
	txnCommit := &api.TxnOffsetCommitRequest{TransactionalId: "x", GroupId: "g", ProducerId: x.pid, ProducerEpoch: x.epoch, GenerationId: -1}
	committed := api.Next(&txnCommit.Topics)
	committed.Name = "t"
	api.Next(&committed.Partitions).CommittedOffset = 1
	all := []timedRequest{
		{"Produce with acks=1", api.KeyProduce, 9, produceRequest("t", 0, 1, records("b")), new(api.ProduceResponse)},
		{"Produce with acks=-1", api.KeyProduce, 9, produceRequest("t", 0, -1, records("c")), new(api.ProduceResponse)},
		{"Produce that compresses", api.KeyProduce, 9, produceRequest("packed", 0, 1, records("d")), new(api.ProduceResponse)},
		{"Produce of a transaction", api.KeyProduce, 9, x.request("t", 0, "e"), new(api.ProduceResponse)},
		{"Fetch", api.KeyFetch, 12, fetchRequest("t", 0, 0, 0, 0), new(api.FetchResponse)},
		{"Fetch that waits", api.KeyFetch, 12, fetchRequest("t", 0, 0, 1, 1<<19), new(api.FetchResponse)},
		{"ListOffsets", api.KeyListOffsets, 7, &list, new(api.ListOffsetsResponse)},
		{"Metadata", api.KeyMetadata, 9, &metadata, new(api.MetadataResponse)},
		{"ApiVersions", api.KeyApiVersions, 2, new(api.ApiVersionsRequest), new(api.ApiVersionsResponse)},
		{"FindCoordinator", api.KeyFindCoordinator, 3, &api.FindCoordinatorRequest{Key: "g"}, new(api.FindCoordinatorResponse)},
		{"CreateTopics", api.KeyCreateTopics, 7, &create, new(api.CreateTopicsResponse)},
		{"JoinGroup", api.KeyJoinGroup, 3, joinRequest("join"), new(api.JoinGroupResponse)},
		{"SyncGroup", api.KeySyncGroup, 3, &api.SyncGroupRequest{GroupId: "sync", GenerationId: generation, MemberId: member}, new(api.SyncGroupResponse)},
		{"Heartbeat", api.KeyHeartbeat, 3, &api.HeartbeatRequest{GroupId: "sync", GenerationId: generation, MemberId: member}, new(api.HeartbeatResponse)},
		{"OffsetCommit", api.KeyOffsetCommit, 8, commitRequest("g", "t", 1, ""), new(api.OffsetCommitResponse)},
		{"OffsetFetch", api.KeyOffsetFetch, 7, &api.OffsetFetchRequest{GroupId: "g"}, new(api.OffsetFetchResponse)},
		{"LeaveGroup", api.KeyLeaveGroup, 2, &api.LeaveGroupRequest{GroupId: "sync", MemberId: member}, new(api.LeaveGroupResponse)},
		{"DescribeGroups", api.KeyDescribeGroups, 3, &api.DescribeGroupsRequest{Groups: []string{"g", "sync"}}, new(api.DescribeGroupsResponse)},
		{"InitProducerId", api.KeyInitProducerId, 4, &api.InitProducerIdRequest{TransactionalId: wire.Some("y"), TransactionTimeoutMs: 60_000, ProducerId: -1, ProducerEpoch: -1}, new(api.InitProducerIdResponse)},
		{"AddPartitionsToTxn", api.KeyAddPartitionsToTxn, 3, &api.AddPartitionsToTxnRequest{V3AndBelowTransactionalId: "x", V3AndBelowProducerId: x.pid, V3AndBelowProducerEpoch: x.epoch,
			V3AndBelowTopics: []api.AddPartitionsToTxnRequestAddPartitionsToTxnTopic{{Name: "packed", Partitions: []int32{0}}}}, new(api.AddPartitionsToTxnResponse)},
		{"AddOffsetsToTxn", api.KeyAddOffsetsToTxn, 3, &api.AddOffsetsToTxnRequest{TransactionalId: "x", ProducerId: x.pid, ProducerEpoch: x.epoch, GroupId: "g"}, new(api.AddOffsetsToTxnResponse)},
		{"TxnOffsetCommit", api.KeyTxnOffsetCommit, 3, txnCommit, new(api.TxnOffsetCommitResponse)},
		{"EndTxn", api.KeyEndTxn, 3, &api.EndTxnRequest{TransactionalId: "x", ProducerId: x.pid, ProducerEpoch: x.epoch, Committed: true}, new(api.EndTxnResponse)},
	}
	return all
}

// request_percentage counts the time of every request but the exempt ones, and throttles the one that is over it itself: it is told so, for a
// window at most, and its connection is muted from then on (KIP-124, KIP-219), while others are served. The quota is so small, and the
// window so long, that any time at all is far too much.
func TestRequestPercentage(t *testing.T) {
	b := broker(t, "kaas.loops", "1", "quota.window.size.seconds", "3600", "group.initial.rebalance.delay.ms", "0", "kaas.metrics.listen", "127.0.0.1:0")
	admin := dialAs(t, b, "admin")
	admin.limitTime("admin", 1e9)
	all := timedRequests(t, admin)
	admin.limitTime("", 1e-9)
	var versions api.ApiVersionsResponse
	for _, r := range all {
		c := dialAs(t, b, r.name) // nobody else has used anything of its quota
		c.call(r.key, r.version, r.q, r.p)
		if got := reflect.ValueOf(r.p).Elem().FieldByName("ThrottleTimeMs").Int(); got != 3_600_000 {
			t.Errorf("%s: throttled for %d ms, want a window", r.name, got)
		}
		c.send(api.KeyApiVersions, 2, new(api.ApiVersionsRequest))
		for range 2 { // whoever is not muted is answered first
			admin.call(api.KeyApiVersions, 2, new(api.ApiVersionsRequest), &versions)
		}
		want(t, "throttle time of another client", versions.ThrottleTimeMs, 0)
		if !c.noneCame() {
			t.Errorf("%s: the connection is not muted", r.name)
		}
	}
	fetched := all[4].p.(*api.FetchResponse)
	want(t, "topics in the answer to a Fetch that is throttled", len(fetched.Responses), 0)
	wantSeries(t, scrape(t, b), map[string]float64{`kaas_quota_throttled_total{quota="request_percentage"}`: float64(len(all)), `kaas_quota_time_seconds_total{part="exempt"}`: 0})

	for name, send := range map[string]func(c *client){
		"Produce with acks=0": func(c *client) { c.send(api.KeyProduce, 9, produceRequest("t", 0, 0, records("f"))) },
		"WriteTxnMarkers": func(c *client) {
			c.call(api.KeyWriteTxnMarkers, 1, &api.WriteTxnMarkersRequest{Markers: []api.WriteTxnMarkersRequestWritableTxnMarker{{ProducerId: 1,
				Topics: []api.WriteTxnMarkersRequestWritableTxnMarkerTopic{{Name: "t", PartitionIndexes: []int32{0}}}}}}, new(api.WriteTxnMarkersResponse))
		},
	} {
		c := dialAs(t, b, name)
		before := scrape(t, b)[`kaas_quota_time_seconds_total{part="exempt"}`]
		send(c)
		c.call(api.KeyApiVersions, 2, new(api.ApiVersionsRequest), &versions)
		want(t, "throttle time after "+name, versions.ThrottleTimeMs, 3_600_000)
		if after := scrape(t, b)[`kaas_quota_time_seconds_total{part="exempt"}`]; after <= before {
			t.Errorf("%s: %v s are exempt, %v before", name, after, before)
		}
	}
}

// The time of the network counts too, that of sendfile above all: it is charged when the next request comes, or the connection ends.
func TestNetworkTimeIsCharged(t *testing.T) {
	b := broker(t, "kaas.loops", "1", "kaas.metrics.listen", "127.0.0.1:0")
	network := func() float64 { return scrape(t, b)[`kaas_quota_time_seconds_total{part="network"}`] }
	c := dialAs(t, b, "reader")
	c.create("t", 1)
	for range 8 {
		c.must(api.ErrNone, "produce", made0(1_000_000))
	}
	want(t, "time of the network without a quota", network(), 0)
	c.limitTime("reader", 1e9)
	q := fetchRequest("t", 0, 0, 0, 0)
	q.MaxBytes, q.Topics[0].Partitions[0].PartitionMaxBytes = 50<<20, 50<<20
	var p api.FetchResponse
	c.call(api.KeyFetch, 12, q, &p)
	if got := p.Responses[0].Partitions[0].Records.Len(); got < 8_000_000 {
		t.Fatalf("%d bytes of records", got)
	}
	before := network()
	c.call(api.KeyApiVersions, 2, new(api.ApiVersionsRequest), new(api.ApiVersionsResponse))
	sent := network() - before
	if least := 1e-5; sent < least { // 8 MB at 800 GB/s
		t.Errorf("%v s for 8 MB, want %v at least", sent, least)
	}
	c.call(api.KeyFetch, 12, q, &p)
	before = network()
	c.c.Close()
	eventually(t, "the last answer is charged", func() bool { return network() > before })
}
