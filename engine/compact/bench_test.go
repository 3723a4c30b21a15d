package compact_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"kaas/codec/batch"
	"kaas/engine"
	"kaas/engine/vfs"
)

// BenchmarkCompact cleans a log of 64 MiB of 100-byte records, of which one in eight stays. MB/s are those of the dirty bytes, which
// are read twice. The files are in memory, so that the figure is the cleaner's and not a disk's.
func BenchmarkCompact(b *testing.B) {
	for _, codec := range []batch.Codec{batch.CodecNone, batch.CodecLZ4, batch.CodecZstd} {
		for _, records := range []int{1, 100} {
			b.Run(fmt.Sprintf("codec=%s/batch=%d", codec, records), func(b *testing.B) {
				var dirty int64
				for b.Loop() {
					b.StopTimer()
					r := newRig(b, func(c *engine.LogConfig) { c.SegmentBytes, c.IndexIntervalBytes = 16<<20, 4096 })
					r.fs = vfs.Memory()
					r.conf = func(c *engine.Config) { c.Storage, c.MemoryMaxBytes = engine.Memory, 1<<30 }
					r.mustOpen()
					r.bulk(codec, records, 64<<20)
					before := r.l.SizeBytes()
					dirty += before
					b.StartTimer()
					if n := r.e.Clean(); n != 1 {
						b.Fatalf("%d cleans", n)
					}
					b.StopTimer()
					if after := r.l.SizeBytes(); after > before/2 {
						b.Fatalf("%d bytes of %d left", after, before)
					}
					r.close()
					b.StartTimer()
				}
				b.ReportMetric(float64(dirty)/1e6/b.Elapsed().Seconds(), "MB/s")
			})
		}
	}
}

// bulk appends records of 100 bytes, compressible by half, until they are of so many bytes before compression.
func (r *rig) bulk(codec batch.Codec, records, bytes int) {
	rng := rand.New(rand.NewPCG(1, 1))
	keys := bytes / 100 / 8
	value := make([]byte, 72)
	var def batch.Deflater
	var entries []engine.Entry
	var data []byte
	for written := 0; written < bytes; written += records * 100 {
		spec := batch.NewSpec()
		spec.Codec = codec
		var bb batch.Builder
		bb.Begin(nil, spec)
		for range records {
			for i := range len(value) / 2 {
				value[i] = byte(rng.Uint32())
			}
			bb.Append(r.now.UnixMilli(), fmt.Appendf(nil, "key-%016d", rng.IntN(keys)), value)
		}
		data = bb.End(&def)
		entries = append(entries, engine.Entry{Data: data, Info: infoOf(batch.View(data))})
		if len(entries) == 64 {
			r.l.Append(entries)
			entries = entries[:0]
		}
	}
	r.l.Append(entries)
	r.roll16()
}

// roll16 ends the active segment of a benchmark's log.
func (r *rig) roll16() {
	n := len(r.l.Segments())
	for len(r.l.Segments()) == n {
		r.add(spec{}, kv{"roll", string(make([]byte, 1<<20))})
	}
	r.sealed()
}
