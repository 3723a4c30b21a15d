package logtool

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kaas/codec/api"
	"kaas/codec/batch"
	"kaas/codec/wire"
)

// framed is a version and a message.
func framed(t *testing.T, version int16, m api.Message) []byte {
	t.Helper()
	var w wire.Writer
	w.Int16(version)
	m.Encode(&w, version)
	if w.Err != nil {
		t.Fatal(w.Err)
	}
	return w.B
}

// offsetsLog is a log of every kind of record that __consumer_offsets has.
func offsetsLog(t *testing.T) []byte {
	key := func(group, topic string) []byte {
		return framed(t, 1, &api.OffsetCommitKey{Group: group, Topic: topic, Partition: 3})
	}
	group := func(id string) []byte { return framed(t, 2, &api.GroupMetadataKey{Group: id}) }
	var assigned api.ConsumerProtocolAssignment
	assigned.AssignedPartitions = []api.ConsumerProtocolAssignmentTopicPartition{{Topic: "t", Partitions: []int32{0, 2}}}
	members := []api.GroupMetadataValueMemberMetadata{
		{MemberId: "m-1", GroupInstanceId: wire.Some("static"), ClientId: "c", ClientHost: "/127.0.0.1", RebalanceTimeout: 300, SessionTimeout: 45,
			Subscription: framed(t, 1, &api.ConsumerProtocolSubscription{Topics: []string{"t", "u"}}), Assignment: framed(t, 0, &assigned)},
		{MemberId: "m-2", ClientId: "connect", ClientHost: "/::1", RebalanceTimeout: 1, SessionTimeout: 2, Subscription: []byte{9}, Assignment: []byte{}},
	}
	var b batch.Builder
	b.Begin(nil, batch.NewSpec())
	b.Append(t0, key("g", "t"), framed(t, 3, &api.OffsetCommitValue{Offset: 7, LeaderEpoch: 2, Metadata: "note \u00e4", CommitTimestamp: t0 + 1, ExpireTimestamp: -1}))
	b.Append(t0, key("a\x00b\n", "t"), framed(t, 1, &api.OffsetCommitValue{Offset: 8, LeaderEpoch: -1, CommitTimestamp: t0 + 2, ExpireTimestamp: t0 + 3}))
	b.Append(t0, framed(t, 0, &api.OffsetCommitKey{Group: "old", Topic: "t", Partition: 1}), framed(t, 0, &api.OffsetCommitValue{Offset: 9, LeaderEpoch: -1, CommitTimestamp: t0, ExpireTimestamp: -1}))
	b.Append(t0, key("g", "gone"), nil)
	b.Append(t0, group("g"), framed(t, 3, &api.GroupMetadataValue{ProtocolType: "consumer", Generation: 4, Protocol: wire.Some("range"), Leader: wire.Some("m-1"),
		CurrentStateTimestamp: t0, Members: members}))
	b.Append(t0, group("empty"), framed(t, 0, &api.GroupMetadataValue{ProtocolType: "consumer", Generation: 5, CurrentStateTimestamp: -1}))
	b.Append(t0, group("dead"), nil)
	b.Append(t0, []byte{0, 9, 0, 3, 'n', 'e', 'w'}, []byte("of another kind"))
	return b.End(nil)
}

func TestOffsetsDecoder(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "0.log", offsetsLog(t))
	t.Chdir(dir)
	for name, args := range map[string][]string{"offsets.txt": nil, "offsets.jsonl": {"--json"}} {
		code, out, stderr := command(append([]string{"dump", "--offsets-decoder", "0.log"}, args...)...)
		if code != 0 || stderr != "" {
			t.Errorf("%s: code %d, %q", name, code, stderr)
		}
		golden(t, name, out)
	}
}

// TestOffsetsDecoderApache decodes what Apache Kafka 3.7 wrote.
func TestOffsetsDecoderApache(t *testing.T) {
	t.Chdir(filepath.Join("testdata", "apache"))
	code, out, stderr := command("dump", "--offsets-decoder", filepath.Join("__consumer_offsets-4", "00000000000000000000.log"))
	if code != 0 || stderr != "" {
		t.Errorf("code %d, %q", code, stderr)
	}
	golden(t, "apache-offsets.txt", out)
}

// TestOffsetsDecoderConsumerGroups decodes records that Apache Kafka 3.7.2 wrote for a group of the consumer protocol, whose static members
// left for a while and came back. Its own tool says of them that they are of an unknown version.
func TestOffsetsDecoderConsumerGroups(t *testing.T) {
	t.Chdir("testdata")
	for name, args := range map[string][]string{"consumer-groups.txt": nil, "consumer-groups.jsonl": {"--json"}} {
		code, out, stderr := command(append([]string{"dump", "--offsets-decoder", "consumer-groups.log"}, args...)...)
		if code != 0 || stderr != "" {
			t.Errorf("%s: code %d, %q", name, code, stderr)
		}
		golden(t, name, out)
	}
}

// TestOffsetsDecoderDamage tells what cannot be decoded, and shows it as it is.
func TestOffsetsDecoderDamage(t *testing.T) {
	var b batch.Builder
	b.Begin(nil, batch.NewSpec())
	b.Append(t0, []byte{0, 1, 0, 9, 'x'}, []byte("value"))
	b.Append(t0, framed(t, 2, &api.GroupMetadataKey{Group: "g"}), []byte{0, 99})
	b.Append(t0, framed(t, 1, &api.OffsetCommitKey{Group: "g", Topic: "t"}), []byte{})
	for version := byte(3); version <= 8; version++ {
		b.Append(t0, []byte{0, version, 0, 9, 'x'}, []byte("value"))
	}
	b.Append(t0, nil, []byte("without a key"))
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, b.End(nil), 0o644); err != nil {
		t.Fatal(err)
	}
	code, out, stderr := command("dump", "--offsets-decoder", path)
	if code != 1 || stderr != "kaas: 9 problems found\n" {
		t.Errorf("code %d, %q", code, stderr)
	}
	for _, want := range []string{"record at offset 0: *api.OffsetCommitKey version 1: ", "record at offset 1: *api.GroupMetadataValue version 99: ",
		"record at offset 2: *api.OffsetCommitValue version 0: ", "record at offset 8: *api.ConsumerGroupCurrentMemberAssignmentKey version 8: ", `value="value"`, `value="\x00c"`, `value=""`, `key=null value="without a key"`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
}
