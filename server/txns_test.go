package server

import (
	"encoding/hex"
	"fmt"
	"reflect"
	"testing"

	"kaas/codec/api"
	"kaas/codec/batch"
	"kaas/codec/wire"
	"kaas/server/topics"
)

// txnClient is a producer with a transactional id that speaks frames.
type txnClient struct {
	*client
	id    string
	pid   int64
	epoch int16
	next  map[int32]int32 // sequence, by partition
}

// producer finds the coordinator and initialises a transactional id.
func (c *client) producer(id string) *txnClient {
	c.t.Helper()
	var f api.FindCoordinatorResponse
	c.call(api.KeyFindCoordinator, 3, &api.FindCoordinatorRequest{Key: id, KeyType: 1}, &f)
	if f.ErrorCode != api.ErrNone {
		c.t.Fatalf("coordinator of %s: %v", id, f.ErrorCode)
	}
	x := &txnClient{client: c, id: id}
	x.init()
	return x
}

// init asks for the producer id, again while an open transaction is being aborted.
func (x *txnClient) init() {
	x.t.Helper()
	eventually(x.t, "a producer id", func() bool {
		p := x.tryInit(60_000)
		x.pid, x.epoch, x.next = p.ProducerId, p.ProducerEpoch, map[int32]int32{}
		return p.ErrorCode == api.ErrNone
	})
}

func (x *txnClient) tryInit(timeoutMs int32) (p api.InitProducerIdResponse) {
	x.t.Helper()
	x.call(api.KeyInitProducerId, 4, &api.InitProducerIdRequest{TransactionalId: wire.Some(x.id), TransactionTimeoutMs: timeoutMs, ProducerId: -1, ProducerEpoch: -1}, &p)
	return p
}

func (x *txnClient) add(topic string, partitions ...int32) api.ErrorCode {
	x.t.Helper()
	var p api.AddPartitionsToTxnResponse
	x.call(api.KeyAddPartitionsToTxn, 3, &api.AddPartitionsToTxnRequest{V3AndBelowTransactionalId: x.id, V3AndBelowProducerId: x.pid, V3AndBelowProducerEpoch: x.epoch,
		V3AndBelowTopics: []api.AddPartitionsToTxnRequestAddPartitionsToTxnTopic{{Name: topic, Partitions: partitions}}}, &p)
	return p.ResultsByTopicV3AndBelow[0].ResultsByPartition[0].PartitionErrorCode
}

// batch is one record of the transaction.
func (x *txnClient) batch(partition int32, value string) []byte {
	spec := batch.NewSpec()
	spec.ProducerID, spec.ProducerEpoch, spec.BaseSequence, spec.Transactional = x.pid, x.epoch, x.next[partition], true
	var b batch.Builder
	b.Begin(nil, spec)
	b.Append(1_700_000_000_000, nil, []byte(value))
	return b.End(nil)
}

func (x *txnClient) request(topic string, partition int32, value string) *api.ProduceRequest {
	q := produceRequest(topic, partition, -1, x.batch(partition, value))
	q.TransactionalId = wire.Some(x.id)
	return q
}

// put writes one record of the transaction and returns what was answered.
func (x *txnClient) put(topic string, partition int32, value string) api.ErrorCode {
	x.t.Helper()
	var p api.ProduceResponse
	x.call(api.KeyProduce, 9, x.request(topic, partition, value), &p)
	code := p.Responses[0].PartitionResponses[0].ErrorCode
	if code == api.ErrNone {
		x.next[partition]++
	}
	return code
}

func (x *txnClient) end(commit bool) api.ErrorCode {
	x.t.Helper()
	var p api.EndTxnResponse
	x.call(api.KeyEndTxn, 3, &api.EndTxnRequest{TransactionalId: x.id, ProducerId: x.pid, ProducerEpoch: x.epoch, Committed: commit}, &p)
	return p.ErrorCode
}

// committedData reads a partition as read_committed does: what is aborted is left out.
func (c *client) committedData(topic string, partition int32) (out []string, lso int64) {
	c.t.Helper()
	for offset := int64(0); ; { // an answer has records of one segment
		q := fetchRequest(topic, partition, offset, 0, 0)
		q.IsolationLevel = 1
		var p api.FetchResponse
		c.call(api.KeyFetch, 12, q, &p)
		data := p.Responses[0].Partitions[0]
		if data.Records.Len() == 0 {
			return out, data.LastStableOffset
		}
		var some []string
		some, offset = c.committedRecords(data)
		out = append(out, some...)
	}
}

// committedRecords leaves out what is aborted of an answer; next is the offset after it.
func (c *client) committedRecords(data api.FetchResponsePartitionData) (out []string, next int64) {
	c.t.Helper()
	aborted := map[int64]bool{} // producers in an aborted transaction
	rest := data.AbortedTransactions
	for set := data.Records.Bytes; len(set) > 0; {
		v, err := batch.Next(set)
		if err != nil {
			c.t.Fatal(err)
		}
		set = set[v.Size():]
		next = v.LastOffset() + 1
		for i := range rest {
			if rest[i].ProducerId >= 0 && rest[i].FirstOffset <= v.BaseOffset() {
				aborted[rest[i].ProducerId] = true
				rest[i].ProducerId = -1
			}
		}
		switch {
		case v.IsControl():
			delete(aborted, v.ProducerID())
		case !aborted[v.ProducerID()]:
			for _, r := range values(c.t, v) {
				out = append(out, r.value)
			}
		}
	}
	return out, next
}

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// Data of a transaction is taken only into one that its coordinator knows to include the partition, and not after its end (KIP-890).
func TestTransactionalDataIsVerified(t *testing.T) {
	for _, durability := range []string{"group-commit", "page-cache"} {
		t.Run(durability, func(t *testing.T) {
			c := dial(t, broker(t, "kaas.durability", durability, "transaction.state.log.num.partitions", "2"))
			c.create("t", 2)
			x := c.producer("x")
			want(t, "nothing added", x.put("t", 0, "a"), api.ErrInvalidTxnState)
			want(t, "add", x.add("t", 0), api.ErrNone)
			want(t, "another partition", x.put("t", 1, "a"), api.ErrInvalidTxnState)
			want(t, "added", x.put("t", 0, "a"), api.ErrNone)
			want(t, "and more", x.put("t", 0, "b"), api.ErrNone)
			other := *x
			other.pid += 1000
			want(t, "another producer id", other.put("t", 0, "a"), api.ErrInvalidProducerIdMapping)
			other = *x
			other.id = "unknown"
			other.next = map[int32]int32{}
			want(t, "another partition of an unknown id", other.put("t", 1, "a"), api.ErrInvalidProducerIdMapping)
			var p api.ProduceResponse
			c.call(api.KeyProduce, 9, produceRequest("t", 0, -1, x.batch(0, "c")), &p)
			want(t, "no transactional id", p.Responses[0].PartitionResponses[0].ErrorCode, api.ErrTransactionalIdAuthorizationFailed)
			want(t, "commit", x.end(true), api.ErrNone)
			want(t, "after the marker", x.put("t", 0, "late"), api.ErrInvalidTxnState)
			want(t, "an older epoch", func() api.ErrorCode { old := *x; x.init(); return old.put("t", 0, "late") }(), api.ErrInvalidProducerEpoch)
			got, lso := c.committedData("t", 0)
			if !reflect.DeepEqual(got, []string{"a", "b"}) || lso != 3 {
				t.Errorf("read_committed %v up to %d", got, lso)
			}
		})
	}
}

// With transaction.partition.verification.enable=false, which can be altered while the broker runs, data is taken as clients bring it.
func TestVerificationCanBeTurnedOff(t *testing.T) {
	c := dial(t, broker(t, "transaction.partition.verification.enable", "false"))
	c.create("t", 1)
	x := c.producer("x")
	want(t, "unverified", x.put("t", 0, "a"), api.ErrNone)
	_, lso := c.committedData("t", 0)
	want(t, "last stable offset", lso, 0)
	q := &api.IncrementalAlterConfigsRequest{}
	r := api.Next(&q.Resources)
	r.ResourceType = 4
	k := api.Next(&r.Configs)
	k.Name, k.Value = "transaction.partition.verification.enable", wire.Some("true")
	var p api.IncrementalAlterConfigsResponse
	c.call(api.KeyIncrementalAlterConfigs, 1, q, &p)
	want(t, "alter", p.Responses[0].ErrorCode, api.ErrNone)
	y := c.producer("y")
	want(t, "unverified, now", y.put("t", 0, "a"), api.ErrInvalidTxnState)
}

// TestTransactionSettings sees an effect of every setting of the coordinator and its topic.
func TestTransactionSettings(t *testing.T) {
	b := broker(t, "transaction.max.timeout.ms", "70000", "transaction.state.log.num.partitions", "3", "transaction.state.log.segment.bytes", "1048576",
		"transaction.state.log.min.isr", "1", "transaction.state.log.load.buffer.size", "1", "transaction.abort.timed.out.transaction.cleanup.interval.ms", "1",
		"transactional.id.expiration.ms", "1", "transaction.remove.expired.transaction.cleanup.interval.ms", "1")
	c := dial(t, b)
	c.create("t", 1)
	x := c.producer("x")
	want(t, "a timeout above the greatest", x.tryInit(70_001).ErrorCode, api.ErrInvalidTransactionTimeout)
	topic := b.topics.ByName(topics.TransactionsTopic)
	want(t, "partitions", len(topic.Partitions()), 3)
	want(t, "segment.bytes", topic.Settings().Config.SegmentBytes, 1<<20)
	want(t, "compacted", topic.Settings().Config.Compact && !topic.Settings().Config.Delete, true)
	state := func(id string) string {
		var p api.DescribeTransactionsResponse
		c.call(api.KeyDescribeTransactions, 0, &api.DescribeTransactionsRequest{TransactionalIds: []string{id}}, &p)
		return p.TransactionStates[0].ErrorCode.String() + p.TransactionStates[0].TransactionState
	}
	eventually(t, "the expiry of x", func() bool { return state("x") == api.ErrTransactionalIdNotFound.String() })

	// One that is open is aborted first, when its own time is over.
	y := c.producer("y")
	p := y.tryInit(1)
	for p.ErrorCode != api.ErrNone { // expired in between
		p = y.tryInit(1)
	}
	y.pid, y.epoch = p.ProducerId, p.ProducerEpoch
	if code := y.add("t", 0); code == api.ErrNone {
		eventually(t, "the end of y", func() bool { return state("y") == api.ErrTransactionalIdNotFound.String() })
		want(t, "a commit of what timed out", y.end(true), api.ErrInvalidProducerIdMapping)
	}
}

// A transaction over many partitions ends by few group commits, not by one for each partition.
func TestMarkersShareCommits(t *testing.T) {
	const partitions, transactions = 100, 4
	b := broker(t, "kaas.durability", "group-commit", "kaas.metrics.listen", "127.0.0.1:0")
	c := dial(t, b)
	c.create("t", partitions)
	x := c.producer("x")
	all := make([]int32, partitions)
	for i := range all {
		all[i] = int32(i)
	}
	fewest := float64(partitions)
	for range transactions {
		want(t, "add", x.add("t", all...), api.ErrNone)
		for _, p := range all {
			want(t, fmt.Sprint("put ", p), x.put("t", p, "v"), api.ErrNone)
		}
		before := scrape(t, b)["kaas_commit_rounds_total"]
		want(t, "commit", x.end(true), api.ErrNone)
		// The answer tells that it is decided; markers may still be under way, and until they are there the id takes no other transaction.
		eventually(t, "the end of the transaction", func() bool { return scrape(t, b)[`kaas_transactional_ids{state="CompleteCommit"}`] == 1 })
		fewest = min(fewest, scrape(t, b)["kaas_commit_rounds_total"]-before)
	}
	if fewest < 2 || fewest > 12 { // a busy machine makes more rounds while the markers are appended, though not of each transaction
		t.Errorf("%v rounds of group commit at the least for the end of a transaction over %d partitions", fewest, partitions)
	}
	got := scrape(t, b)
	want(t, "markers", got[`kaas_transaction_markers_total{type="commit"}`], transactions*partitions)
	want(t, "ids", got[`kaas_transactional_ids{state="CompleteCommit"}`], 1)
	for _, p := range all {
		if _, lso := c.committedData("t", p); lso != 2*transactions {
			t.Errorf("partition %d: last stable offset %d", p, lso)
		}
	}
}

// The end of a transaction in a partition is, byte by byte, what Apache Kafka writes: key {int16 0, int16 type}, value {int16 0, int32
// coordinator epoch} (regression 62).
func TestMarkerBytes(t *testing.T) {
	c := dial(t, broker(t))
	c.create("t", 1)
	x := c.producer("x")
	for i, commit := range []bool{true, false} {
		want(t, "add", x.add("t", 0), api.ErrNone)
		want(t, "put", x.put("t", 0, "v"), api.ErrNone)
		want(t, "end", x.end(commit), api.ErrNone)
		set := c.fetch("t", 0, int64(2*i+1)).Records.Bytes
		v, err := batch.Next(set)
		if err != nil {
			t.Fatal(err)
		}
		kind := map[bool]string{true: "0001", false: "0000"}[commit]
		if got, want := hex.EncodeToString(v[61:]), "20"+"00"+"00"+"00"+"08"+"0000"+kind+"0c"+"000000000000"+"00"; got != want {
			t.Errorf("record %s, want %s", got, want)
		}
		if v.Attributes() != 0x30 || v.ProducerID() != x.pid || v.ProducerEpoch() != x.epoch || v.BaseSequence() != -1 || v.Count() != 1 {
			t.Errorf("header %x", []byte(v[:61]))
		}
	}
}

// What was decided before a kill is carried out after it; what was not is aborted by the next producer of that id. Offsets of a group go with their
// transaction.
func TestTransactionsSurviveKill(t *testing.T) {
	for _, durability := range []string{"group-commit", "page-cache"} {
		t.Run(durability, func(t *testing.T) {
			dir := t.TempDir()
			settings := []string{"kaas.durability", durability, "transaction.state.log.num.partitions", "2", "offsets.topic.num.partitions", "2"}
			b := start(t, dir, settings...)
			c := dial(t, b)
			c.create("t", 2)
			c.findGroup("g")
			x, y := c.producer("x"), c.producer("y")
			for _, p := range []*txnClient{x, y} {
				want(t, "add", p.add("t", 0, 1), api.ErrNone)
				want(t, "put", p.put("t", 0, p.id), api.ErrNone)
				want(t, "offsets", p.commitOffset("g", "t", 5), api.ErrInvalidTxnState)
				want(t, "add offsets", p.addOffsets("g"), api.ErrNone)
				want(t, "offsets", p.commitOffset("g", "t", map[string]int64{"x": 7, "y": 9}[p.id]), api.ErrNone)
			}
			want(t, "commit", x.end(true), api.ErrNone)
			stopDirty(t, b, false)
			b = start(t, dir, settings...)
			defer func() { stop(t, b) }()
			c = dial(t, b)
			eventually(t, "the offsets of the committed transaction", func() bool {
				got, code := c.committed("g", "t")
				return code == api.ErrNone && got == 7
			})
			y.client = c
			y.init()
			want(t, "another epoch", y.epoch > 0, true)
			for p, data := range map[int32][]string{0: {"x"}, 1: nil} {
				got, lso := c.committedData("t", p)
				if !reflect.DeepEqual(got, data) || lso != c.fetch("t", p, 0).HighWatermark {
					t.Errorf("partition %d: %v up to %d", p, got, lso)
				}
			}
			c.wantCommitted("g", "t", 7)
		})
	}
}

func (x *txnClient) addOffsets(group string) api.ErrorCode {
	x.t.Helper()
	var p api.AddOffsetsToTxnResponse
	x.call(api.KeyAddOffsetsToTxn, 3, &api.AddOffsetsToTxnRequest{TransactionalId: x.id, ProducerId: x.pid, ProducerEpoch: x.epoch, GroupId: group}, &p)
	return p.ErrorCode
}

func (x *txnClient) commitOffset(group, topic string, offset int64) api.ErrorCode {
	x.t.Helper()
	q := &api.TxnOffsetCommitRequest{TransactionalId: x.id, GroupId: group, ProducerId: x.pid, ProducerEpoch: x.epoch, GenerationId: -1}
	t := api.Next(&q.Topics)
	t.Name = topic
	api.Next(&t.Partitions).CommittedOffset = offset
	var p api.TxnOffsetCommitResponse
	x.call(api.KeyTxnOffsetCommit, 3, q, &p)
	return p.Topics[0].Partitions[0].ErrorCode
}

// A topic that is deleted takes its part of open transactions with it; the rest of them can be committed.
func TestTransactionOverADeletedTopic(t *testing.T) {
	c := dial(t, broker(t))
	c.create("t", 1)
	c.create("gone", 1)
	x := c.producer("x")
	for _, topic := range []string{"t", "gone"} {
		want(t, "add", x.add(topic, 0), api.ErrNone)
		x.next = map[int32]int32{}
		want(t, "put", x.put(topic, 0, "v"), api.ErrNone)
	}
	var p api.DeleteTopicsResponse
	c.call(api.KeyDeleteTopics, 5, &api.DeleteTopicsRequest{TopicNames: []string{"gone"}}, &p)
	want(t, "delete", p.Responses[0].ErrorCode, api.ErrNone)
	want(t, "commit", x.end(true), api.ErrNone)
	want(t, "the next one", x.add("t", 0), api.ErrNone)
}

// WriteTxnMarkers judges epochs of producers and coordinators; a producer that nobody knows gets its marker (regression 63 wants ClusterAction,
// where there are ACLs).
func TestWriteTxnMarkers(t *testing.T) {
	c := dial(t, broker(t))
	c.create("t", 1)
	x := c.producer("x")
	x.init()
	want(t, "add", x.add("t", 0), api.ErrNone)
	want(t, "put", x.put("t", 0, "v"), api.ErrNone)
	mark := func(topic string, pid int64, epoch int16, coordinator int32) api.ErrorCode {
		var p api.WriteTxnMarkersResponse
		c.call(api.KeyWriteTxnMarkers, 1, &api.WriteTxnMarkersRequest{Markers: []api.WriteTxnMarkersRequestWritableTxnMarker{{ProducerId: pid, ProducerEpoch: epoch,
			CoordinatorEpoch: coordinator, Topics: []api.WriteTxnMarkersRequestWritableTxnMarkerTopic{{Name: topic, PartitionIndexes: []int32{0}}}}}}, &p)
		return p.Markers[0].Topics[0].Partitions[0].ErrorCode
	}
	want(t, "an older epoch", mark("t", x.pid, x.epoch-1, 0), api.ErrInvalidProducerEpoch)
	want(t, "no such topic", mark("nope", x.pid, x.epoch, 0), api.ErrUnknownTopicOrPartition)
	want(t, "the epoch", mark("t", x.pid, x.epoch, 5), api.ErrNone)
	want(t, "an older coordinator", mark("t", x.pid, x.epoch, 4), api.ErrTransactionCoordinatorFenced)
	want(t, "an unknown producer", mark("t", x.pid+1, 0, 0), api.ErrNone)
	got, lso := c.committedData("t", 0)
	if len(got) != 0 || lso != 3 {
		t.Errorf("%v up to %d", got, lso)
	}
	var d api.DescribeProducersResponse
	c.call(api.KeyDescribeProducers, 0, &api.DescribeProducersRequest{Topics: []api.DescribeProducersRequestTopicRequest{{Name: "t", PartitionIndexes: []int32{0}}}}, &d)
	if ps := d.Topics[0].Partitions[0].ActiveProducers; len(ps) != 2 || ps[0].ProducerId != x.pid || ps[0].CoordinatorEpoch != 5 || ps[0].CurrentTxnStartOffset != -1 ||
		ps[0].LastSequence != 0 || ps[1].LastSequence != -1 {
		t.Errorf("producers %+v", ps)
	}
}
