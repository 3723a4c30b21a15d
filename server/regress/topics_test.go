package regress

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Twenty producers that name twenty topics nobody has seen, all at once: each topic is made and takes its records, without anybody
// waiting for more than the next Metadata (fault 13).
func TestTwentyTopicsByTwentyProducers(t *testing.T) {
	b := start(t, t.TempDir())
	clients := make([]*client, 20)
	for i := range clients {
		clients[i] = b.dial()
	}
	asked := make([]int, len(clients)) // Metadata requests until the leader was known
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() {
			// Everybody names everybody's topics: creations race with each other.
			var names []string
			for j := range clients {
				names = append(names, fmt.Sprint("fresh-", (i+j)%len(clients)))
			}
			for known := 0; known < len(names); {
				asked[i]++
				known = 0
				for _, topic := range c.metadata(true, names...).Topics {
					switch topic.ErrorCode {
					case none:
						known++
						if len(topic.Partitions) != 1 || topic.Partitions[0].Leader != 1 {
							t.Errorf("%s: error 0 without a leader: %+v", *topic.Topic, topic.Partitions)
						}
					case unknownPartition, leaderNotAvailable:
						if len(topic.Partitions) != 0 {
							t.Errorf("%s: error %d with partitions", *topic.Topic, topic.ErrorCode)
						}
					default:
						t.Errorf("%s: error %d", *topic.Topic, topic.ErrorCode)
						return
					}
				}
			}
			c.stored(names[0], 0, batch{values: []string{"first"}}, 0)
		})
	}
	wg.Wait()
	for i, n := range asked {
		if n > 2 {
			t.Errorf("client %d: %d Metadata requests until all topics were there, want 2 at most", i, n)
		}
	}
}

// illegal are names that no topic can have.
var illegal = []string{"", ".", "..", strings.Repeat("n", 250), "a b", "a/b", "../x", "ä", "a\x00b", "a:b", "a\n"}

// Illegal names, and names that differ from a topic's only in . and _, are refused by every way of making a topic, and leave nothing
// behind (fault 14).
func TestIllegalNamesAreNeverMade(t *testing.T) {
	dir := t.TempDir()
	b := start(t, dir)
	c := b.dial()
	c.create("a.b_c", 1)
	c.create(strings.Repeat("n", 249), 1)
	c.stored("a.b_c", 0, batch{values: []string{"x"}}, 0)
	set := batch{values: []string{"x"}}.bytes()
	for _, name := range illegal {
		if got := c.metadata(true, name).Topics[0].ErrorCode; got != invalidTopic {
			t.Errorf("Metadata of %.20q: error %d", name, got)
		}
		if got := c.tryCreate(name, 1).ErrorCode; got != invalidTopic {
			t.Errorf("CreateTopics of %.20q: error %d", name, got)
		}
		if got := c.call(produceRequest(name, -1, set, 0), 9).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode; got != unknownPartition {
			t.Errorf("Produce to %.20q: error %d", name, got)
		}
	}
	for _, name := range []string{"a_b_c", "a.b.c", "a_b.c"} {
		if got := c.metadata(true, name).Topics[0].ErrorCode; got != unknownPartition {
			t.Errorf("Metadata of %q: error %d", name, got)
		}
		if got := c.tryCreate(name, 1).ErrorCode; got != invalidTopic {
			t.Errorf("CreateTopics of %q: error %d", name, got)
		}
	}
	wantTopics := func(c *client) {
		t.Helper()
		q := kmsg.NewPtrMetadataRequest()
		q.Topics = nil
		var got []string
		for _, topic := range c.call(q, 9).(*kmsg.MetadataResponse).Topics {
			got = append(got, *topic.Topic)
		}
		if want := []string{"a.b_c", strings.Repeat("n", 249)}; !slices.Equal(got, want) {
			t.Errorf("topics %.30q", got)
		}
	}
	wantTopics(c)
	b.stop()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && e.Name() != "__kaas" && e.Name() != "a.b_c-0" {
			t.Errorf("directory %q", e.Name())
		}
	}
	wantTopics(start(t, dir).dial())
}

// A topic is there for every connection once CreateTopics has answered one (fault 15).
func TestVisibleOnceCreated(t *testing.T) {
	b := start(t, t.TempDir(), "kaas.loops", "2")
	maker := b.dial()
	others := []*client{b.dial(), b.dial(), b.dial()}
	for i := range 30 {
		name := fmt.Sprint("t-", i)
		id := maker.create(name, 2)
		for _, c := range others {
			p := c.metadata(false, name).Topics[0]
			if p.ErrorCode != none || len(p.Partitions) != 2 {
				t.Fatalf("%s: error %d, %d partitions", name, p.ErrorCode, len(p.Partitions))
			}
		}
		others[i%3].stored(name, 1, batch{values: []string{"x"}}, 0)
		if id == [16]byte{} {
			t.Fatalf("%s has no id", name)
		}
		maker.delete(name)
		for _, c := range others {
			if p := c.metadata(false, name).Topics[0]; p.ErrorCode != unknownPartition || len(p.Partitions) != 0 {
				t.Fatalf("%s after its end: error %d, %d partitions", name, p.ErrorCode, len(p.Partitions))
			}
		}
	}
}

// Over clean stops and kills the leader is a replica in sync, and its epoch only grows (fault 16).
func TestLeadersOverRestarts(t *testing.T) {
	b := start(t, t.TempDir())
	b.dial().create("t", 2)
	last := int32(-1)
	for i := range 5 {
		c := b.dial()
		for _, p := range c.metadata(false, "t").Topics[0].Partitions {
			if p.ErrorCode != none || !slices.Contains(p.Replicas, p.Leader) || !slices.Contains(p.ISR, p.Leader) || len(p.OfflineReplicas) != 0 {
				t.Errorf("start %d: %+v", i, p)
			}
			if p.LeaderEpoch < 0 || p.LeaderEpoch < last || i > 0 && p.LeaderEpoch == last && p.Partition == 0 {
				t.Errorf("start %d: leader epoch %d after %d", i, p.LeaderEpoch, last)
			}
			last = p.LeaderEpoch
		}
		// What is stored carries the epoch of the time.
		c.stored("t", 0, batch{values: []string{"x"}}, int64(i))
		var rb kmsg.RecordBatch
		if err := rb.ReadFrom(c.fetch("t", 0, int64(i)).RecordBatches); err != nil || rb.PartitionLeaderEpoch != last {
			t.Errorf("start %d: batch with leader epoch %d, want %d (%v)", i, rb.PartitionLeaderEpoch, last, err)
		}
		dir := b.dir
		if i%2 == 0 {
			dir = b.killed()
		}
		b.stop()
		b = start(t, dir)
	}
}

// fetchByID reads a partition with the topic's id (v13 and later) and returns its error code.
func (c *client) fetchByID(id [16]byte) int16 {
	c.t.Helper()
	q := fetchRequest("", 0, 0)
	q.Topics[0].TopicID = id
	return c.call(q, 13).(*kmsg.FetchResponse).Topics[0].Partitions[0].ErrorCode
}

// wantEmpty wants a topic without a past: no records, no offsets, no producers.
func (c *client) wantEmpty(name string) {
	c.t.Helper()
	if p := c.fetch(name, 0, 0); p.ErrorCode != none || p.HighWatermark != 0 || p.LogStartOffset != 0 || len(p.RecordBatches) != 0 {
		c.t.Errorf("a new topic has a past: %+v", p)
	}
	// Its producer's state would make a repeat of this, answered with the old offset, or a gap.
	c.stored(name, 0, batch{values: []string{"new"}, producer: 77, sequence: 3}, 0)
	if got := c.all(name, 0); !slices.Equal(got, []string{"new"}) {
		c.t.Errorf("a new topic holds %q", got)
	}
}

// past gives a topic records, a producer's state and a log start of its own.
func (c *client) past(name string) {
	c.t.Helper()
	for i := range int32(4) {
		c.stored(name, 0, batch{values: []string{fmt.Sprint("old ", i)}, producer: 77, sequence: i}, int64(i))
	}
	q := kmsg.NewPtrDeleteRecordsRequest()
	q.TimeoutMillis = 10_000
	q.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: name, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: 0, Offset: 2}}}}
	if p := c.call(q, 2).(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0]; p.ErrorCode != none || p.LowWatermark != 2 {
		c.t.Fatalf("DeleteRecords: %+v", p)
	}
}

// A topic made again is another topic: another id, nothing of the old one's log, and the old id is unknown (faults 17, 78).
func TestRecreatedTopicIsAnother(t *testing.T) {
	b := start(t, t.TempDir())
	c := b.dial()
	seen := map[[16]byte]bool{{}: true}
	var old [16]byte
	for range 5 {
		id := c.create("t", 1)
		if seen[id] {
			t.Fatalf("id %x again", id)
		}
		seen[id] = true
		if got := c.fetchByID(id); got != none {
			t.Errorf("Fetch by the topic's id: error %d", got)
		}
		if got := c.fetchByID(old); got != unknownTopicID {
			t.Errorf("Fetch by the old topic's id: error %d", got)
		}
		c.wantEmpty("t")
		meta, err := os.ReadFile(filepath.Join(b.dir, "t-0", "partition.metadata"))
		if want := "topic_id: " + base64.RawURLEncoding.EncodeToString(id[:]); err != nil || !strings.Contains(string(meta), want) {
			t.Errorf("partition.metadata %q, want %q (%v)", meta, want, err)
		}
		c.delete("t")
		if got := c.fetchByID(id); got != unknownTopicID {
			t.Errorf("Fetch by a deleted topic's id: error %d", got)
		}
		old = id
	}
}

// The directory of a dead topic is never inherited, at whatever moment between the deletion and the renaming of the directory the
// broker was killed (faults 17, 78): the old directory is put back before the start.
func TestDirectoryOfADeadTopic(t *testing.T) {
	for name, again := range map[string]func(c *client){
		"not made again":              nil,
		"made again before the kill":  func(c *client) { c.create("t", 1) },
		"made again with more before": func(c *client) { c.create("t", 3) },
	} {
		for _, clean := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s; log clean: %v", name, clean), func(t *testing.T) {
				b := start(t, t.TempDir())
				c := b.dial()
				c.create("t", 1)
				c.past("t")
				if clean {
					b.stop()
					b = start(t, b.dir)
					c = b.dial()
				}
				before := b.killed()
				c.delete("t")
				if again != nil {
					again(c)
				}
				after := b.killed()
				b.stop()
				if err := os.CopyFS(filepath.Join(after, "t-0"), os.DirFS(filepath.Join(before, "t-0"))); err != nil {
					t.Fatal(err)
				}
				// The line that says dirty is as old as the directory.
				journal, err := os.ReadFile(filepath.Join(before, "kaas.journal"))
				if err != nil {
					t.Fatal(err)
				}
				edit(t, func([]byte) []byte { return journal }, after, "kaas.journal")
				b = start(t, after)
				c = b.dial()
				if again == nil {
					if got := c.metadata(false, "t").Topics[0].ErrorCode; got != unknownPartition {
						t.Errorf("a deleted topic: error %d", got)
					}
					c.create("t", 1)
				}
				c.wantEmpty("t")
				eventually(t, "the old directory is gone", func() bool {
					left, err := filepath.Glob(filepath.Join(after, "*-delete"))
					return err == nil && len(left) == 0
				})
				dir := b.killed()
				b.stop()
				if got := start(t, dir).dial().all("t", 0); !slices.Equal(got, []string{"new"}) {
					t.Errorf("after one more start: %q", got)
				}
			})
		}
	}
}

// Clients are told the address of the listener on which they ask (fault 19).
func TestAddressOfTheListenerAsked(t *testing.T) {
	b := start(t, t.TempDir(), "listeners", "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0",
		"listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT", "inter.broker.listener.name", "PLAINTEXT",
		"advertised.listeners", "PLAINTEXT://outside.example:1234,INSIDE://inside.example:5678")
	for listener, want := range map[string]string{"PLAINTEXT": "outside.example:1234", "INSIDE": "inside.example:5678"} {
		c := dial(t, b.Ready().Listeners[listener])
		brokers := c.metadata(false).Brokers
		if len(brokers) != 1 || fmt.Sprint(brokers[0].Host, ":", brokers[0].Port) != want {
			t.Errorf("Metadata on %s: %+v, want %s", listener, brokers, want)
		}
		cluster := c.call(kmsg.NewPtrDescribeClusterRequest(), 0).(*kmsg.DescribeClusterResponse).Brokers
		if len(cluster) != 1 || fmt.Sprint(cluster[0].Host, ":", cluster[0].Port) != want {
			t.Errorf("DescribeCluster on %s: %+v, want %s", listener, cluster, want)
		}
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.CoordinatorKey = "group"
		if p := c.call(find, 2).(*kmsg.FindCoordinatorResponse); p.ErrorCode == none && fmt.Sprint(p.Host, ":", p.Port) != want {
			t.Errorf("FindCoordinator on %s: %s:%d, want %s", listener, p.Host, p.Port, want)
		}
	}
}

// Authorized operations are there only for those who ask (fault 20).
func TestAuthorizedOperationsOnRequest(t *testing.T) {
	c := start(t, t.TempDir()).dial()
	c.create("t", 1)
	for _, ask := range []bool{false, true} {
		name := "t"
		q := kmsg.NewPtrMetadataRequest()
		q.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
		q.IncludeTopicAuthorizedOperations, q.IncludeClusterAuthorizedOperations = ask, ask
		p := c.call(q, 8).(*kmsg.MetadataResponse)
		d := kmsg.NewPtrDescribeClusterRequest()
		d.IncludeClusterAuthorizedOperations = ask
		got := []int32{p.AuthorizedOperations, p.Topics[0].AuthorizedOperations, c.call(d, 0).(*kmsg.DescribeClusterResponse).ClusterAuthorizedOperations}
		for i, ops := range got {
			if ask == (ops == operationsNotWanted) || ask && ops <= 0 {
				t.Errorf("asked %v: field %d is %d", ask, i, ops)
			}
		}
	}
}
