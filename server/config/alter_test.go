package config

import (
	"maps"
	"testing"
)

func TestAlterTopic(t *testing.T) {
	b := mustLoad(t, "")
	type m = map[string]string
	set := func(k, v string) Change { return Change{Name: k, Value: v} }
	for _, c := range []struct {
		current m
		changes []Change
		want    m // nil when refused
		code    int16
		text    string
	}{
		{nil, []Change{set("segment.ms", "60000")}, m{"segment.ms": "60000"}, 0, ""},
		{nil, []Change{{Name: "cleanup.policy", Op: OpAppend, Value: "compact"}}, m{"cleanup.policy": "delete,compact"}, 0, ""},
		{m{"cleanup.policy": "delete,compact"}, []Change{{Name: "cleanup.policy", Op: OpSubtract, Value: "delete"}}, m{"cleanup.policy": "compact"}, 0, ""},
		{m{"cleanup.policy": "compact"}, []Change{{Name: "cleanup.policy", Op: OpAppend, Value: "compact"}}, m{"cleanup.policy": "compact"}, 0, ""},
		{m{"cleanup.policy": "compact"}, []Change{{Name: "cleanup.policy", Op: OpSubtract, Value: "nothere"}}, m{"cleanup.policy": "compact"}, 0, ""},
		{m{"cleanup.policy": "compact"}, []Change{{Name: "cleanup.policy", Op: OpSubtract, Value: "compact"}}, m{"cleanup.policy": ""}, 0, ""},
		{m{"cleanup.policy": ""}, []Change{{Name: "cleanup.policy", Op: OpAppend, Value: "compact,delete"}}, m{"cleanup.policy": "compact,delete"}, 0, ""},
		{m{"cleanup.policy": "compact", "retention.ms": "5"}, []Change{{Name: "cleanup.policy", Op: OpDelete, Null: true}}, m{"retention.ms": "5"}, 0, ""},
		{nil, []Change{{Name: "no.such", Op: OpDelete, Null: true}}, m{}, 0, ""},
		{nil, []Change{set("segment.ms", "abc")}, nil, 40, "Invalid value abc for configuration segment.ms: Not a number of type LONG"},
		{nil, []Change{set("no.such", "1")}, nil, 40, "Unknown topic config name: no.such"},
		{nil, []Change{{Name: "segment.ms", Null: true}}, nil, 42, "Null value not supported for : segment.ms"},
		{nil, []Change{set("segment.ms", "1"), set("segment.ms", "2")}, nil, 42, "Error due to duplicate config keys : segment.ms"},
		{nil, []Change{{Name: "segment.ms", Op: OpAppend, Value: "1"}}, nil, 40, "Can't APPEND to key segment.ms because its type is not LIST."},
		{nil, []Change{{Name: "no.such", Op: OpSubtract, Value: "1"}}, nil, 40, "Can't SUBTRACT to key no.such because its type is not LIST."},
		{nil, []Change{{Name: "segment.ms", Op: 4, Value: "1"}}, nil, 42, "Unknown operation type 4 for key segment.ms"},
		{nil, []Change{{Name: "segment.ms", Op: -1, Value: "1"}}, nil, 42, "Unknown operation type -1 for key segment.ms"},
	} {
		before := maps.Clone(c.current)
		got, err := b.AlterTopic(c.current, c.changes)
		if !maps.Equal(c.current, before) {
			t.Errorf("%v changed the current settings", c.changes)
		}
		switch {
		case c.want != nil:
			if err != nil || !maps.Equal(got, c.want) {
				t.Errorf("%v on %v: %v %v, want %v", c.changes, c.current, got, err, c.want)
			}
		case err == nil || err.Code != c.code || err.Message != c.text:
			t.Errorf("%v: %v, want %d %s", c.changes, err, c.code, c.text)
		}
	}
	got, err := b.ReplaceTopic([]Change{set("segment.ms", "60000")})
	if err != nil || !maps.Equal(got, m{"segment.ms": "60000"}) {
		t.Errorf("replaced: %v %v", got, err)
	}
}

func TestAlterBroker(t *testing.T) {
	b := mustLoad(t, "log.cleaner.min.compaction.lag.ms=50")
	for _, c := range []struct {
		own       bool
		key, text string // text: a value; want "" for accepted
		code      int16
		want      string
	}{
		{false, "log.segment.delete.delay.ms", "50000", 0, ""},
		{true, "log.retention.ms", "1000", 0, ""},
		{true, "no.such.key", "x", 0, ""},
		{true, "num.io.threads", "16", 0, ""},
		{false, "follower.replication.throttled.rate", "10", 0, ""},
		{true, "max.connection.creation.rate", "2147483647", 0, ""},
		{true, "num.partitions", "3", 42, "Cannot update these configs dynamically: Set(num.partitions)"},
		{true, "kaas.durability", "page-cache", 42, "Cannot update these configs dynamically: Set(kaas.durability)"},
		{false, "message.max.bytes", "-1", 42, "Invalid value -1 for configuration message.max.bytes: Value must be at least 0"},
		{false, "log.retention.ms", "abc", 42, "Invalid value abc for configuration log.retention.ms: Not a number of type LONG"},
		{false, "log.retention.ms", "0", 42, "log retention must be -1 (no limit) or at least 1 ms"},
		{false, "log.cleaner.max.compaction.lag.ms", "49", 42, "it must not be above log.cleaner.max.compaction.lag.ms (49)"},
		{true, "max.connection.creation.rate", "5", 0, ""},
		{true, "quota.window.num", "5", 42, "Cannot update these configs dynamically: Set(quota.window.num)"},
		{true, "listener.name.a.max.connections", "5", 0, ""},
		{false, "listener.name.a.max.connection.creation.rate", "5", 0, ""},
		{false, "listener.name.a.max.connections", "-1", 42, "Invalid value -1 for configuration max.connections: Value must be at least 0"},
		{true, "listeners", "PLAINTEXT://:1", 42, "listeners cannot be changed while kaas runs"},
		{true, "ssl.keystore.password", "secret", 42, "ssl.keystore.password cannot be changed while kaas runs"},
		{true, "listener.name.a.ssl.keystore.location", "x", 42, "ssl.keystore.location cannot be changed while kaas runs"},
		{true, "listener.name.a.connections.max.reauth.ms", "x", 42, "values for one listener alone are not built yet: listener.name.a.connections.max.reauth.ms"},
		{false, "ssl.client.auth", "none", 42, "Cannot update these configs at default cluster level, broker id must be specified: Set(ssl.client.auth)"},
	} {
		got, err := b.AlterBroker(c.own, map[string]string{"background.threads": "4"}, []Change{{Name: c.key, Value: c.text}})
		switch {
		case c.want == "":
			if err != nil || got[c.key] != c.text || got["background.threads"] != "4" {
				t.Errorf("%s=%s: %v %v", c.key, c.text, got, err)
			}
		case err == nil || err.Code != c.code || err.Message != c.want || err.Key == "":
			t.Errorf("%s=%s:\n got %v\nwant %s", c.key, c.text, err, c.want)
		}
	}
	got, err := b.ReplaceBroker(false, []Change{{Name: "log.segment.bytes", Value: "100"}})
	if err != nil || !maps.Equal(got, map[string]string{"log.segment.bytes": "100"}) {
		t.Errorf("replaced: %v %v", got, err)
	}
	if _, err := b.AlterBroker(true, nil, []Change{{Name: "message.max.bytes", Op: OpAppend, Value: "1"}}); err == nil || err.Code != CodeInvalidConfig {
		t.Errorf("append to a number: %v", err)
	}
}

// TestDynamicPrecedence: this broker, then all brokers, then the file, then the default.
func TestDynamicPrecedence(t *testing.T) {
	file := mustLoad(t, "message.max.bytes=2000")
	all, bad := file.WithDynamic(map[string]string{"message.max.bytes": "3000", "max.connections": "7"}, nil)
	if len(bad) != 0 || all.Topic(nil).MaxMessageBytes != 3000 || all.MaxConnections != 7 {
		t.Errorf("%v: %d, %d", bad, all.Topic(nil).MaxMessageBytes, all.MaxConnections)
	}
	own, bad := all.WithDynamic(map[string]string{"message.max.bytes": "3000"}, map[string]string{"message.max.bytes": "4000"})
	if len(bad) != 0 || own.Topic(nil).MaxMessageBytes != 4000 || own.MaxConnections != 2147483647 {
		t.Errorf("%v: %d, %d", bad, own.Topic(nil).MaxMessageBytes, own.MaxConnections)
	}
	if got := own.Topic(map[string]string{"max.message.bytes": "5000"}).MaxMessageBytes; got != 5000 {
		t.Errorf("the topic's own value is %d", got)
	}
	if file.Topic(nil).MaxMessageBytes != 2000 || all.Topic(nil).MaxMessageBytes != 3000 {
		t.Error("a snapshot changed")
	}
}

// TestDynamicLeftOut: what was stored and does not hold any more has no effect.
func TestDynamicLeftOut(t *testing.T) {
	b := mustLoad(t, "log.retention.ms=5000\nnum.partitions=2")
	b, bad := b.WithDynamic(map[string]string{"log.retention.ms": "0", "message.max.bytes": "x", "num.partitions": "9", "log.segment.bytes": "99"}, nil)
	if len(bad) != 3 {
		t.Errorf("left out: %v", bad)
	}
	got := b.Topic(nil)
	if got.RetentionMs != 5000 || got.MaxMessageBytes != 1048588 || b.NumPartitions != 2 || got.SegmentBytes != 99 {
		t.Errorf("in force: %+v, %d partitions", got, b.NumPartitions)
	}
}
