package config

import (
	"math"
	"os"
	"strings"
	"testing"
)

func TestTopicDefaults(t *testing.T) {
	want := Topic{Delete: true, MaxMessageBytes: 1048588, RetentionMs: 604800000, RetentionBytes: -1, SegmentBytes: 1 << 30,
		SegmentMs: 604800000, SegmentIndexBytes: 10485760, IndexIntervalBytes: 4096, FileDeleteDelayMs: 60000, Compression: "producer",
		TimestampBeforeMaxMs: math.MaxInt64, TimestampAfterMaxMs: math.MaxInt64, MinInsyncReplicas: 1, DeleteRetentionMs: 86400000,
		MaxCompactionLagMs: math.MaxInt64, MinCleanableRatio: 0.5, FlushMessages: math.MaxInt64, FlushMs: math.MaxInt64, MessageDownconversion: true,
		timestampDifference: math.MaxInt64, timestampBefore: math.MaxInt64, timestampAfter: math.MaxInt64}
	if got := mustLoad(t, "").Topic(nil); got != want {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// TestTopicOverrides sets every key of a topic to a value that is not the
// default, on the topic and by each broker synonym, and looks at the result.
func TestTopicOverrides(t *testing.T) {
	for _, c := range []struct {
		key, value string
		got        func(Topic) any
		want       any
	}{
		{"cleanup.policy", "compact,delete", func(t Topic) any { return [2]bool{t.Delete, t.Compact} }, [2]bool{true, true}},
		{"cleanup.policy", "compact", func(t Topic) any { return [2]bool{t.Delete, t.Compact} }, [2]bool{false, true}},
		{"cleanup.policy", "", func(t Topic) any { return [2]bool{t.Delete, t.Compact} }, [2]bool{false, false}},
		{"compression.type", "zstd", func(t Topic) any { return t.Compression }, "zstd"},
		{"delete.retention.ms", "7", func(t Topic) any { return t.DeleteRetentionMs }, int64(7)},
		{"file.delete.delay.ms", "7", func(t Topic) any { return t.FileDeleteDelayMs }, int64(7)},
		{"flush.messages", "7", func(t Topic) any { return t.FlushMessages }, int64(7)},
		{"flush.ms", "7", func(t Topic) any { return t.FlushMs }, int64(7)},
		{"index.interval.bytes", "7", func(t Topic) any { return t.IndexIntervalBytes }, int32(7)},
		{"max.compaction.lag.ms", "7", func(t Topic) any { return t.MaxCompactionLagMs }, int64(7)},
		{"max.message.bytes", "7", func(t Topic) any { return t.MaxMessageBytes }, int32(7)},
		{"message.downconversion.enable", "false", func(t Topic) any { return t.MessageDownconversion }, false},
		{"message.timestamp.after.max.ms", "7", func(t Topic) any { return t.TimestampAfterMaxMs }, int64(7)},
		{"message.timestamp.before.max.ms", "7", func(t Topic) any { return t.TimestampBeforeMaxMs }, int64(7)},
		{"message.timestamp.difference.max.ms", "7", func(t Topic) any { return [2]int64{t.TimestampBeforeMaxMs, t.TimestampAfterMaxMs} }, [2]int64{7, 7}},
		{"message.timestamp.type", "LogAppendTime", func(t Topic) any { return t.LogAppendTime }, true},
		{"min.cleanable.dirty.ratio", "0.25", func(t Topic) any { return t.MinCleanableRatio }, 0.25},
		{"min.compaction.lag.ms", "7", func(t Topic) any { return t.MinCompactionLagMs }, int64(7)},
		{"min.insync.replicas", "2", func(t Topic) any { return t.MinInsyncReplicas }, int32(2)},
		{"retention.bytes", "7", func(t Topic) any { return t.RetentionBytes }, int64(7)},
		{"retention.ms", "3600000", func(t Topic) any { return t.RetentionMs }, int64(3600000)},
		{"segment.bytes", "70", func(t Topic) any { return t.SegmentBytes }, int32(70)},
		{"segment.index.bytes", "70", func(t Topic) any { return t.SegmentIndexBytes }, int32(70)},
		{"segment.jitter.ms", "3600000", func(t Topic) any { return t.SegmentJitterMs }, int64(3600000)},
		{"segment.ms", "3600000", func(t Topic) any { return t.SegmentMs }, int64(3600000)},
	} {
		b := mustLoad(t, "")
		if got := c.got(b.Topic(map[string]string{c.key: c.value})); got != c.want {
			t.Errorf("%s=%s on the topic gives %v, want %v", c.key, c.value, got, c.want)
		}
		for _, s := range TopicKey(c.key).Synonyms {
			v := c.value
			switch s.Factor {
			case 60000:
				v = "60"
			case 3600000:
				v = "1"
			}
			if got := c.got(mustLoad(t, s.Name+"="+v).Topic(nil)); got != c.want {
				t.Errorf("%s=%s on the broker gives %v, want %v", s.Name, v, got, c.want)
			}
		}
	}
}

func TestSynonymPrecedence(t *testing.T) {
	for _, c := range []struct {
		text string
		key  string
		want string
	}{
		{"log.retention.hours=1\nlog.retention.minutes=2", "retention.ms", "120000"},
		{"log.retention.hours=1\nlog.retention.minutes=2\nlog.retention.ms=3", "retention.ms", "3"},
		{"log.retention.hours=-1", "retention.ms", "-1"},
		{"log.retention.ms=-5", "retention.ms", "-1"},
		{"log.roll.hours=2\nlog.roll.ms=9", "segment.ms", "9"},
		{"log.roll.jitter.hours=2\nlog.roll.jitter.ms=9", "segment.jitter.ms", "9"},
		{"log.flush.scheduler.interval.ms=8", "flush.ms", "8"},
		{"log.flush.scheduler.interval.ms=8\nlog.flush.interval.ms=9", "flush.ms", "9"},
		{"log.message.timestamp.difference.max.ms=5", "message.timestamp.before.max.ms", "5"},
		{"log.message.timestamp.difference.max.ms=5\nlog.message.timestamp.before.max.ms=6", "message.timestamp.before.max.ms", "6"},
	} {
		e := mustLoad(t, c.text).DescribeTopic(nil, []string{c.key})
		if len(e) != 1 || e[0].Value != c.want {
			t.Errorf("%q: %+v, want %s", c.text, e, c.want)
		}
	}
}

// TestOldTimestampKey: the old key counts where the new ones have their default.
func TestOldTimestampKey(t *testing.T) {
	b := mustLoad(t, "log.message.timestamp.before.max.ms=50")
	got := b.Topic(map[string]string{"message.timestamp.difference.max.ms": "9"})
	if got.TimestampBeforeMaxMs != 50 || got.TimestampAfterMaxMs != 9 {
		t.Errorf("before %d after %d", got.TimestampBeforeMaxMs, got.TimestampAfterMaxMs)
	}
	got = b.Topic(map[string]string{"message.timestamp.difference.max.ms": "9", "message.timestamp.before.max.ms": "9223372036854775807"})
	if got.TimestampBeforeMaxMs != 9 {
		t.Errorf("before %d", got.TimestampBeforeMaxMs)
	}
}

// TestValuesAsApache compares with what Apache Kafka 3.7.2's LogConfig said to
// each value: accepted with this normal form, or refused with this message.
func TestValuesAsApache(t *testing.T) {
	data, err := os.ReadFile("testdata/apache-topic-values.tsv")
	if err != nil {
		t.Fatal(err)
	}
	b := mustLoad(t, "")
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	for _, line := range lines {
		f := strings.Split(line, "\t")
		given := map[string]string{f[0]: f[1]}
		err := b.ValidateTopic(given)
		switch {
		case f[0] == "remote.storage.enable" && strings.EqualFold(f[1], "true"):
			// LogConfig alone does not know that the broker has no remote storage.
			if err == nil || err.Code != CodeInvalidConfig {
				t.Errorf("%s=%s: %v", f[0], f[1], err)
			}
		case f[2] == "ok":
			if err != nil {
				t.Errorf("%s=%q: refused: %v", f[0], f[1], err)
			} else if got := b.DescribeTopic(given, []string{f[0]})[0].Value; got != f[3] {
				t.Errorf("%s=%q: shown as %q, want %q", f[0], f[1], got, f[3])
			}
		case err == nil || err.Message != f[3] || err.Code != CodeInvalidConfig || err.Key != f[0]:
			t.Errorf("%s=%q:\n got %v\nwant %s", f[0], f[1], err, f[3])
		}
	}
	if len(lines) < 1000 {
		t.Errorf("only %d lines", len(lines))
	}
}

func TestValidateTopicTogether(t *testing.T) {
	b := mustLoad(t, "log.cleaner.max.compaction.lag.ms=100")
	for _, c := range []struct {
		given map[string]string
		want  string
	}{
		{map[string]string{"min.compaction.lag.ms": "100"}, ""},
		{map[string]string{"min.compaction.lag.ms": "101"}, "conflict topic config setting min.compaction.lag.ms (101) > max.compaction.lag.ms (100)"},
		{map[string]string{"b": "", "a": "", "retention.ms": "x"}, "Unknown topic config name: a"},
		{map[string]string{"log.retention.ms": "1"}, "Unknown topic config name: log.retention.ms"},
		{map[string]string{"remote.storage.enable": "true"}, "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."},
	} {
		got := ""
		if err := b.ValidateTopic(c.given); err != nil {
			got = err.Message
		}
		if got != c.want {
			t.Errorf("%v: %q, want %q", c.given, got, c.want)
		}
	}
}

func TestNewTopic(t *testing.T) {
	b := mustLoad(t, "")
	got, err := b.NewTopic([]Change{{Name: "retention.ms", Value: "1"}, {Name: "retention.ms", Value: "2"}, {Name: "cleanup.policy", Value: ""}})
	if err != nil || len(got) != 2 || got["retention.ms"] != "2" || got["cleanup.policy"] != "" {
		t.Errorf("got %v %v", got, err)
	}
	_, err = b.NewTopic([]Change{{Name: "retention.ms", Null: true}})
	if err == nil || err.Code != CodeInvalidConfig || err.Message != "Null value not supported for topic configs: retention.ms" {
		t.Errorf("null gives %v", err)
	}
}

func TestKnownVersion(t *testing.T) {
	for v, want := range map[string]bool{"3.7": true, "3.7.2": true, "3.7-IV4": true, "3.7-IV04": false, "3.7-IV": false, "3.7-IV-1": false,
		"0.8.0": true, "0.8.0-IV0": false, "0.10.2.2": true, "4.0": false, "": false, "-IV0": false} {
		if got := knownVersion(v); got != want {
			t.Errorf("%q: %v", v, got)
		}
	}
}

func TestJavaDouble(t *testing.T) {
	for f, want := range map[float64]string{0: "0.0", 0.5: "0.5", 1: "1.0", 0.001: "0.001", 0.0001: "1.0E-4", 9999999: "9999999.0",
		1e7: "1.0E7", 123456789: "1.23456789E8", math.MaxFloat64: "1.7976931348623157E308", math.Inf(1): "Infinity", math.Inf(-1): "-Infinity"} {
		if got := javaDouble(f); got != want {
			t.Errorf("%v is %s, want %s", f, got, want)
		}
	}
}
