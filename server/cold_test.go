package server

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"kaas/bench/load"
)

// Records that are on the disk only, in several segments and partitions, come whole to readers that ask for much and for little, and the broker
// says that workers read them.
func TestFetchOfColdRecords(t *testing.T) {
	dir := t.TempDir()
	settings := []string{"log.segment.bytes", "1048576", "kaas.metrics.listen", "127.0.0.1:0", "kaas.read.ahead.bytes", "65536", "kaas.durability", "page-cache"}
	b := start(t, dir, settings...)
	defer func() { stop(t, b) }()
	wrote, err := load.Produce(load.ProduceConfig{
		Brokers: []string{b.Ready().Listeners["PLAINTEXT"]}, Topic: "old", Partitions: 2, Connections: 2, Pipeline: 4, BatchBytes: 9000, RecordBytes: 1000, Acks: 1,
		Limits: load.Limits{Bytes: 8 << 20},
	})
	if err != nil {
		t.Fatal(err)
	}
	read := func(maxBytes int) {
		t.Helper()
		if !dropLogs(t, dir, "old") {
			t.Skip("the file system does not drop pages")
		}
		got, err := load.Fetch(load.FetchConfig{
			Brokers: []string{b.Ready().Listeners["PLAINTEXT"]}, Topic: "old", Connections: 2, MaxBytes: maxBytes, Limits: load.Limits{Bytes: wrote.Bytes},
		})
		if err != nil || got.Bytes < wrote.Bytes {
			t.Fatalf("%d bytes were read of %d: %v", got.Bytes, wrote.Bytes, err)
		}
	}
	stop(t, b)
	b = start(t, dir, settings...) // what this process appended a moment ago it does not look for
	for _, maxBytes := range []int{1 << 20, 20_000} {
		before := scrape(t, b)["kaas_cold_reads_total"]
		read(maxBytes)
		// Look-ups of small answers read what follows as well, by the kernel's own reading ahead.
		if n := scrape(t, b)["kaas_cold_reads_total"] - before; maxBytes == 1<<20 && n < 8 {
			t.Errorf("%v reads by workers of 8 segments", n)
		}
	}
}

// dropLogs puts the log files of a topic out of the page cache; false: this file system keeps them.
func dropLogs(t *testing.T, dir, topic string) bool {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, topic+"-*", "*.log"))
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	gone := false
	for _, name := range names {
		f, err := os.Open(name)
		if err == nil {
			err = f.Sync()
		}
		if err == nil {
			err = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
		}
		if err != nil {
			t.Fatal(fmt.Errorf("%s: %w", name, err))
		}
		var area unix.CachestatRange
		var st unix.Cachestat_t
		gone = gone || unix.Cachestat(uint(f.Fd()), &area, &st, 0) != nil || st.Cache == 0
		f.Close()
	}
	return gone
}
