package batch

import (
	"bytes"
	"testing"
)

// specOf takes the header fields that a Spec holds from a fixture.
func specOf(fb fixtureBatch, codec Codec) Spec {
	s := Spec{BaseOffset: fb.BaseOffset, LeaderEpoch: fb.LeaderEpoch, ProducerID: fb.ProducerID, ProducerEpoch: fb.ProducerEpoch,
		BaseSequence: fb.BaseSequence, Codec: codec, LogAppendTimeMs: NoTimestamp, Transactional: fb.Transactional, Control: fb.Control}
	if fb.TimestampType == "LogAppendTime" {
		s.LogAppendTimeMs = fb.MaxTimestamp
	}
	return s
}

func build(t testing.TB, dst []byte, spec Spec, rs []fixtureRecord, def *Deflater) []byte {
	t.Helper()
	var b Builder
	b.Begin(dst, spec)
	for _, r := range rs {
		var hs []Header
		for _, h := range r.Headers {
			hs = append(hs, Header(h))
		}
		b.Append(r.Timestamp, r.Key, r.Value, hs...)
	}
	if b.Count() != len(rs) {
		t.Fatalf("count %d", b.Count())
	}
	return b.End(def)
}

// TestBuilderMakesApachesBytes builds every valid uncompressed batch again; the compressed ones must read alike.
func TestBuilderMakesApachesBytes(t *testing.T) {
	made := 0
	def := new(Deflater)
	for _, f := range fixtures(t, "valid.jsonl") {
		if len(f.Batches) != 1 || f.Batches[0].Magic != 2 {
			continue
		}
		fb, want := f.Batches[0], f.bytes(t)
		if int(fb.Count) != int(fb.LastDelta)+1 || fb.DeleteHorizon != nil || len(want) != fb.Size {
			continue // made by compaction, or cut
		}
		if fb.TimestampType == "LogAppendTime" {
			continue // the deltas below the append time are lost in the records; see TestBuilderLogAppendTime
		}
		got := build(t, []byte("before"), specOf(fb, View(want).Codec()), fb.Records, def)
		v := View(bytes.TrimPrefix(got, []byte("before")))
		if fb.Compression == "none" && !bytes.Equal(v, want) {
			t.Errorf("%s:\n got %x\nwant %x", f.Name, []byte(v), want)
		}
		if rs, err := records(t, v); err != nil || !sameRecords(rs, fb.Records) || !v.CheckCRC() || v.Codec() != View(want).Codec() {
			t.Errorf("%s: %v %+v", f.Name, err, rs)
		}
		made++
	}
	if made < 25 {
		t.Errorf("only %d batches", made)
	}
}

func TestBuilderLogAppendTime(t *testing.T) {
	want := named(t, "v2-log-append-time")
	spec := NewSpec()
	spec.LogAppendTimeMs = View(want).MaxTimestamp()
	const base = 1_700_000_000_000
	got := build(t, nil, spec, []fixtureRecord{{Timestamp: base, Key: []byte("k0"), Value: []byte("value-0")},
		{Timestamp: base + 1, Key: []byte("k1"), Value: []byte("value-1")}, {Timestamp: base + 7, Key: []byte("k2"), Value: []byte("value-2")}}, nil)
	if !bytes.Equal(got, want) {
		t.Errorf("\n got %x\nwant %x", got, want)
	}
	var b Builder
	b.Begin([]byte("x"), spec)
	if b.Size() != HeaderSize {
		t.Errorf("size %d", b.Size())
	}
	if got := b.End(nil); string(got) != "x" {
		t.Errorf("a batch without records: %x", got)
	}
}

func TestMarkers(t *testing.T) {
	for name, typ := range map[string]ControlType{"v2-control-commit": ControlCommit, "v2-control-abort": ControlAbort} {
		m := Marker{BaseOffset: 31, LeaderEpoch: 17, TimestampMs: 1_700_000_000_000, ProducerID: 4711, ProducerEpoch: 3, Type: typ, CoordinatorEpoch: 9}
		want := named(t, name)
		if got := AppendMarker(nil, m); !bytes.Equal(got, want) {
			t.Errorf("%s:\n got %x\nwant %x", name, got, want)
		}
		if got, ok := ReadMarker(want); !ok || got != m {
			t.Errorf("%s: %+v %v", name, got, ok)
		}
	}
	if m, ok := ReadMarker(named(t, "v2-control-leader-change")); ok || m.Type != 2 {
		t.Errorf("leader change: %+v %v", m, ok)
	}
	for _, name := range []string{"v2-transactional", "v2-empty-kept-transactional"} {
		if _, ok := ReadMarker(named(t, name)); ok {
			t.Errorf("%s is read as a marker", name)
		}
	}
	if ControlCommit.String() != "COMMIT" || ControlAbort.String() != "ABORT" || ControlType(2).String() != "UNKNOWN" {
		t.Error("names")
	}
}

// TestRebuildAsLogCleaner compares with what Apache's own filter made of the same batches.
func TestRebuildAsLogCleaner(t *testing.T) {
	const horizon = 1_700_000_000_000 + 1_000_000 + 86_400_000
	even := func(i int32) bool { return i%2 == 0 }
	odd := func(i int32) bool { return i%2 == 1 }
	all := func(int32) bool { return true }
	none := func(int32) bool { return false }
	inf, def := NewInflater(1<<20), new(Deflater)
	for _, c := range []struct {
		from, want string
		keep       Retention
		kept       int
		bytes      bool // compressed payloads depend on the compressor: records agree
	}{
		{"v2-none-varied", "v2-compacted-gaps", Retention{even, horizon}, 3, true},
		{"v2-gzip-varied", "v2-compacted-gaps-gzip", Retention{odd, horizon}, 2, false},
		{"v2-none-varied", "v2-delete-horizon", Retention{all, horizon}, 5, true},
		{"v2-zstd-varied", "v2-delete-horizon-zstd", Retention{func(i int32) bool { return i != 0 }, horizon}, 4, false},
		{"v2-control-abort", "v2-delete-horizon-control", Retention{all, horizon}, 1, true},
		{"v2-delete-horizon", "v2-delete-horizon", Retention{all, horizon + 5}, 5, true},
		{"v2-none-varied", "v2-none-varied", Retention{all, NoTimestamp}, 5, true},
		{"v2-idempotent", "v2-empty-kept-idempotent", Retention{none, NoTimestamp}, 0, true},
		{"v2-transactional", "v2-empty-kept-transactional", Retention{none, horizon}, 0, true},
		{"v2-snappy-varied", "v2-snappy-varied", Retention{all, NoTimestamp}, 5, true},
	} {
		src, want := View(named(t, c.from)), View(named(t, c.want))
		got, kept, err := Rebuild([]byte("before"), src, c.keep, inf, def)
		if err != nil || kept != c.kept || !bytes.HasPrefix(got, []byte("before")) {
			t.Errorf("%s: %d kept, %v", c.want, kept, err)
			continue
		}
		v := View(got[6:])
		if c.bytes && !bytes.Equal(v, want) {
			t.Errorf("%s:\n got %x\nwant %x", c.want, []byte(v), []byte(want))
		}
		a, errA := records(t, v)
		b, errB := records(t, want)
		if errA != nil || errB != nil || !sameRecords(a, b) || !v.CheckCRC() {
			t.Errorf("%s: %v %v\n got %+v\nwant %+v", c.want, errA, errB, a, b)
		}
		h, w := InfoOf(v), InfoOf(want)
		if !c.bytes {
			h.Size = w.Size
		}
		if h != w || v.Attributes() != want.Attributes() {
			t.Errorf("%s: header\n got %+v\nwant %+v", c.want, h, w)
		}
		if n, err := Next(v); err != nil || len(n) != len(v) {
			t.Errorf("%s: scan: %v", c.want, err)
		}
	}
	// Without a horizon frames stay as they are, base timestamp included.
	src := View(named(t, "v2-none"))
	got, _, err := Rebuild(nil, src, Retention{func(i int32) bool { return i == 1 }, NoTimestamp}, inf, def)
	frame := src[HeaderSize+16 : HeaderSize+32]
	if v := View(got); err != nil || !bytes.Equal(v.Payload(), frame) || v.BaseTimestamp() != src.BaseTimestamp() ||
		v.MaxTimestamp() != src.BaseTimestamp()+1 || v.LastOffsetDelta() != 2 || v.Count() != 1 || !v.CheckCRC() {
		t.Errorf("one kept: %x %v", got, err)
	}
	bad := View(named(t, "v2-none"))
	bad[posCount+3] = 4
	if got, _, err := Rebuild([]byte("x"), bad, Retention{all, NoTimestamp}, inf, def); err != ErrRecords || string(got) != "x" {
		t.Errorf("bad frames: %q %v", got, err)
	}
}

func TestRecompress(t *testing.T) {
	inf, def := NewInflater(1<<20), new(Deflater)
	env := Env{NowMs: 1_800_000_000_000, ProduceVersion: 9, Inflater: inf}
	codecs := []Codec{CodecNone, CodecGzip, CodecSnappy, CodecLZ4, CodecZstd}
	for _, from := range codecs {
		for _, to := range codecs {
			rules := DefaultRules()
			rules.Compression = TargetOf(to)
			set := named(t, "v2-"+from.String()+"-varied")
			info, rej := Validate(set, &rules, &env)
			if rej != nil || info.Recompress != (from != to) || rules.Heavy(set) != (from != to) {
				t.Fatalf("%s to %s: %+v %v", from, to, info, rej)
			}
			got, rej := Recompress(nil, set, &rules, &env, def)
			if rej != nil {
				t.Fatalf("%s to %s: %v", from, to, rej)
			}
			if to == CodecNone && !bytes.Equal(got, named(t, "v2-none-varied")) {
				t.Errorf("%s uncompressed: %x", from, got)
			}
			a, err := records(t, got)
			b, _ := records(t, set)
			if err != nil || !sameRecords(a, b) || View(got).Codec() != to || !View(got).CheckCRC() {
				t.Errorf("%s to %s: %v %+v", from, to, err, a)
			}
		}
	}
}

func TestRecompressStampsAndRenumbers(t *testing.T) {
	def := new(Deflater)
	env := Env{NowMs: 1_800_000_000_000, ProduceVersion: 9, Inflater: NewInflater(1 << 20)}
	rules := DefaultRules()
	rules.Compression = TargetOf(CodecZstd)
	rules.LogAppendTime = true
	set := named(t, "v2-idempotent")
	if _, rej := Validate(set, &rules, &env); rej != nil {
		t.Fatal(rej)
	}
	got, rej := Recompress(nil, set, &rules, &env, def)
	v := View(got)
	if rej != nil || !v.IsLogAppendTime() || v.MaxTimestamp() != env.NowMs || v.ProducerID() != 4711 || v.BaseSequence() != 0 {
		t.Errorf("%v %+v", rej, InfoOf(v))
	}

	// A client's LogAppendTime on a CreateTime topic: its append time becomes every record's timestamp, as in Apache.
	rules.LogAppendTime = false
	set = named(t, "v2-log-append-time")
	info, rej := Validate(set, &rules, &env)
	if rej != nil || !info.Recompress {
		t.Fatal(info, rej)
	}
	got, rej = Recompress(nil, set, &rules, &env, def)
	rs, err := records(t, got)
	if rej != nil || err != nil || len(rs) != 3 || rs[0].Timestamp != 1_700_000_123_456 || rs[2].Timestamp != 1_700_000_123_456 ||
		View(got).IsLogAppendTime() || View(got).BaseTimestamp() != 1_700_000_123_456 {
		t.Errorf("%v %v %+v", rej, err, rs)
	}

	for _, f := range fixtures(t, "corrupt.jsonl") {
		if f.Name != "offset-deltas-2-1-0" && f.Name != "offset-deltas-0-0-2-gzip" {
			continue
		}
		set := f.bytes(t)
		if _, rej := Validate(set, &rules, &env); rej != nil {
			t.Fatal(f.Name, rej)
		}
		got, _ := Recompress(nil, set, &rules, &env, def)
		rs, err := records(t, got)
		if err != nil || len(rs) != 3 || rs[0].Offset != 0 || rs[1].Offset != 1 || rs[2].Offset != 2 {
			t.Errorf("%s: %v %+v", f.Name, err, rs)
		}
	}

	rules.Compression = TargetOf(CodecNone)
	rules.MaxMessageBytes = 3000
	set = named(t, "v2-gzip-200-records")
	if _, rej := Validate(set, &rules, &env); rej != nil {
		t.Fatal(rej)
	}
	if got, rej := Recompress([]byte("x"), set, &rules, &env, def); rej == nil || rej.Code != 10 || string(got) != "x" {
		t.Errorf("too large: %v, %d bytes", rej, len(got))
	}
}
