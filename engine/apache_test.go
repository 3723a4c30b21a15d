package engine

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kaas/engine/producer"
)

// The directories below testdata/apache were written by Apache Kafka 3.7.2: topics plain (index.interval.bytes 512),
// compacted, and orders (transactions); "clean" was stopped in good order, "killed" by kill -9.

// apacheLog copies a directory into the fixture and opens it under its topic id.
func (f *fixture) apacheLog(dir string, c *LogConfig) *Log {
	f.t.Helper()
	src := filepath.Join("testdata", "apache", dir)
	name := filepath.Base(dir)
	if err := os.CopyFS(filepath.Join(f.cfg.Dir, name), os.DirFS(src)); err != nil {
		f.t.Fatal(err)
	}
	meta, err := os.ReadFile(filepath.Join(src, metadataName))
	if err != nil {
		f.t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(meta), "topic_id: ")
	id, err := base64.RawURLEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		f.t.Fatal(err)
	}
	topic, partition, _ := strings.Cut(name, "-")
	spec := LogSpec{Topic: topic, Partition: int32(partition[0] - '0'), Config: c}
	copy(spec.TopicID[:], id)
	return f.e.OpenLog(spec)
}

func apacheConfig() *LogConfig {
	c := DefaultLogConfig
	c.IndexIntervalBytes = 512
	c.SegmentBytes = 16384
	c.RetentionMs = -1
	return &c
}

func TestReadsApacheLogs(t *testing.T) {
	for dir, want := range map[string]Offsets{
		"clean/plain-1":     {HighWatermark: 275, LastStable: 275, LogEnd: 275},
		"clean/compacted-0": {HighWatermark: 1000, LastStable: 1000, LogEnd: 1000},
		"clean/orders-0":    {HighWatermark: 47, LastStable: 44, LogEnd: 47},
		"killed/plain-1":    {HighWatermark: 264, LastStable: 264, LogEnd: 264},
		"killed/orders-1":   {HighWatermark: 47, LastStable: 44, LogEnd: 47},
	} {
		for _, dirty := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/dirty=%v", dir, dirty), func(t *testing.T) {
				f := newFixture(t)
				cfg := apacheConfig()
				cfg.Compact = strings.Contains(dir, "compacted")
				l := f.apacheLog(dir, cfg)
				if dirty {
					if err := f.e.journal.update(l.name(), func(e *journalEntry) { e.dirty, e.holes = true, true }); err != nil {
						t.Fatal(err)
					}
				}
				if err := f.e.Recover(t.Context(), []*Log{l}, nil); err != nil {
					t.Fatal(err)
				}
				if err := l.Load(); err != nil {
					t.Fatal(err)
				}
				wantOffsets(t, l, want)
				for o := range want.LogEnd { // each offset is found, by index or without
					s, err := l.Read(o, 61, true, ReadUncommitted)
					if err != nil || s.Len == 0 {
						t.Fatalf("read at %d: %+v %v", o, s, err)
					}
					s.Ref.Release()
				}
				f.readAll(l, 0)
				f.checkApacheTxns(l, dir)
				f.checkApacheProducers(l, dir)
				f.checkApacheIndexes(l, dir, dirty)
			})
		}
	}
}

// checkApacheTxns compares the aborted transactions with Apache's own index.
func (f *fixture) checkApacheTxns(l *Log, dir string) {
	files, err := filepath.Glob(filepath.Join("testdata", "apache", dir, "*.txnindex"))
	if err != nil {
		f.t.Fatal(err)
	}
	var want []byte
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.t.Fatal(err)
		}
		want = append(want, b...)
	}
	got := l.AbortedIn(nil, 0, 1<<60)
	if len(got) != len(want)/34 || strings.Contains(dir, "orders") != (len(got) > 0) {
		f.t.Fatalf("%d aborted transactions, Apache has %d", len(got), len(want)/34)
	}
	for i, a := range got {
		s := fmt.Sprintf("%04x%016x%016x%016x%016x", 0, a.ProducerID, a.FirstOffset, a.LastOffset, a.LastStable)
		if w := fmt.Sprintf("%x", want[34*i:34*i+34]); s != w {
			f.t.Errorf("aborted transaction %d is %s, Apache has %s", i, s, w)
		}
	}
}

// checkApacheProducers compares the state at the log end with Apache's last snapshot, which only a clean stop writes.
func (f *fixture) checkApacheProducers(l *Log, dir string) {
	b, err := os.ReadFile(filepath.Join("testdata", "apache", dir, fmt.Sprintf("%020d.snapshot", l.Offsets().LogEnd)))
	if os.IsNotExist(err) {
		return
	}
	var want producer.State
	if err := want.Load(b, 0); err != nil {
		f.t.Fatal(err)
	}
	if want.Len() == 0 || want.Len() != l.st.producers.Len() {
		f.t.Errorf("%d producers, Apache has %d", l.st.producers.Len(), want.Len())
	}
	last := func(b *producer.Batch) producer.Batch {
		if b == nil {
			return producer.Batch{}
		}
		return *b
	}
	got := map[int64]string{}
	l.st.producers.Each(func(id int64, e *producer.Entry, b *producer.Batch) {
		got[id] = fmt.Sprint(e.Epoch, e.CoordinatorEpoch, e.TxnFirst, e.LastTimestamp, last(b).LastOffset, last(b).LastSequence, last(b).Delta)
	})
	want.Each(func(id int64, e *producer.Entry, b *producer.Batch) {
		if w := fmt.Sprint(e.Epoch, e.CoordinatorEpoch, e.TxnFirst, e.LastTimestamp, last(b).LastOffset, last(b).LastSequence, last(b).Delta); got[id] != w {
			f.t.Errorf("producer %d: %s, Apache has %s", id, got[id], w)
		}
	})
}

// checkApacheIndexes compares indexes that recovery built with Apache's, byte by byte.
func (f *fixture) checkApacheIndexes(l *Log, dir string, dirty bool) {
	segs := l.Segments()
	if !dirty || !strings.HasPrefix(dir, "clean/plain") {
		return
	}
	f.close()
	for _, s := range segs {
		for _, suffix := range []string{".index", ".timeindex"} {
			name := fmt.Sprintf("%020d%s", s.BaseOffset, suffix)
			want, err := os.ReadFile(filepath.Join("testdata", "apache", dir, name))
			if err != nil {
				f.t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(f.cfg.Dir, l.name(), name))
			if err != nil || !bytes.Equal(got, want) {
				f.t.Errorf("%s: %d bytes, Apache has %d (%v)\n%x\n%x", name, len(got), len(want), err, got, want)
			}
		}
	}
}
