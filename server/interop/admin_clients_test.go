//go:build interop

package interop

import (
	"fmt"
	"testing"
	"time"
)

// TestOthersAdmin: the admin clients of confluent-kafka and kafkajs create, change and delete a topic.
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
}
