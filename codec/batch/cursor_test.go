package batch

import (
	"bytes"
	"errors"
	"math"
	"testing"
)

// records reads all records of v.
func records(t testing.TB, v View) ([]fixtureRecord, error) {
	t.Helper()
	var c Cursor
	if err := c.Open(v, NewInflater(1<<20)); err != nil {
		return nil, err
	}
	var all []fixtureRecord
	frames := 0
	for c.Next() {
		r := fixtureRecord{Offset: c.Offset(), Timestamp: c.Timestamp(), Key: bytes.Clone(c.Key()), Value: bytes.Clone(c.Value())}
		h := c.Headers()
		left := h.Len()
		for k, val, ok := h.Next(); ok; k, val, ok = h.Next() {
			r.Headers = append(r.Headers, fixtureHeader{string(k), bytes.Clone(val)})
			if left--; h.Len() != left {
				t.Fatalf("%d headers left, want %d", h.Len(), left)
			}
		}
		if int(c.Index()) != len(all) || c.Offset() != v.BaseOffset()+int64(c.OffsetDelta()) {
			t.Fatalf("index %d delta %d offset %d", c.Index(), c.OffsetDelta(), c.Offset())
		}
		frames += len(c.Frame())
		all = append(all, r)
	}
	if c.Err() == nil && len(all) > 0 && frames != len(c.frames) {
		t.Fatalf("frames of %d bytes in %d", frames, len(c.frames))
	}
	return all, c.Err()
}

func sameRecords(a, b []fixtureRecord) bool {
	same := func(x, y []byte) bool { return bytes.Equal(x, y) && (x == nil) == (y == nil) }
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := a[i], b[i]
		if x.Offset != y.Offset || x.Timestamp != y.Timestamp || !same(x.Key, y.Key) || !same(x.Value, y.Value) ||
			len(x.Headers) != len(y.Headers) {
			return false
		}
		for j := range x.Headers {
			if x.Headers[j].Key != y.Headers[j].Key || !same(x.Headers[j].Value, y.Headers[j].Value) {
				return false
			}
		}
	}
	return true
}

// TestCursorReadsAsApache reads every batch of format 2 and compares with what Apache's reader gave or threw.
func TestCursorReadsAsApache(t *testing.T) {
	compared, failed := 0, 0
	modern(t, func(x fixture, fb fixtureBatch, b []byte) {
		got, err := records(t, b)
		switch {
		case x.Name == "attributes-control-without-producer":
			// Apache's cursor parses control keys as it goes; ours leaves that to ReadMarker.
			if _, ok := ReadMarker(b); ok {
				t.Errorf("%s: read as a marker", x.Name)
			}
		case x.Phase == "records":
			if err == nil {
				t.Errorf("%s: Apache throws %s, we read %+v", x.Name, x.Exception, got)
			}
			failed++
		case x.Phase == "":
			if err != nil || !sameRecords(got, fb.Records) {
				t.Errorf("%s: %v\n got %+v\nwant %+v", x.Name, err, got, fb.Records)
			}
			compared++
		}
	})
	if compared < 60 || failed < 35 {
		t.Errorf("only %d sound and %d bad batches", compared, failed)
	}
}

func TestCursorReuse(t *testing.T) {
	var c Cursor
	inf := NewInflater(1 << 20)
	for _, name := range []string{"v2-zstd-200-records", "v2-none", "v2-gzip", "v2-lz4-200-records", "v2-snappy"} {
		v := View(named(t, name))
		if err := c.Open(v, inf); err != nil {
			t.Fatal(err)
		}
		n := int32(0)
		for c.Next() {
			n++
		}
		if c.Err() != nil || n != v.Count() || c.Next() {
			t.Errorf("%s: %d records, %v", name, n, c.Err())
		}
	}
	// Once its buffers have grown, a cursor allocates nothing, but for gzip and zstd readers' own small change.
	v := View(named(t, "v2-lz4-200-records"))
	if n := testing.AllocsPerRun(50, func() {
		if c.Open(v, inf) != nil {
			t.Error("open")
		}
		for c.Next() {
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestFirstAtOrAfter(t *testing.T) {
	const base = 1_700_000_000_000
	inf := NewInflater(1 << 20)
	for _, name := range []string{"v2-none-varied", "v2-gzip-varied"} {
		v := View(named(t, name))
		v.SetBaseOffset(100)
		for _, c := range []struct {
			ms, from, offset, timestamp int64
			found                       bool
		}{
			{0, 0, 100, base, true},
			{base + 1, 0, 101, base + 5, true},
			{base + 5, 102, 102, base + 5, true},
			{base + 300, 0, 103, base + 300, true},
			{base + 70_000, 104, 104, base + 70_000, true},
			{base + 70_000, 105, 0, 0, false},
			{base + 70_001, 0, 0, 0, false},
		} {
			offset, timestamp, found, err := FirstAtOrAfter(v, inf, c.ms, c.from)
			if err != nil || offset != c.offset || timestamp != c.timestamp || found != c.found {
				t.Errorf("%s from %d at %d: %d %d %v %v", name, c.from, c.ms, offset, timestamp, found, err)
			}
		}
	}
	v := View(named(t, "v2-log-append-time"))
	if o, ts, ok, _ := FirstAtOrAfter(v, nil, base+8, 0); o != 0 || ts != base+123_456 || !ok {
		t.Errorf("LogAppendTime: %d %d %v", o, ts, ok)
	}
	for name, want := range map[string][2]int64{"v2-none-varied": {4, base + 70_000}, "v2-negative-timestamp-deltas": {0, base},
		"v2-timestamps-at-limits": {1, math.MaxInt64}, "v2-log-append-time": {0, base + 123_456}, "v2-no-timestamp": {0, -1}} {
		o, ts, ok, err := MaxTimestampRecord(named(t, name), nil)
		if err != nil || !ok || o != want[0] || ts != want[1] {
			t.Errorf("%s: %d %d %v %v", name, o, ts, ok, err)
		}
	}
	if _, _, ok, err := MaxTimestampRecord(named(t, "v2-empty-kept-idempotent"), nil); ok || err != nil {
		t.Errorf("empty batch: %v %v", ok, err)
	}
	b := named(t, "v2-none")
	b[HeaderSize] = 0x40 // a frame longer than the batch
	if _, _, _, err := FirstAtOrAfter(b, nil, math.MaxInt64, 0); !errors.Is(err, ErrRecords) {
		t.Errorf("bad frame: %v", err)
	}
}
