package txn

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/coordinator"
)

// apacheRecord is a record that Apache Kafka 3.7.2 wrote to __transaction_state.
type apacheRecord struct {
	Log        string // partition
	Key, Value string // hex; no value is a tombstone
	entry      coordinator.Entry
	id         string
	v          api.TransactionLogValue
}

// apacheRecords are of producers of several transactions: committed, aborted, one left open.
func apacheRecords(t *testing.T, name string) (all []apacheRecord) {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	unhex := func(s string) []byte {
		b, err := hex.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var r apacheRecord
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		r.entry.Key = unhex(r.Key)
		var k api.TransactionLogKey
		if err := read(r.entry.Key, &k); err != nil {
			t.Fatal(err)
		}
		if r.id = k.TransactionalId; r.Value != "" {
			r.entry.Value = unhex(r.Value)
			if err := read(r.entry.Value, &r.v); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, r)
	}
	return all
}

// What made Apache write its records is done here, at the same times: the same bytes.
func TestApacheRecords(t *testing.T) {
	all := apacheRecords(t, "testdata/apache-3.7.2.jsonl")
	want(t, "records", len(all), 58)
	f := newFake(t)
	f.alarms = nil
	for i, r := range all {
		f.now = time.UnixMilli(r.v.TransactionLastUpdateTimestampMs)
		p := coordinator.Producer{ID: r.v.ProducerId, Epoch: r.v.ProducerEpoch}
		switch st := Status(r.v.TransactionStatus); st {
		case Empty:
			f.next = p.ID - 1
			want(t, "init", f.initAs(r.id, nobody, time.Duration(r.v.TransactionTimeoutMs)*time.Millisecond, 4, nil).got(), inited{0, p.ID, p.Epoch})
		case Ongoing:
			want(t, "add", f.add(r.id, p, nil, partitionsOf(&r.v)...).got(), api.ErrNone)
		case PrepareCommit, PrepareAbort:
			f.end(r.id, p, st == PrepareCommit, 3, nil)
		default:
			f.mark()
		}
		if len(f.log) != i+1 {
			t.Fatalf("record %d: %d written", i, len(f.log))
		}
		if got := f.log[i]; !bytes.Equal(got.Key, r.entry.Key) || !bytes.Equal(got.Value, r.entry.Value) {
			t.Fatalf("record %d: %x: %x\nApache %x: %x", i, got.Key, got.Value, r.entry.Key, r.entry.Value)
		}
	}
	// And as a data directory that Apache left behind.
	g := newFake(t)
	for _, r := range all {
		g.log = append(g.log, r.entry)
	}
	g.crash(len(all))
	want(t, "loaded", fmt.Sprint(g.s.List(&api.ListTransactionsRequest{})), fmt.Sprint(f.s.List(&api.ListTransactionsRequest{})))
	want(t, "states", fmt.Sprint(g.s.Describe("tx-0"), g.s.Describe("tx-2")), fmt.Sprint(f.s.Describe("tx-0"), f.s.Describe("tx-2")))
	want(t, "tx-2", g.s.Describe("tx-2").TransactionState, "Ongoing")
}

// encoded is a message after its version.
func encoded(version int16, m api.Message) []byte { return appendTo(new(wire.Writer), version, m) }

// TestReplayReadsVersion1 of the value, which later brokers write, and passes over keys of later versions.
func TestReplayReadsVersion1(t *testing.T) {
	s := newFake(t).s
	v := api.TransactionLogValue{ProducerId: 5, ProducerEpoch: 2, TransactionTimeoutMs: 9, TransactionStatus: int8(Ongoing), TransactionStartTimestampMs: 8,
		TransactionPartitions: []api.TransactionLogValuePartitionsSchema{{Topic: "u", PartitionIds: []int32{3, 1}}, {Topic: "t", PartitionIds: []int32{1}}},
		UnknownTags:           []wire.Tag{{ID: 9, Data: []byte("x")}}}
	e := coordinator.Entry{Key: encoded(0, &api.TransactionLogKey{TransactionalId: "x"}), Value: encoded(1, &v)}
	if err := s.Replay(e, coordinator.Position{}); err != nil {
		t.Fatal(err)
	}
	want(t, "partitions", fmt.Sprint(s.txns["x"].open.partitions), fmt.Sprint([]Partition{{"t", 1}, {"u", 1}, {"u", 3}}))
	if err := s.Replay(coordinator.Entry{Key: []byte{0, 1, 7}, Value: []byte{1}}, coordinator.Position{}); err != nil {
		t.Fatal(err)
	}
	want(t, "ids", len(s.txns), 1)
}

// TestReplayRefuses what cannot be read.
func TestReplayRefuses(t *testing.T) {
	key := encoded(0, &api.TransactionLogKey{TransactionalId: "x"})
	value := func(st Status) []byte { return encoded(0, &api.TransactionLogValue{TransactionStatus: int8(st)}) }
	for _, e := range []coordinator.Entry{
		{Key: nil, Value: value(Empty)}, {Key: []byte{0}, Value: value(Empty)}, {Key: key[:4], Value: value(Empty)},
		{Key: key, Value: []byte{}}, {Key: key, Value: value(Empty)[:20]}, {Key: key, Value: []byte{0, 2}},
		{Key: key, Value: value(Dead)}, {Key: key, Value: value(PrepareEpochFence)}, {Key: key, Value: value(-1)}, {Key: key, Value: value(statuses)},
	} {
		s := newFake(t).s
		if err := s.Replay(e, coordinator.Position{}); !errors.Is(err, ErrRecord) {
			t.Errorf("%x %x: %v", e.Key, e.Value, err)
		}
		want(t, "ids", len(s.txns), 0)
	}
	s := newFake(t).s
	if err := s.Replay(coordinator.Entry{Key: key}, coordinator.Position{}); err != nil { // of an id that is not there
		t.Fatal(err)
	}
}

// FuzzReplay: no record makes the shard panic, when it is loaded and after.
func FuzzReplay(f *testing.F) {
	f.Add(encoded(0, &api.TransactionLogKey{TransactionalId: "x"}), encoded(0, &api.TransactionLogValue{TransactionStatus: 2}), []byte{})
	f.Fuzz(func(t *testing.T, key, first, second []byte) {
		s := newFake(t).s
		for _, v := range [][]byte{first, second, nil, first} {
			_ = s.Replay(coordinator.Entry{Key: key, Value: v}, coordinator.Position{})
		}
		s.AbortOverdue(time.UnixMilli(1 << 50))
		s.Expire(time.UnixMilli(1 << 50))
		s.List(&api.ListTransactionsRequest{})
	})
}
