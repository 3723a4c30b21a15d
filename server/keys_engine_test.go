package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/engine/vfs"
	"kaas/server/topics"
)

// crowd counts those that are in a place at the same time. The first few that come wait for each other there, so that they are in it together.
type crowd struct {
	few int

	mu           sync.Mutex // guards what follows
	inside, most int
	came         int
	together     chan struct{} // closed when the few are there
}

func newCrowd(few int) *crowd { return &crowd{few: few, together: make(chan struct{})} }

func (c *crowd) enter(t testing.TB) {
	c.mu.Lock()
	c.came++
	c.inside++
	c.most = max(c.most, c.inside)
	if c.came == c.few {
		close(c.together)
	}
	c.mu.Unlock()
	select {
	case <-c.together:
	case <-time.After(deadline):
		t.Errorf("there are never %d together", c.few)
	}
	for range 100 { // whoever may come too does
		runtime.Gosched()
	}
}

func (c *crowd) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inside--
}

// greatest is the most that there have been at the same time.
func (c *crowd) greatest() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most
}

// watchedFS shows a test what is done with the log files of partitions.
type watchedFS struct {
	vfs.FS
	mu      sync.Mutex // guards what follows; they are called without it
	opening func(dir string)
	syncing func(dir string) (done func())
	reading func(dir string, bytes int)
}

type watchedFile struct {
	vfs.File
	fs  *watchedFS
	dir string
}

func (f *watchedFS) Open(name string, mode vfs.Mode) (vfs.File, error) {
	if !strings.HasSuffix(name, ".log") {
		return f.FS.Open(name, mode)
	}
	dir := filepath.Base(filepath.Dir(name))
	f.mu.Lock()
	opening := f.opening
	f.mu.Unlock()
	if opening != nil {
		opening(dir)
	}
	file, err := f.FS.Open(name, mode)
	if err != nil {
		return nil, err
	}
	return &watchedFile{file, f, dir}, nil
}

func (f *watchedFile) Sync() error {
	f.fs.mu.Lock()
	syncing := f.fs.syncing
	f.fs.mu.Unlock()
	if syncing != nil {
		defer syncing(f.dir)()
	}
	return f.File.Sync()
}

func (f *watchedFile) ReadAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	reading := f.fs.reading
	f.fs.mu.Unlock()
	if reading != nil {
		reading(f.dir, len(p))
	}
	return f.File.ReadAt(p, off)
}

// watch changes what the test is shown.
func (f *watchedFS) watch(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// kaas.commit.threads is how many logs are synced at the same time: while the sync of one is held, eight more are written to, and they are the
// next round.
func TestKeyOfCommitThreads(t *testing.T) {
	for _, threads := range []int{1, 3} {
		f := &watchedFS{FS: vfs.OS}
		b := startWith(t, f, t.TempDir(), "kaas.commit.threads", fmt.Sprint(threads), "kaas.commit.journal.bytes", "0")
		defer stop(t, b)
		c, first := dial(t, b), dial(t, b)
		c.create("first", 1)
		c.create("t", 8)
		all := newCrowd(threads)
		held, entered := make(chan struct{}), make(chan struct{})
		began := sync.OnceFunc(func() { close(entered) })
		let := sync.OnceFunc(func() { close(held) })
		defer let() // a test that failed stops its broker too
		f.watch(func() {
			f.syncing = func(dir string) func() {
				if dir == "first-0" {
					began()
					<-held
					return func() {}
				}
				all.enter(t)
				return all.leave
			}
		})
		first.send(api.KeyProduce, 9, produceRequest("first", 0, -1, records("x")))
		<-entered
		q := produceRequest("t", 0, -1, records("0"))
		for i := int32(1); i < 8; i++ {
			p := api.Next(&q.TopicData[0].PartitionData)
			p.Index, p.Records = i, wire.Records{Bytes: records(fmt.Sprint(i))}
		}
		c.send(api.KeyProduce, 9, q)
		eventually(t, "eight logs to be synced", func() bool {
			return !slices.ContainsFunc(b.topics.ByName("t").Partitions(), func(p *topics.Partition) bool { return p.Log.Offsets().LogEnd == 0 })
		})
		let()
		var p api.ProduceResponse
		first.receive(api.KeyProduce, 9, &p)
		c.receive(api.KeyProduce, 9, &p)
		want(t, "syncs at the same time", all.greatest(), threads)
	}
}

// kaas.recovery.threads is how many logs are recovered at the same time after a kill; num.recovery.threads.per.data.dir raises it and does not
// lower it.
func TestKeyOfRecoveryThreads(t *testing.T) {
	dir := t.TempDir()
	b := start(t, dir)
	c := dial(t, b)
	c.create("t", 9)
	for i := range int32(9) {
		c.produce("t", i, records("x"))
	}
	for _, k := range []struct {
		threads, perDir string
		want            int
	}{{"1", "1", 1}, {"3", "2", 3}, {"2", "4", 4}} {
		killed := t.TempDir()
		if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		all := newCrowd(k.want)
		f := &watchedFS{FS: vfs.OS, opening: func(string) {
			all.enter(t)
			all.leave()
		}}
		again := startWith(t, f, killed, "kaas.recovery.threads", k.threads, "num.recovery.threads.per.data.dir", k.perDir)
		want(t, "logs at the same time with "+k.threads+" and "+k.perDir, all.greatest(), k.want)
		stop(t, again)
	}
	stop(t, b)
}

// kaas.commit.journal.bytes is how large the files of the commit journal become, half of it each; 0: there are none.
func TestKeyOfCommitJournal(t *testing.T) {
	for _, bytes := range []int64{1 << 20, 4 << 20, 0} {
		b := broker(t, "kaas.commit.journal.bytes", fmt.Sprint(bytes), "kaas.durability", "group-commit")
		c := dial(t, b)
		c.create("t", 1)
		name := filepath.Join(b.Ready().DataDir, "kaas.redo.0")
		written := func() bool {
			c.must(api.ErrNone, "produce", records("x"))
			st, err := os.Stat(name)
			return err == nil && st.Size() == bytes/2
		}
		if bytes > 0 {
			eventually(t, "a journal that is used", written)
			continue
		}
		for range 100 { // it is made after 32 rounds
			written()
		}
		if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a journal with kaas.commit.journal.bytes=0: %v", err)
		}
	}
}

// kaas.open.files.max is how many segment files stay open; each log of forty has one.
func TestKeyOfOpenFiles(t *testing.T) {
	const logs = 40
	for _, most := range []int{8, 4096} {
		b := broker(t, "kaas.open.files.max", fmt.Sprint(most), "kaas.metrics.listen", "127.0.0.1:0", "kaas.commit.journal.bytes", "0")
		c := dial(t, b)
		c.create("t", logs)
		for i := range int32(logs) {
			c.produce("t", i, records("x"))
		}
		eventually(t, "files open", func() bool {
			c.produce("t", 0, records("y"))
			return int(scrape(t, b)["kaas_log_files_open"]) == min(most, logs)
		})
		for i := range int32(logs) { // and all can be read
			if got := c.fetch("t", i, 0); got.ErrorCode != api.ErrNone || got.Records.Len() == 0 {
				t.Errorf("partition %d: %v, %d bytes", i, got.ErrorCode, got.Records.Len())
			}
		}
		eventually(t, "files open after a fetch of all", func() bool {
			c.fetch("t", 0, 0)
			return int(scrape(t, b)["kaas_log_files_open"]) == min(most, logs)
		})
	}
}

// kaas.memory.max.bytes is how much data a broker in memory takes, and kaas.memory.full.policy what becomes of more: the oldest goes, or it is
// refused.
func TestKeysOfMemory(t *testing.T) {
	const size, batches, small, large = 20_000, 300, 4 << 20, 8 << 20
	for _, k := range []struct {
		bytes        int
		policy       string
		drops, takes bool
	}{{small, "drop-oldest", true, true}, {small, "refuse", false, false}, {large, "refuse", false, true}, {large, "drop-oldest", false, true}} {
		what := fmt.Sprintf("kaas.memory.max.bytes=%d, kaas.memory.full.policy=%s", k.bytes, k.policy)
		b := broker(t, "kaas.storage", "memory", "kaas.memory.max.bytes", fmt.Sprint(k.bytes), "kaas.memory.full.policy", k.policy, "kaas.metrics.listen", "127.0.0.1:0")
		c := dial(t, b)
		c.create("t", 1)
		took, set := 0, made0(size)
		for range batches {
			if p := c.produce("t", 0, append([]byte(nil), set...)); p.ErrorCode == api.ErrNone {
				took++
			} else if p.ErrorCode != api.ErrKafkaStorageError {
				t.Errorf("%s: refused with %v", what, p.ErrorCode)
			}
		}
		if all := small / len(set); k.takes && took != batches || !k.takes && took != all {
			t.Errorf("%s: took %d of %d batches; %d fit", what, took, batches, all)
		}
		if first := c.logStart(int64(took)); k.drops != (first > 0) || first > int64(took-2) {
			t.Errorf("%s: the log starts at %d", what, first)
		}
		if held := scrape(t, b)["kaas_memory_storage_bytes"]; k.drops && held > small+small/8 || !k.drops && held != float64(took*len(set)) {
			t.Errorf("%s: %v bytes held", what, held)
		}
	}
}

// log.flush.scheduler.interval.ms is flush.ms of topics where log.flush.interval.ms is not set; that wins when it is.
func TestKeyOfFlushScheduler(t *testing.T) {
	f := &heldFS{FS: vfs.OS}
	b := startWith(t, f, t.TempDir(), "kaas.durability", "page-cache", "log.flush.scheduler.interval.ms", "1")
	defer stop(t, b)
	c := dial(t, b)
	c.create("t", 1)
	c.must(api.ErrNone, "produce", records("x"))
	eventually(t, "a sync that nobody waits for", func() bool { return f.syncs() == 1 })
	c.brokerKeys(false, "log.flush.interval.ms", "3600000")
	c.must(api.ErrNone, "produce", records("x"))
	c.brokerKeys(false, "log.flush.interval.ms", "0")
	eventually(t, "a sync when log.flush.interval.ms is lowered", func() bool { return f.syncs() == 2 })
}

// resident is how many pages of a file the page cache has from pos on, up to n bytes.
func resident(t *testing.T, name string, pos, n int64) int {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	area := unix.CachestatRange{Off: uint64(pos), Len: uint64(n)}
	var st unix.Cachestat_t
	if err := unix.Cachestat(uint(f.Fd()), &area, &st, 0); err != nil {
		t.Skip("this kernel does not tell what is in the page cache")
	}
	return int(st.Cache)
}

// kaas.read.ahead.bytes is how far beyond what a cold reader asked for is read, in the page cache to be seen.
func TestKeyOfReadAhead(t *testing.T) {
	dir := t.TempDir()
	settings := []string{"kaas.durability", "page-cache", "log.index.interval.bytes", "0"}
	b := start(t, dir, settings...)
	c := dial(t, b)
	c.create("t", 1)
	for range 8 {
		c.must(api.ErrNone, "produce", made0(1_000_000))
	}
	stop(t, b)
	name := filepath.Join(dir, "t-0", "00000000000000000000.log")
	const far, page = 6 << 20, 4096 // a worker reads a MiB at a time; this is beyond what the kernel reads of itself
	for bytes, want := range map[string]int{"0": 0, "8388608": 1 << 20 / page} {
		b := start(t, dir, append([]string{"kaas.read.ahead.bytes", bytes}, settings...)...)
		c := dial(t, b)
		c.fetch("t", 0, 8) // opens the log
		if !dropLogs(t, dir, "t") || resident(t, name, far, 1<<20) != 0 {
			stop(t, b)
			t.Skip("the file system does not drop pages")
		}
		got := c.fetch("t", 0, 0)
		if n := resident(t, name, far, 1<<20); n != want || got.Records.Len() == 0 {
			t.Errorf("kaas.read.ahead.bytes=%s: %d pages of what was not asked for are there, want %d", bytes, n, want)
		}
		stop(t, b)
	}
}

// kaas.read.ahead.threads is how many workers read what is not in the page cache at the same time.
func TestKeyOfReadAheadThreads(t *testing.T) {
	const logs = 16
	dir := t.TempDir()
	settings := []string{"kaas.durability", "page-cache", "kaas.metrics.listen", "127.0.0.1:0", "kaas.pprof.enable", "true", "kaas.loops", "1"}
	b := start(t, dir, settings...)
	c := dial(t, b)
	c.create("t", logs)
	for i := range int32(logs) {
		c.produce("t", i, made0(1_000_000))
	}
	stop(t, b)
	for _, threads := range []int{1, 3} {
		b := start(t, dir, append([]string{"kaas.read.ahead.threads", fmt.Sprint(threads)}, settings...)...)
		var readers []*client
		for i := range int32(logs) {
			r := dial(t, b)
			r.fetch("t", i, 1)
			readers = append(readers, r)
		}
		most := 0
		eventually(t, fmt.Sprintf("%d workers at the same time", threads), func() bool {
			if !dropLogs(t, dir, "t") {
				stop(t, b)
				t.Skip("the file system does not drop pages")
			}
			for i, r := range readers {
				r.send(api.KeyFetch, 12, fetchRequest("t", int32(i), 0, 0, 0))
			}
			var asked sync.WaitGroup
			answered := make(chan struct{})
			asked.Go(func() {
				for {
					select {
					case <-answered:
						return
					default:
						most = max(most, goroutines(t, b, "kaas/netio.(*readAhead).read"))
					}
				}
			})
			for _, r := range readers {
				var p api.FetchResponse
				r.receive(api.KeyFetch, 12, &p)
			}
			close(answered)
			asked.Wait()
			return most >= threads
		})
		want(t, "kaas.read.ahead.threads", most, threads)
		stop(t, b)
	}
}
