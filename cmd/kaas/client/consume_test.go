package client

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kaas/cmd/kaas/cli"
	"kaas/codec/batch"
)

// waitFor waits until ok.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(deadline); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited in vain")
		}
	}
}

// timed makes a topic of one partition with the values v0 to v9, one a minute from 2024-05-01T12:00Z.
func timed(t *testing.T, s session) {
	t.Helper()
	s.topic("t", 1)
	var in strings.Builder
	for i := range 10 {
		fmt.Fprintf(&in, "%d v%d\n", time.Date(2024, 5, 1, 12, i, 0, 0, time.UTC).UnixMilli(), i)
	}
	s.want(in.String(), "", "produce", "--topic", "t", "--format", `%d %v\n`)
}

func TestConsumePlaces(t *testing.T) {
	s := session{t, broker(t)}
	timed(t, s)
	for _, c := range []struct{ place, want string }{
		{"start", "0 1 2 3 4 5 6 7 8 9"},
		{"end", ""},
		{"0", "0 1 2 3 4 5 6 7 8 9"},
		{"7", "7 8 9"},
		{"10", ""},
		{"-2", "8 9"},
		{"-100", "0 1 2 3 4 5 6 7 8 9"},
		{"@1714565220000", "7 8 9"}, // 12:07
		{"@2024-05-01T12:07:30Z", "8 9"},
		{"@2024-05-01T14:07:00+02:00", "7 8 9"},
		{"@2024-05-01", "0 1 2 3 4 5 6 7 8 9"},
		{"@2024-05-02", ""},
		{"@-1h", ""},
	} {
		code, out, errs := s.run("", "consume", "--topic", "t", "--offset="+c.place, "--format", "%o ")
		if code != 0 || strings.TrimSpace(out) != c.want {
			t.Errorf("--offset %s: code %d, %q, %q; want %q", c.place, code, errs, out, c.want)
		}
	}
	s.fails("", cli.Failed, "partition 0: offset 11 is out of range, it has 0 to 10", "consume", "--topic", "t", "--offset", "11")
	s.fails("", cli.Failed, "topic t has no partition 3, but 1 partitions", "consume", "--topic", "t", "--partition", "0,3")
	s.fails("", cli.Failed, "topic never: UNKNOWN_TOPIC_OR_PARTITION", "consume", "--topic", "never")
}

func TestParsePlaceAgo(t *testing.T) {
	now := time.UnixMilli(1714564800000)
	if p, err := parsePlace("@-15m", now); err != nil || p != (place{atTime, 1714564800000 - 15*60*1000}) {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestConsumeFormats(t *testing.T) {
	s := session{t, broker(t)}
	s.topic("t", 1)
	s.want("1714564800123 6b3100 ff\n", "", "produce", "--topic", "t", "--format", `%d %k{hex} %v{hex}\n`, "--header", "a=1", "--header", "b=")
	for _, c := range []struct{ format, want string }{
		{"value", "\xff\n"},
		{"topic,partition,offset,timestamp,headers", "t\t0\t0\t1714564800123\ta=1,b=,\n"},
		{"offset, key", "0\tk1\x00\n"},
		{`%k{hex}:%v{base64}\n`, "6b3100:/w==\n"},
		{`%d{go#RFC3339#} %K %V %H%%\n`, "2024-05-01T12:00:00Z 3 1 2%\n"},
	} {
		s.want("", c.want, "consume", "--topic", "t", "--format", c.format)
	}
	s.want("", `{"topic":"t","partition":0,"offset":0,"timestamp":1714564800123,"key":"k1\u0000","value":null,"valueBase64":"/w==","headers":[{"key":"a","value":"1"},{"key":"b","value":""}]}`+"\n",
		"consume", "--topic", "t", "--json")
}

// TestConsumeAll: every record of every partition, once, in the order of its partition, over many fetches.
func TestConsumeAll(t *testing.T) {
	s := session{t, broker(t)}
	s.topic("t", 3)
	var in strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&in, "%d %04d%s\n", i%3, i/3, strings.Repeat(".", 2000))
	}
	s.want(in.String(), "", "produce", "--topic", "t", "--format", `%p %v\n`)
	code, out, errs := s.run("", "consume", "--topic", "t", "--json")
	if code != 0 {
		t.Fatalf("code %d, %s", code, errs)
	}
	next := [3]int64{}
	for line := range strings.Lines(out) {
		var r struct {
			Partition, Offset int64
			Value             string
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.Offset != next[r.Partition] || r.Value[:4] != fmt.Sprintf("%04d", r.Offset) {
			t.Fatalf("partition %d: offset %d with %s, want %d", r.Partition, r.Offset, r.Value[:4], next[r.Partition])
		}
		next[r.Partition]++
	}
	if next != [3]int64{1000, 1000, 1000} {
		t.Errorf("%d records", next)
	}
	for _, n := range []int{1, 17, 2999} {
		if code, out, _ := s.run("", "consume", "--topic", "t", "--count", fmt.Sprint(n)); code != 0 || strings.Count(out, "\n") != n {
			t.Errorf("--count %d: code %d, %d lines", n, code, strings.Count(out, "\n"))
		}
	}
}

func TestConsumeFollow(t *testing.T) {
	s := session{t, broker(t)}
	s.topic("t", 2)
	s.want("before\n", "", "produce", "--topic", "t")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	all, fresh, counted := &buffer{}, &buffer{}, &buffer{}
	_, endAll := s.start(ctx, nil, all, "consume", "--topic", "t", "--follow")
	waitFor(t, func() bool { return all.String() == "before\n" })
	_, endCounted := s.start(context.Background(), nil, counted, "consume", "--topic", "t", "--follow", "--count", "3")
	errs, endFresh := s.start(ctx, nil, fresh, "consume", "--topic", "t", "--follow", "--offset", "end")
	// Whether "fresh" has looked up the end yet cannot be seen: write until it prints something.
	written := 0
	waitFor(t, func() bool {
		written++
		s.want(fmt.Sprintf("%03d\n", written), "", "produce", "--topic", "t", "--quiet")
		return fresh.String() != ""
	})
	last := fmt.Sprintf("%03d\n", written)
	waitFor(t, func() bool { return strings.HasSuffix(fresh.String(), last) && strings.Contains(all.String(), last) })
	if strings.Contains(fresh.String(), "before") {
		t.Error("--offset end prints what was there before")
	}
	for written++; written < 4; written++ {
		s.want("more\n", "", "produce", "--topic", "t", "--quiet")
	}
	if code := endCounted(); code != cli.OK || strings.Count(counted.String(), "\n") != 3 {
		t.Errorf("--count 3: code %d, %q", code, counted)
	}
	cancel()
	if code := endAll(); code != cli.OK {
		t.Errorf("interrupted: code %d", code)
	}
	if code := endFresh(); code != cli.OK || errs.String() != "" {
		t.Errorf("interrupted: code %d, %q", code, errs)
	}
}

// TestConsumeBrokerGone: a follower gives up after --timeout.
func TestConsumeBrokerGone(t *testing.T) {
	b := startBroker(t)
	s := session{t, b.Ready().Listeners["PLAINTEXT"]}
	s.topic("t", 1)
	s.want("x\n", "", "produce", "--topic", "t")
	out := &buffer{}
	errs, end := s.start(context.Background(), nil, out, "consume", "--topic", "t", "--follow", "--timeout", "300ms")
	waitFor(t, func() bool { return out.String() == "x\n" })
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	if code := end(); code != cli.Failed || !strings.HasPrefix(errs.String(), "kaas: ") {
		t.Errorf("code %d, %q", code, errs)
	}
}

// TestInvisibleRecords: a partition comes to its end over records that nobody gets to see.
func TestInvisibleRecords(t *testing.T) {
	var b batch.Builder
	spec := batch.NewSpec()
	spec.ProducerID, spec.ProducerEpoch, spec.BaseSequence, spec.Transactional = 9, 0, 0, true
	b.Begin(nil, spec)
	b.Append(1, nil, []byte("aborted"))
	aborted := batch.AppendMarker(b.End(nil), batch.Marker{BaseOffset: 1, ProducerID: 9, Type: batch.ControlAbort})
	spec = batch.NewSpec()
	b.Begin(nil, spec)
	b.Append(1, []byte("k"), []byte("compacted away"))
	b.Append(2, []byte("k"), []byte("compacted away"))
	emptied, _, err := batch.Rebuild(nil, batch.View(b.End(nil)), batch.Retention{Keep: func(int32) bool { return false }, DeleteHorizonMs: batch.NoTimestamp}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name      string
		data      []byte
		committed bool
		out       string
	}{
		{"aborted, read committed", aborted, true, ""},
		{"aborted, read uncommitted", aborted, false, "aborted\n"},
		{"emptied by compaction", emptied, false, ""},
	} {
		var out buffer
		o := &consumeOptions{topic: "t", format: "value", committed: c.committed}
		print, err := o.printer()
		if err != nil {
			t.Fatal(err)
		}
		r := &reader{o: o, print: print, out: &out}
		p := &part{end: 2}
		x := kmsg.NewFetchResponseTopicPartition()
		x.RecordBatches, x.HighWatermark, x.LastStableOffset = c.data, 2, 2
		a := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
		a.ProducerID = 9
		x.AbortedTransactions = append(x.AbortedTransactions, a)
		if err := r.takePartition(p, &x); err != nil || !p.done() || out.String() != c.out {
			t.Errorf("%s: %v, next %d, %q", c.name, err, p.next, out.String())
		}
		out = buffer{}
		p = &part{end: 0}
		if err := r.takePartition(p, &x); err != nil || out.String() != "" {
			t.Errorf("%s: records after the end: %v, %q", c.name, err, out.String())
		}
	}
	if got := (&reader{o: &consumeOptions{committed: true}}).request([]*part{{}}).IsolationLevel; got != 1 {
		t.Errorf("--read-committed asks with isolation level %d", got)
	}
	if (&reader{o: &consumeOptions{}}).isolation() != kgo.ReadUncommitted() {
		t.Error("uncommitted records are not read by default")
	}
}
