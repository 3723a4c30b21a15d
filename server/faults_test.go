package server

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kaas/codec/api"
	"kaas/codec/batch"
	"kaas/codec/wire"
	"kaas/engine/vfs"
)

// heldFS lets a test decide when syncs of log segments end, and how; and it notes which segments are opened.
type heldFS struct {
	vfs.FS
	mu      sync.Mutex    // guards what follows
	held    chan struct{} // syncs wait until it is closed
	failure error         // what syncs end with
	synced  int           // syncs that have begun
	opened  []string      // partition directories whose segments were opened, in order
	opening func(dir string)
}

type heldFile struct {
	vfs.File
	fs *heldFS
}

func (f *heldFS) Open(name string, mode vfs.Mode) (vfs.File, error) {
	if !strings.HasSuffix(name, ".log") {
		return f.FS.Open(name, mode)
	}
	dir := filepath.Base(filepath.Dir(name))
	f.mu.Lock()
	f.opened = append(f.opened, dir)
	opening := f.opening
	f.mu.Unlock()
	if opening != nil {
		opening(dir)
	}
	file, err := f.FS.Open(name, mode)
	if err != nil {
		return nil, err
	}
	return &heldFile{file, f}, nil
}

func (f *heldFile) Sync() error {
	f.fs.mu.Lock()
	f.fs.synced++
	held := f.fs.held
	f.fs.mu.Unlock()
	if held != nil {
		<-held
	}
	f.fs.mu.Lock()
	err := f.fs.failure
	f.fs.mu.Unlock()
	if err != nil {
		return err
	}
	return f.File.Sync()
}

// syncs is how many syncs have begun.
func (f *heldFS) syncs() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.synced
}

// hold makes syncs wait. let ends them all, those to come as well, with err; for nil they do what FS does. Only its first call counts.
func (f *heldFS) hold() (let func(err error)) {
	held := make(chan struct{})
	var once sync.Once
	f.mu.Lock()
	f.held = held
	f.mu.Unlock()
	return func(err error) {
		once.Do(func() {
			f.mu.Lock()
			f.failure = err
			f.mu.Unlock()
			close(held)
		})
	}
}

// unanswered wants no answer on c for now, and lets it go on.
func (c *client) unanswered(what string) {
	c.t.Helper()
	if err := c.c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		c.t.Fatal(err)
	}
	var one [1]byte
	n, err := c.c.Read(one[:])
	var timeout net.Error
	if n != 0 || !errors.As(err, &timeout) || !timeout.Timeout() {
		c.t.Fatalf("%s was answered before the sync: %d bytes, %v", what, n, err)
	}
	if err := c.c.SetReadDeadline(time.Now().Add(deadline)); err != nil {
		c.t.Fatal(err)
	}
}

// idempotent makes a batch of an idempotent producer.
func idempotent(producer int64, sequence int32, values ...string) []byte {
	spec := batch.NewSpec()
	spec.ProducerID, spec.ProducerEpoch, spec.BaseSequence = producer, 0, sequence
	var b batch.Builder
	b.Begin(nil, spec)
	for _, v := range values {
		b.Append(1_700_000_000_000, nil, []byte(v))
	}
	return b.End(nil)
}

// acks 0 and 1 do not wait for a sync; acks=-1 does, and so does a repeat of what is not yet durable (regressions 25, 31). The partitions
// of one request are all appended before it waits for any.
func TestWhoWaitsForASync(t *testing.T) {
	for _, failed := range []bool{false, true} {
		fs := &heldFS{FS: vfs.OS}
		b := startWith(t, fs, t.TempDir())
		defer stopDirty(t, b, failed)
		admin, all, again, one := dial(t, b), dial(t, b), dial(t, b), dial(t, b)
		admin.create("t", 2)
		admin.create("other", 1)
		let := fs.hold()
		defer let(nil) // a test that failed stops its broker too
		set := idempotent(8, 0, "x")
		q := produceRequest("t", 0, -1, set)
		second := api.Next(&q.TopicData[0].PartitionData)
		second.Index, second.Records = 1, wire.Records{Bytes: append([]byte(nil), set...)}
		all.send(api.KeyProduce, 9, q)
		eventually(t, "both partitions are appended to while no sync has ended", func() bool {
			topic := b.topics.ByName("t")
			return topic.Partition(0).Log.Offsets().LogEnd == 1 && topic.Partition(1).Log.Offsets().LogEnd == 1
		})
		again.send(api.KeyProduce, 9, produceRequest("t", 0, -1, append([]byte(nil), set...)))
		var p api.ProduceResponse
		one.send(api.KeyProduce, 9, produceRequest("other", 0, 0, records("acks 0")))
		one.call(api.KeyProduce, 9, produceRequest("other", 0, 1, records("acks 1")), &p)
		if got := p.Responses[0].PartitionResponses[0]; got.ErrorCode != api.ErrNone || got.BaseOffset != 1 {
			t.Errorf("acks=1 while a sync hangs: %+v", got)
		}
		all.unanswered("acks=-1")
		again.unanswered("a repeat with acks=-1")
		if got := admin.fetch("t", 0, 0); got.HighWatermark != 0 || got.Records.Len() != 0 {
			t.Errorf("what is not durable can be read: %+v", got)
		}
		want, err := api.ErrNone, error(nil)
		if failed {
			want, err = api.ErrKafkaStorageError, syscall.EIO
		}
		let(err)
		for name, c := range map[string]*client{"acks=-1": all, "repeat": again} {
			var p api.ProduceResponse
			c.receive(api.KeyProduce, 9, &p)
			for _, got := range p.Responses[0].PartitionResponses {
				if got.ErrorCode != want || want == api.ErrNone && got.BaseOffset != 0 || want != api.ErrNone && got.BaseOffset != -1 {
					t.Errorf("%s, failed sync %v: %+v", name, failed, got)
				}
			}
		}
	}
}

// stopDirty stops a broker; one with a log that failed may say so.
func stopDirty(t *testing.T, b *Broker, failed bool) {
	t.Helper()
	if err := b.Stop(); err != nil && !failed {
		t.Error(err)
	}
}

// A failed sync is never acknowledged: not then, not by a later sync that succeeds, and not to a repeat; what was durable before stays
// readable, other partitions go on, and a restart tells what is true (regression 33).
func TestFailedSyncIsNeverAcknowledged(t *testing.T) {
	fs, dir := &heldFS{FS: vfs.OS}, t.TempDir()
	b := startWith(t, fs, dir)
	c := dial(t, b)
	c.create("t", 3)
	c.create("other", 1)
	c.produce("t", 2, idempotent(8, 0, "durable"))
	let := fs.hold()
	c.send(api.KeyProduce, 9, produceRequest("t", 2, -1, idempotent(8, 1, "in doubt")))
	eventually(t, "the batch is appended", func() bool { return b.topics.ByName("t").Partition(2).Log.Offsets().LogEnd == 2 })
	let(syscall.EIO)
	var p api.ProduceResponse
	c.receive(api.KeyProduce, 9, &p)
	fs.mu.Lock()
	fs.failure = nil // the disk is well again
	fs.mu.Unlock()
	if got := p.Responses[0].PartitionResponses[0]; got.Index != 2 || got.ErrorCode != api.ErrKafkaStorageError || got.BaseOffset != -1 {
		t.Errorf("the batch whose sync failed: %+v", got)
	}
	for what, set := range map[string][]byte{"repeat": idempotent(8, 1, "in doubt"), "next": idempotent(8, 2, "later"), "plain": records("later")} {
		if got := c.produce("t", 2, set); got.ErrorCode != api.ErrKafkaStorageError {
			t.Errorf("%s: %+v", what, got)
		}
	}
	got := c.fetch("t", 2, 0)
	if want := []record{{0, "durable"}}; got.ErrorCode != api.ErrNone || got.HighWatermark != 1 || !reflect.DeepEqual(values(t, got.Records.Bytes), want) {
		t.Errorf("reads: %+v", got)
	}
	if got := c.produce("other", 0, records("x")); got.ErrorCode != api.ErrNone {
		t.Errorf("another partition: %+v", got)
	}
	stopDirty(t, b, true)
	b = start(t, dir)
	defer stop(t, b)
	c = dial(t, b)
	// The file has the batch, as it happens; the answer to the repeat is what the log says now.
	if got := c.produce("t", 2, idempotent(8, 1, "in doubt")); got.ErrorCode != api.ErrNone || got.BaseOffset != 1 {
		t.Errorf("after a restart: %+v", got)
	}
	want := []record{{0, "durable"}, {1, "in doubt"}}
	if got := values(t, c.fetch("t", 2, 0).Records.Bytes); !reflect.DeepEqual(got, want) {
		t.Errorf("after a restart: %v", got)
	}
}

// A start after a kill opens the segments of the logs that may be dirty and of no other, several logs at a time (regression 81).
func TestKilledStartReadsDirtyLogsOnly(t *testing.T) {
	dir := t.TempDir()
	b := start(t, dir)
	c := dial(t, b)
	c.create("t", 12)
	for p := range int32(12) {
		c.produce("t", p, records("first"))
	}
	stop(t, b)
	b = start(t, dir)
	c = dial(t, b)
	for _, p := range []int32{3, 7} {
		c.produce("t", p, records("second"))
	}
	killed := t.TempDir()
	if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	stop(t, b)
	fs := &heldFS{FS: vfs.OS}
	both := make(chan struct{})
	entered := map[string]bool{}
	fs.opening = func(dir string) {
		fs.mu.Lock()
		first := !entered[dir]
		entered[dir] = true
		if first && len(entered) == 2 {
			close(both)
		}
		fs.mu.Unlock()
		select {
		case <-both:
		case <-time.After(deadline):
			t.Errorf("the recovery of %s waits for the other log's", dir)
		}
	}
	b = startWith(t, fs, killed, "num.recovery.threads.per.data.dir", "2")
	defer stop(t, b)
	fs.mu.Lock()
	fs.opening = nil
	for _, dir := range fs.opened {
		if dir != "t-3" && dir != "t-7" {
			t.Errorf("segments of %s were opened", dir)
		}
	}
	if len(entered) != 2 {
		t.Errorf("opened %v, want both dirty logs", entered)
	}
	fs.mu.Unlock()
	c = dial(t, b)
	for p, want := range map[int32]int64{3: 2, 7: 2, 0: 1} {
		if got := c.fetch("t", p, 0).HighWatermark; got != want {
			t.Errorf("partition %d: high watermark %d, want %d", p, got, want)
		}
	}
}

// A topic with a retention of one minute shrinks, whether its records carry a time or not; one with -1 does not; a segment older than
// segment.ms ends with the next append (regression 76).
func TestRetentionOfAMinute(t *testing.T) {
	b := broker(t)
	c := dial(t, b)
	c.create("minute", 1, "retention.ms", "60000")
	c.create("ever", 1, "retention.ms", "-1")
	c.create("rolls", 1, "segment.ms", "1000", "retention.ms", "-1")
	now := time.Now().UnixMilli()
	at := func(ms int64) []byte {
		var bb batch.Builder
		bb.Begin(nil, batch.NewSpec())
		bb.Append(ms, nil, []byte("x"))
		return bb.End(nil)
	}
	for _, topic := range []string{"minute", "ever"} {
		c.produce(topic, 0, at(now-61_000))
	}
	for i := range int64(3) {
		c.produce("rolls", 0, at(now+2000*i))
	}
	if got := len(b.topics.ByName("rolls").Partition(0).Log.Segments()); got != 3 {
		t.Errorf("%d segments, want one for each batch", got)
	}
	b.engine.Maintain()
	if got := c.fetch("minute", 0, 1); got.LogStartOffset != 1 || got.HighWatermark != 1 {
		t.Errorf("old record: %+v", got)
	}
	if got := c.fetch("minute", 0, 0); got.ErrorCode != api.ErrOffsetOutOfRange {
		t.Errorf("below the log start: %+v", got)
	}
	c.produce("minute", 0, at(now))
	b.engine.Maintain()
	if got := c.fetch("minute", 0, 1); got.LogStartOffset != 1 || got.HighWatermark != 2 {
		t.Errorf("fresh record: %+v", got)
	}
	if got := c.fetch("ever", 0, 0); got.LogStartOffset != 0 || got.HighWatermark != 1 {
		t.Errorf("retention.ms=-1: %+v", got)
	}
}
