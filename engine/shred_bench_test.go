package engine

import (
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kaas/engine/vfs"
)

// BenchmarkAppendBesideDeletion times appends of 16 KiB, one a millisecond, while nothing else goes on and while 1 GiB is deleted, in turns,
// in one run: with what=slices as the engine does it, with what=unlink at once, for comparison. added-p99-us is the difference.
func BenchmarkAppendBesideDeletion(b *testing.B) {
	for _, what := range []string{"slices", "unlink"} {
		b.Run("what="+what, func(b *testing.B) {
			f := newFixture(b, func(c *Config) { c.Clock = nil })
			l := f.log(true, small(64<<20))
			var quiet, busy []time.Duration
			var took time.Duration
			for b.Loop() {
				quiet = append(quiet, appendsFor(b, l, time.Second, nil)...)
				name := f.cfg.Dir + "/victim"
				fill(b, name, 1<<30)
				done := make(chan time.Duration, 1)
				go func() {
					began := time.Now()
					var err error
					if what == "unlink" {
						err = vfs.OS.Remove(name)
					} else {
						err = f.e.shred(name, func(cut func() error) error { return cut() })
					}
					if err != nil {
						b.Error(err)
					}
					done <- time.Since(began)
				}()
				busy = append(busy, appendsFor(b, l, 0, func() bool {
					select {
					case d := <-done:
						took += d
						return true
					default:
						return false
					}
				})...)
			}
			q, s := p99(quiet), p99(busy)
			b.ReportMetric(float64(q.Microseconds()), "quiet-p99-us")
			b.ReportMetric(float64(s.Microseconds()), "busy-p99-us")
			b.ReportMetric(float64((s - q).Microseconds()), "added-p99-us")
			b.ReportMetric(float64(slices.Max(busy).Microseconds()), "busy-max-us")
			b.ReportMetric(took.Seconds()*1000/float64(b.N), "deletion-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// fill makes a file of n bytes that are on the disk and in the page cache.
func fill(b *testing.B, name string, n int64) {
	file, err := vfs.OS.Open(name, vfs.Create)
	if err != nil {
		b.Fatal(err)
	}
	if err := file.ZeroFill(0, n); err != nil {
		b.Fatal(err)
	}
	if err := file.Sync(); err != nil {
		b.Fatal(err)
	}
	file.Close()
}

// appendsFor appends for a time, or with until, until that is so, and returns what each took, pauses
// between left out.
func appendsFor(b *testing.B, l *Log, d time.Duration, until func() bool) (took []time.Duration) {
	en := []Entry{batch(spec{size: 16<<10 - 61})}
	for start := time.Now(); ; {
		began := time.Now()
		if l.Append(en); en[0].Err != nil {
			b.Fatal(en[0].Err)
		}
		took = append(took, time.Since(began))
		if until == nil && time.Since(start) > d || until != nil && until() {
			return took
		}
		unix.Nanosleep(&unix.Timespec{Nsec: 500_000}, nil)
	}
}

func p99(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)*99/100]
}
