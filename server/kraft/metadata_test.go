package kraft

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"kaas/codec/api"
	"kaas/codec/batch"
	"kaas/codec/wire"
	"kaas/server/catalog"
)

var (
	ordersID = wire.UUID{1}
	goneID   = wire.UUID{2}
)

// entry encodes a metadata record as it stands in the log.
func entry(t *testing.T, id uint32, version int16, m api.Message) []byte {
	t.Helper()
	var w wire.Writer
	w.Uvarint(frameVersion)
	w.Uvarint(id)
	w.Uvarint(uint32(version))
	m.Encode(&w, version)
	if w.Err != nil {
		t.Fatal(w.Err)
	}
	return w.B
}

// metaBatch makes a batch of metadata records.
func metaBatch(base int64, codec batch.Codec, values ...[]byte) []byte {
	spec := batch.NewSpec()
	spec.BaseOffset, spec.LeaderEpoch, spec.Codec = base, 1, codec
	var b batch.Builder
	b.Begin(nil, spec)
	for _, v := range values {
		b.Append(1, nil, v)
	}
	return b.End(new(batch.Deflater))
}

// control makes a batch of one control record.
func control(base int64, kind byte) []byte {
	spec := batch.NewSpec()
	spec.BaseOffset, spec.Control = base, true
	var b batch.Builder
	b.Begin(nil, spec)
	b.Append(1, []byte{0, 0, 0, kind}, []byte{0, 0})
	return b.End(nil)
}

// metaDir writes files of a metadata log.
func metaDir(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func join(parts ...[]byte) (out []byte) {
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

const (
	firstLog  = "00000000000000000000.log"
	secondLog = "00000000000000000004.log"
	snapshot4 = "00000000000000000004-0000000001.checkpoint"
)

func topicRecords(t *testing.T) [][]byte {
	return [][]byte{
		entry(t, api.TopicRecordID, 0, &api.TopicRecord{Name: "orders", TopicId: ordersID}),
		entry(t, api.PartitionRecordID, 1, &api.PartitionRecord{TopicId: ordersID, Replicas: []int32{1}, Isr: []int32{1}, Leader: 1, LeaderEpoch: 5,
			Directories: []wire.UUID{{9}}}),
		entry(t, api.TopicRecordID, 0, &api.TopicRecord{Name: "gone", TopicId: goneID}),
		entry(t, api.ConfigRecordID, 0, &api.ConfigRecord{ResourceType: resourceTopic, ResourceName: "gone", Name: "retention.ms", Value: wire.Some("1")}),
	}
}

// TestSnapshotAndLog: the newest snapshot, then what the log has beyond it, compressed or not; older snapshots and segments do not
// matter.
func TestSnapshotAndLog(t *testing.T) {
	change := func(leader int32) []byte {
		return entry(t, api.PartitionChangeRecordID, 0, &api.PartitionChangeRecord{TopicId: ordersID, Leader: leader})
	}
	dir := metaDir(t, map[string][]byte{
		"00000000000000000002-0000000001.checkpoint": []byte("older, and damaged"),
		snapshot4:       join(control(0, controlSnapshotHeader), metaBatch(1, batch.CodecGzip, topicRecords(t)...), control(5, controlSnapshotFooter)),
		firstLog:        []byte("before the snapshot"),
		secondLog:       join(control(4, 2), metaBatch(5, batch.CodecZstd, change(-1), change(1), change(noLeaderChange))),
		"quorum-state":  []byte("{}"),
		firstLog + "x":  nil,
		"x" + snapshot4: nil,
	})
	img, err := readMetadata(dir)
	if err != nil {
		t.Fatal(err)
	}
	if img.end != 8 || img.snapshot != snapshot4 || img.torn || len(img.topics) != 2 {
		t.Errorf("end %d, snapshot %q, torn %v, %d topics", img.end, img.snapshot, img.torn, len(img.topics))
	}
	p := img.topics[ordersID].partitions[0]
	if want := (&partition{replicas: []int32{1}, directories: []wire.UUID{{9}}, epoch: 7}); !reflect.DeepEqual(p, want) {
		t.Errorf("%+v, want %+v: a new leader and the lack of one are an epoch each", p, want)
	}
}

// TestBatchAcrossSnapshot: of a batch that the snapshot covers in part the rest is taken.
func TestBatchAcrossSnapshot(t *testing.T) {
	ids := func(next int64) []byte {
		return entry(t, api.ProducerIdsRecordID, 0, &api.ProducerIdsRecord{NextProducerId: next})
	}
	feature := func(level int16) []byte {
		return entry(t, api.FeatureLevelRecordID, 0, &api.FeatureLevelRecord{Name: "f", FeatureLevel: level})
	}
	dir := metaDir(t, map[string][]byte{
		snapshot4: join(control(0, controlSnapshotHeader), metaBatch(1, 0, feature(3)), control(2, controlSnapshotFooter)),
		firstLog:  metaBatch(0, 0, feature(1), feature(2), feature(3), feature(9), ids(2000), ids(1000)),
	})
	img, err := readMetadata(dir)
	if err != nil || img.end != 6 || img.features["f"] != 3 || img.nextPID != 2000 {
		t.Errorf("%+v %v", img, err)
	}
}

// TestRemovals: everything that can be taken back is.
func TestRemovals(t *testing.T) {
	none := wire.NullString{}
	config := func(kind int8, resource, name string, v wire.NullString) []byte {
		return entry(t, api.ConfigRecordID, 0, &api.ConfigRecord{ResourceType: kind, ResourceName: resource, Name: name, Value: v})
	}
	quota := func(key string, value float64, remove bool, entity ...api.ClientQuotaRecordEntityData) []byte {
		return entry(t, api.ClientQuotaRecordID, 0, &api.ClientQuotaRecord{Entity: entity, Key: key, Value: value, Remove: remove})
	}
	user := api.ClientQuotaRecordEntityData{EntityType: "user", EntityName: wire.Some("u")}
	client := api.ClientQuotaRecordEntityData{EntityType: "client-id"} // the default
	dir := metaDir(t, map[string][]byte{firstLog: metaBatch(0, 0, append(topicRecords(t),
		config(resourceBroker, "", "a", wire.Some("1")), config(resourceBroker, "1", "b", wire.Some("2")), config(resourceBroker, "1", "c", wire.Some("")),
		config(resourceBroker, "", "a", none), config(resourceBroker, "1", "b", none), config(resourceBroker, "7", "never", none),
		config(resourceClientMetrics, "m", "interval.ms", wire.Some("5")),
		entry(t, api.RemoveTopicRecordID, 0, &api.RemoveTopicRecord{TopicId: goneID}),
		quota("x", 1, false, user, client), quota("y", 2, false, client, user), quota("x", 0, true, client, user),
		quota("x", 1, false, user), quota("x", 0, true, user),
		entry(t, api.AccessControlEntryRecordID, 0, &api.AccessControlEntryRecord{Id: wire.UUID{3}, Principal: "User:a"}),
		entry(t, api.AccessControlEntryRecordID, 0, &api.AccessControlEntryRecord{Id: wire.UUID{4}, Principal: "User:b"}),
		entry(t, api.RemoveAccessControlEntryRecordID, 0, &api.RemoveAccessControlEntryRecord{Id: wire.UUID{3}}),
		entry(t, api.UserScramCredentialRecordID, 0, &api.UserScramCredentialRecord{Name: "u", Mechanism: 1}),
		entry(t, api.UserScramCredentialRecordID, 0, &api.UserScramCredentialRecord{Name: "u", Mechanism: 2, Iterations: 4096}),
		entry(t, api.RemoveUserScramCredentialRecordID, 0, &api.RemoveUserScramCredentialRecord{Name: "u", Mechanism: 1}),
		entry(t, api.DelegationTokenRecordID, 0, &api.DelegationTokenRecord{TokenId: "t1", MaxTimestamp: -1}),
		entry(t, api.DelegationTokenRecordID, 0, &api.DelegationTokenRecord{TokenId: "t2", Owner: "User:a", Renewers: []string{"User:b"}, MaxTimestamp: 9}),
		entry(t, api.RemoveDelegationTokenRecordID, 0, &api.RemoveDelegationTokenRecord{TokenId: "t1"}),
		entry(t, api.FeatureLevelRecordID, 0, &api.FeatureLevelRecord{Name: "f", FeatureLevel: 2}),
		entry(t, api.FeatureLevelRecordID, 0, &api.FeatureLevelRecord{Name: "f"}),
		entry(t, api.FeatureLevelRecordID, 0, &api.FeatureLevelRecord{Name: "metadata.version", FeatureLevel: 19}),
		entry(t, api.NoOpRecordID, 0, &api.NoOpRecord{}),
	)...)})
	img, err := readMetadata(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := catalog.Kept{
		ACLs:          []catalog.ACL{{ID: wire.UUID{4}, Principal: "User:b"}},
		Users:         []catalog.ScramUser{{Name: "u", Mechanism: 2, Iterations: 4096, Salt: []byte{}, StoredKey: []byte{}, ServerKey: []byte{}}},
		Quotas:        []catalog.Quota{{Entity: []catalog.QuotaEntity{{Type: "client-id", Default: true}, {Type: "user", Name: "u"}}, Values: map[string]float64{"y": 2}}},
		Features:      map[string]int16{"metadata.version": 19},
		Tokens:        []catalog.Token{{ID: "t2", Owner: "User:a", Renewers: []string{"User:b"}, MaxMs: 9}},
		ClientMetrics: map[string]map[string]string{"m": {"interval.ms": "5"}},
	}
	if got := img.kept(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want\n%+v", got, want)
	}
	brokers := map[string]map[string]string{"1": {"c": ""}}
	if !reflect.DeepEqual(img.configs[resourceBroker], brokers) || len(img.configs[resourceTopic]) != 0 {
		t.Errorf("settings %v", img.configs)
	}
	if len(img.topics) != 1 || !maps.Equal(img.removed, map[wire.UUID]bool{goneID: true}) || img.names["gone"] != (wire.UUID{}) {
		t.Errorf("topics %v, removed %v, names %v", img.topics, img.removed, img.names)
	}
}

// TestMetadataTransaction: records count once their transaction has ended; not if it was aborted, nor if it never ended.
func TestMetadataTransaction(t *testing.T) {
	feature := func(name string) []byte {
		return entry(t, api.FeatureLevelRecordID, 0, &api.FeatureLevelRecord{Name: name, FeatureLevel: 1})
	}
	begin := entry(t, api.BeginTransactionRecordID, 0, &api.BeginTransactionRecord{})
	end := entry(t, api.EndTransactionRecordID, 0, &api.EndTransactionRecord{})
	abort := entry(t, api.AbortTransactionRecordID, 0, &api.AbortTransactionRecord{})
	dir := metaDir(t, map[string][]byte{firstLog: join(
		metaBatch(0, 0, begin, feature("ended")), metaBatch(2, 0, end, begin, feature("aborted"), abort, feature("plain"), begin, feature("open")))})
	img, err := readMetadata(dir)
	if err != nil || !maps.Equal(img.features, map[string]int16{"ended": 1, "plain": 1}) {
		t.Errorf("%v %v", img.features, err)
	}
}

// TestMetadataRefusals: what is damaged, incomplete or unknown refuses the import; the torn end of the last segment does not.
func TestMetadataRefusals(t *testing.T) {
	records := topicRecords(t)
	four := metaBatch(0, 0, records...)
	header, footer := control(0, controlSnapshotHeader), control(5, controlSnapshotFooter)
	flipped := append([]byte(nil), four...)
	flipped[len(flipped)-1] ^= 1
	newer := append([]byte(nil), records[0]...)
	newer[2] = 1 // TopicRecord v1
	frame := append([]byte{0}, records[0][1:]...)
	for name, c := range map[string]struct {
		files map[string][]byte
		want  string
	}{
		"nothing":                {nil, "is incomplete"},
		"begins late":            {map[string][]byte{secondLog: metaBatch(4, 0, records...)}, "is incomplete"},
		"gap":                    {map[string][]byte{firstLog: four, "00000000000000000009.log": metaBatch(9, 0, records...)}, "offset 9 follows 3"},
		"damaged segment":        {map[string][]byte{firstLog: flipped, secondLog: metaBatch(4, 0, records...)}, "CRC"},
		"torn segment":           {map[string][]byte{firstLog: four[:len(four)-1], secondLog: metaBatch(4, 0, records...)}, "bytes end inside a batch"},
		"snapshot without end":   {map[string][]byte{snapshot4: join(header, four)}, "no footer"},
		"damaged snapshot":       {map[string][]byte{snapshot4: join(header, flipped, footer)}, "CRC"},
		"torn snapshot":          {map[string][]byte{snapshot4: join(header, four, footer)[:len(header)+len(four)+3]}, "bytes end inside a batch"},
		"more than the snapshot": {map[string][]byte{snapshot4: join(header, footer, four)}, "records after the footer"},
		"unknown kind":           {map[string][]byte{firstLog: metaBatch(0, 0, []byte{1, 99, 0, 0})}, "unknown kind 99"},
		"unknown version":        {map[string][]byte{firstLog: metaBatch(0, 0, newer)}, "Topic record of version 1, known up to 0"},
		"unknown frame":          {map[string][]byte{firstLog: metaBatch(0, 0, frame)}, "frame version 0"},
		"short record":           {map[string][]byte{firstLog: metaBatch(0, 0, records[0][:8])}, "Topic record: "},
		"long record":            {map[string][]byte{firstLog: metaBatch(0, 0, append(records[0][:len(records[0]):len(records[0])], 0))}, "1 bytes left over"},
		"no value":               {map[string][]byte{firstLog: metaBatch(0, 0, nil)}, "metadata record: "},
		"no topic":               {map[string][]byte{firstLog: metaBatch(0, 0, records[1])}, "partition 0 of unknown topic"},
		"no partition":           {map[string][]byte{firstLog: metaBatch(0, 0, records[0], entry(t, api.PartitionChangeRecordID, 0, &api.PartitionChangeRecord{TopicId: ordersID, Leader: -2}))}, "change of unknown partition"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := readMetadata(metaDir(t, c.files))
			var refusal *Refusal
			if !errors.As(err, &refusal) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	for n := range four {
		img, err := readMetadata(metaDir(t, map[string][]byte{firstLog: join(metaBatch(0, 0, records...), metaBatch(4, 0, records[0])[:min(n, 80)])}))
		if err != nil || img.end != 4 || img.torn != (n > 0) {
			t.Fatalf("torn after %d bytes: %+v %v", n, img, err)
		}
	}
}

// FuzzRecord: no value of a metadata record panics, or is taken and not understood.
func FuzzRecord(f *testing.F) {
	f.Add([]byte{1, 2, 0, 2, 'a', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0})
	f.Add([]byte{1, 14, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeRecord(b)
		if (m == nil) != (err != nil) {
			t.Fatalf("%v %v", m, err)
		}
		if err == nil {
			_ = newImage().apply(m) // records of topics that are not there are refused
		}
	})
}

// TestElsewhere: reserved directory ids are no other directory.
func TestElsewhere(t *testing.T) {
	own := wire.UUID{7}
	for _, c := range []struct {
		directory wire.UUID
		list      []wire.UUID
		want      bool
	}{
		{own, nil, false},
		{own, []wire.UUID{own}, false},
		{own, []wire.UUID{{8}}, true},
		{own, []wire.UUID{{15: 2}}, false},
		{own, []wire.UUID{{15: 100}}, true},
		{wire.UUID{}, []wire.UUID{{8}}, false},
	} {
		if got := (&plan{directory: c.directory}).elsewhere(c.list); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestRemovedTopicsDirectory: directories whose topic id a record has removed go at the next start; unknown ones refuse the import.
func TestRemovedTopicsDirectory(t *testing.T) {
	dir := t.TempDir()
	put := func(name string, id wire.UUID) {
		t.Helper()
		err := os.MkdirAll(filepath.Join(dir, name), 0o755)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name, partitionMeta), []byte("version: 0\ntopic_id: "+id.String()+"\n"), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put("gone-0", goneID)
	put("orders-0", goneID) // made again under the name of a deleted topic, whose directory was still there
	img := newImage()
	img.removed[goneID] = true
	p := &plan{dir: dir, img: img, known: map[string]bool{}, report: &Report{NodeID: 1}}
	r := TopicReport{LastEpoch: 2}
	if err := p.takePartition(&topic{name: "orders", id: ordersID}, 0, &partition{replicas: []int32{1}, epoch: 4}, &r); err != nil {
		t.Fatal(err)
	}
	if err := p.sortDir(); err != nil {
		t.Fatal(err)
	}
	if want := []string{"orders-0", "gone-0"}; !reflect.DeepEqual(p.report.Removed, want) || r.LastEpoch != 4 || len(p.logs) != 0 {
		t.Errorf("removed %v, epoch %d, logs %v", p.report.Removed, r.LastEpoch, p.logs)
	}
	for _, replicas := range [][]int32{{1, 2}, {2}, nil} {
		err := p.takePartition(&topic{name: "orders", id: ordersID}, 0, &partition{replicas: replicas}, &r)
		if err == nil || !strings.Contains(err.Error(), "only a node that is alone (1) can be imported") {
			t.Errorf("replicas %v: %v", replicas, err)
		}
	}
}
