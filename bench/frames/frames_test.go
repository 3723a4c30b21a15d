package frames

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// decode reads a request frame with a codec that is not ours.
func decode(t *testing.T, frame []byte) kmsg.Request {
	t.Helper()
	r := kbin.Reader{Src: frame}
	size := r.Int32()
	req := kmsg.RequestForKey(r.Int16())
	req.SetVersion(r.Int16())
	id := r.Int32()
	client := r.String()
	if int(size) != len(frame)-4 || id != 77 || client != ClientID {
		t.Fatalf("want size %d, correlation id 77 and client %s, got %d, %d, %s", len(frame)-4, ClientID, size, id, client)
	}
	if err := req.ReadFrom(r.Src); err != nil {
		t.Fatal(err)
	}
	// What was read must be all there was.
	if again := req.AppendTo(nil); len(again) != len(r.Src) {
		t.Errorf("want %d bytes of body, got %d", len(again), len(r.Src))
	}
	return req
}

func correlated(frame []byte) []byte {
	SetCorrelation(frame, 77)
	return frame
}

func TestProduce(t *testing.T) {
	batch, records, err := Batch(1000, 100, 1234)
	if err != nil {
		t.Fatal(err)
	}
	head := ProduceHead("topic", 3, -1, 500, len(batch))
	if len(head) != ProduceHeadBytes(5) {
		t.Errorf("want a head of %d bytes, got %d", ProduceHeadBytes(5), len(head))
	}
	req := decode(t, correlated(append(head, batch...))).(*kmsg.ProduceRequest)
	if req.Version != VersionProduce || req.TransactionID != nil || req.Acks != -1 || req.TimeoutMillis != 500 || len(req.Topics) != 1 {
		t.Fatalf("got %+v", req)
	}
	topic := req.Topics[0]
	if topic.Topic != "topic" || len(topic.Partitions) != 1 || topic.Partitions[0].Partition != 3 {
		t.Fatalf("got %+v", topic)
	}
	var b kmsg.RecordBatch
	if err := b.ReadFrom(topic.Partitions[0].Records); err != nil {
		t.Fatal(err)
	}
	if int(b.NumRecords) != records || int(b.LastOffsetDelta) != records-1 || b.Magic != 2 || b.FirstTimestamp != 1234 || b.MaxTimestamp != 1234 ||
		b.ProducerID != -1 || b.ProducerEpoch != -1 || b.FirstSequence != -1 || b.FirstOffset != 0 || b.PartitionLeaderEpoch != -1 {
		t.Errorf("got %+v", b)
	}
	if sum := crc32.Checksum(batch[BatchCRCFrom:], crc32.MakeTable(crc32.Castagnoli)); uint32(b.CRC) != sum {
		t.Errorf("want CRC %08x, got %08x", sum, uint32(b.CRC))
	}
	rest := b.Records
	for i := range records {
		var r kmsg.Record
		n, used := binary.Varint(rest)
		frame := rest[:used+int(n)]
		if err := r.ReadFrom(frame); err != nil {
			t.Fatal(err)
		}
		if int(r.OffsetDelta) != i || r.Key != nil || len(r.Value) != 100 || r.TimestampDelta64 != 0 || len(r.Headers) != 0 {
			t.Errorf("record %d: got %+v", i, r)
		}
		rest = rest[len(frame):]
	}
	if len(rest) != 0 {
		t.Errorf("%d bytes after the last record", len(rest))
	}
}

func TestBatchSizes(t *testing.T) {
	for _, c := range []struct{ size, record, records, max int }{
		{16 << 10, 1 << 10, 15, 16 << 10},
		{1, 1 << 10, 1, 1 << 12}, // never less than one record
		{1 << 20, 100, 9520, 1 << 20},
	} {
		b, n, err := Batch(c.size, c.record, 0)
		if err != nil || n != c.records || len(b) > c.max {
			t.Errorf("%+v: got %d records in %d bytes, %v", c, n, len(b), err)
		}
	}
	if _, _, err := Batch(1<<31, 1, 0); err == nil {
		t.Error("want a batch of 2 GiB refused")
	}
}

func TestOtherRequests(t *testing.T) {
	frame, at := Fetch("topic", 4, 500, 1, 1<<20)
	be.PutUint64(frame[at:], 99)
	f := decode(t, correlated(frame)).(*kmsg.FetchRequest)
	if f.Version != VersionFetch || f.ReplicaID != -1 || f.MaxWaitMillis != 500 || f.MinBytes != 1 || f.MaxBytes != 1<<20 || f.SessionEpoch != -1 || len(f.Topics) != 1 {
		t.Fatalf("got %+v", f)
	}
	p := f.Topics[0].Partitions[0]
	if f.Topics[0].Topic != "topic" || p.Partition != 4 || p.FetchOffset != 99 || p.CurrentLeaderEpoch != -1 || p.LogStartOffset != -1 || p.PartitionMaxBytes != 1<<20 {
		t.Errorf("got %+v", p)
	}
	l := decode(t, correlated(ListOffsets("topic", 2, -2))).(*kmsg.ListOffsetsRequest)
	if q := l.Topics[0].Partitions[0]; l.ReplicaID != -1 || l.Topics[0].Topic != "topic" || q.Partition != 2 || q.Timestamp != -2 {
		t.Errorf("got %+v", l)
	}
	m := decode(t, correlated(Metadata("a", "b"))).(*kmsg.MetadataRequest)
	if len(m.Topics) != 2 || m.AllowAutoTopicCreation || *m.Topics[0].Topic != "a" || *m.Topics[1].Topic != "b" {
		t.Errorf("got %+v", m)
	}
	decode(t, correlated(APIVersions()))
	c := decode(t, correlated(CreateTopics(5, 100, "a", "b"))).(*kmsg.CreateTopicsRequest)
	if len(c.Topics) != 2 || c.Topics[1].Topic != "b" || c.Topics[1].NumPartitions != 5 || c.Topics[1].ReplicationFactor != 1 || c.TimeoutMillis != 100 || c.ValidateOnly {
		t.Errorf("got %+v", c)
	}
}

// encode makes an answer with a codec that is not ours: length, correlation id, body.
func encode(resp kmsg.Response, version int16, more int) []byte {
	resp.SetVersion(version)
	b := resp.AppendTo(make([]byte, ResponseHead))
	be.PutUint32(b, uint32(len(b)-4+more))
	return b
}

func TestProduceAnswer(t *testing.T) {
	resp := kmsg.NewPtrProduceResponse()
	p := kmsg.NewProduceResponseTopicPartition()
	p.Partition, p.ErrorCode, p.BaseOffset = 3, 10, 55
	resp.Topics = []kmsg.ProduceResponseTopic{{Topic: "topic", Partitions: []kmsg.ProduceResponseTopicPartition{p}}}
	b := encode(resp, VersionProduce, 0)
	if len(b) != ProduceAnswerBytes(5) {
		t.Fatalf("want %d bytes, got %d", len(b), ProduceAnswerBytes(5))
	}
	at := ProduceErrorAt(5)
	if code, base := be.Uint16(b[at:]), be.Uint64(b[at+2:]); code != 10 || base != 55 {
		t.Errorf("want error 10 and offset 55, got %d and %d", code, base)
	}
}

func fetchAnswer(change func(*kmsg.FetchResponseTopicPartition)) []byte {
	resp := kmsg.NewPtrFetchResponse()
	p := kmsg.NewFetchResponseTopicPartition()
	p.HighWatermark, p.RecordBatches = 88, make([]byte, 1000)
	if change != nil {
		change(&p)
	}
	resp.Topics = []kmsg.FetchResponseTopic{{Topic: "topic", Partitions: []kmsg.FetchResponseTopicPartition{p}}}
	return encode(resp, VersionFetch, 0)
}

func TestFetchAnswer(t *testing.T) {
	b := fetchAnswer(nil)
	if len(b) != FetchAnswerBytes(5)+1000 {
		t.Fatalf("want a head of %d bytes, got %d", len(b)-1000, FetchAnswerBytes(5))
	}
	head := b[:FetchAnswerBytes(5)]
	if high, n, err := FetchHead(head, "topic"); err != nil || high != 88 || n != 1000 {
		t.Errorf("want 88 and 1000, got %d, %d, %v", high, n, err)
	}
	if _, _, err := FetchHead(head, "tropic"); !errors.Is(err, ErrMalformed) {
		t.Errorf("want another topic refused, got %v", err)
	}
	head[3]++
	if _, _, err := FetchHead(head, "topic"); !errors.Is(err, ErrMalformed) {
		t.Errorf("want a wrong length refused, got %v", err)
	}
	coded := fetchAnswer(func(p *kmsg.FetchResponseTopicPartition) { p.ErrorCode = 1 })[:FetchAnswerBytes(5)]
	var kafka *Error
	if _, _, err := FetchHead(coded, "topic"); !errors.As(err, &kafka) || kafka.Code != 1 {
		t.Errorf("want error 1, got %v", err)
	}
	aborted := fetchAnswer(func(p *kmsg.FetchResponseTopicPartition) {
		p.AbortedTransactions = make([]kmsg.FetchResponseTopicPartitionAbortedTransaction, 1)
	})[:FetchAnswerBytes(5)]
	if _, _, err := FetchHead(aborted, "topic"); !errors.Is(err, ErrMalformed) {
		t.Errorf("want aborted transactions refused, got %v", err)
	}
}

func TestMetadataAnswer(t *testing.T) {
	resp := kmsg.NewPtrMetadataResponse()
	resp.Brokers = []kmsg.MetadataResponseBroker{{NodeID: 4, Host: "h", Port: 1}, {NodeID: 7, Host: "::1", Port: 2}}
	name := "topic"
	resp.Topics = []kmsg.MetadataResponseTopic{{Topic: &name, Partitions: []kmsg.MetadataResponseTopicPartition{
		{Partition: 1, Leader: 7, Replicas: []int32{7, 4}, ISR: []int32{7}}, {Partition: 0, Leader: 4},
	}}}
	body := encode(resp, VersionMetadata, 0)[ResponseHead:]
	got, err := MetadataAnswer(body, "topic")
	if err != nil || got.Code != 0 || !reflect.DeepEqual(got.Leaders, []string{"h:1", "[::1]:2"}) {
		t.Errorf("got %+v, %v", got, err)
	}
	for n := range body {
		if _, err := MetadataAnswer(body[:n], "topic"); !errors.Is(err, ErrMalformed) {
			t.Fatalf("want the first %d bytes of %d refused, got %v", n, len(body), err)
		}
	}
	resp.Topics[0].Partitions[1].ErrorCode = 5
	if got, err := MetadataAnswer(encode(resp, VersionMetadata, 0)[ResponseHead:], "topic"); err != nil || got.Code != 5 {
		t.Errorf("want the error of the partition, got %+v, %v", got, err)
	}
}

func TestSmallAnswers(t *testing.T) {
	created := kmsg.NewPtrCreateTopicsResponse()
	created.Topics = []kmsg.CreateTopicsResponseTopic{{Topic: "a"}, {Topic: "b", ErrorCode: 36, ErrorMessage: kmsg.StringPtr("there")}}
	if topic, code, err := CreateTopicsAnswer(encode(created, VersionCreateTopics, 0)[ResponseHead:]); topic != "b" || code != 36 || err != nil {
		t.Errorf("want error 36 of b, got %s, %d, %v", topic, code, err)
	}
	offsets := kmsg.NewPtrListOffsetsResponse()
	offsets.Topics = []kmsg.ListOffsetsResponseTopic{{Topic: "a", Partitions: []kmsg.ListOffsetsResponseTopicPartition{{Timestamp: -1, Offset: 44}}}}
	if o, err := ListOffsetsAnswer(encode(offsets, VersionListOffsets, 0)[ResponseHead:]); o != 44 || err != nil {
		t.Errorf("want 44, got %d, %v", o, err)
	}
	versions := kmsg.NewPtrApiVersionsResponse()
	versions.ApiKeys = make([]kmsg.ApiVersionsResponseApiKey, 9)
	if n, err := APIVersionsAnswer(encode(versions, 0, 0)[ResponseHead:]); n != 9 || err != nil {
		t.Errorf("want 9 keys, got %d, %v", n, err)
	}
	versions.ErrorCode = 35
	var kafka *Error
	if _, err := APIVersionsAnswer(encode(versions, 0, 0)[ResponseHead:]); !errors.As(err, &kafka) || kafka.Code != 35 {
		t.Errorf("want error 35, got %v", err)
	}
}
