package regress

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A kill in the middle of a write may leave any part of the last batch, or room for it without data. Whatever it is, it is cut, and the
// log and its producers are what the whole batches say (fault 74). One partition for each byte of a batch, and each way.
func TestTornAtEveryByte(t *testing.T) {
	one := batch{values: []string{"one"}, producer: 4}
	two := batch{values: []string{"two"}, producer: 4, sequence: 1}
	size := len(one.bytes())
	ways := map[int]func(b []byte, at int) []byte{
		0: func(b []byte, at int) []byte { return b[:at] },
		1: func(b []byte, at int) []byte { clear(b[at:]); return b },
		2: func(b []byte, at int) []byte { b[at] ^= 0xff; return b[:2*size] },
	}
	b := start(t, t.TempDir(), "kaas.durability", "page-cache")
	c := b.dial()
	all := make([]int32, len(ways)*size)
	for i := range all {
		all[i] = int32(i)
	}
	c.create("t", int32(len(all)))
	c.produceAll("t", one.bytes(), all...)
	c.produceAll("t", two.bytes(), all...)
	dir := b.killed()
	b.stop()
	for i := range all {
		edit(t, func(b []byte) []byte { return ways[i/size](b, size+i%size) }, dir, fmt.Sprint("t-", i), "00000000000000000000.log")
	}
	b = start(t, dir, "kaas.durability", "page-cache")
	c = b.dial()
	for i := range all {
		// Base offset and leader epoch are not under the CRC, and a zero that becomes one is no damage.
		if way, at := i/size, i%size; way == 2 && (at < 8 || at >= 12 && at < 16) || way == 1 && at == size-1 {
			continue
		}
		if got := c.all("t", int32(i)); !slices.Equal(got, []string{"one"}) {
			t.Fatalf("way %d, byte %d of %d: %q", i/size, i%size, size, got)
		}
		c.stored("t", int32(i), one, 0) // a repeat
		c.stored("t", int32(i), two, 1) // what was torn is not known
	}
	b.stop()
	c = start(t, dir).dial()
	for i := range 2 * size {
		if got := c.all("t", int32(i)); !slices.Equal(got, []string{"one", "two"}) {
			t.Fatalf("way %d, byte %d: %q", i/size, i%size, got)
		}
	}
}

// Whatever happens to the files beside the log, they are made again from it; offsets, times, producers and epochs are the same (fault 79).
func TestFilesBesideTheLogAreRebuilt(t *testing.T) {
	const batches = 60
	b := start(t, t.TempDir())
	c := b.dial()
	c.create("t", 1, "segment.bytes", "20000", "index.interval.bytes", "1000")
	value := strings.Repeat("v", 900)
	at := func(i int) batch {
		return batch{values: []string{fmt.Sprint(i, value)}, producer: 4, sequence: int32(i), ts: 1_700_000_000_000 + int64(i)*1000}
	}
	for i := range batches {
		c.stored("t", 0, at(i), int64(i))
	}
	killed := b.killed()
	b.stop()
	damage := map[string]func(b []byte) []byte{
		"missing": nil,
		"empty":   func([]byte) []byte { return nil },
		"short":   func(b []byte) []byte { return b[:len(b)*2/3] },
		"garbage": func(b []byte) []byte { return bytes.Repeat([]byte{0x5a}, max(len(b), 24)) },
		"longer":  func(b []byte) []byte { return append(b, bytes.Repeat([]byte{0x7f}, 100)...) },
	}
	for how, dir := range map[string]string{"stopped": b.dir, "killed": killed} {
		for name, change := range damage {
			for _, files := range []string{"*.index", "*.timeindex", "*.snapshot", "leader-epoch-checkpoint", "partition.metadata"} {
				t.Run(how+" "+name+" "+files, func(t *testing.T) {
					to := t.TempDir()
					if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
						t.Fatal(err)
					}
					hurt, err := filepath.Glob(filepath.Join(to, "t-0", files))
					if err != nil || len(hurt) == 0 {
						t.Fatalf("no file to damage: %v", err)
					}
					for _, f := range hurt {
						if change != nil {
							edit(t, change, f)
						} else if err := os.Remove(f); err != nil {
							t.Fatal(err)
						}
					}
					if name == "empty" && files == "partition.metadata" {
						checkStranded(t, to)
						return
					}
					checkRebuilt(t, start(t, to), batches, at)
				})
			}
		}
	}
}

// checkStranded: an empty partition.metadata does not tell whose the directory is. It is not served, and not a byte of it goes.
func checkStranded(t *testing.T, dir string) {
	t.Helper()
	const first = "00000000000000000000.log"
	want, err := os.ReadFile(filepath.Join(dir, "t-0", first))
	if err != nil || len(want) == 0 {
		t.Fatalf("%d bytes, %v", len(want), err)
	}
	b := start(t, dir)
	b.dial().wantEmpty("t")
	b.stop()
	start(t, dir).stop() // does not remove it either
	found, err := filepath.Glob(filepath.Join(dir, "t-0.*-stray", first))
	if err != nil || len(found) != 1 {
		t.Fatalf("set aside: %v, %v", found, err)
	}
	if got, err := os.ReadFile(found[0]); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes were set aside of %d, %v", len(got), len(want), err)
	}
}

// checkRebuilt asks for everything that the files beside a log serve.
func checkRebuilt(t *testing.T, b *broker, n int, at func(int) batch) {
	t.Helper()
	c := b.dial()
	for i := range n {
		p := c.fetch("t", 0, int64(i))
		var rb kmsg.RecordBatch
		if err := rb.ReadFrom(p.RecordBatches[:len(at(i).bytes())]); err != nil || p.ErrorCode != none || rb.FirstOffset != int64(i) {
			t.Fatalf("fetch at %d: error %d, first offset %d, %v", i, p.ErrorCode, rb.FirstOffset, err)
		}
		q := kmsg.NewPtrListOffsetsRequest()
		q.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "t", Partitions: []kmsg.ListOffsetsRequestTopicPartition{{CurrentLeaderEpoch: -1, Timestamp: at(i).ts - 500}}}}
		if l := c.call(q, 6).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]; l.ErrorCode != none || l.Offset != int64(i) || l.LeaderEpoch != 0 {
			t.Fatalf("time of %d: error %d, offset %d, leader epoch %d", i, l.ErrorCode, l.Offset, l.LeaderEpoch)
		}
	}
	c.stored("t", 0, at(n-1), int64(n)-1)
	if p := c.produce("t", 0, at(n+3)); p.ErrorCode != outOfOrderSequence {
		t.Errorf("a gap in the sequence: error %d", p.ErrorCode)
	}
	e := kmsg.NewPtrOffsetForLeaderEpochRequest()
	e.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{{CurrentLeaderEpoch: -1}}}}
	if p := c.call(e, 3).(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]; p.ErrorCode != none || p.LeaderEpoch != 0 || p.EndOffset != int64(n) {
		t.Errorf("epoch 0: %+v", p)
	}
	c.stored("t", 0, at(n), int64(n))
}
