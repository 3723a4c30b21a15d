package group

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"testing"
	"unique"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/coordinator"
)

// apacheRecords are records that Apache Kafka 3.7.2 wrote to __consumer_offsets: members that came and went, static ones too, commits of
// several versions, tombstones.
func apacheRecords(t *testing.T) (all []coordinator.Entry, times []int64) {
	t.Helper()
	file, err := os.Open("testdata/apache-3.7.2.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var r struct {
			TS         int64
			Key, Value string
		}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		var e coordinator.Entry
		if e.Key, err = hex.DecodeString(r.Key); err != nil {
			t.Fatal(err)
		}
		if r.Value != "" {
			if e.Value, err = hex.DecodeString(r.Value); err != nil {
				t.Fatal(err)
			}
		}
		all, times = append(all, e), append(times, r.TS)
	}
	if len(all) != 30 {
		t.Fatalf("%d records", len(all))
	}
	return all, times
}

// What Apache wrote is read, and written again from what was kept: the same bytes.
func TestApacheRecords(t *testing.T) {
	entries, times := apacheRecords(t)
	f := newFake(t)
	f.s = New(&f.cfg, f, func() string { return "" }, f.s.log)
	for i, e := range entries {
		f.replay(record{entry: e, at: coordinator.Position{Offset: int64(i), Timestamp: times[i]}})
		if e.Value == nil {
			continue
		}
		var k api.OffsetCommitKey
		var gk api.GroupMetadataKey
		var again coordinator.Entry
		if r := wire.NewReader(e.Key); r.Int16() == groupKeyVersion {
			if _, err := read(e.Key, &gk); err != nil {
				t.Fatal(err)
			}
			again = metadataEntry(f.s.groups[gk.Group].classic, nil)
		} else {
			if _, err := read(e.Key, &k); err != nil {
				t.Fatal(err)
			}
			key := topicPartition{unique.Make(k.Topic), k.Partition}
			var a arena
			again = a.offset(k.Group, key, f.s.groups[k.Group].offsets[key])
		}
		want(t, "key", hex.EncodeToString(again.Key), hex.EncodeToString(e.Key))
		want(t, "value", hex.EncodeToString(again.Value), hex.EncodeToString(e.Value))
	}
	f.s.Loaded(f.now)
	// What Apache itself told of these groups afterwards.
	for group, state := range map[string]string{"dyn": "Dead", "stat": "Dead", "simple": "Dead", "neg": "Empty", "nobody": "Empty",
		"two": "Empty", "members": "Stable", "billing": "Empty", "ünïcode / group": "Empty"} {
		f.wantState(group, state)
	}
	f.wantOffset("neg", "t", 0, -5)
	f.wantOffset("members", "plain", 0, 100)
	f.wantOffset("billing", "orders", 0, 5)
	f.wantOffset("ünïcode / group", "plain", 1, 42)
	d := f.s.Describe("members")
	want(t, "protocol", d.ProtocolData, "cooperative-sticky")
	want(t, "client", d.Members[0].ClientId+d.Members[0].ClientHost, "kgo/127.0.0.1")
	want(t, "its session runs", len(f.alarms), 1)
	f.pass(45e9)
	f.wantState("members", "Empty")
}

// The same requests that Apache got give the bytes that Apache wrote.
func TestRecordsAsApache(t *testing.T) {
	entries, _ := apacheRecords(t)
	f := newFake(t)
	f.topics = map[string]int{"t": 2, "u": 2}
	const uuid, since = "551e9376-dc80-44e6-8747-7d693ae79491", 0x1a22b6a9f48
	f.open()
	f.s.newID = func() string { return uuid }
	f.now = f.now.Add(0)
	metadata := "\x00\x01\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff\x00\x00\x00\x00"
	q := &api.JoinGroupRequest{GroupId: "dyn", ProtocolType: "consumer", SessionTimeoutMs: 6000, RebalanceTimeoutMs: 20000,
		Protocols: []api.JoinGroupRequestJoinGroupRequestProtocol{{Name: "range", Metadata: []byte(metadata)}, {Name: "sticky", Metadata: []byte(metadata)}}}
	f.at(since)
	for range 2 {
		a := &joinAnswer{t: t, version: 9}
		f.run(f.s.Join(q, Client{ID: "cl", Host: "/127.0.0.1"}, 9, f.now, a.take))
		f.pass(0)
		q.MemberId = a.got().MemberId
	}
	f.sync("dyn", q.MemberId, "", 1, map[string]string{q.MemberId: "part"}).got()
	f.at(0x1a22b6aa0dc)
	f.s.groups["dyn"].classic.order[0].deadline = f.now.Add(1e12)
	c := commitQ("dyn", q.MemberId, 1, "t", 1, 41)
	c.Topics[0].Partitions[0].CommittedLeaderEpoch, c.Topics[0].Partitions[0].CommittedMetadata = 3, wire.Some("note")
	f.commit(c, 8).got()
	f.at(0x1a22b6aa218)
	f.leave("dyn", identity(q.MemberId, "")).got()
	want(t, "delete", f.deleteGroup("dyn"), api.ErrNone)
	f.at(0x1a22b6aa3f9)
	c = commitQ("simple", "", -1, "t", 0, 40)
	c.RetentionTimeMs, c.Topics[0].Partitions[0].CommittedMetadata = 3600000, wire.Some("note")
	f.commit(c, 2).got()
	c = commitQ("simple1", "", -1, "t", 0, 40)
	c.Topics[0].Partitions[0].CommitTimestamp, c.Topics[0].Partitions[0].CommittedMetadata = 123456789, wire.Some("note")
	f.commit(c, 1).got()
	for i, n := range []int{0, 1, 5, 6, 8, 12, 14} {
		want(t, "key", hex.EncodeToString(f.log[i].entry.Key), hex.EncodeToString(entries[n].Key))
		want(t, "value", hex.EncodeToString(f.log[i].entry.Value), hex.EncodeToString(entries[n].Value))
		want(t, "tombstone", f.log[i].entry.Value == nil, entries[n].Value == nil)
	}
}

// Records of older versions, as upgraded brokers have them.
func TestOldRecords(t *testing.T) {
	f := newFake(t)
	f.s = New(&f.cfg, f, func() string { return "" }, f.s.log)
	put := func(keyVersion int16, k api.Message, version int16, v api.Message) {
		var a arena
		f.replay(record{entry: coordinator.Entry{Key: a.put(keyVersion, k), Value: a.put(version, v)}})
	}
	for version := range int16(4) {
		put(version%2, &api.OffsetCommitKey{Group: "g", Topic: "t", Partition: int32(version)}, version,
			&api.OffsetCommitValue{Offset: int64(version), CommitTimestamp: 5, LeaderEpoch: -1, ExpireTimestamp: -1})
		f.wantOffset("g", "t", int32(version), int64(version))
		v := &api.GroupMetadataValue{ProtocolType: "consumer", Generation: 3, Protocol: wire.Some("range"), Leader: wire.Some("m"), CurrentStateTimestamp: 7,
			Members: []api.GroupMetadataValueMemberMetadata{{MemberId: "m", SessionTimeout: 10000, RebalanceTimeout: 30000}}}
		put(2, &api.GroupMetadataKey{Group: "g"}, version, v)
		c := f.s.groups["g"].classic
		want(t, "generation", c.generation, 3)
		want(t, "rebalance timeout", c.order[0].rebalance.Milliseconds(), map[bool]int64{true: 10000, false: 30000}[version == 0])
		want(t, "since", c.since, map[bool]int64{true: -1, false: 7}[version < 2])
	}
	// Other protocols' keys, and tombstones of what is not there, are passed over.
	var a arena
	for key := int16(3); key < 9; key++ {
		f.replay(record{entry: coordinator.Entry{Key: []byte{0, byte(key), 0, 1, 'x'}, Value: []byte{0, 0}}})
	}
	f.replay(record{entry: coordinator.Entry{Key: a.groupKey("other")}})
	f.replay(record{entry: coordinator.Entry{Key: a.offsetKey("other", topicPartition{unique.Make("t"), 0})}})
	want(t, "groups", len(f.s.groups), 1)
}

func TestUnreadableRecords(t *testing.T) {
	f := newFake(t)
	var a arena
	k := a.offsetKey("g", topicPartition{unique.Make("t"), 0})
	g := a.groupKey("g")
	f.s.loaded = false
	for what, e := range map[string]coordinator.Entry{
		"no key": {}, "one byte": {Key: []byte{0}}, "cut key": {Key: k[:5], Value: []byte{}}, "empty value": {Key: k, Value: []byte{}},
		"cut value": {Key: k, Value: []byte{0, 3, 1}}, "newer value": {Key: k, Value: []byte{0, 9}}, "cut group": {Key: g[:3]},
		"cut group value": {Key: g, Value: []byte{0, 3, 0}}, "huge count": {Key: g, Value: []byte{0, 3, 0, 0, 0, 0, 0, 1, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0, 127, 255, 255, 255}},
	} {
		if err := f.s.Replay(e, coordinator.Position{}); !errors.Is(err, ErrRecord) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
