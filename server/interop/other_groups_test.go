//go:build interop

package interop

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestOthersGroups: confluent-kafka and kafkajs read in groups: subscribe, commit, pause, seek, share with a second member, leave.
func TestOthersGroups(t *testing.T) {
	t.Parallel()
	addr, _ := startBroker(t, "--set", "group.initial.rebalance.delay.ms=0")
	filled := func(t *testing.T) string {
		t.Helper()
		topic := newTopic(t, addr, 4)
		c := newClient(t, addr, kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		for i := range 40 {
			if err := c.ProduceSync(newContext(t), &kgo.Record{Partition: int32(i % 4), Value: fmt.Append(nil, i)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		return topic
	}
	cell(t, "confluent-kafka", "group", func(t *testing.T) {
		want := `read 40 assigned 4
committed [(0, 10), (1, 10), (2, 10), (3, 10)]
after seek [1]
resumed [0]
shared 2 2 revoked True
members ['static']
listed True 0
`
		if got := string(confluent(t, nil, "group", addr, filled(t))); got != want {
			t.Errorf("want\n%s\ngot\n%s", want, got)
		}
	})
	cell(t, "kafkajs", "group", func(t *testing.T) {
		want := `read 40 assigned 4
committed 0:10 1:10 2:10 3:10
after seek 1
shared 2 2
members 2 Stable
left Empty
deleted 0
`
		if got := string(kafkajs(t, nil, "group", addr, filled(t))); got != want {
			t.Errorf("want\n%s\ngot\n%s", want, got)
		}
	})
}
