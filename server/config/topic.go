package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Topic is what the settings of a topic come to. Sizes are bytes, times
// milliseconds.
type Topic struct {
	Delete, Compact       bool // cleanup.policy; neither when it is empty
	MaxMessageBytes       int32
	RetentionMs           int64 // -1: no limit
	RetentionBytes        int64 // -1: no limit
	SegmentBytes          int32
	SegmentMs             int64
	SegmentJitterMs       int64
	SegmentIndexBytes     int32
	IndexIntervalBytes    int32
	FileDeleteDelayMs     int64
	Compression           string // producer, uncompressed, gzip, snappy, lz4, zstd
	LogAppendTime         bool
	TimestampBeforeMaxMs  int64 // message.timestamp.difference.max.ms is worked in
	TimestampAfterMaxMs   int64
	MinInsyncReplicas     int32
	DeleteRetentionMs     int64
	MinCompactionLagMs    int64
	MaxCompactionLagMs    int64
	MinCleanableRatio     float64
	FlushMessages         int64
	FlushMs               int64
	MessageDownconversion bool

	timestampDifference, timestampBefore, timestampAfter int64
}

// set applies one value that was checked.
func (t *Topic) set(key string, v value) {
	switch key {
	case "cleanup.policy":
		t.Delete, t.Compact = slices.Contains(v.list, "delete"), slices.Contains(v.list, "compact")
	case "max.message.bytes":
		t.MaxMessageBytes = int32(v.num)
	case "retention.ms":
		t.RetentionMs = v.num
	case "retention.bytes":
		t.RetentionBytes = v.num
	case "segment.bytes":
		t.SegmentBytes = int32(v.num)
	case "segment.ms":
		t.SegmentMs = v.num
	case "segment.jitter.ms":
		t.SegmentJitterMs = v.num
	case "segment.index.bytes":
		t.SegmentIndexBytes = int32(v.num)
	case "index.interval.bytes":
		t.IndexIntervalBytes = int32(v.num)
	case "file.delete.delay.ms":
		t.FileDeleteDelayMs = v.num
	case "compression.type":
		t.Compression = v.text
	case "message.timestamp.type":
		t.LogAppendTime = v.text == "LogAppendTime"
	case "message.timestamp.difference.max.ms":
		t.timestampDifference = v.num
	case "message.timestamp.before.max.ms":
		t.timestampBefore = v.num
	case "message.timestamp.after.max.ms":
		t.timestampAfter = v.num
	case "min.insync.replicas":
		t.MinInsyncReplicas = int32(v.num)
	case "delete.retention.ms":
		t.DeleteRetentionMs = v.num
	case "min.compaction.lag.ms":
		t.MinCompactionLagMs = v.num
	case "max.compaction.lag.ms":
		t.MaxCompactionLagMs = v.num
	case "min.cleanable.dirty.ratio":
		t.MinCleanableRatio = v.real
	case "flush.messages":
		t.FlushMessages = v.num
	case "flush.ms":
		t.FlushMs = v.num
	case "message.downconversion.enable":
		t.MessageDownconversion = v.num != 0
	}
}

// settle works the old timestamp key in: it counts where the new ones have
// their default, whether or not they were set to it (KIP-937).
func (t *Topic) settle() {
	t.TimestampBeforeMaxMs = orOlder(t.timestampBefore, t.timestampDifference)
	t.TimestampAfterMaxMs = orOlder(t.timestampAfter, t.timestampDifference)
}

func orOlder(newer, older int64) int64 {
	if newer == math.MaxInt64 {
		return older
	}
	return newer
}

// Topic returns what overrides, the settings of a topic, come to on this broker.
// Entries that ValidateTopic would refuse have no effect.
func (b *Broker) Topic(overrides map[string]string) Topic {
	t := b.topic
	for name, raw := range overrides {
		if k := TopicKey(name); k != nil {
			if v, err := k.parse(raw); err == nil {
				t.set(name, v)
			}
		}
	}
	t.settle()
	return t
}

func (b *Broker) topicDefaults() Topic {
	var t Topic
	for i := range topicKeys {
		k := &topicKeys[i]
		t.set(k.Name, b.topicDefault(k))
	}
	t.settle()
	return t
}

// topicDefault returns the value of a topic key for topics that do not set it:
// that of the first broker synonym that has one, in the topic's unit.
func (b *Broker) topicDefault(k *Key) value {
	switch {
	case len(k.Synonyms) == 0:
		return k.must(k.Default)
	case k.Type == TypeLong:
		n, _ := b.firstInt(k.Synonyms)
		switch k.Name {
		case "retention.ms":
			n = max(n, -1)
		case "message.timestamp.before.max.ms", "message.timestamp.after.max.ms":
			n = orOlder(n, b.Int("log.message.timestamp.difference.max.ms"))
		}
		return k.must(fmt.Sprint(n))
	}
	return k.must(b.Text(k.Synonyms[0].Name))
}

func (k *Key) must(raw string) value {
	v, err := k.parse(raw)
	if err != nil {
		panic("BUG: a default that does not hold: " + err.Message)
	}
	return v
}

// ValidateTopic checks the whole of a topic's settings as CreateTopics and the
// alter requests need: nil, or an Error with CodeInvalidConfig. The keys are
// looked at in order of name, so the answer does not depend on chance.
func (b *Broker) ValidateTopic(overrides map[string]string) *Error {
	names := slices.Sorted(maps.Keys(overrides))
	for _, name := range names {
		if TopicKey(name) == nil {
			return &Error{CodeInvalidConfig, name, "Unknown topic config name: " + name}
		}
	}
	for _, name := range names {
		k := TopicKey(name)
		v, err := k.parse(overrides[name])
		if err != nil {
			return err
		}
		if name == "remote.storage.enable" && v.num != 0 {
			return &Error{CodeInvalidConfig, name, "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."}
		}
	}
	if t := b.Topic(overrides); t.MinCompactionLagMs > t.MaxCompactionLagMs {
		return &Error{CodeInvalidConfig, "min.compaction.lag.ms", fmt.Sprintf(
			"conflict topic config setting min.compaction.lag.ms (%d) > max.compaction.lag.ms (%d)", t.MinCompactionLagMs, t.MaxCompactionLagMs)}
	}
	return nil
}

// NewTopic makes the settings of a topic from those in CreateTopics. Of two
// values for a key the last one counts; a null is refused with CodeInvalidConfig.
func (b *Broker) NewTopic(changes []Change) (map[string]string, *Error) {
	out := make(map[string]string, len(changes))
	var nulls []string
	for _, c := range changes {
		if c.Null {
			nulls = append(nulls, c.Name)
		}
		out[c.Name] = c.Value
	}
	if len(nulls) > 0 {
		return nil, &Error{CodeInvalidConfig, nulls[0], "Null value not supported for topic configs: " + strings.Join(nulls, ",")}
	}
	if err := b.ValidateTopic(out); err != nil {
		return nil, err
	}
	return out, nil
}
