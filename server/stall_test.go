package server

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"kaas/codec/api"
	"kaas/engine/vfs"
)

// stallingFS lets a test hold back writes of one topic's records, as a kernel does that has too many dirty pages.
type stallingFS struct {
	vfs.FS
	topic string
	mu    sync.Mutex    // guards what follows
	held  chan struct{} // writes wait until it is closed; nil: they do not
	began chan struct{} // gets one for each write that waits
}

type stallingFile struct {
	vfs.File
	fs *stallingFS
}

func (f *stallingFS) Open(name string, mode vfs.Mode) (vfs.File, error) {
	file, err := f.FS.Open(name, mode)
	if err != nil || !strings.HasSuffix(name, ".log") || !strings.HasPrefix(filepath.Base(filepath.Dir(name)), f.topic+"-") {
		return file, err
	}
	return &stallingFile{file, f}, nil
}

func (f *stallingFile) WriteVAt(bufs [][]byte, off int64) (int, error) {
	f.fs.mu.Lock()
	held := f.fs.held
	f.fs.mu.Unlock()
	if held != nil {
		f.fs.began <- struct{}{}
		<-held
	}
	return f.File.WriteVAt(bufs, off)
}

// hold makes writes wait until let is called.
func (f *stallingFS) hold() (let func()) {
	held := make(chan struct{})
	f.mu.Lock()
	f.held = held
	f.mu.Unlock()
	return sync.OnceFunc(func() {
		f.mu.Lock()
		f.held = nil
		f.mu.Unlock()
		close(held)
	})
}

// While the writes of one log stall, whoever only fetches is served on the same loop, and so is a producer to another log: all but while
// the first write stalls, which is how the broker learns of it.
func TestStalledWritesStopNobodyElse(t *testing.T) {
	const sure = 40 * time.Millisecond // 20 stalls
	fs := &stallingFS{FS: vfs.OS, topic: "slow", began: make(chan struct{}, 10)}
	b := startWith(t, fs, t.TempDir(), "kaas.loops", "1", "kaas.durability", "page-cache", "kaas.metrics.listen", "127.0.0.1:0",
		"kaas.append.stall.ms", "2", "kaas.append.threads", "2")
	defer stop(t, b)
	slow, fetcher, other := dial(t, b), dial(t, b), dial(t, b)
	slow.create("slow", 1)
	other.create("other", 1)
	record := func() []byte { return records("value") }
	send := func() { slow.send(api.KeyProduce, 9, produceRequest("slow", 0, -1, record())) }
	answered := func() {
		t.Helper()
		var p api.ProduceResponse
		slow.receive(api.KeyProduce, 9, &p)
		if code := p.Responses[0].PartitionResponses[0].ErrorCode; code != api.ErrNone {
			t.Errorf("answered with %v", code)
		}
	}
	slow.produce("slow", 0, record())
	other.produce("other", 0, record())

	let := fs.hold()
	send()
	<-fs.began
	time.Sleep(sure) // what the disk takes
	let()
	answered()
	if n := scrape(t, b)["kaas_append_stalls_total"]; n < 1 {
		t.Fatalf("%v stalls were seen", n)
	}

	let = fs.hold()
	defer let()
	send()
	<-fs.began
	for range 100 {
		if got := fetcher.fetch("other", 0, 0); len(got.Records.Bytes) == 0 {
			t.Fatal("nothing was fetched")
		}
		if got := fetcher.fetch("slow", 0, 0); len(got.Records.Bytes) == 0 {
			t.Fatal("nothing was fetched of the log whose writes stall")
		}
	}
	other.produce("other", 0, record())
	let()
	answered()
	slow.produce("slow", 0, record())
}
