package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kaas/codec/api"
	"kaas/codec/batch"
	"kaas/engine/vfs"
)

// keyed makes topics that are not compacted yet, each with so many batches of a key of its own, one a segment, and one more.
func keyed(t *testing.T, dir string, batches int, topics ...string) {
	t.Helper()
	b := start(t, dir)
	defer stop(t, b)
	c := dial(t, b)
	for _, topic := range topics {
		c.create(topic, 1, "segment.bytes", "1100")
		for i := range batches + 1 {
			c.taken(topic, api.ErrNone, made(batch.NewSpec(), 0, fmt.Appendf(nil, "key %d", i), make([]byte, 1000)))
		}
	}
}

// log.cleaner.dedupe.buffer.size and log.cleaner.io.buffer.load.factor, altered in a running broker, are how many keys one clean knows: a key
// takes 24 bytes.
func TestKeysOfDedupeBuffer(t *testing.T) {
	dir := t.TempDir()
	keyed(t, dir, 30, "half", "most", "all")
	b := start(t, dir, "log.cleaner.threads", "0") // all segments but the last are sealed now
	defer stop(t, b)
	c := dial(t, b)
	c.brokerKeys(false, "log.cleaner.min.cleanable.ratio", "0.01")
	for _, k := range []struct {
		topic, bytes, load string
		cleans             int
	}{{"half", "240", "0.5", 6}, {"most", "240", "0.9", 4}, {"all", "2400", "0.9", 1}} {
		c.brokerKeys(false, "log.cleaner.dedupe.buffer.size", k.bytes, "log.cleaner.io.buffer.load.factor", k.load)
		c.alter(k.topic, "cleanup.policy", "compact")
		want(t, "cleans of 30 keys with "+k.bytes+" bytes, full at "+k.load, b.engine.Clean(), k.cleans)
		text, err := os.ReadFile(filepath.Join(dir, "cleaner-offset-checkpoint"))
		if err != nil || !strings.Contains(string(text), k.topic+" 0 30\n") {
			t.Errorf("cleaned up to %q, %v", text, err)
		}
	}
}

// log.cleaner.io.buffer.size, altered in a running broker, is what the cleaner reads and writes at a time: half of it each.
func TestKeyOfCleanerBuffer(t *testing.T) {
	dir := t.TempDir()
	keyed(t, dir, 0, "one", "two")
	most := map[string]int{}
	f := &watchedFS{FS: vfs.OS}
	b := startWith(t, f, dir, "log.cleaner.threads", "0", "kaas.durability", "page-cache")
	c := dial(t, b)
	for topic := range map[string]int{"one": 0, "two": 0} {
		c.alter(topic, "segment.bytes", "100000")
		for range 210 {
			c.taken(topic, api.ErrNone, made(batch.NewSpec(), 0, []byte("key"), make([]byte, 1000)))
		}
	}
	stop(t, b)
	b = startWith(t, f, dir, "log.cleaner.threads", "0")
	defer stop(t, b)
	c = dial(t, b)
	for topic, bytes := range map[string]int{"one": 8192, "two": 65536} {
		c.fetch(topic, 0, 0) // loads the log
		f.watch(func() { f.reading = func(dir string, n int) { most[dir] = max(most[dir], n) } })
		c.brokerKeys(true, "log.cleaner.io.buffer.size", fmt.Sprint(bytes))
		c.alter(topic, "cleanup.policy", "compact")
		want(t, "cleans", b.engine.Clean(), 1)
		f.watch(func() { f.reading = nil })
		want(t, fmt.Sprintf("bytes read at once with log.cleaner.io.buffer.size=%d", bytes), most[topic+"-0"], bytes/2)
	}
}

// log.cleaner.io.max.bytes.per.second holds a clean back, and one that waits goes on as soon as it is raised.
func TestKeyOfCleanerPace(t *testing.T) {
	dir := t.TempDir()
	keyed(t, dir, 0, "t")
	b := start(t, dir, "kaas.metrics.listen", "127.0.0.1:0", "kaas.pprof.enable", "true", "log.cleaner.backoff.ms", "1", "log.cleaner.threads", "1")
	defer stop(t, b)
	c := dial(t, b)
	c.brokerKeys(false, "log.cleaner.io.max.bytes.per.second", "1")
	for range 20 {
		c.must(api.ErrNone, "produce", made(batch.NewSpec(), 0, []byte("key"), make([]byte, 1000)))
	}
	log := b.topics.ByName("t").Partition(0).Log
	grown := log.SizeBytes()
	c.alter("t", "cleanup.policy", "compact")
	eventually(t, "a clean that waits", func() bool { return goroutines(t, b, "kaas/engine.(*cleaner).throttle") == 1 })
	want(t, "bytes while the clean waits", log.SizeBytes(), grown)
	c.brokerKeys(false, "log.cleaner.io.max.bytes.per.second", "1e9")
	eventually(t, "the clean is done", func() bool { return log.SizeBytes() < grown/2 })
}

// log.cleaner.enable=false: there are no cleaners, however many threads they may have.
func TestKeyOfCleaner(t *testing.T) {
	for enable, threads := range map[string]int{"true": 3, "false": 0} {
		t.Run(enable, func(t *testing.T) {
			b := profiled(t, "log.cleaner.enable", enable, "log.cleaner.threads", "3")
			eventually(t, "cleaners", func() bool { return goroutines(t, b, "kaas/engine.(*cleaner).run") == threads })
			dial(t, b).brokerKeys(false, "log.cleaner.threads", "2")
			eventually(t, "log.cleaner.threads is lowered", func() bool { return goroutines(t, b, "kaas/engine.(*cleaner).run") == min(threads, 2) })
		})
	}
}
