//go:build interop

package interop

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestOthersAdmin: the admin clients of confluent-kafka and kafkajs create, change and delete a topic; kcat asks.
func TestOthersAdmin(t *testing.T) {
	t.Parallel()
	addr, _ := startBroker(t)
	name := func() string { return fmt.Sprintf("admin-%d", time.Now().UnixNano()) }
	cell(t, "confluent-kafka", "admin", func(t *testing.T) {
		t.Logf("%s", confluent(t, nil, "version"))
		want := `nodes 1 True
retention 3600000
retention 7200000
offset earliest 0
offset latest 10
offset max 9
offset at 4
low watermark 6
offset earliest 6
partitions 4 [True, True, True, True]
deleted UNKNOWN_TOPIC_OR_PART
`
		if got := string(confluent(t, nil, "admin", addr, name())); got != want {
			t.Errorf("want\n%s\ngot\n%s", want, got)
		}
	})
	cell(t, "kafkajs", "admin", func(t *testing.T) {
		t.Logf("%s", kafkajs(t, nil, "version"))
		want := `created true
nodes 1 true
retention 3600000
retention 7200000
offsets 0 10
offset at 4
offsets 6 10
partitions 4
listed false
`
		if got := string(kafkajs(t, nil, "admin", addr, name())); got != want {
			t.Errorf("want\n%s\ngot\n%s", want, got)
		}
	})
	cell(t, "kcat", "admin", func(t *testing.T) {
		topic := newTopic(t, addr, 2)
		c := newClient(t, addr, kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		first := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
		for i := range 10 {
			r := &kgo.Record{Partition: 1, Value: []byte("v"), Timestamp: first.Add(time.Duration(i) * time.Second)}
			if err := c.ProduceSync(newContext(t), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		list := string(program(t, nil, nil, "kcat", "-b", addr, "-L", "-t", topic))
		wantMatch(t, "list", list, `topic "`+topic+`" with 2 partitions:\n    partition 0, leader 1, replicas: 1, isrs: 1\n    partition 1, leader 1,`)
		for _, q := range []struct{ at, want int64 }{{-2, 0}, {-1, 10}, {first.UnixMilli() + 4500, 5}} {
			got := string(program(t, nil, nil, "kcat", "-b", addr, "-Q", "-t", fmt.Sprintf("%s:1:%d", topic, q.at)))
			if want := fmt.Sprintf("%s [1] offset %d\n", topic, q.want); got != want {
				t.Errorf("offset at %d: want %q, got %q", q.at, want, got)
			}
		}
		const last = 3 // records before the end
		tail := program(t, nil, nil, "kcat", "-b", addr, "-C", "-e", "-q", "-t", topic, "-p", "1", "-o", fmt.Sprint(-last), "-f", `%o\n`)
		if string(tail) != "7\n8\n9\n" {
			t.Errorf("the last %d offsets: got %q", last, tail)
		}
	})
}
