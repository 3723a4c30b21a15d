package kraft_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server"
	"kaas/server/config"
	"kaas/server/kraft"
)

// deadline bounds every wait of these tests; nothing is measured by it.
const deadline = 60 * time.Second

// serve runs a broker on dir. Its defaults keep records for ever: those of the archives grow old.
func serve(t *testing.T, dir string) *server.Broker {
	t.Helper()
	var o config.Options
	for _, s := range [][2]string{{"log.dirs", dir}, {"listeners", "PLAINTEXT://127.0.0.1:0"}, {"log.retention.ms", "-1"},
		{"transaction.abort.timed.out.transaction.cleanup.interval.ms", "3600000"}} { // the archives' open transactions are long past their time
		o.Settings = append(o.Settings, config.Setting{Key: s[0], Value: s[1], Origin: "test"})
	}
	cfg, err := config.Load(o)
	if err != nil {
		t.Fatal(err)
	}
	b, err := server.Start(cfg, time.Now(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestServeNeedsImport: a directory of Apache's is not opened before it was imported, and the refusal says what to do.
func TestServeNeedsImport(t *testing.T) {
	dir := unpack(t, "clean")
	before := tree(t, dir)
	cfg, err := config.Load(config.Options{Settings: []config.Setting{{Key: "log.dirs", Value: dir}, {Key: "listeners", Value: "PLAINTEXT://127.0.0.1:0"}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.Start(cfg, time.Now(), io.Discard); err == nil || !strings.Contains(err.Error(), "run kaas import "+dir+" once") {
		t.Errorf("%v", err)
	}
	if !maps.Equal(tree(t, dir), before) {
		t.Error("something was changed")
	}
}

func stop(t *testing.T, b *server.Broker) {
	t.Helper()
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
}

// client connects to a broker.
func client(t *testing.T, b *server.Broker, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append(opts, kgo.SeedBrokers(b.Ready().Listeners["PLAINTEXT"]))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// offsets asks for the log start, high watermark and last stable offset of every partition of the topics named, "" for those that are
// not internal.
func offsets(t *testing.T, b *server.Broker, topics ...string) map[partition][3]int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	adm := kadm.NewClient(client(t, b))
	out := map[partition][3]int64{}
	for i, list := range []func(context.Context, ...string) (kadm.ListedOffsets, error){adm.ListStartOffsets, adm.ListEndOffsets, adm.ListCommittedOffsets} {
		l, err := list(ctx, topics...)
		if err == nil {
			err = l.Error()
		}
		if err != nil {
			t.Fatal(err)
		}
		l.Each(func(o kadm.ListedOffset) {
			p := partition{o.Topic, o.Partition}
			v := out[p]
			v[i] = o.Offset
			out[p] = v
		})
	}
	return out
}

// read reads every partition from its start to its high watermark or, committed, to its last stable offset.
func read(t *testing.T, b *server.Broker, committed bool, topics ...string) map[partition][]record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	level, limit := kgo.ReadUncommitted(), 1
	if committed {
		level, limit = kgo.ReadCommitted(), 2
	}
	out, left, from := map[partition][]record{}, map[partition]int64{}, map[string]map[int32]kgo.Offset{}
	for p, o := range offsets(t, b, topics...) {
		if o[0] == o[limit] {
			continue
		}
		left[p] = o[limit]
		if from[p.topic] == nil {
			from[p.topic] = map[int32]kgo.Offset{}
		}
		from[p.topic][p.index] = kgo.NewOffset().At(o[0])
	}
	c := client(t, b, kgo.ConsumePartitions(from), kgo.FetchIsolationLevel(level), kgo.KeepControlRecords())
	defer c.Close() // a fetch of its that waits for more would hold up a stop
	for len(left) > 0 {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("%v; partitions that did not reach their end: %v", err, left)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			p := partition{r.Topic, r.Partition}
			if r.Offset+1 >= left[p] {
				delete(left, p)
			}
			if !r.Attrs.IsControl() {
				out[p] = append(out[p], seen(r))
			}
		})
	}
	return out
}

func seen(r *kgo.Record) record {
	text := func(b []byte) *string {
		if b == nil {
			return nil
		}
		s := string(b)
		return &s
	}
	s := record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), Key: text(r.Key), Value: text(r.Value)}
	for _, h := range r.Headers {
		if s.Headers == nil {
			s.Headers = map[string]string{}
		}
		s.Headers[h.Key] = string(h.Value)
	}
	return s
}

// sameRecords compares partition by partition. Cleaning went on while Apache was asked, so of a compacted topic the last value of each
// key counts.
func sameRecords(t *testing.T, what string, got, want map[partition][]record) {
	t.Helper()
	for p := range want {
		g, w := got[p], want[p]
		if p.topic == "compacted" {
			if !reflect.DeepEqual(lastOf(g), lastOf(w)) {
				t.Errorf("%s: %v: last values %v, want %v", what, p, lastOf(g), lastOf(w))
			}
			continue
		}
		if len(g) != len(w) {
			t.Errorf("%s: %v: %d records, want %d", what, p, len(g), len(w))
		}
		for i := range min(len(g), len(w)) {
			if !reflect.DeepEqual(g[i], w[i]) {
				a, b := fmt.Sprintf("%+v", g[i]), fmt.Sprintf("%+v", w[i])
				t.Errorf("%s: %v: record %d is\n%.300s, want\n%.300s", what, p, i, a, b)
				break
			}
		}
	}
	for p := range got {
		if want[p] == nil {
			t.Errorf("%s: %v has %d records, want none", what, p, len(got[p]))
		}
	}
}

func lastOf(list []record) map[string]string {
	last := map[string]string{}
	for _, r := range list {
		if r.Value == nil {
			delete(last, *r.Key)
		} else {
			last[*r.Key] = fmt.Sprintf("%d %d %s", r.Offset, r.Timestamp, *r.Value)
		}
	}
	return last
}

// check compares everything that a client can see with what Apache showed. more is the number of records produced since, for each
// partition of plain.
func check(t *testing.T, b *server.Broker, archive, when string, more int64) {
	t.Helper()
	want := readState(t, archive)
	if got := b.Ready().ClusterID; got != want.Cluster {
		t.Errorf("%s: cluster id %s, want %s", when, got, want.Cluster)
	}
	at := offsets(t, b)
	for text, w := range want.Offsets {
		var p partition
		cut := len(text) - 2 // all have one digit
		p.topic, p.index = text[:cut], int32(text[cut+1]-'0')
		exp := [3]int64{w.Start, w.End, w.End}
		if w.LastStable != nil {
			exp[2] = *w.LastStable
		}
		if p.topic == "plain" {
			exp[1], exp[2] = exp[1]+more, exp[2]+more
		}
		if at[p] != exp {
			t.Errorf("%s: %s: start, end, last stable %v, want %v", when, text, at[p], exp)
		}
	}
	for _, committed := range []bool{false, true} {
		name := map[bool]string{false: "-read-uncommitted", true: "-read-committed"}[committed]
		got := read(t, b, committed)
		exp := recorded(t, archive+name)
		for i := range int32(3) {
			p := partition{"plain", i}
			if n := len(got[p]) - len(exp[p]); int64(n) != more {
				t.Errorf("%s%s: %v: %d records more, want %d", when, name, p, n, more)
			} else {
				got[p] = got[p][:len(exp[p])]
			}
		}
		sameRecords(t, when+name, got, exp)
	}
}

// checkMetadata compares topics, ids and settings, and returns the leader epoch of plain-0.
func checkMetadata(t *testing.T, b *server.Broker, archive string) int32 {
	t.Helper()
	want := readState(t, archive)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	adm := kadm.NewClient(client(t, b))
	got, err := adm.ListTopicsWithInternal(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Names(), slices.Sorted(maps.Keys(want.Topics))) {
		t.Errorf("topics %v, want %v", got.Names(), slices.Sorted(maps.Keys(want.Topics)))
	}
	for name, w := range want.Topics {
		if g := got[name]; string(g.ID[:]) != string(w.ID) || len(g.Partitions) != w.Partitions || g.IsInternal != (name[0] == '_') {
			t.Errorf("%s: id %v, %d partitions, internal %v; want %x, %d", name, g.ID, len(g.Partitions), g.IsInternal, w.ID, w.Partitions)
		}
	}
	described, err := adm.DescribeTopicConfigs(ctx, slices.Collect(maps.Keys(want.Configs))...)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range described {
		set := map[string]string{}
		for _, c := range d.Configs {
			if c.Source.String() == "DYNAMIC_TOPIC_CONFIG" {
				set[c.Key] = *c.Value
			}
		}
		if !maps.Equal(set, want.Configs[d.Name]) {
			t.Errorf("settings of %s: %v, want %v", d.Name, set, want.Configs[d.Name])
		}
	}
	return got["plain"].Partitions[0].LeaderEpoch
}

// checkGroups reads the groups' offsets where they lie: the records of __consumer_offsets.
func checkGroups(t *testing.T, b *server.Broker, archive string) {
	t.Helper()
	committed := map[string]api.OffsetCommitValue{}
	for _, list := range read(t, b, true, "__consumer_offsets") {
		for _, rec := range list {
			r := wire.NewReader([]byte(*rec.Key))
			if version := r.Int16(); version > 1 || rec.Value == nil { // 2 is a group's metadata
				continue
			}
			var k api.OffsetCommitKey
			k.Decode(&r, 1)
			v := wire.NewReader([]byte(*rec.Value))
			var value api.OffsetCommitValue
			value.Decode(&v, v.Int16())
			if r.Failed() || v.Failed() {
				t.Fatalf("%v: %v %v", rec, r.Err(), v.Err())
			}
			committed[fmt.Sprintf("%s %s-%d", k.Group, k.Topic, k.Partition)] = value
		}
	}
	n := 0
	for group, parts := range readState(t, archive).Groups {
		for p, w := range parts {
			n++
			if v := committed[group+" "+p]; v.Offset != w.Offset || v.Metadata != w.Metadata {
				t.Errorf("group %s, %s: %d %q, want %d %q", group, p, v.Offset, v.Metadata, w.Offset, w.Metadata)
			}
		}
	}
	if len(committed) != n {
		t.Errorf("%d offsets of groups, want %d", len(committed), n)
	}
}

// produce writes one record to each partition of plain, as an idempotent producer does.
func produce(t *testing.T, b *server.Broker, value string) (producerID int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	c := client(t, b, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := range int32(3) {
		if err := c.ProduceSync(ctx, &kgo.Record{Topic: "plain", Partition: i, Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	id, _, err := c.ProducerID(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestServeImported(t *testing.T) {
	for _, archive := range []string{"clean", "killed"} {
		t.Run(archive, func(t *testing.T) {
			t.Parallel()
			dir := unpack(t, archive)
			began := time.Now().Unix()
			report, err := server.ImportDir(dir, kraft.Options{Unprotected: true})
			if err != nil {
				t.Fatal(err)
			}
			b := serve(t, dir)
			check(t, b, archive, "first start", 0)
			// Apache's last leader epochs: 1 where it was started once more after its stop, 0 where it was killed.
			lastEpoch := map[string]int32{"clean": 1, "killed": 0}[archive]
			if epoch := checkMetadata(t, b, archive); epoch != lastEpoch+2 || report.Topics[0].LastEpoch != lastEpoch {
				t.Errorf("leader epoch %d after Apache's %d (%d)", epoch, lastEpoch, report.Topics[0].LastEpoch)
			}
			checkGroups(t, b, archive)
			if id := produce(t, b, "one"); id < began<<20 || id < report.NextProducerID || id >= 1<<53 {
				t.Errorf("producer id %d: Apache may give it too", id)
			}
			check(t, b, archive, "after producing", 1)
			// A copy of a directory in use is what kill -9 leaves: all that was written is in the page cache.
			killed := t.TempDir()
			if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			stop(t, b)
			for when, dir := range map[string]string{"after a clean stop": dir, "after a kill": killed} {
				b := serve(t, dir)
				check(t, b, archive, when, 1)
				if epoch := checkMetadata(t, b, archive); epoch != lastEpoch+4 {
					t.Errorf("%s: leader epoch %d, want %d", when, epoch, lastEpoch+4)
				}
				checkGroups(t, b, archive)
				produce(t, b, "two")
				check(t, b, archive, when+", produced again", 2)
				stop(t, b)
				if _, err := os.Stat(dir + "/" + kraft.MetadataDir); err != nil {
					t.Errorf("%s: the metadata log is the way back: %v", when, err)
				}
			}
		})
	}
}
