package api

import (
	"bytes"
	"errors"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"kaas/codec/wire"
)

// TestFacts checks the registry against what Apache Kafka 3.7.2 answers to ApiVersions, on a broker and on a controller.
func TestFacts(t *testing.T) {
	if len(Facts) != 75 {
		t.Fatalf("%d API keys, want 75", len(Facts))
	}
	for _, c := range []struct {
		file    string
		on      Listeners
		missing []int16 // served elsewhere or only in other circumstances
		more    []int16
	}{
		// 69 is unstable; 71 and 72 need a metrics reporter that takes client telemetry.
		{"testdata/apis-3.7.tsv", OnBroker, []int16{KeyConsumerGroupDescribe, KeyGetTelemetrySubscriptions, KeyPushTelemetry}, nil},
		{"testdata/apis-3.7-controller.tsv", OnController, nil, nil},
	} {
		text, err := os.ReadFile(c.file)
		if err != nil {
			t.Fatal(err)
		}
		served := map[int16]bool{}
		for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n")[1:] {
			cols := strings.Split(line, "\t")
			key, err := strconv.Atoi(cols[0])
			if err != nil {
				t.Fatal(err)
			}
			f, ok := Lookup(int16(key))
			served[f.Key] = true
			flexible := "none"
			if f.FlexibleFrom != Never {
				flexible = strconv.Itoa(int(f.FlexibleFrom))
			}
			got := []string{strconv.Itoa(int(f.Key)), f.Name, strconv.Itoa(int(f.Min)), strconv.Itoa(int(f.Max)), flexible}
			if !ok || !reflect.DeepEqual(got, cols) || f.Listeners&c.on == 0 {
				t.Errorf("%s: registry has %v (listeners %b), Apache answers %v", c.file, got, f.Listeners, cols)
			}
		}
		for _, key := range c.missing {
			served[key] = true
		}
		for _, f := range Facts {
			if f.Listeners&c.on != 0 != served[f.Key] {
				t.Errorf("%s: %s is there: %t, its listeners: %b", c.file, f.Name, served[f.Key], f.Listeners)
			}
		}
	}
	if f, _ := Lookup(KeyProduce); f.DeprecatedTo != 6 || f.Unstable {
		t.Errorf("Produce: %+v", f)
	}
	if f, _ := Lookup(KeyConsumerGroupDescribe); f.DeprecatedTo != -1 || !f.Unstable {
		t.Errorf("ConsumerGroupDescribe: %+v", f)
	}
	for _, key := range []int16{-1, 75, 32767, -32768} {
		if f, ok := Lookup(key); ok || NewRequest(key) != nil || NewResponse(key) != nil {
			t.Errorf("key %d: %+v", key, f)
		}
	}
}

// TestHeaderRules goes through every key and version with the rule in words: 2 and 1 where flexible, else 1 and 0; but
// ControlledShutdown v0 has request header 0, and ApiVersions always response header 0.
func TestHeaderRules(t *testing.T) {
	for i, f := range Facts {
		if int(f.Key) != i {
			t.Fatalf("key %d stands at %d", f.Key, i)
		}
		for v := f.Min; v <= f.Max; v++ {
			request, response := int16(1), int16(0)
			if f.FlexibleFrom != Never && v >= f.FlexibleFrom {
				request, response = 2, 1
			}
			switch {
			case f.Name == "ControlledShutdown" && v == 0:
				request = 0
			case f.Name == "ApiVersions":
				response = 0
			}
			if q, a := f.RequestHeader(v), f.ResponseHeader(v); q != request || a != response {
				t.Errorf("%s v%d: headers %d and %d, want %d and %d", f.Name, v, q, a, request, response)
			}
		}
		q, a := reflect.TypeOf(NewRequest(f.Key)).Elem().Name(), reflect.TypeOf(NewResponse(f.Key)).Elem().Name()
		if q != f.Name+"Request" || a != f.Name+"Response" {
			t.Errorf("key %d makes %s and %s", f.Key, q, a)
		}
	}
}

// TestVersionRange: a version outside the table is an error in both directions, for every message.
func TestVersionRange(t *testing.T) {
	for name, table := range tablesByName(t) {
		for _, v := range []int16{table.Versions.Lo - 1, table.Versions.Hi + 1, -32768, 32767} {
			m := newMessage[name]()
			m.Default()
			r := wire.NewReader(make([]byte, 100))
			m.Decode(&r, v)
			var w wire.Writer
			m.Encode(&w, v)
			if r.Err() != wire.ErrVersion || w.Err != wire.ErrVersion || len(w.B) != 0 {
				t.Errorf("%s v%d: %v, %v", name, v, r.Err(), w.Err)
			}
		}
	}
}

// TestEncodeRefuses: what a version cannot carry is an error that names the field, unless the field is ignorable.
func TestEncodeRefuses(t *testing.T) {
	encode := func(m Message, version int16) ([]byte, error) {
		var w wire.Writer
		m.Encode(&w, version)
		return w.B, w.Err
	}
	for _, c := range []struct {
		m       Message
		version int16
		field   string
		err     error
	}{
		{&ProduceRequest{TransactionalId: wire.Some("t")}, 2, "ProduceRequest.TransactionalId", wire.ErrUnsupported},
		{&MetadataRequest{AllowAutoTopicCreation: true}, 0, "MetadataRequest.Topics", wire.ErrNull},
		{&FetchRequest{ReplicaId: 5}, 15, "FetchRequest.ReplicaId", wire.ErrUnsupported},
		{&ProduceRequest{UnknownTags: []wire.Tag{{ID: 9}}}, 8, "ProduceRequest.UnknownTags", wire.ErrUnsupported},
		{&FetchRequest{ReplicaState: FetchRequestReplicaState{ReplicaId: 1, ReplicaEpoch: -1}, ReplicaId: -1}, 12,
			"FetchRequest.ReplicaState", wire.ErrUnsupported},
	} {
		_, err := encode(c.m, c.version)
		var fe *wire.FieldError
		if !errors.Is(err, c.err) || !errors.As(err, &fe) || fe.Field != c.field || fe.Version != c.version {
			t.Errorf("%T v%d: %v, want %v of %s", c.m, c.version, err, c.err, c.field)
		}
	}
	// ThrottleTimeMs is ignorable: dropped at v0.
	if b, err := encode(&ProduceResponse{ThrottleTimeMs: 77}, 0); err != nil || !bytes.Equal(b, make([]byte, 4)) {
		t.Errorf("ProduceResponse v0: %x %v", b, err)
	}
	for _, tags := range [][]wire.Tag{{{ID: 5}, {ID: 5}}, {{ID: 6}, {ID: 5}}} {
		if _, err := encode(&ProduceRequest{UnknownTags: tags}, 9); err != wire.ErrTags {
			t.Errorf("tags %v: %v", tags, err)
		}
	}
	twice := &ProduceResponse{NodeEndpoints: make([]ProduceResponseNodeEndpoint, 1), UnknownTags: []wire.Tag{{ID: 0}}}
	if _, err := encode(twice, 10); err != wire.ErrTags {
		t.Errorf("a tag both known and unknown: %v", err)
	}
}

// TestNulls: null and empty stay apart where null is allowed, and null is an error elsewhere.
func TestNulls(t *testing.T) {
	decode := func(version int16, body ...byte) (*MetadataRequest, error) {
		m := &MetadataRequest{Topics: make([]MetadataRequestMetadataRequestTopic, 3)}
		r := wire.NewReader(body)
		m.Decode(&r, version)
		return m, r.Err()
	}
	if m, err := decode(1, 0xff, 0xff, 0xff, 0xff); err != nil || m.Topics != nil {
		t.Errorf("null: %v %v", m.Topics, err)
	}
	if m, err := decode(1, 0, 0, 0, 0); err != nil || m.Topics == nil || len(m.Topics) != 0 {
		t.Errorf("empty: %v %v", m.Topics, err)
	}
	if _, err := decode(0, 0xff, 0xff, 0xff, 0xff); err != wire.ErrNull {
		t.Errorf("null at v0: %v", err)
	}
	if _, err := decode(9, 0); err == nil {
		t.Error("a v9 request of one byte decodes")
	}
	if m, err := decode(9, 0, 1, 0, 0, 0); err != nil || m.Topics != nil || !m.AllowAutoTopicCreation {
		t.Errorf("null at v9: %+v %v", m, err)
	}
	if _, err := decode(1, 0, 0, 0, 1, 0xff, 0xff); err != wire.ErrNull {
		t.Errorf("null topic name: %v", err)
	}
	// A tagged array that is null by default is sent when it is empty: no in-sync replica is not "unchanged".
	var w wire.Writer
	(&PartitionChangeRecord{Leader: -2, LeaderRecoveryState: -1, Isr: []int32{}}).Encode(&w, 0)
	var change PartitionChangeRecord
	r := wire.NewReader(w.B)
	change.Decode(&r, 0)
	if w.Err != nil || r.Err() != nil || change.Isr == nil || len(change.Isr) != 0 || change.Replicas != nil {
		t.Errorf("empty tagged array: %x gives %+v (%v, %v)", w.B, change, w.Err, r.Err())
	}
	w.Reset()
	(&FetchResponse{}).Encode(&w, 4) // the zero value: a null array where null is not allowed
	if w.Err != nil || !bytes.Equal(w.B, make([]byte, 8)) {
		t.Errorf("nil is written as %x (%v), want empty", w.B, w.Err)
	}
}

// TestNext: elements come at their defaults and keep the memory of the arrays inside them.
func TestNext(t *testing.T) {
	var m FetchResponse
	topic := Next(&m.Responses)
	Next(&topic.Partitions).ErrorCode = ErrOffsetOutOfRange
	first := &topic.Partitions[0]
	m.Default()
	if len(m.Responses) != 0 {
		t.Fatalf("%d topics after Default", len(m.Responses))
	}
	topic = Next(&m.Responses)
	if len(topic.Partitions) != 0 {
		t.Fatalf("%d partitions in a new topic", len(topic.Partitions))
	}
	p := Next(&topic.Partitions)
	if p != first || p.ErrorCode != ErrNone || p.LastStableOffset != -1 || p.PreferredReadReplica != -1 || !p.Records.Null() {
		t.Errorf("%+v", p)
	}
}

func TestErrorCodes(t *testing.T) {
	for _, c := range []struct {
		code      ErrorCode
		number    int16
		name      string
		retriable bool
		message   string
	}{
		{ErrUnknownServerError, -1, "UNKNOWN_SERVER_ERROR", false, "unforeseen failure inside the broker"},
		{ErrNone, 0, "NONE", false, "success"},
		{ErrUnknownTopicOrPartition, 3, "UNKNOWN_TOPIC_OR_PARTITION", true, "no such topic or partition here"},
		{ErrInvalidRecord, 87, "INVALID_RECORD", false, "record or batch fails broker validation"},
		{ErrInvalidRegistration, 119, "INVALID_REGISTRATION", false, "controller refuses the registration's content"},
		{ErrorCode(120), 120, "120", false, ""},
		{ErrorCode(-2), -2, "-2", false, ""},
	} {
		if int16(c.code) != c.number || c.code.String() != c.name || c.code.Retriable() != c.retriable || c.code.Message() != c.message {
			t.Errorf("%d: %v retriable %t %q, want %+v", c.code, c.code, c.code.Retriable(), c.code.Message(), c)
		}
	}
}
