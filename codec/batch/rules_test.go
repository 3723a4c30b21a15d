package batch

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

const testNow = 1_700_000_100_000

func env(inf *Inflater) *Env { return &Env{NowMs: testNow, ProduceVersion: 9, Inflater: inf} }

// expect checks code and the indexes of the record errors.
func expect(t *testing.T, what string, rej *Rejection, code int16, indexes ...int32) {
	t.Helper()
	if code == 0 {
		if rej != nil {
			t.Errorf("%s: %v", what, rej)
		}
		return
	}
	if rej == nil || rej.Code != code || len(rej.RecordErrors) != len(indexes) {
		t.Errorf("%s: %+v, want error %d for records %v", what, rej, code, indexes)
		return
	}
	for i, x := range indexes {
		if rej.RecordErrors[i].Index != x || rej.RecordErrors[i].Message == "" {
			t.Errorf("%s: %+v, want records %v", what, rej.RecordErrors, indexes)
		}
	}
	if !strings.Contains(rej.Error(), rej.Reason) || rej.Reason == "" {
		t.Errorf("%s: no reason in %q", what, rej.Error())
	}
}

func TestMaxMessageBytes(t *testing.T) {
	set := append(named(t, "v2-none"), 1, 2, 3)
	rules := DefaultRules()
	rules.MaxMessageBytes = 109
	_, rej := Validate(set, &rules, env(nil))
	expect(t, "as large as allowed", rej, 0)
	rules.MaxMessageBytes = 108
	set[30] ^= 1 // size comes before the CRC
	_, rej = Validate(set, &rules, env(nil))
	expect(t, "one byte more", rej, 10)
	if rej.LogStart {
		t.Error("Apache answers log start -1 to error 10")
	}
}

// TestLogStart checks which rejections come with the log start offset, by Apache's transcripts.
func TestLogStart(t *testing.T) {
	rules := DefaultRules()
	for name, want := range map[string]bool{"crc-wrong": false, "length-one-more": false, "magic-3": false, "codec-7": true,
		"count-4": true, "last-offset-delta-3": true, "base-offset-negative": true, "sequence-negative": true} {
		for _, f := range fixtures(t, "corrupt.jsonl") {
			if f.Name != name {
				continue
			}
			if _, rej := Validate(f.bytes(t), &rules, env(nil)); rej == nil || rej.LogStart != want {
				t.Errorf("%s: %+v", name, rej)
			}
		}
	}
}

func TestNeedKeys(t *testing.T) {
	rules := DefaultRules()
	rules.NeedKeys = true
	inf := NewInflater(1 << 20)
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		set := named(t, "v2-"+codec+"-varied")
		_, rej := Validate(set, &rules, env(inf))
		expect(t, codec, rej, 87, 1, 3)
		if !rej.LogStart || !strings.Contains(rej.Message, "due to 2 record errors in total") ||
			!strings.Contains(rej.Message, "[RecordError(batchIndex=1, message='Compacted topic") {
			t.Errorf("%s: %+v", codec, rej)
		}
		if !bytes.Equal(set, named(t, "v2-"+codec+"-varied")) {
			t.Errorf("%s: a refused batch was changed", codec)
		}
		_, rej = Validate(named(t, "v2-"+codec), &rules, env(inf))
		expect(t, codec+" with keys", rej, 0)
	}
}

func TestTimestampWindow(t *testing.T) {
	inf := NewInflater(1 << 20)
	const first = 1_700_000_000_000 // 100 s before now; the records of "varied" are 0, 5, 5, 300 and 70,000 ms later
	for _, codec := range []string{"none", "lz4"} {
		check := func(now, before, after int64, code int16, indexes ...int32) *Rejection {
			t.Helper()
			rules := DefaultRules()
			rules.BeforeMaxMs, rules.AfterMaxMs = before, after
			e := env(inf)
			e.NowMs = now
			_, rej := Validate(named(t, "v2-"+codec+"-varied"), &rules, e)
			expect(t, codec, rej, code, indexes...)
			return rej
		}
		check(testNow, 100_000, math.MaxInt64, 0)
		rej := check(testNow, 99_996, math.MaxInt64, 32, 0)
		if rej != nil && (rej.Message != "One or more records have been rejected due to invalid timestamp" ||
			rej.RecordErrors[0].Message != "Timestamp 1700000000000 of message with offset 0 is out of range. "+
				"The timestamp should be within [1700000000004, -9223370336854675809]") {
			t.Errorf("%+v", rej)
		}
		check(testNow, 99_994, math.MaxInt64, 32, 0, 1, 2)
		check(first, math.MaxInt64, 70_000, 0)
		check(first, math.MaxInt64, 69_999, 32, 4)
		check(first+400, 398, 69_599, 32, 0, 1+3)
	}
	rules := DefaultRules()
	rules.BeforeMaxMs, rules.AfterMaxMs = 1, 1
	_, rej := Validate(named(t, "v2-no-timestamp"), &rules, env(nil))
	expect(t, "timestamp -1 is no timestamp", rej, 0)
	_, rej = Validate(named(t, "v2-log-append-time"), &rules, env(nil))
	expect(t, "the client's append time counts for all records", rej, 32, 0, 1, 2)
	rules.LogAppendTime = true
	_, rej = Validate(named(t, "v2-none"), &rules, env(nil))
	expect(t, "no window on a LogAppendTime topic", rej, 0)
	// Missing keys and bad timestamps together: the timestamp decides, the key is named first, as in Apache.
	rules.LogAppendTime, rules.NeedKeys = false, true
	_, rej = Validate(named(t, "v2-none-varied"), &rules, env(nil))
	expect(t, "both", rej, 32, 0, 1, 2, 3, 4)
	if rej.RecordErrors[1].Message != noKeyMessage || rej.RecordErrors[2].Message == noKeyMessage {
		t.Errorf("%+v", rej.RecordErrors)
	}
}

func TestLogAppendTimeTopic(t *testing.T) {
	rules := DefaultRules()
	rules.LogAppendTime = true
	for _, name := range []string{"v2-none", "v2-gzip", "v2-zstd-varied", "v2-idempotent"} {
		set := named(t, name)
		info, rej := Validate(set, &rules, env(nil))
		v := View(set)
		if rej != nil || info.MaxTimestamp != testNow || !info.LogAppendTime || v.MaxTimestamp() != testNow || !v.IsLogAppendTime() || !v.CheckCRC() {
			t.Errorf("%s: %v %+v", name, rej, info)
		}
		if !bytes.Equal(v[posProducerID:], named(t, name)[posProducerID:]) || v.BaseTimestamp() != View(named(t, name)).BaseTimestamp() {
			t.Errorf("%s: more than type and maximum changed", name)
		}
	}
	_, rej := Validate(named(t, "v2-log-append-time"), &rules, env(nil))
	expect(t, "the client sets the type itself", rej, 32, 0, 1, 2)
	_, rej = Validate(named(t, "v2-log-append-time-lz4"), &rules, env(nil))
	expect(t, "and in a closed batch", rej, 32, 0)
}

func TestClosedBatches(t *testing.T) {
	rules := DefaultRules()
	for _, f := range fixtures(t, "corrupt.jsonl") {
		if f.Name != "gzip-garbage" && f.Name != "offset-deltas-0-0-2-gzip" && f.Name != "zstd-payload-cut" {
			continue
		}
		set := f.bytes(t)
		if rules.Heavy(set) {
			t.Errorf("%s: heavy under default rules", f.Name)
		}
		info, rej := Validate(set, &rules, env(nil))
		expect(t, f.Name, rej, 0)
		if !bytes.Equal(set, f.bytes(t)) || int(info.Size) != len(set) {
			t.Errorf("%s was changed", f.Name)
		}
	}
	// The client's LogAppendTime bit goes even where the inside is not looked at.
	set := named(t, "v2-log-append-time-lz4")
	if _, rej := Validate(set, &rules, env(nil)); rej != nil || View(set).IsLogAppendTime() || !View(set).CheckCRC() {
		t.Errorf("%v %x", rej, set)
	}
	full, keys, bounds := rules, rules, rules
	full.FullCompressed, keys.NeedKeys, bounds.AfterMaxMs = true, true, 1000
	for _, r := range []Rules{full, keys, bounds} {
		if !r.Heavy(named(t, "v2-gzip")) || r.Heavy(named(t, "v2-none")) || r.Heavy(nil) {
			t.Errorf("%+v", r)
		}
	}
}

func TestZstdBeforeV7(t *testing.T) {
	rules := DefaultRules()
	e := env(nil)
	for version, code := range map[int16]int16{3: 76, 6: 76, 7: 0, 10: 0} {
		e.ProduceVersion = version
		_, rej := Validate(named(t, "v2-zstd"), &rules, e)
		expect(t, "zstd", rej, code)
		_, rej = Validate(named(t, "v2-lz4"), &rules, e)
		expect(t, "lz4", rej, 0)
	}
}

func TestInfo(t *testing.T) {
	rules := DefaultRules()
	got, rej := Validate(named(t, "v2-idempotent"), &rules, env(nil))
	want := Info{LeaderEpoch: -1, Size: 109, LastOffsetDelta: 2, Count: 3, BaseTimestamp: 1_700_000_000_000, MaxTimestamp: 1_700_000_000_007,
		ProducerID: 4711, ProducerEpoch: 3, BaseSequence: 0, Codec: CodecNone}
	if rej != nil || got != want {
		t.Errorf("%v\n got %+v\nwant %+v", rej, got, want)
	}
}

// TestRewriteDropsUnusedBits: a corrected maximum takes the attribute bits without meaning along, as in Apache.
func TestRewriteDropsUnusedBits(t *testing.T) {
	rules := DefaultRules()
	v := View(named(t, "v2-none"))
	v[posAttributes], v[posAttributes+1] = 0x12, 0x80|attrDeleteHorizon
	v[posMaxTimestamp+7]++
	v.setCRC()
	if _, rej := Validate(v, &rules, env(nil)); rej != nil || v.Attributes() != attrDeleteHorizon ||
		v.MaxTimestamp() != 1_700_000_000_007 || !v.CheckCRC() {
		t.Errorf("%v attributes %x", rej, v.Attributes())
	}
}

func TestAcceptAllocatesNothing(t *testing.T) {
	rules := DefaultRules()
	lat := rules
	lat.LogAppendTime = true
	bounds := rules
	bounds.BeforeMaxMs, bounds.AfterMaxMs, bounds.NeedKeys = 1<<40, 1<<40, true
	full := rules
	full.FullCompressed = true
	e := env(NewInflater(1 << 20))
	for _, c := range []struct {
		name  string
		rules *Rules
		set   []byte
	}{
		{"plain", &rules, plainBatch(100, 100, nil)},
		{"closed gzip", &rules, named(t, "v2-gzip")},
		{"bounds", &bounds, named(t, "v2-none")},
		{"lz4 opened", &full, named(t, "v2-lz4-200-records")},
		{"snappy opened", &full, named(t, "v2-snappy-200-records")},
	} {
		if n := testing.AllocsPerRun(100, func() {
			if _, rej := Validate(c.set, c.rules, e); rej != nil {
				t.Fatal(rej)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", c.name, n)
		}
	}
	set := plainBatch(100, 100, nil)
	if n := testing.AllocsPerRun(100, func() {
		View(set).SetMaxTimestamp(5) // the client's own again
		if _, rej := Validate(set, &lat, e); rej != nil {
			t.Fatal(rej)
		}
	}); n != 0 {
		t.Errorf("LogAppendTime: %v allocations", n)
	}
}
